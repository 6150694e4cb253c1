"""All single edits of a program in the order of suspicion, and whose turn it is in a search.

A search tries every single edit of its best program, and of the start, before it relies on chance: an edit's place in
the queue is the blame of its line times the prior of its kind.  A proposal takes the next few edits, runs them side by
side on a few rows (`screening.py`), and judges those that can win.  An edit that gains nothing and loses nothing, but
answers a failing row in another way, is kept: once the single edits are used up, its own single edits follow, so that
pairs are reached through a beam and not by all combinations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..editing.corrections import NO_CORRECTIONS
from ..editing.program import Program
from ..editing.scopes import SingleEdit
from ..editing.singles import single_edits
from ..editing.source import parsed
from .judging import Judging
from .population import Judged
from .screening import CodeLine, Spectrum

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
_EDITED = 60_000
"""Characters above which a part is left to the other edits: its single edits would never end."""


class EditBatch:
    """The next few edits of one sweep."""

    def __init__(self, sweep: Sweep, start: int, programs: Sequence[Program]) -> None:
        self.sweep, self.start, self.programs = sweep, start, programs


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
    _edits: list[tuple[str, SingleEdit]] = field(init=False)

    def __post_init__(self) -> None:
        ranked: list[tuple[float, int, str, SingleEdit]] = []
        self._edits = []
        if self.spectrum is not None and self.spectrum.rows and min(self.spectrum.scores) >= 1.0:
            return  # no row is left to be answered better
        for part, text in self.base.program.parts.items():
            if not part.endswith(".py") or len(text) > _EDITED:
                continue
            try:
                corrections = self.spectrum.corrections if self.spectrum is not None else NO_CORRECTIONS
                edits = single_edits(parsed(text), corrections)
            except (SyntaxError, ValueError, RecursionError):
                continue
            # There are thousands of edits, and tens of lines.
            blames = {
                place: self._blame(part, *place) for place in {(edit.line, edit.beyond) for edit in edits}
            }
            ranked += [
                (-edit.prior * blames[edit.line, edit.beyond], len(ranked), part, edit) for edit in edits
            ]
        ranked.sort(key=lambda ranking: ranking[0])  # stable: ties in the order of the text
        self._edits = [(part, edit) for _, _, part, edit in ranked[: self.most]]

    def _blame(self, part: str, line: int, beyond: int) -> float:
        if self.spectrum is None:
            return 1.0
        numbers = (line, beyond) if beyond else (line,)
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
        width = min(self.width, _NARROW) if start < _FIRST else self.width
        self.taken = min(len(self), start + width)
        return EditBatch(self, start, [self.program(index) for index in range(start, self.taken)])


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
    """Versions of a screen that are judged, the largest gain first."""
    return sorted((index for index, gain in gains.items() if gain > 0.0), key=lambda index: -gains[index])[
        :most
    ]
