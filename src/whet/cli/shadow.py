"""What is on trial, in the commands: a canary's plan, real traffic replayed under a shadow, and a shadow's Verdict."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .app import counted, existing, named_store
from .named import named_rewards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..judge.replay import Agent, Replayed
    from ..record.store import Release, Store
    from ..record.tracing.replay import Divergence
    from ..types import Trajectory, Verdict


def planned(
    store: Store, release: Release, *, harm: float | None, margin: float | None, settle: float | None
) -> str | None:
    """Give a canary that has just been released its plan, and say what it promises; None of anything else.

    Raises:
        InputError: something else than a canary was given a plan.
    """
    from ..prove.watch import expectation, keep_plan, plan_of
    from ..record.store import Stage

    given = {"harm": harm, "margin": margin, "settle": settle}
    given = {name: value for name, value in given.items() if value is not None}
    if release.stage is not Stage.CANARY:
        if given:
            raise InputError(
                f"--{next(iter(given))} is of a canary: it is released, without that; give --to canary"
            )
        return None
    plan = replace(plan_of(store, release), **given)  # type: ignore[arg-type]
    keep_plan(store, release, plan)
    judged, runs = expectation(store, release.unit)
    return plan.sentence(unit=release.unit, judged=judged, runs=runs)


def replay_under(
    store: Store, trial: str, agent: Agent, recorded: Sequence[Trajectory], *, divergence: Divergence
) -> Counter[str]:
    """Replay runs whole under a trial's candidate and record them as its shadows; the counts of what became of them.

    A run that left the record is no pair: it is counted, with the first call that nothing could answer.
    """
    from ..judge.replay import again
    from ..prove.shadow import trial_of
    from ..record.store.trials import SHADOW, shadow_experiment
    from ..types import digest

    release = trial_of(store, trial)
    slots = asyncio.Semaphore(8)

    async def replayed(run: Trajectory) -> Replayed:
        async with slots:
            return await again(agent, run, bundle=release.bundle, divergence=divergence, guard=True)

    async def all_of_them() -> list[Replayed]:
        return await asyncio.gather(*(replayed(run) for run in recorded if SHADOW not in run.meta))

    counts: Counter[str] = Counter()
    for pair in asyncio.run(all_of_them()):
        if not pair.faithful:
            counts[pair.counts.diverged[0]] += 1
            continue
        counts["paired"] += 1
        of = pair.recorded.id
        shadow = replace(
            pair.again,
            id=digest((SHADOW, release.trial, of), 24),
            session=None,
            subject=pair.recorded.subject,
            meta={SHADOW: {"of": of, "trial": release.trial, "replayed": True}},
        )
        store.put(shadow, experiment=shadow_experiment(release.trial), replace=True)
    return counts


def told(counts: Counter[str]) -> list[str]:
    """The counts, in lines."""
    from ..judge.replay import UNRECORDED

    left_out = Counter({call: runs for call, runs in counts.items() if call != "paired"})
    lines = [
        f"{counted(counts['paired'], 'run')} replayed under the candidate, each beside the run that it shadows"
    ]
    if left_out:
        lines.append(f"left out: {counted(left_out.total(), 'run')} {UNRECORDED}")
        lines += [f"  {runs} x {call}" for call, runs in left_out.most_common(5)]
    return lines


def verdict_on_shadow(trial: str, store: Path | None, reward: tuple[str, ...], *, margin: float) -> Verdict:
    """The Verdict on a trial's shadows, which is recorded."""
    from ..prove.shadow import shadow_verdict, trial_of
    from ..record.store import Store

    with Store(existing(named_store(store))) as opened:
        release = trial_of(opened, trial)
        return asyncio.run(shadow_verdict(opened, release, named_rewards(reward), margin=margin))
