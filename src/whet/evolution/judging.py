"""How a candidate is judged: smoke run and fingerprint first, then the stages of the evaluator.

An evaluator is a Python file with `evaluate(path)`, or with `evaluate_stage1` to `3` of which each
runs only if the score so far reaches its threshold: OpenEvolve's contract.  It runs in one process
with the program, so its scores steer a search and prove nothing (`co_resident`).  An evaluator that
cannot tell the start program from an empty one is refused before anything is spent on it.

What happens is counted, not timed, so the same candidates come to the same scores on any machine.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from ..errors import InputError, TrainingRefused
from ..types import Failure, Fault, Json
from .program import Program, text_of

DOOR = "inside.door"
"""The module of the sandbox through which evaluator and candidate are reached."""
WARM = (DOOR,)
"""The modules of a pool for a Judge: loaded before the first fork, they cost a candidate nothing."""
_RETRIES = 2
_CALLS = "calls.json"
"""Where the calls that are compared lie beside the program."""


class Ran(Protocol):
    """What came of one call: `whet.sandbox.Result` has this form."""

    @property
    def value(self) -> Json: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def stdout(self) -> str: ...
    @property
    def killed_by(self) -> str | None: ...
    @property
    def trusted_only(self) -> bool: ...


class Opened(Protocol):
    """A process that holds staged code and answers calls until one of them ends it."""

    async def call(
        self, args: Sequence[Json] = (), *, seconds: float | None = None, last: bool = False
    ) -> Ran: ...


class Runner(Protocol):
    """Makes processes that hold staged code: `whet.sandbox.Pool` does."""

    def open(self, source: Mapping[str, str | bytes], entry: str) -> AbstractAsyncContextManager[Opened]: ...


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
    def read(cls, path: Path, *, without: Path | None = None, limit: int = 16 << 20) -> Evaluator:
        """The evaluator in a file, with the files of its folder, which it may read and import.

        Args:
            without: a folder to leave out: the one that results are written to. Others that hold results of ours
                are left out by themselves.
            limit: bytes; a folder with more is taken without its subfolders.

        Raises:
            InputError: no such file, or a folder that is too large even so.
        """
        text = text_of(path, "evaluator")
        left_out = {each.parent.resolve() for each in path.parent.glob("**/evolution.db")}
        if without is not None:
            left_out.add(without.resolve())
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
    return not set(without) & set(path.resolve().parents)


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


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one candidate; a failure is data."""

    score: float | None = None
    """None if it has none: it failed, or the machine did."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    instances: Mapping[str, float] = field(default_factory=dict)
    """Instance → score, where the evaluator gives them under `instances`."""
    failure: str | None = None
    """What went wrong, in a line that a model can mend its program from."""
    timeout: bool = False
    infrastructure: bool = False
    """The machine failed, not the program."""
    behaviour: str = ""
    """Fingerprint; "" where nothing is known."""
    first: float | None = None
    """The score of the first stage alone."""


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


class Benched(Protocol):
    """One candidate at work: first `smoke`, then `score`."""

    async def smoke(self) -> Judgement: ...
    async def score(self) -> Judgement: ...


class Judging(Protocol):
    """What a search asks of a judge: `Judge` beside the program, or `outside.Outside`."""

    cpu_seconds: float

    async def prepare(self, start: Program) -> Judgement: ...
    def bench(self, program: Program) -> AbstractAsyncContextManager[Benched]: ...
    async def score(self, program: Program) -> Judgement: ...


class Judge:
    """An evaluator at work.

    `await prepare(start)` comes first.  A candidate is judged on a Bench, a process of its own, and
    several may be at work at a time.
    """

    def __init__(self, runner: Runner, evaluator: Evaluator, options: JudgeOptions) -> None:
        self._runner, self.evaluator, self.options = runner, evaluator, options
        self.cpu_seconds = 0.0
        self.evaluations = 0
        """Programs that reached the evaluator."""
        self.timeouts = 0
        self.trusted_only = False
        self.stages: list[str] = ["evaluate"]
        self.own_behaviour = False
        self.repeated: tuple[float, float] | None = None
        """What the first stage gave the start program, and gave it again; None where it was asked once."""
        self.calls: list[Json] = []
        self._recorded = ""
        self._staged = {f"evaluator/{name}": text for name, text in evaluator.parts.items()}
        self.path = f"evaluator/{evaluator.main}"

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start program, and the evaluator by it.

        Raises:
            InputError: the evaluator or the start program does not run.
            TrainingRefused: the evaluator gives the start program what it gives to wreckage.
        """
        async with self.bench(start) as bench:
            found = await bench.ask("stages", [self.path])
        if found.failure is not None:
            raise InputError(
                f"the evaluator {self.evaluator.main} does not load: {_line(found)}.{self._seen()}"
            )
        names: list[str] = found.value
        cascade = self.options.cascade_evaluation and "evaluate_stage1" in names
        self.stages = [name for name in names if name.startswith("evaluate_")] if cascade else ["evaluate"]
        self.own_behaviour = "behaviour" in names
        judged = await self._start(start)
        if judged.score is None:
            raise InputError(
                f"the start program has no score: {_complaint(judged) or 'no number came back'}. Mend the "
                f"evaluator, or begin with a program that it accepts.{self._seen()}"
            )
        await self._refuse_blind(start, judged)
        behaviour, again = [await self.smoke(start) for _ in range(2)]
        if behaviour.failure or behaviour.behaviour != again.behaviour:
            self.calls, self.own_behaviour = [], False  # it differs from itself: nothing can be told by it
            return judged
        return replace(judged, behaviour=behaviour.behaviour)

    async def _start(self, start: Program) -> Judgement:
        """The start program's judgement; its calls are recorded on the way."""
        once: float | None = None
        if self.options.fingerprint and not self.own_behaviour and start.main.endswith(".py"):
            async with self.bench(start) as bench:
                found = await bench.ask("record", [self.path, self.stages[0], bench.at])
            if found.failure is None and isinstance(found.value, dict):
                self.calls = found.value.get("calls", [])
                self._recorded = msgspec.json.encode(self.calls).decode()
                once = self.fitness(found.value.get("metrics", {}))
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
        if self.trusted_only:
            return ""
        return (
            f"\nIt runs in the sandbox, without network, and sees the files of its own folder, the modules of "
            f"{sys.executable} and system programs, nothing else."
        )

    @asynccontextmanager
    async def bench(self, program: Program) -> AsyncIterator[Bench]:
        """A process of its own for one candidate, in which everything about it happens."""
        source = self._staged | {f"program/{name}": text for name, text in program.parts.items()}
        if self.calls:
            source[_CALLS] = self._recorded
        async with self._runner.open(source, f"{DOOR}:handle") as opened:
            yield Bench(self, opened, program)

    async def smoke(self, program: Program) -> Judgement:
        """`Bench.smoke` in a process for it alone."""
        async with self.bench(program) as bench:
            return await bench.smoke()

    async def score(self, program: Program) -> Judgement:
        """`Bench.score` in a process for it alone; the machine's failures are tried again."""
        judged = Judgement()
        for _ in range(_RETRIES + 1):
            async with self.bench(program) as bench:
                judged = await bench.score()
            if not judged.infrastructure:
                break
        return judged

    def fitness(self, metrics: Mapping[str, float]) -> float | None:
        """`combined_score`, else the mean of the numbers that are no feature; None without any."""
        if "combined_score" in metrics:
            return float(metrics["combined_score"])
        numbers = {name: float(value) for name, value in metrics.items() if not isinstance(value, bool)}
        counted = [value for name, value in numbers.items() if name not in self.options.feature_dimensions]
        counted = counted or list(numbers.values())
        return sum(counted) / len(counted) if counted else None

    def passes(self, metrics: Mapping[str, float], threshold: float) -> bool:
        score = self.fitness(metrics)
        return score is not None and score >= threshold


