"""Boosted trees for small yes-or-no questions, their size chosen by cross-validation over groups.

A thin layer over LightGBM that makes what it learns honest and repeatable: all rows of one group (mailbox,
database, user) fall into the same fold, so a figure is one on groups that the model did not see; one thread,
a seed, and LightGBM's deterministic mode give the same trees again.  `whet.models.heads.Forest` runs them without
LightGBM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, MissingExtra
from ..stats import auc
from ..types import digest

try:
    import lightgbm
    import numpy as np
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise MissingExtra(error.name or "lightgbm", "head") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostingOptions:
    """Settings of the trees; the defaults suit 300 to 5,000 rows."""

    trees: tuple[int, ...] = (20, 40, 80, 160, 300)
    """Numbers of trees to choose from by cross-validation."""
    leaves: tuple[int, ...] = (3, 7, 15)
    """Numbers of leaves to choose from."""
    learning_rate: float = 0.05
    min_leaf: int = 20
    """Rows that a leaf must hold."""
    l2: float = 5.0
    columns: float = 0.5
    """Share of the features that each tree is offered; below 1 where many of them say the same."""
    folds: int = 5
    """Of the cross-validation, at most; no more than there are groups."""
    monotone: Mapping[str, int] = field(default_factory=dict)
    """Feature → 1 or -1: the probability may only rise or fall with it."""

    def __post_init__(self) -> None:
        if self.folds < 2 or not 0 < self.columns <= 1 or not self.trees or not self.leaves:
            raise InputError(
                f"boosting needs 2 folds or more, columns in (0, 1], and sizes to choose from; got {self.folds}, "
                f"{self.columns}, {self.trees} and {self.leaves}"
            )


@dataclass(frozen=True, slots=True)
class Boosted:
    """A fitted model, and its quality on groups that it did not see."""

    model: str
    """In LightGBM's text format."""
    held_out: list[float]
    """Per row, the probability from a model that saw no row of its group."""
    leaves: int
    trees: int
    auc: float
    """Of `held_out`: the chance that a right row ranks above a wrong one."""
    log_loss: float
    base_log_loss: float
    """Without any feature."""
    gain_error: float
    """Standard error of `base_log_loss - log_loss`, a group counting once."""
    importance: Mapping[str, float]
    """Feature → its share of the gain, the largest first."""


def boosted(
    rows: Sequence[Sequence[float | None]],
    right: Sequence[bool],
    groups: Sequence[str],
    features: Sequence[str],
    *,
    options: BoostingOptions | None = None,
    seed: int = 0,
) -> Boosted:
    """Learn how likely a row is right.

    Args:
        rows: one value per feature; None is missing.
        groups: group of each row; folds are cut between groups.
        features: their names.

    Raises:
        InputError: fewer than two groups, or all labels equal.
    """
    options = options or BoostingOptions()
    if len(set(groups)) < 2 or len(set(right)) < 2:
        raise InputError(
            f"{len(rows)} rows of {len(set(groups))} groups, {sum(right)} of them right: cross-validation needs "
            "two groups and both answers"
        )
    folds = folds_of(groups, options.folds, seed)
    fit = CrossFit(rows, right, folds, features, options, seed)
    fit.choose_size()
    gains = fit.gains()
    held_out = fit.held_out.tolist()
    return Boosted(
        model=fit.booster.model_to_string(),
        held_out=held_out,
        leaves=fit.leaves,
        trees=fit.trees,
        auc=auc(held_out, list(right)),
        log_loss=float(log_loss(fit.y, fit.held_out).mean()),
        base_log_loss=float(log_loss(fit.y, fit.base).mean()),
        gain_error=_clustered_error(gains, groups),
        importance=fit.importance(),
    )


def folds_of(groups: Sequence[str], count: int, seed: int) -> list[int]:
    """A fold for each row: all rows of one group are in the same."""
    ranked = sorted(set(groups), key=lambda group: digest([seed, group]))
    fold = {group: rank % count for rank, group in enumerate(ranked)}
    return [fold[group] for group in groups]


