"""The durable record: one SQLite file, one writer, many readers."""

from .batch import Batch
from .bundles import Written, bundle_of, read_bundle, version_of, write_bundle
from .erase import Erased
from .log import Log
from .queue import Queue
from .release import Release
from .releases import release_of
from .rollouts import Attempt, Finish, Rollouts
from .spans import Spans, Touched
from .store import Store
from .subjects import Subject, Subjects

__all__ = [
    "Attempt",
    "Batch",
    "Erased",
    "Finish",
    "Log",
    "Queue",
    "Release",
    "Rollouts",
    "Spans",
    "Store",
    "Subject",
    "Subjects",
    "Touched",
    "Written",
    "bundle_of",
    "read_bundle",
    "release_of",
    "version_of",
    "write_bundle",
]
