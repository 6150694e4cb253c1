"""The targets of a repository, cut out of its files, and put back with all else as it was.

A piece is a function, a constant, or a text: a prompt, a tool's description, a skill.  It becomes one
part of a `Program`: Python for code, the bare text for texts.  The same cut is made in the user's file,
for the patch, and in the staged copy, for the evaluation; a target is located by name in the syntax
tree, never by line.  It changes nothing on disk.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ....errors import InputError
from ....repository.prompt_files import text_in, with_text
from ....repository.syntax import FunctionNode, definition, last_name, literal_keys, string
from ....repository.text import SourceText, Span, as_written, diff, plain
from ..editing.program import Program
from .marks import Mark

_QUOTES = re.compile(r"""^[uU]?(\"\"\"|'''|"|')""")


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


def cut(mark: Mark, text: str) -> Piece:
    """The piece that a mark names in a file's text.

    Raises:
        InputError: it cannot be cut out; says why.
        NotFoundError: the text does not define it.
    """
    base = PurePosixPath(mark.path).with_suffix("").as_posix()
    if mark.how == "skill":
        return Piece(mark, mark.path, text)
    if mark.how == "file":
        part = f"{mark.path}/{mark.qualname.replace('/', '_')}.txt" if mark.qualname else mark.path
        return Piece(mark, part, text_in(mark.path, text, mark.qualname))
    if mark.path.endswith(".json"):
        return Piece(mark, f"{base}/{mark.name}.txt", mark.text)
    source = SourceText(text)
    node = _target(source.tree, mark)
    if isinstance(node, ast.expr):
        name = mark.name if mark.how in ("resource", "schema") else mark.qualname
        return Piece(mark, f"{base}/{name}.txt", string(node) or "")
    if isinstance(node, ast.ClassDef):
        raise InputError(f"{mark.qualname} is a class: mark the methods of it that should become better")
    # The digest of this text is the id of the function's Version: it has to stay the same to the byte.
    own = "".join(_headers(mark.qualname)) + source.at(source.lines_of(node))
    return Piece(mark, f"{base}/{mark.qualname}.py", own if own.endswith("\n") else own + "\n")


def _headers(qualname: str) -> Iterator[str]:
    """Headers of the classes around a method: they keep it where its indentation says it is."""
    for depth, name in enumerate(qualname.split(".")[:-1]):
        yield f"{'    ' * depth}class {name}:\n"


def put(mark: Mark, text: str, new: str, *, staged: bool = False) -> str:
    """The file's text with the piece replaced by `new`, a part that `cut` made and a proposer changed.

    Args:
        staged: the copy that runs inside; a call of `whet.resource` becomes the text itself there.

    Raises:
        InputError: the part no longer defines the piece, or defines it with other parameters.
    """
    if mark.how == "skill":
        return new
    if mark.how == "file":
        return with_text(mark.path, text, mark.qualname, new)
    if mark.path.endswith(".json"):
        return _put_json(mark, text, new)
    source = SourceText(text)
    node = _target(source.tree, mark)
    if isinstance(node, ast.expr):
        replaced_node = _call_of(source.tree, mark) if staged and mark.how == "resource" else node
        return source.spliced([(source.span(replaced_node), _written(source.segment(node), new))])
    # Whole lines: the indentation of a method stands before its span, and its comments behind it.
    own, added = _changed(mark, node, new)
    changes: list[tuple[Span, str]] = [(source.lines_of(node), own)]
    if added:
        changes.append((source.above(node), f"{added}\n\n"))
    return source.spliced(changes)


def _changed(mark: Mark, old: ast.stmt, text: str) -> tuple[str, str]:
    """The definition's own lines in a changed part, and the statements that the part adds in front of it."""
    try:
        part = SourceText(text)
        node, owner = definition(part.tree, mark.qualname)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{mark.name} is not valid Python any more: {error}") from error
    if type(node) is not type(old):
        raise InputError(f"{mark.name} was a {type(old).__name__} and became a {type(node).__name__}")
    if isinstance(node, FunctionNode):
        assert isinstance(old, FunctionNode)
        if ast.dump(node.args) != ast.dump(old.args):
            raise InputError(f"{mark.name} must keep its parameters ({ast.unparse(old.args)})")
        if node.decorator_list:
            raise InputError(f"{mark.name}: decorators are not part of the piece; leave them out")
    if owner is not None and len(owner.body) > 1:
        raise InputError(f"{mark.name}: only the method itself may change, not its class")
    own = part.at(part.lines_of(node))
    others = [
        statement for statement in part.tree.body if not any(inner is node for inner in ast.walk(statement))
    ]
    added = "".join(part.at(part.lines_of(statement)).rstrip("\n") + "\n" for statement in others)
    return own if own.endswith("\n") else own + "\n", added


def _target(tree: ast.Module, mark: Mark) -> ast.stmt | ast.Constant:
    """The definition that a mark names, or the string literal that is its text.

    Raises:
        InputError: the text is not a literal, or stands there twice.
        NotFoundError: nothing defines it.
    """
    if mark.how not in ("resource", "schema"):
        node, _ = definition(tree, mark.qualname)
        assigned = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        return assigned if isinstance(assigned, ast.Constant) and string(assigned) is not None else node
    texts = [node for node in _texts(tree, mark) if isinstance(node, ast.Constant)]
    if len(texts) != 1:
        raise InputError(
            f"{mark.path}: {mark.name} has {len(texts)} plain texts that could change; one literal is needed"
        )
    return texts[0]


def _texts(tree: ast.Module, mark: Mark) -> Iterator[ast.expr]:
    """A resource's default, a tool function's docstring, or a tool's description in a dictionary."""
    if mark.how == "resource":
        call = _call_of(tree, mark)
        defaults = [*call.args[1:2], *(named.value for named in call.keywords if named.arg == "default")]
        yield from (default for default in defaults if string(default) is not None)
    elif mark.qualname:
        node, _ = definition(tree, mark.qualname)
        body = getattr(node, "body", [])
        if body and isinstance(body[0], ast.Expr):
            yield body[0].value
    else:
        for part in ast.walk(tree):
            if isinstance(part, ast.Dict):
                schema = literal_keys(part)
                if string(schema.get("name")) == mark.name and "description" in schema:
                    yield schema["description"]


def _call_of(tree: ast.Module, mark: Mark) -> ast.Call:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and node.args
            and string(node.args[0]) == mark.name
            and last_name(node.func).endswith("resource")
        ):
            return node
    raise InputError(f"{mark.path} declares no resource {mark.name!r}")


