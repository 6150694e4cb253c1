"""All single edits of a program in the order of suspicion, and whose turn it is in a search.

A search tries every single edit of its best program, and of the start, before it relies on chance: an edit's place in
the queue is the blame of its line times the prior of its kind.  A proposal takes the next few edits, runs them side by
side on a few rows (`screening.py`), and judges those that can win.  Between them come holes, places that are filled
with what is made of the function's names (`holes.py`); their fillings are judged as edits are.  An edit that
gains nothing and loses nothing, but answers a failing row in another way, is kept: once the single edits are used up,
its own single edits follow, so that pairs are reached through a beam and not by all combinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .corrections import NO_CORRECTIONS
from .holes import Hole, holes
from .judging import Judging
from .population import Judged
from .program import Program
from .scopes import SingleEdit
from .screening import CodeLine, Spectrum
from .singles import single_edits
from .source import parsed

SWEEP = "single"
"""The arm of the sweeps in a search's table, and the name by which options ask for them."""
LEAD = 8
"""Proposals of sweeps before models have their turn."""
_FIRST, _NARROW = 128, 16
"""The first edits are taken a few at a time: the likeliest come first, and what is under way is not called back."""
_BEAM, _PER_SCREEN = 12, 3
"""Halves of repairs that are followed, and those of them that one screen contributes."""
_PAIRED = 640
"""Edits of one member of the beam."""
_BEFORE_HOLES, _BETWEEN_HOLES, _HOLES = 64, 32, 128
"""Single edits before the first hole and between one and the next, and holes of one program: each costs as much as some
100 edits, and is filled with some thousand expressions."""
_FILLED = 6
"""Fillings of one hole that are judged whole."""
_EDITED = 60_000
"""Characters above which a part is left to the other edits: its single edits would never end."""


class EditBatch:
    """The next few edits of one sweep, or a hole, whose fillings are its edits once it is filled."""

    def __init__(
        self, sweep: Sweep, start: int, programs: Sequence[Program], hole: Hole | None = None, part: str = ""
    ) -> None:
        self.sweep, self.start, self.programs, self.hole, self.part = sweep, start, programs, hole, part

    @property
    def tried(self) -> int:
        """Entries of the sweep that it takes."""
        return len(self.programs) if self.hole is None else 1

    @property
    def finalists(self) -> int:
        """Programs that are judged whole."""
        return self.sweep.finalists if self.hole is None else _FILLED


@dataclass
class Sweep:
    """The single edits of one program.

    Args:
        key: `number` of the member of the search, or `number/index` of an edit of it.
    """

    key: str
    base: Judged
    spectrum: Spectrum | None
    most: int | None = None
    taken: int = 0
    _edits: list[tuple[str, SingleEdit | Hole]] = field(init=False)

    def __post_init__(self) -> None:
        edits: list[tuple[str, SingleEdit]] = []
        places: list[tuple[str, Hole]] = []
        self._edits = []
        if self.spectrum is not None and self.spectrum.rows and min(self.spectrum.scores) >= 1.0:
            return  # no row is left to be answered better
        for part, text in self.base.program.parts.items():
            if not part.endswith(".py") or len(text) > _EDITED:
                continue
            try:
                corrections = self.spectrum.corrections if self.spectrum is not None else NO_CORRECTIONS
                edits += [(part, edit) for edit in single_edits(parsed(text), corrections)]
                if self.most is None and self.width > 1:
                    places += [(part, hole) for hole in holes(parsed(text), corrections)]
            except (SyntaxError, ValueError, RecursionError):
                continue
        edits.sort(key=self._suspicion)  # stable: ties in the order of the text
        places.sort(key=self._suspicion)
        self._edits = _interleaved(edits[: self.most], places[:_HOLES])

    def _suspicion(self, entry: tuple[str, SingleEdit | Hole]) -> float:
        part, edit = entry
        return -edit.prior * self._blame(part, edit)

    def _blame(self, part: str, edit: SingleEdit | Hole) -> float:
        if self.spectrum is None:
            return 1.0
        numbers = (edit.line, edit.beyond) if edit.beyond else (edit.line,)
        return max(self.spectrum.of(CodeLine(part, number)) for number in numbers)

    def __len__(self) -> int:
        return len(self._edits)

    @property
    def width(self) -> int:
        """Edits of one proposal."""
        return self.spectrum.width if self.spectrum is not None else 1

    @property
    def finalists(self) -> int:
        """Edits of one proposal that are judged whole."""
        return self.spectrum.finalists if self.spectrum is not None else 1

    def program(self, index: int) -> Program:
        """The base with one edit."""
        part, edit = self._edits[index]
        return self.base.program.with_part(part, parsed(self.base.program.parts[part]).spliced(edit.changes))

    def kind(self, index: int) -> str:
        """The kind of an edit."""
        return self._edits[index][1].kind

    def take(self) -> EditBatch:
        """The next edits; none once all are used up."""
        start = self.taken
        part, first = self._edits[start]
        if isinstance(first, Hole):
            self.taken = start + 1
            return EditBatch(self, start, [], first, part)
        width = min(self.width, _NARROW) if start < _FIRST else self.width
        while self.taken < min(len(self), start + width) and isinstance(
            self._edits[self.taken][1], SingleEdit
        ):
            self.taken += 1
        return EditBatch(self, start, [self.program(index) for index in range(start, self.taken)])

    def filled(self, batch: EditBatch, fillings: Iterable[tuple[str, int]]) -> list[Program]:
        """The base with each filling of a hole: expression and target."""
        assert batch.hole is not None
        source = parsed(self.base.program.parts[batch.part])
        texts = [source.spliced(batch.hole.filled(*filling)) for filling in fillings]
        return [self.base.program.with_part(batch.part, text) for text in texts]


