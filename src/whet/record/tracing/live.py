"""The current Bundle: the candidate in a context variable, else what is live in the record."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal

from ...types import Bundle
from ..store.bundles import read_bundle, write_bundle
from .record import CallNote, current, fresh_id, setting
from .sink import LOOK, default_sink

_candidate: ContextVar[Bundle | None] = ContextVar("whet_bundle", default=None)
reads: ContextVar[dict[str, str] | None] = ContextVar("whet_reads", default=None)
"""Resource → id of the Version that was read, while `noting`."""
_live: list[Bundle] = []
"""The Bundle that is live whatever the record says; empty where the record decides."""
_look_at = [0.0]
"""When the environment is looked at again."""


def using(bundle: Bundle) -> AbstractContextManager[Bundle]:
    """Let resources read their current Version from `bundle` inside the block.

    asyncio tasks started inside carry it; `propagate` carries it into threads.  A resource that
    `bundle` does not name has its default, not the live Version: a Bundle says all there is.
    """
    return setting(_candidate, bundle)


@contextmanager
def noting() -> Iterator[Mapping[str, str]]:
    """Note which Version of each resource is read inside, in this context and in the tasks it starts.

    >>> with using(bundle), noting() as read:
    ...     agent(question)
    """
    read: dict[str, str] = {}
    token = reads.set(read)
    try:
        yield read
    finally:
        reads.reset(token)
        # An inner block hides the outer one's dictionary while it lasts.
        if (outer := reads.get()) is not None:
            outer |= read


def set_live_bundle(bundle: Bundle | None) -> None:
    """Set the Bundle that resources read outside `using`, whatever the record says; None follows the record again."""
    _live[:] = [] if bundle is None else [bundle]
    _look_at[0] = 0.0


def _fixed() -> Bundle | None:
    """The Bundle of `set_live_bundle`, else of the file that WHET_BUNDLE names."""
    # Not at every read: a lookup in `os.environ` costs several reads of a resource.
    if not _live and time.monotonic() >= _look_at[0]:
        if path := os.environ.get("WHET_BUNDLE"):
            # Kept: a file or variable that changes later is not looked at before `set_live_bundle(None)`.
            _live[:] = [
                load_bundle(path)
            ]  # one that cannot be read is said at every read: nothing else may run
        _look_at[0] = time.monotonic() + LOOK
    return _live[0] if _live else None


def current_bundle() -> Bundle:
    """The candidate, else what is live; empty, the agent as it came, where nothing is.

    Live is the Bundle of `set_live_bundle`, the file that WHET_BUNDLE names, or else the newest release in the record
    that this program writes.  A traced call keeps the Bundle that was live when it first read a resource, and may be
    drawn into a canary then; a read outside of traced calls, and a program that records to a server, has what is live.
    """
    candidate = _candidate.get()
    if candidate is not None:
        return candidate
    if _live:
        return _live[0]
    frame = current.get()
    call = None if frame is None else frame.call
    # Before the record is asked: half of one release and half of the next is neither (054).
    if call is not None and call.bundle is not None:
        return call.bundle
    fixed = _fixed()
    if fixed is not None:
        return fixed
    if call is None:
        return default_sink().live
    return _begun(call)


def _begun(call: CallNote) -> Bundle:
    """The Bundle that a call runs under from its first read on: what is live, or what a canary has in its place."""
    sink = call.sink or default_sink()
    live, trials = sink.standing
    call.bundle = live
    if trials:
        # The draw is by the id that its trajectory will have, where it names no session and no person.
        call.id = call.id or fresh_id(call)
        run = call.run
        choice = trials.choose(
            call.id if run is None else run.id,
            None if run is None else run.session,
            None if run is None else run.subject,
        )
        call.trials = choice.trials
        call.bundle = live if choice.bundle is None else choice.bundle
    return call.bundle


def origin() -> Literal["given", "store", "server"]:
    """The origin of `current_bundle`: the release log of a store on this machine, of a server, or this program itself.

    Given by the program are a candidate, the Bundle of `set_live_bundle`, and the file that WHET_BUNDLE names.
    """
    if _candidate.get() is not None or _fixed() is not None:
        return "given"
    frame = current.get()
    call = None if frame is None else frame.call
    sink = (None if call is None else call.sink) or default_sink()
    return "server" if sink.target is None else "store"


def save_bundle(bundle: Bundle, path: str | os.PathLike[str]) -> None:
    """Write a Bundle as JSON: for WHET_BUNDLE, `whet release`, or to look at (`whet.record.store.bundles`)."""
    write_bundle(path, bundle)


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Read what `save_bundle` or a learner wrote.

    Raises:
        NotFoundError: there is no such file.
        InputError: it is something else, or a Version whose id is not that of its content.
    """
    return read_bundle(path).bundle