def _written(old: str, value: str) -> str:
    """A text as a literal, in the quotes that stand there; triple ones for several lines."""
    match = _QUOTES.match(old)
    quotes = match[1] if match else '"'
    if "\n" in value and len(quotes) == 1:
        quotes *= 3
    # Backslashes first, or those that are put before the quotes would be doubled.
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
    # Replaced as text, because writing the document again would change its indentation and order.
    forms = [json.dumps(mark.text), json.dumps(mark.text, ensure_ascii=False)]
    for escaped, form in zip((True, False), forms, strict=True):
        if source.count(form) == 1:
            return source.replace(form, json.dumps(text, ensure_ascii=escaped))
    raise InputError(f"{mark.path}: the description of {mark.name} does not stand there exactly once")


def program_of(pieces: Sequence[Piece]) -> Program:
    """The pieces as a Program, whose main part is the first one.

    Raises:
        InputError: no piece, or two that are the same.
    """
    parts = {piece.part: piece.text for piece in pieces}
    if not parts or len(parts) != len(pieces):
        raise InputError(f"{len(pieces)} targets make {len(parts)} pieces: name each target once")
    return Program(parts, pieces[0].part)


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
    for piece in pieces:
        path, text = piece.mark.path, program.parts[piece.part]
        if text != piece.text or (staged and piece.mark.how == "resource"):
            # One after the other in the same file: each is found by its name, for positions have moved.
            before = changed[path] if path in changed else file(path)
            changed[path] = put(piece.mark, before, text, staged=staged)
    return changed


def patch(pieces: Sequence[Piece], program: Program, file: Callable[[str], str], folder: str = "") -> str:
    """A patch for `git apply` that puts a Program into the user's source.

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
    contents = {path: files[staged] for path, staged in places.items() if staged in files}
    texts = {path: text if isinstance(text, str) else text.decode() for path, text in contents.items()}
    present = [piece for piece in pieces if piece.mark.path in texts]
    changed = replaced(present, program, texts.__getitem__, staged=True)
    return {**files, **{places[path]: text for path, text in changed.items()}}
