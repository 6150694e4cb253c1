"""The durable record: one SQLite file, one writer, many readers."""

from .batch import Batch
from .queue import Finish, Queue
from .releases import Release, Resources
from .spans import Spans, Touched
from .store import Store

__all__ = ["Batch", "Finish", "Queue", "Release", "Resources", "Spans", "Store", "Touched"]
