"""The signature of a function and examples of its calls, read from text: nothing is imported or run.

Parameters with their annotations, the examples of its docstring, calls with literal arguments that
stand elsewhere in the repository, and the literals around it: all that values can be made of.  A type that
cannot be read off the text is left open; `synthesis.py` tries it out in the sandbox.
"""

from __future__ import annotations

import ast
import doctest
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from ...errors import InputError
from ...python_text import expression_of, module_of
from ...record.rows import row
from ...repository.syntax import FunctionNode, Parameter, definition, last_name, literal, parameters
from ...repository.text import SourceText
from ...types import Json, Task

Bound = Literal["", "instance", "class", "static"]

SELF = "self"
"""Key of an input under which the arguments of a method's constructor stand."""


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
    """Parameters of the class of a method."""

    @property
    def required(self) -> list[str]:
        return [parameter.name for parameter in self.parameters if parameter.required]

    def arguments(self, value: Json) -> tuple[list[Json], dict[str, Json], dict[str, Json]]:
        """Positional arguments, keyword arguments and those of the constructor, for one input.

        An input is an object of argument names, a list of arguments, or the only argument itself.

        Raises:
            InputError: it does not fit; names the parameters.
        """
        constructor: dict[str, Json] = {}
        names = [parameter.name for parameter in self.parameters]
        if isinstance(value, dict):
            named = dict(value)
            if self.bound == "instance" and isinstance(named.get(SELF), dict):
                constructor = named.pop(SELF)
            fits = set(named) <= set(names) or self.open
            # An object may also be the only argument itself.
            if fits and set(self.required) <= set(named) and (names or not named):
                return [], named, constructor
        if len(names) >= 1 and len(self.required) <= 1 and not (self.bound and constructor):
            required = (parameter for parameter in self.parameters if parameter.required)
            first = next(required, self.parameters[0])
            if not first.keyword_only and first is self.parameters[0]:
                return [value], {}, constructor
            return [], {first.name: value}, constructor
        if isinstance(value, list) and len(self.required) <= len(value) <= len(names):
            return list(value), {}, constructor
        takes = ", ".join(names) or "no arguments"
        raise InputError(f"the input {value!r:.120} does not fit {self.name}({takes})")

    def named(self, value: Json) -> dict[str, Json] | None:
        """An input as argument name → value, None where it does not fit."""
        try:
            args, kwargs, _ = self.arguments(value)
        except InputError:
            return None
        names = [parameter.name for parameter in self.parameters]
        return {**dict(zip(names, args, strict=False)), **kwargs}


def read(text: str, qualname: str) -> Signature:
    """The function `qualname` of a module's text.

    Raises:
        NotFoundError: the text does not define it.
        InputError: it is a class or a constant, which cannot be called with a row's input.
    """
    source = SourceText(text)
    node, owner = definition(source.tree, qualname)
    if not isinstance(node, FunctionNode):
        raise InputError(f"{qualname} is not a function: give the function that uses it as --entry")
    bound: Bound = ""
    if owner is not None:
        decorators = {mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)}
        bound = (
            "class"
            if "classmethod" in decorators
            else "static"
            if "staticmethod" in decorators
            else "instance"
        )
    named = tuple(parameters(node.args))
    return Signature(
        name=node.name,
        parameters=named[1:] if bound in ("instance", "class") else named,
        returns=ast.unparse(node.returns) if node.returns else "",
        doc=ast.get_docstring(node) or "",
        bound=bound,
        open=node.args.vararg is not None or node.args.kwarg is not None,
        source=source.segment(node),
        constructor=_constructor(owner) if bound == "instance" and owner is not None else (),
    )


def _constructor(owner: ast.ClassDef) -> tuple[Parameter, ...]:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return tuple(parameters(node.args))[1:]
    return ()


def literals(texts: Iterable[str]) -> list[Json]:
    """Plain values and dictionary keys that stand in module texts, without docstrings; each once."""
    values: list[Json] = []
    for text in texts:
        nodes = list(ast.walk(module_of(text)))
        # By identity, while `nodes` holds them all: a constant that merely equals a docstring stays.
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
        values += [value for is_json, value in map(literal, constants) if is_json]
    return worth_trying(values)


