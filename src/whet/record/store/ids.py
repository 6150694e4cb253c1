"""What a person may call something in a record: ids, and `live`, `live~1` for what was live before."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ...errors import NotFoundError
from ...types import Bundle, Version
from .bundles import EMPTY
from .releases import Release, entry_of
from .store import Store

_LIVE = re.compile(r"live(?:~(\d{1,6}))?")


def release_of(store: Store, id: str) -> Bundle:
    """The Bundle that an id names: of a Bundle, a Version, a Verdict, a release or an improvement's checkpoint.

    Of a release it is what was released, without what was live beside it. `live` is what is live now, `live~1` what a
    rollback would make live.

    Raises:
        NotFoundError: nothing recorded has this id.
    """
    if id == EMPTY.id or store.database.rows("SELECT 1 FROM bundles WHERE id = ?", [id]):
        return store.bundle(id)
    if version := list(store.versions(ids=[id])):
        return Bundle(version)
    if rows := store.database.rows("SELECT candidate FROM verdicts WHERE id = ?", [id]):
        return store.bundle(rows[0][0])
    if rows := store.database.rows("SELECT id FROM releases WHERE id = ?", [id]):
        return store.bundle(entry_of(store.database, id).candidate)
    if rows := store.database.rows("SELECT body FROM states WHERE key = ?", [id]):
        checkpoint = msgspec.json.decode(rows[0][0])
        if isinstance(checkpoint, dict) and isinstance(checkpoint.get("bundle"), list):
            return Bundle(msgspec.convert(checkpoint["bundle"], list[Version]))
    if (bundle := _back(store, id)) is not None:
        return bundle
    raise NotFoundError(
        f"{id!r} is neither a folder or file with a Bundle, nor the id of a Bundle, Version, Verdict, release or "
        f"improvement in {store.path}, nor live or live~1. To release one file under a name: whet release NAME FILE"
    )


def whole_of(store: Store, id: str) -> Bundle:
    """All that would run under an id: of a release what ran, else what it names beside what is live.

    Raises:
        NotFoundError: nothing recorded has this id.
    """
    if store.database.rows("SELECT 1 FROM releases WHERE id = ?", [id]):
        return entry_of(store.database, id).bundle
    if (bundle := _back(store, id)) is not None:
        return bundle
    return (store.live() or EMPTY).put(*release_of(store, id).values())


def _back(store: Store, id: str) -> Bundle | None:
    """The Bundle of `live` or `live~N`; None of another id.

    Raises:
        NotFoundError: nothing was live so far back.
    """
    match = _LIVE.fullmatch(id)
    if match is None:
        return None
    steps = int(match[1] or 0)
    line = list(_line(store))
    if steps > len(line):
        raise NotFoundError(f"{id}: the record goes {len(line)} releases back, to the agent as it came.")
    # Behind the first release of all stands the agent as it came.
    return line[steps].bundle if steps < len(line) else EMPTY


def _line(store: Store) -> Iterator[Release]:
    """What is live, what a rollback makes live, and so on."""
    releases = {release.id: release for release in store.history()}
    newest = next(reversed(releases), None)
    while newest is not None:
        yield releases[newest]
        newest = releases[newest].previous
