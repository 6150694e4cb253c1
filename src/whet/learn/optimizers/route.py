"""`Route`: learns from recorded outcomes which of several policies should take which task.

Every task that was tried by at least two arms is a paired comparison.  A router is a table over at
most two features of the task; each cell goes to the arm with the best mean, shrunk towards the mean
over all tasks, and only where the cell has enough of them.  Which features to use, and whether to
route at all, is decided by cross-validation over task groups: the held-out gain over the best single
arm must stand above chance after a correction for the number of tables tried.  Otherwise the result
is the single best arm, and the Update says so.

It is a table and not a model on purpose: a few hundred comparisons do not carry more, and a person
can read it.  Cost is not weighed; put the cheaper arm first, it keeps ties.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ...errors import InputError, TrainingRefused
from ...models.heads import RouterTable, cell
from ...types import Bundle, Group, Json, Task, Version, digest
from ..loop import Context, Update, value_of

__all__ = ["Route", "RouteOptions", "RouterTable"]

Features = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """Settings of the router; the defaults suit a few hundred tasks."""

    resource: str = "router"
    """Name of the Version that is made."""
    most: int = 2
    """Features that a table may use at once."""
    minimum: int = 20
    """Tasks that an arm must have in a cell to be chosen there instead of the default arm."""
    shrinkage: float = 15.0
    """Tasks' worth of weight on an arm's mean over all tasks, in every cell."""
    folds: int = 10
    alpha: float = 0.1
    """Chance of routing at all where no feature tells anything, over all tables tried."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One task: what every arm that tried it made of it."""

    features: Features
    group: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Table:
    by: tuple[str, ...]
    default: str
    table: Mapping[str, str]


