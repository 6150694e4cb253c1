"""How pieces of somebody's repository are judged: called in the sandbox, compared out here.

How a candidate is called is a `Way`: all of it in the sandbox (`Inside`), or from an agent that keeps its
network (`networked.py`).

A candidate gets one input per call and answers in JSON; what it should answer never enters, and the
evaluator runs in a sandbox of its own.  So these scores may prove something (`Result.promotable`),
unlike those of an evaluator beside its program (`judging.py`).  What a candidate answers to the
inputs is its fingerprint: one that answers as another did is not judged again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..data.callee import RUNNER, staged
from ..data.examples import Example
from ..data.signatures import Signature
from ..errors import InputError, TrainingRefused
from ..reward.evaluator import Evaluator
from ..sandbox import Pool, Result, Session, exact
from ..types import Fault, Json, canonical, digest
from .judging import Judgement
from .program import Program

_SHOWN = 6
"""Rows that went wrong which a proposer is shown."""
_RETRIES = 2

Build = Callable[[Program], Mapping[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class Trial:
    """What a candidate did on one row."""

    row: Example
    result: Result
    score: float | None
    """None where there is none: the machine failed, or the evaluator had none to give."""
    said: str = ""

    @property
    def answer(self) -> Json:
        """What it answered, or what went wrong."""
        failure = self.result.failure
        return self.result.value if failure is None else {"error": f"{failure.type}: {failure.message}"[:400]}

    @property
    def broken(self) -> bool:
        """The machine failed, not the candidate."""
        return self.result.failure is not None and self.result.failure.fault is Fault.SANDBOX


@dataclass(frozen=True, slots=True)
class Target:
    """One function that rows are about, and how a candidate's files are made."""

    name: str
    entry: str
    signature: Signature
    build: Build
    """Program → staged files; raises InputError for one that cannot be put in place."""
    whole: Callable[[Program], Program]
    """Program → all pieces of the agent, those that it does not have as they are."""

    def arguments(self, row: Example) -> list[Json]:
        """What the runner inside is called with."""
        return list(self.signature.arguments(row.input))


class Called(Protocol):
    """A candidate that answers calls until one of them ends it."""

    async def call(self, args: Sequence[Json] = ()) -> Result: ...


class Way(Protocol):
    """How candidates are called."""

    @property
    def varies(self) -> bool:
        """Two calls may answer differently: a model is asked on the way."""
        ...

    @property
    def trusted_only(self) -> bool:
        """Candidates run without a sandbox."""
        ...

    @property
    def refused(self) -> str:
        """What could not cross, "" if all could."""
        ...

    def open(self, target: Target, program: Program) -> AbstractAsyncContextManager[Called]:
        """One candidate, ready to be called."""
        ...

    def reserve(
        self, target: Target, program: Program, args: Sequence[Sequence[Json]], *, spare: bool
    ) -> None:
        """See that these calls may be made; raises BudgetExceeded."""
        ...


class Inside:
    """Everything in the sandbox: the staged slice of a function, called by JSON."""

    varies = False
    refused = ""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @property
    def trusted_only(self) -> bool:
        return self.pool.sandbox.trusted_only

    @asynccontextmanager
    async def open(self, target: Target, program: Program) -> AsyncIterator[Called]:
        files = staged(target.build(program), target.entry)
        async with self.pool.open(files, f"{RUNNER}:call") as session:
            yield session

    def reserve(
        self, target: Target, program: Program, args: Sequence[Sequence[Json]], *, spare: bool
    ) -> None:
        """Calls inside cost nothing that is counted."""


