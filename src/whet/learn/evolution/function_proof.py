"""A function searched fold by fold, so that every row of a small table is behind the proof (`cross_fitting.py`).

What ships is, of what the folds found, the text that is best on all rows; of equals the one that changes least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...errors import InputError
from ...judge.metrics import SCORE
from ...models.budget import Meter
from ...stats import gain_for
from ...types import Budget, Bundle, Group, Json, Split, Task
from ..datasets.folds import apart_from, folds_of
from ..experiment import Experiment
from ..loop import means
from .agents.candidates import ProgramCodec
from .editing.minimise import distance
from .improving import Decision, Pieces
from .search.cross_fitting import FOLDS, as_split
from .search.engine import SearchOutcome

LEAST_CALLS = 40
"""Calls of the model that proposes, for one fold at the least."""
SURE = 0.1
"""A fifth of the rows, held back, is enough where it is likely to prove a gain of so much."""
_LEFT = 0.5
"""Share of the other folds' rows that must be left to search on, without what nearly repeats a row of the fold."""


def folds_wanted(rows: Sequence[Task], *, calls: int | None, seed: int) -> int:
    """Folds for a proof of a function where nobody names a number; 0 where a fifth of the rows is held back instead.

    A search of each fold must be paid for, and find rows to learn from.

    Args:
        rows: with a known answer, and their splits.
        calls: most calls of the model that proposes; None where none does.
    """
    held = [task for task in rows if task.split is Split.GATE]
    gain = gain_for(len(held), clusters=len({task.group or task.id for task in held}))
    if (gain is not None and gain <= SURE) or (calls is not None and calls < FOLDS * LEAST_CALLS):
        return 0
    try:
        return len(function_folds(rows, FOLDS, seed=seed))
    except InputError:
        return 0


def function_folds(rows: Sequence[Task], count: int, *, seed: int) -> list[list[Task]]:
    """The rows with a known answer in so many folds.

    Raises:
        InputError: too few groups, or folds that nearly repeat each other.
    """
    known = [task for task in rows if task.answer_known]
    folds = folds_of(known, count, seed=seed)
    if count < 2 or len(folds) < count:
        raise InputError(
            f"--folds {count}: the {len(known)} rows with a known answer have {len(folds)} groups to divide, and each "
            "fold takes one at the least, of two folds or more"
        )
    for fold in folds:
        others = len(known) - len(fold)
        left = len(apart_from(fold, known))
        if left < _LEFT * others:
            raise InputError(
                f"--folds {count}: {others - left} of the {others} rows to search a fold on nearly repeat a row of "
                "that fold, so too few are left; --folds 0 holds a fifth of the rows back"
            )
    return folds


@dataclass(kw_only=True)
class FunctionFolds:
    """The searches for a function, one for each fold.

    Args:
        folds: rows in parts that share no group.
        experiment: makes the Experiment of some tasks, whose name ends with a suffix.
        pieces: makes the Optimizer for these tasks, of the fold at this place.
        form: the texts of a Bundle.
        budget: of all searches together.
        meter: the spending counts on it, too.
    """

    folds: Sequence[Sequence[Task]]
    experiment: Callable[[Sequence[Task], str], Experiment]
    pieces: Callable[[Sequence[Task], int], Pieces]
    form: ProgramCodec
    budget: Budget
    meter: Meter | None = None

    start: Bundle = field(default_factory=Bundle)
    right: float = 1.0
    searches: dict[str, SearchOutcome] = field(default_factory=dict)
    """Function and fold → its search."""
    decisions: list[Decision] = field(default_factory=list)
    taken_back: int = 0
    spent: dict[str, Json] = field(default_factory=dict)
    """Of the models: calls, tokens, dollars; dollars are None without a price."""
    _experiments: dict[int, Experiment] = field(default_factory=dict)

    async def tried(self, bundle: Bundle, place: int) -> Sequence[Group]:
        """See `FoldSearch`."""
        if place not in self._experiments:
            self._experiments[place] = self.experiment(
                as_split(self.folds[place], Split.GATE), f"/fold {place}"
            )
        return await self._experiments[place].evaluate(bundle, Split.GATE)

    async def searched(self, place: int, rows: Sequence[Task], wrong: Mapping[str, bool]) -> Bundle:
        """See `FoldSearch`."""
        # A row of validation stays there, apart from what nearly repeats it; the others are learned from.
        learned = [
            task if task.split is Split.VALIDATION else replace(task, split=Split.TRAIN) for task in rows
        ]
        tasks = [*learned, *as_split(self.folds[place], Split.GATE)]
        pieces, count = self.pieces(tasks, place), len(self.folds)
        experiment = self._experiments[place] = self.experiment(tasks, f"/fold {place}")
        improvement = await experiment.improve(
            pieces, rounds=1, budget=_share(self.budget, count), within=self.meter
        )
        self.searches |= {
            f"{name}, fold {place + 1} of {count}": outcome for name, outcome in pieces.searches.items()
        }
        self.decisions += pieces.decisions
        self.taken_back += pieces.taken_back
        self._add(pieces.proposing.spent)
        return improvement.bundle

    async def chosen(
        self, candidates: Sequence[Bundle], rows: Sequence[Task], wrong: Mapping[str, bool]
    ) -> Bundle:
        """See `FoldSearch`."""
        experiment = self.everything()
        ranked = []
        for place, bundle in enumerate((self.start, *candidates)):
            score = means(await experiment.evaluate(bundle, Split.TRAIN)).get(SCORE, 0.0)
            # The start wins a tie: what earns nothing does not ship.
            ranked.append((-round(score, 9), self._size(bundle), place, bundle))
        return min(ranked, key=lambda ranking: ranking[:3])[3]

    def everything(self) -> Experiment:
        """All rows of all folds, none of which is held back any more."""
        if len(self.folds) not in self._experiments:
            rows = [task for fold in self.folds for task in as_split(fold, Split.TRAIN)]
            self._experiments[len(self.folds)] = self.experiment(rows, "/all")
        return self._experiments[len(self.folds)]

    def _size(self, bundle: Bundle) -> int:
        """Tokens that it changes."""
        start, changed = self.form.start.parts, self.form.program(bundle).parts
        return sum(distance(text, changed[part]) for part, text in start.items())

    def _add(self, spent: Mapping[str, Json]) -> None:
        for kind, amount in spent.items():
            before = self.spent.get(kind, 0)
            self.spent[kind] = None if amount is None or before is None else before + amount


def _share(budget: Budget, count: int) -> Budget:
    """What each of so many searches may spend."""
    limits = {kind: getattr(budget, kind) for kind in ("calls", "tokens")}
    amounts = {kind: getattr(budget, kind) for kind in ("dollars", "seconds")}
    return Budget(
        **{kind: None if limit is None else limit // count for kind, limit in limits.items()},
        **{kind: None if amount is None else amount / count for kind, amount in amounts.items()},
    )
