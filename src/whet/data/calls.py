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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..errors import InputError
from ..repository.syntax import literal
from ..types import Json, new_id

_TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "str": "string",
    "int": "integer",
    "bool": "boolean",
}
"""What BFCL calls a type → what JSON Schema does."""
_KEPT = ("object", "array", "string", "integer", "number", "boolean", "null")


@dataclass(frozen=True, slots=True)
class Function:
    """Something that may be called."""

    name: str
    parameters: Mapping[str, Json] = field(default_factory=lambda: {"type": "object", "properties": {}})
    """JSON Schema of an object: its properties are the arguments."""
    description: str = ""

    @property
    def properties(self) -> Mapping[str, Mapping[str, Json]]:
        """Argument → its schema."""
        found: Mapping[str, Mapping[str, Json]] = self.parameters.get("properties") or {}
        return found

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
class Call:
    """One call; an argument is JSON, or in a nested call another Call."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def functions_of(tools: Sequence[Json]) -> list[Function]:
    """What tools say may be called; OpenAI's form, or bare functions with BFCL's names of types.

    Raises:
        InputError: one of them is no function, or two have one name.
    """
    found: list[Function] = []
    for tool in tools:
        given = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str) or not given["name"]:
            raise InputError(
                f"this tool is no function: {tool!r:.120}; "
                'give {"type": "function", "function": {"name", "parameters"}}'
            )
        schema = _schema(given.get("parameters") or {"type": "object"})
        found.append(Function(given["name"], schema, str(given.get("description") or "")))
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two functions are called {twice[0]!r}; a call could not say which it means")
    return found


def _schema(given: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with JSON Schema's names of types, all the way down; a type that JSON has not is left open."""
    found = dict(given)
    kind = found.get("type")
    if isinstance(kind, str):
        kind = _TYPES.get(kind.lower(), kind.lower())
        if kind in _KEPT:
            found["type"] = kind
        else:
            del found["type"]
    if isinstance(found.get("properties"), Mapping):
        found["properties"] = {name: _schema(one) for name, one in found["properties"].items()}
    if isinstance(found.get("items"), Mapping):
        found["items"] = _schema(found["items"])
    return found


def calls_of(message: Mapping[str, Json]) -> list[Call]:
    """The calls of an assistant's message, in OpenAI's form; [] if it makes none.

    Raises:
        InputError: a call without a name, or arguments that are no JSON object.
    """
    given = [one.get("function") for one in message.get("tool_calls") or ()]
    if message.get("function_call"):  # how it was before there were several
        given.append(message["function_call"])
    found = []
    for one in given:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise InputError(f"a call needs a function with a name; got {one!r:.120}")
        arguments = one.get("arguments") or {}
        if isinstance(arguments, str):
            try:
                arguments = msgspec.json.decode(arguments)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InputError(f"the arguments of {one['name']} are no JSON: {error}") from error
        if not isinstance(arguments, Mapping):
            raise InputError(f"the arguments of {one['name']} are no object: {arguments!r:.120}")
        found.append(Call(one["name"], dict(arguments)))
    return found


def message_of(calls: Sequence[Call], ids: Sequence[str] | None = None) -> dict[str, Json]:
    """An assistant's message that makes these calls, in OpenAI's form.

    Args:
        ids: of the calls; fresh ones if None.

    Raises:
        InputError: a call is nested, which this form cannot say: the inner one must be answered first.
    """
    made = []
    for number, one in enumerate(calls):
        if any(_nested(value) for value in one.arguments.values()):
            raise InputError(
                f"{one.name} has a call among its arguments, which tool_calls cannot say; make the inner "
                "call first and give its result, or use Python's form (`written`)"
            )
        text = msgspec.json.encode(dict(one.arguments)).decode()
        id = ids[number] if ids is not None else f"call_{new_id()}"
        made.append({"id": id, "type": "function", "function": {"name": one.name, "arguments": text}})
    return {"role": "assistant", "content": None, "tool_calls": made}


def _nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_nested, value.values()))
    return isinstance(value, Call) or (isinstance(value, list | tuple) and any(map(_nested, value)))


def written(calls: Sequence[Call]) -> str:
    """Calls in Python's form, `[f(a=1), g(b=h(c="x"))]`; `read_calls` reads the same again."""
    return f"[{', '.join(map(_value, calls))}]"


def _value(value: Any) -> str:
    if isinstance(value, Call):
        return f"{value.name}({', '.join(f'{name}={_value(one)}' for name, one in value.arguments.items())})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def read_calls(text: str) -> list[Call]:
    """The calls of a text in Python's form: a list of them, one, or several with `;` or line breaks between.

    A leading `Call:` is passed over, as NexusRaven writes it.

    Raises:
        InputError: it is no Python expression, or something in it is neither a call nor a literal.
    """
    said = text.strip().removeprefix("Call:").strip()
    try:
        body = ast.parse(said).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise InputError(f"this is no list of calls: {text!r:.120} ({error})") from error
    if not all(isinstance(one, ast.Expr) for one in body):
        raise InputError(f"a statement is no call: {text!r:.120}")
    each = [one.value for one in body if isinstance(one, ast.Expr)]
    if len(each) == 1 and isinstance(each[0], ast.List | ast.Tuple):
        each = list(each[0].elts)
    return [_call(one) for one in each]


