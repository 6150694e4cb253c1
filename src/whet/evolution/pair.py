"""A program and its evaluator beside it as an Env, and the judge of programs by it.

An evaluator is a Python file with `evaluate(path)`, or with `evaluate_stage1` to `3` of which each
runs only if the score so far reaches its threshold: OpenEvolve's contract.  It runs in one process
with the program, so its scores steer a search and prove nothing (`co_resident`).  An evaluator that
cannot tell the start program from an empty one is refused before anything is spent on it.

There is one task per thing that is asked of the pair: `evaluate`, and before it `behaviour`, the fingerprint by
which a program is known that does what another did.  Both happen in one process as long as it is held.
What happens is counted, not timed, so the same candidates come to the same scores on any machine.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..errors import InputError, TrainingRefused
from ..loop import Rollout
from ..policy import Action, Policy
from ..sandbox import Pool, Result
from ..types import Bundle, Fault, Json, Outcome, Split, Task, Trajectory
from .candidates import Form
from .holding import CallFailed, Holding, Live, tell
from .judging import Judgement, Judging, timed_out
from .program import Program, text_of

DOOR = "inside.door"
"""The module of the sandbox through which evaluator and candidate are reached."""
WARM = (DOOR,)
"""The modules of a pool for a pair: loaded before the first fork, they cost a candidate nothing."""
RESULTS = "runs.db"
"""The record in a folder of results: it marks a folder below the evaluator's as one."""
_CALLS = "calls.json"
"""Where the calls that are compared lie beside the program."""
_ASKS = ("stages", "record", "behaviour", "evaluate")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator's file, with the files beside it that it may read or import.

    Raises:
        InputError: the text is not Python, or defines neither `evaluate` nor `evaluate_stage1`.
    """

    parts: Mapping[str, str | bytes]
    main: str

    def __post_init__(self) -> None:
        text = self.parts[self.main]
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            raise InputError(f"the evaluator {self.main} is not valid Python: {error}") from error
        named = {name for node in _top(tree) for name in _defined(node)}
        if not named & {"evaluate", "evaluate_stage1", "*"}:
            raise InputError(
                f"the evaluator {self.main} defines no evaluate(path_of_the_program). Add one that returns "
                "a dict of numbers, with the number to maximise under 'combined_score'."
            )

    @classmethod
    def read(cls, path: Path, *, without: Collection[Path] = (), limit: int = 16 << 20) -> Evaluator:
        """The evaluator in a file, with the files of its folder, which it may read and import.

        Args:
            without: what to leave out: the folder that results are written to, and the record. Other folders that
                hold results of ours are left out by themselves.
            limit: bytes; a folder with more is taken without its subfolders.

        Raises:
            InputError: no such file, or a folder that is too large even so.
        """
        text = text_of(path, "evaluator")
        left_out = {each.parent.resolve() for each in path.parent.glob(f"*/**/{RESULTS}")}
        for each in without:
            left_out |= {
                each.resolve(),
                *(beside.resolve() for beside in each.parent.glob(f"{each.name}[.-]*")),
            }
        for pattern in ("**/*", "*"):
            beside = [
                each for each in sorted(path.parent.glob(pattern)) if _taken(each, path.parent, left_out)
            ]
            if sum(each.stat().st_size for each in beside) <= limit:
                break
        else:
            raise InputError(
                f"the folder of {path} holds more than {limit >> 20} MiB, and all of it would be staged for every "
                "evaluation. Put the evaluator into a folder of its own, with the data that it needs."
            )
        parts: dict[str, str | bytes] = {
            each.relative_to(path.parent).as_posix(): each.read_bytes() for each in beside
        }
        parts[path.name] = text
        return cls(parts, path.name)


def _taken(path: Path, folder: Path, without: Collection[Path]) -> bool:
    names = path.relative_to(folder).parts
    hidden = any(name.startswith(".") or name == "__pycache__" for name in names)
    if hidden or path.is_symlink() or not path.is_file():
        return False
    return not set(without) & {path.resolve(), *path.resolve().parents}


def _top(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run where a module is loaded, those in `try` and `if` among them."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt):
            yield each
        if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            yield from _top(each)


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


class _Beside:
    """The Policy of one episode: the program of a Bundle with its evaluator beside it."""

    def __init__(self, pair: Pair, bundle: Bundle) -> None:
        self._pair, self._bundle = pair, bundle
        self._live: Live | None = None

    async def act(self, observation: Json, /) -> Action:
        pair, asked_for = self._pair, observation["ask"]
        async with pair.held(self._bundle) as live, live.lock:
            self._live = live
            if asked_for == "evaluate":
                return Action(await self._evaluated())
            if asked_for == "behaviour" and not pair.own_behaviour:
                asked = "behave", [pair.at, _CALLS]
            elif asked_for == "record":
                asked = "record", [pair.path, pair.stages[0], pair.at]
            else:
                asked = asked_for, [pair.path, pair.at] if asked_for == "behaviour" else [pair.path]
            found = await self._ask(*asked)
        if found.failure is not None:
            raise CallFailed(found.failure)
        return Action(found.value)

    async def _ask(self, function: str, args: list[Json], *, last: bool = False) -> Result:
        """Call one of our functions inside; `last` if nothing more will be asked of this process."""
        assert self._live is not None
        pair = self._pair
        opened = await self._live.session(DOOR, lambda: pair.opened(self._bundle))
        found: Result = await opened.call([function, args], seconds=pair.options.timeout, last=last)
        pair.cpu_seconds += found.cpu_seconds
        tell(found, co_resident=True)
        if last or (found.failure is not None and found.failure.fault is Fault.SANDBOX):
            await self._live.close()
        return found

    async def _evaluated(self) -> Json:
        """The evaluator's stages as far as the thresholds let it."""
        pair = self._pair
        metrics: dict[str, float] = {}
        artifacts: dict[str, str] = {}
        instances: dict[str, float] = {}
        first: float | None = None
        printed = ""
        for number, stage in enumerate(pair.stages):
            found = await self._ask("evaluate", [pair.path, stage, pair.at], last=stage == pair.stages[-1])
            printed += found.stdout
            if found.failure is not None:
                if not number or found.failure.fault is Fault.SANDBOX:
                    raise CallFailed(found.failure)
                name = stage.removeprefix("evaluate_")
                artifacts[f"{name}_stderr"] = f"{found.failure.type}: {found.failure.message}"[:2000]
                metrics[f"{name}_passed"] = 0.0
                break
            metrics |= {name: value for name, value in found.value["metrics"].items() if name != "error"}
            artifacts |= found.value["artifacts"]
            instances |= found.value["instances"]
            first = pair.fitness(metrics) if not number else first
            # As OpenEvolve has it: a stage is reached over a threshold, and without one not at all.
            thresholds = pair.options.cascade_thresholds
            if number >= len(thresholds) or not pair.passes(metrics, thresholds[number]):
                break
        said = {"metrics": metrics, "artifacts": artifacts, "instances": instances}
        return {**said, "first": first, "printed": printed[-2000:]}


