"""Pieces of a repository evolve: each alone where it has rows of its own, then together, end to end.

1. A piece with rows of its own is searched on them.
2. What came of it is taken over if the end-to-end score does not fall by it; else the piece is refused,
   whatever it gained by itself.
3. The others, and the entry itself, are searched together on the entry's rows.
4. Changes that earn nothing are taken back, so that the patch is short.
5. The gate judges start and end, paired, on rows that nothing was searched or chosen on.

The search is `engine.py`'s; what a candidate is called with and how it is compared is `outside.py`'s.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ..budget import Meter
from ..data.examples import Example
from ..errors import BudgetExceeded, InputError
from ..gate import Result as Outcomes
from ..gate import compare
from ..models.base import Model
from ..types import Outcome, Split, Verdict, digest
from .agent import Agent
from .demonstrations import Demonstrate, Demonstration, set_aside
from .engine import Found, Search, SearchOptions
from .journal import Journal, Record
from .mining import Mined, Written
from .outside import Outside, Trial
from .pieces import Piece
from .population import Best, Front, Islands, Population
from .program import Program
from .proposers import Move, Proposes

FINALISTS = 8
"""Candidates of a search that are compared on the validation rows."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one piece."""

    name: str
    taken: bool
    reason: str
    own: tuple[float, float] | None = None
    """Score on its own rows, before and after; None for a piece without."""
    end_to_end: tuple[float, float] | None = None
    """Score of the entry, without and with it."""


@dataclass(slots=True)
class Improved:
    """What came of it."""

    start: Program
    program: Program
    searches: dict[str, Found] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    trials: dict[str, list[tuple[Trial, Trial]]] = field(default_factory=dict)
    """Function → every row, before and after."""
    verdict: Verdict | None = None
    """None where nothing better was found, or there are no rows to judge on."""
    why: str = ""
    """Why there is no verdict."""
    taken_back: int = 0
    """Changes that earned nothing."""
    trusted_only: bool = False


