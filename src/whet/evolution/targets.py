"""Literal constants in a source file as things to evolve: found, hinted, patched, shown as a diff.

`find` reads `RULE = {...}` out of a program's text with its syntax tree, together with the
domain of each knob as the trailing comments state it; `patch` writes a new value back and touches
nothing but the literals that changed; `diff` gives what `git apply` accepts.  The program is never
imported or run, and the value comes through `ast.literal_eval`.

What it will not do: follow names, calls, f-strings or anything else that has to be evaluated, or
look inside functions and classes.  Read `operators.py` next for what moves inside the domains.
"""

from __future__ import annotations

import ast
import difflib
import io
import math
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ..errors import InputError, NotFoundError
from ..types import Json

Path = tuple[str | int, ...]
"""Where a knob sits in the value: keys and indices from the root; () is the value itself."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What values one knob may take."""

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
class Target:
    """One module-level literal constant."""

    name: str
    value: Json
    """Tuples are read as lists, as JSON would carry them."""
    domains: Mapping[Path, Domain] = field(default_factory=dict)
    """Only those that a comment states; `operators.knobs` infers the others from their type."""
    line: int = 0
    """Where the assignment begins, from 1."""


def find(source: str, name: str) -> Target:
    """The constant `name` of a module's text, with the hints in its trailing comments.

    Hints: `# 0..4` (a range; whole numbers if the value is one), `# all | any` (choices),
    `# any of a, b, c` (a list of some of these), `# any order` (a list to permute), `# fixed`.
    Words after a colon, semicolon or dash are for people: `# 0..4: words that may be missing`.
    A comment belongs to the value that ends on its line, the last one if there are several.

    Raises:
        NotFoundError: no such constant at module level; names those there are.
        InputError: assigned twice, not a literal, not JSON, or a value outside its own hint.
    """
    node, line = _assignment(source, name)
    value = _literal(node, name)
    return Target(name, value, _hints(source, node, value, name), line)


def names(source: str) -> list[str]:
    """Every module-level name that is assigned one JSON literal, in the order of the text."""
    found = []
    for name in dict.fromkeys(name for name, _, _ in _assignments(_parse(source))):
        try:
            find(source, name)
        except InputError:
            continue
        found.append(name)
    return found


def patch(source: str, name: str, value: Json) -> str:
    """The text with the constant `name` set to `value`; all but the literals that changed is kept.

    A list that changes length and a dict whose keys change are written anew on one line, with the
    comments inside them lost; everything else keeps its formatting, comments and quotes.

    Raises:
        NotFoundError, InputError: as `find`; or `value` cannot be written as a literal.
    """
    node, _ = _assignment(source, name)
    old = _literal(node, name)
    try:
        value = _json(value)
    except ValueError as error:
        raise InputError(
            f"{name} cannot become {value!r}, which no JSON literal can hold: {error}"
        ) from error
    if _same(old, value):
        return source
    mark = "\ufeff" if source.startswith("\ufeff") else ""
    lines = source.removeprefix(mark).encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)
    # From the end backwards, so that earlier offsets stay valid.
    for part, new in sorted(
        _changes(node, old, value), key=lambda change: _span(change[0], starts), reverse=True
    ):
        begin, end = _span(part, starts)
        quote = "'" if text[begin:end].lstrip(b"[({ ").startswith(b"'") else '"'
        text = text[:begin] + _render(new, quote, isinstance(part, ast.Tuple)).encode() + text[end:]
    patched = mark + text.decode()
    if not _same(_literal(_assignment(patched, name)[0], name), value):
        raise InputError(
            f"{name}: the new value does not survive being written as a Python literal: {value!r}"
        )
    return patched


def diff(path: str, old: str, new: str) -> str:
    """Unified diff of one file that `git apply` accepts; empty if nothing changed.

    Args:
        path: of the file, relative to the repository's root, with forward slashes.

    Raises:
        InputError: an absolute path, or one that leaves the repository.
    """
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "\\" in path or ":" in parts[0]:
        raise InputError(f"{path!r} cannot head a patch: give a path relative to the repository's root")
    if old == new:
        return ""
    # str.splitlines would also split at form feeds and U+2028, which git does not.
    before, after = _lines(old), _lines(new)
    out = [f"--- {_label('a/' + path)}\n", f"+++ {_label('b/' + path)}\n"]
    for line in list(difflib.unified_diff(before, after, lineterm="\n"))[2:]:
        out.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(out)


