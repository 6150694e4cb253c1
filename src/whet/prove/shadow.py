"""Runs and their shadows as the gate takes them: what people were answered beside what the candidate would have said.

A shadow comes from the gateway, which had each model call of a run answered again, or from `whet replay --trial`, which
ran the whole agent under the candidate with the tools answered from the record.  Either is a Trajectory on the task of
the run that it shadows.  Pairs of one person, or of one session, are one group: they are not independent draws.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ..errors import GateError, NotFoundError
from ..judge import Reward, ascore, name_of
from ..record.store import Release, Store
from ..record.store.bundles import EMPTY
from ..record.store.trials import SHADOW, shadow_experiment
from ..types import Trajectory, Verdict
from .gate import compare

_TOGETHER = 16
"""Runs that are judged at once."""


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
    verdict = replace(verdict, candidate=release.candidate, baseline=release.base or EMPTY.id)
    store.put_verdict(verdict, experiment=shadow_experiment(release.trial))
    return verdict
