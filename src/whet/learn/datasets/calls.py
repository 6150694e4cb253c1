"""Function calls: what may be called, what was called, and the forms in which both are written.

    OpenAI's     tools=[{"type": "function", "function": {...}}] and a message's tool_calls
    Python's     [book(hotel="Ritz", nights=2), weather(city=capital(of="France"))]
    BFCL's       {"name", "parameters": {"type": "dict", ...}} and {"book": {"nights": [2], "late": [true, ""]}}

Arguments may be objects and lists, several calls may be made at once, and in Python's form the argument
of a call may be another call.  Nothing that is read is run or imported: Python's form is read off the
syntax tree and its values are literals.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...errors import InputError
from ...python_text import module_of
from ...repository.syntax import literal
from ...types import Json, new_id

_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "str": "string",
    "int": "integer",
    "bool": "boolean",
}
"""BFCL's name of a type → JSON Schema's."""
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
"""JSON Schema's type → Python's."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """Something that may be called."""

    name: str
    parameters: Mapping[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of an object: its properties are the arguments."""
    description: str = ""

    @property
    def properties(self) -> dict[str, Mapping[str, Json]]:
        """Argument → its schema."""
        return dict(self.parameters.get("properties") or {})

    @property
    def required(self) -> Sequence[str]:
        """Arguments that every call needs."""
        return tuple(self.parameters.get("required") or ())

    @property
    def tool(self) -> dict[str, Json]:
        """As OpenAI's `tools` have it."""
        inner = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": inner}


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call; an argument is JSON, or in a nested call another FunctionCall."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def functions_of(tools: Sequence[Json]) -> list[FunctionSpec]:
    """The functions that tools offer; OpenAI's form, or bare functions with BFCL's names of types.

    Raises:
        InputError: one of them is not a function, or two have one name.
    """
    functions: list[FunctionSpec] = []
    for tool in tools:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str) or not inner["name"]:
            raise InputError(
                f"this tool is not a function: {tool!r:.120}; "
                'give {"type": "function", "function": {"name", "parameters"}}'
            )
        schema = _schema(inner.get("parameters") or {"type": "object"})
        functions.append(FunctionSpec(inner["name"], schema, str(inner.get("description") or "")))
    names = [function.name for function in functions]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two functions are called {twice[0]!r}; a call could not say which it means")
    return functions


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with JSON Schema's names of types, all the way down; a type that JSON has not is left open."""
    json_schema = dict(schema)
    kind = json_schema.get("type")
    if isinstance(kind, str):
        kind = _TYPES.get(kind.lower(), kind.lower())
        if kind in _KINDS:
            json_schema["type"] = kind
        else:
            del json_schema["type"]
    if isinstance(json_schema.get("properties"), Mapping):
        json_schema["properties"] = {
            name: _schema(inner) for name, inner in json_schema["properties"].items()
        }
    if isinstance(json_schema.get("items"), Mapping):
        json_schema["items"] = _schema(json_schema["items"])
    return json_schema


def calls_of(message: Mapping[str, Json]) -> list[FunctionCall]:
    """The calls of an assistant's message, in OpenAI's form; [] if it makes none.

    Raises:
        InputError: a call without a name, or arguments that are not a JSON object.
    """
    functions = [tool_call.get("function") for tool_call in message.get("tool_calls") or ()]
    if message.get("function_call"):  # how it was before there were several
        functions.append(message["function_call"])
    calls = []
    for function in functions:
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError(f"a call needs a function with a name; got {function!r:.120}")
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = msgspec.json.decode(arguments)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InputError(f"the arguments of {function['name']} are not JSON: {error}") from error
        if not isinstance(arguments, Mapping):
            raise InputError(f"the arguments of {function['name']} are not an object: {arguments!r:.120}")
        calls.append(FunctionCall(function["name"], dict(arguments)))
    return calls


