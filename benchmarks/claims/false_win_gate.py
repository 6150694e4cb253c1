"""The gate on recorded agents: nulls watched, the best of many, planted gains, groups, and the effect after selection.

Every outcome is a recorded one, of a real agent on a real task; nothing is drawn from a formula.

- *A null pair*: two agents, and on every task a coin decides which of them is called the candidate.  Where they
  disagree is as recorded, and neither side is better.
- *Null candidates of one baseline*: of a pool of six agents, every side takes on every task the outcome of one of them,
  drawn anew.  All sides are alike, so the best of twenty is merely lucky.
- *A planted gain*: two agents whose success differs by within two points of it; so many of the candidate's outcomes are
  turned round, drawn among all that can be, that it is exact.  Tasks are drawn with replacement, each draw a new task.
- *Groups that differ*: a group is a kind of task of two such agents, so that the gain differs between groups as it does
  between recorded ones; under the null a coin turns each whole group round.

The bettor that knows the effect stakes the gain over the share of pairs that differ, which is the fastest stake there
is, and needs the same e-value.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import NamedTuple

from data_rows import AbsentData, json_rows, lacks
from newcomers_shell import Noted

from whet.prove.gate import Comparison, compare
from whet.prove.power import power
from whet.prove.results import PairedResults, TaskResult
from whet.prove.selection import best_of

NULLS, TRIALS, PLANTED, GROUPED, SELECTED = 1_000, 300, 1_000, 400, 300
MANY, POOL = 20, 6
PAIRS = 1_000
"""Within which five points are to be found."""
Z_5_PERCENT = 1.645
LEAST_SEEN = 20
"""Pairs before the naive test first looks."""
NEAR = 0.02
MOSTLY = 0.9
"""Share of the agents that must have been run on a task."""
FEWEST_NEAR = 10
"""Pairs of agents that are taken for a gain at the least, the nearest ones where few are near."""


class Groups(NamedTuple):
    """Pairs of a planted gain that come in groups."""

    count: int
    size: int


GROUPS = (Groups(4, 150), Groups(6, 100), Groups(12, 50), Groups(24, 25), Groups(48, 25))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Agents in rows, tasks in columns."""

    success: list[list[int]]
    kinds: list[str]

    @property
    def tasks(self) -> int:
        return len(self.kinds)

    def differences(self, old: int, new: int) -> list[int]:
        return [after - before for before, after in zip(self.success[old], self.success[new], strict=True)]


def recorded(data: Path) -> Recorded:
    """The agents that were run on every task, of the tasks that nearly all were run on.

    Raises:
        AbsentData: too few agents or tasks.
    """
    runs = []
    for path in sorted((data / "recorded_agents" / "runs").glob("*.jsonl*")):
        rows = [row for row in json_rows(path, lacks("id", "success")) if row is not None]
        runs.append({str(row["id"]): int(bool(row["success"])) for row in rows})
    times = Counter(task for run in runs for task in run)
    ids = [task for task, count in times.items() if count >= MOSTLY * len(runs)]
    whole = [run for run in runs if run.keys() >= set(ids)]
    if len(whole) <= POOL:
        # Rows that cannot be read are others in each run: then the tasks that all of the nearly whole runs have.
        whole = [run for run in runs if len(run.keys() & set(ids)) >= MOSTLY * len(ids)]
        ids = [task for task in ids if all(task in run for run in whole)]
    if len(whole) <= POOL or len(ids) < 2 * LEAST_SEEN:
        raise AbsentData(
            f"{data / 'recorded_agents'} holds {len(whole)} agents that were run on the same {len(ids)} tasks; it "
            f"takes more than {POOL}, and {2 * LEAST_SEEN} tasks"
        )
    return Recorded([[run[task] for task in ids] for run in whole], [task.rpartition("_")[0] for task in ids])