class Bench:
    """One candidate in its process: first `smoke`, then `score`."""

    def __init__(self, judge: Judge, opened: Opened, program: Program) -> None:
        self._judge, self._opened, self._program = judge, opened, program
        self.at = f"program/{program.main}"
        self.printed = ""
        """The end of what was printed while it was scored."""

    async def ask(self, function: str, args: list[Json], *, last: bool = False) -> Ran:
        """Call one of our functions inside; `last` if nothing more will be asked of this process."""
        judge = self._judge
        found = await self._opened.call([function, args], seconds=judge.options.timeout, last=last)
        judge.cpu_seconds += found.cpu_seconds
        judge.trusted_only = judge.trusted_only or found.trusted_only
        return found

    async def smoke(self) -> Judgement:
        """Import it and run it on recorded calls; `behaviour` is its fingerprint, `failure` why not."""
        judge = self._judge
        if not self._program.main.endswith(".py") or not judge.options.fingerprint:
            return Judgement()
        if judge.own_behaviour:
            found = await self.ask("behaviour", [judge.path, self.at])
        elif judge.calls:
            found = await self.ask("behave", [self.at, _CALLS])
        else:
            return Judgement()
        return self._failed(found) if found.failure is not None else Judgement(behaviour=str(found.value))

    async def score(self) -> Judgement:
        """Run the evaluator's stages as far as the thresholds let it."""
        judge = self._judge
        judge.evaluations += 1
        metrics: dict[str, float] = {}
        artifacts: dict[str, str] = {}
        instances: dict[str, float] = {}
        first: float | None = None
        for number, stage in enumerate(judge.stages):
            last = stage == judge.stages[-1]
            found = await self.ask("evaluate", [judge.path, stage, self.at], last=last)
            self.printed += found.stdout
            if found.failure is not None:
                failed = self._failed(found)
                if not number or failed.infrastructure:
                    return failed
                artifacts[f"{stage.removeprefix('evaluate_')}_stderr"] = failed.failure or ""
                metrics[f"{stage.removeprefix('evaluate_')}_passed"] = 0.0
                break
            metrics |= {name: value for name, value in found.value["metrics"].items() if name != "error"}
            artifacts |= found.value["artifacts"]
            instances |= found.value["instances"]
            first = judge.fitness(metrics) if not number else first
            # As OpenEvolve has it: a stage is reached over a threshold, and without one not at all.
            thresholds = judge.options.cascade_thresholds
            if number >= len(thresholds) or not judge.passes(metrics, thresholds[number]):
                break
        return Judgement(judge.fitness(metrics), metrics, artifacts, instances, first=first)

    def _failed(self, found: Ran) -> Judgement:
        assert found.failure is not None
        timeout = found.killed_by in ("wall", "cpu")
        self._judge.timeouts += timeout
        machine = found.failure.fault is Fault.SANDBOX
        return Judgement(failure=_line(found), timeout=timeout, infrastructure=machine)


def unreadable(program: Program, most: int) -> str | None:
    """Why a program is not worth a process, None if it is: longer than `most` characters, or no Python."""
    length = sum(map(len, program.parts.values()))
    if length > most:
        return f"TooLong: {length} characters, and {most} are allowed (max_code_length)"
    for name, text in program.parts.items():
        if name.endswith(".py"):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a blind edit subscripts numbers; that is its affair
                    compile(text, name, "exec", dont_inherit=True)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                return f"SyntaxError: {error}"
    return None


def _complaint(judged: Judgement) -> str:
    """Why a program failed, "" where nothing is said of it: of evaluators that give a score even so."""
    said = [judged.artifacts.get(name, "") for name in ("error", "error_message", "stderr")]
    return judged.failure or next((each[:2000] for each in said if each.strip()), "")


def _line(found: Ran) -> str:
    assert found.failure is not None
    return f"{found.failure.type}: {found.failure.message}"[:2000]