class Comparer:
    """Scores answers by an evaluator in a sandbox of its own, or by exact equality without one.

    Use it as an asynchronous context manager.
    """

    def __init__(self, evaluator: Evaluator | None, pool: Pool) -> None:
        if evaluator is not None and evaluator.kind != "answer":
            raise InputError(
                f"{evaluator.name} judges a {evaluator.kind}; rows need one that takes output and expected"
            )
        self.evaluator = evaluator
        self._pool = pool
        self._open: Any = None
        self._session: Session | None = None
        self._known: dict[str, tuple[float | None, str]] = {}

    @property
    def name(self) -> str:
        return (
            "exact equality" if self.evaluator is None else f"{self.evaluator.name} {self.evaluator.version}"
        )

    async def __aenter__(self) -> Comparer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        if self._open is not None:
            opened, self._open, self._session = self._open, None, None
            await opened.__aexit__(None, None, None)

    async def score(self, row: Example, answer: Json) -> tuple[float | None, str]:
        """Score in [0, 1] and what was said; None where the evaluator has none."""
        if self.evaluator is None:
            fine = exact(answer, row.wanted)
            return float(fine), "" if fine else "another answer"
        key = digest([row.id, row.wanted, answer])
        if key not in self._known:
            self._known[key] = await self._judged(row, answer)
        return self._known[key]

    async def _judged(self, row: Example, answer: Json) -> tuple[float | None, str]:
        assert self.evaluator is not None
        for _ in range(_RETRIES):
            if self._session is None:
                self._open = self._pool.open(self.evaluator.staged, "adapter:judge")
                self._session = await self._open.__aenter__()
            result = await self._session.call([self.evaluator.arguments(row.input, answer, row.wanted)])
            if result.killed_by is not None or result.exit_code is not None or not result.ok:
                await self._leave()
            if result.ok and isinstance(result.value, dict):
                score = result.value.get("score")
                number = min(1.0, max(0.0, float(score))) if isinstance(score, (int, float)) else None
                return number, str(result.value.get("feedback", ""))[:300]
        return None, "the evaluator gave no score"


class Outside:
    """A judge of Programs whose parts are pieces: what `Search` asks, answered from out here.

    Args:
        target: what is called, and how it is built.
        rows: those that the score is the mean over.
        way: how candidates are called.
    """

    def __init__(self, target: Target, rows: Sequence[Example], way: Way, comparer: Comparer) -> None:
        self.target, self.every = target, list(rows)
        self.rows = [row for row in rows if row.goal]
        self.way, self.comparer = way, comparer
        self.start: dict[str, float] = {}
        """Row → score of the start, where candidates are compared with it before they are judged whole."""
        self.cpu_seconds = 0.0
        self.evaluations = 0
        self.timeouts = 0
        if not self.rows:
            raise InputError(
                f"no row says what {target.name} should answer: give rows with expected, or with a good label"
            )

    @property
    def trusted_only(self) -> bool:
        """Candidates run without a sandbox."""
        return self.way.trusted_only

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start.

        Raises:
            InputError: it does not run.
            TrainingRefused: a function that answers nothing gets no less.
        """
        judged = await self.score(start)
        if self.way.refused:
            raise InputError(self.way.refused)
        if judged.score is None:
            network = "" if self.way.varies else ". If it needs the network, give --network"
            raise InputError(
                f"{self.target.name} has no score as it stands: {judged.failure or 'none was given'}{network}"
            )
        self.start = dict(judged.instances) if self.way.varies else {}
        blank = [await self.comparer.score(row, None) for row in self.rows]
        nothing = [score for score, _ in blank if score is not None]
        if nothing and sum(nothing) / len(nothing) >= max(judged.score, 1e-9):
            raise TrainingRefused(
                f"{self.comparer.name} gives {sum(nothing) / len(nothing):g} to no answer at all and {judged.score:g} "
                f"to {self.target.name} as it stands: it cannot tell better from worse"
            )
        return judged

    @asynccontextmanager
    async def bench(self, program: Program) -> AsyncIterator[OutsideBench]:
        """One candidate: first `smoke`, then `score`."""
        yield OutsideBench(self, program)

    async def score(self, program: Program) -> Judgement:
        """Both at once; the machine's failures are tried again."""
        judged = Judgement()
        for _ in range(_RETRIES + 1):
            async with self.bench(program) as bench:
                smoked = await bench.smoke()
                judged = smoked if smoked.failure is not None else await bench.score()
            if not judged.infrastructure:
                break
        return judged

    async def trials(self, program: Program, rows: Sequence[Example], *, spare: bool = False) -> list[Trial]:
        """What a candidate does on these rows, scored where they say what is wanted.

        Raises:
            InputError: the candidate cannot be put in place.
            BudgetExceeded: the calls that this takes are not left.
        """
        results = await self.answers(program, rows, spare=spare)
        found = []
        for row, result in zip(rows, results, strict=True):
            broken = result.failure is not None and result.failure.fault is Fault.SANDBOX
            score, said = None, ""
            if row.goal and not broken:
                if result.failure is None:
                    score, said = await self.comparer.score(row, result.value)
                else:
                    score, said = 0.0, f"{result.failure.type}: {result.failure.message}"[:300]
            found.append(Trial(row, result, score, said))
        return found

    async def answers(self, program: Program, rows: Sequence[Example], *, spare: bool = True) -> list[Result]:
        """One call per row; a candidate that hangs or dies is not asked the rest.

        Args:
            spare: a search could do without it, and leaves calls for what comes after.
        """
        args = [self.target.arguments(row) for row in rows]
        self.way.reserve(self.target, program, args, spare=spare)
        found: list[Result] = []
        async with self.way.open(self.target, program) as called:
            for each in args:
                result = await called.call(each)
                self.cpu_seconds += result.cpu_seconds
                found.append(result)
                if result.killed_by is not None or result.exit_code is not None:
                    # The rest would cost a timeout each, and an answer now and then is no function.
                    self.timeouts += result.killed_by in ("wall", "cpu")
                    found += [result] * (len(rows) - len(found))
                    break
        return found

    def first(self) -> list[Example]:
        """A quarter of the rows, spread over all: what a candidate has to hold its own on first."""
        return self.rows[:: 4 if len(self.rows) >= 12 else 1]


