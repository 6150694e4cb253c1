"""Best-arm identification: which of many Bundles is the best, without running all of them on all tasks.

Sequential halving (Karnin, Koren and Somekh 2013): the budget is divided into rounds, every Bundle that is left runs on
the same further tasks, and the worse half drops out.  Most runs are spent on those that are hard to tell apart.  It
chooses and proves nothing: it runs on tasks that are not the gate's, and the gate judges what it chose.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from ..errors import InputError
from ..prove.results import pairs
from ..types import Bundle, Group, Task, digest
from .composition import COMPARED, ComposableExperiment
from .improvement import Candidate, Improvement


async def race(
    work: ComposableExperiment,
    bundles: Mapping[str, Bundle],
    tasks: Sequence[Task],
    *,
    against: Bundle,
    metric: str,
    rollouts: int,
) -> Improvement:
    """The best of several Bundles as an Improvement of `against`, with every one of them among its candidates.

    Args:
        tasks: none of the gate's; run in an order by the experiment's seed.
        rollouts: most runs, those of `against` included, which never drops out: each is compared with it pair by pair.

    Raises:
        InputError: fewer than two Bundles, two equal ones, or too few rollouts for a task each.
    """
    if len(bundles) < 2 or len({bundle.id for bundle in bundles.values()}) < len(bundles):
        raise InputError(f"a race is between different Bundles, two at the least: {', '.join(bundles)}")
    rounds = math.ceil(math.log2(len(bundles)))
    order = random.Random(digest((work.seed, "race"))).sample(list(tasks), len(tasks))
    left, place = list(bundles), 0
    runs: dict[str, list[Group]] = {name: [] for name in bundles}
    before: list[Group] = []
    spent, dropped = 0, list[str]()
    for number in range(rounds):
        # Of what is left, its share of the rounds that are left.
        share = (rollouts - spent) // (rounds - number)
        further = order[place : place + share // (len(left) + 1)]
        place += len(further)
        before += await work.collect(against, further, seed=6, label=COMPARED)
        for name in left:
            runs[name] += await work.collect(bundles[name], further, seed=6, label=COMPARED)
        spent += len(further) * (len(left) + 1)
        if not before:
            raise InputError(f"{rollouts} rollouts are too few for {len(bundles)} Bundles on a task each")
        left.sort(key=lambda name: -_gain(before, runs[name], metric))
        kept = max(1, math.ceil(len(left) / 2))
        dropped = [*left[kept:], *dropped]
        left = left[:kept]
    best = left[0]
    candidates = []
    for name in (best, *dropped):
        gain = _gain(before[: len(runs[name])], runs[name], metric)
        reason = f"{name}: {gain:+.3f} over {len(runs[name])} tasks" + ", the best" * (name == best)
        candidates.append(
            Candidate(
                name=name,
                bundle=bundles[name],
                entered=name == best,
                reason=reason,
                gain=gain,
                pairs=len(runs[name]),
                rollouts=len(runs[name]),
            )
        )
    return Improvement(
        bundle=bundles[best],
        parent=against,
        optimizer="race",
        rounds=rounds,
        rollouts=spent,
        reason=f"{best} is the best of {len(bundles)} by a race of {spent} runs",
        candidates=candidates,
    )


def _gain(before: Sequence[Group], after: Sequence[Group], metric: str) -> float:
    known = [pair.difference(metric) for pair in pairs(before, after) if not pair.broken]
    return fmean(known) if known else -1.0
