"""Inputs for a function, made from its annotations, its defaults and the literals around it.

As fuzzers do with a dictionary (AFL's `-x`): values of the right type, half of them made of what the
code itself compares with, so that its branches are reached.  A parameter without annotation is tried
with every plain type, and what raises in the sandbox is dropped by the caller.  Seeded, so the same
text gives the same inputs.  It knows no right answers.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence

from ...python_text import expression_of
from ...repository.syntax import Parameter
from ...types import Json
from .signatures import SELF, Signature, compact

_WORDS = (
    "please", "the", "a", "my", "order", "where", "is", "when", "can", "you", "help", "me", "with", "this",
    "account", "today", "yesterday", "about", "for", "and", "invoice", "blue", "paper", "12", "London", "Anna",
    "report", "meeting", "late", "broken", "new", "price", "question", "thanks", "again",
)  # fmt: skip
_NAMES = {
    "text": "str", "name": "str", "message": "str", "query": "str", "question": "str", "to": "str", "raw": "str",
    "subject": "str", "body": "str", "prompt": "str", "title": "str", "line": "str", "word": "str", "url": "str",
    "amount": "float", "price": "float", "value": "float", "rate": "float", "score": "float", "seconds": "float",
    "n": "int", "count": "int", "number": "int", "limit": "int", "size": "int", "index": "int", "k": "int",
    "items": "list[str]", "words": "list[str]", "values": "list[float]", "rows": "list[dict[str, str]]",
    "numbers": "list[int]", "flag": "bool", "strict": "bool", "options": "dict[str, str]",
}  # fmt: skip
"""Name of a parameter without an annotation → its likely type."""
_UNKNOWN = ("str", "int", "float", "list[str]", "list[int]", "dict[str, str]", "bool")
_SEQUENCES = {"list", "tuple", "Sequence", "Iterable", "Collection", "set", "frozenset", "List", "Tuple"}
_MAPPINGS = {"dict", "Mapping", "Dict", "MutableMapping"}
_NUMBERS = (0, 1, 2, 3, 5, 7, 10, 12, 25, 40, 99, 100, 101, 250, 499, 500, 501, 1000)

Maker = Callable[[random.Random], Json]


class Unknown(Exception):
    """No value of this type can be made as JSON."""


def inputs(signature: Signature, pool: Sequence[Json], seed: int) -> Iterator[Json]:
    """Inputs without end, in the form in which they are recorded.

    Args:
        pool: literals that stand around the function.

    Raises:
        Unknown: a required parameter has a type that no JSON can be; names it.
    """
    # Text seeds Random by its bytes, alike in every process; hash() of it would not be.
    rng = random.Random(f"inputs:{seed}")
    makers = {parameter.name: _maker_of(parameter, pool) for parameter in signature.parameters}
    built = {
        parameter.name: _maker_of(parameter, pool)
        for parameter in signature.constructor
        if parameter.required
    }
    while True:
        arguments: dict[str, Json] = {}
        for parameter in signature.parameters:
            # Each draw is part of the seed's random stream: one more or one less changes all inputs.
            if parameter.required or rng.random() < 0.3:
                arguments[parameter.name] = makers[parameter.name](rng)
        if built:
            yield {**arguments, SELF: {name: make(rng) for name, make in built.items()}}
        else:
            yield compact(signature, arguments)


def near(signature: Signature, answered: Sequence[Json], pool: Sequence[Json], seed: int) -> Iterator[Json]:
    """Inputs without end that differ in one argument from some that the function answered.

    A function that wants one of a few keys in one argument is reached through those that had one.
    """
    rng = random.Random(f"near:{seed}")
    fresh = inputs(signature, pool, seed + 1)
    answered_arguments = [
        arguments
        for arguments in (signature.named(answered_input) for answered_input in answered)
        if arguments
    ]
    while answered_arguments:
        child, donor = dict(rng.choice(answered_arguments)), signature.named(next(fresh)) or {}
        name = rng.choice(list(child))
        # From another one that was answered, or new.
        source = rng.choice(answered_arguments) if rng.random() < 0.3 else donor
        if name in source:
            child[name] = source[name]
        yield child if SELF in child else compact(signature, child)


def _maker_of(parameter: Parameter, pool: Sequence[Json]) -> Maker:
    kinds: tuple[str, ...] = (parameter.annotation,)
    if not parameter.annotation:
        guess = _NAMES.get(parameter.name.lower().rstrip("_0123456789"))
        default = type(parameter.default).__name__ if parameter.default is not None else None
        likely = default if default in ("str", "int", "float", "bool") else guess
        # The likely type mostly; the others too, since a name proves nothing.
        kinds = (*([likely] * 6 if likely else []), *_UNKNOWN)
    try:
        makers = [maker(kind, pool) for kind in kinds]
    except Unknown as error:
        if parameter.required:
            raise Unknown(f"parameter {parameter.name}: {error}") from error
        return lambda rng: parameter.default
    return lambda rng: rng.choice(makers)(rng)


def maker(annotation: str, pool: Sequence[Json]) -> Maker:
    """A maker of values of a type, as annotations write it.

    Raises:
        Unknown: it is no JSON.
    """
    try:
        node = expression_of(annotation)
    except SyntaxError as error:
        raise Unknown(f"{annotation!r} is not an annotation that can be read") from error
    return _of_node(node, pool)


def _of_node(node: ast.expr, pool: Sequence[Json]) -> Maker:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _any_of(_makeable([node.left, node.right], pool))
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return maker(node.value, pool)
        return lambda rng: None
    inner: list[ast.expr] = []
    head = node
    if isinstance(node, ast.Subscript):
        head = node.value
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    name = head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", "")
    if name == "Literal":
        choices = [argument.value for argument in inner if isinstance(argument, ast.Constant)]
        return lambda rng: rng.choice(choices)
    if name in ("Optional", "Union", "Annotated"):
        makers = [_of_node(inner[0], pool)] if name == "Annotated" else _makeable(inner, pool)
        return _any_of(makers if name != "Optional" else [*makers, lambda rng: None])
    if name in _SEQUENCES:
        plain = [
            argument
            for argument in inner
            if not (isinstance(argument, ast.Constant) and argument.value is Ellipsis)
        ]
        if name in ("tuple", "Tuple") and len(plain) > 1:
            parts = [_of_node(argument, pool) for argument in plain]
            return lambda rng: [part(rng) for part in parts]
        item = _of_node(plain[0], pool) if plain else maker("str", pool)
        return lambda rng: [item(rng) for _ in range(rng.randint(0, 6))]
    if name in _MAPPINGS:
        value = _of_node(inner[1], pool) if len(inner) > 1 else maker("str", pool)
        return lambda rng: {_word(rng, pool): value(rng) for _ in range(rng.randint(1, 4))}
    return _plain(name, pool)


def _makeable(nodes: Sequence[ast.expr], pool: Sequence[Json]) -> list[Maker]:
    """Makers of those of several types that are JSON; one has to be that is more than None."""
    makers: list[Maker] = []
    failed: Unknown | None = None
    something = False
    for node in nodes:
        try:
            makers.append(_of_node(node, pool))
            something = something or not (isinstance(node, ast.Constant) and node.value is None)
        except Unknown as error:
            failed = failed or error
    if failed is not None and not something:
        raise failed
    return makers


def _any_of(makers: Sequence[Maker]) -> Maker:
    return lambda rng: rng.choice(makers)(rng)


def _plain(name: str, pool: Sequence[Json]) -> Maker:
    if name == "str":
        return lambda rng: _text(rng, pool)
    if name == "bool":
        return lambda rng: rng.random() < 0.5
    if name == "int":
        return lambda rng: int(_number(rng, [literal for literal in pool if type(literal) is int]))
    if name == "float":
        numbers = [literal for literal in pool if type(literal) in (int, float)]
        return lambda rng: float(round(_number(rng, numbers), 2))
    if name in ("Any", "object", "Json"):
        return _any_of([_plain("str", pool), _plain("int", pool)])
    if name == "None":
        return lambda rng: None
    raise Unknown(f"a {name or 'value of this type'} cannot be made from JSON")


def _number(rng: random.Random, literals: Sequence[Json]) -> float:
    if literals and rng.random() < 0.4:
        near = rng.choice(literals)
        return float(near) + rng.choice((-1, 0, 0, 1))
    base = float(rng.choice(_NUMBERS)) if rng.random() < 0.5 else rng.uniform(0, 1000)
    return -base if rng.random() < 0.1 else base


def _word(rng: random.Random, pool: Sequence[Json]) -> str:
    words = [literal for literal in pool if isinstance(literal, str) and literal.strip()]
    return rng.choice(words) if words and rng.random() < 0.6 else rng.choice(_WORDS)


def _text(rng: random.Random, pool: Sequence[Json]) -> str:
    """A word of the code's own, a sentence with some in it, a number as text, or nothing."""
    kind = rng.random()
    words = [literal for literal in pool if isinstance(literal, str) and literal.strip()]
    if kind < 0.3 and words:
        return rng.choice(words)
    if kind < 0.35:
        return rng.choice(("", " ", str(rng.randint(0, 999)), "?", f"[{rng.randint(0, 9)}]", '{"a": 1}'))
    parts = [
        _word(rng, pool) if rng.random() < 0.35 else rng.choice(_WORDS) for _ in range(rng.randint(2, 9))
    ]
    text = " ".join(parts)
    return text.capitalize() if rng.random() < 0.5 else text.upper() if rng.random() < 0.1 else text