def worth_trying(values: Iterable[Json]) -> list[Json]:
    """Those plain values that are worth trying as arguments: short, and not what every type offers anyway."""
    worth = (value for value in values if value not in (None, "", True, False) and len(str(value)) <= 60)
    return list({repr(value): value for value in worth}.values())


def examples(signature: Signature, texts: Mapping[str, str]) -> list[Task]:
    """Calls of the function with literal arguments: its docstring's, and those in module texts.

    `assert f(1) == 2` and a docstring's `>>> f(1)` with its output also give the answer.

    Args:
        texts: path → text of the modules to look through, the tests among them.
    """
    rows = list(_of_docstring(signature))
    for path, text in texts.items():
        if signature.name not in text:
            continue
        try:
            tree = module_of(text)
        except SyntaxError:
            continue
        rows += _of_calls(signature, tree, path)
    # An asserted answer goes before a bare call with the same input.
    by_input: dict[str, Task] = {}
    for task in sorted(rows, key=lambda task: not task.answer_known):
        by_input.setdefault(repr(task.initial_state["input"]), task)
    return list(by_input.values())


def _row(value: Json, where: str, expected: Json = UNSET) -> Task:
    how = "docstring" if where == "docstring" else "repository"
    return row(value, expected=expected, provenance={"how": how, "where": where})


def _of_docstring(signature: Signature) -> Iterator[Task]:
    try:
        shown = doctest.DocTestParser().get_examples(signature.doc)
    except ValueError:
        return
    for example in shown:
        try:
            call = expression_of(example.source.strip())
            # A docstring shows nothing for an answer of None.
            answer = expression_of(example.want.strip() or "None")
        except SyntaxError:
            continue
        arguments = _input(signature, call)
        is_json, value = literal(answer)
        if arguments is not None and is_json:
            yield _row(arguments[0], "docstring", value)


def _of_calls(signature: Signature, tree: ast.Module, path: str) -> Iterator[Task]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            arguments = _input(signature, node.test.left)
            is_json, value = literal(node.test.comparators[0])
            if arguments is not None and is_json and isinstance(node.test.ops[0], ast.Eq | ast.Is):
                yield _row(arguments[0], f"{path}:{node.lineno}", value)
        elif isinstance(node, ast.Call):
            arguments = _input(signature, node)
            if arguments is not None:
                yield _row(arguments[0], f"{path}:{node.lineno}")


def _input(signature: Signature, node: ast.expr) -> tuple[Json] | None:
    """The input of a call of the function, None for another call, or for arguments that are not literals."""
    if isinstance(node, ast.Await):
        node = node.value
    # The call of a method does not show what its object was made with.
    if not isinstance(node, ast.Call) or signature.bound == "instance" or isinstance(node.func, ast.Call):
        return None
    if last_name(node.func) != signature.name or any(keyword.arg is None for keyword in node.keywords):
        return None
    values = [literal(value) for value in [*node.args, *(keyword.value for keyword in node.keywords)]]
    if not all(is_json for is_json, _ in values):
        return None
    names = [parameter.name for parameter in signature.parameters]
    if len(node.args) > len(names):
        return None
    keys = [*names[: len(node.args)], *(str(keyword.arg) for keyword in node.keywords)]
    arguments = {key: value for key, (_, value) in zip(keys, values, strict=True)}
    fits = signature.open or (set(signature.required) <= set(arguments) <= set(names))
    return (compact(signature, arguments),) if fits else None


def compact(signature: Signature, arguments: dict[str, Json]) -> Json:
    """An input as it is recorded: the only argument itself, else name → value."""
    values = list(arguments.values())
    first = signature.parameters[0].name if signature.parameters else ""
    if len(values) == 1 and list(arguments) == [first] and len(signature.required) <= 1:
        fits = not isinstance(values[0], dict) or set(values[0]) != {first}
        return values[0] if fits else arguments
    return arguments
