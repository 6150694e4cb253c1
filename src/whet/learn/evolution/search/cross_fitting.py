"""A proof that puts every row behind it, out of fold: of a prompt and of a function alike.

The rows are divided into folds by group; for each fold something better is searched on rows of the others and tried on
the fold, and all pairs of all folds go into one test.  What ships is chosen on all rows, among what the folds found.

What the test says: that the *search* finds something better than what stands, on the average of its folds.  What it
assumes: what ships, which was chosen above the candidates of the folds and on more rows, is no worse than their mean;
and folds, each of whose rows helped to choose the others' candidates, are no more alike than the interval is widened
for (`prove.gate.Comparison`, docs/decisions/022-out-of-fold.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ....judge import Reward
from ....judge.hacking import detect, gold_before, traits
from ....judge.metrics import SCORE
from ....prove.gate import compare
from ....record.store import Store
from ....ship.releasing import record, with_findings
from ....stats import gain_for
from ....types import Bundle, Group, Sampling, Split, Task, Verdict
from ...datasets.folds import apart_from
from ...loop import Progress, means, quiet, value_of

FOLDS = 3
"""With more of them they depend on each other more, and each costs a search (docs/decisions/022-out-of-fold.md)."""


class FoldSearch(Protocol):
    """What is searched once for each fold."""

    start: Bundle
    """What stands."""
    right: float
    """Score from which a row is right."""

    async def tried(self, bundle: Bundle, place: int) -> Sequence[Group]:
        """The rows of a fold under a Bundle."""

    async def searched(self, place: int, rows: Sequence[Task], wrong: Mapping[str, bool]) -> Bundle:
        """What is best on these rows, none of which is of the fold; the start where nothing is better.

        Args:
            wrong: row → whether what stands has it wrong.
        """

    async def chosen(
        self, candidates: Sequence[Bundle], rows: Sequence[Task], wrong: Mapping[str, bool]
    ) -> Bundle:
        """What ships, on all rows; the start where nothing is better."""


@dataclass(frozen=True, slots=True)
class FoldedProof:
    """What ships, and what the proof says of it."""

    bundle: Bundle
    reason: str
    wrong: Mapping[str, bool]
    values: frozenset[float | None]
    """Scores of what stands."""
    candidates: Sequence[Bundle] = ()
    """Of the folds, each once."""
    gate: tuple[float, float] | None = None
    """Mean score before and after on the rows out of fold; None where nothing ships."""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFitting:
    """A proof out of fold.

    Args:
        folds: rows in parts that share no group.
        rewards: what judges a row.
        name: of the experiment, in the record.
        what: what stands, in words: `the prompt as it is`.
    """

    search: FoldSearch
    folds: Sequence[Sequence[Task]]
    rewards: Sequence[Reward]
    store: Store
    name: str
    what: str
    alpha: float
    regime: Sampling
    progress: Progress = quiet

    async def run(self) -> FoldedProof:
        """Until nothing is left to gain or to prove."""
        search, count = self.search, len(self.folds)
        baselines = [await search.tried(search.start, place) for place in range(count)]
        scores = {
            group.task.id: value_of(group.trajectories[0], SCORE) for groups in baselines for group in groups
        }
        wrong = {row: value is None or value < search.right for row, value in scores.items()}
        values = frozenset(scores.values())
        if not any(wrong.values()):
            reason = f"all {len(wrong)} rows are right already, so no change was asked for"
            return FoldedProof(search.start, reason, wrong, values)
        before: list[Group] = []
        after: list[Group] = []
        candidates: list[Bundle] = []
        for place, fold in enumerate(self.folds):
            others = [task for part in self.folds if part is not fold for task in part]
            bundle = await search.searched(place, apart_from(fold, others), wrong)
            before += baselines[place]
            # Under the start the answers are the same, and known.
            changed = bundle != search.start
            after += await search.tried(bundle, place) if changed else baselines[place]
            candidates += [bundle] if changed else []
            gain = _gain(before, after)
            self.progress(f"fold {place + 1} of {count}", len(after), len(wrong), gain=gain)
            # What does not gain cannot be proven: another search, or the choice of what ships, would be for nothing.
            if place and gain <= 0:
                reason = (
                    f"{place + 1} of {count} searches brought nothing on the {len(after)} rows that they did not see "
                    f"({gain:+.3f}), so no more is spent"
                )
                return FoldedProof(search.start, reason, wrong, values, candidates)
        rows = [task for fold in self.folds for task in fold]
        candidates = list({bundle.id: bundle for bundle in candidates}.values())
        chosen = await search.chosen(candidates, rows, wrong)
        if chosen == search.start:
            return FoldedProof(
                chosen, "what the folds found brings nothing on all rows", wrong, values, candidates
            )
        verdict = self._verdict(before, after, chosen)
        gate = (means(before).get(SCORE, 0.0), means(after).get(SCORE, 0.0))
        return FoldedProof(chosen, "", wrong, values, candidates, gate, verdict)

    def _verdict(self, before: Sequence[Group], after: Sequence[Group], chosen: Bundle) -> Verdict:
        verdict = compare(
            before,
            after,
            metric=SCORE,
            alpha=self.alpha,
            against=self.what,
            folds=len(self.folds),
            regime=self.regime,
        )
        start = self.search.start
        verdict = replace(verdict, candidate=chosen.id, baseline=start.id)
        sides = [[traits(run) for group in side for run in group.trajectories] for side in (before, after)]
        findings = detect(*sides, metric=SCORE, gold=gold_before(SCORE, self.rewards))
        verdict = with_findings(self.store, verdict, findings, self.rewards)
        return record(self.store, verdict, (start, chosen), experiment=self.name)


def standing_in_folds(rows: Sequence[Task], folds: int, how: str) -> str:
    """A sentence on rows all of which are behind a proof out of fold, and the gain that they are likely to prove.

    Args:
        how: what is done to a row, and with what: `answered under a prompt`.
    """
    groups = len({task.group or task.id for task in rows})
    gain = gain_for(len(rows), clusters=groups)
    shows = (
        f"enough to prove a gain of {gain:.0%} where nothing gets worse"
        if gain is not None
        else "too few to prove any gain; give rows of more groups"
    )
    return (
        f"{len(rows)} rows in {groups} groups, all of them behind the proof: each is {how} that was searched without "
        f"its fold, of {folds}: {shows}"
    )


def as_split(tasks: Sequence[Task], split: Split) -> list[Task]:
    """The tasks, in this split."""
    return [replace(task, split=split) for task in tasks]


def _gain(before: Sequence[Group], after: Sequence[Group]) -> float:
    """Mean difference over the rows that were tried out of fold so far."""
    both = zip(before, after, strict=True)
    gains = [
        (value_of(new.trajectories[0], SCORE) or 0.0) - (value_of(old.trajectories[0], SCORE) or 0.0)
        for old, new in both
    ]
    return round(sum(gains) / len(gains), 6) if gains else 0.0
