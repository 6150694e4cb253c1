"""Candidates judged on tasks by `context.rollout`: the fingerprint first, then the mean of a score.

What a candidate answers is its fingerprint: one that answers every task as another did is not judged again.
Where an agent asks a model on the way two calls may differ, so there is none; instead a candidate is tried on
one task, then on a quarter of them, before it is given all.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field

from ....errors import InputError, TrainingRefused
from ....types import Bundle, Failure, Fault, Outcome, Task, Trajectory, canonical, digest
from ...loop import RunRollouts, mean_value, value_of
from ..agents.outside import Comparer, Targets
from ..editing.program import Program
from .judging import Judgement, Judging, timed_out
from .population import Judged
from .row_screen import RowScreen
from .screening import Screened, Spectrum

_SHOWN = 6
"""Tasks that went wrong which a proposer is shown."""
_EQUAL = 1e-9


def mean(runs: Sequence[Trajectory], score: str = "score") -> float:
    """Mean of those that have the score; 0 where none has."""
    return mean_value(runs, score)[0] or 0.0


async def finalist(
    judge: RowJudge,
    programs: Sequence[Program],
    held: Sequence[Task],
    searched: Sequence[float] | None = None,
) -> tuple[Program, float, float]:
    """The best of programs on tasks that the search did not see, ties by those that it did, then the first.

    Args:
        searched: mean of each program over the search's tasks; they are run again if None.

    Returns:
        The program, and the means over all of these tasks of the first one and of itself.
    """
    ranked = []
    for index, program in enumerate(programs):
        bundle = judge.bundle_of(program)
        unseen = mean(await judge.runs(bundle, held), judge.score_name)
        again = await judge.runs(bundle, judge.tasks) if searched is None else []
        seen_mean = mean(again, judge.score_name) if searched is None else searched[index]
        overall = (unseen * len(held) + seen_mean * len(judge.tasks)) / (len(held) + len(judge.tasks))
        ranked.append((overall, -index, program))
    best = max(ranked, key=lambda ranking: ranking[:2])
    return best[2], ranked[0][0], best[0]


@dataclass
class RowJudge(Judging):
    """A judge of Programs by the mean of a Score over tasks.

    Args:
        rollout: of the Context.
        tasks: with those that nobody knows the answer to left out.
        bundle_of: Program → the Bundle that is run.
        name: of what is judged, in errors.
        env: where the tasks are calls of a function of a repository; any other env is thought to vary.
        comparer: what compares the function's answers.
        score: name of the Score.

    Raises:
        InputError: no task has a goal.
    """

    rollout: RunRollouts
    tasks: Sequence[Task]
    bundle_of: Callable[[Program], Bundle]
    name: str
    env: Targets | None = None
    comparer: Comparer | None = None
    score_name: str = "score"
    held: Sequence[Task] = ()
    """With a goal; a search that answers all of `tasks` goes on until it answers these."""
    first: dict[str, float] = field(default_factory=dict)
    """Task → score of the start, where candidates are compared with it before they are judged whole."""

    def __post_init__(self) -> None:
        if self.env is not None:
            self.tasks = [task for task in self.tasks if task.answer_known]
        if not self.tasks:
            raise InputError(
                f"no row says what {self.name} should answer: give rows with expected, or with a good label; output or "
                "answer alone says what was answered once"
            )
        self._began = self.env.cpu_seconds if self.env is not None else 0.0
        self._screen: RowScreen | None = None
        if self.env is not None and not self.varies and self.comparer is not None:
            self._screen = RowScreen(self.env, self.comparer, self.name, self.bundle_of)

    @property
    def cpu_seconds(self) -> float:
        """Of candidates, since the judge was made."""
        screens = self._screen.cpu_seconds if self._screen is not None else 0.0
        return screens + (self.env.cpu_seconds - self._began if self.env is not None else 0.0)

    @property
    def varies(self) -> bool:
        """Two calls may answer differently: a model is asked on the way."""
        return self.env is None or self.env.ways[self.name].varies

    @property
    def most(self) -> int:
        """Rollouts that a candidate may take."""
        return len(self.tasks) + (1 + len(self.quarter()) if self.varies else 0)

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start.

        Raises:
            InputError: it does not run.
            TrainingRefused: a function that answers nothing gets no less.
        """
        judged = await self._started(start)
        way = self.env.ways[self.name] if self.env is not None else None
        if way is not None and way.refused:
            raise InputError(way.refused)
        if judged.score is None:
            network = "" if self.varies else ". If it needs the network, give --network"
            raise InputError(
                f"{self.name} has no score as it stands: {judged.failure or 'none was given'}{network}"
            )
        self.first = dict(judged.instances) if self.varies else {}
        if self.comparer is None:
            return judged
        # Where None is the right answer, no answer at all is one, and says nothing of the evaluator.
        tasks = [task for task in self.tasks if task.answer is not None]
        blank = [await self.comparer.score(task, None) for task in tasks]
        nothing = [score for score, _ in blank if score is not None]
        scores = [judged.instances[task.id] for task in tasks if task.id in judged.instances]
        own = sum(scores) / len(scores) if scores else judged.score
        if nothing and sum(nothing) / len(nothing) >= max(own, _EQUAL):
            raise TrainingRefused(
                f"{self.comparer.name} gives {sum(nothing) / len(nothing):g} to no answer at all and {own:g} "
                f"to {self.name} as it stands: it cannot tell better from worse"
            )
        return judged

    async def spectrum(self, judged: Judged) -> Spectrum | None:
        """See `Judging`; None for candidates whose answers vary."""
        return await self._screen.spectrum(judged, self.tasks) if self._screen is not None else None

    async def confirm(self, program: Program) -> bool:
        """See `Judging`: it answers every row of `held`, too."""
        if self.varies or not self.held:
            return True
        scores = [
            value_of(run, self.score_name) for run in await self.runs(self.bundle_of(program), self.held)
        ]
        return all(score is not None and score >= 1.0 - _EQUAL for score in scores)

    async def screen(self, spectrum: Spectrum, programs: Sequence[Program]) -> list[Screened]:
        """See `Judging`."""
        assert self._screen is not None
        return await self._screen.screened(spectrum, programs)

    async def _started(self, start: Program) -> Judgement:
        """The judgement of the start; 0 for one that fails on every row, unless the fault is not its own."""
        judged = await self.score(start)
        if judged.score is not None or judged.infrastructure or self.env is None or self.varies:
            return judged
        async with self.bench(start) as bench:
            smoked = await bench.smoke()
            failures = bench.failures()
            return smoked if not failures or any(map(_not_its_own, failures)) else bench.scored()

    @asynccontextmanager
    async def bench(self, program: Program) -> AsyncIterator[RowBench]:
        """One candidate: first `smoke`, then `score`."""
        bundle = self.bundle_of(program)
        async with self.env.held(bundle) if self.env is not None else nullcontext():
            yield RowBench(self, bundle)

    async def runs(self, bundle: Bundle, tasks: Sequence[Task], *, spare: bool = False) -> list[Trajectory]:
        """Trajectories of a Bundle on tasks.

        Raises:
            InputError: the candidate cannot be put in place.
            BudgetExceeded: the calls that this takes are not left.
        """
        if self.env is not None:
            self.env.reserve(bundle, tasks, spare=spare)
        groups = await self.rollout(bundle, tasks) if tasks else []
        return [run for group in groups for run in group.trajectories]

    def quarter(self) -> Sequence[Task]:
        """A quarter of the tasks, spread over all: where a candidate has to hold its own first."""
        return self.tasks[:: 4 if len(self.tasks) >= 12 else 1]