class Pair(Holding):
    """Env factory: a program of a Bundle, with its evaluator in the same process.

    Args:
        pool: with the modules `WARM`.
        form: how a program is a Bundle.
    """

    def __init__(self, pool: Pool, evaluator: Evaluator, options: JudgeOptions, form: Form) -> None:
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

    def policy(self, bundle: Bundle, seed: int, /) -> Policy:
        """The program as the bundle has it; nothing is drawn by chance out here."""
        return _Beside(self, bundle)

    @asynccontextmanager
    async def opened(self, bundle: Bundle) -> AsyncIterator[object]:
        """A process of its own for one candidate, in which everything about it happens."""
        program = self.form.program(bundle)
        source = self._staged | {f"program/{name}": text for name, text in program.parts.items()}
        if self.calls:
            source[_CALLS] = self.calls
        async with self.runner.open(source, f"{DOOR}:handle") as session:
            yield session

    def score(self, trajectory: Trajectory) -> float | None:
        """The Reward `score`: what the evaluator gave; None where it was not asked, or the program failed."""
        asked = trajectory.task.initial_state.get("ask") == "evaluate"
        if not asked or trajectory.error is not None:
            return None
        return self.fitness(trajectory.output["metrics"])

    def fitness(self, metrics: Mapping[str, float]) -> float | None:
        """`combined_score`, else the mean of the numbers that are no feature; None without any."""
        if "combined_score" in metrics:
            return float(metrics["combined_score"])
        numbers = {name: float(value) for name, value in metrics.items() if not isinstance(value, bool)}
        counted = [value for name, value in numbers.items() if name not in self.options.feature_dimensions]
        counted = counted or list(numbers.values())
        return sum(counted) / len(counted) if counted else None

    def passes(self, metrics: Mapping[str, float], threshold: float) -> bool:
        """Whether a stage reached its threshold."""
        score = self.fitness(metrics)
        return score is not None and score >= threshold


