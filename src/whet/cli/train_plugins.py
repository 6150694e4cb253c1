"""Learners of other packages as methods of `whet train`: found by their entry points, with their own options."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..errors import InputError
from .train_input import Method

if TYPE_CHECKING:
    from ..learn.loop import Optimizer

GROUP = "whet.optimizers"


def plugged(*, reserved: Collection[str]) -> dict[str, str]:
    """Name → a line about it, for every learner that another package announces; none is imported.

    Raises:
        InputError: a name is taken by a method of whet's own, or by two plug-ins.
    """
    from ..learn.plugins import BUILT_IN, announced

    plugins: dict[str, str] = {}
    for name, point in announced(GROUP).items():
        if name in BUILT_IN[GROUP]:
            continue
        if name in reserved:
            raise InputError(
                f"{name!r} of {GROUP}, {point.value}, has the name of one of whet's own methods: uninstall its "
                "package, or have it renamed"
            )
        package = point.dist
        about = (package.metadata["Summary"] if package is not None else None) or point.value
        plugins[name] = f"{about} (plug-in{f' of {package.name}' if package is not None else ''})"
    return plugins


def described(name: str) -> tuple[Method, Any]:
    """A plug-in's learner as a method, and its default options; None if it has no options.

    Raises:
        InputError, MissingExtra: it cannot be imported, or its options have no default.
    """
    from ..learn.plugins import load

    make = load(GROUP, name)
    kind = _options(name, make)
    about = inspect.getdoc(make) or f"{name}, a learner of another package."
    method = Method(module="", optimizer=name, about=about, own=True, plugin=True)
    if kind is None:
        return method, None
    try:
        return method, kind()
    except TypeError as error:
        raise InputError(
            f"every field of {kind.__name__}, the options of {name!r}, needs a default: {error}"
        ) from error


def learner(name: str, options: Any) -> Optimizer:
    """The learner, made with these options.

    Raises:
        InputError: the announced name does not make an Optimizer.
    """
    from ..learn.plugins import optimizer

    return optimizer(name) if options is None else optimizer(name, options=options)


def refuse_clash(name: str, own: Collection[str], shared: Mapping[str, Any]) -> None:
    """Refuse a plug-in's options that have the name of one of every `whet train`.

    Raises:
        InputError: one has.
    """
    if clash := sorted(set(own) & set(shared)):
        raise InputError(
            f"the options of {name!r} include {', '.join(clash)}, which every whet train has: have them renamed"
        )


def _options(name: str, make: Any) -> type | None:
    """The dataclass in the annotation of its parameter `options`."""
    try:
        if "options" not in inspect.signature(make).parameters:
            return None
        hint = get_type_hints(make.__init__ if inspect.isclass(make) else make).get("options")
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"the options of {name!r} cannot be read from its signature: {error}") from error
    kinds = [kind for kind in (hint, *get_args(hint)) if inspect.isclass(kind) and is_dataclass(kind)]
    if len(kinds) != 1:
        raise InputError(
            f"{name!r} takes options, but its signature names no dataclass for them: annotate the parameter, as in "
            "`options: MyOptions | None = None`"
        )
    options: type = kinds[0]
    return options
