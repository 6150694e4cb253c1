"""What a function takes and returns, read from its text: nothing is imported or run.

Parameters with their annotations, what its docstring shows of it, calls with literal arguments that
stand elsewhere in the repository, and the literals around it: all that values can be made of.  What
cannot be read off the text is left open; `synthesis.py` tries it out in the sandbox.
"""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from ..errors import InputError, NotFoundError
from ..reward.rows import row
from ..types import Json, Task

Bound = Literal["", "instance", "class", "static"]
Definition = ast.FunctionDef | ast.AsyncFunctionDef

SELF = "self"
"""Key of an input under which the arguments of a method's constructor stand."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter."""

    name: str
    annotation: str = ""
    """As it stands in the text."""
    required: bool = True
    default: Json = None
    """Where it is a literal."""
    keyword_only: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as its text shows it."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str = ""
    doc: str = ""
    bound: Bound = ""
    open: bool = False
    """It takes *args or **kwargs, too."""
    source: str = ""
    constructor: tuple[Parameter, ...] = ()
    """What the class of a method is made with."""

    @property
    def required(self) -> list[str]:
        return [each.name for each in self.parameters if each.required]

    def arguments(self, given: Json) -> tuple[list[Json], dict[str, Json], dict[str, Json]]:
        """Positional arguments, keyword arguments and those of the constructor, for one input.

        An input is an object of argument names, a list of arguments, or the only argument itself.

        Raises:
            InputError: it does not fit; says what the function takes.
        """
        made: dict[str, Json] = {}
        names = [each.name for each in self.parameters]
        if isinstance(given, dict):
            named = dict(given)
            if self.bound == "instance" and isinstance(named.get(SELF), dict):
                made = named.pop(SELF)
            fits = set(named) <= set(names) or self.open
            # An object may also be the only argument itself.
            if fits and set(self.required) <= set(named) and (names or not named):
                return [], named, made
        if len(names) >= 1 and len(self.required) <= 1 and not (self.bound and made):
            first = next((each for each in self.parameters if each.required), self.parameters[0])
            if not first.keyword_only and first is self.parameters[0]:
                return [given], {}, made
            return [], {first.name: given}, made
        if isinstance(given, list) and len(self.required) <= len(given) <= len(names):
            return list(given), {}, made
        shown = ", ".join(names) or "no arguments"
        raise InputError(f"the input {given!r:.120} does not fit {self.name}({shown})")

    def named(self, given: Json) -> dict[str, Json] | None:
        """An input as argument name → value, None where it does not fit."""
        try:
            args, kwargs, _ = self.arguments(given)
        except InputError:
            return None
        return {**dict(zip([each.name for each in self.parameters], args, strict=False)), **kwargs}


def read(source: str, qualname: str) -> Signature:
    """The function `qualname` of a module's text.

    Raises:
        NotFoundError: the text does not define it.
        InputError: it is a class or a constant, which nothing can be called with.
    """
    node, owner = definition(ast.parse(source), qualname)
    if not isinstance(node, Definition):
        raise InputError(f"{qualname} is no function: give the function that uses it as --entry")
    bound: Bound = ""
    if owner is not None:
        marks = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
        bound = "class" if "classmethod" in marks else "static" if "staticmethod" in marks else "instance"
    parameters = list(_parameters(node.args))
    if bound in ("instance", "class"):
        parameters = parameters[1:]
    return Signature(
        name=node.name,
        parameters=tuple(parameters),
        returns=ast.unparse(node.returns) if node.returns else "",
        doc=ast.get_docstring(node) or "",
        bound=bound,
        open=node.args.vararg is not None or node.args.kwarg is not None,
        source=ast.get_source_segment(source, node) or "",
        constructor=_constructor(owner) if bound == "instance" and owner is not None else (),
    )


def _constructor(owner: ast.ClassDef) -> tuple[Parameter, ...]:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return tuple(_parameters(node.args))[1:]
    return ()


