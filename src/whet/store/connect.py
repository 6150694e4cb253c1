"""How a process comes to a Link: it becomes the owner of the file, or reaches the one that is."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ..errors import StoreError
from .client import Client
from .owner import Owner, claim
from .writer import Link, LinkLost, Writer

PATIENCE = 30.0
"""Seconds that a process looks for an owner, or to become it, before a write fails."""
COURTESY = 1.0
"""Seconds for which a process that gave the file up does not take it again."""


def connect(path: str, writer: Writer, segment: int) -> Link:
    """A Link for the writer of the store at `path`.

    Args:
        segment: spans in a time segment, for an owner.

    Raises:
        StoreError: the file cannot be owned, and who owns it does not answer.
    """
    began = time.monotonic()
    deadline = began + PATIENCE
    before = getattr(writer, "link", None)
    # Who was asked to let go lets the other have it, and takes it back if nobody comes.
    polite = began + COURTESY if isinstance(before, Owner) and before.gave_way else began
    while True:
        lock = claim(path + ".lock") if time.monotonic() >= polite else None
        if lock is not None:
            owner = Owner(path, lock, writer.submit, segment=segment)
            try:
                owner.listen()
            except BaseException:
                owner.close()
                raise
            return owner
        try:
            return Client(path)
        except LinkLost as exception:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{path} is owned by process {holder(path)}, which does not answer "
                    f"({exception}). Stop it, or wait until it is done."
                ) from exception
        time.sleep(0.02)


def holder(path: str) -> str:
    """The process that serves or owns the store at `path`, for messages."""
    for suffix in (".server", ".lock"):
        with contextlib.suppress(OSError):
            if found := Path(path + suffix).read_text().strip():
                return found
    return "unknown"
