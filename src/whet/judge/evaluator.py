"""An evaluator that somebody wrote, as data: its text, what it judges, and how to call it.

Nothing of it is imported here.  Its syntax tree says what it takes: a path (it judges programs, as
OpenEvolve's `evaluate(path)`), a trajectory (a Reward of ours), or an answer with what was expected
and what was asked, in any order, told apart by the names of its parameters.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from ..errors import InputError, NotFoundError
from ..python_text import module_of
from ..types import Json

Kind = Literal["program", "answer", "trajectory"]

_ROLES: dict[str, str] = {
    "program": "program program_path path file filename file_path candidate_path",
    "trajectory": "trajectory run rollout",
    "output": "output answer prediction predicted pred response text candidate completion actual result got value",
    "expected": "expected reference gold target label truth ground_truth correct wanted want solution ideal",
    "input": "input question prompt query instruction context task source document inputs x",
}
"""Role → the names of parameters that have it."""

_BY_POSITION = {1: ("output",), 2: ("output", "expected"), 3: ("input", "output", "expected")}
_NAMES = ("evaluate", "score", "judge", "grade", "reward", "metric", "evaluator")

_ADAPTER = """
import inspect
import evaluator

TEXTS = ("feedback", "reason", "explanation", "message", "comment", "artifacts")


def number(value):
    return None if value is None else float(value)


def texts(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for name, inner in value.items() for one in [str(name), *texts(inner)]]
    if isinstance(value, (list, tuple, set)):
        return [one for inner in value for one in texts(inner)]
    return [] if value is None or isinstance(value, (int, float)) else [str(value)]


def of_dict(value):
    for name in ("combined_score", "score", "value", "reward"):
        if name in value:
            return number(value[name])
    numbers = [float(one) for one in value.values() if isinstance(one, (int, float))]
    return sum(numbers) / len(numbers) if numbers else None


def judged(value):
    if isinstance(value, dict):
        return of_dict(value), texts({name: one for name, one in value.items() if isinstance(one, (str, dict, list))})
    if isinstance(value, (list, tuple)):
        return number(value[0]), texts(list(value[1:]))
    if isinstance(getattr(value, "metrics", None), dict):
        return of_dict(value.metrics), texts(getattr(value, "artifacts", None))
    for name in ("value", "score"):
        if hasattr(value, name):
            return number(getattr(value, name)), [t for one in TEXTS for t in texts(getattr(value, one, None))]
    return number(value), []


async def judge(args):
    value = getattr(evaluator, FUNCTION)(*[prepared(one) for one in args])
    if inspect.isawaitable(value):
        value = await value
    score, said = judged(value)
    if score is None or score - score != 0:  # None, NaN, or infinite, whose scores no comparison means anything with
        raise ValueError(f"{FUNCTION} returned {value!r:.200}, which holds no finite score")
    return {"score": score, "feedback": chr(10).join(said)}
"""
_AS_GIVEN = "\n\ndef prepared(value):\n    return value\n"
_AS_TRAJECTORY = """

def prepared(row):
    from whet.types import Step, Task, Trajectory
    task = Task(instruction=str(row["input"] or ""), answer=row["expected"], meta={"answer_known": True})
    step = Step(observation=row["input"], action=row["output"], done=True, id="0")
    return Trajectory(task=task, steps=(step,), output=row["output"], id="audit", started=0.0)
