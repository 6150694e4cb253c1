"""The durable record: one SQLite file, one writer, many readers."""

from .batch import Batch, Release
from .store import Store

__all__ = ["Batch", "Release", "Store"]
