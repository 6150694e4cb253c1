"""Proposes what to mark in a repository that marks nothing: prompts, thresholds and tables, functions with a result.

It reads the syntax tree and runs nothing, so it cannot say what is worth improving, only what could be: whoever knows
the code marks it.  Functions need no mark: `whet evolve module:function` takes them as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from ....repository.modules import Module, Repository
from ....repository.syntax import FunctionNode, defines, is_method
from ....types import Json

MOST = 12
"""Proposals that are made."""
_PROMPT_NAME = re.compile(r"prompt|instruct|system|template|persona|guideline|rubric", re.IGNORECASE)
_PROMPT_TEXT = re.compile(
    r"\b(you are|your task|answer (?:the|with|in|only)|respond|reply|classify|summari[sz]e|do not)\b",
    re.IGNORECASE,
)
_LONG = 60
"""Characters from which a text that addresses somebody is taken for a prompt."""
_PASSED_OVER = re.compile(
    r"(?:^|/)(?:tests?|evals?|benchmarks?|docs?|examples?|migrations|setup\.py|conftest\.py)(?:/|$)|(?:^|/)test_"
)


@dataclass(frozen=True, slots=True)
class Unmarked:
    """One part that could be improved, and what to write or to run for it."""

    path: str
    line: int
    name: str
    kind: str
    why: str
    do: str

    def json(self) -> dict[str, Json]:
        """As `--json` has it."""
        return {name: getattr(self, name) for name in ("path", "line", "name", "kind", "why", "do")}


def passed_over(path: PurePath) -> bool:
    """True for a file of a repository that is about the agent and no part of it: tests, evals, examples."""
    return _PASSED_OVER.search(path.as_posix()) is not None


def proposals(root: Path) -> list[Unmarked]:
    """What could be marked in a repository, prompts first; at most MOST.

    Raises:
        InputError: `root` is not a folder.
    """
    return changeable(root)[:MOST]


def changeable(root: Path) -> list[Unmarked]:
    """All that could be improved in a repository, prompts first, then constants, then functions.

    Raises:
        InputError: `root` is not a folder.
    """
    repository = Repository(root.resolve())
    proposed: list[tuple[int, Unmarked]] = []
    for path in repository.files(".py"):
        if passed_over(path.relative_to(repository.root)):
            continue
        module = repository.load(path)
        if module is not None:
            proposed += _of_module(module)
    # Stable: of one rank in the order of the files.
    return [proposal for _, proposal in sorted(proposed, key=lambda ranked: ranked[0])]


def functions(root: Path) -> list[Unmarked]:
    """Every public function or method that returns something, whether or not it decides anything.

    Raises:
        InputError: `root` is not a folder.
    """
    repository, listed = Repository(root.resolve()), list[Unmarked]()
    for path in repository.files(".py"):
        module = repository.load(path)
        if module is None or passed_over(path.relative_to(repository.root)):
            continue
        for node, name in definitions(module.tree):
            returns = any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(node))
            if returns and not node.name.startswith("_"):
                do = f"run `whet evolve {module.name}:{name}`"
                listed.append(
                    Unmarked(module.path.as_posix(), node.lineno, name, "function", "it returns a value", do)
                )
    return listed


def definitions(tree: ast.Module) -> Iterator[tuple[FunctionNode, str]]:
    """Functions of a module, and plain methods of its classes, with their qualified names."""
    for node in tree.body:
        if isinstance(node, FunctionNode):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and is_method(inner):
                    yield inner, f"{node.name}.{inner.name}"


def _of_module(module: Module) -> Iterator[tuple[int, Unmarked]]:
    path = module.path.as_posix()
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and defines(node) and node.value is not None:
            kind, why = _constant(defines(node)[0], node.value)
            if kind:
                do = f"write `# whet: evolve kind={kind}` on the line above"
                yield kind != "prompt", Unmarked(path, node.lineno, defines(node)[0], kind, why, do)
        elif isinstance(node, ast.FunctionDef) and (why := _function(node)):
            do = f"run `whet evolve {module.name}:{node.name}`, or write `@whet.evolve` above it"
            yield 2, Unmarked(path, node.lineno, node.name, "function", why, do)


def is_prompt(name: str, text: str) -> bool:
    """True for a text that a model seems to read, by its name or by how it speaks."""
    addresses = len(text) >= _LONG and _PROMPT_TEXT.search(text) is not None
    return len(text.split()) >= 4 and (addresses or _PROMPT_NAME.search(name) is not None)


def _constant(name: str, value: ast.expr) -> tuple[str, str]:
    """Kind of a constant that could be improved, and why; two empty texts for any other."""
    text = _text(value)
    if text is not None:
        return (
            ("prompt", f"a text of {len(text.split())} words that a model seems to read")
            if is_prompt(name, text)
            else ("", "")
        )
    if not name.isupper():
        return "", ""
    try:
        literal = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return "", ""
    if isinstance(literal, int | float) and not isinstance(literal, bool):
        return "flow", f"a number that the code goes by: {literal!r}"
    if isinstance(literal, dict | list | tuple) and 1 < len(literal) <= 200:
        return "flow", f"a table of {len(literal)} entries"
    return "", ""


def _text(value: ast.expr) -> str | None:
    """The text of a literal, also of one in an f-string or put together with +; None for anything else."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _text(value.left), _text(value.right)
        return None if left is None or right is None else left + right
    return None


def _function(node: ast.FunctionDef) -> str:
    """The reason to improve a function; "" for one that is private, decorated, or gives nothing to compare."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    returned = [part for part in ast.walk(node) if isinstance(part, ast.Return) and part.value is not None]
    generates = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))
    if node.name.startswith("_") or node.decorator_list or not arguments or not returned or generates:
        return ""
    decides = sum(isinstance(part, ast.If | ast.IfExp | ast.Compare) for part in ast.walk(node))
    if not decides:
        return ""
    return f"it decides in {decides} place{'s' * (decides > 1)} and returns a value that rows can be compared with"
