"""Functions of somebody's repository as an Env: called in the sandbox, compared outside of it.

A candidate is called in the sandbox (`Inside`), or by an agent that keeps its network (`networked.py`).
It gets one input per call and answers in JSON. The expected answer never enters, and the evaluator runs
in a sandbox of its own, so these scores may prove something (`CallResult.promotable`), unlike those of an
evaluator beside its program (`pair.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

from ....errors import InputError, TrainingRefused
from ....judge.evaluator import Evaluator
from ....record.faults import fault_of
from ....sandbox import CallResult, Pool, ProgramSession, exact
from ....types import Bundle, Failure, Fault, Json, Score, Task, Trajectory, canonical, digest
from ...datasets.callee import RUNNER, staged
from ...datasets.signatures import Signature
from ..editing.program import Program
from .candidates import ProgramCodec
from .holding import CandidateCallFailed, Holding, OpenCandidate, tell

_RETRIES = 2
_SLACK = 1e-6
"""Scores beside [0, 1] that are taken for rounding."""
_TOGETHER = 64
"""Calls that are sent to a process at once."""

Build = Callable[[Program], Mapping[str, str | bytes]]


@dataclass(frozen=True, slots=True)
class CallTarget:
    """One function that rows are about, and how a candidate's files are made."""

    name: str
    entry: str
    signature: Signature
    build: Build
    """Program → staged files; raises InputError for one that cannot be put in place."""
    whole: Callable[[Program], Program]
    """Program → all pieces of the agent, those that it does not have as they are."""

    def arguments(self, row_input: Json) -> list[Json]:
        """The arguments of the runner in the sandbox for the input of a row."""
        return list(self.signature.arguments(row_input))


class Inside:
    """Calls candidates in the sandbox: the staged slice of a function, by JSON."""

    varies = False
    """Two calls may answer differently: a model is asked on the way."""
    refused = ""
    """A value that could not cross as JSON, "" if all could."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @property
    def trusted_only(self) -> bool:
        """Candidates run without a sandbox."""
        return self.pool.sandbox.trusted_only

    def open(self, target: CallTarget, program: Program) -> AbstractAsyncContextManager[Any]:
        """One candidate, ready for `call` and `calls`.

        Raises:
            InputError: it cannot be put in place.
        """
        return self.pool.open(staged(target.build(program), target.entry), f"{RUNNER}:call")

    def reserve(
        self, target: CallTarget, program: Program, args: Sequence[Sequence[Json]], *, spare: bool
    ) -> None:
        """See that these calls may be made; in the sandbox none is limited."""


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
        self._stack = AsyncExitStack()
        self._session: ProgramSession | None = None
        self._scores: dict[str, tuple[float | None, str]] = {}
        self._lock = asyncio.Lock()

    @property
    def name(self) -> str:
        return (
            "exact equality" if self.evaluator is None else f"{self.evaluator.name} {self.evaluator.version}"
        )

    async def __aenter__(self) -> Comparer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._close()

    async def _close(self) -> None:
        self._session = None
        await self._stack.aclose()

    async def score(self, task: Task, answer: Json) -> tuple[float | None, str]:
        """Score in [0, 1] and the evaluator's feedback.

        An answer that breaks the evaluator, which raises, hangs or gives no finite number, is worth 0, the source's
        as a candidate's. None is the score only where the sandbox of the evaluator failed.
        """
        if self.evaluator is None:
            equal = exact(answer, task.answer)
            return float(equal), "" if equal else "another answer"
        key = digest([task.id, task.answer, answer])
        # One session judges all answers, and takes one call at a time.
        async with self._lock:
            if key not in self._scores:
                verdict = await self._judged(self.evaluator, task, answer)
                if verdict[0] is None:
                    return verdict  # the machine's failure: the next time it may be another
                self._scores[key] = verdict
        return self._scores[key]

    async def refuse_broken(self, tasks: Sequence[Task]) -> list[str]:
        """See that the evaluator works on the right answers of these tasks, before anything is spent on it.

        Returns:
            The input and the reason of each task whose right answer it breaks on, while it works on others.

        Raises:
            TrainingRefused: it breaks on every one, or scores one outside of [0, 1].
        """
        if self.evaluator is None or not tasks:
            return []
        broken: list[str] = []
        for task in tasks:
            result = await self._asked(self.evaluator, task, task.answer)
            if result.failure is not None and result.failure.fault is not Fault.SANDBOX:
                broken.append(f"{canonical(task.initial_state['input']).decode():.80} ({_why(result)})")
            elif result.ok and not -_SLACK <= result.value["score"] <= 1 + _SLACK:
                raise TrainingRefused(
                    f"{self.evaluator.name} gives {result.value['score']:g} to the right answer to "
                    f"{canonical(task.initial_state['input']).decode():.80}: scores have to lie in [0, 1]; rescale them"
                )
        if len(broken) == len(tasks):
            raise TrainingRefused(
                f"{self.evaluator.name} breaks on the right answer of each of {len(tasks)} rows, first {broken[0]}: "
                "mend it, for an answer that breaks it is worth 0"
            )
        return broken

    async def _judged(self, evaluator: Evaluator, task: Task, answer: Json) -> tuple[float | None, str]:
        result = await self._asked(evaluator, task, answer)
        if result.ok:
            score = min(1.0, max(0.0, float(result.value["score"])))
            return score, str(result.value["feedback"])[:300]
        failure = result.failure
        if failure is not None and failure.fault is Fault.SANDBOX:
            return None, f"{failure.fault}: the evaluator was not run: {failure.message}"[:300]
        return 0.0, f"the answer breaks {evaluator.name}: {_why(result)}"[:300]

    async def _asked(self, evaluator: Evaluator, task: Task, answer: Json) -> CallResult:
        """The evaluator's call, made once more in a fresh process where it ended or failed in the first."""
        arguments = evaluator.arguments(task.initial_state["input"], answer, task.answer)
        result = CallResult()
        for _ in range(_RETRIES):
            if self._session is None:
                opening = self._pool.open(evaluator.staged, "adapter:judge")
                self._session = await self._stack.enter_async_context(opening)
            result = await self._session.call([arguments])
            if result.ok:
                break
            await self._close()
        return result


