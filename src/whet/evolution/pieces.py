"""What may change of a repository, cut out of its files, and put back with all else as it was.

A piece is a function, a constant, or a text: a prompt, a tool's description, a skill.  It becomes one
part of a `Program`: Python for code, the bare text for texts.  The same cut is made in the user's file,
for the patch, and in the staged copy, for the evaluation; places are found by name in the syntax
tree, never by line.  It changes nothing on disk.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ..data.signatures import definition
from ..errors import InputError
from .marks import Mark
from .program import Program
from .targets import as_written, diff, plain

_QUOTES = re.compile(r"""^[uU]?(\"\"\"|'''|"|')""")
_TEXT = {"resource", "schema"}


@dataclass(frozen=True, slots=True)
class Piece:
    """One target as it stands, and the part of a Program that it is."""

    mark: Mark
    part: str
    """Name of the part: `.py` for code, `.txt` or `.md` for a text."""
    text: str

    @property
    def code(self) -> bool:
        return self.part.endswith(".py")


def cut(mark: Mark, source: str) -> Piece:
    """The piece that a mark names in a file's text.

    Raises:
        InputError: it cannot be cut out; says why.
        NotFoundError: the text does not define it.
    """
    base = PurePosixPath(mark.path).with_suffix("").as_posix()
    if mark.how == "skill":
        return Piece(mark, mark.path, source)
    if mark.path.endswith(".json"):
        return Piece(mark, f"{base}/{mark.name}.txt", mark.text)
    if mark.how in _TEXT:
        return Piece(mark, f"{base}/{mark.name}.txt", _value(_text_node(ast.parse(source), mark)))
    node, owner = definition(ast.parse(source), mark.qualname)
    place = f"{base}/{mark.qualname}"
    constant = _assigned(node)
    if constant is not None and _is_text(constant):
        return Piece(mark, f"{place}.txt", _value(constant))
    if isinstance(node, ast.ClassDef):
        raise InputError(f"{mark.qualname} is a class: mark the methods of it that should become better")
    lines = source.splitlines(keepends=True)
    text = "".join(lines[node.lineno - 1 : node.end_lineno])
    if owner is not None:
        # The header keeps the method where its indentation says it is.
        text = f"{_above(mark.qualname)}{text}"
    return Piece(mark, f"{place}.py", text if text.endswith("\n") else text + "\n")


def _above(qualname: str) -> str:
    names = qualname.split(".")[:-1]
    return "".join(f"{'    ' * depth}class {name}:\n" for depth, name in enumerate(names))


def put(mark: Mark, source: str, text: str, *, staged: bool = False) -> str:
    """The file's text with the piece replaced by `text`, a part that `cut` made and something changed.

    Args:
        staged: the copy that runs inside; a call of `whet.resource` becomes the text itself there.

    Raises:
        InputError: the part no longer defines the piece, or defines it with other parameters.
    """
    if mark.how == "skill":
        return text
    if mark.path.endswith(".json"):
        return _put_json(mark, source, text)
    if mark.how in _TEXT:
        said = _text_node(ast.parse(source), mark)
        whole = _call_of(ast.parse(source), mark) if staged and mark.how == "resource" else said
        return _splice(source, whole, _written(ast.get_source_segment(source, said) or "", text))
    node, _ = definition(ast.parse(source), mark.qualname)
    constant = _assigned(node)
    if constant is not None and _is_text(constant):
        return _splice(source, constant, _written(ast.get_source_segment(source, constant) or "", text))
    new, first = _changed(mark, node, text)
    lines = source.splitlines(keepends=True)
    lines[node.lineno - 1 : node.end_lineno] = [new]
    if first:
        top = _top(ast.parse(source), node)
        lines[top:top] = [first]
    return "".join(lines)


def _changed(mark: Mark, old: ast.stmt, text: str) -> tuple[str, str]:
    """The definition's own lines in a changed part, and what the part adds in front of it."""
    try:
        tree = ast.parse(text)
        node, owner = definition(tree, mark.qualname)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{mark.name} is no Python any more: {error}") from error
    if type(node) is not type(old):
        raise InputError(f"{mark.name} was a {type(old).__name__} and became a {type(node).__name__}")
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        assert isinstance(old, (ast.FunctionDef, ast.AsyncFunctionDef))
        if ast.dump(node.args) != ast.dump(old.args):
            raise InputError(f"{mark.name} must keep its parameters ({ast.unparse(old.args)})")
        if node.decorator_list:
            raise InputError(f"{mark.name}: decorators are not part of the piece; leave them out")
    lines = text.splitlines(keepends=True)
    own = "".join(lines[node.lineno - 1 : node.end_lineno])
    outer = node if owner is None else next(each for each in tree.body if _holds(each, node))
    others = [each for each in tree.body if each is not outer]
    if owner is not None and len(owner.body) > 1:
        raise InputError(f"{mark.name}: only the method itself may change, not its class")
    added = "".join("".join(lines[each.lineno - 1 : each.end_lineno]).rstrip("\n") + "\n" for each in others)
    return own if own.endswith("\n") else own + "\n", f"{added}\n\n" if added else ""


def _holds(outer: ast.stmt, inner: ast.stmt) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _top(tree: ast.Module, node: ast.stmt) -> int:
    """Index of the line above which additions go: the top-level statement's, its decorators counted."""
    for each in tree.body:
        if each.lineno <= node.lineno <= (each.end_lineno or each.lineno):
            marks = [mark.lineno for mark in getattr(each, "decorator_list", [])]
            return min(int(line) for line in (each.lineno, *marks)) - 1
    return node.lineno - 1


def _assigned(node: ast.stmt) -> ast.expr | None:
    return node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _value(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    return str(node.value)


def _text_node(tree: ast.Module, mark: Mark) -> ast.Constant:
    """The literal of a resource's default, of a tool's description, or of a tool function's docstring.

    Raises:
        InputError: it is none, or stands there twice.
    """
    found = list(_texts(tree, mark))
    if len(found) != 1:
        raise InputError(
            f"{mark.path}: {mark.name} has {len(found)} plain texts that could change; one literal is needed"
        )
    return found[0]


def _texts(tree: ast.Module, mark: Mark) -> Iterator[ast.Constant]:
    if mark.how == "resource":
        call = _call_of(tree, mark)
        given = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "default")]
        yield from (each for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str))
        return
    if mark.qualname:
        node, _ = definition(tree, mark.qualname)
        body = getattr(node, "body", [])
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            yield body[0].value
        return
    for part in ast.walk(tree):
        if isinstance(part, ast.Dict):
            held = {
                key.value: value
                for key, value in zip(part.keys, part.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            name, said = held.get("name"), held.get("description")
            if isinstance(name, ast.Constant) and name.value == mark.name and isinstance(said, ast.Constant):
                yield said


def _call_of(tree: ast.Module, mark: Mark) -> ast.Call:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if node.args[0].value == mark.name and called.endswith("resource"):
                return node
    raise InputError(f"{mark.path} declares no resource {mark.name!r}")


def _splice(source: str, node: ast.expr, new: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    text = b"".join(lines)
    return (text[:begin] + new.encode() + text[end:]).decode()


def _written(old: str, value: str) -> str:
    """A text as a literal, in the quotes that stand there; triple ones for several lines."""
    found = _QUOTES.match(old)
    quotes = found[1] if found else '"'
    if "\n" in value and len(quotes) == 1:
        quotes *= 3
    body = value.replace("\\", "\\\\").replace(quotes, "\\" + "\\".join(quotes))
    if len(quotes) == 1:
        body = body.replace("\r", "\\r")
    elif body.endswith(quotes[0]):
        body = f"{body[:-1]}\\{quotes[0]}"
    new = f"{quotes}{body}{quotes}"
    try:
        return new if ast.literal_eval(new) == value else repr(value)
    except (SyntaxError, ValueError):
        return repr(value)


def _put_json(mark: Mark, source: str, text: str) -> str:
    forms = [json.dumps(mark.text), json.dumps(mark.text, ensure_ascii=False)]
    for escaped, form in zip((True, False), forms, strict=True):
        if source.count(form) == 1:
            return source.replace(form, json.dumps(text, ensure_ascii=escaped))
    raise InputError(f"{mark.path}: the description of {mark.name} does not stand there exactly once")


def program_of(pieces: Sequence[Piece], main: str = "") -> Program:
    """The pieces as a Program; the part of the first one is the main one unless `main` names another.

    Raises:
        InputError: no piece, or two that are the same.
    """
    parts = {each.part: each.text for each in pieces}
    if not parts or len(parts) != len(pieces):
        raise InputError(f"{len(pieces)} targets make {len(parts)} pieces: each target is given once")
    return Program(parts, main or pieces[0].part)


def replaced(
    pieces: Sequence[Piece], program: Program, file: Callable[[str], str], *, staged: bool = False
) -> dict[str, str]:
    """Path → text of the files that change where a Program takes the place of the pieces.

    Args:
        file: gives the text of a path of the repository.

    Raises:
        InputError: a part that cannot be put back.
    """
    changed: dict[str, str] = {}
    for each in pieces:
        text = program.parts[each.part]
        if text != each.text or (staged and each.mark.how == "resource"):
            before = changed.get(each.mark.path)
            changed[each.mark.path] = put(
                each.mark, file(each.mark.path) if before is None else before, text, staged=staged
            )
    return changed


def patch(pieces: Sequence[Piece], program: Program, file: Callable[[str], str], folder: str = "") -> str:
    """What `git apply` takes to put a Program into the user's source.

    Args:
        file: gives the text of a path of the repository, with the line ends that it has.
        folder: put before the paths.

    Raises:
        InputError: a part that cannot be put back.
    """
    changed = replaced(pieces, program, lambda path: plain(file(path)))
    return "".join(
        diff(folder + path, file(path), as_written(file(path), text))
        for path, text in sorted(changed.items())
    )


def stage(
    pieces: Sequence[Piece], program: Program, files: Mapping[str, str | bytes], places: Mapping[str, str]
) -> dict[str, str | bytes]:
    """Staged files with a Program in the place of the pieces; a piece whose file is not staged is left out.

    Args:
        places: path in the repository → path in the staged folder.

    Raises:
        InputError: a part that cannot be put back.
    """
    held = {path: files[place] for path, place in places.items() if place in files}
    texts = {path: text if isinstance(text, str) else text.decode() for path, text in held.items()}
    here = [each for each in pieces if each.mark.path in texts]
    changed = replaced(here, program, texts.__getitem__, staged=True)
    return {**files, **{places[path]: text for path, text in changed.items()}}
