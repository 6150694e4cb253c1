"""How far a JSON value keeps to a JSON Schema: the share of the schema's demands that it meets.

The part of JSON Schema that models are asked for: types, enum and const, bounds, string and array lengths, required,
properties and additionalProperties, items and prefixItems, allOf, anyOf, oneOf, not, and `$ref` within the schema.  A
value that meets all of it has exactly 1.0; one that misses something has less, by how much it misses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError
from ..sandbox import exact
from ..types import Json

_DEEPEST = 64
"""Levels of a schema that are followed: `$ref` may go round in a circle."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: abs(value / bound - round(value / bound)) < 1e-9,
}
_SIZES: Mapping[str, tuple[type, Callable[[Any, int], bool]]] = {
    "minLength": (str, lambda value, bound: len(value) >= bound),
    "maxLength": (str, lambda value, bound: len(value) <= bound),
    "minItems": (list, lambda value, bound: len(value) >= bound),
    "maxItems": (list, lambda value, bound: len(value) <= bound),
    "minProperties": (dict, lambda value, bound: len(value) >= bound),
    "maxProperties": (dict, lambda value, bound: len(value) <= bound),
}


@dataclass(slots=True)
class Conformance:
    """How many demands were looked at, and those that were missed."""

    demands: int = 0
    missed: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the demands that are met; 1.0 only where all are."""
        return (self.demands - len(self.missed)) / self.demands if self.demands else 1.0

    def demand(self, met: bool, sentence: str) -> None:
        """Count one."""
        self.demands += 1
        if not met:
            self.missed.append(sentence)


def conformance(value: Json, schema: Json, *, patterns: bool = False) -> Conformance:
    """Hold a value to a schema.

    Args:
        patterns: hold strings to `pattern` too; only for a schema that is trusted, for a pattern can run forever.

    Raises:
        InputError: the schema is none, or asks for something that is not known here.
    """
    counted = Conformance()
    _Walk(schema, counted, patterns).hold(value, schema, "the answer", 0)
    return counted


class _Walk:
    def __init__(self, root: Json, counted: Conformance, patterns: bool) -> None:
        self.root, self.counted, self.patterns = root, counted, patterns

    def hold(self, value: Json, schema: Json, at: str, depth: int) -> None:
        if isinstance(schema, bool):
            self.counted.demand(schema, f"{at} may not be there")
            return
        if not isinstance(schema, Mapping):
            raise InputError(f"a JSON Schema is an object or a bool; given {schema!r:.80}")
        if depth > _DEEPEST:
            raise InputError(f"the JSON Schema goes deeper than {_DEEPEST} levels at {at}")
        if "$ref" in schema:
            self.hold(value, self._referred(schema["$ref"]), at, depth + 1)
        self._plain(value, schema, at)
        self._object(value, schema, at, depth + 1)
        self._array(value, schema, at, depth + 1)
        self._combined(value, schema, at, depth + 1)

    def _plain(self, value: Json, schema: Mapping[str, Any], at: str) -> None:
        demand = self.counted.demand
        if "type" in schema:
            kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            demand(any(_is(value, kind) for kind in kinds), f"{at} is no {' or '.join(map(str, kinds))}")
        if "enum" in schema:
            demand(any(_same(value, choice) for choice in schema["enum"]), f"{at} is none of the choices")
        if "const" in schema:
            demand(_same(value, schema["const"]), f"{at} is not the constant")
        if isinstance(value, int | float) and not isinstance(value, bool):
            for name, keeps in _BOUNDS.items():
                if name in schema:
                    demand(keeps(value, schema[name]), f"{at} breaks {name}")
        for name, (kind, fits) in _SIZES.items():
            if name in schema and isinstance(value, kind):
                demand(fits(value, schema[name]), f"{at} breaks {name}")
        if self.patterns and isinstance(value, str) and "pattern" in schema:
            demand(re.search(schema["pattern"], value) is not None, f"{at} does not match the pattern")
        if schema.get("uniqueItems") and isinstance(value, list):
            repeated = any(_same(item, other) for n, item in enumerate(value) for other in value[:n])
            demand(not repeated, f"{at} has an item twice")

    def _object(self, value: Json, schema: Mapping[str, Any], at: str, depth: int) -> None:
        if not isinstance(value, Mapping):
            if schema.get("type") == "object":
                # What an object would be asked for is missed with it, else a bare text would miss little.
                for name in schema.get("required", ()):
                    self.counted.demand(False, f"{at} has no {name}")
            return
        known: Mapping[str, Json] = schema.get("properties", {})
        for name in schema.get("required", ()):
            self.counted.demand(name in value, f"{at} has no {name}")
        for name, inner in known.items():
            if name in value:
                self.hold(value[name], inner, f"{at}.{name}", depth)
        rest = schema.get("additionalProperties", True)
        for name in value:
            if name not in known and rest is not True:
                self.hold(value[name], rest, f"{at}.{name}", depth)

    def _array(self, value: Json, schema: Mapping[str, Any], at: str, depth: int) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str):
            return
        first: Sequence[Json] = schema.get("prefixItems", ())
        for number, (item, inner) in enumerate(zip(value, first, strict=False)):
            self.hold(item, inner, f"{at}[{number}]", depth)
        if "items" in schema:
            for number, item in enumerate(value[len(first) :], len(first)):
                self.hold(item, schema["items"], f"{at}[{number}]", depth)

    def _combined(self, value: Json, schema: Mapping[str, Any], at: str, depth: int) -> None:
        for inner in schema.get("allOf", ()):
            self.hold(value, inner, at, depth)
        for name in ("anyOf", "oneOf"):
            if name in schema:
                kept = sum(self._keeps(value, inner, at, depth) for inner in schema[name])
                self.counted.demand(kept == 1 if name == "oneOf" else kept > 0, f"{at} breaks {name}")
        if "not" in schema:
            self.counted.demand(
                not self._keeps(value, schema["not"], at, depth), f"{at} is what it may not be"
            )

    def _keeps(self, value: Json, schema: Json, at: str, depth: int) -> bool:
        inner = Conformance()
        _Walk(self.root, inner, self.patterns).hold(value, schema, at, depth)
        return not inner.missed

    def _referred(self, path: Json) -> Json:
        node = self.root
        if not isinstance(path, str) or not path.startswith("#"):
            raise InputError(f"a $ref must stay within the schema (#/...); given {path!r:.80}")
        for part in path[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or name not in node:
                raise InputError(f"the JSON Schema has nothing at {path}")
            node = node[name]
        return node


def _is(value: Json, kind: Json) -> bool:
    if kind not in _TYPES:
        raise InputError(f"JSON Schema has no type {kind!r:.40}; there are {', '.join(_TYPES)}")
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _same(value: Json, other: Json) -> bool:
    """Equal as JSON Schema has it: 1 is 1.0, and neither is True."""
    plain = (int, float)
    if type(value) in plain and type(other) in plain:
        return bool(value == other)
    return exact(value, other)
