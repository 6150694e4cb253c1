"""Which tasks to learn from next: those whose group can still carry a signal.

WebRL (Qi et al. 2024) keeps tasks whose chance of success lies between .05 and .75, because a group's chance of
holding both a success and a failure is small outside: with 8 tries it is .077 at p = .01, .337 at .05 and .942
at .3.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ...types import Group, Outcome, Task


def informative(chance: float, tries: int = 8) -> float:
    """Chance that a group of `tries` holds a success and a failure, of a task that succeeds with `chance`."""
    return 1.0 - chance**tries - (1.0 - chance) ** tries


def in_band(tasks: Sequence[Task], chances: Mapping[str, float]) -> list[Task]:
    """The tasks whose chance lies in the band; one whose chance is not known is kept."""
    return [task for task in tasks if task.id not in chances or 0.05 <= chances[task.id] <= 0.75]


def rates(groups: Sequence[Group]) -> dict[str, float]:
    """Task id → its chance of success by Laplace's rule; tasks without a judged trajectory are left out.

    A task that failed eight times is given .1 and not 0: it is tried again, though less than others.
    """
    chances = {}
    for group in groups:
        successes = [t.outcome is Outcome.SUCCESS for t in group.trajectories if t.outcome.counts]
        if successes:
            chances[group.task.id] = (sum(successes) + 1) / (len(successes) + 2)
    return chances


def drawn(
    tasks: Sequence[Task], count: int, chances: Mapping[str, float], *, tries: int, rng: random.Random
) -> list[Task]:
    """`count` tasks without repetition: those in the band first, each as likely as it is informative.

    Args:
        chances: task id → chance of success, as far as it is known; a task not tried yet comes before others.
        tries: trajectories of a group.
    """
    inside = in_band(tasks, chances)
    names = {task.id for task in inside}
    outside = [task for task in tasks if task.id not in names]
    chosen = _sampled(inside, count, chances, tries, rng)
    return chosen + _sampled(outside, count - len(chosen), chances, tries, rng)


def _sampled(
    tasks: Sequence[Task], count: int, chances: Mapping[str, float], tries: int, rng: random.Random
) -> list[Task]:
    """A weighted sample without replacement (Efraimidis and Spirakis 2006: the largest u^(1/w))."""

    def key(task: Task) -> float:
        # A task with a chance of 0 or 1 has weight 0, and still a place after all others.
        weight = informative(chances[task.id], tries) if task.id in chances else 1.0
        return float(rng.random() ** (1.0 / max(weight, 1e-9)))

    ranked = sorted(((key(task), index) for index, task in enumerate(tasks)), reverse=True)
    return [tasks[index] for _, index in ranked[: max(0, count)]]
