"""Which tasks to learn from next: those whose group can still carry a signal.

WebRL (Qi et al. 2024) keeps new tasks where a critic gives them between .05 and .75,
because a group's chance of holding both a success and a failure is small outside:
with 8 tries it is .077 at p = .01, .337 at .05 and .942 at .3.  New tasks are made of
failed ones by a function of the caller's (a language model, a generator).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch

from ..types import Group, Outcome, Task
from .batch import Merged, parts
from .learner import chosen_logprobs
from .network import Network

Propose = Callable[[Sequence[Task], random.Random], Sequence[Task]]
"""Failed tasks → new ones like them."""


def informative(chance: float, tries: int = 8) -> float:
    """Chance that a group of `tries` holds a success and a failure, of a task that succeeds with `chance`."""
    return 1.0 - chance**tries - (1.0 - chance) ** tries


def in_band(
    tasks: Sequence[Task], chances: Mapping[str, float], *, low: float = 0.05, high: float = 0.75
) -> list[Task]:
    """The tasks whose chance lies in the band; one whose chance is not known is kept."""
    return [task for task in tasks if task.id not in chances or low <= chances[task.id] <= high]


def rates(groups: Sequence[Group]) -> dict[str, float]:
    """Task id → share of its trajectories that succeeded; tasks without a judged one are left out."""
    found = {}
    for group in groups:
        known = [t.outcome is Outcome.SUCCESS for t in group.trajectories if t.outcome.counts]
        if known:
            found[group.task.id] = sum(known) / len(known)
    return found


def next_tasks(
    groups: Sequence[Group],
    propose: Propose,
    chance: Callable[[Task], float],
    *,
    rng: random.Random,
    low: float = 0.05,
    high: float = 0.75,
) -> list[Task]:
    """New tasks made of those that failed, as far as their chance lies in the band.

    Args:
        chance: what a critic gives a task.
    """
    measured = rates(groups)
    failed = [group.task for group in groups if measured.get(group.task.id, 1.0) < 1.0]
    proposed = list(propose(failed, rng)) if failed else []
    return in_band(proposed, {task.id: chance(task) for task in proposed}, low=low, high=high)


@torch.no_grad()
def likely(network: Network, trajectories: Sequence[Sequence[Merged]], part_tokens: int) -> list[float]:
    """exp(mean log-probability) of the chosen tokens of each trajectory under a network."""
    every = [
        Merged(unit, one.ids, one.targets, one.logprobs)
        for unit, own in enumerate(trajectories)
        for one in own
    ]
    sums, counts = torch.zeros(len(trajectories)), torch.zeros(len(trajectories))
    for part in parts(every, part_tokens):
        sums.index_add_(0, part.units, chosen_logprobs(network, part))
        counts.index_add_(0, part.units, torch.ones(len(part.units)))
    means: list[float] = (sums / counts.clamp(min=1)).exp().tolist()
    return means