def _why(result: CallResult) -> str:
    failure = result.failure
    return "it ended its process" if failure is None else f"{failure.type}: {failure.message}"[:200]


class Compared:
    """The Reward `score` of rows: a function's answer, by the Comparer of that function.

    Args:
        comparers: function → what compares its answers.
    """

    name = "score"
    version = "1"
    is_async = True

    def __init__(self, comparers: Mapping[str, Comparer]) -> None:
        self.comparers = comparers

    async def __call__(self, trajectory: Trajectory) -> Score:
        task, failed = trajectory.task, trajectory.error
        if not task.answer_known:
            return Score(self.name, None, "nobody said what it should answer")
        if failed is not None:
            return Score(self.name, 0.0, f"{failed.type}: {failed.message}", self.version)
        score, feedback = await self.comparers[task.initial_state["function"]].score(task, trajectory.output)
        return Score(self.name, score, feedback, self.version)


class Targets(Holding):
    """Env factory for functions of a repository: a task is a row, an episode one call of the candidate.

    Args:
        targets: function → what is called, and how it is built.
        ways: function → how it is called.
        form: which resource of a Bundle each part of a candidate is.
    """

    def __init__(
        self, targets: Mapping[str, CallTarget], ways: Mapping[str, Inside], form: ProgramCodec
    ) -> None:
        super().__init__()
        self.targets, self.ways, self.form = targets, ways, form

    @property
    def trusted_only(self) -> bool:
        """Candidates run without a sandbox."""
        return any(way.trusted_only for way in self.ways.values())

    async def answer(self, live: OpenCandidate, bundle: Bundle, observation: Json) -> Json:
        """A function's answer to the input of a row."""
        result = await self._call(live, bundle, observation["function"], observation["input"])
        tell(result)
        if result.failure is not None:
            raise CandidateCallFailed(result.failure)
        return result.value

    async def _call(self, live: OpenCandidate, bundle: Bundle, function: str, row_input: Json) -> CallResult:
        """The call of a candidate with one input; one that hung or died is not called again."""
        if function in live.ended:
            return live.ended[function]
        target, way = self.targets[function], self.ways[function]
        try:
            process = await live.session(function, lambda: way.open(target, self.form.program(bundle)))
        except InputError as error:
            raise CandidateCallFailed(Failure(fault_of(error), type(error).__name__, str(error))) from error
        result = await self._next(live, process, target, function, row_input)
        self.cpu_seconds += result.cpu_seconds
        await live.settle(function, result)
        return result

    async def _next(
        self, live: OpenCandidate, process: Any, target: CallTarget, function: str, row_input: Json
    ) -> CallResult:
        """The result for an input: made ahead, or of a call that is made now, together with those to come."""
        # By identity: two rows with equal inputs are two calls, for a function may remember.
        if live.ahead and live.ahead[0][0] is row_input:
            return live.ahead.popleft()[1]
        live.ahead.clear()
        expected = live.expected
        while expected and expected[0][1] is not row_input:
            expected.popleft()
        together: list[Json] = []
        # Only those in a row: another function's call closes this process, with what was answered ahead.
        while expected and expected[0][0] == function and len(together) < _TOGETHER:
            together.append(expected.popleft()[1])
        if len(together) < 2:
            only: CallResult = await process.call(target.arguments(row_input))
            return only
        results = await process.calls([target.arguments(inputs) for inputs in together])
        live.ahead.extend(zip(together, results, strict=True))
        return live.ahead.popleft()[1]

    def expect(self, bundle: Bundle, tasks: Sequence[Task]) -> None:
        """See `EnvFactory`; calls that a model is asked in, and pays for, are made one at a time."""
        live = self.live.get(bundle.id)
        if live is not None:
            live.expected = deque(
                (function, task.initial_state["input"])
                for task in tasks
                # The condition is evaluated before the pair above, and binds its `function`.
                if not self.ways[function := task.initial_state["function"]].varies
            )

    def reserve(self, bundle: Bundle, tasks: Sequence[Task], *, spare: bool) -> None:
        """See that the calls that these tasks take may be made.

        Args:
            spare: a search could do without them, and leaves calls for what comes after.

        Raises:
            BudgetExceeded: they may not.
            InputError: the candidate cannot be put in place.
        """
        by_function: dict[str, list[list[Json]]] = {}
        for task in tasks:
            function = task.initial_state["function"]
            args = self.targets[function].arguments(task.initial_state["input"])
            by_function.setdefault(function, []).append(args)
        for function, args in by_function.items():
            if self.ways[function].varies:
                program = self.form.program(bundle)
                self.ways[function].reserve(self.targets[function], program, args, spare=spare)