def _call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call):
        raise InputError(f"{ast.unparse(node)!r:.120} is no call")
    if node.args or any(one.arg is None for one in node.keywords):
        raise InputError(f"{ast.unparse(node)!r:.120}: arguments are given by name")
    if not all(isinstance(one, ast.Name | ast.Attribute) for one in _names(node.func)):
        raise InputError(f"{ast.unparse(node.func)!r:.120} is no name of a function")
    return Call(ast.unparse(node.func), {str(one.arg): _argument(one.value) for one in node.keywords})


def _names(node: ast.expr) -> list[ast.expr]:
    return [node, *_names(node.value)] if isinstance(node, ast.Attribute) else [node]


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return _call(node)
    if isinstance(node, ast.List | ast.Tuple):
        return [_argument(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        keys = [literal(one)[1] if one is not None else None for one in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise InputError(f"{ast.unparse(node)!r:.120}: the keys of an object are texts")
        return {key: _argument(one) for key, one in zip(keys, node.values, strict=True)}
    fine, value = literal(node)
    if not fine:
        raise InputError(f"{ast.unparse(node)!r:.120} is neither a literal nor a call")
    return value


def problems(call: Call, functions: Sequence[Function]) -> list[str]:
    """Why a call does not fit what may be called; [] where it does.  A nested call fits any type."""
    function = next((one for one in functions if one.name == call.name), None)
    if function is None:
        return [f"there is no function {call.name!r}"]
    found = [f"{call.name} needs {name!r}" for name in function.required if name not in call.arguments]
    for name, value in call.arguments.items():
        if name not in function.properties:
            found.append(f"{call.name} takes no {name!r}")
        else:
            found += _misfits(value, function.properties[name], f"{call.name}: {name}")
    inner = [value for value in call.arguments.values() if isinstance(value, Call)]
    return found + [problem for one in inner for problem in problems(one, functions)]


def _misfits(value: Any, schema: Mapping[str, Any], where: str) -> list[str]:
    if isinstance(value, Call):
        return []
    kind = schema.get("type")
    types: dict[str, tuple[type, ...]] = {
        "object": (Mapping,),
        "array": (list, tuple),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
    if isinstance(kind, str) and kind in types:
        truth = isinstance(value, bool) and kind != "boolean"  # a truth value is an int in Python alone
        if truth or not isinstance(value, types[kind]):
            return [f"{where} is {value!r:.60}, not of type {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} is {value!r:.60}, not one of {schema['enum']}"]
    if isinstance(value, Mapping) and isinstance(schema.get("properties"), Mapping):
        inner = schema["properties"]
        found = [f"{where} needs {name!r}" for name in schema.get("required") or () if name not in value]
        for name, one in value.items():
            found += (
                _misfits(one, inner[name], f"{where}.{name}")
                if name in inner
                else [f"{where} takes no {name!r}"]
            )
        return found
    if isinstance(value, list | tuple) and isinstance(schema.get("items"), Mapping):
        return [problem for one in value for problem in _misfits(one, schema["items"], where)]
    return []


def same(calls: Sequence[Call], wanted: Sequence[Call]) -> bool:
    """Whether these are exactly the wanted calls, in any order; 2 and 2.0 are one number."""
    left = list(wanted)
    for call in calls:
        place = next((n for n, one in enumerate(left) if _equal(call, one)), None)
        if place is None:
            return False
        left.pop(place)
    return not left


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Call) or isinstance(other, Call):
        both = isinstance(one, Call) and isinstance(other, Call)
        return both and one.name == other.name and _equal(one.arguments, other.arguments)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def allowed(calls: Sequence[Call], possible: Sequence[Mapping[str, Mapping[str, Json]]]) -> bool:
    """Whether calls are among BFCL's possible answers: for each call its name, and what each argument may be.

    An argument may be left out where "" is among its values; texts are compared without regard to case,
    spaces and `,./-_*^`, as BFCL's checker does.
    """
    left = list(possible)
    for call in calls:
        place = next(
            (n for n, one in enumerate(left) if call.name in one and _possible(call, one[call.name])), None
        )
        if place is None:
            return False
        left.pop(place)
    return not left


def _possible(call: Call, values: Mapping[str, Json]) -> bool:
    if not set(call.arguments) <= set(values):
        return False
    return all(
        _among(call.arguments[name], options) if name in call.arguments else "" in options
        for name, options in values.items()
    )


def _among(value: Any, options: Sequence[Json]) -> bool:
    if isinstance(value, Mapping):  # the answer of an object names what each of its own fields may be
        return any(isinstance(one, Mapping) and _possible(Call("", value), one) for one in options)
    return any(_equal(_plain(value), _plain(one)) for one in options)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(char for char in value.lower() if char not in " ,./-_*^").replace("'", '"')
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
