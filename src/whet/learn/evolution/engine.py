"""The search: proposals in flight, results committed in the order in which they were proposed.

Proposal k is drawn from the population as it stood after commit k - `in_flight`, from a generator
seeded by (seed, k).  So what is proposed does not depend on how many workers there are or who is
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

from ...errors import BudgetExceeded, InputError, ModelError
from ...models.budget import Meter
from ...types import Json
from .bandit import Bandit
from .blocks import BLOCKS
from .edits import EDITS
from .judging import Judgement, Judging, unreadable
from .population import Draw, Judged, Population
from .program import Program
from .proposers import Move, Proposes
from .records import ProposalRecord, Records

_EVERY = {**EDITS, **BLOCKS}
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
    edits: tuple[str, ...] = tuple(EDITS)
    """Edits to use: of Python text (`edits.py`), of blocks of other text (`blocks.py`); none to leave
    everything to models."""
    second: float = 0.25
    """Probability that a child made by an edit is edited once more."""
    asked: float | None = None
    """Share of the proposals that models and commands make, the edits the rest; None: as the bandit has it."""
    target: float | None = None
    """Score at which the search is done."""
    patience: int | None = None
    """Proposals without a better one after which it is done."""
    max_length: int = 100_000
    """Characters above which a child is not judged."""
    cpu_seconds: float | None = None
    """CPU time of candidates and search together after which nothing more is proposed."""


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
    _used: int = 0
    """Rollouts of the proposals that are committed."""
    _spent: bool = False
    """A model was not asked, or a candidate not judged, because the budget would not hold it."""
    _began: float = field(default_factory=time.process_time)

    def __post_init__(self) -> None:
        unknown = set(self.options.edits) - set(_EVERY)
        if unknown:
            raise InputError(f"unknown edits {sorted(unknown)}; there are {', '.join(_EVERY)}")
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
            *(edit for edit in self.options.edits if (edit in EDITS) in python),
        ]
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
            TrainingRefused: the evaluator cannot tell the start program from wreckage.
        """
        await self._begin()
        # After `_begin`: the rollouts of the start are not the proposals'.
        self._rollouts = self.meter.left("rollouts")
        tasks: dict[int, asyncio.Task[ProposalRecord]] = {}
        stopped = "iterations"
        number = 0
        try:
            while self.options.iterations is None or number < self.options.iterations:
                number += 1
                # Before the draw, and no further: a proposal that saw a later commit would depend on the workers.
                if number > self.options.in_flight:
                    await self._commit(tasks, number - self.options.in_flight)
                ended = self._over(number)
                recorded = self.records.load(number)
                if ended or not self._affordable(len(tasks) + 1):
                    stopped = ended or "budget"
                    number -= 1
                    break
                work = self._replay(recorded) if recorded else self._work(self._propose(number))
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
        for island, seed in enumerate(self.seeds, 1):
            recorded = self.records.load(-island)
            if recorded is None:
                child = _Child(-island, "checkpoint", Draw(self._members[0], None, island=island), seed)
                recorded = self._record(child, await self.judge.score(seed), evaluated=True)
            self._enter(recorded)

    def _over(self, number: int) -> str:
        """The reason to propose nothing more, "" without one."""
        if self._spent:
            return "budget"
        best = self._history[-1]
        cpu = self.options.cpu_seconds
        if cpu is not None and self.judge.cpu_seconds + time.process_time() - self._began >= cpu:
            return "budget"
        if self.options.target is not None and best[1] >= self.options.target:
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

    def _propose(self, number: int) -> _Child:
        """Draw parents and an arm, and make the child if that takes no model."""
        # A text seeds by its digest, alike in every process; its hash() would differ from one to the next.
        rng = random.Random(f"{self.options.seed}:{number}")
        draw = self.population.draw(number, rng)
        for _ in range(_TRIES):
            allowed = [name for name in self._bandit.arms if draw.donor is not None or name not in _PAIRED]
            name = self._bandit.choose(rng, self._side(allowed, rng))
            if name in self._models:
                return _Child(number, name, draw, None, _CHEAP + self._models[name].price)
            child = self.moves[name](draw, rng) if name in self.moves else self._edited(name, draw, rng)
            # Not `_shapes`, which grows while proposals are under way, and so with the pace of the workers.
            if child is not None and child.shape() not in self._committed:
                return _Child(number, name, draw, child)
            draw = self.population.draw(number, rng)
        return _Child(number, name, draw, None)

    def _side(self, allowed: Sequence[str], rng: random.Random) -> Sequence[str]:
        """The proposers or the edits, if a share between them is set.

        A short search ends before a bandit has learned anything, and there are a dozen edits to one model.
        """
        if self.options.asked is None or not self._models:
            return allowed
        models = rng.random() < self.options.asked
        return [name for name in allowed if (name in self._models) is models] or allowed

    def _edited(self, name: str, draw: Draw, rng: random.Random) -> Program | None:
        donor = draw.donor.program if draw.donor else None
        child = _EVERY[name](draw.parent.program, donor, rng)
        if child is not None and rng.random() < self.options.second:
            second = rng.choice([edit for edit in self.options.edits if edit not in _PAIRED] or [name])
            child = _EVERY[second](child, donor, rng) or child
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
        async with self._slots, self.judge.bench(child.program) as bench:
            try:
                smoked = await bench.smoke()
            except BudgetExceeded as error:
                smoked, self._spent = Judgement(failure=f"not judged: {error}"), True
            twin = await self._gate(child.number, smoked.behaviour)
            if twin:
                return self._record(child, smoked, status="duplicate", parts=None, rollouts=bench.rollouts)
            if smoked.failure is not None:
                return self._record(child, smoked, rollouts=bench.rollouts)
            try:
                judged = await bench.score()
                # On a bench of its own: the process of this one may be what failed.
                if judged.infrastructure:
                    judged = await self.judge.score(child.program)
            except BudgetExceeded as error:
                self._spent = True
                unjudged = Judgement(failure=f"not judged: {error}")
                return self._record(child, unjudged, rollouts=bench.rollouts)
        child.cost += 1.0
        behaviour = smoked.behaviour
        return self._record(child, judged, behaviour=behaviour, evaluated=True, rollouts=bench.rollouts)

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
            **{part.name: getattr(judged, part.name) for part in fields(judged)},
        }
        return ProposalRecord(**{**usual, **overrides})

    async def _commit(self, tasks: dict[int, asyncio.Task[ProposalRecord]], number: int) -> None:
        record = await tasks.pop(number)
        self._used += record.rollouts
        self._enter(record)

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
        if record.number > 0:
            self._bandit.learn(
                record.operator, cost=record.cost, evaluated=record.evaluated, improved=improved, gain=gain
            )
        if self.progress:
            self.progress(record)

    def _found(self, stopped: str, number: int) -> SearchOutcome:
        return SearchOutcome(
            best=self._members[self._history[-1][0]],
            start=self._members[0],
            history=self._history,
            records=self._entered,
            iterations=number,
            # One more: the record of the start does not say `evaluated`.
            evaluations=sum(record.evaluated for record in self._entered) + 1,
            timeouts=sum(record.timeout for record in self._entered),
            duplicates=sum(record.status == "duplicate" for record in self._entered),
            operators=[{**row, **self._why(row)} for row in self._bandit.table()],
            cpu_seconds=self.judge.cpu_seconds,
            stopped=stopped,
            replayed=self._replayed,
        )

    def _why(self, row: Mapping[str, Json]) -> dict[str, Json]:
        """The last failure of an arm of which no proposal could be judged."""
        if not row["tried"] or row["evaluated"]:
            return {}
        failures = [
            record.failure for record in self._entered if record.operator == row["name"] and record.failure
        ]
        return {"failure": failures[-1]} if failures else {}
