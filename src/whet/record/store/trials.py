"""Which canary serves whom: drawn by the hash of a session, a person or a run, and recorded with its chance.

The draw is salted with the id of the trial, so that the same person is not the first in every experiment, and compared
with the share that the canary has now: who is served the candidate stays with it while the share rises, and falls back
only when the trial ends.  Canaries that change different resources are drawn independently of each other, and a unit
may be in several.  Of those that change the same one only the oldest serves; the others wait until it has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...types import Bundle, Json, Trajectory, Version
from .bundles import EMPTY
from .releases import Release, Stage

TRIALS = "trials"
"""Key of `Trajectory.meta`: trial → arm, chance of the candidate's arm, and unit."""
SHADOW = "shadow"
"""Key of `Trajectory.meta`: of which run this is the shadow, and in which trial."""
_SCALE = float(2**64)


def drawn(trial: str, unit: str, share: float) -> bool:
    """True if a unit is served the candidate of a trial at this share; once true it stays so while the share rises."""
    # Not hash(), which differs between processes: a session's runs may be served by several.
    point = int.from_bytes(hashlib.sha256(f"{trial}\0{unit}".encode()).digest()[:8]) / _SCALE
    return point < share


@dataclass(frozen=True, slots=True)
class TrialChoice:
    """What a run is served while canaries stand."""

    bundle: Bundle | None = None
    """None is what is live."""
    trials: Mapping[str, Json] = field(default_factory=dict)
    """As `Trajectory.meta` has it under `TRIALS`; empty where no canary is open to the run."""


NO_CHOICE = TrialChoice()


@dataclass(frozen=True, slots=True)
class _Canary:
    trial: str
    share: float
    unit: str
    changed: tuple[Version, ...]


class Trials:
    """The canaries that stand, as new runs are drawn into them.

    Args:
        standing: shadows and canaries (`Store.on_trial`).
        live: the Bundle that they are compared with.
        reads: True of the names of resources that the caller serves; a canary of others is not drawn for.
    """

    def __init__(
        self,
        standing: Sequence[Release] = (),
        live: Bundle = EMPTY,
        *,
        reads: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self._live = live
        self._canaries: list[_Canary] = []
        self.waiting: dict[str, str] = {}
        """Trial → the older trial of the same resource that it waits for."""
        holders: dict[str, str] = {}
        # By the id of the trial, which begins with its time: its newest entry moves with every step of its share.
        for release in sorted(standing, key=lambda each: each.trial):
            if release.stage is not Stage.CANARY:
                continue
            changed = changes(release, live)
            holder = next(
                (holders[version.resource] for version in changed if version.resource in holders), None
            )
            if holder is not None:
                self.waiting[release.trial] = holder
                continue
            holders |= dict.fromkeys((version.resource for version in changed), release.trial)
            if any(reads(version.resource) for version in changed):
                self._canaries.append(_Canary(release.trial, release.share, release.unit, changed))

    def __bool__(self) -> bool:
        return bool(self._canaries)

    def choose(self, run: str, session: str | None = None, subject: str | None = None) -> TrialChoice:
        """What a new run is served.

        A run that does not name the unit that a canary is drawn by is a unit of its own.
        """
        if not self._canaries:
            return NO_CHOICE
        bundle: Bundle | None = None
        arms: dict[str, Json] = {}
        for canary in self._canaries:
            named = {"session": session, "subject": subject}.get(canary.unit) or run
            candidate = drawn(canary.trial, named, canary.share)
            if candidate:
                bundle = (bundle or self._live).put(*canary.changed)
            arms[canary.trial] = {
                "arm": "candidate" if candidate else "live",
                "share": canary.share,
                "unit": named,
            }
        return TrialChoice(bundle, arms)


def shadow_experiment(trial: str) -> str:
    """The experiment that the shadow trajectories of a trial are recorded under."""
    return f"{SHADOW} {trial}"


def changes(release: Release, live: Bundle) -> tuple[Version, ...]:
    """The Versions in which a release differs from what is live."""
    return tuple(version for name, version in release.bundle.items() if live.get(name) != version)


def served_otherwise(
    trajectory_versions: Mapping[str, str], changed: Collection[Version], *, candidate: bool
) -> str | None:
    """The first resource that a run was served in another Version than its arm says; None if all are as assigned.

    Args:
        trajectory_versions: of the run; a resource that it did not read is not looked at.
        changed: the candidate's Versions.
    """
    for version in changed:
        served = trajectory_versions.get(version.resource)
        if served is not None and (served == version.id) is not candidate:
            return version.resource
    return None


def arms_of(trajectory: Trajectory) -> Mapping[str, Json]:
    """Trial → arm, share and unit of a recorded run."""
    arms = trajectory.meta.get(TRIALS)
    return arms if isinstance(arms, Mapping) else {}


def joined_arms(traced: Mapping[str, Json], called: Mapping[str, Json]) -> dict[str, Json]:
    """The arms of a run as its program and the gateway drew them, where they agree.

    A canary that was drawn twice for one run, by a session here and without one there, is `mixed`: it is evidence for
    neither arm.
    """
    joined = {**called, **traced}
    for trial in traced.keys() & called.keys():
        arm, other = traced[trial], called[trial]
        if isinstance(arm, dict) and isinstance(other, dict) and arm.get("arm") != other.get("arm"):
            joined[trial] = {**arm, "arm": "mixed"}
    return joined
