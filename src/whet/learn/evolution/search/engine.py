"""The search: proposals in flight, results committed in the order in which they were proposed.

Proposal k is drawn from the population as it stood after commit k - `SearchOptions.lag(k)`, from a
generator seeded by (seed, k).  So what is proposed does not depend on how many workers there are or who is
done first, and a search that is stopped and replayed from its records goes on as if it had not been.

A child goes through four gates, each of them cheaper than the next: its text must be new, it must
parse, import and run, its behaviour on recorded calls must be new, and then it is scored.  The gates
that compare are passed in the order of proposals.  A hang costs its own timeout; a failure of the
program is not retried, one of the machine is (`judging.py`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ....errors import BudgetExceeded, InputError, ModelError, TrainingRefused
from ....models.budget import Meter
from ....types import Json
from ..editing.blocks import BLOCKS
from ..editing.edits import EDITS
from ..editing.program import Program
from .bandit import Bandit
from .judging import RETRIES, Benched, Judgement, Judging, unreadable
from .population import Draw, Judged, Population
from .proposers import Move, Proposes
from .records import ProposalRecord, Records
from .sweep import SWEEP, EditBatch, Sweeps, promising, whose_turn

_DRAWN = {**EDITS, **BLOCKS}
_PAIRED = frozenset({"graft", "unite", "borrow"})
"""Edits that need a donor."""
_TRIES = 16
"""Edits tried for one proposal before it is given up: an edit that fails mostly costs nothing."""
_CHEAP = 0.1
"""Cost of a proposal that never reached the evaluator, in evaluations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Settings of a search; these and the population's options decide its outcome."""

    iterations: int | None = 100
    """Proposals; None for as many as the budget lets."""
    seed: int = 42
    workers: int = 1
    """Candidates judged at a time; without influence on the outcome."""
    in_flight: int = 8
    """Proposals between a child and the population it was drawn from; at least `workers`."""
    most_in_flight: int = 0
    """The same where more are under way later on, see `lag`; 0 for no more than `in_flight`."""
    edits: tuple[str, ...] = (*EDITS, SWEEP)
    """Edits to use: of Python text (`edits.py`), of blocks of other text (`blocks.py`), and `single`, all single
    edits of Python text in the order of suspicion (`sweep.py`); none to leave everything to models."""
    second: float = 0.25
    """Probability that a child made by an edit is edited once more."""
    target: float | None = None
    """Score at which the search is done."""
    patience: int | None = None
    """Proposals without a better one after which it is done."""
    max_length: int = 100_000
    """Characters above which a child is not judged."""
    cpu_seconds: float | None = None
    """CPU time of candidates and search together after which nothing more is proposed."""

    def lag(self, number: int) -> int:
        """The proposals between this one and the population it is drawn from, itself included.

        It grows with the search: the longer that has gone on, the rarer a better program, and the less is lost by
        drawing without the last results.  By the number alone: with the clock or the workers in it, two runs would
        differ.
        """
        return max(self.in_flight, min(self.most_in_flight, number // 3))


@dataclass(slots=True)
class SearchOutcome:
    """The outcome of a search."""

    best: Judged
    start: Judged
    history: list[tuple[int, float]]
    """(proposal, score) of each new best, the start first."""
    records: list[ProposalRecord]
    """Of all proposals, in order; number 0 is the start."""
    iterations: int
    evaluations: int
    timeouts: int
    duplicates: int
    operators: list[dict[str, Json]]
    """The bandit's table, with the last failure of an arm of which no proposal could be judged."""
    cpu_seconds: float
    stopped: str
    """Why it ended: `iterations`, `budget`, `target` or `patience`."""
    tried: int = 0
    """Single edits that were tried side by side."""
    replayed: int = 0
    """Proposals that came from the log."""

    def lineage(self) -> list[ProposalRecord]:
        """From the best back to the start."""
        by_number = {record.number: record for record in self.records}
        line = [by_number[self.best.number]]
        while (parent := line[-1].parent) is not None:
            line.append(by_number[parent])
        return line


class Turnstile:
    """Lets proposals pass one by one, in order; every one must pass, or those behind it wait forever."""

    def __init__(self) -> None:
        self._next = 1
        self._waiting: dict[int, asyncio.Event] = {}

    async def wait(self, number: int) -> None:
        """Wait for one's turn."""
        if number != self._next:
            await self._waiting.setdefault(number, asyncio.Event()).wait()

    def leave(self, number: int) -> None:
        """Let the next one pass."""
        self._next = number + 1
        event = self._waiting.pop(self._next, None)
        if event is not None:
            event.set()


@dataclass(slots=True)
class _Child:
    """A proposal on its way."""

    number: int
    operator: str
    draw: Draw
    program: Program | None
    cost: float = _CHEAP
    batch: EditBatch | None = None
    """Single edits, one of which is to become the program."""
    benches: list[Benched] = field(default_factory=list)
    """On which it was judged: one, and one more for each failure of the machine."""


@dataclass(slots=True)
class Search:
    """One search.

    Args:
        start: the program to improve.
        judge: scores candidates.
        population: the candidates that may have children.
        proposers: models and commands, each an arm of the bandit beside the edits.
        moves: rules of ours that look at how a parent fared, by the name of their arm.
        records: the search is recorded in them and replayed from them.
        meter: budget, which the judge's rollouts are taken from.
        progress: called with every committed record.
        seeds: programs judged before the first proposal and entered beside the start.
    """

    start: Program
    judge: Judging
    population: Population
    options: SearchOptions = field(default_factory=SearchOptions)
    proposers: Sequence[Proposes] = ()
    records: Records = field(default_factory=Records)
    meter: Meter = field(default_factory=Meter)
    progress: Callable[[ProposalRecord], None] | None = None
    seeds: Sequence[Program] = ()
    moves: Mapping[str, Move] = field(default_factory=dict)
    _shapes: set[str] = field(default_factory=set)
    _committed: set[str] = field(default_factory=set)
    _behaviours: set[str] = field(default_factory=set)
    _entered: list[ProposalRecord] = field(default_factory=list)
    _members: dict[int, Judged] = field(default_factory=dict)
    _history: list[tuple[int, float]] = field(default_factory=list)
    _models: Mapping[str, Proposes] = field(default_factory=dict)
    _bandit: Bandit = field(init=False)
    _sweeps: Sweeps | None = None
    _alone: bool = True
    """Nothing but Python may change."""
    _texts: Turnstile = field(default_factory=Turnstile)
    _acts: Turnstile = field(default_factory=Turnstile)
    _slots: asyncio.Semaphore = field(init=False)
    _asking: int = 0
    """Proposers at work."""
    _answered: asyncio.Event = field(default_factory=asyncio.Event)
    """The next of them to be done."""
    _replayed: int = 0
    _rollouts: float | None = None
    """Left when the first proposal was made, None without a limit."""
    _reached: Judged | None = None
    """Has the target, and is as good where nothing was searched."""
    _used: int = 0
    """Rollouts of the proposals that are committed."""
    _spent: bool = False
    """A model was not asked, or a candidate not judged, because the budget would not hold it."""
    _began: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        unknown = set(self.options.edits) - {*_DRAWN, SWEEP}
        if unknown:
            raise InputError(f"unknown edits {sorted(unknown)}; there are {', '.join((*_DRAWN, SWEEP))}")
        if self.options.in_flight < self.options.workers:
            raise InputError(
                f"{self.options.workers} workers need in_flight of at least that; it is "
                f"{self.options.in_flight}. It decides what is found, so it does not follow by itself."
            )
        self._models = {proposer.name: proposer for proposer in self.proposers}
        python = {name.endswith(".py") for name in self.start.parts}
        arms = [
            *self._models,
            *self.moves,
            *(edit for edit in self.options.edits if edit in _DRAWN and (edit in EDITS) in python),
        ]
        if SWEEP in self.options.edits and True in python:
            self._sweeps = Sweeps(self.judge)
            arms.append(SWEEP)
        self._alone = not self.moves and python == {True}
        if not arms:
            raise InputError(
                "there is nothing to propose with: no edit fits the program. Configure a model "
                "(llm.models in config.yaml, or OPENAI_API_KEY)."
            )
        self._bandit = Bandit(arms)  # the order of the arms is part of the random stream
        self._slots = asyncio.Semaphore(self.options.workers)

    async def run(self) -> SearchOutcome:
        """Search until the iterations, the budget, the target or the patience is reached.

        Raises:
            InputError: the evaluator or the start program does not run.
            TrainingRefused: the evaluator cannot tell the start program from wreckage, or a model refuses the key.
        """
        await self._begin()
        # After `_begin`: the rollouts of the start are not the proposals'.
        self._rollouts = self.meter.left("rollouts")
        tasks: dict[int, asyncio.Task[ProposalRecord]] = {}
        stopped = "iterations"
        number = committed = 0
        try:
            while self.options.iterations is None or number < self.options.iterations:
                number += 1
                # Before the draw, and no further: a proposal that saw a later commit would depend on the workers.
                while committed < number - self.options.lag(number):
                    committed += 1
                    await self._commit(tasks, committed)
                ended = self._over(number)
                recorded = self.records.load(number)
                if ended or not self._affordable(len(tasks) + 1):
                    stopped = ended or "budget"
                    number -= 1
                    break
                if recorded is not None and self._sweeps is not None and recorded.swept:
                    self._sweeps.replayed(recorded.swept, recorded.tried)
                work = self._replay(recorded) if recorded else self._work(await self._next(number))
                tasks[number] = asyncio.create_task(work)
            for last in sorted(tasks):
                await self._commit(tasks, last)
        finally:
            for task in tasks.values():
                task.cancel()
            # A cancelled task still closes its processes: it is waited for before the caller closes the pool.
            await asyncio.gather(*tasks.values(), return_exceptions=True)
            self.records.flush()
        return self._found(stopped, number)

    async def _begin(self) -> None:
        recorded = self.records.load(0)
        # Also where the search goes on: stages and recorded calls are made here, and kept in no record.
        judged = await self.judge.prepare(self.start)
        if recorded is None:
            first = _Child(0, "start", Draw(Judged(0, self.start, 0.0), None), self.start)
            recorded = self._record(first, judged, parent=None)
        self._enter(recorded)
        await self._confirm(0)
        for island, seed in enumerate(self.seeds, 1):
            recorded = self.records.load(-island)
            if recorded is None:
                child = _Child(-island, "checkpoint", Draw(self._members[0], None, island=island), seed)
                judged = await self.judge.score(seed, child.benches)
                recorded = self._record(child, judged, evaluated=True)
            else:
                self.meter.settle(rollouts=recorded.rollouts)  # spent before it was stopped
            self._enter(recorded)
            await self._confirm(-island)

    def _over(self, number: int) -> str:
        """The reason to propose nothing more, "" without one."""
        if self._spent:
            return "budget"
        best = self._history[-1]
        cpu = self.options.cpu_seconds
        if cpu is not None and self.judge.cpu_seconds + time.process_time() - self._began >= cpu:
            return "budget"
        if self._reached is not None:
            return "target"
        patience = self.options.patience
        return "patience" if patience is not None and number - best[0] > patience else ""

    def _affordable(self, under_way: int) -> bool:
        """True if the budget holds so many more proposals, each with all the rollouts that it may take.

        Committed rollouts are counted, replayed or not, and not those spent: so a budget in rollouts ends
        a search at the same proposal however many workers there are and however often it was stopped.
        """
        try:
            self.meter.reserve()  # the time
        except BudgetExceeded:
            return False
        return self._rollouts is None or self._used + under_way * self.judge.most <= self._rollouts

    async def _next(self, number: int) -> _Child:
        """The child of the next proposal: of a sweep, of a model, or as chance has it."""
        sweep = await self._sweeps.next(number) if self._sweeps is not None else None
        alone = self._alone and (sweep is None or sweep.width > 1)
        turn = whose_turn(number, models=bool(self._models), sweeps=sweep is not None, alone=alone)
        if turn != "sweep" or sweep is None or self._sweeps is None:
            return self._propose(number, turn)
        batch = sweep.take()
        self._sweeps.took(batch)
        return _Child(number, SWEEP, Draw(sweep.base, None, island=sweep.base.island), None, batch=batch)

    def _propose(self, number: int, turn: str) -> _Child:
        """Draw parents and an arm, and make the child if that takes no model."""
        # A text seeds by its digest, alike in every process; its hash() would differ from one to the next.
        rng = random.Random(f"{self.options.seed}:{number}")
        draw = self.population.draw(number, rng)
        for _ in range(_TRIES):
            allowed = [name for name in self._bandit.arms if draw.donor is not None or name not in _PAIRED]
            name = self._bandit.choose(rng, self._side(allowed, turn))
            if name in self._models:
                return _Child(number, name, self._asked_for(draw), None, _CHEAP + self._models[name].price)
            child = self.moves[name](draw, rng) if name in self.moves else self._edited(name, draw, rng)
            # Not `_shapes`, which grows while proposals are under way, and so with the pace of the workers.
            if child is not None and child.shape() not in self._committed:
                return _Child(number, name, draw, child)
            draw = self.population.draw(number, rng)
        return _Child(number, name, draw, None)

    def _asked_for(self, draw: Draw) -> Draw:
        """What a model is asked to change: the best, where the parent drawn is worse than the start.

        An edit that costs nothing may set out from anywhere; a call that is paid for does not repair what one broke.
        """
        if draw.parent.score >= self._members[0].score:
            return draw
        best = max(self.population.members(), key=lambda judged: judged.score)
        others = tuple(judged for judged in draw.inspirations if judged.number != best.number)
        return replace(draw, parent=best, inspirations=others)

    def _side(self, allowed: Sequence[str], turn: str) -> Sequence[str]:
        """The proposers or the edits, by turns.

        A short search ends before a bandit has learned anything, and there are a dozen edits to one model: left to
        the bandit, a model made 3 of 40 proposals.
        """
        allowed = [name for name in allowed if name != SWEEP]
        if not self._models:
            return allowed
        return [name for name in allowed if (name in self._models) is (turn == "model")] or allowed

    def _edited(self, name: str, draw: Draw, rng: random.Random) -> Program | None:
        donor = draw.donor.program if draw.donor else None
        child = _DRAWN[name](draw.parent.program, donor, rng)
        if child is not None and rng.random() < self.options.second:
            single = [edit for edit in self.options.edits if edit in _DRAWN and edit not in _PAIRED]
            second = rng.choice(single or [name])
            child = _DRAWN[second](child, donor, rng) or child
        return child

    async def _replay(self, record: ProposalRecord) -> ProposalRecord:
        # A replayed proposal passes too: those behind it, which are new, wait for it.
        for turnstile in (self._texts, self._acts):
            await turnstile.wait(record.number)
            turnstile.leave(record.number)
        self._shapes.add(record.shape)
        if record.status != "duplicate" and record.behaviour:
            self._behaviours.add(record.behaviour)
        self._replayed += 1
        self.meter.settle(rollouts=record.rollouts)  # spent before it was stopped
        return record

    async def _work(self, child: _Child) -> ProposalRecord:
        """All gates of one child; whatever happens, it passes both turnstiles."""
        if child.batch is not None:
            return await self._swept(child, child.batch)
        proposer = self._models.get(child.operator)
        failed = await self._ask(child, proposer) if proposer is not None else None
        await self._texts.wait(child.number)
        fresh = self._fresh(child.program)
        self._texts.leave(child.number)
        refused = unreadable(child.program, self.options.max_length) if child.program and fresh else None
        if child.program is None or not fresh or refused is not None:
            await self._gate(child.number, "")
            if refused is not None:
                return self._record(child, Judgement(failure=refused))
            status = "nothing" if child.program is None else "duplicate"
            return self._record(child, failed or Judgement(), status=status, parts=None)
        # Slots are taken in the order of proposals: whoever holds one waits only for those before it.
        async with self._slots:
            return await self._judge(child, child.program)

    async def _judge(self, child: _Child, program: Program) -> ProposalRecord:
        """Smoke run, second turnstile and score of a child; what the machine fails at is tried again."""
        for tries_left in range(RETRIES, -1, -1):
            async with self.judge.bench(program) as bench:
                child.benches.append(bench)
                try:
                    smoked = await bench.smoke()
                except BudgetExceeded as error:
                    smoked, self._spent = Judgement(failure=f"not judged: {error}"), True
                # On a bench of its own: the process of this one may be what failed.
                if smoked.infrastructure and tries_left:
                    continue
                return await self._score(child, program, bench, smoked)
        raise AssertionError("the last try returns")

    async def _score(
        self, child: _Child, program: Program, bench: Benched, smoked: Judgement
    ) -> ProposalRecord:
        """Second turnstile and score of a child that was run on its bench."""
        if await self._gate(child.number, smoked.behaviour):
            return self._record(child, smoked, status="duplicate", parts=None)
        if smoked.failure is not None:
            return self._record(child, smoked)
        try:
            judged = await bench.score()
            if judged.infrastructure:
                judged = await self.judge.score(program, child.benches)
        except BudgetExceeded as error:
            self._spent = True
            return self._record(child, Judgement(failure=f"not judged: {error}"))
        child.cost += 1.0
        return self._record(child, judged, behaviour=smoked.behaviour, evaluated=True)

    async def _swept(self, child: _Child, batch: EditBatch) -> ProposalRecord:
        """Try single edits side by side, judge those that can win, and let the best of them be the child."""
        sweep = batch.sweep
        tried: dict[str, Any] = {"swept": sweep.key, "tried": len(batch.programs)}
        # Which of them is the child is only known when all of the others before it may be, too.
        await self._texts.wait(child.number)
        self._texts.leave(child.number)
        best, smoked, evaluated = Judgement(), Judgement(), 0
        async with self._slots:
            gains, halves = await self._screened(batch)
            for index in promising(gains, sweep.finalists):
                program = batch.programs[index]
                if unreadable(program, self.options.max_length) is not None:
                    continue
                first, judged = await self._judged(child, program)
                evaluated += judged.score is not None
                if await self._better(judged, program, best, child.program):
                    best, smoked, child.program = judged, first, program
            twin = await self._gate(child.number, smoked.behaviour)
            # As right as one before it on the rows of the search, and unlike it on those that confirm.
            if twin and child.program is not None and self._at_target(best.score):
                twin = not await self.judge.confirm(child.program)
        child.cost += 1.0
        tried |= {"halves": tuple(batch.start + index for index in halves)}
        # The one that becomes the child is counted by itself, a duplicate is not.
        tried["beside"] = max(0, evaluated - (not twin))
        if child.program is None:
            none = Judgement(failure=f"none of {len(batch.programs)} single edits can win")
            return self._record(child, none, status="nothing", parts=None, **tried)
        if twin:
            return self._record(child, smoked, status="duplicate", parts=None, **tried)
        return self._record(child, best, behaviour=smoked.behaviour, evaluated=True, **tried)

    async def _better(
        self, judged: Judgement, program: Program, best: Judgement, rival: Program | None
    ) -> bool:
        """True if one edit of a batch is better than the best before it; of two at the target, the one confirmed."""
        if judged.score is None or best.score is None or rival is None:
            return judged.score is not None
        if judged.score != best.score or not self._at_target(judged.score):
            return judged.score > best.score
        return not await self.judge.confirm(rival) and await self.judge.confirm(program)

    async def _screened(self, batch: EditBatch) -> tuple[dict[int, float], list[int]]:
        """Edits of a batch that may win, with their gains, and those that are perhaps half of a repair."""
        sweep = batch.sweep
        if sweep.spectrum is None or sweep.width < 2:
            return dict.fromkeys(range(len(batch.programs)), 1.0), []
        screened = await self.judge.screen(sweep.spectrum, batch.programs)
        gains = {index: report.gain for index, report in enumerate(screened)}
        halves = [index for index, report in enumerate(screened) if report.differs]
        # Those first that lead towards the right answers: of each screen only a few are followed.
        return gains, sorted(halves, key=lambda index: -screened[index].nearer)

    async def _judged(self, child: _Child, program: Program) -> tuple[Judgement, Judgement]:
        """What a program does, and its judgement, on a bench of the child's."""
        async with self.judge.bench(program) as bench:
            child.benches.append(bench)
            try:
                smoked = judged = await bench.smoke()
                if smoked.failure is None:
                    judged = await bench.score()
            except BudgetExceeded as error:
                self._spent = True
                smoked = judged = Judgement(failure=f"not judged: {error}")
        return smoked, judged

    async def _ask(self, child: _Child, proposer: Proposes) -> Judgement | None:
        """Let a model or a command make the child; the failure if it cannot.

        Calls under way have set aside more than they take, so a call that does not fit waits for them: the budget
        is spent when it still does not fit and there are none.
        """
        failed: Judgement | None = None
        while True:
            self._asking += 1
            try:
                child.program = await proposer.propose(child.draw, child.number)
            except (InputError, ModelError) as error:
                if isinstance(error, ModelError) and error.for_good:
                    raise TrainingRefused(
                        f"{proposer.name} cannot be asked: {error} What was tried so far is recorded: run the same "
                        "command again to go on."
                    ) from error
                failed = Judgement(failure=f"no usable answer: {error}")
            except BudgetExceeded as error:
                # One retry alone spent 5,488 to 7,000 of 9,000 tokens, as calls happened to arrive; waiting
                # until none is under way spends 7,455 each time.
                if self._asking > 1:
                    self._asking -= 1
                    await self._answered.wait()
                    continue
                self._spent = True
                failed = Judgement(failure=f"not asked: {error}")
            self._asking -= 1
            # A fresh event: those that wait for the next answer must not be woken by this one.
            self._answered.set()
            self._answered = asyncio.Event()
            return failed

    async def _gate(self, number: int, behaviour: str) -> bool:
        """Pass the second turnstile; True if something before behaves the same."""
        await self._acts.wait(number)
        twin = bool(behaviour) and behaviour in self._behaviours
        # Before it is scored: what behaves like one that is being scored is a duplicate, too.
        if behaviour:
            self._behaviours.add(behaviour)
        self._acts.leave(number)
        return twin

    def _fresh(self, program: Program | None) -> bool:
        """True the first time that a text passes."""
        if program is None or program.shape() in self._shapes:
            return False
        self._shapes.add(program.shape())
        return True

    def _record(self, child: _Child, judged: Judgement, **overrides: Any) -> ProposalRecord:
        """The record of a child; `overrides` take the place of its usual fields."""
        program, donor = child.program, child.draw.donor
        usual: dict[str, Any] = {
            "number": child.number,
            "operator": child.operator,
            "status": "scored" if judged.score is not None else "failed",
            "parent": child.draw.parent.number,
            "donor": donor.number if donor and child.operator in _PAIRED else None,
            "island": child.draw.island,
            "parts": dict(program.parts) if program and judged.score is not None else None,
            "id": program.id if program else "",
            "shape": program.shape() if program else "",
            "cost": child.cost,
            "rollouts": sum(bench.rollouts for bench in child.benches),
            **{part.name: getattr(judged, part.name) for part in fields(judged)},
        }
        return ProposalRecord(**{**usual, **overrides})

    async def _commit(self, tasks: dict[int, asyncio.Task[ProposalRecord]], number: int) -> None:
        record = await tasks.pop(number)
        self._used += record.rollouts
        self._enter(record)
        await self._confirm(record.number)

    async def _confirm(self, number: int) -> None:
        """See whether the search is done with what a proposal made."""
        member = self._members.get(number)
        if self._reached is None and member is not None and self._at_target(member.score):
            self._reached = member if await self.judge.confirm(member.program) else None

    def _at_target(self, score: float | None) -> bool:
        return self.options.target is not None and score is not None and score >= self.options.target

    def _enter(self, record: ProposalRecord) -> None:
        """Make a record part of the search: the only place where its state changes for later proposals."""
        self.records.save(record)
        # Artifacts stay in the log, and in the population of those that a model may be asked about.
        self._entered.append(replace(record, artifacts={}))
        self._committed.add(record.shape)
        self._shapes.add(record.shape)
        if record.behaviour:
            self._behaviours.add(record.behaviour)
        gain = None
        improved = False
        if record.status == "scored" and record.parts is not None and record.score is not None:
            parent = self._members.get(record.parent) if record.parent is not None else None
            improved = parent is not None and record.score > parent.score
            if not self._history or record.score > self._history[-1][1]:
                gain = record.score - self._history[-1][1] if self._history else None
                self._history.append((record.number, record.score))
            judged = Judged(
                number=record.number,
                program=Program(record.parts, self.start.main),
                score=record.score,
                metrics=record.metrics,
                instances=record.instances,
                artifacts=record.artifacts,
                island=record.island,
            )
            self._members[record.number] = replace(judged, artifacts={})
            self.population.add(judged)
            if self._sweeps is not None:
                self._sweeps.enter(self._members[record.number])
        if self._sweeps is not None and record.halves:
            self._sweeps.kept(record.swept, record.halves)
        if record.number > 0:
            self._bandit.learn(
                record.operator, cost=record.cost, evaluated=record.evaluated, improved=improved, gain=gain
            )
        if self.progress:
            self.progress(record)

    def _found(self, stopped: str, number: int) -> SearchOutcome:
        return SearchOutcome(
            best=self._reached or self._members[self._history[-1][0]],
            start=self._members[0],
            history=self._history,
            records=self._entered,
            iterations=number,
            # One more: the record of the start does not say `evaluated`.
            evaluations=sum(record.evaluated + record.beside for record in self._entered) + 1,
            timeouts=sum(record.timeout for record in self._entered),
            duplicates=sum(record.status == "duplicate" for record in self._entered),
            operators=[{**row, **self._why(row)} for row in self._bandit.table()],
            cpu_seconds=self.judge.cpu_seconds,
            stopped=stopped,
            replayed=self._replayed,
            tried=sum(record.tried for record in self._entered),
        )

    def _why(self, row: Mapping[str, Json]) -> dict[str, Json]:
        """The last failure of an arm of which no proposal could be judged."""
        if not row["tried"] or row["evaluated"]:
            return {}
        failures = [
            record.failure for record in self._entered if record.operator == row["name"] and record.failure
        ]
        return {"failure": failures[-1]} if failures else {}
