"""Search for a better prompt and prove it: on rows that were held back, or on every row out of fold.

Where the calls allow it, every row is behind the proof (`cross_fitting.py`).  What ships is then the prompt that is
best on all rows among those of the folds and what they add together.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ....judge.metrics import SCORE, JudgeMetric, Metric
from ....models.base import Model
from ....record.store import Store
from ....types import Budget, Bundle, Group, Sampling, Split, Task, Verdict
from ...experiment import Experiment
from ...improvement import Improvement
from ...loop import Progress, means
from ..search.cross_fitting import CrossFitting, FoldedProof, as_split
from .prompt_race import refuse_unanswered
from .prompted import PromptAgent
from .reflecting import Reflect, ReflectOptions

LEAST_SEARCH = 80
"""Runs that the search for one fold needs at the least."""
REFLECTIONS = 6
"""Calls of the model that proposes, for one fold."""
_RUNS_PER_ROW = 4
"""Runs to search with for each row that a fold is searched on: more rows would leave fewer candidates."""
_LAST = 0.5
"""Share of a search that choosing what ships may run, most of whose answers are known already."""
_WRONG = 0.4
"""Share of a search's rows that went wrong, as far as there are so many: a small gain hides in few of them.  Each row
weighs as many as it stands for."""


@dataclass(frozen=True, slots=True)
class PromptProof:
    """The prompt that a search found, and what the proof says of it."""

    bundle: Bundle
    start: Bundle
    reason: str
    """How the search ended."""
    dev: tuple[float, float]
    """Mean score before and after on the rows that were searched; of folds the mean of theirs."""
    dev_rows: int
    gate: tuple[float, float] | None = None
    """The same on rows that nothing was chosen on; None where nothing changed."""
    verdict: Verdict | None = None
    causes: Sequence[str] = ()
    folds: int = 0
    """Folds that were searched; 0 where rows were held back."""
    spread: float = 1.0
    """Between the best and the worst mark of the prompt as it stands, on the rows that were searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptWork:
    """One prompt, the model under it and the metric: what a search and its proof need."""

    agent: PromptAgent
    start: Bundle
    metric: Metric | JudgeMetric
    proposer: Model
    store: Store
    name: str
    seed: int
    alpha: float
    regime: Sampling
    folder: Path
    progress: Progress

    def experiment(self, tasks: Sequence[Task], part: str = "") -> Experiment:
        """On these tasks, which have their splits."""
        return Experiment(
            env=self.agent,
            tasks=tasks,
            rewards=[self.metric],
            store=self.store,
            seed=self.seed,
            name=f"{self.name}{part}",
            concurrency=8,
            folder=self.folder,
            progress=self.progress,
        )

    async def searched(
        self,
        experiment: Experiment,
        rollouts: int,
        options: ReflectOptions,
        candidates: Sequence[str] = (),
        weights: Mapping[str, float] | None = None,
    ) -> tuple[Improvement, Sequence[str]]:
        """The result of `Reflect`, and the causes that the model named."""
        reflect = Reflect(
            self.agent.resource,
            SCORE,
            model=self.proposer,
            right=self.metric.right,
            options=options,
            candidates=candidates,
            weights=weights,
        )
        improvement = await experiment.improve(
            reflect,
            bundle=self.start,
            rounds=1,
            budget=Budget(rollouts=rollouts),
            watch=lambda number, metrics: None,
        )
        return improvement, reflect.causes


async def held_out(work: PromptWork, tasks: Sequence[Task], rollouts: int, reflections: int) -> PromptProof:
    """Search on the train rows, prove on the gate's."""
    experiment = work.experiment(tasks)
    options = ReflectOptions(rounds=reflections, seed=work.seed, second_looks=False)
    improvement, causes = await work.searched(experiment, rollouts, options)
    metrics = improvement.metrics[-1]
    proof = PromptProof(
        improvement.bundle,
        work.start,
        improvement.reason,
        (metrics["start"], metrics["best"]),
        int(metrics["rows"]),
        causes=causes,
        spread=metrics["spread"],
    )
    if improvement.bundle == work.start:
        return proof
    work.progress("proof: the prompt before and after", 0)
    verdict = await experiment.gate(
        improvement, metric=SCORE, alpha=work.alpha, label="the prompt as it is", regime=work.regime
    )
    sides = [await experiment.evaluate(bundle, Split.GATE) for bundle in (work.start, improvement.bundle)]
    gate = (means(sides[0]).get(SCORE, 0.0), means(sides[1]).get(SCORE, 0.0))
    return replace(proof, verdict=verdict, gate=gate)


async def out_of_fold(
    work: PromptWork, folds: Sequence[Sequence[Task]], rollouts: int, reflections: int
) -> PromptProof:
    """Search for each fold on the others' rows, prove on all rows, and choose what ships on all of them.

    Args:
        folds: rows in parts that share no group.
        rollouts: runs to search with, of all folds together.
        reflections: calls of the model that proposes, for one fold.
    """
    search = _PromptFolds(work, folds, int(rollouts / (len(folds) + _LAST)), reflections)
    fitting = CrossFitting(
        search=search,
        folds=folds,
        rewards=[work.metric],
        store=work.store,
        name=work.name,
        what="the prompt as it is",
        alpha=work.alpha,
        regime=work.regime,
        progress=work.progress,
    )
    return search.proof(await fitting.run())


