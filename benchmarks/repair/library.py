"""Small pure functions of the standard library, found by their texts, each with inputs that it takes.

A function is taken if all that it needs is a built-in without side effects, a module such as `re` or `math`, or other
functions and constants of its module, which are copied with it.  Nobody says which inputs it takes: values of
many kinds are tried, and those kinds are kept under which most of its lines run and its answers differ most.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import hashlib
import json
import random
import signal
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS, LEAST = 60, 40
"""Rows of a function, and the fewest with which it is taken."""
_LINES = range(4, 31)
_NEEDED = 60
"""Lines that are copied along with a function, at most."""
_ASSIGNMENTS = 60
"""Ways to say which parameter takes which kind."""
_DRAWS, _SECONDS = 900, 0.05
_MODULES = frozenset(
    [
        "re",
        "math",
        "cmath",
        "string",
        "itertools",
        "functools",
        "operator",
        "collections",
        "bisect",
        "heapq",
        "unicodedata",
        "keyword",
        "stat",
    ]
)
_IMPURE = frozenset(
    [
        "open",
        "exec",
        "eval",
        "compile",
        "input",
        "print",
        "globals",
        "locals",
        "vars",
        "dir",
        "id",
        "hash",
        "memoryview",
        "breakpoint",
        "help",
        "exit",
        "quit",
        "setattr",
        "delattr",
        "__import__",
        "super",
        "object",
        "type",
        "classmethod",
        "staticmethod",
        "property",
    ]
)
_BUILT_IN = frozenset(dir(builtins)) - _IMPURE
_LEFT_OUT = frozenset(
    [
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "site-packages",
        "dist-packages",
        "ensurepip",
        "pydoc_data",
        "__pycache__",
    ]
)

Draw = Callable[[random.Random], Any]


@dataclass(frozen=True)
class Function:
    """A function with the text that it needs, and rows of it."""

    name: str
    """Of its module and itself."""
    target: str
    text: str
    rows: list[dict[str, Any]]


def functions(part: str, most: int, installed: bool = False) -> Iterator[Function]:
    """Functions of the library, in an order that depends on nothing but their names.

    Args:
        part: `held`, or `tuned`, the half that the search may be tuned on.
        installed: of the packages that are installed, in place of the standard library.
    """
    root = Path(sysconfig.get_paths()["purelib" if installed else "stdlib"])
    texts: list[tuple[str, str, str]] = []
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            texts += _pure(path, ".".join(path.relative_to(root).with_suffix("").parts))
    count = 0
    seen: set[str] = set()
    for name, target, text in sorted(texts, key=lambda found: _digest(found[0])):
        body = text[text.rindex("def " + target) :]
        if count == most or body in seen or (int(_digest(name)[0], 16) % 2 == 0) != (part == "held"):
            continue
        seen.add(body)
        rows = _rows(name, target, text)
        if rows is not None:
            count += 1
            yield Function(name, target, text, rows)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _pure(path: Path, module: str) -> Iterator[tuple[str, str, str]]:
    """Name, function and standalone text of the pure functions of a module."""
    try:
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError):
        return
    if not text.isascii():
        return
    names = _defined(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in names and _fits(node):
            needed: dict[str, ast.stmt] = {}
            if _needs(node, names, needed):
                before = [part for key, part in needed.items() if key != node.name]
                parts = [ast.get_source_segment(text, part) or "" for part in (*before, node)]
                if sum(part.count("\n") + 1 for part in parts[:-1]) <= _NEEDED:
                    yield f"{module}.{node.name}", node.name, "\n\n".join(parts) + "\n"


def _defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """What a module says once at its top: functions, constants and imports of pure modules."""
    defined: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            defined.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign):
            for name in (part for target in node.targets for part in ast.walk(target)):
                if isinstance(name, ast.Name):
                    defined.setdefault(name.id, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                defined.setdefault(alias.asname or alias.name, []).append(node)
        else:
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    defined.setdefault(name.id, []).append(node)
    return {name: nodes[0] for name, nodes in defined.items() if len(nodes) == 1}


def _fits(node: ast.FunctionDef) -> bool:
    arguments = node.args
    length = (node.end_lineno or 0) - node.lineno + 1
    if (
        length not in _LINES
        or node.decorator_list
        or arguments.vararg
        or arguments.kwarg
        or arguments.kwonlyargs
        or arguments.posonlyargs
        or not 1 <= len(arguments.args) <= 3
    ):
        return False
    unfit = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)
    statements = sum(isinstance(part, ast.stmt) and not _is_text(part) for part in ast.walk(node))
    return statements >= 4 and not any(isinstance(part, unfit) for part in ast.walk(node))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _needs(
    node: ast.AST,
    defined: Mapping[str, ast.stmt],
    needed: dict[str, ast.stmt],
    within: tuple[ast.AST, ...] = (),
) -> bool:
    """Gather what a piece needs, in the order in which it must stand; False if that is not pure."""
    own = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    own |= {
        part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    own |= {part.name or "" for part in ast.walk(node) if isinstance(part, ast.ExceptHandler)}
    own |= {part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef)}
    if any(isinstance(part, ast.Attribute) and part.attr.startswith("__") for part in ast.walk(node)):
        return False
    for name in sorted({part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - own):
        found = defined.get(name)
        if name in needed or (found is None and name in _BUILT_IN):
            continue
        if found is None or found in (*within, node):
            return False
        if isinstance(found, (ast.Import, ast.ImportFrom)):
            if isinstance(found, ast.ImportFrom) and (found.level or found.module not in _MODULES):
                return False
            if isinstance(found, ast.Import) and not {alias.name for alias in found.names} <= _MODULES:
                return False
        elif isinstance(found, (ast.Assign, ast.FunctionDef)):
            if isinstance(found, ast.FunctionDef) and found.decorator_list:
                return False
            if isinstance(found, ast.Assign) and not isinstance(found.targets[0], ast.Name):
                return False
            if not _needs(found, defined, needed, (*within, node)):
                return False
        else:
            return False
        if found not in needed.values():
            needed[name] = found
    return True


# Rows.


def _kinds(text: str) -> dict[str, Draw]:
    """Kinds of values; texts are made of the pieces of text that the function itself names."""
    pieces = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) <= 8
    ]
    signs = sorted({letter for piece in pieces for letter in piece if letter.isprintable()})[:24]

    def word(rng: random.Random) -> str:
        made = ""
        for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 6))):
            way = rng.random()
            if way < 0.3 and pieces:
                made += rng.choice(pieces)
            elif way < 0.5 and signs:
                made += rng.choice(signs)
            else:
                made += rng.choice(("a", "b", "Ab", "x1", "7", "12", " ", "ab", "e", "C", "-", "."))
        return made

    def whole(rng: random.Random) -> int:
        return rng.choice(
            (rng.randint(-2, 5), rng.randint(0, 20), rng.randint(1, 400), rng.randint(1900, 2100))
        )

    def small(rng: random.Random) -> int:
        return rng.randint(0, 12)

    def part(rng: random.Random) -> float:
        return round(rng.choice((rng.random(), 10 * rng.random() - 2)), 2)

    def listed(draw: Draw, most: int = 6) -> Draw:
        return lambda rng: [draw(rng) for _ in range(rng.randint(0, most))]

    return {
        "text": word,
        "whole": whole,
        "small": small,
        "part": part,
        "truth": lambda rng: rng.random() < 0.5,
        "texts": listed(word),
        "wholes": listed(whole),
        "ordered": lambda rng: sorted(listed(small, 8)(rng)),
        "lines": lambda rng: "\n".join(
            word(rng) + rng.choice(("", " a b", "  c")) for _ in range(rng.randint(0, 4))
        ),
        "pairs": lambda rng: [[word(rng), small(rng)] for _ in range(rng.randint(0, 5))],
        "named": lambda rng: {word(rng): small(rng) for _ in range(rng.randint(0, 4))},
        "parts": listed(part),
    }


class _TooLong(Exception):
    pass


def _too_long(number: int, frame: object) -> None:
    raise _TooLong


def _rows(name: str, target: str, text: str) -> list[dict[str, Any]] | None:
    """Rows that differ in the lines that run and in their answers; None where too few are found."""
    namespace: dict[str, Any] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, name, "exec"), namespace)
    except (Exception, SystemExit):
        return None
    function = namespace[target]
    if not isinstance(function, types.FunctionType):
        return None
    node = next(
        part for part in ast.parse(text).body if isinstance(part, ast.FunctionDef) and part.name == target
    )
    parameters = [argument.arg for argument in node.args.args]
    required = len(parameters) - len(node.args.defaults)
    rng = random.Random(name)
    kinds = _kinds(text)
    best: tuple[tuple[int, int], dict[str, Draw]] = ((0, 0), {})
    for _ in range(_ASSIGNMENTS if len(parameters) > 1 else 3 * len(kinds)):
        chosen = [kinds[rng.choice(list(kinds))] for _ in parameters]
        # With default values, too: without them half of some functions is never reached.
        count = rng.randint(max(required, 1), len(parameters))
        draws = dict(zip(parameters[:count], chosen, strict=False))
        calls = [call for _ in range(16) if (call := _call(function, draws, rng)) is not None]
        lines = len({line for _, _, ran in calls for line in ran})
        fitness = (lines * (len(calls) >= 8), len({answer for _, answer, _ in calls}))
        best = max(best, (fitness, draws), key=lambda pair: pair[0])
    if not best[1]:
        return None
    groups: dict[tuple[frozenset[int], str], list[tuple[str, str]]] = {}
    known: set[str] = set()
    for _ in range(_DRAWS):
        call = _call(function, best[1], rng)
        if call is not None and call[0] not in known:
            known.add(call[0])
            groups.setdefault((call[2], call[1]), []).append(call[:2])
    chosen_rows = _evenly(list(groups.values()), ROWS)
    answers = [answer for _, answer in chosen_rows]
    ran = {line for lines, _ in groups for line in lines}
    body = {
        part.lineno
        for part in ast.walk(node)
        if isinstance(part, ast.stmt) and not isinstance(part, ast.Raise)
    }
    covered = len(ran & body) / max(1, len(body - {node.lineno}))
    if len(chosen_rows) < LEAST or max(map(answers.count, answers)) > 0.6 * len(answers) or covered < 0.7:
        return None
    rng.shuffle(chosen_rows)
    return [{"input": json.loads(given), "expected": json.loads(answer)} for given, answer in chosen_rows]


def _evenly(groups: list[list[tuple[str, str]]], most: int) -> list[tuple[str, str]]:
    """Members of all groups by turns."""
    rows: list[tuple[str, str]] = []
    for rank in range(max(map(len, groups), default=0)):
        rows += [group[rank] for group in groups if rank < len(group)]
        if len(rows) >= most:
            break
    return rows[:most]


def _call(
    function: types.FunctionType, draws: Mapping[str, Draw], rng: random.Random
) -> tuple[str, str, frozenset[int]] | None:
    """Inputs, answer and lines of one call; None where it raises, does not end or is no function of its inputs."""
    inputs = {name: draw(rng) for name, draw in draws.items()}
    ran: set[int] = set()

    def trace(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not function.__code__:
            return None
        ran.add(frame.f_lineno)
        return trace

    given = json.dumps(inputs)
    signal.signal(signal.SIGVTALRM, _too_long)
    try:
        # Of the process's own time, or a busy machine would choose the rows.
        # Again and again: a destructor that it interrupts swallows it. The outer clause hears one that comes late.
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS, _SECONDS)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                sys.settrace(trace)
                answers = [function(**copy.deepcopy(inputs)) for _ in range(2)]
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        answer, again = (json.dumps(value, allow_nan=False) for value in answers)
        # No tuple and no key that is a number, which come back as something else.
        plain = json.loads(answer) == answers[0] and len(answer) < 2000
        return (given, answer, frozenset(ran)) if plain and answer == again else None
    except (Exception, SystemExit):
        return None
