"""A program and its evaluator beside it as an Env, and the judge of programs by it.

An evaluator is a Python file with `evaluate(path)`, or with `evaluate_stage1` to `3` of which each
runs only if the score so far reaches its threshold: OpenEvolve's contract.  It runs in one process
with the program, so its scores steer a search and prove nothing (`co_resident`).  An evaluator that
cannot tell the start program from an empty one is refused before anything is spent on it.

There is one task per request to the pair: `evaluate`, and before it `behaviour`, the fingerprint by
which a duplicate of another program is detected.  Both happen in one process as long as it is held.
Costs are counted, not timed, so the same candidates come to the same scores on any machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ....errors import InputError, TrainingRefused
from ....python_text import module_of
from ....sandbox import CallResult, Pool, ProgramSession
from ....types import Bundle, Fault, Json, Outcome, Split, Task, Trajectory
from ...loop import RunRollouts
from ..agents.candidates import ProgramCodec
from ..agents.holding import CandidateCallFailed, Holding, OpenCandidate, tell
from ..editing.program import Program, text_of
from .judging import Judgement, Judging, timed_out
from .population import Judged
from .screening import (
    CodeLine,
    Screen,
    Screened,
    Spectrum,
    Traced,
    limit_of,
    ochiai,
    value_of_answer,
    width_of,
)

DOOR = "inside.door"
"""The module of the sandbox through which evaluator and candidate are reached."""
WARM = (DOOR,)
"""The modules of a pool for a pair: loaded before the first fork, they cost a candidate nothing."""
RESULTS = "runs.db"
"""The record in a folder of results: it marks a folder below the evaluator's as one."""
_LARGEST = 16 << 20
"""Bytes of an evaluator's folder; one with more is taken without its subfolders."""
_CALLS = "calls.json"
"""Where the calls that are compared lie beside the program."""
_TRACE_SECONDS = 1.0
"""Processor time after which the tracing of an evaluation ends."""
_ASKS = ("stages", "record", "behaviour", "evaluate")


@dataclass(frozen=True, slots=True)
class EvaluatorFile:
    """An evaluator's file, with the files beside it that it may read or import.

    Raises:
        InputError: the text is not Python, or defines neither `evaluate` nor `evaluate_stage1`.
    """

    parts: Mapping[str, str | bytes]
    main: str

    def __post_init__(self) -> None:
        text = self.parts[self.main]
        try:
            tree = module_of(text)
        except SyntaxError as error:
            raise InputError(f"the evaluator {self.main} is not valid Python: {error}") from error
        named = {name for node in _top(tree) for name in _defined(node)}
        if not named & {"evaluate", "evaluate_stage1", "*"}:
            raise InputError(
                f"the evaluator {self.main} defines no evaluate(path_of_the_program). Add one that returns "
                "a dict of numbers, with the number to maximise under 'combined_score'."
            )

    @classmethod
    def read(cls, path: Path, *, without: Collection[Path] = ()) -> EvaluatorFile:
        """The evaluator in a file, with the files of its folder, which it may read and import.

        Args:
            without: paths to leave out: the output folder, and the record. Other folders that
                hold results of ours are left out anyway.

        Raises:
            InputError: no such file, or a folder that is too large even without its subfolders.
        """
        text = text_of(path, "evaluator")
        left_out = {results.parent.resolve() for results in path.parent.glob(f"*/**/{RESULTS}")}
        for own in without:
            # A record has files of its own beside it, such as runs.db-wal.
            left_out |= {own.resolve(), *(beside.resolve() for beside in own.parent.glob(f"{own.name}[.-]*"))}
        for pattern in ("**/*", "*"):
            files = [
                file for file in sorted(path.parent.glob(pattern)) if _staged(file, path.parent, left_out)
            ]
            if sum(file.stat().st_size for file in files) <= _LARGEST:
                break
        else:
            raise InputError(
                f"the folder of {path} holds more than {_LARGEST >> 20} MiB, and all of it would be staged for every "
                "evaluation. Put the evaluator into a folder of its own, with the data that it needs."
            )
        parts: dict[str, str | bytes] = {
            file.relative_to(path.parent).as_posix(): file.read_bytes() for file in files
        }
        # Over the bytes of the same file: `text_of` has read it without its byte order mark.
        parts[path.name] = text
        return cls(parts, path.name)


