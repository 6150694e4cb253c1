"""What a tool call touches: the commands, paths, URLs and statements in its arguments.

Which arguments are what a rule file says (`tools`); of others the name tells (`path`, `url`, `command`), or what the
value looks like.  A value that is taken for a path or a URL and is none costs a permission, and never gives one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias
from urllib.parse import unquote

from ...types import Json
from ..tools import Effect
from .commands import argument_parts, command_parts
from .operands import CallPart
from .paths import Access, PathUse, path_use
from .shell import NotUnderstood
from .statements import statement_kinds
from .urls import is_url, read_url

Meaning: TypeAlias = Literal[
    "path", "path:read", "path:write", "path:delete", "folder", "url", "command", "sql", "text"
]
"""What an argument of a tool is. `folder` is where a command runs, `text` nothing that is looked at."""
LONGEST = 4_096
"""Characters of a value that may be a path or a URL where nobody says so."""
_COMMANDS = frozenset({"command", "commands", "cmd", "shell", "bash", "command_line", "cmdline", "argv"})
_FOLDERS = frozenset({"cwd", "workdir", "working_dir", "working_directory", "work_dir"})
_PATHS = re.compile(r"(?:.*_)?(?:path|file|filename|filepath|dir|directory|folder)s?(?:_name)?")
_URLS = re.compile(r"(?:.*_)?(?:url|uri|href|link|endpoint|webhook)s?")
_TEXTS = frozenset(
    {
        "content",
        "contents",
        "text",
        "body",
        "message",
        "prompt",
        "code",
        "old_string",
        "new_string",
        "old_str",
    }
    | {
        "new_str",
        "file_text",
        "insert_text",
        "description",
        "comment",
        "title",
        "subject",
        "pattern",
        "regex",
    }
)
_LEADS = re.compile(r"\s*(?:[/~\\]|\.{1,2}[/\\]|\.\.$|[A-Za-z]:[\\/]|file:)", re.IGNORECASE)
_UPWARDS = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")


@dataclass(slots=True)
class _Touched:
    """What was found in the arguments so far."""

    paths: list[PathUse] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    commands: list[str | list[str]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    folder: str = ""
    problem: str = ""


def call_parts(
    arguments: Json,
    meanings: Mapping[str, Meaning],
    *,
    root: str,
    variables: Sequence[str],
    effect: Effect | None = None,
) -> list[CallPart]:
    """The parts of one tool call.

    Args:
        meanings: of the tool's arguments; those that are missing are guessed.
        root: where paths are relative to.
        effect: of the tool, where it is known.
    """
    touched = _Touched(folder=root)
    access: Access = "read" if effect == "read" else "write"
    values = arguments if isinstance(arguments, Mapping) else {"": arguments}
    try:
        for name, value in values.items():
            if _meaning(str(name), value, meanings, root) == "folder":
                _folder(value, touched, root)
        for name, value in values.items():
            _look(str(name), value, meanings, touched, access, root)
    except NotUnderstood as problem:
        touched.problem = str(problem)
    except RecursionError:
        touched.problem = "its arguments are nested too deeply"
    return _parts(touched, root, variables, effect)


def _parts(touched: _Touched, root: str, variables: Sequence[str], effect: Effect | None) -> list[CallPart]:
    parts: list[CallPart] = []
    for command in touched.commands:
        try:
            if isinstance(command, str):
                parts += command_parts(command, root=root, folder=touched.folder, variables=variables)
            else:
                parts += argument_parts(command, root=root, folder=touched.folder, variables=variables)
        except NotUnderstood as problem:
            parts.append(CallPart(words=(), problem=str(problem)))
    actions = {use.access for use in touched.paths} | ({"fetch"} if touched.urls else set())
    if not parts:
        if not actions and not touched.statements:
            actions = {"read"} if effect == "read" else {"call"}
        statements = tuple(dict.fromkeys(touched.statements))
        return [
            CallPart(
                None,
                tuple(touched.paths),
                tuple(touched.urls),
                statements,
                frozenset(actions or {"call"}),
                touched.problem,
            )
        ]
    return [
        replace(
            part,
            paths=(*part.paths, *touched.paths),
            urls=(*part.urls, *touched.urls),
            actions=part.actions | actions,
            problem=part.problem or touched.problem,
        )
        for part in parts
    ]


def _folder(value: Json, touched: _Touched, root: str) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise NotUnderstood("the folder that it runs in is no text")
    use = path_use(value or ".", "read", folders=[root])
    if len(use.places) != 1:
        raise NotUnderstood(f"the folder {value!r:.60} can be read in several ways")
    touched.paths.append(use)
    touched.folder = use.places[0]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_")


def _meaning(name: str, value: Json, meanings: Mapping[str, Meaning], root: str) -> Meaning | None:
    if name in meanings:
        return meanings[name]
    plain = _snake(name)
    if plain in _COMMANDS:
        return "command"
    if plain in _FOLDERS:
        return "folder"
    if plain == "sql":
        return "sql"
    if plain in _TEXTS:
        return "text"
    if _PATHS.fullmatch(plain):
        return "path"
    if _URLS.fullmatch(plain):
        return "url"
    return _looks_like(value, root) if isinstance(value, str) else None


def _looks_like(value: str, root: str) -> Meaning | None:
    if len(value) > LONGEST or "\n" in value.strip() or "\0" in value:
        return "path" if "\0" in value[:LONGEST] else None
    if is_url(value) and not value.casefold().startswith("file:"):
        return "url"
    decoded = unquote(unquote(value))
    # A sentence may begin with a slash or have two dots in it; a path has no three words.
    if len(value.split()) <= 2 and (_LEADS.match(decoded) or _UPWARDS.search(decoded)):
        return "path"
    try:
        # A bare name is one where it is the name of a link, or of a file that looks like one.
        there = os.path.lexists(os.path.join(root, value))
        named = there and ("." in value or "/" in value or os.path.islink(os.path.join(root, value)))
    except ValueError:
        return None
    return "path" if named and value.strip() else None


def _look(
    name: str,
    value: Json,
    meanings: Mapping[str, Meaning],
    touched: _Touched,
    access: Access,
    root: str,
) -> None:
    """Note what one argument touches, and what is inside it."""
    meaning = _meaning(name, value, meanings, root)
    if meaning in ("text", "folder") or value is None or isinstance(value, bool):
        return
    if meaning == "command":
        _command(value, touched)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if meaning is not None and meaning.startswith("path"):
                # A map of files: their names are its keys.
                touched.paths.append(_path(str(key), meaning, touched, access))
                _look("", inner, {}, touched, access, root)
            else:
                _look(
                    str(key),
                    inner,
                    meanings if meaning is None else {str(key): meaning},
                    touched,
                    access,
                    root,
                )
    elif isinstance(value, list | tuple):
        for inner in value:
            _look(name, inner, meanings, touched, access, root)
    elif isinstance(value, str):
        _text(value, meaning, touched, access)


def _text(value: str, meaning: Meaning | None, touched: _Touched, access: Access) -> None:
    if meaning == "sql":
        touched.statements += statement_kinds(value)
    elif meaning == "url" or (
        meaning is not None and is_url(value) and not value.strip().casefold().startswith("file:")
    ):
        touched.urls.append(value)
        read_url(value)
    elif meaning is not None and meaning.startswith("path"):
        touched.paths.append(_path(value, meaning, touched, access))


def _path(value: str, meaning: Meaning, touched: _Touched, access: Access) -> PathUse:
    declared = meaning.partition(":")[2]
    used: Access = "read" if declared == "read" else "delete" if declared == "delete" else access
    if declared == "write":
        used = "write"
    recursive = (
        used != "read" and os.path.isdir(os.path.join(touched.folder, value)) if "\0" not in value else False
    )
    return path_use(value, used, folders=[touched.folder], recursive=recursive)


def _command(value: Json, touched: _Touched) -> None:
    if isinstance(value, str):
        touched.commands.append(value)
    elif isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
        touched.commands.append([str(word) for word in value])
    else:
        raise NotUnderstood("its command is no text and no list of words")


def part_text(part: CallPart) -> str:
    """A part as a person reads it."""
    return " ".join(_described(part))


def _described(part: CallPart) -> Iterator[str]:
    if part.words:
        yield " ".join(part.words)
    elif part.paths:
        yield ", ".join(f"{use.access} {use.given}" for use in part.paths[:3])
    elif part.urls:
        yield part.urls[0]
    elif part.statements:
        yield ", ".join(part.statements)
