"""What was live under a name, and the snapshots of resources that rollouts run under.

A snapshot of resources is a Bundle of its own name: setting it live is what `latest` follows, and
what a rollout was handed stays readable under the Bundle's id, which is the hash of its content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ..errors import InputError, NotFoundError, StoreError
from ..types import Bundle, Json, Version
from .access import Access

RESOURCES = "resources"
"""The name under which snapshots of resources are live."""


@dataclass(frozen=True, slots=True)
class Release:
    """One entry in the history of what was live under a name."""

    id: str
    name: str
    bundle: Bundle
    previous: str | None
    """`id` of the release that a rollback of this one goes back to."""
    at: float
    """Unix time in seconds."""
    reason: str


class Source(Access, Protocol):
    """What releases are read from: the Store."""

    def versions(
        self, resource: str | None = None, *, ids: Sequence[str] | None = None
    ) -> Iterator[Version]: ...

    def set_live(self, bundle: Bundle, name: str = "live", *, reason: str = "") -> Release: ...


def history(source: Source, name: str, last: int | None) -> list[Release]:
    """See `Store.history`."""
    rows = source.rows(
        "SELECT id, previous, at, reason, body FROM bundles WHERE name = ? ORDER BY seq DESC LIMIT ?",
        [name, -1 if last is None else last],
    )
    return [
        Release(id, name, _bundle(source, body, f"release {id}"), previous, at, reason)
        for id, previous, at, reason, body in reversed(rows)
    ]


def release_before(releases: Sequence[Release], name: str) -> Release:
    """The one that a rollback of the last one goes back to.

    Raises:
        NotFoundError: there is none.
    """
    known = {release.id: release for release in releases}
    current = releases[-1] if releases else None
    before = known.get(current.previous) if current and current.previous else None
    if before is None:
        raise NotFoundError(f"nothing was live as {name!r} before what is live now; see `Store.history`.")
    return before


def _bundle(source: Source, body: bytes, what: str) -> Bundle:
    wanted = msgspec.json.decode(body, type=list[str])
    found = Bundle(source.versions(ids=wanted))
    if len(found) != len(wanted):
        raise StoreError(f"{source.path}: Versions of {what} are missing from the record.")
    return found


class Resources:
    """Immutable snapshots of named values: prompts, knobs, endpoints that a worker runs a task with.

    Made by the Store; any process that has it open may use it.
    """

    def __init__(self, store: Source) -> None:
        self._store = store

    def put(self, values: Mapping[str, Json], *, kind: str = "value") -> str:
        """Keep a snapshot and make it the latest; returns its id, once durable.

        The id is the hash of names and values, so the same snapshot put again has the same id; it
        is the latest again.

        Raises:
            InputError: a value has no JSON form.
            StoreError: it could not be written.
        """
        try:
            bundle = Bundle(
                [Version(resource=name, content=value, kind=kind) for name, value in values.items()]
            )
        except TypeError as exception:
            raise InputError(f"these resources have no JSON form: {exception}") from exception
        latest = history(self._store, RESOURCES, 1)
        if not latest or latest[0].bundle != bundle:
            self._store.set_live(bundle, RESOURCES, reason="resources")
        return bundle.id

    def get(self, id: str) -> dict[str, Json]:
        """Name → value of a snapshot.

        Raises:
            NotFoundError: there is none with this id.
        """
        rows = self._store.rows(
            "SELECT body FROM bundles WHERE name = ? AND bundle = ? ORDER BY seq DESC LIMIT 1",
            [RESOURCES, id],
        )
        if not rows:
            raise NotFoundError(f"{self._store.path} holds no snapshot of resources {id!r}.")
        return _values(_bundle(self._store, rows[0][0], f"snapshot {id}"))

    def latest(self) -> tuple[str, dict[str, Json]] | None:
        """Id and content of what was put last, None if nothing ever was."""
        found = history(self._store, RESOURCES, 1)
        return (found[0].bundle.id, _values(found[0].bundle)) if found else None


def _values(bundle: Bundle) -> dict[str, Json]:
    return {name: version.content for name, version in bundle.items()}
