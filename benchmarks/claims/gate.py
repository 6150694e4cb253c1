"""How often the gate promotes what has no effect, and how often it sees one: few and unequal groups, simulated.

Pairs of successes whose effect differs from group to group around a mean of 0 (or of `POWER`).  Beside the gate's
own group t-test stand the two rules that it could have been, both around the plain mean with the sandwich error
Σ_g (S_g − n_g·mean)² / n²·G/(G−1): one with G−1 degrees of freedom, one with the effective number of groups
n² / Σ n_g² less one.  docs/decisions/020 draws on this table.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
from page import percent, publish, table

from whet.prove.gate import Comparison, PairedResults, TaskResult
from whet.stats import ClusterMean, t_quantile

SIZES = (
    (150, 150, 150, 150),
    (75,) * 8,
    (20,) * 30,
    (300, 150, 80, 40),
    (300, 40, 40, 40),
    (500, 20, 20, 20),
    (600, 5, 5, 5, 5, 5),
)
SPREADS = (0.1, 0.2)
POWER = 0.25
"""The gain, and `POWER_SPREAD` its standard deviation between groups, of the last column."""
POWER_SPREAD = 0.08
OLD, SAME = 0.6, 0.6
"""Success of the old side, and the share of their luck that both sides have in common."""
Z_5_PERCENT = 1.645


def _effects(rng: random.Random, groups: int, mean: float, spread: float) -> list[float]:
    """A group's effect each, drawn so that no success rate leaves [0, 1] and the mean stays what it is."""
    most = min(OLD + mean, 1 - OLD - mean)
    drawn = []
    while len(drawn) < groups:
        off = rng.gauss(0, spread)
        if abs(off) <= most:
            drawn.append(mean + off)
    return drawn


def _odds(effect: float) -> tuple[float, float]:
    """Chance that only the new side, and that only the old side, succeeds at a pair."""
    new = OLD + effect
    apart = 1 - SAME
    return (
        SAME * max(0.0, effect) + apart * new * (1 - OLD),
        SAME * max(0.0, -effect) + apart * OLD * (1 - new),
    )


def _look(
    sizes: Sequence[int], effects: Sequence[float], rng: np.random.Generator
) -> tuple[bool, bool, bool]:
    """One look at everything: does each rule put the effect above 0?  Sandwich twice, then the gate's."""
    clusters, sums = ClusterMean(), []
    for name, (size, effect) in enumerate(zip(sizes, effects, strict=True)):
        better, worse = _odds(effect)
        up, down, level = rng.multinomial(size, [better, worse, 1 - better - worse])
        for value, times in ((1.0, up), (-1.0, down), (0.0, level)):
            for _ in range(times):
                clusters.add(value, name)
        sums.append(float(up - down))
    n, groups = sum(sizes), len(sizes)
    mean = sum(sums) / n
    spread = sum((s - size * mean) ** 2 for s, size in zip(sums, sizes, strict=True))
    error = math.sqrt(spread * groups / (groups - 1)) / n
    effective = max(2.0, n * n / sum(size * size for size in sizes))
    return (
        mean > _quantile(groups - 1) * error,
        mean > _quantile(effective - 1) * error,
        clusters.interval()[0] > 0,
    )


_QUANTILES: dict[float, float] = {}


def _quantile(degrees: float) -> float:
    return _QUANTILES.setdefault(degrees, t_quantile(0.975, degrees))


def _shares(
    sizes: Sequence[int], mean: float, spread: float, *, runs: int, seed: int
) -> tuple[float, float, float]:
    draws, rng = np.random.default_rng(seed), random.Random(seed)
    looks = [_look(sizes, _effects(rng, len(sizes), mean, spread), draws) for _ in range(runs)]
    first, second, third = (sum(column) / runs for column in zip(*looks, strict=True))
    return first, second, third


def _watched(sizes: Sequence[int], spread: float, *, runs: int, seed: int) -> tuple[float, float]:
    """Share promoted when looking after every pair: by the gate, and by a one-sided z-test at 5 %."""
    rng = random.Random(seed)
    promoted = naive = 0
    for _ in range(runs):
        effects = _effects(rng, len(sizes), 0.0, spread)
        order = [group for group, size in enumerate(sizes) for _ in range(size)]
        rng.shuffle(order)
        ours, theirs = _race([(group, *_odds(effects[group])) for group in order], rng)
        promoted, naive = promoted + ours, naive + theirs
    return promoted / runs, naive / runs


def _race(tasks: Sequence[tuple[int, float, float]], rng: random.Random) -> tuple[bool, bool]:
    comparison, ours, theirs = Comparison(), False, False
    total = squares = 0
    for count, (pair, value) in enumerate(_pairs(tasks, rng), 1):
        ours = ours or comparison.add(pair)
        total, squares = total + value, squares + value * value
        spread = squares - total * total / count
        theirs = theirs or (
            count >= 20 and spread > 0 and total > Z_5_PERCENT * math.sqrt(spread * count / (count - 1))
        )
        if ours and theirs:
            break
    return ours, theirs


def _pairs(
    tasks: Sequence[tuple[int, float, float]], rng: random.Random
) -> Iterator[tuple[PairedResults, int]]:
    for number, (group, better, worse) in enumerate(tasks):
        luck = rng.random()
        value = 1 if luck < better else -1 if luck < better + worse else 0
        old, new = (
            TaskResult(task=f"t{number}", group=f"g{group}", scores={"success": float(side)})
            for side in (value < 0, value > 0)
        )
        yield PairedResults(old, new), value


def _name(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} × {sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))


def gate(*, runs: int, watched: int) -> None:
    """Simulate both tables and publish them.

    Args:
        runs: of each line that looks once.
        watched: runs of each line that looks after every pair; 0 leaves that table out.
    """
    rows = []
    for sizes in SIZES:
        power = _shares(sizes, POWER, POWER_SPREAD, runs=runs, seed=1)
        for spread in SPREADS:
            shares = _shares(sizes, 0.0, spread, runs=runs, seed=0)
            rows.append(
                [_name(sizes), f"{100 * spread:.0f}", *map(percent, shares), *map(percent, power[1:])]
            )
    lines = [
        f"Share of {runs:,} runs in which each rule puts an effect of 0 above 0, looking once "
        f"(nominal 2.5 %), and finds a gain of {100 * POWER:.0f} points that differs by "
        f"{100 * POWER_SPREAD:.0f} between groups.",
        "",
        *table(
            [
                "groups",
                "differs by",
                "sandwich, G−1 %",
                "sandwich, effective G %",
                "the gate %",
                "gain found, effective G %",
                "gain found, the gate %",
            ],
            rows,
        ),
    ]
    if watched:
        found = [
            [
                _name(sizes),
                f"{100 * spread:.0f}",
                *map(percent, _watched(sizes, spread, runs=watched, seed=2)),
            ]
            for sizes in SIZES
            for spread in SPREADS
        ]
        lines += [
            f"The same without effect, looking after every pair, {watched:,} runs a line.",
            "",
            *table(["groups", "differs by", "the gate %", "z-test at 5 % %"], found),
        ]
    publish("The gate: no effect, few and unequal groups", lines)