class Pairs:
    """PairedResults by task, group and both outcomes, each made once."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, str, int], TaskResult] = {}
        self._pairs: dict[tuple[int, int], PairedResults] = {}

    def result(self, task: int, success: int, group: str = "") -> TaskResult:
        key = (task, group, success)
        if key not in self._results:
            self._results[key] = TaskResult(task=str(task), group=group, scores={"success": float(success)})
        return self._results[key]

    def pair(self, task: int, difference: int) -> PairedResults:
        key = (task, difference)
        if key not in self._pairs:
            # Which of both succeeded where they agree does not matter to a difference.
            old, new = (self.result(task, value) for value in (int(difference < 0), int(difference > 0)))
            self._pairs[key] = PairedResults(old, new)
        return self._pairs[key]


def _found(differences: Sequence[int], pairs: Pairs) -> int | None:
    """After how many pairs the gate, watching every one of exchangeable tasks, promotes; None for never."""
    comparison = Comparison(regime="exchangeable")
    return next(
        (count for count, value in enumerate(differences, 1) if comparison.add(pairs.pair(count, value))),
        None,
    )


def _naive(differences: Sequence[int]) -> bool:
    """A one-sided z-test at 5 % after every pair."""
    total = squares = 0
    for count, value in enumerate(differences, 1):
        total, squares = total + value, squares + value * value
        spread = squares - total * total / count
        if (
            count >= LEAST_SEEN
            and spread > 0
            and total > Z_5_PERCENT * math.sqrt(spread * count / (count - 1))
        ):
            return True
    return False


def _knowing(differences: Sequence[int], stake: float) -> int | None:
    """After how many pairs a bettor with the best stake has 20 times what it began with."""
    wealth = 1.0
    for count, value in enumerate(differences, 1):
        wealth *= 1 + stake * value
        if wealth >= 20:
            return count
    return None


def _nulls(agents: Recorded, rng: random.Random) -> Iterator[Noted]:
    pairs, promoted, naive = Pairs(), 0, 0
    for _ in range(NULLS):
        old, new = rng.sample(range(len(agents.success)), 2)
        values = [value * rng.choice((-1, 1)) for value in agents.differences(old, new)]
        rng.shuffle(values)
        promoted += _found(values, pairs) is not None
        naive += _naive(values)
    yield Noted(
        f"{NULLS:,} null pairs, watched at each of {agents.tasks:,} tasks",
        {
            "promoted %": _percent(promoted / NULLS),
            "simple rule beside it": f"z-test {_percent(naive / NULLS)} %",
        },
        {"at most 5 % of null pairs promoted": promoted <= 0.05 * NULLS},
    )
    # Not every null has a mean of 0: candidates that are worse, as recorded.
    worse = [
        (old, new)
        for old in range(len(agents.success))
        for new in range(len(agents.success))
        if -2 * NEAR <= fmean(agents.differences(old, new)) < 0
    ] or [(new, old) for old, new in _near(agents, NEAR)]
    promoted = 0
    for _ in range(PLANTED):
        values = agents.differences(*rng.choice(worse))
        rng.shuffle(values)
        promoted += _found(values, pairs) is not None
    yield Noted(
        f"{PLANTED} recorded pairs whose candidate is worse by up to four points",
        {"promoted %": _percent(promoted / PLANTED)},
        {"at most 5 % of worse candidates promoted": promoted <= 0.05 * PLANTED},
    )


def _alike(agents: Recorded, pool: Sequence[int], rng: random.Random) -> list[int]:
    rows = [agents.success[agent] for agent in pool]
    return [rng.choice(rows)[task] for task in range(agents.tasks)]


def _best_of_many(agents: Recorded, rng: random.Random) -> Noted:
    pairs, promoted, naive = Pairs(), 0, 0
    for _ in range(TRIALS):
        pool = rng.sample(range(len(agents.success)), POOL)
        old, *new = (_alike(agents, pool, rng) for _ in range(1 + MANY))
        sides = [[pairs.result(task, value) for task, value in enumerate(side)] for side in (old, *new)]
        named = {f"candidate {place}": side for place, side in enumerate(sides[1:])}
        promoted += best_of(sides[0], named, regime="exchangeable").verdict.promote
        best = max(new, key=sum)
        naive += _passes([after - before for before, after in zip(old, best, strict=True)])
    return Noted(
        f"best of {MANY} null candidates, {TRIALS} times",
        {
            "promoted %": _percent(promoted / TRIALS),
            "simple rule beside it": f"test on the same tasks {_percent(naive / TRIALS)} %",
        },
        {f"at most 5 % of the best of {MANY} nulls promoted": promoted <= 0.05 * TRIALS},
    )


def _passes(differences: Sequence[int]) -> bool:
    mean, count = fmean(differences), len(differences)
    return mean > Z_5_PERCENT * pstdev(differences) / math.sqrt(count)


def _planted(agents: Recorded, gain: float, rng: random.Random) -> list[int]:
    """Differences of two recorded agents over all tasks, a few of them turned so that the gain is exact."""
    near = _near(agents, gain)
    values = agents.differences(*rng.choice(near))
    missing = round(gain * agents.tasks) - sum(values)
    step = 1 if missing > 0 else -1
    can = [task for task, value in enumerate(values) if value != step]
    for task in rng.sample(can, abs(missing)):
        values[task] += step
    return values


_NEAR: dict[tuple[int, float], list[tuple[int, int]]] = {}


def _near(agents: Recorded, gain: float) -> list[tuple[int, int]]:
    """Pairs of agents whose success differs by about this much."""
    key = (id(agents), gain)
    if key not in _NEAR:
        rates = [fmean(row) for row in agents.success]
        apart = sorted(
            (abs(after - before - gain), old, new)
            for old, before in enumerate(rates)
            for new, after in enumerate(rates)
            if old != new
        )
        near = sum(distance <= NEAR for distance, _, _ in apart)
        _NEAR[key] = [(old, new) for _, old, new in apart[: max(near, FEWEST_NEAR)]]
    return _NEAR[key]


def _gains(agents: Recorded, rng: random.Random) -> Iterator[Noted]:
    for gain in (0.05, 0.10):
        pairs, ours, theirs, once, apart = Pairs(), [], [], 0, []
        for _ in range(PLANTED):
            population = _planted(agents, gain, rng)
            differing = fmean(abs(value) for value in population)
            apart.append(differing)
            drawn = rng.choices(population, k=PAIRS)
            ours.append(_found(drawn, pairs))
            theirs.append(_knowing(drawn, min(0.99, gain / differing)))
            once += _passes(drawn)
        share, knowing = (sum(found is not None for found in side) / PLANTED for side in (ours, theirs))
        middle, fastest = (median(found or math.inf for found in side) for side in (ours, theirs))
        bars = {"five points at 0.9 of the power of the bettor that knows them": share >= 0.9 * knowing}
        if gain > 0.05:
            bars = {"ten points within a median of 150 pairs": middle <= 150}
        yield Noted(
            f"+{100 * gain:.0f} points planted, {_percent(median(apart))} % of pairs differ",
            {
                f"found within {PAIRS:,} %": _percent(share),
                "median pairs": f"{middle:.0f}",
                "bettor that knows the effect": f"{_percent(knowing)} %, {fastest:.0f} pairs",
                "of its power": f"{share / knowing:.3f}",
                "simple rule beside it": f"one z-test at the end {_percent(once / PLANTED)} %",
            },
            bars,
        )


def _cells(agents: Recorded, gain: float) -> list[list[int]]:
    """Differences by kind of task of pairs of agents near a gain: groups as they differ in the record."""
    kinds: dict[str, list[int]] = {}
    for task, kind in enumerate(agents.kinds):
        kinds.setdefault(kind, []).append(task)
    cells = []
    for old, new in _near(agents, gain):
        values = agents.differences(old, new)
        cells += [[values[task] for task in tasks] for tasks in kinds.values()]
    return cells


def _by_groups(agents: Recorded, rng: random.Random) -> Iterator[Noted]:
    pairs = Pairs()
    cells = _cells(agents, 0.10)
    means = [fmean(cell) for cell in cells]
    gain, spread = fmean(means), pstdev(means)
    differing = fmean(fmean(abs(value) for value in cell) for cell in cells)
    for groups in GROUPS:
        found = {True: [0, 0], False: [0, 0]}
        for turned in (False, True):
            for _ in range(GROUPED):
                new_group, exchangeable = _look(cells, groups, pairs, rng, turned=turned)
                found[turned][0] += new_group
                found[turned][1] += exchangeable
        total = groups.count * groups.size
        planned = power(gain, total, groups=groups.count, differing=differing, spread=spread)
        yield Noted(
            f"{groups.count} groups of {groups.size}, +{100 * gain:.0f} points that differ by {100 * spread:.0f}",
            {
                "planned power %": _percent(planned),
                "new-group finds %": _percent(found[False][0] / GROUPED),
                "null promoted %": _percent(found[True][0] / GROUPED),
                "were the tasks exchangeable": f"{_percent(found[False][1] / GROUPED)} % found, "
                f"{_percent(found[True][1] / GROUPED)} % of nulls",
            },
            {f"at most 5 % of nulls in {groups.count} groups promoted": found[True][0] <= 0.05 * GROUPED},
        )


def _look(
    cells: Sequence[Sequence[int]], groups: Groups, pairs: Pairs, rng: random.Random, *, turned: bool
) -> tuple[bool, bool]:
    """One look at drawn groups: is it promoted as a new-group, and would it be, were the tasks exchangeable?"""
    old, new = [], []
    for group in range(groups.count):
        sign = rng.choice((-1, 1)) if turned else 1
        for place, value in enumerate(rng.choices(rng.choice(cells), k=groups.size)):
            task = group * groups.size + place
            old.append(pairs.result(task, int(sign * value < 0), f"g{group}"))
            new.append(pairs.result(task, int(sign * value > 0), f"g{group}"))
    verdict = compare(old, new)
    return verdict.promote, verdict.regimes["exchangeable"].promote


def _after_selection(agents: Recorded, rng: random.Random) -> Noted:
    """The effect that is reported of the best of many, beside that of the same candidate on all recorded tasks."""
    rates = [fmean(row) for row in agents.success]
    pairs, shown, dev, same, promoted, corrected = Pairs(), [], [], [], [], []
    for _ in range(SELECTED):
        old = rng.randrange(len(rates))
        others = sorted(range(len(rates)), key=lambda agent: abs(rates[agent] - rates[old]))
        chosen_of = [agent for agent in others if agent != old][:MANY]
        tasks = rng.choices(range(agents.tasks), k=600)
        sides = {
            str(agent): [pairs.result(place, agents.success[agent][task]) for place, task in enumerate(tasks)]
            for agent in (old, *chosen_of)
        }
        selection = best_of(sides.pop(str(old)), sides, regime="exchangeable")
        truth = rates[int(selection.chosen)] - rates[old]
        shown.append(selection.verdict.effect - truth)
        dev.append((selection.verdict.dev_effect or 0.0) - truth)
        if selection.verdict.promote:
            promoted.append(shown[-1])
            corrected.append((selection.verdict.after_passing or 0.0) - truth)
        sums = {agent: sum(agents.success[agent][task] for task in tasks) for agent in (old, *chosen_of)}
        luckiest = max(chosen_of, key=sums.__getitem__)
        same.append((sums[luckiest] - sums[old]) / len(tasks) - (rates[luckiest] - rates[old]))
    bias = fmean(shown)
    return Noted(
        f"effect of the best of {MANY} agents, {SELECTED} times, less that on all tasks",
        {
            "points too many": f"{100 * bias:+.2f}",
            "on the tasks that chose": f"{100 * fmean(dev):+.2f}",
            "simple rule beside it": f"chosen and measured on all 600: {100 * fmean(same):+.2f}",
            f"of the {len(promoted)} promoted": f"{100 * fmean(promoted or [0]):+.2f}",
            "of these, without the luck of having passed": f"{100 * fmean(corrected or [0]):+.2f}",
        },
        {"the effect after selection within a point of fresh data": abs(bias) <= 0.01},
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def measure(data: Path, folder: Path) -> list[Noted]:
    """All of it on the agents of `data`."""
    agents = recorded(data)
    rng = random.Random("gate")
    parts: list[Callable[[], Iterator[Noted]]] = [
        lambda: _nulls(agents, rng),
        lambda: iter([_best_of_many(agents, rng)]),
        lambda: _gains(agents, rng),
        lambda: _by_groups(agents, rng),
        lambda: iter([_after_selection(agents, rng)]),
    ]
    return [noted for part in parts for noted in part()]
