"""A reward model for SQL: is this query right?  Judged on databases that it never saw, as it would be deployed.

Each recorded episode gives the first SELECT that ran and returned something, and nothing of what came before or
after.  Beside the outcome model over features stand the rule "it runs" (which says yes to all of them), tf-idf with
a logistic regression on question and query, and the outcome model learned from shuffled outcomes.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from page import publish, table

from whet.errors import BudgetExceeded
from whet.judge.leaks import telling
from whet.judge.outcome import OutcomeReward
from whet.learn.loop import Context
from whet.learn.optimizers.outcome_model import OutcomeModel, OutcomeModelOptions
from whet.stats import auc
from whet.types import Bundle, Group, Outcome, Task, Trajectory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "sql_reward"))
from features import features
from recordings import TURNS, answers, episodes

FOLDS = 4


def sql(folder: Path, *, seeds: int) -> None:
    """Measure and publish."""
    whole = [
        run for run in episodes(folder) if not any(step.action == "submit" for step in run.steps)
    ]  # graded at every step
    leaks = telling([_ending(run) for run in whole], [_good(run) for run in whole], least=0.9)
    runs = answers(folder)
    rows, within = [], []
    for seed in range(seeds):
        scores: dict[str, list[float]] = {"model": [], "words": [], "shuffled": []}
        held: list[Trajectory] = []
        refused = 0
        for train, test in _folds(runs, seed):
            held += test
            scores["model"] += _learned(train, test, seed) or [0.0] * len(test)
            scores["words"] += _words(train, test)
            shuffled = _learned(_shuffled(train, seed), test, seed)
            refused += shuffled is None
            scores["shuffled"] += shuffled or [0.5] * len(test)
        right = [_good(run) for run in held]
        spread = _by_database(held, scores["model"])
        within.append(_within_models(held, scores["model"]))
        rows.append(
            [
                str(seed),
                f"{auc(scores['model'], right):.3f}",
                f"{min(spread):.3f}–{max(spread):.3f}",
                f"{within[-1]:.3f}",
                f"{auc(scores['words'], right):.3f}",
                ".500",
                f"{auc(scores['shuffled'], right):.3f} ({refused} of {FOLDS} refused)",
            ]
        )
    publish(
        "A reward model for SQL",
        [
            f"{len(runs):,} queries of {len({run.meta['model'] for run in runs})} models to "
            f"{len({run.task.group for run in runs})} databases, {sum(map(_good, runs)) / len(runs):.1%} right. "
            f"AUC on databases not learned from ({FOLDS} folds).",
            "",
            *table(
                [
                    "seed",
                    "outcome model",
                    "per database",
                    "among one model's queries",
                    "tf-idf + logistic regression",
                    "it runs",
                    "outcomes shuffled",
                ],
                rows,
            ),
            "What the data check finds in the whole episodes, where the grader ended them: "
            + "; ".join(map(str, leaks))
            + ". `OutcomeModel` refuses such features.",
        ],
    )


def _good(run: Trajectory) -> bool:
    return run.outcome is Outcome.SUCCESS


def _folds(runs: Sequence[Trajectory], seed: int) -> list[tuple[list[Trajectory], list[Trajectory]]]:
    databases = sorted({run.task.group for run in runs})
    random.Random(seed).shuffle(databases)
    parts = [set(databases[place::FOLDS]) for place in range(FOLDS)]
    return [
        (
            [run for run in runs if run.task.group not in part],
            [run for run in runs if run.task.group in part],
        )
        for part in parts
    ]


def _shuffled(runs: Sequence[Trajectory], seed: int) -> list[Trajectory]:
    outcomes = [run.outcome for run in runs]
    random.Random(seed).shuffle(outcomes)
    return [replace(run, outcome=outcome) for run, outcome in zip(runs, outcomes, strict=True)]


def _learned(train: Sequence[Trajectory], test: Sequence[Trajectory], seed: int) -> list[float] | None:
    """Scores of the held-out queries; None where it refused to learn."""
    options = OutcomeModelOptions(seed=seed)
    groups = [Group(task=run.task, trajectories=(run,)) for run in train]
    update = asyncio.run(
        OutcomeModel(features, options).step(Bundle(), groups, Context(rollout=_no_rollouts))
    )
    version = update.bundle.get(options.reward)
    if version is None:
        return None
    reward = OutcomeReward(version, features)
    return [reward(run).value or 0.0 for run in test]


async def _no_rollouts(bundle: Bundle, tasks: Sequence[Task], n: int = 1, **_: object) -> list[Group]:
    raise BudgetExceeded("an offline learner asked for rollouts")


def _words(train: Sequence[Trajectory], test: Sequence[Trajectory]) -> list[float]:
    """tf-idf of the words of question and query, and a logistic regression: the simple rule."""

    def bag(run: Trajectory) -> Counter[str]:
        words = re.findall(r"\w+|[<>=*]", f"{run.task.instruction} {run.output}".lower())
        return Counter(words)

    bags = [bag(run) for run in train]
    seen = Counter(word for one in bags for word in one)
    place = {word: number for number, word in enumerate(sorted(w for w, n in seen.items() if n >= 2))}
    rare = {word: math.log(len(bags) / seen[word]) + 1 for word in place}

    def matrix(bags: Sequence[Counter[str]]) -> torch.Tensor:
        found = np.zeros((len(bags), len(place)), dtype=np.float32)
        for row, one in enumerate(bags):
            for word, times in one.items():
                if word in place:
                    found[row, place[word]] = times * rare[word]
        found /= np.maximum(1e-9, np.linalg.norm(found, axis=1, keepdims=True))
        return torch.from_numpy(found)

    known, wanted = matrix(bags), torch.tensor([float(_good(run)) for run in train])
    weights = torch.zeros(known.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        fit = torch.nn.functional.binary_cross_entropy_with_logits(
            known @ weights[:-1] + weights[-1], wanted, reduction="sum"
        )
        value = fit + 0.5 * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        scores: list[float] = (matrix([bag(run) for run in test]) @ weights[:-1] + weights[-1]).tolist()
    return scores


def _by_database(runs: Sequence[Trajectory], scores: Sequence[float]) -> list[float]:
    return _split([run.task.group for run in runs], runs, scores)


def _within_models(runs: Sequence[Trajectory], scores: Sequence[float]) -> float:
    """Mean over the models of the AUC among one model's queries: whose query it is must not be the answer."""
    return statistics.fmean(_split([str(run.meta["model"]) for run in runs], runs, scores))


def _split(keys: Sequence[str], runs: Sequence[Trajectory], scores: Sequence[float]) -> list[float]:
    found = []
    for key in sorted(set(keys)):
        mine = [place for place, own in enumerate(keys) if own == key]
        value = auc([scores[place] for place in mine], [_good(runs[place]) for place in mine])
        if not math.isnan(value):
            found.append(value)
    return found


def _ending(run: Trajectory) -> dict[str, float | None]:
    """Facts of how a run went on and ended, which stand in a record and at no moment of deployment."""
    return {
        "steps": float(len(run.steps)),
        "ended by the environment": float(bool(run.steps) and run.steps[-1].done),
        "seconds": run.seconds,
        "failed steps": float(sum(step.error is not None for step in run.steps)),
        "stopped before the limit": float(len(run.steps) < TURNS),
    }