class Route:
    """Optimizer that makes a readable table from a task's features to the arm that takes it.

    Args:
        arms: names, as in `meta["arm"]` of the recorded trajectories; the first keeps ties.
        features: what a router may know of a task before anyone works on it, few values each.
        score: what to maximise: a Score's name, `success` or `reward`.

    An offline learner: one step, from recorded groups alone.
    """

    name = "route"
    group_size = 0
    on_policy = False
    ordered = False

    def __init__(
        self,
        arms: Sequence[str],
        features: Callable[[Task], Features],
        score: str = "success",
        *,
        options: RouteOptions | None = None,
    ) -> None:
        if len(set(arms)) < 2:
            raise InputError(f"route: {list(arms)} is no choice; give two arms or more")
        self.arms = tuple(dict.fromkeys(arms))
        self.features = features
        self.score = score
        self.options = options or RouteOptions()

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Choose the table, or the single best arm.

        Raises:
            TrainingRefused: fewer than `minimum` tasks were tried by two arms.
        """
        rows = self._rows(groups)
        if len(rows) < self.options.minimum:
            raise TrainingRefused(
                f"route: {len(rows)} tasks were tried by two of {', '.join(self.arms)} with a score "
                f"{self.score!r}; at least {self.options.minimum} are needed. Run every arm on the same "
                "tasks and put its name into meta['arm']."
            )
        seed = context.rng.getrandbits(30)
        folds = self._folds(rows, seed)
        tables = list(self._candidates(rows))
        # One-sided, and Bonferroni over the tables: the best of many chance gains is one as well.
        needed = NormalDist().inv_cdf(1.0 - self.options.alpha / max(1, len(tables)))
        best: tuple[float, float, float, tuple[str, ...]] | None = None
        for by in tables:
            gain, error = self._gain(rows, folds, by)
            if gain > 0.0 and gain > needed * error and (best is None or gain > best[0] + 1e-12):
                best = (gain, error, gain / error if error else math.inf, by)
        table = self._fit(rows, best[3] if best else ())
        # A gain in folds may come of tables that differ; on all rows this one sends everything to one arm.
        if best and all(arm == table.default for arm in table.table.values()):
            best, table = None, self._fit(rows, ())
        old = bundle.get(self.options.resource)
        version = Version(
            resource=self.options.resource,
            content=self._content(rows, table),
            kind="router",
            parent=old.id if old else None,
            meta={"optimizer": "route", "score": self.score, "seed": seed, "tasks": len(rows)},
        )
        if best:
            reason = f"routing by {' and '.join(best[3])} gains {best[0]:+.3f} ± {best[1]:.3f} over {table.default}"
        else:
            reason = (
                f"routing adds nothing over {table.default!r}: none of {len(tables)} tables gains more than "
                f"{needed:.1f} standard errors on held-out groups"
            )
        metrics = {
            "tasks": float(len(rows)),
            "tables": float(len(tables)),
            "gain": best[0] if best else 0.0,
            "gain_error": best[1] if best else 0.0,
            "cells": float(len(table.table)),
            "routed": float(bool(best)),
        }
        return Update(bundle=bundle.put(version), metrics=metrics, done=True, reason=reason)

    def _rows(self, groups: Sequence[Group]) -> list[_Row]:
        by_task: dict[str, dict[str, list[float]]] = {}
        tasks: dict[str, Task] = {}
        for group in groups:
            for trajectory in group.trajectories:
                arm, value = trajectory.meta.get("arm"), value_of(trajectory, self.score)
                if arm in self.arms and value is not None:
                    tasks.setdefault(group.task.id, group.task)
                    by_task.setdefault(group.task.id, defaultdict(list))[arm].append(value)
        rows = []
        for id, values in by_task.items():
            if len(values) > 1:
                means = {arm: sum(scores) / len(scores) for arm, scores in values.items()}
                task = tasks[id]
                rows.append(_Row(dict(self.features(task)), task.group or task.id, means))
        return rows

    def _folds(self, rows: Sequence[_Row], seed: int) -> list[int]:
        # Sorted by hash: the order of a set of strings is another in every process.
        groups = sorted({row.group for row in rows}, key=lambda group: digest([seed, group]))
        fold = {group: rank % self.options.folds for rank, group in enumerate(groups)}
        return [fold[row.group] for row in rows]

    def _candidates(self, rows: Sequence[_Row]) -> Iterator[tuple[str, ...]]:
        """Sets of features that every task has and that differ between tasks, small sets first."""
        common = set.intersection(*(set(row.features) for row in rows))
        names = sorted(name for name in common if len({row.features[name] for row in rows}) > 1)
        for size in range(1, self.options.most + 1):
            yield from itertools.combinations(names, size)

    def _fit(self, rows: Sequence[_Row], by: tuple[str, ...]) -> _Table:
        default = self._single(rows)
        overall = {arm: self._mean(rows, arm) for arm in self.arms}
        cells: dict[str, list[_Row]] = defaultdict(list)
        for row in rows if by else ():
            cells[cell(row.features, by)].append(row)
        table = {}
        for key in sorted(cells):
            shrunk: dict[str, float] = {}
            for arm in self.arms:
                values = [row.values[arm] for row in cells[key] if arm in row.values]
                prior = overall[arm]
                if prior is not None and (len(values) >= self.options.minimum or arm == default):
                    weight = self.options.shrinkage
                    shrunk[arm] = (sum(values) + weight * prior) / (len(values) + weight)
            # The default is in `shrunk` however few tasks it has in the cell, so there is always an arm.
            table[key] = max(shrunk, key=lambda arm: (shrunk[arm], arm == default))
        return _Table(by, default, table)

    def _single(self, rows: Sequence[_Row]) -> str:
        """The best arm for all tasks, on the tasks that all arms tried if there are enough."""
        shared = [row for row in rows if len(row.values) == len(self.arms)]
        chosen = shared if len(shared) >= self.options.minimum else rows
        means = {arm: mean for arm in self.arms if (mean := self._mean(chosen, arm)) is not None}
        # `max` keeps the first of equals: the arm that the caller named first keeps ties.
        return max(means, key=lambda arm: means[arm])

    @staticmethod
    def _mean(rows: Sequence[_Row], arm: str) -> float | None:
        values = [row.values[arm] for row in rows if arm in row.values]
        return sum(values) / len(values) if values else None

    def _gain(self, rows: Sequence[_Row], folds: Sequence[int], by: tuple[str, ...]) -> tuple[float, float]:
        """Held-out gain per task over the best single arm, and its standard error clustered by group."""
        sums: dict[str, float] = defaultdict(float)
        counted = 0
        for fold in sorted(set(folds)):
            # With the default arm too, which on all rows would be chosen by the held-out ones as well.
            table = self._fit([row for row, own in zip(rows, folds, strict=True) if own != fold], by)
            for row, own in zip(rows, folds, strict=True):
                arm = table.table.get(cell(row.features, by), table.default)
                # Tasks that both arms tried alone: others would compare tasks and not arms.
                if own == fold and arm in row.values and table.default in row.values:
                    sums[row.group] += row.values[arm] - row.values[table.default]
                    counted += 1
        if len(sums) < 2:
            return 0.0, math.inf
        total = sum(sums.values())
        share = total / len(sums)
        # Of sums by group: tasks of one group are alike, and counted one by one they would feign certainty.
        variance = sum((value - share) ** 2 for value in sums.values()) * len(sums) / (len(sums) - 1)
        return total / counted, math.sqrt(variance) / counted

    def _content(self, rows: Sequence[_Row], table: _Table) -> dict[str, Json]:
        n: dict[str, dict[str, int]] = {}
        rates: dict[str, dict[str, float]] = {}
        cells: dict[str, list[_Row]] = {"": list(rows)}
        for row in rows if table.by else ():
            cells.setdefault(cell(row.features, table.by), []).append(row)
        for key in sorted(cells):
            for arm in self.arms:
                mean = self._mean(cells[key], arm)
                if mean is not None:
                    rates.setdefault(key, {})[arm] = round(mean, 4)
                    n.setdefault(key, {})[arm] = sum(arm in row.values for row in cells[key])
        return {
            "by": list(table.by),
            "table": dict(table.table),
            "default": table.default,
            "arms": list(self.arms),
            "n": n,
            "rates": rates,
        }
