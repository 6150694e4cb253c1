"""Prompts and their runs: on which rows one is run next, when it is given up, and when it gets further rows.

A race gives a prompt up as soon as it has gained nothing or cannot win, which costs little and is often unjust: where
answers are noisy a good rule gains nothing on its first three rows, or loses two that were right by luck.  So nothing
is given up for good, but for one that changes what has to stay.  What all runs say of each piece of a prompt
(`piece_effects.py`) tells which prompt may yet be better than the best, and that is resumed where its race ended, for
as long as it still may be.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from ....errors import ModelError, TrainingRefused
from ....models.budget import Meter
from ....types import Bundle, Group, Outcome, Task, Trajectory, Version
from ...loop import Context, value_of
from ..editing.blocks import ITEM, blocks
from .failures import case_of
from .piece_effects import PieceEffects
from .reflection import added

EQUAL = 1e-9
_LOST = 2
"""Rows that lose what has to stay, beyond those that keep it, from which on a prompt breaks it."""
WORTH_A_LAP = 0.3
"""Probability of being better than the best from which on a prompt that was given up gets further rows."""

PromptPiece = tuple[tuple[str, ...], tuple[str, ...]]
"""Blocks that a prompt adds, and blocks that it drops for them."""


@dataclass(slots=True)
class RacedPrompt:
    """A candidate and its runs."""

    text: str
    bundle: Bundle
    parent: RacedPrompt | None = None
    number: int = 0
    """Of those that were tried, the start being 0."""
    runs: dict[str, Trajectory] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    """Row → value; a row that a machine failed on is in `runs` only."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Row → rows that it stands for, where that is not one."""
    kept: dict[str, float] = field(default_factory=dict)
    """Row → how far it keeps what has to stay there; of rows where something has."""

    def breaks(self, parent: RacedPrompt) -> bool:
        """True if it loses more of what the parent keeps than it keeps, by so many rows that this is no chance.

        A gain on other rows does not make up for it: what becomes wrong where it is known to be is not right elsewhere.
        """
        before = [id for id, kept in parent.kept.items() if kept and id in self.kept]
        kept = sum(self.kept[id] for id in before)
        return len(before) - 2 * kept >= _LOST

    def mean(self, rows: Iterable[Task]) -> float:
        """Of its values on these rows; 0 where it has none."""
        ids = [row.id for row in rows if row.id in self.values]
        weight = sum(self.weights.get(id, 1.0) for id in ids)
        return sum(self.weights.get(id, 1.0) * self.values[id] for id in ids) / weight if ids else 0.0

    def gain(self, other: RacedPrompt, rows: Iterable[Task]) -> float:
        """Sum of the differences to another on rows that both have a value on."""
        both = [row.id for row in rows if row.id in self.values and row.id in other.values]
        return sum(self.weights.get(id, 1.0) * (self.values[id] - other.values[id]) for id in both)

    def adds(self, parent: RacedPrompt) -> bool:
        """True if it says something that the other does not."""
        return bool(added(self.text, parent.text))


