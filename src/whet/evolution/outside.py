"""How pieces of somebody's repository are judged: called in the sandbox, compared out here.

A candidate gets one input per call and answers in JSON; what it should answer never enters, and the
evaluator runs in a sandbox of its own.  So these scores may prove something (`Result.promotable`),
unlike those of an evaluator beside its program (`judging.py`).  What a candidate answers to the
inputs is its fingerprint: one that answers as another did is not judged again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

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

    def arguments(self, row: Example) -> list[Json]:
        """What the runner inside is called with."""
        return list(self.signature.arguments(row.input))


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
        pool: where candidates run.
    """

    def __init__(self, target: Target, rows: Sequence[Example], pool: Pool, comparer: Comparer) -> None:
        self.target, self.every = target, list(rows)
        self.rows = [row for row in rows if row.goal]
        self.pool, self.comparer = pool, comparer
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
        return self.pool.sandbox.trusted_only

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start.

        Raises:
            InputError: it does not run.
            TrainingRefused: a function that answers nothing gets no less.
        """
        judged = await self.score(start)
        if judged.score is None:
            raise InputError(
                f"{self.target.name} has no score as it stands: {judged.failure or 'none was given'}"
            )
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

    async def trials(self, program: Program, rows: Sequence[Example]) -> list[Trial]:
        """What a candidate does on these rows, scored where they say what is wanted.

        Raises:
            InputError: the candidate cannot be put in place.
        """
        results = await self.answers(program, rows)
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

    async def answers(self, program: Program, rows: Sequence[Example]) -> list[Result]:
        """One call per row; a candidate that hangs or dies is not asked the rest."""
        files = staged(self.target.build(program), self.target.entry)
        found: list[Result] = []
        async with self.pool.open(files, f"{RUNNER}:call") as session:
            for row in rows:
                result = await session.call(self.target.arguments(row))
                self.cpu_seconds += result.cpu_seconds
                found.append(result)
                if result.killed_by is not None or result.exit_code is not None:
                    # The rest would cost a timeout each, and an answer now and then is no function.
                    self.timeouts += result.killed_by in ("wall", "cpu")
                    found += [result] * (len(rows) - len(found))
                    break
        return found


@dataclass
class OutsideBench:
    """One candidate at work."""

    judge: Outside
    program: Program
    _results: list[Result] = field(default_factory=list)

    async def smoke(self) -> Judgement:
        """Call it on every row; `behaviour` is the digest of its answers, `failure` why there are none."""
        try:
            self._results = await self.judge.answers(self.program, self.judge.rows)
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
        said = [
            canonical(one.value).decode() if one.failure is None else f"raised {one.failure.type}"
            for one in self._results
        ]
        return Judgement(behaviour=digest(said))

    async def score(self) -> Judgement:
        """The mean over the rows, each row as an instance, and what went wrong in words."""
        judge = self.judge
        judge.evaluations += 1
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
