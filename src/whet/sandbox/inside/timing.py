"""Processor time of one call in a process that makes many."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


class TooLong(BaseException):
    """A call has used up its processor time."""


def _too_long(number: int, frame: Any) -> None:
    raise TooLong


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLong after so much processor time, again and again; end the process where nobody hears it."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10.0 * seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
