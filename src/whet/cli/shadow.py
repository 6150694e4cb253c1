"""What is on trial, in the commands: a canary's plan, real traffic replayed under a shadow, and a shadow's Verdict."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, MissingExtra
from .named import opened_rewards
from .root import counted, existing, named_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..judge.agent_env import ModelCalls
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
    from ..record.store.trials import shadow_experiment

    release = trial_of(store, trial)
    slots = asyncio.Semaphore(8)

    async def replayed(run: Trajectory) -> Replayed:
        async with slots:
            return await again(agent, run, bundle=release.bundle, divergence=divergence, guard=True)

    async def all_of_them() -> list[Replayed]:
        return await asyncio.gather(*(replayed(run) for run in _traffic(recorded)))

    counts: Counter[str] = Counter()
    for pair in asyncio.run(all_of_them()):
        ended, shadow = _shadow(release, pair)
        counts[ended] += 1
        if shadow is not None:
            store.put(shadow, experiment=shadow_experiment(release.trial), replace=True)
    return counts


def replay_folder_under(
    store: Store,
    trial: str,
    entry: str,
    folders: tuple[Path, Path | None],
    recorded: Sequence[Trajectory],
    *,
    divergence: Divergence,
) -> Counter[str]:
    """The same of a candidate that lies in a folder, by a process that is shut in and nothing of which is marked.

    Args:
        entry: of the agent, as module:function.
        folders: the candidate's, and if there is one, the agent's as it is: where the candidate fails or asks for far
            more, that is run as well, and what it does too says nothing of the candidate.
    """
    from urllib.parse import urlsplit

    from ..learn.evolution.agents.shut_replay import ShutReplay
    from ..prove.shadow import ReplayProgress, far_more, trial_of
    from ..record.store.bundles import EMPTY
    from ..record.store.trials import changes
    from ..types import Bundle
    from .on_trial import on_trial

    release, runs = trial_of(store, trial), _traffic(recorded)
    candidate = Bundle(changes(release, store.live() or EMPTY))
    counts, progress = Counter[str](), ReplayProgress(store, release.trial)

    async def all_of_them(port: int, calls: ModelCalls) -> None:
        async with AsyncExitStack() as stack:

            async def opened(folder: Path, bundle: Bundle) -> ShutReplay:
                shut = ShutReplay(folder, entry, bundle, runs, port=port, calls=calls, divergence=divergence)
                return await stack.enter_async_context(shut)

            tried = await opened(folders[0], candidate)
            control = None if folders[1] is None else await opened(folders[1], Bundle())
            for run in runs:
                progress.begin(run.id)
                pair = await tried.replay(run)
                ended, shadow = _shadow(release, pair)
                if control is not None and pair.faithful and (pair.again.error or far_more(run, pair.again)):
                    progress.begin(run.id)
                    as_it_is = (await control.replay(run)).again
                    if as_it_is.error or (not far_more(as_it_is, pair.again) and not pair.again.error):
                        ended, shadow = "the agent as it is does the same when it is replayed", None
                progress.end(run.id, ended, shadow)
                counts[ended] += 1

    with on_trial(metered=True) as calls:
        if calls is None:
            raise MissingExtra("the gateway that shadows ask through", "server")
        port = urlsplit(os.environ["OPENAI_BASE_URL"]).port
        assert port is not None
        asyncio.run(all_of_them(port, calls))
    return counts


def _traffic(recorded: Sequence[Trajectory]) -> list[Trajectory]:
    from ..record.store.trials import SHADOW

    return [run for run in recorded if SHADOW not in run.meta]


def _shadow(release: Release, pair: Replayed) -> tuple[str, Trajectory | None]:
    """What became of a replay, and the shadow of its run; None where it is no pair."""
    from ..prove.shadow import PAIRED
    from ..record.store.trials import SHADOW
    from ..types import digest

    if not pair.faithful:
        return pair.counts.diverged[0], None
    of = pair.recorded.id
    shadow = replace(
        pair.again,
        id=digest((SHADOW, release.trial, of), 24),
        session=None,
        subject=pair.recorded.subject,
        meta={SHADOW: {"of": of, "trial": release.trial, "replayed": True}},
    )
    return PAIRED, shadow


def told(store: Store, trial: str, counts: Counter[str]) -> list[str]:
    """The counts, and what the shadows of the trial show, in lines."""
    from ..judge.replay import UNRECORDED
    from ..prove.shadow import PAIRED, findings_of, shadow_pairs, trial_of

    left_out = Counter({call: runs for call, runs in counts.items() if call != PAIRED})
    lines = [
        f"{counted(counts[PAIRED], 'run')} replayed under the candidate, each beside the run that it shadows"
    ]
    if left_out:
        lines.append(f"left out: {counted(left_out.total(), 'run')} {UNRECORDED}")
        lines += [f"  {runs} x {call}" for call, runs in left_out.most_common(5)]
    findings = findings_of(shadow_pairs(store, trial_of(store, trial).trial))
    return [*lines, findings.sentence]


def verdict_on_shadow(
    trial: str,
    store: Path | None,
    reward: tuple[str, ...],
    *,
    margin: float,
    base_url: str | None,
    judge_model: str | None,
) -> Verdict:
    """The Verdict on a trial's shadows, which is recorded."""
    from ..prove.shadow import shadow_verdict, trial_of
    from ..record.store import Store

    async def judged(opened: Store) -> Verdict:
        release = trial_of(opened, trial)
        async with AsyncExitStack() as stack:
            rewards = await opened_rewards(reward, opened, base_url, stack, judge_model=judge_model)
            return await shadow_verdict(opened, release, rewards, margin=margin)

    with Store(existing(named_store(store))) as opened:
        return asyncio.run(judged(opened))
