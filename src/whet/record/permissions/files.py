"""Rule files: Permissions as JSON or TOML, with every name in them checked."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...errors import InputError, NotFoundError
from ...types import Json
from .rules import PermissionRule, Permissions
from .urls import url_pattern

T = TypeVar("T", PermissionRule, Permissions)
LARGEST = 1_000_000
"""Bytes of a rule file."""


def load_permissions(path: str | os.PathLike[str]) -> Permissions:
    """The rules of a file, `.toml` or JSON; its `root` is relative to the folder that it lies in.

    Raises:
        NotFoundError: there is no such file.
        InputError: it cannot be read, names what does not exist, or a rule gives no reason.
    """
    file = Path(path)
    try:
        raw = file.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no rule file at {file}") from error
    except OSError as error:
        raise InputError(f"the rule file {file} cannot be read: {error.strerror}") from error
    if len(raw) > LARGEST:
        raise InputError(f"the rule file {file} is larger than {LARGEST:,} bytes")
    try:
        content = tomllib.loads(raw.decode()) if file.suffix == ".toml" else msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:  # of JSON, of TOML, of UTF-8
        raise InputError(f"the rule file {file} cannot be read: {error}") from error
    return permissions_of(content, str(file), folder=file.resolve().parent)


def permissions_of(content: Json, where: str, *, folder: Path) -> Permissions:
    """The rules of what a file says.

    Args:
        where: its name, for the errors.
        folder: what `root` is relative to.

    Raises:
        InputError: see `load_permissions`.
    """
    known = _known(Permissions, content, where)
    entries = known.pop("rules", [])
    if not isinstance(entries, list):
        raise InputError(f"{where}: rules is a {type(entries).__name__}; it must be a list")
    rules = [_rule(entry, f"{where}, rule {number}") for number, entry in enumerate(entries, start=1)]
    known["root"] = str(folder / os.path.expanduser(str(known.get("root", "."))))
    permissions = _converted(Permissions, known, where)
    return replace(permissions, rules=tuple(rules))


def _rule(entry: Json, where: str) -> PermissionRule:
    known = _known(PermissionRule, entry, where)
    for name in ("action", "path", "command", "url", "sql"):
        if isinstance(known.get(name), str):
            known[name] = [known[name]]
    rule = _converted(PermissionRule, known, where)
    if not rule.reason.strip():
        raise InputError(f"{where} has no reason: say in a sentence why it is there, for whoever meets it")
    for text in rule.url:
        url_pattern(text)
    return rule


def _known(kind: type[T], content: Json, where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise InputError(f"{where} is a {type(content).__name__}; it must be an object")
    names = [part.name for part in fields(kind)]
    if unknown := sorted(set(content) - set(names)):
        raise InputError(f"{where} has {', '.join(map(repr, unknown))}; it may have {', '.join(names)}")
    missing = [
        part.name for part in fields(kind) if part.default is MISSING and part.default_factory is MISSING
    ]
    if absent := [name for name in missing if name not in content]:
        raise InputError(f"{where} has no {' and no '.join(absent)}")
    return dict(content)


def _converted(kind: type[T], content: Mapping[str, Any], where: str) -> T:
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from error
