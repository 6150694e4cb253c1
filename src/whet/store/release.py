"""One entry of the release log, and the log as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ..errors import StoreError
from ..types import Bundle, Version
from .writer import Value


@dataclass(frozen=True, slots=True)
class Release:
    """One entry in the history of what was live under a name."""

    id: str
    name: str
    bundle: Bundle
    previous: str | None
    """`id` of the release that a rollback of this one goes back to; None is the agent as it came."""
    at: float
    """Unix time in seconds."""
    reason: str
    verdict: str | None = None
    """`id` of the Verdict that it was released on."""
    unproven: bool = True
    """Nothing had proven it: it was asked for all the same."""


_written = 0


def written() -> int:
    """How many times this process may have changed what is live, in any store: who follows one asks again then."""
    return _written


def note_written() -> None:
    """Count a release or rollback that has just become durable."""
    global _written
    _written += 1  # only inequality matters, so two writers at once may count as one


class Source(Protocol):
    """What releases are read from: the Store."""

    path: str

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[Any]: ...

    def versions(
        self, resource: str | None = None, *, ids: Sequence[str] | None = None
    ) -> Iterator[Version]: ...


def history(source: Source, name: str, last: int | None) -> list[Release]:
    """See `Store.history`."""
    rows = source.rows(
        "SELECT id, previous, at, reason, verdict, unproven, body FROM releases WHERE name = ? "
        "ORDER BY seq DESC LIMIT ?",
        [name, -1 if last is None else last],
    )
    return [
        Release(
            id,
            name,
            stored_bundle(source, body, f"release {id}"),
            previous,
            at,
            reason,
            verdict,
            bool(unproven),
        )
        for id, previous, at, reason, verdict, unproven, body in reversed(rows)
    ]


def stored_bundle(source: Source, body: bytes, of: str) -> Bundle:
    """The Bundle of which the record has the ids of its Versions.

    Raises:
        StoreError: one of them is missing.
    """
    wanted = msgspec.json.decode(body, type=list[str])
    found = Bundle(source.versions(ids=wanted)) if wanted else Bundle()
    if len(found) != len(wanted):
        raise StoreError(f"{source.path}: Versions of {of} are missing from the record.")
    return found