@dataclass
class OutsideBench:
    """One candidate at work."""

    judge: Outside
    program: Program
    _results: list[Result] = field(default_factory=list)

    async def smoke(self) -> Judgement:
        """Call it on every row; `behaviour` is the digest of its answers, `failure` why there are none.

        One whose answers vary is called on one row only, and has no fingerprint.
        """
        rows = self.judge.rows[:1] if self.judge.way.varies else self.judge.rows
        try:
            self._results = await self.judge.answers(self.program, rows)
        except InputError as error:
            return Judgement(failure=str(error))
        failed = [one.failure for one in self._results if one.failure is not None]
        if len(failed) == len(self._results):
            first = self._results[0]
            return Judgement(
                failure=f"{failed[0].type}: {failed[0].message}"[:2000],
                timeout=first.killed_by in ("wall", "cpu"),
                infrastructure=failed[0].fault is Fault.SANDBOX,
            )
        if self.judge.way.varies:
            return Judgement()
        said = [
            canonical(one.value).decode() if one.failure is None else f"raised {one.failure.type}"
            for one in self._results
        ]
        return Judgement(behaviour=digest(said))

    async def score(self) -> Judgement:
        """The mean over the rows, each row as an instance, and what went wrong in words."""
        judge = self.judge
        judge.evaluations += 1
        if judge.way.varies:
            worse = await self._falls_behind()
            if worse:
                return Judgement(failure=worse)
            self._results = await judge.answers(self.program, judge.rows)
        scores: dict[str, float] = {}
        wrong: list[str] = []
        for row, result in zip(judge.rows, self._results, strict=True):
            failed = result.failure
            if failed is not None and failed.fault is Fault.SANDBOX:
                return Judgement(failure=failed.message, infrastructure=True)
            if failed is not None:
                score, said = 0.0, f"{failed.type}: {failed.message}"
            else:
                found, said = await judge.comparer.score(row, result.value)
                if found is None:
                    continue
                score = found
            scores[row.id] = score
            if score < 1.0:
                answer = "" if failed is not None else f" answered {canonical(result.value).decode():.200},"
                wanted = canonical(row.wanted).decode()
                wrong.append(
                    f"- input {canonical(row.input).decode():.300}:{answer} wanted {wanted:.200} ({said:.200})"
                )
        if not scores:
            return Judgement(failure="the evaluator gave no score for any row")
        mean = sum(scores.values()) / len(scores)
        artifacts = {"rows that went wrong": "\n".join(wrong[:_SHOWN])} if wrong else {}
        return Judgement(mean, {"combined_score": mean, "wrong": float(len(wrong))}, artifacts, scores)

    async def _falls_behind(self) -> str:
        """Why it is not worth all the rows: worse than the start on the first of them; "" if it is."""
        judge = self.judge
        rows = [row for row in judge.first() if row.id in judge.start]
        if not rows or len(rows) == len(judge.rows):
            return ""
        tried = [
            each for each in await judge.trials(self.program, rows, spare=True) if each.score is not None
        ]
        if not tried:
            return ""
        now = sum(each.score or 0.0 for each in tried)
        before = sum(judge.start[each.row.id] for each in tried)
        said = f"worse than the start on the first {len(tried)} rows: {now:g} against {before:g} of them"
        return said if now < before - 1e-9 else ""
