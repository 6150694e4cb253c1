"""The durable record: one SQLite file, one writer, many readers."""

from .batch import Batch
from .erase import Erased
from .queue import Queue
from .releases import Release, Resources
from .rollouts import Attempt, Finish, Rollouts
from .spans import Spans, Touched
from .store import Store
from .subjects import Subject, Subjects

__all__ = [
    "Attempt",
    "Batch",
    "Erased",
    "Finish",
    "Queue",
    "Release",
    "Resources",
    "Rollouts",
    "Spans",
    "Store",
    "Subject",
    "Subjects",
    "Touched",
]