class PromptRace:
    """All prompts of one search, and the rows that they are run on.

    Args:
        version: the text as it stands.
        base: the Bundle that it is of.
        meter: of the search's share of the runs.
        first: rows of the first lap; each further lap has twice as many.
        score: name of the Score, in [0, 1].
        right: from this value on a row counts as right.
        weights: row → rows that it stands for, where that is not one.
        keeps: name of a Score of what has to stay; None for none.
        on_trial: told of a prompt before it is run on rows.
    """

    def __init__(
        self,
        version: Version,
        base: Bundle,
        context: Context,
        meter: Meter,
        rows: Sequence[Task],
        *,
        first: int,
        score: str,
        right: float,
        weights: Mapping[str, float],
        seed: int,
        keeps: str | None = None,
        on_trial: Callable[[RacedPrompt], None],
    ) -> None:
        self._version, self._base, self._context, self._meter = version, base, context, meter
        self._first, self._score, self._right, self._weights = first, score, right, weights
        self._seed, self._keeps, self._on_trial = seed, keeps, on_trial
        self.rows = list(rows)
        self.known: dict[str, RacedPrompt] = {}
        """Text → prompt, of all that there were."""
        self.pieces: dict[PromptPiece, int] = {}
        """What a proposal changed of its parent → its place in the belief."""
        self._words: dict[str, frozenset[str]] = {}
        self._counts: Counter[str] = Counter()
        self._belief: tuple[tuple[int, int], PieceEffects, dict[int, int]] | None = None

    def prompt(self, text: str, parent: RacedPrompt | None) -> RacedPrompt:
        """The prompt with this text: the same one if there was one."""
        if text.strip() in self.known:
            return self.known[text.strip()]
        version = Version(
            resource=self._version.resource,
            content=text,
            kind=self._version.kind,
            parent=parent.bundle[self._version.resource].id if parent is not None else None,
        )
        bundle = self._base.put(version if parent is not None else self._version)
        prompt = RacedPrompt(text, bundle, parent, number=len(self.known), weights=self._weights)
        self.known[text.strip()] = prompt
        return prompt

    def proposal(self, text: str, parent: RacedPrompt) -> RacedPrompt:
        """A prompt that somebody wrote, whose pieces may be had apart and with others'."""
        for piece in pieces_of(text, parent.text):
            self.pieces.setdefault(piece, len(self.pieces))
        return self.prompt(text, parent)

    def ran(self, prompt: RacedPrompt) -> list[Task]:
        """The rows that it has a value on."""
        return [row for row in self.rows if row.id in prompt.values]

    def whole(self, prompt: RacedPrompt) -> bool:
        """True if it was run on all rows."""
        return all(row.id in prompt.runs for row in self.rows)

    def perfect(self, prompt: RacedPrompt) -> bool:
        """True if it is right on all rows."""
        return all(prompt.values.get(row.id, 0.0) >= self._right - EQUAL for row in self.rows)

    def add_rows(self, rows: Sequence[Task]) -> None:
        """Further rows, which the prompts of before were not run on."""
        self.rows += rows
        self._words = {}

    async def extend(self, prompt: RacedPrompt, rows: Sequence[Task]) -> None:
        """Run it on those of the rows that it was not run on.

        Raises:
            BudgetExceeded: they are more than the runs that are left; none was run.
        """
        missing = [row for row in rows if row.id not in prompt.runs]
        if not missing:
            return
        self._meter.reserve(rollouts=len(missing))
        self._on_trial(prompt)
        groups = await self._context.rollout(prompt.bundle, missing)
        refuse_unanswered(groups)
        for group in groups:
            run = group.trajectories[0]
            prompt.runs[group.task.id] = run
            value = value_of(run, self._score)
            if (
                value is None
                and run.outcome is not Outcome.INFRASTRUCTURE_ERROR
                and prompt.parent is not None
            ):
                value = 0.0  # an answer that nothing could judge is not better than one that was judged
            if value is not None:
                prompt.values[group.task.id] = value
            kept = value_of(run, self._keeps) if self._keeps is not None else None
            if kept is not None:
                prompt.kept[group.task.id] = kept

    async def race(
        self,
        prompt: RacedPrompt,
        parent: RacedPrompt,
        best: RacedPrompt,
        bar: float = EQUAL,
        laps: int | None = None,
        whole: bool = False,
    ) -> None:
        """Run a prompt lap by lap, until it has gained less than `bar` or cannot win; at most so many laps.

        Args:
            whole: one lap of all rows.
        """
        order = self._order(prompt, parent)
        at, lap = 0, len(order) if whole else self._first
        while at < len(order):
            rows = order[at : at + lap]
            # The other rows of the lap can only lose: what gained nothing on these is given up without them.
            # One that only drops something may be joined for losing nothing, so it is run on all.
            if bar > 0 and prompt.adds(parent):
                able = [row for row in rows if self._able(parent, row) > 0.0]
                await self.extend(prompt, able)
                if prompt.gain(parent, [*order[:at], *able]) < bar:
                    return
            await self.extend(prompt, rows)
            if prompt.breaks(parent):
                return
            at, lap = min(len(order), at + lap), 2 * lap
            ran, left = order[:at], order[at:]
            gain = prompt.gain(parent, ran)
            # The most that it can still gain: every row that is left becomes right.
            hope = gain + sum(self._able(parent, row) for row in left)
            hopeless = hope < bar if bar < 0 else hope <= best.gain(parent, self.rows) - EQUAL
            if left and (gain < bar or hopeless):
                return
            laps = None if laps is None else laps - 1
            if laps == 0:
                return

    async def resume(self, prompt: RacedPrompt, best: RacedPrompt) -> None:
        """Run a prompt on further rows, lap by lap, for as long as it may be better than the best."""
        lap = self._first
        order = [row for row in self._order(prompt, best) if row.id not in prompt.runs]
        while order and self.promising(prompt.text, best):
            await self.extend(prompt, order[:lap])
            if prompt.breaks(best):
                return
            order, lap = order[lap:], 2 * lap

    def promising(self, text: str, best: RacedPrompt) -> bool:
        """True if a prompt with this text, run already or not, may well be better than the best on all rows."""
        return self.chance(text, best) >= WORTH_A_LAP

    def chance(self, text: str, best: RacedPrompt) -> float:
        """The probability that a prompt with this text is better than the best on all rows; 0 if it was run on all."""
        belief, places = self._believed()
        prompt = self.known.get(text.strip())
        left = self.rows if prompt is None else [row for row in self.rows if row.id not in prompt.values]
        if not left:
            return 0.0
        return belief.better(
            self.held(text),
            places.get(prompt.number, -1) if prompt is not None else -1,
            places[best.number],
            known=prompt.gain(best, self.rows) if prompt is not None else 0.0,
            rows=len(left),
        )

    def worth_of_pieces(self, rng: random.Random) -> list[float]:
        """Of each piece, in one draw from the belief (Thompson 1933)."""
        return self._believed()[0].drawn(rng)

    def held(self, text: str) -> frozenset[int]:
        """The pieces that a prompt has."""
        own = {bare(block) for block in blocks(text)}
        return frozenset(
            place
            for (new, gone), place in self.pieces.items()
            if own.issuperset(new) and own.isdisjoint(gone)
        )

    def _believed(self) -> tuple[PieceEffects, dict[int, int]]:
        """What is known of the pieces by all runs, and where each prompt stands in it."""
        ran = [prompt for prompt in self.known.values() if prompt.values]
        state = (sum(len(prompt.values) for prompt in ran), len(self.pieces))
        if self._belief is None or self._belief[0] != state:
            prompts = [(self.held(prompt.text), prompt.values) for prompt in ran]
            places = {prompt.number: place for place, prompt in enumerate(ran)}
            self._belief = (state, PieceEffects(len(self.pieces), prompts, self._weights), places)
        return self._belief[1:]

    def _able(self, parent: RacedPrompt, row: Task) -> float:
        """The most that a row can gain."""
        return self._weights.get(row.id, 1.0) * (1.0 - parent.values.get(row.id, 0.0))

    def _order(self, prompt: RacedPrompt, parent: RacedPrompt) -> list[Task]:
        """Rows in the order of a race: two that the parent has wrong for each that it has right, as long as both last.

        A harmful prompt is then found out by the first lap, and a useless one, too.  Of the wrong ones come first those
        that share the most words with what the prompt adds: what does not help where it speaks helps nowhere.
        """
        shuffled = random.Random(f"race:{self._seed}:{parent.text}").sample(self.rows, len(self.rows))
        # A prompt that only drops something is tried where that may be missed, on rows that are right with it.
        dropping = not prompt.adds(parent)
        words = _words("\n".join(added(prompt.text, parent.text)))
        gone = _words("\n".join(added(parent.text, prompt.text)))
        causes: dict[str, list[Task]] = {}
        right: list[Task] = []
        for row in shuffled:
            if parent.values.get(row.id, 0.0) >= self._right - EQUAL:
                right.append(row)
                continue
            case = case_of(parent.runs[row.id], self._score)
            causes.setdefault(case.cause if case is not None else "", []).append(row)
        # One of each cause in turn: a rule that mends one cause shows early.
        wrong = [row for turn in zip_longest(*causes.values()) for row in turn if row is not None]
        wrong.sort(key=lambda row: -self._shared(words, row))
        if dropping:
            right.sort(key=lambda row: -self._shared(gone, row))
            return [*right, *wrong]
        order: list[Task] = []
        while wrong or right:
            order += wrong[:2] + right[:1]
            wrong, right = wrong[2:], right[1:]
        return order

    def _shared(self, words: frozenset[str], row: Task) -> float:
        """How much the words of a change are those of a row, each by how few rows have it."""
        if not self._words:
            self._words = {task.id: _words(f"{task.instruction} {task.answer}") for task in self.rows}
            self._counts = Counter(word for own in self._words.values() for word in own)
        return sum(1.0 / self._counts[word] for word in words & self._words[row.id])


def pieces_of(text: str, parent: str) -> list[PromptPiece]:
    """What a prompt changes of its parent, in pieces that can be had one without another.

    A prompt that drops blocks for others is one piece: nobody can tell which stands for which.
    """
    new = [bare(block) for block in added(text, parent)]
    gone = [bare(block) for block in added(parent, text)]
    if new and gone:
        return [(tuple(new), tuple(gone))]
    return [((block,), ()) for block in new] + [((), (block,)) for block in gone]


def refuse_unanswered(groups: Sequence[Group]) -> None:
    """Stop where the model under the prompt answers no more: a key that is refused would cost every further row a call.

    Raises:
        TrainingRefused: each of these runs ended in an error of the model.
    """
    errors = [run.error for group in groups for run in group.trajectories]
    failed = [error for error in errors if error is not None and error.type == ModelError.__name__]
    if failed and len(failed) == len(errors):
        raise TrainingRefused(
            f"the model cannot be asked: {failed[0].message} Its answers so far are recorded: run the same command "
            "again to go on."
        )


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w{3,}", text.casefold()))


def bare(block: str) -> str:
    """A block without the mark of a list item."""
    return ITEM.sub("", block.strip(), count=1)
