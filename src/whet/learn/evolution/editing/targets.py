"""Literal constants in a source file as knobs to evolve: read, with the domains that comments state, and patched.

`find` reads `RULE = {...}` out of a program's text with its syntax tree, together with the
domain of each knob as the trailing comments state it; `patch` writes a new value back and touches
nothing but the literals that changed.  The program is never imported or run, and the value comes through
`ast.literal_eval`.

It does not follow names, calls, f-strings or anything else that has to be evaluated, and does not look inside
functions and classes.  `operators.py` moves values inside the domains.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ....errors import InputError, NotFoundError
from ....repository.syntax import defines, json_literal, json_of
from ....repository.text import SourceText
from ....types import Json

Path = tuple[str | int, ...]
"""Where a knob sits in the value: keys and indices from the root; () is the value itself."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that one knob may take."""

    kind: str
    """`bool`, `int`, `float`, `choice` (one of `choices`), `subset` (a list of some of `choices`, in
    their order), `order` (a permutation of the list as it stands) or `fixed`."""
    low: float | None = None
    """Smallest value of a number, None if unbounded."""
    high: float | None = None
    choices: tuple[Json, ...] = ()

    def holds(self, value: Json) -> bool:
        """True if `value` lies inside; an `order` holds any list, its members are not known here."""
        if self.kind == "choice":
            return any(_same(value, choice) for choice in self.choices)
        if self.kind == "subset":
            return isinstance(value, list) and all(item in self.choices for item in value)
        if self.kind in ("int", "float"):
            if isinstance(value, bool) or not isinstance(
                value, (int, float) if self.kind == "float" else int
            ):
                return False
            above = self.low is None or value >= self.low
            return math.isfinite(value) and above and (self.high is None or value <= self.high)
        if self.kind == "order":
            return isinstance(value, list)
        return isinstance(value, bool) if self.kind == "bool" else True


@dataclass(frozen=True, slots=True)
class ConstantTarget:
    """One module-level literal constant."""

    name: str
    value: Json
    """Tuples are read as lists, as JSON would carry them."""
    domains: Mapping[Path, Domain] = field(default_factory=dict)
    """Only those that a comment states; `operators.knobs` infers the others from their type."""


def find(text: str, name: str) -> ConstantTarget:
    """The constant `name` of a module's text, with the hints in its trailing comments.

    Hints: `# 0..4` (a range; whole numbers if the value is one), `# all | any` (choices),
    `# any of a, b, c` (a list of some of these), `# any order` (a list to permute), `# fixed`.
    Words after a colon, semicolon or dash are for people: `# 0..4: words that may be missing`.
    A comment belongs to the value that ends on its line, the last one if there are several.

    Raises:
        NotFoundError: no such constant at module level; names those there are.
        InputError: assigned twice, not a literal, not JSON, or a value outside its own hint.
    """
    source, node, value = _constant(text, name)
    return ConstantTarget(name, value, _hints(source, node, value, name))


def names(text: str) -> list[str]:
    """Every module-level name that is assigned one JSON literal, in the order of the text."""
    constants = []
    for name in dict.fromkeys(name for name, _ in _assignments(_parse(text))):
        try:
            find(text, name)
        except InputError:
            continue
        constants.append(name)
    return constants


def patch(text: str, name: str, value: Json) -> str:
    """The text with the constant `name` set to `value`; all but the literals that changed stays as it is.

    A list that changes length and a dict whose keys change are written anew on one line, with the
    comments inside them lost; everything else keeps its formatting, comments and quotes.

    Raises:
        NotFoundError, InputError: as `find`; or `value` cannot be written as a literal.
    """
    source, node, old = _constant(text, name)
    try:
        value = json_of(value)
    except ValueError as error:
        raise InputError(
            f"{name} cannot become {value!r}, which no JSON literal can hold: {error}"
        ) from error
    if _same(old, value):
        return text
    changes = []
    for part, new in _changes(node, old, value):
        quote = "'" if source.segment(part).lstrip("[({ ").startswith("'") else '"'
        changes.append((source.span(part), _render(new, quote, isinstance(part, ast.Tuple))))
    patched = source.spliced(changes)
    # Read again, because it goes into a file of the user's: `repr` and `_render` have to agree with the parser.
    if not _same(_constant(patched, name)[2], value):
        raise InputError(
            f"{name}: the new value does not survive being written as a Python literal: {value!r}"
        )
    return patched


def _parse(text: str) -> SourceText:
    try:
        return SourceText(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"the source is not valid Python: {error}") from error


def _assignments(source: SourceText) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from ((name, statement) for name in defines(statement))