def _interleaved(
    edits: Sequence[tuple[str, SingleEdit]], places: Sequence[tuple[str, Hole]]
) -> list[tuple[str, SingleEdit | Hole]]:
    """Single edits with a hole after every few of them; those that are left over at the end."""
    merged: list[tuple[str, SingleEdit | Hole]] = [*edits[:_BEFORE_HOLES]]
    for index, place in enumerate(places):
        begin = _BEFORE_HOLES + index * _BETWEEN_HOLES
        merged += [place, *edits[begin : begin + _BETWEEN_HOLES]]
    return [*merged, *edits[_BEFORE_HOLES + len(places) * _BETWEEN_HOLES :]]


@dataclass
class Sweeps:
    """The sweeps of one search.

    Everything here changes when a proposal is made or committed, both of which happen in the order of proposals, so
    that neither workers nor a stop in between change what is tried.
    """

    judge: Judging
    _sweeps: dict[str, Sweep] = field(default_factory=dict)
    _taken: dict[str, int] = field(default_factory=dict)
    _beam: list[str] = field(default_factory=list)
    _members: dict[int, Judged] = field(default_factory=dict)
    _best: Judged | None = None

    def enter(self, judged: Judged) -> None:
        """A member of the search was committed."""
        self._members[judged.number] = judged
        if self._best is None or judged.score > self._best.score:
            self._best = judged

    def kept(self, key: str, indices: Iterable[int]) -> None:
        """Edits of a sweep that are perhaps half of a repair."""
        if "/" not in key:
            self._beam += [f"{key}/{index}" for index in list(indices)[:_PER_SCREEN]]

    def replayed(self, key: str, taken: int) -> None:
        """A recorded proposal had taken so many edits."""
        self._taken[key] = self._taken.get(key, 0) + taken
        if key in self._sweeps:
            self._sweeps[key].taken = self._taken[key]

    async def next(self, number: int) -> Sweep | None:
        """The sweep whose turn it is; None when all edits have been tried."""
        assert self._best is not None
        leading = [str(self._best.number), "0"]
        # By turns: a gain that leads astray must not keep the edits of the start waiting.
        order = leading if number % 2 else leading[::-1]
        for key in (*order, *self._beam[:_BEAM]):
            sweep = await self._sweep(key)
            if sweep is not None and sweep.taken < len(sweep):
                return sweep
        return None

    def took(self, batch: EditBatch) -> None:
        """A proposal was made of a batch."""
        self._taken[batch.sweep.key] = batch.sweep.taken

    async def _sweep(self, key: str) -> Sweep | None:
        if key in self._sweeps:
            return self._sweeps[key]
        number, _, index = key.partition("/")
        base = self._members[int(number)]
        if index:
            outer = await self._sweep(number)
            assert outer is not None
            # It scores as its base does, as far as the screen could see.
            base = Judged(base.number, outer.program(int(index)), base.score, instances=base.instances)
        spectrum = await self.judge.spectrum(base)
        sweep = Sweep(key, base, spectrum, _PAIRED if index else None, self._taken.get(key, 0))
        self._sweeps[key] = sweep
        return sweep


def whose_turn(number: int, *, models: bool, sweeps: bool, alone: bool) -> str:
    """Who makes a proposal: a `model`, the `sweep`, or `chance`: the bandit's edits.

    Args:
        models: there are some; they make every second proposal, after the first few of the sweeps, and three of four
            where edits cannot be screened: there each costs as much as a model's.
        sweeps: there are edits left to be tried.
        alone: the sweeps are the main way to a better program; else they have every second turn of the edits.
    """
    # Edits that cannot be screened are no cheap beginning.
    lead = LEAD if sweeps and alone else 0
    every = 2 if alone else 4
    if models and number > lead and (number - lead) % every:
        return "model"
    turn = lead + (number - lead) // every if models and number > lead else number
    return "sweep" if sweeps and turn % (4 if alone else 2) else "chance"


def promising(gains: Mapping[int, float], most: int) -> list[int]:
    """Versions of a screen that are judged, the largest gain first; more where many gain as much as the best."""
    ranked = sorted((index for index, gain in gains.items() if gain > 0.0), key=lambda index: -gains[index])
    equals = sum(gains[index] == gains[ranked[0]] for index in ranked)
    return ranked[: max(most, min(equals, 2 * most))]
