"""An options dataclass as the options of a command: a field is an option, its docstring the explanation."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, get_type_hints

from cyclopts import Parameter


@dataclass(frozen=True, slots=True)
class Option:
    """A field of the options, of a nested dataclass too, as an option of the command."""

    path: tuple[str, ...]
    type: Any
    value: Any
    about: str

    @property
    def shown(self) -> str:
        return ".".join(word.replace("_", "-") for word in self.path)


def flattened(options: Any, path: tuple[str, ...] = ()) -> list[tuple[str, Option]]:
    """Every field of a dataclass, those of nested ones too, in order."""
    kind = type(options)
    hints, about = get_type_hints(kind), _docstrings(kind)
    found: list[tuple[str, Option]] = []
    for one in fields(kind):
        value, where = getattr(options, one.name), (*path, one.name)
        if path and one.name in ("resource", "seed"):
            continue  # a stage has those of the whole
        if is_dataclass(value):
            found += flattened(value, where)
        else:
            found.append(("__".join(where), Option(where, hints[one.name], value, about.get(one.name, ""))))
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the string that stands under it in the source."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        except (OSError, TypeError):  # a plug-in may come without its source
            continue
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = " ".join(text.value.value.split())
    return found


def rebuilt(options: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """The options with these fields changed, nested ones in their place."""
    own = {path[0]: value for path, value in changes.items() if len(path) == 1}
    for one in fields(options):
        inner = {path[1:]: value for path, value in changes.items() if path[0] == one.name and len(path) > 1}
        if inner:
            own[one.name] = rebuilt(getattr(options, one.name), inner)
    return replace(options, **own)


def parameter(key: str, option: Option) -> inspect.Parameter:
    """The option as a parameter of the command."""
    # what is on by default needs a way to be switched off
    off = f"--no-{option.shown}" if option.value is True else ()
    about = Parameter(name=f"--{option.shown}", help=option.about, negative=off)
    shown: Any = Annotated.__class_getitem__((option.type, about))  # type: ignore[attr-defined]
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=option.value, annotation=shown)
