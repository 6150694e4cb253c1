"""The input of the sandbox: staged source files and JSON arguments, both checked out here."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ..errors import InputError
from ..types import Json
from .inside.worker import CannotCross, crossing

Source = str | Path | Mapping[str, str | bytes]
"""The text of one module (it is called `candidate`), a folder, or relative path → content."""

MODULE = "candidate"
"""The module that a source given as text becomes."""

_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LARGEST = 32 << 20


def files_of(source: Source) -> dict[str, Any]:
    """Relative path → text, or [base64] for bytes.

    Raises:
        InputError: a name that leaves its folder, a folder that is missing or larger than 32 MiB.
    """
    if isinstance(source, Path):
        source = _folder(source)
    elif isinstance(source, str):
        source = {f"{MODULE}.py": source}
    staged: dict[str, Any] = {}
    for name, content in source.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            raise InputError(f"staged file {name!r}: give a relative path inside the staged folder")
        if isinstance(content, bytes):
            staged[str(path)] = [base64.b64encode(content).decode()]
        else:
            staged[str(path)] = content
    return staged


def _folder(folder: Path) -> dict[str, str | bytes]:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; to stage one file give {{name: text}}")
    contents: dict[str, str | bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        # A link could lead out of the folder; bytecode could differ from the source that is read.
        if "__pycache__" in path.parts or path.is_symlink() or not path.is_file():
            continue
        size += path.stat().st_size
        if size > _LARGEST:
            raise InputError(
                f"{folder} holds more than {_LARGEST >> 20} MiB; stage what the program needs alone"
            )
        contents[path.relative_to(folder).as_posix()] = path.read_bytes()
    return contents


def entry_of(entry: str) -> str:
    """`module:name` as it was given, or `candidate:name` for a bare name.

    Raises:
        InputError: it is not a dotted name.
    """
    qualified = entry if ":" in entry else f"{MODULE}:{entry}"
    if not _ENTRY.fullmatch(qualified):
        raise InputError(
            f"{entry!r} does not name a function; give 'module:function', for instance 'tools:search'"
        )
    return qualified


def arguments(args: Sequence[Json], kwargs: Mapping[str, Json] | None) -> bytes:
    """A call's arguments as JSON.

    Raises:
        InputError: one of them would not arrive as it is; names the place and the type.
    """
    call = [list(args), dict(kwargs or {})]
    try:
        crossing(call[0], "args")
        crossing(call[1], "kwargs")
        return msgspec.json.encode(call)
    except CannotCross as error:
        raise InputError(f"{error}. Pass what JSON carries and build the rest inside the function") from error
    except (RecursionError, ValueError, OverflowError) as error:
        raise InputError(f"the arguments cannot be written as JSON: {error}") from error


def exact(value: Json, expected: Json) -> bool:
    """True if two JSON values are the same in type as well as in value: 1 is not True, and not 1.0.

    >>> exact([1, {"a": None}], [1, {"a": None}]), exact(1, True), exact(1, 1.0)
    (True, False, False)
    """
    if type(value) is not type(expected):
        return False
    if isinstance(value, list):
        return len(value) == len(expected) and all(map(exact, value, expected))
    if isinstance(value, dict):
        return value.keys() == expected.keys() and all(
            exact(member, expected[key]) for key, member in value.items()
        )
    return bool(value == expected)
