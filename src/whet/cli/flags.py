"""Options dataclasses as the options of a command: a field is an option, its docstring the explanation."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from ..python_text import module_of


@dataclass(frozen=True, slots=True)
class Option:
    """A field of the options, of a nested dataclass too, as an option of the command."""

    path: tuple[str, ...]
    type: Any
    default: Any
    about: str

    @property
    def shown(self) -> str:
        return ".".join(word.replace("_", "-") for word in self.path)


def flattened(options: Any, path: tuple[str, ...] = ()) -> dict[str, Option]:
    """Every field of a dataclass, those of nested ones too, in order.

    Args:
        options: an instance, whose values are the defaults; or the class, where a field may have none.
    """
    kind: Any = options if inspect.isclass(options) else type(options)
    hints, docstrings = get_type_hints(kind, include_extras=True), _docstrings(kind)
    flat: dict[str, Option] = {}
    for field in fields(kind):
        default = field.default if inspect.isclass(options) else getattr(options, field.name)
        field_path = (*path, field.name)
        if path and field.name in ("resource", "seed"):
            continue  # a stage has those of the whole
        if is_dataclass(default):
            flat |= flattened(default, field_path)
        else:
            about = docstrings.get(field.name, "")
            flat["__".join(field_path)] = Option(field_path, hints[field.name], default, about)
    return flat


@lru_cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Qualified name → the class, of the classes that stand in a module's source, functions' own left out.

    `inspect.getsource` reads and parses the whole file for each class that it is asked for.
    """
    try:
        tree = module_of(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError, SyntaxError):
        return {}
    found: dict[str, ast.ClassDef] = {}
    inside: list[tuple[str, ast.AST]] = [("", tree)]
    while inside:
        name, node = inside.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[name + child.name] = child
                inside.append((f"{name}{child.name}.", child))
            elif isinstance(child, ast.If | ast.Try):
                inside.append((name, child))
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the string that stands under it in the source."""
    docstrings: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        body = _classes(owner.__module__).get(owner.__qualname__)
        if body is None:  # a plug-in may come without its source
            continue
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                docstrings[field.target.id] = " ".join(text.value.value.split())
    return docstrings


def _rebuilt(options: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """The options with these fields changed, nested ones in their place."""
    own = {path[0]: changed for path, changed in changes.items() if len(path) == 1}
    if inspect.isclass(options):
        return options(**own)
    for field in fields(options):
        inner = {path[1:]: new for path, new in changes.items() if path[0] == field.name and len(path) > 1}
        if inner:
            own[field.name] = _rebuilt(getattr(options, field.name), inner)
    return replace(options, **own)


def _parameter(key: str, option: Option, name: str) -> inspect.Parameter:
    """The option as a parameter of the command."""
    # on by default: it needs a way to be switched off
    off = f"--no-{name}" if option.default is True else ()
    about = Parameter(name=f"--{name}", negative=off)
    if option.about:  # else the type may explain itself
        about = Parameter.combine(about, Parameter(help=option.about))
    default = inspect.Parameter.empty if option.default is MISSING else option.default
    return inspect.Parameter(
        key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_annotated(option.type, about)
    )


def _annotated(kind: Any, about: Parameter) -> Any:
    return Annotated[(kind, about)]


def with_options(
    function: Callable[..., int],
    options: Mapping[str, Any],
    *,
    topics: Mapping[str, Sequence[str]],
    names: Mapping[str, str] | None = None,
    about: Mapping[str, str] | None = None,
) -> Callable[..., int]:
    """A command that takes every field of some dataclasses as an option, and hands over the dataclasses.

    Args:
        function: takes the dataclasses by keyword, and options of its own, which go before fields of the same name.
        options: keyword → a dataclass, or an instance whose values are the defaults.
        topics: title → its options in order, by parameter or field; those under "" come first and need no title, those
            in no topic are Advanced.
        names: field → name of its option, where that is not the field's.
        about: field → its explanation, where that is not its docstring.
    """
    own = [
        argument
        for argument in inspect.signature(function).parameters.values()
        if argument.name not in options and argument.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    own_names = {argument.name for argument in own}
    flat = {
        word: {key: option for key, option in flattened(kind).items() if option.path[0] not in own_names}
        for word, kind in options.items()
    }

    def command(*arguments: Any, **words: Any) -> int:
        for word, kind in options.items():
            changes = {option.path: words.pop(key) for key, option in flat[word].items() if key in words}
            words[word] = _rebuilt(kind, changes)
        return function(*arguments, **words)

    # The dataclasses' own annotations may stand under TYPE_CHECKING.
    written = SimpleNamespace(__annotations__={argument.name: argument.annotation for argument in own})
    hints = get_type_hints(written, function.__globals__, include_extras=True)
    own = [argument.replace(annotation=hints[argument.name]) for argument in own]
    keyed = {argument.name: argument for argument in own if argument.kind is inspect.Parameter.KEYWORD_ONLY}
    for option_by_key in flat.values():
        for key, option in option_by_key.items():
            if about and key in about:
                option = replace(option, about=about[key])
            keyed[key] = _parameter(key, option, (names or {}).get(key, option.shown))
    grouped = _grouped(keyed, topics)
    positional = [argument for argument in own if argument.name not in keyed]
    command.__signature__ = inspect.Signature([*positional, *grouped], return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {argument.name: argument.annotation for argument in (*positional, *grouped)}
    # main() reads name and signature to say how an interrupted command is resumed.
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def _grouped(
    parameters: Mapping[str, inspect.Parameter], topics: Mapping[str, Sequence[str]]
) -> list[inspect.Parameter]:
    """The parameters, in the order of their topics and marked with them."""
    placed = {key for keys in topics.values() for key in keys}
    others = [key for key in parameters if key not in placed]
    grouped = []
    topics = {**topics, "Advanced": (*topics.get("Advanced", ()), *others)}
    for position, (title, keys) in enumerate(topics.items()):
        # One object for all options of a topic: cyclopts refuses a second group of the same name.
        group = Parameter(group=Group(title, sort_key=position)) if title else Parameter()
        for parameter in (parameters[key] for key in keys if key in parameters):
            grouped.append(parameter.replace(annotation=_annotated(parameter.annotation, group)))
    return grouped
