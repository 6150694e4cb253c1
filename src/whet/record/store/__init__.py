"""The durable record: one SQLite file, one writer, many readers."""

from .batch import Batch
from .bundles import BundleFile, bundle_of, read_bundle, version_of, write_bundle
from .erasure import Erased
from .ids import release_of
from .issue_log import Issues
from .issues import AgentIssue, Component, IssueMove, IssueStatus
from .queue import Queue
from .releases import Release, Stage
from .rollouts import Attempt, Finish, Rollouts
from .spans import Spans, Touched
from .store import Store
from .subjects import Subject, Subjects
from .work_log import Log

__all__ = [
    "AgentIssue",
    "Attempt",
    "Batch",
    "BundleFile",
    "Component",
    "Erased",
    "Finish",
    "IssueMove",
    "IssueStatus",
    "Issues",
    "Log",
    "Queue",
    "Release",
    "Rollouts",
    "Spans",
    "Stage",
    "Store",
    "Subject",
    "Subjects",
    "Touched",
    "bundle_of",
    "read_bundle",
    "release_of",
    "version_of",
    "write_bundle",
]