class _PromptFolds:
    """The searches for a prompt, one for each fold and one for what ships."""

    def __init__(
        self, work: PromptWork, folds: Sequence[Sequence[Task]], share: int, reflections: int
    ) -> None:
        self.work, self.folds, self.share, self.reflections = work, folds, share, reflections
        self.start, self.right = work.start, work.metric.right
        self.causes: list[str] = []
        self.dev: list[tuple[float, float, int]] = []
        self._experiments: dict[int, Experiment] = {}
        """Fold → the one that it was last tried in: what is known there is not asked again."""
        self._rows_of_all = 0

    async def tried(self, bundle: Bundle, place: int) -> Sequence[Group]:
        """See `FoldSearch`."""
        if place not in self._experiments:
            tasks = as_split(self.folds[place], Split.GATE)
            self._experiments[place] = self.work.experiment(tasks, f"/fold {place}")
        groups = await self._experiments[place].evaluate(bundle, Split.GATE)
        refuse_unanswered(groups)
        return groups

    async def searched(self, place: int, rows: Sequence[Task], wrong: Mapping[str, bool]) -> Bundle:
        """See `FoldSearch`."""
        chosen, weights = self._rows(rows, place, wrong)
        experiment = self.work.experiment(
            [*as_split(chosen, Split.TRAIN), *as_split(self.folds[place], Split.GATE)], f"/fold {place}"
        )
        self._experiments[place] = experiment
        options = self._options(len(chosen), self.reflections)
        improvement, causes = await self.work.searched(
            experiment, self.share + len(chosen), options, weights=weights
        )
        metrics = improvement.metrics[-1]
        self.causes += causes
        self.dev.append((metrics["start"], metrics["best"], int(metrics["rows"])))
        return improvement.bundle

    async def chosen(
        self, candidates: Sequence[Bundle], rows: Sequence[Task], wrong: Mapping[str, bool]
    ) -> Bundle:
        """See `FoldSearch`: the best on all rows of what the folds found, and of what that adds together."""
        if len(candidates) == 1:
            # Its answers out of fold are all that there is to know of it.
            return candidates[0]
        chosen, weights = self._rows(rows, len(self.folds), wrong)
        self._rows_of_all = len(chosen)
        experiment = self.work.experiment(as_split(chosen, Split.TRAIN), "/all")
        prompts = [str(bundle[self.work.agent.resource].content) for bundle in candidates]
        options = self._options(len(chosen), 0)
        improvement, _ = await self.work.searched(
            experiment, self.share + len(chosen), options, prompts, weights
        )
        return improvement.bundle

    def proof(self, folded: FoldedProof) -> PromptProof:
        """The result, with what the searches were told and came to."""
        wrong, count = folded.wrong, len(self.folds)
        rows = sum(tried for _, _, tried in self.dev)
        share = 1 - sum(wrong.values()) / max(1, len(wrong))
        dev = (share, share)
        if rows:
            sums = [sum(entry[side] * entry[2] for entry in self.dev) for side in (0, 1)]
            dev = (sums[0] / rows, sums[1] / rows)
        found = (
            "1 prompt, which is what ships"
            if len(folded.candidates) == 1
            else f"{len(folded.candidates)} prompts; what ships is the best of them and of their rules together, on "
            f"{self._rows_of_all} rows of all folds"
        )
        reason = (
            folded.reason or f"{count} searches, each without the fold that it is judged on, found {found}"
        )
        return PromptProof(
            folded.bundle,
            self.start,
            reason,
            dev,
            rows or len(wrong),
            gate=folded.gate,
            verdict=folded.verdict,
            causes=self.causes,
            folds=count,
            spread=float(len(folded.values) > 1),
        )

    def _options(self, rows: int, rounds: int) -> ReflectOptions:
        return ReflectOptions(rounds=rounds, tasks=rows, seed=self.work.seed, patience=3, second_looks=False)

    def _rows(
        self, rows: Sequence[Task], place: int, wrong: Mapping[str, bool]
    ) -> tuple[list[Task], dict[str, float]]:
        """Rows to search on, more of those that are wrong than there are among all; and how many each stands for."""
        count = min(len(rows), max(6, self.share // _RUNS_PER_ROW))
        shuffled = random.Random(f"fold:{self.work.seed}:{place}").sample(list(rows), len(rows))
        missed = [task for task in shuffled if wrong[task.id]]
        met = [task for task in shuffled if not wrong[task.id]]
        taken = min(len(missed), max(round(_WRONG * count), count - len(met)))
        sides = ((missed[:taken], missed), (met[: count - taken], met))
        weights = {task.id: len(side) / len(some) for some, side in sides for task in some}
        return [task for some, _ in sides for task in some], weights
