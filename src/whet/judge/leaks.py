"""Facts that give the answer away: what is known of a run only because it was judged already.

A recorded episode often ended *because* the grader said 1.  Then its length, and whether it stopped before the
limit, say nearly everything about success, and a reward model that sees them looks excellent until it is deployed,
where nobody stops the episode for it.  `telling` finds such facts by how well each one alone separates right from
wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..stats import auc

TELLING = 0.95
"""A single fact that separates right from wrong with this AUC is taken for a leak until someone vouches for it."""


@dataclass(frozen=True, slots=True)
class Tell:
    """A fact that says too much."""

    name: str
    auc: float
    """Of it alone as a score of right against wrong, whichever way round."""
    rows: int
    """Rows in which it is known."""

    def __str__(self) -> str:
        return f"{self.name} (AUC {self.auc:.3f} alone, in {self.rows} rows)"


def telling(
    rows: Sequence[Mapping[str, float | None]], right: Sequence[bool], *, least: float = TELLING
) -> list[Tell]:
    """The facts that alone separate right from wrong with an AUC of at least `least`, the worst first.

    That a fact is missing is a fact as well: it is looked at under the name `NAME is known`.

    Args:
        rows: what is known of each row; None or absent is missing.
        right: what the rows are to be told apart by.
    """
    tells = []
    for name in sorted({name for row in rows for name in row}):
        values = [row.get(name) for row in rows]
        known_values = [(value, good) for value, good in zip(values, right, strict=True) if value is not None]
        missing = [value is None for value in values]
        for label, scores, goods in (
            (name, [float(value) for value, _ in known_values], [good for _, good in known_values]),
            (f"{name} is known", [float(not absent) for absent in missing], list(right)),
        ):
            alone = auc(scores, goods)
            if not math.isnan(alone) and max(alone, 1 - alone) >= least:
                tells.append(Tell(label, max(alone, 1 - alone), len(scores)))
    return sorted(tells, key=lambda tell: (-tell.auc, tell.name))