@dataclass
class RowBench:
    """One candidate at work."""

    judge: RowJudge
    bundle: Bundle
    rollouts: int = 0
    _runs: list[Trajectory] = field(default_factory=list)

    async def _run(self, tasks: Sequence[Task]) -> list[Trajectory]:
        runs = await self.judge.runs(self.bundle, tasks, spare=True)
        self.rollouts += len(runs)
        return runs

    async def smoke(self) -> Judgement:
        """Run it on every task; `behaviour` is the digest of its answers, `failure` why there are none.

        One whose answers vary is run on one task only, and has no fingerprint.
        """
        try:
            self._runs = await self._run(self.judge.tasks[:1] if self.judge.varies else self.judge.tasks)
        except InputError as error:
            return Judgement(failure=str(error))
        errors = [run.error for run in self._runs if run.error is not None]
        if len(errors) == len(self._runs):
            first = self._runs[0]
            broken = first.outcome is Outcome.INFRASTRUCTURE_ERROR
            return Judgement(failure=_line(errors[0]), timeout=timed_out(first), infrastructure=broken)
        if self.judge.varies:
            return Judgement()
        answers = [
            canonical(run.output).decode() if run.error is None else f"raised {run.error.type}"
            for run in self._runs
        ]
        return Judgement(behaviour=digest(answers))

    async def score(self) -> Judgement:
        """The mean over the tasks, each task as an instance, and what went wrong in words."""
        judge = self.judge
        # `Judging.score` comes here without `smoke`.
        if not self._runs:
            smoked = await self.smoke()
            if smoked.failure is not None:
                return smoked
        if judge.varies:
            worse = await self._falls_behind()
            if worse:
                return Judgement(failure=worse)
            self._runs = await self._run(judge.tasks)
        return self.scored()

    def failures(self) -> list[Failure]:
        """Why rows that were run have no answer."""
        return [run.error for run in self._runs if run.error is not None]

    def scored(self) -> Judgement:
        """The judgement of the rows that were run."""
        judge = self.judge
        scores: dict[str, float] = {}
        wrong: list[str] = []
        for run in self._runs:
            # One is enough: a mean over the rest would be over other tasks than the other candidates'.
            if run.outcome is Outcome.INFRASTRUCTURE_ERROR:
                why = run.error.message if run.error is not None else "the machine failed"
                return Judgement(failure=why, infrastructure=True)
            score = value_of(run, judge.score_name)
            if score is None:
                unjudged = run.scores.get(judge.score_name)
                if judge.env is not None:  # of a row with a goal only the evaluator's sandbox can fail
                    why = unjudged.reason if unjudged is not None else "the evaluator was not run"
                    return Judgement(failure=why, infrastructure=True)
                # Not 0: nobody judged it, so it is in no mean. But where the start was judged, a candidate that the
                # reward has no answer to is not better for it.
                if run.task.id not in judge.first or (unjudged is not None and _unreached(unjudged.reason)):
                    continue
                score = 0.0
            scores[run.task.id] = score
            if score < 1.0:
                wrong.append(_wrong_line(run, judge.score_name))
        if not scores:
            return Judgement(failure="the evaluator gave no score for any row")
        mean = sum(scores.values()) / len(scores)
        artifacts = {"rows that went wrong": "\n".join(wrong[:_SHOWN])} if wrong else {}
        return Judgement(mean, {"combined_score": mean, "wrong": float(len(wrong))}, artifacts, scores)

    async def _falls_behind(self) -> str:
        """The reason not to run all the tasks: it is worse than the start on the first of them; else ""."""
        judge = self.judge
        tasks = [task for task in judge.quarter() if task.id in judge.first]
        if not tasks or len(tasks) == len(judge.tasks):
            return ""
        tried = {
            run.task.id: value
            for run in await self._run(tasks)
            if (value := value_of(run, judge.score_name)) is not None
        }
        if not tried:
            return ""
        now, before = sum(tried.values()), sum(judge.first[id] for id in tried)
        complaint = f"worse than the start on the first {len(tried)} rows: {now:g} against {before:g} of them"
        return complaint if now < before - _EQUAL else ""