"""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """An evaluator as text, to be proven.

    Args:
        name: what tables call it.
        files: relative path → content; `evaluator.py` and what it needs beside it.
        function: the name to call.
        kind: what it judges.
        roles: of its parameters in order: `input`, `output`, `expected`.
    """

    name: str
    files: Mapping[str, str | bytes]
    function: str
    kind: Kind
    roles: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """A hash of all its text: an edit is another version, and has to be proven again."""
        text_hash = hashlib.sha256()
        for name in sorted(self.files):
            content = self.files[name]
            text_hash.update(
                name.encode() + b"\0" + (content.encode() if isinstance(content, str) else content)
            )
        return text_hash.hexdigest()[:12]

    @property
    def staged(self) -> dict[str, str | bytes]:
        """The files with what calls them: entry `adapter:judge`, one list of arguments."""
        prepared = _AS_TRAJECTORY if self.kind == "trajectory" else _AS_GIVEN
        return {**self.files, "adapter.py": f"FUNCTION = {self.function!r}\n{_ADAPTER}{prepared}"}

    def arguments(self, input: Json, output: Json, expected: Json) -> list[Json]:
        """The arguments of a call, in the order of its parameters."""
        row = {"input": input, "output": output, "expected": None if expected is UNSET else expected}
        return [row] if self.kind == "trajectory" else [row[role] for role in self.roles]


def from_source(source: str, name: str = "evaluator") -> Evaluator:
    """An evaluator given as text.

    Raises:
        InputError: it is no Python, or none of its functions looks like an evaluator.
    """
    return _evaluator_in(name, {"evaluator.py": source}, source, "")


def load(spec: str) -> Evaluator:
    """An evaluator named on the command line: `file.py`, `file.py:function` or `module:function`.

    Files beside it that its text names are staged with it.

    Raises:
        NotFoundError: there is no such file or module.
        InputError: it is no Python, or none of its functions looks like an evaluator.
    """
    where, _, function = spec.rpartition(":") if ":" in spec else (spec, "", "")
    path = Path(where)
    if not path.is_file():
        path = _module(where)
    source = _source(path)
    files: dict[str, str | bytes] = {"evaluator.py": source, **dict(_beside(path, source))}
    name = path.stem if path.stem != "evaluator" else path.resolve().parent.name or path.stem
    return _evaluator_in(name, files, source, function)


def program_text(spec: str) -> str:
    """The text of a program named as `file.py`, `file.py:function` or `module:function`; nothing is imported.

    Raises:
        NotFoundError: there is no such file or module.
        InputError: it is not UTF-8.
    """
    where = spec.rpartition(":")[0] or spec
    path = Path(where)
    return _source(path if path.is_file() else _module(where))


def _source(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark before it
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no Python source: {error}") from error


def _module(name: str) -> Path:
    """The file of a dotted module, found without importing the packages above it."""
    # find_spec would import, and so run, the packages above it.
    relative = Path(*name.split("."))
    for root in (Path.cwd(), *(Path(path) for path in sys.path if path)):
        for candidate in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
            if relative.suffix == "" and candidate.is_file():
                return candidate
    raise NotFoundError(
        f"there is no Python file or module {name}; give a Python file, file.py:function or module:function"
    )


def _beside(path: Path, source: str) -> Iterator[tuple[str, bytes]]:
    """Small files in the same folder that the text imports, or names in a string."""
    words: set[str] = set()
    for node in ast.walk(_parsed(source, str(path))):
        if isinstance(node, ast.Import):
            words |= {alias.name.partition(".")[0] + ".py" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            words.add(node.module.partition(".")[0] + ".py")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    for neighbour in sorted(path.parent.iterdir()):
        # `Evaluator.staged` puts an adapter.py of its own there.
        named = neighbour.name in words and neighbour != path and neighbour.name != "adapter.py"
        if named and neighbour.is_file() and neighbour.stat().st_size <= 4 << 20:
            yield neighbour.name, neighbour.read_bytes()


def _parsed(source: str, name: str) -> ast.Module:
    try:
        return module_of(source, name)
    except SyntaxError as error:
        raise InputError(f"{name} is no Python that can be read: {error}") from error


def _evaluator_in(name: str, files: Mapping[str, str | bytes], source: str, function: str) -> Evaluator:
    tree = _parsed(source, name)
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    matching = [node for node in defined if node.name == function] if function else list(_likely(defined))
    if not matching:
        sought = (
            f"function {function!r}"
            if function
            else "function named evaluate (or score, judge, grade, reward)"
        )
        names = ", ".join(node.name for node in defined) or "none"
        raise InputError(f"{name} has no {sought}; it defines: {names}. Name one as {name}.py:function")
    arguments = matching[0].args
    named = [*arguments.posonlyargs, *arguments.args]
    required = [parameter.arg for parameter in named[: len(named) - len(arguments.defaults)]]
    kind, roles = _roles(required, [parameter.arg for parameter in named], name)
    return Evaluator(name, dict(files), matching[0].name, kind, roles)


def _likely(
    defined: Sequence[ast.FunctionDef | ast.AsyncFunctionDef],
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    public = [node for node in defined if not node.name.startswith("_")]
    for word in _NAMES:
        yield from (node for node in public if node.name == word)
    for word in _NAMES:
        yield from (node for node in public if word in node.name)
    if len(public) == 1:
        yield public[0]


def _role(name: str) -> str:
    low = name.lower().strip("_")
    return next((role for role, names in _ROLES.items() if low in names.split()), "")


def _roles(required: Sequence[str], every: Sequence[str], name: str) -> tuple[Kind, tuple[str, ...]]:
    first = _role(every[0]) if every else ""
    if first == "program" and len(required) <= 1:
        return "program", ()
    if first == "trajectory" and len(required) <= 1:
        return "trajectory", ()
    parameters = list(required)
    # An optional parameter with a telling name is used too: expected=None is still what was expected.
    for parameter in every[len(required) :]:
        if _role(parameter) not in ("input", "output", "expected"):
            break
        parameters.append(parameter)
    roles = tuple(_role(parameter) for parameter in parameters)
    if "output" in roles and len(set(roles)) == len(roles) and "" not in roles:
        return "answer", roles
    if len(parameters) in _BY_POSITION:
        return "answer", _BY_POSITION[len(parameters)]
    raise InputError(
        f"{name} takes ({', '.join(every)}), which says neither what is judged nor what was expected; name its "
        "parameters output, expected and input, or take one program_path"
    )
