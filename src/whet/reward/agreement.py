"""Agreement of an evaluator's scores with people's labels: by rank, and beyond chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..stats import Interval, auc

_DRAWS = 400
"""Bootstrap samples."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of scores with labels."""

    n: int
    auc: float
    auc_interval: Interval
    kappa: float
    kappa_interval: Interval


def agreement(scored: Sequence[tuple[float, bool]]) -> Agreement:
    """Area under the ROC curve and Cohen's kappa at the best threshold, with 95 % bootstrap intervals.

    Args:
        scored: (score, whether people called it good); both kinds must occur.

    Raises:
        InputError: only one kind.
    """
    if len({good for _, good in scored}) < 2:
        raise InputError("agreement needs answers that people called good, and others that they did not")
    threshold = max(sorted({score for score, _ in scored}), key=lambda at: _kappa(scored, at))
    # A fixed seed: the same evaluator and labels give the same verdict each time.
    rng = random.Random(0)
    aucs: list[float] = []
    kappas: list[float] = []
    while len(aucs) < _DRAWS:
        drawn = rng.choices(scored, k=len(scored))
        if len({good for _, good in drawn}) == 2:
            aucs.append(_auc(drawn))
            kappas.append(_kappa(drawn, threshold))
    return Agreement(len(scored), _auc(scored), _middle(aucs), _kappa(scored, threshold), _middle(kappas))


def _middle(values: list[float]) -> Interval:
    values.sort()
    edge = len(values) // 40
    return values[edge], values[-1 - edge]


def _auc(scored: Sequence[tuple[float, bool]]) -> float:
    return auc([score for score, _ in scored], [is_good for _, is_good in scored])


def _kappa(scored: Sequence[tuple[float, bool]], threshold: float) -> float:
    n = len(scored)
    says = sum(score >= threshold for score, _ in scored) / n
    good = sum(is_good for _, is_good in scored) / n
    agreed = sum((score >= threshold) == is_good for score, is_good in scored) / n
    chance = says * good + (1 - says) * (1 - good)
    return 0.0 if chance == 1.0 else (agreed - chance) / (1 - chance)
