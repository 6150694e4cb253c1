"""Which Bundle is current: the candidate in a context variable, else what is live in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import msgspec

from ..errors import InputError
from ..types import Bundle, Version

EMPTY = Bundle()
_candidate: ContextVar[Bundle | None] = ContextVar("whet_bundle", default=None)
_live: list[Bundle] = []
"""Empty until the first read, which looks at WHET_BUNDLE."""


@contextmanager
def using(bundle: Bundle) -> Iterator[Bundle]:
    """Let resources read their current Version from `bundle` inside the block.

    asyncio tasks started inside carry it; `propagate` carries it into threads.  A resource that
    `bundle` does not name has its default, not the live Version: a Bundle says all there is.
    """
    token = _candidate.set(bundle)
    try:
        yield bundle
    finally:
        _candidate.reset(token)


def set_live_bundle(bundle: Bundle | None) -> None:
    """What resources read outside `using`; None means the defaults."""
    _live[:] = [EMPTY if bundle is None else bundle]


def current_bundle() -> Bundle:
    """The candidate, else the live Bundle; empty if neither is set."""
    candidate = _candidate.get()
    if candidate is not None:
        return candidate
    if not _live:
        path = os.environ.get("WHET_BUNDLE")
        _live[:] = [load_bundle(path) if path else EMPTY]
    return _live[0]


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> None:
    """Write a Bundle as JSON: for WHET_BUNDLE, or to look at."""
    body = msgspec.json.format(msgspec.json.encode({"versions": list(bundle.values())}), indent=2)
    part = Path(f"{os.fspath(path)}.part-{os.getpid()}")
    part.write_bytes(body + b"\n")
    part.replace(path)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read what `save_bundle` wrote.

    Raises:
        InputError: no such file, not such JSON, or a Version whose id is not that of its content.
    """
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, list[Version]])["versions"]
    except (OSError, msgspec.MsgspecError, KeyError, ValueError) as exception:
        raise InputError(
            f"{os.fspath(path)} is no saved Bundle: {exception}. Write it with save_bundle."
        ) from exception
    for version in found:
        same = Version(resource=version.resource, content=version.content, kind=version.kind)
        if same.id != version.id:
            raise InputError(
                f"{os.fspath(path)}: Version {version.id} of {version.resource!r} was changed by hand (its "
                f"content is {same.id}). Remove its id, or save the Bundle anew."
            )
    return Bundle(found)
