"""Search for a better prompt and prove it: on rows that were held back, or on every row out of fold.

Where the calls allow it, every row is behind the proof (cross-fitting).  The rows are divided into folds by group; for
each fold a prompt is searched on rows of the others and tried on the fold, and all pairs of all folds go into one test.
What ships is the prompt that is best on all rows among those of the folds and what they add together.

What the test says: that the *search* finds better prompts than the one that stands, on the average of its folds.  What
it assumes: the prompt that ships, which was chosen above those of the folds and on more rows, is no worse than their
mean; and folds, each of whose rows helped to choose the others' prompts, are no more alike than the interval is
widened for (`prove.gate.Comparison`, docs/decisions/022-out-of-fold.md).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...judge.hacking import detect, gold_before, traits
from ...judge.metrics import SCORE, JudgeMetric, Metric
from ...models.base import Model
from ...prove.gate import compare
from ...record.store import Store
from ...ship.releasing import record, with_findings
from ...types import Budget, Bundle, Group, Sampling, Split, Task, Verdict
from ..datasets.folds import apart_from
from ..experiment import Experiment
from ..improvement import Improvement
from ..loop import Progress, means, value_of
from .prompted import PromptAgent
from .reflecting import Reflect, ReflectOptions, refuse_unanswered

FOLDS = 3
"""With more of them they depend on each other more, and each costs a search (docs/decisions/022-out-of-fold.md)."""
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
    options = ReflectOptions(rounds=reflections, seed=work.seed)
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
    folding = _Folding(work, folds, int(rollouts / (len(folds) + _LAST)), reflections)
    return await folding.run()


class _Folding:
    """A proof out of fold under way."""

    def __init__(
        self, work: PromptWork, folds: Sequence[Sequence[Task]], share: int, reflections: int
    ) -> None:
        self.work, self.folds, self.share, self.reflections = work, folds, share, reflections
        self.wrong: dict[str, bool] = {}
        """Row → whether the prompt as it stands has it wrong."""
        self.values: set[float | None] = set()
        """Marks of the prompt as it stands."""
        self.before: list[Group] = []
        self.after: list[Group] = []
        """Pairs so far, before and after, each of a row out of fold."""
        self.prompts: list[str] = []
        self.causes: list[str] = []
        self.dev: list[tuple[float, float, int]] = []

    async def run(self) -> PromptProof:
        """Until nothing is left to gain or to prove."""
        baselines = []
        for place, fold in enumerate(self.folds):
            experiment = self.work.experiment(_as(fold, Split.GATE), f"/fold {place}")
            baselines.append(await experiment.evaluate(self.work.start, Split.GATE))
            refuse_unanswered(baselines[-1])
        for group in (group for groups in baselines for group in groups):
            value = value_of(group.trajectories[0], SCORE)
            self.values.add(value)
            self.wrong[group.task.id] = value is None or value < self.work.metric.right
        rows = len(self.wrong)
        if not any(self.wrong.values()):
            return self._unchanged(f"all {rows} rows are right already, so no change was asked for")
        for place, fold in enumerate(self.folds):
            await self._searched(place, fold, baselines[place])
            if place and self._gain() <= 0 and place + 1 < len(self.folds):
                return self._unchanged(
                    f"{place + 1} of {len(self.folds)} searches brought nothing on the {len(self.after)} rows that "
                    f"they did not see ({self._gain():+.3f}), so the rest of the calls is not spent"
                )
        return await self._chosen(baselines)

    async def _searched(self, place: int, fold: Sequence[Task], baseline: Sequence[Group]) -> None:
        """One fold: search on the others, try on this one."""
        others = [task for part in self.folds if part is not fold for task in part]
        chosen, weights = self._rows(apart_from(fold, others), place)
        experiment = self.work.experiment(
            [*_as(chosen, Split.TRAIN), *_as(fold, Split.GATE)], f"/fold {place}"
        )
        improvement, causes = await self.work.searched(
            experiment,
            self.share + len(chosen),
            self._options(len(chosen), self.reflections),
            weights=weights,
        )
        self._note(improvement, causes)
        self.before += baseline
        # Under the same prompt the answers are the same, and known.
        changed = improvement.bundle != self.work.start
        if changed:
            self.prompts.append(str(improvement.bundle[self.work.agent.resource].content))
        tried = await experiment.evaluate(improvement.bundle, Split.GATE) if changed else baseline
        refuse_unanswered(tried)
        self.after += tried
        self.work.progress(
            f"fold {place + 1} of {len(self.folds)}", len(self.after), len(self.wrong), gain=self._gain()
        )

    async def _chosen(self, baselines: Sequence[Sequence[Group]]) -> PromptProof:
        """What ships: the best on all rows of what the folds found, and of what that adds together."""
        work = self.work
        rows = [task for fold in self.folds for task in fold]
        chosen, weights = self._rows(rows, len(self.folds))
        experiment = work.experiment(_as(chosen, Split.TRAIN), "/all")
        improvement, _ = await work.searched(
            experiment,
            self.share + len(chosen),
            self._options(len(chosen), 0),
            list(dict.fromkeys(self.prompts)),
            weights,
        )
        if improvement.bundle == work.start:
            return self._unchanged("what the folds found brings nothing on all rows")
        verdict = compare(
            self.before,
            self.after,
            metric=SCORE,
            alpha=work.alpha,
            against="the prompt as it is",
            folds=len(self.folds),
            regime=work.regime,
        )
        verdict = replace(verdict, candidate=improvement.bundle.id, baseline=work.start.id)
        findings = detect(
            [traits(run) for group in self.before for run in group.trajectories],
            [traits(run) for group in self.after for run in group.trajectories],
            metric=SCORE,
            gold=gold_before(SCORE, [work.metric]),
        )
        verdict = record(
            work.store,
            with_findings(verdict, findings),
            (work.start, improvement.bundle),
            experiment=work.name,
            findings=findings,
            rewards=[work.metric],
        )
        gate = (means(self.before).get(SCORE, 0.0), means(self.after).get(SCORE, 0.0))
        reason = (
            f"{len(self.folds)} searches, each without the fold that it is judged on, found "
            f"{len(set(self.prompts))} prompts; what ships is the best of them and of their rules together, on "
            f"{len(chosen)} rows of all folds"
        )
        return replace(self._unchanged(reason), bundle=improvement.bundle, verdict=verdict, gate=gate)

    def _options(self, rows: int, rounds: int) -> ReflectOptions:
        return ReflectOptions(rounds=rounds, tasks=rows, seed=self.work.seed, patience=3)

    def _rows(self, rows: Sequence[Task], place: int) -> tuple[list[Task], dict[str, float]]:
        """Rows to search on, more of those that are wrong than there are among all; and how many each stands for."""
        count = min(len(rows), max(6, self.share // _RUNS_PER_ROW))
        shuffled = random.Random(f"fold:{self.work.seed}:{place}").sample(list(rows), len(rows))
        wrong = [task for task in shuffled if self.wrong[task.id]]
        right = [task for task in shuffled if not self.wrong[task.id]]
        taken = min(len(wrong), max(round(_WRONG * count), count - len(right)))
        sides = ((wrong[:taken], wrong), (right[: count - taken], right))
        weights = {task.id: len(side) / len(some) for some, side in sides for task in some}
        return [task for some, _ in sides for task in some], weights

    def _gain(self) -> float:
        """Mean difference over the rows that were tried out of fold so far."""
        both = zip(self.before, self.after, strict=True)
        gains = [
            (value_of(new.trajectories[0], SCORE) or 0.0) - (value_of(old.trajectories[0], SCORE) or 0.0)
            for old, new in both
        ]
        return round(sum(gains) / len(gains), 6) if gains else 0.0

    def _note(self, improvement: Improvement, causes: Sequence[str]) -> None:
        metrics = improvement.metrics[-1]
        self.causes += causes
        self.dev.append((metrics["start"], metrics["best"], int(metrics["rows"])))

    def _unchanged(self, reason: str) -> PromptProof:
        rows = sum(count for _, _, count in self.dev)
        share = 1 - sum(self.wrong.values()) / max(1, len(self.wrong))
        dev = (share, share)
        if rows:
            sums = [sum(entry[side] * entry[2] for entry in self.dev) for side in (0, 1)]
            dev = (sums[0] / rows, sums[1] / rows)
        return PromptProof(
            self.work.start,
            self.work.start,
            reason,
            dev,
            rows or len(self.wrong),
            causes=self.causes,
            folds=len(self.folds),
            spread=float(len(self.values) > 1),
        )


def _as(tasks: Sequence[Task], split: Split) -> list[Task]:
    return [replace(task, split=split) for task in tasks]