def _staged(path: Path, folder: Path, left_out: Collection[Path]) -> bool:
    names = path.relative_to(folder).parts
    hidden = any(name.startswith(".") or name == "__pycache__" for name in names)
    if hidden or path.is_symlink() or not path.is_file():
        return False
    return not set(left_out) & {path.resolve(), *path.resolve().parents}


def _top(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run where a module is loaded, those in `try` and `if` among them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            yield from _top(child)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOptions:
    """How an evaluator is run; names and defaults of OpenEvolve where it has them."""

    timeout: float = 300.0
    """Seconds per stage."""
    cascade_evaluation: bool = True
    cascade_thresholds: tuple[float, ...] = (0.5, 0.75, 0.9)
    feature_dimensions: tuple[str, ...] = ("complexity", "diversity")
    """Metrics that describe and do not count: left out of the mean where no `combined_score` is given."""
    fingerprint: bool = True
    """Compare what candidates do on recorded calls before the evaluation."""


class EvaluatedProgram(Holding):
    """Env factory: a program of a Bundle, with its evaluator in the same process.

    Args:
        pool: with the modules `WARM`.
        form: how a program is a Bundle.
    """

    def __init__(
        self, pool: Pool, evaluator: EvaluatorFile, options: JudgeOptions, form: ProgramCodec
    ) -> None:
        super().__init__()
        self.runner, self.evaluator, self.options, self.form = pool, evaluator, options, form
        self.stages: list[str] = ["evaluate"]
        self.own_behaviour = False
        self.calls = ""
        """Of the start program, as JSON, that the behaviour of others is compared on; "" where there are none."""
        self.path = f"evaluator/{evaluator.main}"
        self.at = f"program/{form.start.main}"
        self.tasks = {
            ask: Task(
                id=f"{ask} {evaluator.main}",
                instruction=f"{ask} by {evaluator.main}",
                initial_state={"ask": ask},
                split=Split.TRAIN,
            )
            for ask in _ASKS
        }
        self._staged = {f"evaluator/{name}": text for name, text in evaluator.parts.items()}

    @property
    def trusted_only(self) -> bool:
        """Programs run without a sandbox."""
        return self.runner.sandbox.trusted_only

    async def answer(self, live: OpenCandidate, bundle: Bundle, observation: Json) -> Json:
        """The answer to one of the requests."""
        ask = observation["ask"]
        if ask == "evaluate":
            return await self._evaluated(live, bundle)
        if ask == "behaviour" and not self.own_behaviour:
            call = "behave", [self.at, _CALLS]
        elif ask == "record":
            call = "record", [self.path, self.stages[0], self.at]
        else:
            call = ask, [self.path, self.at] if ask == "behaviour" else [self.path]
        answer = await self._call(live, bundle, *call)
        if answer.failure is not None:
            raise CandidateCallFailed(answer.failure)
        return answer.value

    async def _call(
        self, live: OpenCandidate, bundle: Bundle, function: str, args: list[Json], *, last: bool = False
    ) -> CallResult:
        """Call one of our functions inside; `last` ends the process."""
        session = await live.session(DOOR, lambda: self.opened(bundle))
        answer: CallResult = await session.call([function, args], seconds=self.options.timeout, last=last)
        self.cpu_seconds += answer.cpu_seconds
        tell(answer, co_resident=True)
        if last or (answer.failure is not None and answer.failure.fault is Fault.SANDBOX):
            await live.close()
        return answer

    async def _evaluated(self, live: OpenCandidate, bundle: Bundle) -> Json:
        """The evaluator's stages as far as the thresholds let it."""
        metrics: dict[str, float] = {}
        artifacts: dict[str, str] = {}
        instances: dict[str, float] = {}
        first: float | None = None
        printed = ""
        for number, stage in enumerate(self.stages):
            last = stage == self.stages[-1]
            answer = await self._call(live, bundle, "evaluate", [self.path, stage, self.at], last=last)
            printed += answer.stdout
            if answer.failure is not None:
                # A later stage that fails leaves the program the score of those before it.
                if not number or answer.failure.fault is Fault.SANDBOX:
                    raise CandidateCallFailed(answer.failure)
                name = stage.removeprefix("evaluate_")
                artifacts[f"{name}_stderr"] = f"{answer.failure.type}: {answer.failure.message}"[:2000]
                metrics[f"{name}_passed"] = 0.0
                break
            metrics |= {name: value for name, value in answer.value["metrics"].items() if name != "error"}
            artifacts |= answer.value["artifacts"]
            instances |= answer.value["instances"]
            first = self.fitness(metrics) if not number else first
            # As in OpenEvolve: a stage is reached over a threshold, and without one not at all.
            thresholds = self.options.cascade_thresholds
            score = self.fitness(metrics)
            if number >= len(thresholds) or score is None or score < thresholds[number]:
                break
        return {
            "metrics": metrics,
            "artifacts": artifacts,
            "instances": instances,
            "first": first,
            "printed": printed[-2000:],
        }

    def opened(self, bundle: Bundle) -> AbstractAsyncContextManager[ProgramSession]:
        """A process of its own for one candidate, in which everything about it happens."""
        staged = self.files(self.form.program(bundle))
        if self.calls:
            staged[_CALLS] = self.calls
        return self.runner.open(staged, f"{DOOR}:handle")

    def files(self, program: Program) -> dict[str, str | bytes]:
        """The evaluator and a program beside it, as they are staged."""
        return self._staged | {f"program/{name}": text for name, text in program.parts.items()}

    def score(self, trajectory: Trajectory) -> float | None:
        """The Reward `score`: the evaluator's; None where it was not asked, or the program failed."""
        evaluated = trajectory.task.initial_state.get("ask") == "evaluate"
        if not evaluated or trajectory.error is not None:
            return None
        return self.fitness(trajectory.output["metrics"])

    def fitness(self, metrics: Mapping[str, float]) -> float | None:
        """`combined_score`, else the mean of the numbers that are not features; None without any."""
        if "combined_score" in metrics:
            return float(metrics["combined_score"])
        numbers = {name: float(value) for name, value in metrics.items() if not isinstance(value, bool)}
        counted = [value for name, value in numbers.items() if name not in self.options.feature_dimensions]
        counted = counted or list(numbers.values())
        return sum(counted) / len(counted) if counted else None


class PairJudge(Judging):
    """Programs judged by their evaluator, through `context.rollout`.

    `await prepare(start)` comes first.  Several candidates may be at work at a time.
    """

    most = 2

    def __init__(self, pair: EvaluatedProgram, rollout: RunRollouts) -> None:
        self.pair, self._rollout = pair, rollout
        self.evaluations = 0
        """Programs that reached the evaluator."""
        self.repeated: tuple[float, float] | None = None
        """The first stage's score of the start program, and its second; None where it was asked once."""
        self._heavy = False
        """One evaluation takes so long that it is not traced again."""
        self._screen = Screen(pair.runner, min(pair.options.timeout, pair.runner.sandbox.limits.wall_seconds))

    @property
    def cpu_seconds(self) -> float:
        """Of candidates and evaluators."""
        return self.pair.cpu_seconds + self._screen.cpu_seconds

    async def ask(self, bundle: Bundle, ask: str) -> Trajectory:
        """One rollout of one task."""
        (group,) = await self._rollout(bundle, [self.pair.tasks[ask]])
        return group.trajectories[0]

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start program, and the evaluator by it.

        Raises:
            InputError: the evaluator or the start program does not run.
            TrainingRefused: the evaluator's score of the start program is that of wreckage.
        """
        pair = self.pair
        run = await self.ask(pair.form.bundle(start), "stages")
        if run.error is not None:
            raise InputError(
                f"the evaluator {pair.evaluator.main} does not load: {_line(run)}.{self._seen()}"
            )
        names: list[str] = run.output
        cascade = pair.options.cascade_evaluation and "evaluate_stage1" in names
        pair.stages = [name for name in names if name.startswith("evaluate_")] if cascade else ["evaluate"]
        pair.own_behaviour = "behaviour" in names
        judged = await self._start(start)
        if judged.score is None:
            raise InputError(
                f"the start program has no score: {_complaint(judged) or 'no number came back'}. Mend the "
                f"evaluator, or begin with a program that it accepts.{self._seen()}"
            )
        await self._refuse_blind(start, judged)
        smoked = []
        # Each on a bench of its own: in one process the second run would see what the first one left.
        for _ in range(2):
            async with self.bench(start) as bench:
                smoked.append(await bench.smoke())
        if smoked[0].failure or smoked[0].behaviour != smoked[1].behaviour:
            pair.calls, pair.own_behaviour = (
                "",
                False,
            )  # the start differs from itself: nothing follows from it
            return judged
        return replace(judged, behaviour=smoked[0].behaviour)

    async def spectrum(self, judged: Judged) -> Spectrum | None:
        """See `Judging`: the lines that ran in one evaluation are suspected alike, the others less."""
        program = judged.program
        if self._heavy or self.pair.stages != ["evaluate"] or not program.main.endswith(".py"):
            return None
        paths = {f"program/{part}": part for part in program.parts if part.endswith(".py")}
        asked = [self.pair.path, "evaluate", self.pair.at, list(paths), _TRACE_SECONDS]
        reports = await self._screen.asked(self.pair.files(program), "lines_beside", *asked)
        if not reports or not reports[0].told:
            return None
        report = Traced.read(reports[0])
        ran = frozenset(
            CodeLine(paths[path], number)
            for path, lines in report.lines.items()
            for number in lines
            if path in paths
        )
        width = 1 if report.hung else width_of(report.steps)
        self._heavy = width == 1
        return Spectrum(program, ochiai([ran], []), width, limit_of([report.cpu]), scores=[judged.score])

    async def screen(self, spectrum: Spectrum, programs: Sequence[Program]) -> list[Screened]:
        """See `Judging`."""
        versions = [{f"program/{part}": text for part, text in program.parts.items()} for program in programs]
        head = [self.pair.path, "evaluate", self.pair.at]
        files = self.pair.files(spectrum.program)
        reports = await self._screen.each(files, "scores", head, versions, [spectrum.seconds])
        return [Screened(self._gain(told, spectrum.scores[0])) for told in reports]

    def _gain(self, told: Sequence[str], score: float) -> float:
        evaluated, report = value_of_answer(told[0]) if told else (False, None)
        metrics = report.get("metrics") if evaluated and isinstance(report, dict) else None
        fitness = self.pair.fitness(metrics) if metrics else None
        return 0.0 if fitness is None else max(0.0, fitness - score)

    async def _start(self, start: Program) -> Judgement:
        """The start program's judgement; its calls are recorded on the way."""
        pair = self.pair
        once: float | None = None
        if pair.options.fingerprint and not pair.own_behaviour and start.main.endswith(".py"):
            run = await self.ask(pair.form.bundle(start), "record")
            if run.error is None and isinstance(run.output, dict):
                calls = run.output.get("calls", [])
                pair.calls = msgspec.json.encode(calls).decode() if calls else ""
                once = pair.fitness(run.output.get("metrics", {}))
        judged = await self.score(start)
        if once is not None and judged.first is not None:
            self.repeated = once, judged.first
        return judged

    async def _refuse_blind(self, start: Program, judged: Judgement) -> None:
        wrecks = {"an empty file": ""}
        if start.main.endswith(".py"):
            wrecks["one that raises"] = "raise RuntimeError('a program that does not run')\n"
        wrecked = [await self.score(start.with_part(start.main, text)) for text in wrecks.values()]
        scores = [wreck.score for wreck in wrecked]
        assert judged.score is not None
        if any(score is None or score < judged.score for score in scores):
            return
        if judged.score == 0 and not _complaint(judged) and all(map(_complaint, wrecked)):
            return  # the start has earned nothing yet, and the evaluator reports errors of the wrecks alone
        raise TrainingRefused(
            f"the evaluator gives {judged.score:g} to the start program, and no less to "
            f"{' and to '.join(wrecks)} ({', '.join(f'{score:g}' for score in scores)}). It cannot tell "
            "better from worse; let it fail, or score lower, when the program does.\n"
            + await self._said(start)
        )

    async def _said(self, start: Program) -> str:
        """The evaluator's complaint about the start program, asked once more, for whoever has to mend it."""
        async with self.bench(start) as bench:
            judged = await bench.score()
        complaint = _complaint(judged) or bench.printed.strip()[-1000:]
        return (f"Of the start program it says: {complaint}" if complaint else "") + self._seen()

    def _seen(self) -> str:
        """The offer of the sandbox: mostly an evaluator lacks something that exists outside of it."""
        if self.pair.trusted_only:
            return ""
        return (
            f"\nIt runs in the sandbox, without network, and sees the files of its own folder, the modules of "
            f"{sys.executable} and system programs, nothing else."
        )

    @asynccontextmanager
    async def bench(self, program: Program) -> AsyncIterator[Bench]:
        """A process of its own for one candidate, in which everything about it happens."""
        bundle = self.pair.form.bundle(program)
        async with self.pair.held(bundle):
            yield Bench(self, bundle, program)


@dataclass
class Bench:
    """One candidate at work: first `smoke`, then `score`."""

    judge: PairJudge
    bundle: Bundle
    program: Program
    rollouts: int = 0
    printed: str = ""
    """The end of what was printed while it was scored."""

    async def smoke(self) -> Judgement:
        """Import it and run it on recorded calls; `behaviour` is its fingerprint, `failure` why not."""
        pair = self.judge.pair
        if not self.program.main.endswith(".py") or not pair.options.fingerprint:
            return Judgement()
        if not pair.own_behaviour and not pair.calls:
            return Judgement()
        self.rollouts += 1
        run = await self.judge.ask(self.bundle, "behaviour")
        return _failed(run) if run.error is not None else Judgement(behaviour=str(run.output))

    async def score(self) -> Judgement:
        """Run the evaluator."""
        self.rollouts += 1
        self.judge.evaluations += 1
        run = await self.judge.ask(self.bundle, "evaluate")
        if run.error is not None:
            return _failed(run)
        report = run.output
        self.printed = report["printed"]
        score = run.score("score")
        return Judgement(
            score, report["metrics"], report["artifacts"], report["instances"], first=report["first"]
        )


def _failed(run: Trajectory) -> Judgement:
    broken = run.outcome is Outcome.INFRASTRUCTURE_ERROR
    return Judgement(failure=_line(run), timeout=timed_out(run), infrastructure=broken)


def _complaint(judged: Judgement) -> str:
    """The reason of a failure, "" without one; some evaluators give a score even so."""
    complaints = [judged.artifacts.get(name, "") for name in ("error", "error_message", "stderr")]
    return judged.failure or next((complaint[:2000] for complaint in complaints if complaint.strip()), "")


def _line(run: Trajectory) -> str:
    assert run.error is not None
    return f"{run.error.type}: {run.error.message}"[:2000]
