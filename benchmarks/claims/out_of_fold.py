"""How often a proof out of fold promotes where nothing has an effect, at its worst: a search that is all luck.

The search of each fold tries so many candidates, not one of which has an effect, on every row of the other folds, and
takes the best of them; all pairs then go through the product's test.  `without` is the same test with the interval of
independent pairs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from page import percent, publish, table

from whet.prove.gate import TaskResult, compare

CANDIDATES = (1, 5, 20, 50, 200)
ROWS = (60, 200)
CHANGED = (0.2, 0.6)
"""Share of the rows on which a candidate is better or worse, as often the one as the other."""


def _promoted(rng: random.Random, folds: int, candidates: int, rows: int, changed: float) -> Iterator[bool]:
    """Whether one run is promoted: by the test as it is, and with an interval that is not widened."""
    tried = [
        [(0 if (draw := rng.random()) > changed else 1 if draw < changed / 2 else -1) for _ in range(rows)]
        for _ in range(candidates)
    ]
    folded = [[sum(each[fold::folds]) for fold in range(folds)] for each in tried]
    totals = [sum(each) for each in folded]
    before, after = [], []
    for fold in range(folds):
        # A tie is broken by lot.
        best = max(range(candidates), key=lambda one: (totals[one] - folded[one][fold], rng.random()))
        for row in range(fold, rows, folds):
            sides = (0.5 - tried[best][row] / 2, 0.5 + tried[best][row] / 2)
            for side, value in zip((before, after), sides, strict=True):
                side.append(TaskResult(task=str(row), scores={"score": value}))
    for wide in (folds, 1):
        yield compare(before, after, metric="score", folds=wide).promote


def out_of_fold(*, runs: int, folds: int, publishes: bool = True) -> bool:
    """Measure, and write it into the page; True if no line promotes more than 5 %."""
    rng, lines, worst = random.Random(0), [], 0.0
    for rows, changed, candidates in itertools.product(ROWS, CHANGED, CANDIDATES):
        promoted = [0, 0]
        for _ in range(runs):
            for place, was in enumerate(_promoted(rng, folds, candidates, rows, changed)):
                promoted[place] += was
        worst = max(worst, promoted[0] / runs)
        cells = [
            str(rows),
            percent(changed),
            str(candidates),
            *(percent(count / runs) for count in promoted),
        ]
        lines.append(cells)
        print(" | ".join(cells), flush=True)
    if publishes:
        heads = ["rows", "changed %", "useless candidates", "promoted %", "without widening %"]
        text = [f"{folds} folds, {runs:,} runs a line; no candidate has an effect.", "", *table(heads, lines)]
        publish("A proof out of fold, where nothing has an effect", text)
    return worst <= 0.05
