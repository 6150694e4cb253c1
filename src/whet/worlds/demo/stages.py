"""The stages of a job in the order of their needs, on as many processes as there are for it.

A stage is a function of what earlier stages left in the store and of the seed alone.  So which process runs
it, and what runs beside it, changes nothing but the time that passes; a process that is lost takes nothing
with it but the work since its last checkpoint.  The stages are in `learning.py` and `proof.py`,
the other process in `processes.py` and `second.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DemoStage:
    """One piece of a job's work."""

    run: Callable[[], Awaitable[object]]
    """Does it and stores what came of it; where that is stored already, only takes it from there."""
    needs: tuple[str, ...] = ()
    """Stages that have to end before."""


def behind(stages: Mapping[str, DemoStage], name: str) -> list[str]:
    """Every stage that this one needs, however far behind it, in the order in which they stand there."""
    pending, needed = list(stages[name].needs), set[str]()
    while pending:
        stage = pending.pop()
        if stage not in needed:
            needed.add(stage)
            pending += stages[stage].needs
    return [stage for stage in stages if stage in needed]


Place = Callable[[str], Awaitable[object]]
"""A process that runs the stage of this name to its end."""


class Lost(Exception):
    """A place is gone; its stage can be run at another."""


async def run_in_order(
    needs: Mapping[str, Sequence[str]], places: Sequence[Place], *, lost: Callable[[Lost], None]
) -> None:
    """Run every stage once, each as soon as what it needs has ended and a place is free.

    Args:
        needs: of each stage; of those that could run, the one that stands first here does.
        places: the first one that is free is taken; each runs one stage at a time.
        lost: told of a place that is gone; its stage is run again at another.

    Raises:
        Lost: the last place is gone.
        BaseException: what a stage raised; the others under way are cancelled.
    """
    waiting, ended, here = list(needs), set[str](), list(places)
    running: dict[asyncio.Future[object], tuple[str, Place]] = {}
    try:
        while len(ended) < len(needs):
            for name in [name for name in waiting if ended.issuperset(needs[name])]:
                free = [
                    free_place
                    for free_place in here
                    if free_place not in (busy for _, busy in running.values())
                ]
                if not free:
                    break
                waiting.remove(name)
                running[asyncio.ensure_future(free[0](name))] = name, free[0]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                name, lost_place = running.pop(task)
                try:
                    task.result()
                    ended.add(name)
                except Lost as gone:
                    here.remove(lost_place)
                    if not here:
                        raise
                    lost(gone)
                    # Back at its place, not at the end: what stands first is needed first.
                    waiting = [stage for stage in needs if stage == name or stage in waiting]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
