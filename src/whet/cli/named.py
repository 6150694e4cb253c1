"""Functions that the command line names as module:function, rewards among them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..errors import InputError

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from ..judge import Reward
    from ..record.store import Store
    from ..types import Trajectory

RUBRIC = "rubric"
"""Name of the reward that reads the record's rubric."""
AT_ONCE = 16
"""Trajectories judged together, for a reward that waits for something, such as a model."""


def named(name: str) -> Callable[..., Any]:
    """The function of `module:function`; the current folder is searched first.

    Raises:
        InputError: it does not exist, or its module cannot be imported.
    """
    from ..serve.worker.agent import load

    function: Any = load(name)
    if not callable(function):
        raise InputError(f"{name!r} is a {type(function).__name__}, not a function")
    return cast("Callable[..., Any]", function)


def named_rewards(names: Sequence[str]) -> list[Reward]:
    """Rewards by their names: whet's own, a plug-in's, or module:function.

    Raises:
        InputError: there is none of that name.
    """
    from ..learn.plugins import load

    return [named(name) if ":" in name else load("whet.rewards", name) for name in names]


async def opened_rewards(
    names: Sequence[str], store: Store, base_url: str | None, stack: AsyncExitStack
) -> list[Reward]:
    """The same, and `rubric`: a judge who reads the record's proven rubric, asked at `base_url`.

    Raises:
        InputError: as above, or the record holds no such rubric.
    """
    from ..judge.rubric import RubricReward, recorded
    from ..learn.evolution.in_one_call import Endpoints
    from ..models import RecordedModel
    from ..models.budget import Meter
    from ..record.store import Log

    rewards: list[Reward] = []
    for name in names:
        if name != RUBRIC:
            rewards += named_rewards([name])
            continue
        rubric = recorded(store)
        if rubric is None:
            raise InputError(
                f"{store.path} holds no rubric that agreed with people: have one drafted and proven with whet label "
                f"--rubric --store {store.path} --model NAME --base-url URL"
            )
        judge, _, _ = await Endpoints(model=rubric.model, base_url=base_url).open(stack, Meter())
        assert judge is not None
        asked = RecordedModel(judge, Log(store, f"judge/{rubric.model}"))
        rewards.append(RubricReward(RUBRIC, rubric, asked))
    return rewards


def refuse_two_rewards(score: str | None, reward_function: str | None) -> None:
    """Refuse a recorded score beside a reward function.

    Raises:
        InputError: both are given.
    """
    if score is not None and reward_function is not None:
        raise InputError(
            "give --score for a recorded score, or --reward-function for a reward to compute now"
        )


def judged(trajectories: Sequence[Trajectory], name: str) -> tuple[list[Trajectory], str, str]:
    """The trajectories scored by a reward, the score's name, and the reward's version.

    Raises:
        InputError: there is no such function, or it could judge none of them.
    """
    from ..judge import ajudged, name_of, version_of

    reward = named(name)

    async def judge_all() -> list[Trajectory]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def judge(trajectory: Trajectory) -> Trajectory:
            async with slots:
                return await ajudged(trajectory, reward)

        return list(await asyncio.gather(*map(judge, trajectories)))

    # One loop for all: the client of a reward that asks a model belongs to the loop of its first call.
    scored = asyncio.run(judge_all())
    score = name_of(reward)
    if scored and all(trajectory.score(score) is None for trajectory in scored):
        reasons = sorted({trajectory.scores[score].reason for trajectory in scored})
        raise InputError(
            f"{name} could judge none of {len(scored)} trajectories: {'; '.join(reasons) or 'None'}"
        )
    return scored, score, version_of(reward)
