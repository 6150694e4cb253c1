"""Which Bundle is current: the candidate in a context variable, else what is live in the record."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from ..store.bundles import read_bundle, write_bundle
from ..types import Bundle
from .record import current
from .sink import LOOK, default_sink

_candidate: ContextVar[Bundle | None] = ContextVar("whet_bundle", default=None)
reads: ContextVar[dict[str, str] | None] = ContextVar("whet_reads", default=None)
"""Resource → id of the Version that was read, while `noting`."""
_live: list[Bundle] = []
"""What is live whatever the record says; empty where the record says it."""
_look_at = [0.0]
"""When the environment is looked at again."""


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


@contextmanager
def noting() -> Iterator[Mapping[str, str]]:
    """Note which Version of each resource is read inside, in this context and in what it starts.

    >>> with using(bundle), noting() as read:
    ...     agent(question)
    """
    found: dict[str, str] = {}
    token = reads.set(found)
    try:
        yield found
    finally:
        reads.reset(token)
        if (outer := reads.get()) is not None:
            outer |= found


def set_live_bundle(bundle: Bundle | None) -> None:
    """What resources read outside `using`, whatever the record says; None follows the record again."""
    _live[:] = [] if bundle is None else [bundle]
    _look_at[0] = 0.0


def _given() -> Bundle | None:
    """What `set_live_bundle` said, else the content of the file that WHET_BUNDLE names."""
    if not _live and time.monotonic() >= _look_at[0]:
        if path := os.environ.get("WHET_BUNDLE"):
            _live[:] = [
                load_bundle(path)
            ]  # one that cannot be read is said at every read: nothing else may run
        _look_at[0] = time.monotonic() + LOOK
    return _live[0] if _live else None


def current_bundle() -> Bundle:
    """The candidate, else what is live; empty, the agent as it came, where nothing is.

    What is live is what `set_live_bundle` said, the file that WHET_BUNDLE names, or else what the record says
    that this program records to.  A traced call keeps what was live when it first read a resource.
    """
    candidate = _candidate.get()
    if candidate is not None:
        return candidate
    if _live:
        return _live[0]
    frame = current.get()
    call = None if frame is None else frame.call
    if call is not None and call.bundle is not None:
        return call.bundle
    given = _given()
    if given is not None:
        return given
    if call is None:
        return default_sink().live
    call.bundle = (call.sink or default_sink()).live
    return call.bundle


def origin() -> Literal["given", "store", "server"]:
    """Where `current_bundle` is from: the release log of a store on this machine, a server's, or what is given here.

    Given are a candidate, what `set_live_bundle` said, and the file that WHET_BUNDLE names.
    """
    if _candidate.get() is not None or _given() is not None:
        return "given"
    frame = current.get()
    call = None if frame is None else frame.call
    sink = (None if call is None else call.sink) or default_sink()
    return "server" if sink.target is None else "store"


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> None:
    """Write a Bundle as JSON: for WHET_BUNDLE, `whet release`, or to look at (`whet.store.bundles`)."""
    write_bundle(path, bundle)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read what `save_bundle` or a learner wrote.

    Raises:
        NotFoundError: there is no such file.
        InputError: it is something else, or a Version whose id is not that of its content.
    """
    return read_bundle(path).bundle
