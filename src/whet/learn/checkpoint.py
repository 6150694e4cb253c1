"""The progress of an `improve`, as its checkpoint in the store has it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..types import Bundle, Group, Json, Version, digest


@dataclass(kw_only=True)
class Course:
    """The progress of an `improve`."""

    live: Bundle
    start: dict[str, Json]
    """Must be equal for a checkpoint to be resumed."""
    log: str
    """Name of its log."""
    state: Json = None
    metrics: list[dict[str, float]] = field(default_factory=list)
    reason: str = ""
    done: bool = False
    chances: dict[str, float] = field(default_factory=dict)
    """Task id → its chance of success by its last group, where tasks are drawn by it."""
    spent: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=lambda: {"seconds": 0.0, "cpu_seconds": 0.0})

    def saved(self) -> Json:
        """Its JSON form."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "live"}
        return msgspec.to_builtins({**fields, "bundle": list(self.live.values())})

    @classmethod
    def of(cls, saved: Any, start: dict[str, Json], key: str) -> Course:
        """From its JSON form."""
        return cls(
            live=Bundle([msgspec.convert(version, Version) for version in saved["bundle"]]),
            start=start,
            log=saved.get("log", key),
            state=saved["state"],
            metrics=list(saved["metrics"]),
            reason=saved["reason"],
            done=saved["done"],
            chances=saved.get("chances", {}),
            spent=saved["spent"],
            before=saved["before"],
        )


class Clock:
    """Seconds that an `improve` has taken in this and earlier processes."""

    def __init__(self, course: Course) -> None:
        self._seconds, self._cpu = time.perf_counter(), time.process_time()
        self._before = dict(course.before)

    def stop(self, course: Course) -> None:
        # Set, not added to: the clock is read after every round and once more at the end.
        course.before = {
            "seconds": time.perf_counter() - self._seconds + self._before["seconds"],
            "cpu_seconds": time.process_time() - self._cpu + self._before["cpu_seconds"],
        }


def evidence_of(groups: Sequence[Group] | None) -> str:
    """Digest of recorded groups: their runs, feedback and scores."""
    if groups is None:
        return ""
    return digest(
        [[run.id, len(run.feedback), len(run.scores)] for group in groups for run in group.trajectories]
    )
