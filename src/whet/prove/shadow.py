"""Runs and their shadows as the gate takes them: what people were answered beside what the candidate would have said.

A shadow comes from the gateway, which had each model call of a run answered again, or from `whet replay --trial`, which
ran the whole agent under the candidate with the tools answered from the record.  Either is a Trajectory on the task of
the run that it shadows.  Pairs of one person, or of one session, are one group: they are not independent draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from ..errors import GateError, NotFoundError
from ..judge import Reward, ascore, name_of
from ..record.store import Release, Store
from ..record.store.batch import Batch
from ..record.store.bundles import EMPTY
from ..record.store.trials import SHADOW, shadow_experiment
from ..types import LLM, Trajectory, Verdict
from .gate import as_far_as_judges_reach, compare

_TOGETHER = 16
"""Runs that are judged at once."""
_FAR_MORE, _LITTLE = 2.0, 200
"""Times as many tokens or model calls as live, from which a candidate costs far more; and tokens below which nothing is
said."""
_CRASHED, _FEWEST_CRASHED = 0.1, 2
"""Share of the pairs that a candidate may break, and how many of them say nothing yet."""
PAIRED = "paired"
"""What a run has come to that has a shadow."""


def trial_of(store: Store, id: str) -> Release:
    """The newest entry of a trial, by the id of any of its entries or of its Bundle.

    Raises:
        NotFoundError: nothing of this id was ever released.
    """
    for release in reversed(store.release_log()):
        if id in (release.trial, release.id, release.candidate):
            return release
    raise NotFoundError(
        f"nothing of the id {id!r} is in the release log; whet show trials lists what is on trial"
    )


def shadow_pairs(store: Store, trial: str) -> list[tuple[Trajectory, Trajectory]]:
    """Each run that has a shadow in this trial, with it, on the task of the run."""
    shadows: dict[str, Trajectory] = {}
    for shadow in store.trajectories(experiment=shadow_experiment(trial)):
        notes = shadow.meta.get(SHADOW)
        if isinstance(notes, dict):
            shadows[str(notes.get("of"))] = shadow
    real = store.trajectories(ids=[*shadows]) if shadows else ()
    # A shadow of the gateway was made without a look into the record, where the run's task is.
    return [(run, replace(shadows[run.id], task=run.task)) for run in real if run.id in shadows]


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """How far a recorded run has come in the shadow of a trial; written before and after each run of an agent."""

    begun: int = 0
    """Runs of an agent for it, the candidate's and where that needs it the control's, broken off ones included."""
    ended: str = ""
    """`PAIRED`, or why it has no shadow; "" while it is under way, and of one whose process was killed."""


def replay_marks(store: Store, trial: str) -> dict[str, ReplayMark]:
    """Id of a recorded run → how far it has come in the shadow of a trial."""
    return msgspec.convert(store.state(_marks_key(trial)) or {}, dict[str, ReplayMark])


class ReplayProgress:
    """The marks of the replays of one trial, as a process makes them."""

    def __init__(self, store: Store, trial: str) -> None:
        self._store, self._trial = store, trial
        self._marks = replay_marks(store, trial)

    def begin(self, run: str) -> None:
        """An agent is about to be run for it; returns once that is durable."""
        mark = self._marks.get(run, ReplayMark())
        self._mark(self._store.batch(), run, ReplayMark(mark.begun + 1))

    def end(self, run: str, ended: str, shadow: Trajectory | None = None) -> None:
        """It has come to its end, and perhaps to a shadow, which is recorded in the same transaction."""
        batch = self._store.batch()
        if shadow is not None:
            batch.put(shadow, experiment=shadow_experiment(self._trial), replace=True)
        self._mark(batch, run, replace(self._marks[run], ended=ended))

    def _mark(self, batch: Batch, run: str, mark: ReplayMark) -> None:
        self._marks[run] = mark
        batch.put_state(_marks_key(self._trial), msgspec.to_builtins(self._marks))
        batch.submit().result()


def _marks_key(trial: str) -> str:
    return f"shadow/{trial}/replays"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowFindings:
    """What shadows show without anybody's judgement: whether the candidate answers at all, and what it asks for."""

    pairs: int
    crashed: int
    """Shadows that ended in an error where the run did not."""
    tokens: float | None
    """Times as many as live; None where either side used none."""
    calls: float | None
    """Model calls, likewise."""
    error: str = ""
    """Of one of those that crashed."""

    @property
    def harm(self) -> str:
        """Why it may go no further; "" where it may."""
        if self.crashed >= _FEWEST_CRASHED and self.crashed > _CRASHED * self.pairs:
            return f"it fails in {self.crashed} of {self.pairs} shadows where what is live does not: {self.error}"
        for name, times in (("tokens", self.tokens), ("model calls", self.calls)):
            if times is not None and times > _FAR_MORE:
                return f"in {self.pairs} shadows it takes {times:.1f} times as many {name} as what is live"
        return ""

    @property
    def sentence(self) -> str:
        """In words."""
        costs = [
            f"{times:.2f} times as many {name} as live"
            for name, times in (("tokens", self.tokens), ("model calls", self.calls))
            if times is not None
        ]
        spent = ", ".join(costs) or "no model call on either side"
        return f"{self.pairs} shadows: {self.crashed} failed where what is live did not, {spent}"


