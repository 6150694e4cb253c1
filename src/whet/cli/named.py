"""Functions that the user names on the command line, and rewards among them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ..types import Trajectory

AT_ONCE = 16
"""Trajectories that a reward which has to wait, a model's for example, is asked about together."""


def named(name: str) -> Callable[..., Any]:
    """The function of `module:function`; the current folder is searched first.

    Raises:
        InputError: there is none, or its module cannot be imported.
    """
    from ..worker.agent import load

    found: Any = load(name)
    if not callable(found):
        raise InputError(f"{name!r} is a {type(found).__name__}, not a function")
    function: Callable[..., Any] = found
    return function


def judged(trajectories: Sequence[Trajectory], name: str) -> tuple[list[Trajectory], str, str]:
    """The trajectories with the score that a reward gives them, that score's name, and the reward's version.

    Raises:
        InputError: there is no such function, or it could judge none of them.
    """
    from ..reward import ajudged, name_of, version_of

    reward = named(name)

    async def each() -> list[Trajectory]:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(trajectory: Trajectory) -> Trajectory:
            async with room:
                return await ajudged(trajectory, reward)

        return list(await asyncio.gather(*map(one, trajectories)))

    found = asyncio.run(each())
    score = name_of(reward)
    if found and all(one.score(score) is None for one in found):
        reasons = sorted({one.scores[score].reason for one in found})
        raise InputError(
            f"{name} could judge none of {len(found)} trajectories: {'; '.join(reasons) or 'None'}"
        )
    return found, score, version_of(reward)