@dataclass
class Improvement:
    """One run.

    Args:
        agent: the pieces and what calls them.
        judges: function → judge of its training rows, with all its rows.
        proposers: models that propose beside the edits.
        options: of each search; its iterations are shared out among the searches.
        journal: function, and what its search depends on → where it is recorded.
        shown: function → rated runs that a prompt may show; where there are none, a fifth of the
            training rows is set aside for it.
        writer: a model that writes rules from what failures share.
    """

    agent: Agent
    judges: Mapping[str, Outside]
    proposers: Sequence[Proposes]
    options: SearchOptions
    journal: Callable[[str, Mapping[str, str]], Journal]
    progress: Callable[[str, Record], None] | None = None
    population: str = "auto"
    meter: Meter = field(default_factory=Meter)
    shown: Mapping[str, Sequence[Demonstration]] = field(default_factory=dict)
    writer: Model | None = None
    _aside: dict[str, frozenset[str]] = field(default_factory=dict)
    """Function → rows that its prompts may show, so that nothing is chosen on them."""

    async def run(self) -> Improved:
        """Search, decide, judge.

        Raises:
            InputError: no piece can be judged by any rows.
            TrainingRefused: an evaluator that cannot tell better from worse.
        """
        agent = self.agent
        improved = Improved(agent.start, agent.start)
        own = [p for p in agent.pieces if p.mark.name in self.judges and p.mark.name != agent.entry]
        rest = [p for p in agent.pieces if p not in own]
        through = agent.entry if agent.entry in self.judges else None
        if rest and through is None:
            names = ", ".join(each.mark.name for each in rest)
            raise InputError(f"there are no rows to judge {names} by: give rows of them, or of --entry")
        share = len(own) + bool(rest)
        gained = [(piece, *await self._alone(piece, improved, share)) for piece in own]
        for piece, best, before, after in sorted(gained, key=lambda each: each[3] - each[2], reverse=True):
            await self._take(improved, piece, best, (before, after), through)
        if rest and through is not None:
            await self._together(improved, rest, through, share)
        await self._simplify(improved)
        await self._judge(improved)
        return improved

    async def _alone(self, piece: Piece, improved: Improved, share: int) -> tuple[Program, float, float]:
        """The best of a piece on its own rows, and its scores before and after."""
        return await self._search(piece.mark.name, [piece], self.agent.start, improved, share)

    def _judge_of(
        self, name: str, pieces: Sequence[Piece], rest: Program
    ) -> tuple[Outside, Sequence[Demonstration]]:
        """The judge of a function for candidates of these pieces, and what their texts may show.

        The other pieces are those of `rest`.
        """
        known = self.judges[name]
        rows = [row for row in known.rows if row.split is not Split.GATE]
        train = [row for row in rows if row.split is not Split.VALIDATION] or rows
        shown = self.shown.get(name, ())
        if not shown and any(_may_show(each) for each in pieces):
            train, shown = set_aside(train)
            self._aside[name] = frozenset(each.id for each in shown)
        return Outside(self.agent.target(name, pieces, rest), train, known.way, known.comparer), shown

    def _around(self, judge: Outside, start: Program) -> str:
        """Digest of what runs with a candidate: an answer of other code is none of this one."""
        files = dict(judge.target.build(start))
        if judge.way.varies:  # it runs in a copy of the repository
            files |= self.agent.texts()
        return digest({name: text if isinstance(text, str) else text.hex() for name, text in files.items()})

    def _arms(
        self, pieces: Sequence[Piece], rows: Sequence[Example], shown: Sequence[Demonstration]
    ) -> tuple[dict[str, Move], list[Proposes]]:
        """What else proposes, where there are texts: demonstrations, and rules that failures share."""
        by_id = {row.id: row for row in rows}
        texts = [each.part for each in pieces if not each.code]
        moves: dict[str, Move] = {}
        if texts and self.options.edits:
            moves["rule"] = Mined(by_id, texts)
            parts = [each.part for each in pieces if _may_show(each)]
            if shown and parts:
                moves["demonstrate"] = Demonstrate(shown, by_id, parts)
        proposers = list(self.proposers)
        if texts and self.writer is not None:
            proposers.append(Written(self.writer, by_id, texts))
        return moves, proposers

    async def _search(
        self, name: str, pieces: Sequence[Piece], rest: Program, improved: Improved, share: int
    ) -> tuple[Program, float, float]:
        judge, shown = self._judge_of(name, pieces, rest)
        start = Program({each.part: each.text for each in pieces}, pieces[0].part)
        iterations = self.options.iterations
        options = replace(
            self.options, iterations=None if iterations is None else max(1, iterations // max(1, share))
        )
        population = self._population(start)
        moves, proposers = self._arms(pieces, judge.rows, shown)
        said = [[each.identity for each in proposers], {arm: each.identity for arm, each in moves.items()}]
        decides = [self.population, options.seed, options.in_flight, list(options.edits), judge.way.varies]
        made_of = {
            "the targets": start.id,
            "the code around them": self._around(judge, start),
            "rows": digest([[row.id, row.wanted, row.label] for row in judge.rows]),
            "how answers are compared": judge.comparer.name,
            "who proposes": digest(said),
            "options": digest(decides),
        }
        search = Search(
            start,
            judge,
            population,
            options=options,
            proposers=proposers,
            moves=moves,
            journal=self.journal(name, made_of),
            progress=partial(self.progress, name) if self.progress else None,
            meter=self.meter,
        )
        found = await search.run()
        improved.searches[name] = found
        finalists = [found.start.program, *(each.program for each in population.members())][: FINALISTS + 1]
        return await self._finalist(name, judge, finalists)

    async def _finalist(
        self, name: str, judge: Outside, finalists: Sequence[Program]
    ) -> tuple[Program, float, float]:
        """The best on the rows that the search did not see, ties by those that it did."""
        searched = {row.id for row in judge.rows}
        held = [row for row in self._open_rows(name) if row.id not in searched]
        ranked = []
        for place, program in enumerate(finalists):
            unseen = mean(await judge.trials(program, held)) if held else 0.0
            seen = mean(await judge.trials(program, judge.rows))
            ranked.append(
                (
                    (unseen * len(held) + seen * len(judge.rows)) / (len(held) + len(judge.rows)),
                    -place,
                    program,
                )
            )
        start = ranked[0]
        best = max(ranked, key=lambda each: each[:2])
        return best[2], start[0], best[0]

    def _population(self, start: Program) -> Population:
        code = any(name.endswith(".py") for name in start.parts)
        kind = self.population if self.population != "auto" else "islands" if code else "front"
        made: dict[str, Callable[[], Population]] = {"islands": Islands, "best": Best, "front": Front}
        if kind not in made:
            raise InputError(f"population {kind!r}: it must be auto, {', '.join(made)}")
        return made[kind]()

    async def _take(
        self, improved: Improved, piece: Piece, best: Program, own: tuple[float, float], through: str | None
    ) -> None:
        """Take a piece over, unless what it gains by itself is lost end to end."""
        name, text = piece.mark.name, best.parts[piece.part]
        if text == piece.text or own[1] <= own[0] + _EQUAL:
            improved.decisions.append(Decision(name, False, "nothing better was found", own))
            return
        changed = improved.program.with_part(piece.part, text)
        if through is None or not self._used(through, piece):
            improved.program = changed
            improved.decisions.append(Decision(name, True, "better on its own rows", own))
            return
        before = await self._end_to_end(through, improved.program)
        after = await self._end_to_end(through, changed)
        taken = after >= before - _EQUAL
        reason = (
            f"better on its own rows, and {through} is not worse by it"
            if taken
            else f"better on its own rows, and it lowers {through} from {before:.3f} to {after:.3f}"
        )
        improved.decisions.append(Decision(name, taken, reason, own, (before, after)))
        if taken:
            improved.program = changed

    def _used(self, name: str, piece: Piece) -> bool:
        return self.agent.reaches(name, piece)

    async def _end_to_end(self, name: str, program: Program) -> float:
        """Mean over the rows of the entry that may be looked at."""
        judge = self._whole(name)
        return mean(await judge.trials(program, self._open_rows(name)))

    def _open_rows(self, name: str) -> list[Example]:
        """The rows with a goal that anything may be chosen on."""
        aside = self._aside.get(name, frozenset())
        return [row for row in self.judges[name].rows if row.split is not Split.GATE and row.id not in aside]

    def _whole(self, name: str) -> Outside:
        known = self.judges[name]
        reached = [each for each in self.agent.pieces if self._used(name, each)]
        return Outside(self.agent.target(name, reached), known.rows, known.way, known.comparer)

    async def _together(self, improved: Improved, pieces: Sequence[Piece], through: str, share: int) -> None:
        best, before, after = await self._search(through, pieces, improved.program, improved, share)
        better = after > before + _EQUAL
        for piece in pieces:
            changed = better and best.parts[piece.part] != piece.text
            if changed:
                improved.program = improved.program.with_part(piece.part, best.parts[piece.part])
            reason = f"{through} is better with it" if changed else "nothing better was found"
            improved.decisions.append(Decision(piece.mark.name, changed, reason, None, (before, after)))

    async def _simplify(self, improved: Improved) -> None:
        """Take back each change of lines that no row is worse without."""
        functions = self._judged_by()
        for piece in self.agent.pieces:
            while True:
                now = improved.program.parts[piece.part]
                for text in _without_one(piece.text, now):
                    shorter = improved.program.with_part(piece.part, text)
                    if await self._no_worse(improved.program, shorter, functions):
                        improved.program, improved.taken_back = shorter, improved.taken_back + 1
                        break
                else:
                    break
            if improved.program.parts[piece.part] == piece.text:
                improved.decisions = [
                    replace(each, taken=False, reason="what changed in it earned nothing")
                    if each.taken and each.name == piece.mark.name
                    else each
                    for each in improved.decisions
                ]

    async def _no_worse(self, now: Program, other: Program, functions: Sequence[str]) -> bool:
        for name in functions:
            judge = self._whole(name)
            rows = self._open_rows(name)
            try:
                tried = await judge.trials(other, rows, spare=True)
            except (InputError, BudgetExceeded):
                return False
            if mean(tried) < mean(await judge.trials(now, rows)) - _EQUAL:
                return False
        return True

    def _judged_by(self) -> list[str]:
        """The entry where it has rows, else every target that has."""
        entry = self.agent.entry
        return [entry] if entry is not None and entry in self.judges else list(self.judges)

    async def _judge(self, improved: Improved) -> None:
        """All rows before and after, and the gate's verdict on its own."""
        for name in self.judges:
            judge = self._whole(name)
            rows = self.judges[name].every
            before = await judge.trials(improved.start, rows)
            after = await judge.trials(improved.program, rows)
            improved.trials[name] = list(zip(before, after, strict=True))
            improved.trusted_only |= judge.trusted_only
        if improved.program.parts == improved.start.parts:
            improved.why = "nothing better was found, so there is nothing to judge"
            if improved.decisions and all(
                (each.own or each.end_to_end) == (0, 0) for each in improved.decisions
            ):
                improved.why += (
                    "; every candidate was worth 0 on every row, so a search had nothing to climb: "
                    "an evaluator that values what is nearly right gives it a slope (--evaluators)"
                )
            return
        pairs = [(name, *pair) for name in self._judged_by() for pair in improved.trials[name]]
        held = [each for each in pairs if each[1].row.split is Split.GATE and each[1].row.goal]
        if not held:
            improved.why = "no row was held back for the gate: give more rows"
            return
        improved.verdict = _verdict(held, pairs)


def _verdict(held: Sequence[tuple[str, Trial, Trial]], pairs: Sequence[tuple[str, Trial, Trial]]) -> Verdict:
    """The gate's, which a score from within reach of the candidate cannot promote."""
    learned = [each for each in pairs if each[1].row.split is not Split.GATE]
    seen = {f"{name}/{trial.row.id}" for name, trial, _ in learned}
    seen |= {trial.row.group for _, trial, _ in learned if trial.row.group}
    verdict = compare(
        [_outcomes(name, before) for name, before, _ in held],
        [_outcomes(name, after) for name, _, after in held],
        metric="score",
        against="the source as it stands",
        trained_groups=seen,
    )
    tainted = [after for _, _, after in held if after.result.co_resident or after.result.trusted_only]
    if not tainted:
        return verdict
    how = "without the sandbox" if tainted[0].result.trusted_only else "beside their judge"
    said = f"{len(tainted)} of {len(held)} answers were made {how}: such a score promotes nothing."
    return replace(verdict, promote=False, reasons=(*verdict.reasons, said))


def _outcomes(name: str, trial: Trial) -> Outcomes:
    outcome = Outcome.INFRASTRUCTURE_ERROR if trial.broken else Outcome.UNKNOWN
    return Outcomes(
        task=f"{name}/{trial.row.id}", group=trial.row.group, scores={"score": trial.score}, outcome=outcome
    )


def _may_show(piece: Piece) -> bool:
    """A text that examples may stand in: a prompt or a skill, not a tool's description."""
    return not piece.code and piece.mark.kind != "tool"


def mean(trials: Sequence[Trial]) -> float:
    """Mean score of those that have one; 0 where none has."""
    scores = [each.score for each in trials if each.score is not None]
    return sum(scores) / len(scores) if scores else 0.0


def _without_one(old: str, new: str) -> list[str]:
    """The new text with one change of lines taken back, for each of them."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    changes: list[tuple[int, int, int, int]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            changes.append((a, b, c, d))
        if (
            kind == "replace" and b - a == d - c > 1
        ):  # neighbouring lines may have changed for no common reason
            changes += [(a + line, a + line + 1, c + line, c + line + 1) for line in range(b - a)]
    return ["".join([*after[:c], *before[a:b], *after[d:]]) for a, b, c, d in changes]
