"""How a candidate is judged: smoke run and fingerprint first, then the stages of the evaluator.

An evaluator is a Python file with `evaluate(path)`, or with `evaluate_stage1` to `3` of which each
runs only if the score so far reaches its threshold: OpenEvolve's contract.  It runs in one process
with the program, so its scores steer a search and prove nothing (`co_resident`).  An evaluator that
cannot tell the start program from an empty one is refused before anything is spent on it.

What happens is counted, not timed, so the same candidates come to the same scores on any machine.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from ..errors import InputError, TrainingRefused
from ..types import Failure, Fault, Json
from .program import Program

INSIDE = "whet_inside"
"""The package that our own part inside is staged as."""
WARM = ("hashlib", "importlib.util", "inspect", "json", "random", "threading")
"""What it imports: loaded before the first fork, an evaluation costs half."""
_RETRIES = 2


class Ran(Protocol):
    """What came of one call: `whet.sandbox.Result` has this form."""

    @property
    def value(self) -> Json: ...
    @property
    def failure(self) -> Failure | None: ...
    @property
    def cpu_seconds(self) -> float: ...
    @property
    def killed_by(self) -> str | None: ...
    @property
    def trusted_only(self) -> bool: ...


class Runner(Protocol):
    """Runs one function of staged code on JSON arguments: `whet.sandbox.Pool` is one."""

    async def call(
        self,
        source: Mapping[str, str | bytes],
        entry: str,
        args: Sequence[Json] = (),
        *,
        seconds: float | None = None,
    ) -> Ran: ...


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
        named = {name for node in tree.body for name in _defined(node)}
        if not named & {"evaluate", "evaluate_stage1", "*"}:
            raise InputError(
                f"the evaluator {self.main} defines no evaluate(path_of_the_program). Add one that returns "
                "a dict of numbers, with the number to maximise under 'combined_score'."
            )

    @classmethod
    def read(cls, path: Path, *, without: Path | None = None, limit: int = 16 << 20) -> Evaluator:
        """The evaluator in a file, with the files of its folder, which it may read and import.

        Args:
            without: a folder to leave out: the one that results are written to.
            limit: bytes; a folder with more is taken without its subfolders.

        Raises:
            InputError: no such file, or a folder that is too large even so.
        """
        if not path.is_file():
            raise InputError(f"there is no evaluator at {path}")
        left_out = without.resolve() if without else None
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
        parts[path.name] = path.read_text(encoding="utf-8")
        return cls(parts, path.name)


def _taken(path: Path, folder: Path, without: Path | None) -> bool:
    names = path.relative_to(folder).parts
    hidden = any(name.startswith(".") or name == "__pycache__" for name in names)
    if hidden or path.is_symlink() or not path.is_file():
        return False
    return without is None or without not in path.resolve().parents


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


class Judge:
    """An evaluator at work.

    `await prepare(start)` comes first; then `smoke` and `score` may run concurrently.
    """

    def __init__(self, runner: Runner, evaluator: Evaluator, options: JudgeOptions) -> None:
        self.runner, self.evaluator, self.options = runner, evaluator, options
        self.cpu_seconds = 0.0
        self.evaluations = 0
        """Programs that reached the evaluator."""
        self.timeouts = 0
        self.trusted_only = False
        self._stages: list[str] = ["evaluate"]
        self._behaviour = False
        self._calls: list[Json] = []
        self._staged: dict[str, str | bytes] = {f"{INSIDE}/__init__.py": ""}
        for name in ("beside.py", "probes.py"):
            text = files(__package__).joinpath(name).read_text(encoding="utf-8")
            self._staged[f"{INSIDE}/{name}"] = text
        self._staged |= {f"evaluator/{name}": text for name, text in evaluator.parts.items()}
        self._path = f"evaluator/{evaluator.main}"

    async def prepare(self, start: Program) -> Judgement:
        """Judge the start program, and the evaluator by it.

        Raises:
            InputError: the evaluator or the start program does not run.
            TrainingRefused: the evaluator gives the start program what it gives to wreckage.
        """
        found = await self._call("beside:stages", start, [self._path])
        if found.failure is not None:
            raise InputError(f"the evaluator {self.evaluator.main} does not load: {_line(found)}")
        names: list[str] = found.value
        cascade = self.options.cascade_evaluation and "evaluate_stage1" in names
        self._stages = [name for name in names if name.startswith("evaluate_")] if cascade else ["evaluate"]
        self._behaviour = "behaviour" in names
        judged = await self._start(start)
        if judged.score is None:
            raise InputError(
                f"the start program has no score: {judged.failure or 'no number came back'}. "
                "Begin with a program that the evaluator accepts."
            )
        await self._refuse_blind(start, judged)
        behaviour = await self._fingerprint(start)
        if behaviour.failure or behaviour.behaviour != (await self._fingerprint(start)).behaviour:
            self._calls, self._behaviour = [], False  # it differs from itself: nothing can be told by it
            return judged
        return _with_behaviour(judged, behaviour.behaviour)

    async def _start(self, start: Program) -> Judgement:
        """The start program's judgement; its calls are recorded on the way."""
        if self.options.fingerprint and not self._behaviour:
            found = await self._call("probes:record", start, [self._path, self._stages[0], self._at(start)])
            if found.failure is None and isinstance(found.value, dict):
                self._calls = found.value.get("calls", [])
        return await self.score(start)

    async def _refuse_blind(self, start: Program, judged: Judgement) -> None:
        scores = []
        for text in ("", "raise RuntimeError('a program that does not run')\n"):
            wreck = await self.score(start.with_part(start.main, text))
            scores.append(wreck.score)
        if all(score is not None and score >= (judged.score or 0.0) for score in scores):
            raise TrainingRefused(
                f"the evaluator gives {judged.score:g} to the start program, and no less to an empty file "
                f"and to one that raises ({', '.join(f'{score:g}' for score in scores)}). It cannot tell "
                "better from worse; let it fail, or score lower, when the program does."
            )

    async def smoke(self, program: Program) -> Judgement:
        """Parse, import and run it on recorded calls; `behaviour` is its fingerprint, `failure` why not."""
        for name, text in program.parts.items():
            if name.endswith(".py"):
                try:
                    compile(text, name, "exec", dont_inherit=True)
                except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                    return Judgement(failure=f"SyntaxError: {error}")
        return await self._fingerprint(program)

    async def _fingerprint(self, program: Program) -> Judgement:
        if not program.main.endswith(".py") or not (
            self.options.fingerprint and (self._calls or self._behaviour)
        ):
            return Judgement()
        if self._behaviour:
            found = await self._call("probes:behaviour", program, [self._path, self._at(program)])
        else:
            found = await self._call("probes:behave", program, [self._at(program), self._calls])
        if found.failure is not None:
            return self._failed(found)
        return Judgement(behaviour=str(found.value))

    async def score(self, program: Program) -> Judgement:
        """Run the evaluator's stages as far as the thresholds let it."""
        self.evaluations += 1
        metrics: dict[str, float] = {}
        artifacts: dict[str, str] = {}
        instances: dict[str, float] = {}
        for number, stage in enumerate(self._stages):
            found = await self._call("beside:evaluate", program, [self._path, stage, self._at(program)])
            if found.failure is not None:
                failed = self._failed(found)
                if not number:
                    return failed
                artifacts[f"{stage.removeprefix('evaluate_')}_stderr"] = failed.failure or ""
                metrics[f"{stage.removeprefix('evaluate_')}_passed"] = 0.0
                break
            metrics |= {name: value for name, value in found.value["metrics"].items() if name != "error"}
            artifacts |= found.value["artifacts"]
            instances |= found.value["instances"]
            thresholds = self.options.cascade_thresholds
            if number < len(thresholds) and not self._passes(metrics, thresholds[number]):
                break
        return Judgement(self.fitness(metrics), metrics, artifacts, instances)

    def fitness(self, metrics: Mapping[str, float]) -> float | None:
        """`combined_score`, else the mean of the numbers that are no feature; None without any."""
        if "combined_score" in metrics:
            return float(metrics["combined_score"])
        numbers = {name: float(value) for name, value in metrics.items() if not isinstance(value, bool)}
        counted = [value for name, value in numbers.items() if name not in self.options.feature_dimensions]
        counted = counted or list(numbers.values())
        return sum(counted) / len(counted) if counted else None

    def _passes(self, metrics: Mapping[str, float], threshold: float) -> bool:
        score = self.fitness(metrics)
        return score is not None and score >= threshold

    def _at(self, program: Program) -> str:
        return f"program/{program.main}"

    async def _call(self, function: str, program: Program, args: list[Json]) -> Ran:
        """One call inside; the machine's failures are tried again, the program's are not."""
        source = self._staged | {f"program/{name}": text for name, text in program.parts.items()}
        for attempt in range(_RETRIES + 1):
            found = await self.runner.call(source, f"{INSIDE}.{function}", args, seconds=self.options.timeout)
            self.cpu_seconds += found.cpu_seconds
            self.trusted_only = self.trusted_only or found.trusted_only
            if found.failure is None or found.failure.fault is not Fault.SANDBOX or attempt == _RETRIES:
                break
        return found

    def _failed(self, found: Ran) -> Judgement:
        assert found.failure is not None
        timeout = found.killed_by in ("wall", "cpu")
        self.timeouts += timeout
        machine = found.failure.fault is Fault.SANDBOX
        return Judgement(failure=_line(found), timeout=timeout, infrastructure=machine)


def _line(found: Ran) -> str:
    assert found.failure is not None
    return f"{found.failure.type}: {found.failure.message}"[:2000]


def _with_behaviour(judged: Judgement, behaviour: str) -> Judgement:
    return Judgement(judged.score, judged.metrics, judged.artifacts, judged.instances, behaviour=behaviour)