def _unreached(reason: str) -> bool:
    """True if a judge could not be asked, by what `judge.base` writes before the reason."""
    return reason.partition(":")[0] in (Fault.MODEL, Fault.ENVIRONMENT, Fault.SANDBOX, Fault.STORE)


_ELSEWHERE = ("ModuleNotFoundError", "InputError", "CannotCross", "SyntaxError", "MemoryError")
"""Failures of a start that no edit of it is likely to mend."""
_BY_IMPORT = re.compile("cannot import name|shared object|DLL load|circular import")


def _not_its_own(failure: Failure) -> bool:
    """True of what the sandbox denies, a module that is missing, or a value that cannot cross: edits change none."""
    kind = getattr(builtins, failure.type, None)
    denied = isinstance(kind, type) and issubclass(kind, OSError)
    # An ImportError that says something else was raised by a statement of the program.
    denied = denied or (failure.type == "ImportError" and _BY_IMPORT.search(failure.message) is not None)
    return (
        denied or failure.type in _ELSEWHERE or failure.type.endswith(("URLError", "gaierror", "HTTPError"))
    )


def _line(failure: Failure) -> str:
    """A candidate that could not be put in place is told as such; anything else with its class."""
    if failure.type == "InputError":
        return failure.message
    return f"{failure.type}: {failure.message}"[:2000]


def _wrong_line(run: Trajectory, score: str) -> str:
    """A task that went wrong, as a proposer is told of it."""
    task = run.task
    answer = "" if run.error is not None else f" answered {canonical(run.output).decode():.200},"
    input = task.initial_state.get("input", task.instruction)
    score_given = run.scores.get(score)
    reason = score_given.reason if score_given is not None else run.outcome.value
    right = canonical(task.answer).decode()
    return f"- input {canonical(input).decode():.300}:{answer} wanted {right:.200} ({reason:.200})"