class CrossFit:
    """A classifier whose size is chosen by cross-validation.

    Args:
        rows: one value per feature; None is missing.
        folds: fold of each row.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[float | None]],
        right: Sequence[bool],
        folds: Sequence[int],
        features: Sequence[str],
        options: BoostingOptions,
        seed: int,
    ) -> None:
        self.features, self.options, self.seed = features, options, seed
        self.X = self.matrix(rows)
        self.y = np.array(right, dtype=float)
        self.fold = np.array(folds)

    def matrix(self, rows: Sequence[Sequence[float | None]]) -> Any:
        """Shape (rows, features), NaN where a value is missing."""
        # dtype=float makes NaN of None; the reshape gives an empty list its columns.
        return np.array(rows, dtype=float).reshape(len(rows), len(self.features))

    def train(self, leaves: int, trees: int, *, without: int | None = None) -> Any:
        """A LightGBM booster of all rows, or of those outside one fold."""
        rows = np.arange(len(self.y)) if without is None else np.flatnonzero(self.fold != without)
        return grow(
            self.X[rows],
            self.y[rows],
            self.features,
            leaves=leaves,
            trees=trees,
            options=self.options,
            seed=self.seed,
        )

    def choose_size(self) -> None:
        """Find the leaves and trees with the lowest loss on the folds that each model did not see, and train."""
        sizes = [(leaves, trees) for leaves in self.options.leaves for trees in self.options.trees]
        held_out = {size: np.zeros(len(self.y)) for size in sizes}
        self.base = np.zeros(len(self.y))
        for fold in np.unique(self.fold):
            test, rest = np.flatnonzero(self.fold == fold), np.flatnonzero(self.fold != fold)
            if not len(rest):
                continue
            self.base[test] = (self.y[rest].sum() + 1.0) / (len(rest) + 2.0)
            for leaves in self.options.leaves:
                booster = self.train(leaves, max(self.options.trees), without=fold)
                # The first trees of a booster are the booster of so many trees: one training serves all sizes.
                for trees in self.options.trees:
                    held_out[leaves, trees][test] = booster.predict(
                        self.X[test], num_iteration=trees, num_threads=1
                    )
        # Sorted, so that the smaller model keeps ties.
        best = min(sorted(held_out), key=lambda size: float(log_loss(self.y, held_out[size]).mean()))
        self.leaves, self.trees = best
        self.held_out = held_out[best]
        self.booster = self.train(*best)

    def gains(self) -> Any:
        """Log loss of each row without any feature, minus that of the model that did not see it."""
        return log_loss(self.y, self.base) - log_loss(self.y, self.held_out)

    def importance(self) -> dict[str, float]:
        """Feature → its share of the gain, the largest first."""
        gains = self.booster.feature_importance("gain")
        total = float(gains.sum()) or 1.0
        shares = {name: float(gain) / total for name, gain in zip(self.features, gains, strict=True)}
        return dict(sorted(shares.items(), key=lambda share: (-share[1], share[0])))


def grow(
    rows: Any,
    right: Any,
    features: Sequence[str],
    *,
    leaves: int,
    trees: int,
    options: BoostingOptions,
    seed: int,
) -> Any:
    """One LightGBM booster; the same rows, options and seed give the same one.

    Args:
        rows: shape (rows, features), NaN where a value is missing.
        right: shape (rows,), 0 or 1.
    """
    # LightGBM refuses names with characters that JSON uses; the columns keep their places.
    plain = all(name.replace("_", "").isalnum() and name.isascii() for name in features)
    names = list(features) if plain else [f"f{column}" for column in range(len(features))]
    data = lightgbm.Dataset(rows, right, feature_name=names, params={"verbose": -1})
    settings = {
        "objective": "binary",
        "num_leaves": leaves,
        "learning_rate": options.learning_rate,
        # a few dozen rows would otherwise never be split
        "min_data_in_leaf": min(options.min_leaf, max(2, len(right) // 8)),
        "min_data_in_bin": 3,
        "lambda_l2": options.l2,
        "feature_fraction": options.columns,
        "monotone_constraints": [options.monotone.get(name, 0) for name in features],
        "deterministic": True,  # holds only with one thread and a fixed histogram layout, below
        "force_row_wise": True,
        "num_threads": 1,
        "seed": seed,
        "verbose": -1,
    }
    # The training booster keeps its one thread; a reloaded one would predict with all of them.
    return lightgbm.train(settings, data, num_boost_round=trees, keep_training_booster=True)


def log_loss(labels: Any, probabilities: Any) -> Any:
    """Of each row, in nats."""
    inside = np.clip(probabilities, 1e-6, 1.0 - 1e-6)
    return -(labels * np.log(inside) + (1.0 - labels) * np.log(1.0 - inside))


def _clustered_error(values: Any, groups: Sequence[str]) -> float:
    """Standard error of the mean when the values of a group hang together (the sandwich estimate)."""
    deviations = values - values.mean()
    sums: dict[str, float] = {}
    for group, deviation in zip(groups, deviations.tolist(), strict=True):
        sums[group] = sums.get(group, 0.0) + deviation
    return math.sqrt(sum(total**2 for total in sums.values()) * len(sums) / (len(sums) - 1)) / len(values)
