"""How far assembling has come, for whoever asks: the server's health, `whet show`, the answer to an export.

The assembler writes it with its place in the record; `read_progress` reads it from there, in any process.
"""

from __future__ import annotations

import time

import msgspec

from ..store import Store

PROGRESS = "assembly"
"""The key in the record under which the assembler keeps it."""


class AssemblyProgress(msgspec.Struct, frozen=True):
    """The runs of which spans were accepted and no Trajectory is written yet."""

    after: int = 0
    """`seq` of the last span that was looked at."""
    open: int = 0
    """Runs that wait: for their root, for silence, or for their turn."""
    unassembled: int = 0
    """Of them those that wait for nothing but their turn."""
    oldest: float | None = None
    """Unix time in seconds since when the longest waiting of those is complete; None if there is none."""

    def lag(self, now: float | None = None) -> float:
        """Seconds for which the longest waiting complete run has not been a Trajectory; 0 if there is none."""
        if self.oldest is None:
            return 0.0
        return max(0.0, (time.time() if now is None else now) - self.oldest)


def read_progress(store: Store) -> tuple[AssemblyProgress, int]:
    """The last recorded progress, and the number of spans that arrived since and were not looked at.

    Where such spans are there and nothing assembles them, the lag grows: they wait for a server.
    """
    state = store.state(PROGRESS)
    progress = msgspec.convert(state, AssemblyProgress) if isinstance(state, dict) else AssemblyProgress()
    unread = max(0, store.spans.newest - progress.after)
    if unread and progress.oldest is None:
        for arrival in store.spans.touched(progress.after, limit=1):
            progress = msgspec.structs.replace(progress, oldest=arrival.arrived)
    return progress, unread
