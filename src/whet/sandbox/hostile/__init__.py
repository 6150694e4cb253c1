"""A hostile program: what `whet.sandbox.check` stages into the sandbox that is being judged.

Each attack returns its achievements, as a list of sentences or a number; `whet.sandbox.check`
decides out there, from its own evidence where there is any, whether that is nothing.
"""

from __future__ import annotations

from typing import Any

from . import counted, host, kernel, neighbours

ATTACKS = {
    name: found
    for module in (host, counted, kernel, neighbours)
    for name, found in vars(module).items()
    if callable(found) and not name.startswith("_") and getattr(found, "__module__", None) == module.__name__
}


def attack(name: str, target: dict[str, Any]) -> Any:
    """Run one attack by name on what the outside says of itself."""
    return ATTACKS[name](target)