class PairJudge(Judging):
    """Programs judged by their evaluator, through `context.rollout`.

    `await prepare(start)` comes first.  Several candidates may be at work at a time.
    """

    most = 2

    def __init__(self, pair: Pair, rollout: Rollout) -> None:
        self.pair, self._rollout = pair, rollout
        self.evaluations = 0
        """Programs that reached the evaluator."""
        self.repeated: tuple[float, float] | None = None
        """What the first stage gave the start program, and gave it again; None where it was asked once."""

    @property
    def cpu_seconds(self) -> float:
        """Of candidates and evaluators."""
        return self.pair.cpu_seconds

    async def ask(self, bundle: Bundle, ask: str) -> Trajectory:
        """One rollout of one task."""
        (group,) = await self._rollout(bundle, [self.pair.tasks[ask]])
        return group.trajectories[0]

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start program, and the evaluator by it.

        Raises:
            InputError: the evaluator or the start program does not run.
            TrainingRefused: the evaluator gives the start program what it gives to wreckage.
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
        behaviour, again = [await self.smoke(start) for _ in range(2)]
        if behaviour.failure or behaviour.behaviour != again.behaviour:
            pair.calls, pair.own_behaviour = "", False  # it differs from itself: nothing can be told by it
            return judged
        return replace(judged, behaviour=behaviour.behaviour)

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
            return  # nothing is earned yet, and of the wrecks alone it says that they fail
        raise TrainingRefused(
            f"the evaluator gives {judged.score:g} to the start program, and no less to "
            f"{' and to '.join(wrecks)} ({', '.join(f'{score:g}' for score in scores)}). It cannot tell "
            "better from worse; let it fail, or score lower, when the program does.\n"
            + await self._said(start)
        )

    async def _said(self, start: Program) -> str:
        """What an evaluator says of the start program when it is asked once more, for whoever has to mend it."""
        async with self.bench(start) as bench:
            judged = await bench.score()
        said = _complaint(judged) or bench.printed.strip()[-1000:]
        return (f"Of the start program it says: {said}" if said else "") + self._seen()

    def _seen(self) -> str:
        """What there is where it runs: mostly what it lacks is there out here."""
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

    async def smoke(self, program: Program) -> Judgement:
        """`Bench.smoke` in a process for it alone."""
        async with self.bench(program) as bench:
            return await bench.smoke()


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
        found = run.output
        self.printed = found["printed"]
        score = run.score("score")
        return Judgement(
            score, found["metrics"], found["artifacts"], found["instances"], first=found["first"]
        )


def _failed(run: Trajectory) -> Judgement:
    broken = run.outcome is Outcome.INFRASTRUCTURE_ERROR
    return Judgement(failure=_line(run), timeout=timed_out(run), infrastructure=broken)


def _complaint(judged: Judgement) -> str:
    """Why a program failed, "" where nothing is said of it: of evaluators that give a score even so."""
    said = [judged.artifacts.get(name, "") for name in ("error", "error_message", "stderr")]
    return judged.failure or next((each[:2000] for each in said if each.strip()), "")


def _line(run: Trajectory) -> str:
    assert run.error is not None
    return f"{run.error.type}: {run.error.message}"[:2000]