def _constant(text: str, name: str) -> tuple[SourceText, ast.expr, Json]:
    """The text's tree, the node of the constant's value, and the value."""
    source = _parse(text)
    statements = [statement for assigned, statement in _assignments(source) if assigned == name]
    if not statements:
        others = ", ".join(dict.fromkeys(assigned for assigned, _ in _assignments(source))) or "none"
        raise NotFoundError(f"no module-level constant {name!r}; assigned at module level: {others}")
    if len(statements) > 1:
        lines = ", ".join(str(statement.lineno) for statement in statements)
        raise InputError(f"{name} is assigned on lines {lines}; a constant to evolve is assigned once")
    node = statements[0].value
    assert node is not None
    try:
        return source, node, json_literal(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{name} (line {node.lineno}) is not a JSON literal: {error}. "
            "Write it with numbers, strings, True/False/None, lists and dicts with string keys."
        ) from error


def _same(first: Json, second: Json) -> bool:
    """Equality that keeps True from 1 and 1 from 1.0, which `==` does not."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(
            _same(member, second[key]) for key, member in first.items()
        )
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


def _children(node: ast.expr, value: Json) -> list[tuple[str | int, ast.expr]] | None:
    """The parts of a container with their key or index, None for a leaf or a repeated key."""
    if isinstance(node, ast.Dict) and isinstance(value, dict) and len(value) == len(node.values):
        return list(zip(value, node.values, strict=True))
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(value, list):
        return list(enumerate(node.elts))
    return None


def _changes(node: ast.expr, old: Json, new: Json) -> Iterator[tuple[ast.expr, Json]]:
    """The smallest nodes whose value differs, with their new values."""
    if _same(old, new):
        return
    children = _children(node, old)
    if isinstance(old, dict):
        same_shape = isinstance(new, dict) and old.keys() == new.keys()
    else:
        same_shape = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    if children is None or not same_shape or (isinstance(old, dict) and list(old) != list(new)):
        yield node, new
        return
    for key, child in children:
        yield from _changes(child, old[key], new[key])


def _render(value: Json, quote: str, as_tuple: bool = False) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_render(key, quote)}: {_render(item, quote)}" for key, item in value.items())
        return "{" + inside + "}"
    if isinstance(value, list):
        items = ", ".join(_render(item, quote) for item in value)
        if as_tuple:
            return f"({items},)" if len(value) == 1 else f"({items})"
        return f"[{items}]"
    if isinstance(value, str) and quote == '"':
        # repr prefers single quotes; prefixing one makes it choose double ones, and is cut off again.
        text = repr("'" + value)
        return '"' + text[2:] if text.startswith('"') else repr(value)
    return repr(value)


_NUMBER = r"[-+]?(?:\d+\.\d+|\.\d+|\d+)(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})", re.IGNORECASE)


def _hints(source: SourceText, node: ast.expr, value: Json, name: str) -> dict[Path, Domain]:
    if b"#" not in source.raw:
        return {}
    by_line: dict[int, tuple[Path, Json]] = {}

    def visit(part: ast.expr, member: Json, path: Path) -> None:
        if isinstance(member, dict):
            for key, child in _children(part, member) or []:
                visit(child, member[key], (*path, key))
        else:
            assert part.end_lineno is not None
            by_line[part.end_lineno] = (path, member)  # the last value on a line wins

    visit(node, value, ())
    domains: dict[Path, Domain] = {}
    for token in tokenize.generate_tokens(io.StringIO(source.raw.decode(), newline="").readline):
        if token.type != tokenize.COMMENT or token.start[0] not in by_line:
            continue
        path, member = by_line[token.start[0]]
        domain = hint(token.string, member)
        if domain is None:
            continue
        if not domain.holds(member):
            where = ".".join(map(str, (name, *path)))
            raise InputError(
                f"line {token.start[0]}: {where} = {member!r} lies outside its own hint {token.string!r}; "
                "widen the hint or correct the value"
            )
        domains[path] = domain
    return domains


def hint(comment: str, value: Json) -> Domain | None:
    """The domain that a trailing comment states for `value`, None if it states none."""
    text = comment.lstrip("#").strip()
    if "|" not in text.split(":")[0]:
        match = _RANGE.match(text)
        if match and isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = float(match[1]), float(match[2])
            integral = isinstance(value, int) and low.is_integer() and high.is_integer()
            return Domain("int" if integral else "float", min(low, high), max(low, high))
    head = re.split(r"\s*(?:[:;]|\s[-–—]\s)", text, maxsplit=1)[0].strip()
    if head.lower() == "fixed":
        return Domain("fixed")
    if head.lower() == "any order" and isinstance(value, list):
        return Domain("order")
    if head.lower().startswith("any of ") and isinstance(value, list):
        return Domain("subset", choices=tuple(_word(part) for part in head[7:].split(",") if part.strip()))
    if "|" in head and not isinstance(value, (list, dict)):
        return Domain("choice", choices=tuple(_word(part) for part in head.split("|")))
    return None


def _word(text: str) -> Json:
    """A choice as it stands in a comment: a literal if it reads as one, else the bare word."""
    bare = text.strip()
    try:
        return json_literal(bare)
    except (ValueError, SyntaxError, TypeError):
        return bare