def plain(text: str) -> str:
    """A text with a line feed at the end of each line, as Python reads it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def as_written(old: str, new: str) -> str:
    """`new`, whose lines end in a line feed, with the line ends that the file has, and its byte order mark.

    A line that is kept keeps its own end, others get the commonest; and where the last line has no end, the
    new one has none.

    Args:
        old: the file byte for byte, as text; not what reading it with universal newlines gives.
    """
    if old.startswith(_MARK):
        return _MARK + as_written(old.removeprefix(_MARK), new)
    if not old.endswith("\n"):
        new = new.removesuffix("\n")
    if "\r" not in old:
        return new
    *before, _ = old.split("\n")
    *after, rest = new.split("\n")
    usual = "\r" if 2 * sum(line.endswith("\r") for line in before) >= len(before) else ""
    said = [line.removesuffix("\r") for line in before]
    # What begins and ends alike first: the matcher takes long runs, and lines that say the same for one another.
    head = _alike(said, after)
    tail = _alike(said[head:][::-1], after[head:][::-1])
    stop, last = len(said) - tail, len(after) - tail
    matched = difflib.SequenceMatcher(None, said[head:stop], after[head:last], autojunk=False)
    made = before[:head]
    for kind, *places in matched.get_opcodes():
        start, end, new_start, new_end = (head + place for place in places)
        made += before[start:end] if kind == "equal" else [line + usual for line in after[new_start:new_end]]
    return "\n".join([*made, *before[stop:], rest])


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines they begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _label(path: str) -> str:
    plain = all(31 < ord(letter) < 127 and letter != '"' for letter in path)
    if plain:
        return path + ("\t" if " " in path else "")
    inside = (
        f"\\{byte:03o}" if byte < 32 or byte > 126 or byte == 34 else chr(byte) for byte in path.encode()
    )
    return f'"{"".join(inside)}"'


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(source.removeprefix("\ufeff"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"the source is not valid Python: {error}") from error


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value, statement.lineno
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value
        ):
            yield statement.target.id, statement.value, statement.lineno


def _assignment(source: str, name: str) -> tuple[ast.expr, int]:
    every = list(_assignments(_parse(source)))
    found = [(node, line) for given, node, line in every if given == name]
    if not found:
        others = ", ".join(dict.fromkeys(given for given, _, _ in every)) or "none"
        raise NotFoundError(f"no module-level constant {name!r}; assigned at module level: {others}")
    if len(found) > 1:
        lines = ", ".join(str(line) for _, line in found)
        raise InputError(f"{name} is assigned on lines {lines}; a constant to evolve is assigned once")
    return found[0]


def _literal(node: ast.expr, name: str) -> Json:
    try:
        return _json(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{name} (line {node.lineno}) is not a JSON literal: {error}. "
            "Write it with numbers, strings, True/False/None, lists and dicts with string keys."
        ) from error


def _json(value: object) -> Json:
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"a key of {value!r} is not a string")
        return {key: _json(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"{value!r} is a {type(value).__name__}")


def _same(one: Json, other: Json) -> bool:
    """Equality that keeps True from 1 and 1 from 1.0, which `==` does not."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(item, other[key]) for key, item in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _children(node: ast.expr, value: Json) -> list[tuple[str | int, ast.expr]] | None:
    """The parts of a container with their key or index, None for a leaf or a repeated key."""
    if isinstance(node, ast.Dict) and isinstance(value, dict) and len(value) == len(node.values):
        return list(zip(value, node.values, strict=True))
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(value, list):
        return list(enumerate(node.elts))
    return None


def _changes(node: ast.expr, old: Json, new: Json) -> Iterator[tuple[ast.expr, Json]]:
    """The smallest nodes whose value differs, with what they become."""
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


def _span(node: ast.expr, starts: Sequence[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


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


_MARK = "\ufeff"
"""The byte order mark that some editors put before UTF-8."""
_NUMBER = r"[-+]?(?:\d+\.\d+|\.\d+|\d+)(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*\.\.\s*({_NUMBER})", re.IGNORECASE)


def _hints(source: str, node: ast.expr, value: Json, name: str) -> dict[Path, Domain]:
    if "#" not in source:
        return {}
    by_line: dict[int, tuple[Path, Json]] = {}

    def visit(part: ast.expr, held: Json, path: Path) -> None:
        children = _children(part, held)
        if not isinstance(held, dict):
            assert part.end_lineno is not None
            by_line[part.end_lineno] = (path, held)  # the last value on a line wins
        for key, child in (children or []) if isinstance(held, dict) else []:
            visit(child, held[key], (*path, key))

    visit(node, value, ())
    domains: dict[Path, Domain] = {}
    text = source.removeprefix("\ufeff")
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.type != tokenize.COMMENT or token.start[0] not in by_line:
            continue
        path, held = by_line[token.start[0]]
        domain = hint(token.string, held)
        if domain is None:
            continue
        if not domain.holds(held):
            where = ".".join(map(str, (name, *path)))
            raise InputError(
                f"line {token.start[0]}: {where} = {held!r} lies outside its own hint {token.string!r}; "
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
            whole = isinstance(value, int) and low.is_integer() and high.is_integer()
            return Domain("int" if whole else "float", min(low, high), max(low, high))
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
        return _json(ast.literal_eval(bare))
    except (ValueError, SyntaxError, TypeError):
        return bare
