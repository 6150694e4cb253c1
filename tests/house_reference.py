"""Writes the two references that tests hold the package to.

    scripts/reference

rewrites `tests/public_names.txt` (names and signatures of `whet.__all__`) and
`docs/cli.md` (every command and option).  The tests fail while either differs
from what the package really offers, so a change of the surface is seen in review.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PUBLIC_NAMES = ROOT / "tests" / "public_names.txt"
CLI_REFERENCE = ROOT / "docs" / "cli.md"


def public_names() -> str:
    """One line per public name with its signature; for a class its public methods and fields below it."""
    import whet

    lines: list[str] = []
    for name in sorted(whet.__all__, key=lambda name: (name.lower(), name)):
        value = getattr(whet, name)
        if inspect.isclass(value):
            lines += [_class_line(name, value), *(f"    {member}" for member in _members(value))]
        else:
            lines.append(_function_line(name, value))
    return "\n".join(lines) + "\n"


def _function_line(name: str, value: Any) -> str:
    waits = inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    return f"{'async ' if waits else ''}{name}{_signature(value)}"


def _class_line(name: str, value: type) -> str:
    if issubclass(value, enum.Enum):
        return f"class {name}({', '.join(member.name for member in value)})"
    return f"class {name}{_signature(value, result=False)}"


def _members(value: type) -> list[str]:
    """Public methods and properties that whet itself defines, on the class or on a base class."""
    found: dict[str, str] = {}
    for owner in value.__mro__:
        if not owner.__module__.startswith("whet"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in found:
                continue
            if isinstance(member, property):
                found[name] = name
            elif isinstance(member, classmethod | staticmethod):
                found[name] = _function_line(name, member.__func__)
            elif inspect.isfunction(member):
                found[name] = _function_line(name, member)
    return [found[name] for name in sorted(found)]


class _Written:
    """An annotation as it stands in the source: its repr has no quotes."""

    def __init__(self, annotation: object) -> None:
        self._text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

    def __repr__(self) -> str:
        return self._text


def _signature(value: Any, *, result: bool = True) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    empty = inspect.Signature.empty
    parameters = [
        one if one.annotation is empty else one.replace(annotation=_Written(one.annotation))
        for one in signature.parameters.values()
    ]
    returned = signature.return_annotation
    shown = _Written(returned) if result and returned is not empty else empty
    text = str(signature.replace(parameters=parameters, return_annotation=shown))
    return re.sub(r" at 0x[0-9a-f]+>", ">", text)  # a default that is a function is shown by its name


def cli_reference() -> str:
    """Every command with its options, as Markdown."""
    from whet.cli import app

    _inherit(app)
    note = "<!-- Written by scripts/reference from the command line itself; do not edit. -->\n\n"
    # The generator puts the name of the running program into usage lines.
    started_as, sys.argv = sys.argv, ["whet"]
    try:
        return note + str(app.generate_docs(output_format="markdown")).strip() + "\n"
    finally:
        sys.argv = started_as


def _inherit(app: Any) -> None:
    """Write down in every group what it inherits: the generator looks no further than the group itself."""
    for name in app:
        if not name.startswith("-"):
            inner = app[name]
            inner.default_parameter = inner.default_parameter or app.default_parameter
            _inherit(inner)


def main() -> None:
    PUBLIC_NAMES.write_text(public_names(), encoding="utf-8")
    CLI_REFERENCE.write_text(cli_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
