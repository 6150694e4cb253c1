"""Learners of other packages as methods of `whet train`: found by their entry points, with their own options."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..errors import InputError
from .train_input import Method

if TYPE_CHECKING:
    from ..loop import Optimizer

GROUP = "whet.optimizers"
MODEL = (
    "Weights to begin with, as the model of whet's own methods; left out, the learner begins with what is live in "
    "--store, else with nothing."
)


def plugged(*, taken: Collection[str]) -> dict[str, str]:
    """Name → a line about it, of every learner that another package announces; none is imported.

    Raises:
        InputError: one has the name of a method of whet's own, or two have the same.
    """
    from ..plugins import BUILT_IN, announced

    found: dict[str, str] = {}
    for name, point in announced(GROUP).items():
        if name in BUILT_IN[GROUP]:
            continue
        if name in taken:
            raise InputError(
                f"{name!r} of {GROUP}, {point.value}, has the name of a method of whet's own: uninstall its package, "
                "or have it renamed"
            )
        package = point.dist
        about = (package.metadata["Summary"] if package is not None else None) or point.value
        found[name] = f"{about} (plug-in{f' of {package.name}' if package is not None else ''})"
    return found


def described(name: str) -> tuple[Method, Any]:
    """A plug-in's learner as a method, and its options as they are by default; None if it takes none.

    Raises:
        InputError, MissingExtra: it cannot be imported, or its options have no default.
    """
    from ..plugins import load

    make = load(GROUP, name)
    kind = _options(name, make)
    about = inspect.getdoc(make) or f"{name}, a learner of another package."
    method = Method(module="", optimizer=name, options="", about=about, rl=False, own=True, plugin=True)
    if kind is None:
        return method, None
    try:
        return method, kind()
    except TypeError as error:
        raise InputError(
            f"the options of {name!r}, {kind.__name__}, need a default for every field: {error}"
        ) from error


def learner(name: str, options: Any) -> Optimizer:
    """The learner, made with these options.

    Raises:
        InputError: what is announced gives no Optimizer.
    """
    from ..plugins import optimizer

    return optimizer(name) if options is None else optimizer(name, options=options)


def refuse_clash(name: str, own: Collection[str], shared: Mapping[str, Any]) -> None:
    """Refuse options that every `whet train` has.

    Raises:
        InputError: there is one.
    """
    if clash := sorted(set(own) & set(shared)):
        raise InputError(
            f"the options of {name!r} have {', '.join(clash)}, which every whet train takes; have them renamed"
        )


def _options(name: str, make: Any) -> type | None:
    """The dataclass that its parameter `options` is annotated with."""
    try:
        if "options" not in inspect.signature(make).parameters:
            return None
        hint = get_type_hints(make.__init__ if inspect.isclass(make) else make).get("options")
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"the options of {name!r} cannot be read from its signature: {error}") from error
    kinds = [kind for kind in (hint, *get_args(hint)) if inspect.isclass(kind) and is_dataclass(kind)]
    if len(kinds) != 1:
        raise InputError(
            f"{name!r} takes options, and its signature does not say of which dataclass: annotate them, as in "
            "`options: MyOptions | None = None`"
        )
    found: type = kinds[0]
    return found