def definition(tree: ast.Module, qualname: str) -> tuple[ast.stmt, ast.ClassDef | None]:
    """The statement that defines a dotted name, and the class it stands in.

    Raises:
        NotFoundError: nothing defines it; says what there is.
    """
    body: Sequence[ast.stmt] = tree.body
    owner: ast.ClassDef | None = None
    found: ast.stmt | None = None
    for part in qualname.split("."):
        if found is not None:
            if not isinstance(found, ast.ClassDef):
                break
            owner, body = found, found.body
        found = next((node for node in _statements(body) if part in _defines(node)), None)
        if found is None:
            names = sorted({name for node in _statements(body) for name in _defines(node)})
            raise NotFoundError(f"nothing defines {qualname!r}; there are {', '.join(names) or 'none'}")
    assert found is not None
    return found, owner


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if` and `try` among them."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements([*node.body, *node.orelse])


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _parameters(given: ast.arguments) -> Iterator[Parameter]:
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    rows = [(each, default, False) for each, default in zip(plain, defaults, strict=True)]
    rows += [(each, d, True) for each, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    for each, default, keyword in rows:
        value = literal(default)[1] if default is not None else None
        said = ast.unparse(each.annotation) if each.annotation else ""
        yield Parameter(each.arg, said.strip("'\""), default is None, value, keyword)


def literal(node: ast.expr) -> tuple[bool, Json]:
    """Whether an expression is a literal that JSON can hold, and its value."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None
    return plain(value)


def plain(value: object) -> tuple[bool, Json]:
    """Whether a value is JSON, and the value with tuples as lists."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value == value, value
    if isinstance(value, (list, tuple)):
        found = [plain(item) for item in value]
        return all(fine for fine, _ in found), [item for _, item in found]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        pairs = {key: plain(item) for key, item in value.items()}
        return all(fine for fine, _ in pairs.values()), {key: item for key, (_, item) in pairs.items()}
    return False, None


def literals(texts: Iterable[str]) -> list[Json]:
    """Plain values and dictionary keys that stand in module texts, without docstrings; each once."""
    found: dict[str, Json] = {}
    for text in texts:
        tree = ast.parse(text)
        said = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in said:
                fine, value = plain(node.value)
                if fine and value not in (None, "", True, False) and len(str(value)) <= 60:
                    found.setdefault(repr(value), value)
    return list(found.values())


def examples(signature: Signature, texts: Mapping[str, str]) -> list[Task]:
    """Calls of the function with literal arguments: its docstring's, and those in module texts.

    `assert f(1) == 2` and a docstring's `>>> f(1)` with what follows also say what comes out.

    Args:
        texts: path → text of the modules to look through, the tests among them.
    """
    found = list(_shown(signature))
    for path, text in texts.items():
        if signature.name not in text:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        found += _called(signature, tree, path)
    # What a text asserts goes before a bare call with the same input.
    kept: dict[str, Task] = {}
    for each in sorted(found, key=lambda task: not task.answer_known):
        kept.setdefault(repr(each.initial_state["input"]), each)
    return list(kept.values())


def _row(given: Json, where: str, expected: Json = UNSET) -> Task:
    how = "docstring" if where == "docstring" else "repository"
    return row(given, expected=expected, provenance={"how": how, "where": where})


def _shown(signature: Signature) -> Iterator[Task]:
    try:
        shown = doctest.DocTestParser().get_examples(signature.doc)
    except ValueError:
        return
    for each in shown:
        try:
            call = ast.parse(each.source.strip(), mode="eval").body
            want = ast.parse(each.want.strip() or "None", mode="eval").body
        except SyntaxError:
            continue
        given = _input(signature, call)
        fine, value = literal(want)
        if given is not None and fine:
            yield _row(given[0], "docstring", value)


def _called(signature: Signature, tree: ast.Module, path: str) -> Iterator[Task]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            given = _input(signature, node.test.left)
            fine, value = literal(node.test.comparators[0])
            if given is not None and fine and isinstance(node.test.ops[0], (ast.Eq, ast.Is)):
                yield _row(given[0], f"{path}:{node.lineno}", value)
        elif isinstance(node, ast.Call):
            given = _input(signature, node)
            if given is not None:
                yield _row(given[0], f"{path}:{node.lineno}")


def _input(signature: Signature, node: ast.expr) -> tuple[Json] | None:
    """The input of a call of the function, None where it is another call or has no literal arguments."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or signature.bound == "instance":
        return None
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if called != signature.name or any(each.arg is None for each in node.keywords):
        return None
    values = [literal(each) for each in [*node.args, *(each.value for each in node.keywords)]]
    if not all(fine for fine, _ in values):
        return None
    names = [each.name for each in signature.parameters]
    if len(node.args) > len(names):
        return None
    keys = [*names[: len(node.args)], *(str(each.arg) for each in node.keywords)]
    given = {key: value for key, (_, value) in zip(keys, values, strict=True)}
    fits = signature.open or (set(signature.required) <= set(given) <= set(names))
    return (compact(signature, given),) if fits else None


def compact(signature: Signature, given: dict[str, Json]) -> Json:
    """An input as it is recorded: the only argument itself, else name → value."""
    only = list(given.values())
    first = signature.parameters[0].name if signature.parameters else ""
    if len(only) == 1 and list(given) == [first] and len(signature.required) <= 1:
        fits = not isinstance(only[0], dict) or set(only[0]) != {first}
        return only[0] if fits else given
    return given
