"""Public names of a package that are looked up when first used (PEP 562), so that nothing is imported before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module

from .errors import NOT_ON_WINDOWS


def from_home(package: str, homes: Mapping[str, str], name: str) -> object:
    """What a package's `__getattr__` gives.

    Args:
        homes: public name → module of the package that defines it.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        module = import_module(f".{homes[name]}", package)
    except ImportError as error:
        # Files are locked, and processes made, in ways that Windows does not have.
        if sys.platform != "win32":
            raise
        raise ImportError(NOT_ON_WINDOWS) from error
    value = getattr(module, name)
    setattr(sys.modules[package], name, value)  # looked up once
    return value
