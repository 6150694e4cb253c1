"""What the parts of a Store ask of it: to read rows and to commit writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from .writer import Value, Writes


class Rows(Protocol):
    """What can be read: the Store, or a file of one that is only looked at."""

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]: ...


class Access(Protocol):
    """The Store, seen from inside."""

    path: str

    def write(self, writes: Writes, size: int | None = None) -> Future[None]: ...

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]: ...

    def before_close(self, callback: Callable[[], None]) -> None: ...
