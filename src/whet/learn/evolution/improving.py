"""Pieces of a repository evolve: each alone where it has rows of its own, then together, end to end.

1. A piece with rows of its own is searched on them.
2. Its best text is adopted if the end-to-end score does not fall by it; else the piece is refused,
   whatever it gained by itself.
3. The remaining pieces, and the entry itself, are searched together on the entry's rows.
4. Changes that earn nothing are taken back, so that the patch is short.

The search is `engine.py`'s, the Env `outside.py`'s, called by `context.rollout`.  The gate decides if the outcome is
better on rows that nothing was searched or chosen on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from ...errors import BudgetExceeded, InputError
from ...models.base import Model
from ...record.rows import rating_of
from ...types import Bundle, Group, Split, Task, digest
from ..loop import Context, Update
from .agents.agent import RepositoryAgent
from .agents.outside import Comparer, Targets
from .agents.pieces import Piece
from .editing.minimise import minimised
from .editing.program import Program
from .search.demonstrations import Demonstrate, Demonstration, set_aside
from .search.engine import Search, SearchOptions, SearchOutcome
from .search.estimate import Searching
from .search.judging import Judging
from .search.mining import Mined, WrittenLine
from .search.population import population_of
from .search.proposers import Move, Proposer, Proposes
from .search.proposing import Proposing
from .search.records import ProposalRecord, opened
from .search.rows import RowJudge, finalist, mean

FINALISTS = 8
"""Candidates of a search that are compared on the validation rows."""
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Decision:
    """The fate of one piece."""

    name: str
    taken: bool
    reason: str
    own: tuple[float, float] | None = None
    """Score on its own rows, before and after; None for a piece without."""
    end_to_end: tuple[float, float] | None = None
    """Score of the entry, without and with it."""


@dataclass
class Pieces(Searching):
    """Optimizer of the pieces of a repository; one step is all of its searches.

    Args:
        agent: the pieces and the functions that use them.
        env: calls the candidates.
        comparers: function → the Comparer of its answers; the tasks of a function are rows of it.
        proposing: the proposers beside the edits.
        options: of each search; its iterations are shared out among the searches.
        shown: function → rated runs that a prompt may show; where there are none, a fifth of the
            training rows is set aside for it.
        progress: called with every committed record, and the function that it is about.
        notice: called with the reason for which a search begins anew.
        chosen_on: ids of rows that the result is chosen on beyond those that are searched.
    """

    agent: RepositoryAgent
    env: Targets
    comparers: Mapping[str, Comparer]
    proposing: Proposing
    options: SearchOptions
    population: str = "auto"
    shown: Mapping[str, Sequence[Demonstration]] = field(default_factory=dict)
    progress: Callable[[str, ProposalRecord], None] | None = None
    notice: Callable[[str], None] | None = None
    chosen_on: Sequence[str] = ()

    name = "pieces"

    searches: dict[str, SearchOutcome] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    taken_back: int = 0
    """Changes that earned nothing."""
    _proposers: Sequence[Proposes] = ()
    _writer: Model | None = None
    _aside: dict[str, frozenset[str]] = field(default_factory=dict)
    """Function → rows that its prompts may show, so that nothing is chosen on them."""

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """Search, decide, simplify.

        Raises:
            InputError: no piece can be judged by any rows.
            TrainingRefused: an evaluator that cannot tell better from worse.
        """
        agent = self.agent
        self._context = context
        start = self._program = self.env.form.program(bundle)
        own = [p for p in agent.pieces if p.mark.name in self.comparers and p.mark.name != agent.entry]
        rest = [p for p in agent.pieces if p not in own]
        through = agent.entry if agent.entry in self.comparers else None
        if rest and through is None:
            names = ", ".join(piece.mark.name for piece in rest)
            raise InputError(f"there are no rows to judge {names} by: give rows of them, or of --entry")
        share = len(own) + bool(rest)
        async with AsyncExitStack() as stack:
            self._proposers = await self.proposing.open(context, stack)
            self._writer = next((arm.model for arm in self._proposers if isinstance(arm, Proposer)), None)
            # All around the start, before any is adopted: so none depends on what the others found.
            gains = [(piece, *await self._search(piece.mark.name, [piece], start, share)) for piece in own]
            # Largest gain first: an adopted piece changes the end-to-end score that the next piece must keep.
            for piece, best, before, after in sorted(gains, key=lambda gain: gain[3] - gain[2], reverse=True):
                await self._take(piece, best, (before, after), through)
            if rest and through is not None:
                await self._together(rest, through, share)
            await self._simplify()
        metrics = {
            "proposals": float(sum(search.iterations for search in self.searches.values())),
            "taken": float(sum(decision.taken for decision in self.decisions)),
        }
        return Update(bundle=self._learned(), state={"resumable": False}, metrics=metrics)

    def _learned(self) -> Bundle:
        """The result, which names the rows that it was searched on: a later gate leaves them out."""
        tasks = (*self._context.train, *self._context.validation)
        searched = sorted({*self.chosen_on, *(task.id for task in tasks)})
        versions = self.env.form.bundle(self._program).values()
        return Bundle([replace(version, meta={**version.meta, "rows": searched}) for version in versions])

    def start(self, context: Context) -> tuple[Judging, Program, int | None]:
        """See `Searching`: the judge of the first function by whose rows everything is judged."""
        self._context, name = context, judged_by(self.agent, self.comparers)[0]
        judge = self._judge_on(name, self._train(name), self.env.form.bundle)
        return judge, self.agent.start, len(self._tasks(name)) if judge.varies else None

    def _tasks(self, name: str) -> list[Task]:
        """The rows of a function that may be looked at, as tasks."""
        tasks = (*self._context.train, *self._context.validation)
        return [task for task in tasks if task.initial_state["function"] == name]

    def _train(self, name: str) -> list[Task]:
        tasks = self._tasks(name)
        return [task for task in tasks if task.split is not Split.VALIDATION] or tasks

    def _judge_on(
        self,
        name: str,
        tasks: Sequence[Task],
        bundle_of: Callable[[Program], Bundle],
        held: Sequence[Task] = (),
    ) -> RowJudge:
        comparer = self.comparers[name]
        return RowJudge(self._context.rollout, tasks, bundle_of, name, self.env, comparer, held=held)

    def _judge_of(
        self, name: str, pieces: Sequence[Piece], rest: Program
    ) -> tuple[RowJudge, list[Task], Sequence[Demonstration]]:
        """The judge of a function for candidates of these pieces, its rows, and the runs that texts may show.

        Pieces that are not among these are those of `rest`.
        """
        self.agent.target(name, pieces, rest)  # refuses pieces that the function does not use
        train = self._train(name)
        shown = self.shown.get(name, ())
        if not shown and any(map(_may_show, pieces)):
            train, shown = set_aside(train)
            self._aside[name] = frozenset(run.id for run in shown)

        def bundle_of(program: Program) -> Bundle:
            return self.env.form.bundle(Program({**rest.parts, **program.parts}, rest.main))

        searched = {task.id for task in train}
        held = [task for task in self._open_tasks(name) if task.id not in searched]
        return self._judge_on(name, train, bundle_of, held), train, shown

    def _around(self, name: str, start: Program) -> str:
        """Digest of the code that runs with a candidate: after a change of it old answers count for nothing."""
        files = dict(self.env.targets[name].build(start))
        if self.env.ways[name].varies:  # it runs in a copy of the repository
            files |= self.agent.texts()
        return digest({name: text if isinstance(text, str) else text.hex() for name, text in files.items()})

    def _arms(
        self, pieces: Sequence[Piece], rows: Sequence[Task], shown: Sequence[Demonstration]
    ) -> tuple[dict[str, Move], list[Proposes]]:
        """Further arms for texts: demonstrations, and rules that failures share."""
        by_id = {row.id: row for row in rows}
        texts = [piece.part for piece in pieces if not piece.code]
        moves: dict[str, Move] = {}
        if texts and self.options.edits:
            moves["rule"] = Mined(by_id, texts)
            parts = [piece.part for piece in pieces if _may_show(piece)]
            if shown and parts:
                moves["demonstrate"] = Demonstrate(shown, by_id, parts)
        proposers = list(self._proposers)
        if texts and self._writer is not None:
            proposers.append(WrittenLine(self._writer, by_id, texts))
        return moves, proposers

    async def _search(
        self, name: str, pieces: Sequence[Piece], rest: Program, share: int
    ) -> tuple[Program, float, float]:
        """The best of these pieces on the rows of a function, and its scores before and after."""
        judge, rows, shown = self._judge_of(name, pieces, rest)
        start = Program({piece.part: piece.text for piece in pieces}, pieces[0].part)
        iterations = self.options.iterations
        options = replace(
            self.options,
            iterations=None if iterations is None else max(1, iterations // max(1, share)),
            # No row is worth more than 1, so nothing can be better than all of them.
            target=1.0 if self.options.target is None else self.options.target,
        )
        population = population_of(self.population, code=any(name.endswith(".py") for name in start.parts))
        moves, proposers = self._arms(pieces, rows, shown)
        arms = [[arm.identity for arm in proposers], {name: move.identity for name, move in moves.items()}]
        lags = [options.in_flight, options.most_in_flight]
        decides = [self.population, options.seed, lags, list(options.edits), judge.varies]
        made_of = {
            "the targets": start.id,
            "the code around them": self._around(name, Program({**rest.parts, **start.parts}, rest.main)),
            "rows": digest([[row.id, row.answer, rating_of(row)] for row in rows]),
            "how answers are compared": self.comparers[name].name,
            "who proposes": digest(arms),
            "options": digest(decides),
        }
        search = Search(
            start,
            judge,
            population,
            options=options,
            proposers=proposers,
            moves=moves,
            records=opened(self._context.log, digest([name, made_of]), name, made_of, self.notice),
            progress=partial(self.progress, name) if self.progress else None,
            meter=self._context.meter,
        )
        outcome = self.searches[name] = await search.run()
        members = [outcome.start, outcome.best, *population.members()]
        finalists = list({judged.program.id: judged.program for judged in members}.values())[: FINALISTS + 1]
        return await finalist(judge, finalists, judge.held)

    async def _take(self, piece: Piece, best: Program, own: tuple[float, float], through: str | None) -> None:
        """Adopt a piece, unless its own gain is lost end to end."""
        name, text = piece.mark.name, best.parts[piece.part]
        if text == piece.text or own[1] <= own[0] + _EQUAL:
            self.decisions.append(Decision(name, False, "nothing better was found", own))
            return
        changed = self._program.with_part(piece.part, text)
        if through is None or not self.agent.reaches(through, piece):
            self._program = changed
            self.decisions.append(Decision(name, True, "better on its own rows", own))
            return
        before = await self._end_to_end(through, self._program)
        after = await self._end_to_end(through, changed)
        harmless = after >= before - _EQUAL
        reason = (
            f"better on its own rows, and {through} is not worse by it"
            if harmless
            else f"better on its own rows, and it lowers {through} from {before:.3f} to {after:.3f}"
        )
        self.decisions.append(Decision(name, harmless, reason, own, (before, after)))
        if harmless:
            self._program = changed

    async def _end_to_end(self, name: str, program: Program, *, spare: bool = False) -> float:
        """Mean over the rows of a function that may be looked at."""
        tasks = self._open_tasks(name)
        judge = self._judge_on(name, tasks, self.env.form.bundle)
        return mean(await judge.runs(self.env.form.bundle(program), judge.tasks, spare=spare))

    def _open_tasks(self, name: str) -> list[Task]:
        """The rows with a goal that anything may be chosen on."""
        aside = self._aside.get(name, frozenset())
        return [task for task in self._tasks(name) if task.answer_known and task.id not in aside]

    async def _together(self, pieces: Sequence[Piece], through: str, share: int) -> None:
        best, before, after = await self._search(through, pieces, self._program, share)
        better = after > before + _EQUAL
        for piece in pieces:
            changed = better and best.parts[piece.part] != piece.text
            if changed:
                self._program = self._program.with_part(piece.part, best.parts[piece.part])
            reason = f"{through} is better with it" if changed else "nothing better was found"
            self.decisions.append(Decision(piece.mark.name, changed, reason, None, (before, after)))

    async def _simplify(self) -> None:
        """Take back each change that no row is worse without."""
        start = Program(
            {**self._program.parts, **{piece.part: piece.text for piece in self.agent.pieces}},
            self._program.main,
        )
        self._program, self.taken_back = await minimised(start, self._program, self._no_worse)
        unchanged = {
            piece.mark.name for piece in self.agent.pieces if self._program.parts[piece.part] == piece.text
        }
        self.decisions = [
            replace(decision, taken=False, reason="what changed in it earned nothing")
            if decision.taken and decision.name in unchanged
            else decision
            for decision in self.decisions
        ]

    async def _no_worse(self, shorter: Program) -> bool:
        for name in judged_by(self.agent, self.comparers):
            try:
                score = await self._end_to_end(name, shorter, spare=True)
            # A change that cannot be tried stays.
            except (InputError, BudgetExceeded):
                return False
            if score < await self._end_to_end(name, self._program) - _EQUAL:
                return False
        return True


def judged_by(agent: RepositoryAgent, rows: Mapping[str, object]) -> list[str]:
    """The functions by whose rows everything is judged: the entry if it has rows, else every target with rows."""
    return [agent.entry] if agent.entry is not None and agent.entry in rows else list(rows)


def _may_show(piece: Piece) -> bool:
    """A text that examples may stand in: a prompt or a skill, not a tool's description."""
    return not piece.code and piece.mark.kind != "tool"