def message_of(calls: Sequence[FunctionCall]) -> dict[str, Json]:
    """An assistant's message that makes these calls, in OpenAI's form.

    Raises:
        InputError: a call is nested, which this form cannot say: the inner one must be answered first.
    """
    tool_calls = []
    for call in calls:
        if any(_nested(value) for value in call.arguments.values()):
            raise InputError(
                f"{call.name} has a call among its arguments, which tool_calls cannot say; make the inner "
                "call first and give its result, or use Python's form (`written`)"
            )
        text = msgspec.json.encode(dict(call.arguments)).decode()
        function = {"name": call.name, "arguments": text}
        tool_calls.append({"id": f"call_{new_id()}", "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def _nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_nested, value.values()))
    return isinstance(value, FunctionCall) or (isinstance(value, list | tuple) and any(map(_nested, value)))


def written(calls: Sequence[FunctionCall]) -> str:
    """Calls in Python's form, `[f(a=1), g(b=h(c="x"))]`; `read_calls` reads the same again."""
    return f"[{', '.join(map(_value, calls))}]"


def _value(value: Any) -> str:
    if isinstance(value, FunctionCall):
        arguments = ", ".join(f"{name}={_value(argument)}" for name, argument in value.arguments.items())
        return f"{value.name}({arguments})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_value(argument)}" for name, argument in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def read_calls(text: str) -> list[FunctionCall]:
    """The calls of a text in Python's form: a list of them, one, or several with `;` or line breaks between.

    A leading `Call:` is passed over, as NexusRaven writes it.

    Raises:
        InputError: it is not a Python expression, or something in it is neither a call nor a literal.
    """
    source = text.strip().removeprefix("Call:").strip()
    try:
        body = module_of(source).body
    except SyntaxError as error:
        raise InputError(f"this is not a list of calls: {text!r:.120} ({error})") from error
    if not all(isinstance(node, ast.Expr) for node in body):
        raise InputError(f"a statement is not a call: {text!r:.120}")
    expressions = [node.value for node in body if isinstance(node, ast.Expr)]
    if len(expressions) == 1 and isinstance(expressions[0], ast.List | ast.Tuple):
        expressions = list(expressions[0].elts)
    return [_call(node) for node in expressions]


def _call(node: ast.expr) -> FunctionCall:
    if not isinstance(node, ast.Call):
        raise InputError(f"{ast.unparse(node)!r:.120} is not a call")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise InputError(f"{ast.unparse(node)!r:.120}: arguments are given by name")
    if not all(isinstance(name, ast.Name | ast.Attribute) for name in _names(node.func)):
        raise InputError(f"{ast.unparse(node.func)!r:.120} is not the name of a function")
    arguments = {str(keyword.arg): _argument(keyword.value) for keyword in node.keywords}
    return FunctionCall(ast.unparse(node.func), arguments)


def _names(node: ast.expr) -> list[ast.expr]:
    return [node, *_names(node.value)] if isinstance(node, ast.Attribute) else [node]


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.List | ast.Tuple):
        return [_argument(inner) for inner in node.elts]
    if isinstance(node, ast.Dict):
        keys = [literal(inner)[1] if inner is not None else None for inner in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise InputError(f"{ast.unparse(node)!r:.120}: the keys of an object are texts")
        return {key: _argument(inner) for key, inner in zip(keys, node.values, strict=True)}
    fine, value = literal(node)
    if not fine:
        raise InputError(f"{ast.unparse(node)!r:.120} is neither a literal nor a call")
    return value


def problems(call: FunctionCall, functions: Sequence[FunctionSpec]) -> list[str]:
    """Reasons why a call does not fit the functions on offer; [] where it does.  A nested call fits any type."""
    function = next((candidate for candidate in functions if candidate.name == call.name), None)
    if function is None:
        return [f"there is no function {call.name!r}"]
    complaints = [f"{call.name} needs {name!r}" for name in function.required if name not in call.arguments]
    for name, value in call.arguments.items():
        if name not in function.properties:
            complaints.append(f"{call.name} takes no {name!r}")
        else:
            complaints += _misfits(value, function.properties[name], f"{call.name}: {name}")
    inner = [value for value in call.arguments.values() if isinstance(value, FunctionCall)]
    return complaints + [problem for candidate in inner for problem in problems(candidate, functions)]


def _misfits(value: Any, schema: Mapping[str, Any], where: str) -> list[str]:
    if isinstance(value, FunctionCall):
        return []
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _KINDS:
        truth = isinstance(value, bool) and kind != "boolean"  # a truth value is an int in Python alone
        if truth or not isinstance(value, _KINDS[kind]):
            return [f"{where} is {value!r:.60}, not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r:.60}, not one of {schema['enum']}"]
    if isinstance(value, Mapping) and isinstance(schema.get("properties"), Mapping):
        inner = schema["properties"]
        complaints = [f"{where} needs {name!r}" for name in schema.get("required") or () if name not in value]
        for name, member in value.items():
            complaints += (
                _misfits(member, inner[name], f"{where}.{name}")
                if name in inner
                else [f"{where} takes no {name!r}"]
            )
        return complaints
    if isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        return [problem for member in value for problem in _misfits(member, schema["items"], where)]
    return []


def same(calls: Sequence[FunctionCall], expected: Sequence[FunctionCall]) -> bool:
    """These are exactly the expected calls, in any order; 2 and 2.0 are one number."""
    return _paired(calls, expected, _equal)


def _paired(
    calls: Sequence[FunctionCall], options: Sequence[Any], fits: Callable[[FunctionCall, Any], bool]
) -> bool:
    """Every call fits an option of its own, and none is left over."""
    unmatched = list(options)
    for call in calls:
        match = next((n for n, option in enumerate(unmatched) if fits(call, option)), None)
        if match is None:
            return False
        unmatched.pop(match)
    return not unmatched


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, FunctionCall) or isinstance(second, FunctionCall):
        both = isinstance(first, FunctionCall) and isinstance(second, FunctionCall)
        return both and first.name == second.name and _equal(first.arguments, second.arguments)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_equal(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def allowed(calls: Sequence[FunctionCall], possible: Sequence[Mapping[str, Mapping[str, Json]]]) -> bool:
    """The calls are among BFCL's possible answers: for each call its name, and what each argument may be.

    An argument may be left out where "" is among its values; texts are compared without regard to case,
    spaces and `,./-_*^`, as BFCL's checker does.
    """
    return _paired(
        calls, possible, lambda call, answer: call.name in answer and _possible(call, answer[call.name])
    )


def _possible(call: FunctionCall, values: Mapping[str, Json]) -> bool:
    if not set(call.arguments) <= set(values):
        return False
    return all(
        _among(call.arguments[name], options) if name in call.arguments else "" in options
        for name, options in values.items()
    )


def _among(value: Any, options: Sequence[Json]) -> bool:
    if isinstance(value, Mapping):  # the answer of an object names what each of its own fields may be
        return any(
            isinstance(option, Mapping) and _possible(FunctionCall("", value), option) for option in options
        )
    return any(_equal(_plain(value), _plain(option)) for option in options)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(char for char in value.lower() if char not in " ,./-_*^").replace("'", '"')
    return [_plain(member) for member in value] if isinstance(value, list | tuple) else value