def findings_of(pairs: Sequence[tuple[Trajectory, Trajectory]]) -> ShadowFindings:
    """What pairs of a run and its shadow show."""
    broken = [shadow for run, shadow in pairs if shadow.error is not None and run.error is None]
    # A run that broke off asked for less: it says nothing of the cost.
    whole = [pair for pair in pairs if pair[0].error is None and pair[1].error is None]
    before, after = ([_spent(pair[side]) for pair in whole] for side in (0, 1))
    times = []
    for unit in (0, 1):
        old, new = (sum(each[unit] for each in side) for side in (before, after))
        # Only where each side has been counted: a record without its model calls is no cheap one.
        times.append(new / old if old and new and (unit or old >= _LITTLE) else None)
    error = (
        "" if not broken or broken[0].error is None else f"{broken[0].error.type}: {broken[0].error.message}"
    )
    return ShadowFindings(
        pairs=len(pairs), crashed=len(broken), tokens=times[0], calls=times[1], error=error[:200]
    )


def far_more(before: Trajectory, after: Trajectory) -> bool:
    """True if one run asked for far more than another on the same task."""
    return any(old and new > _FAR_MORE * old for old, new in zip(_spent(before), _spent(after), strict=True))


def _spent(run: Trajectory) -> tuple[int, int]:
    """Tokens and model calls."""
    return run.usage.prompt_tokens + run.usage.output_tokens, sum(step.kind == LLM for step in run.steps)


async def shadow_verdict(
    store: Store, release: Release, rewards: Sequence[Reward], *, margin: float = 0.0, alpha: float = 0.05
) -> Verdict:
    """The gate's Verdict on a candidate by its shadows, recorded.

    Args:
        rewards: judge the runs and the shadows alike; the first one decides.

    Raises:
        GateError: no reward, or there is nothing to compare.
    """
    if not rewards:
        raise GateError("shadows are answers that nobody has seen, so no thumb judges them: give --reward")
    slots = asyncio.Semaphore(_TOGETHER)

    async def judged(run: Trajectory, pair: Trajectory, group: str) -> Trajectory:
        async with slots:
            scores = [await ascore(reward, run) for reward in rewards]
        return replace(run.scored(*scores), task=replace(run.task, id=pair.id, group=group))

    pairs = shadow_pairs(store, release.trial)
    if not pairs:
        raise GateError(
            f"trial {release.trial} has no pair yet: its shadows come with the traffic, or whet replay --trial"
        )
    groups = [run.subject or run.session or "" for run, _ in pairs]
    before = await asyncio.gather(
        *(judged(run, run, group) for (run, _), group in zip(pairs, groups, strict=True))
    )
    after = await asyncio.gather(
        *(judged(shadow, run, group) for (run, shadow), group in zip(pairs, groups, strict=True))
    )
    verdict = compare(
        before,
        after,
        metric=name_of(rewards[0]),
        margin=margin,
        alpha=alpha,
        against="what was live",
        watched=True,
    )
    verdict = as_far_as_judges_reach(verdict, rewards, [*before, *after])
    verdict = replace(verdict, candidate=release.candidate, baseline=release.base or EMPTY.id)
    store.put_verdict(verdict, experiment=shadow_experiment(release.trial))
    return verdict
