"""Imports of large libraries, without the collections of garbage that look through them while they come."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage meanwhile.

    torch and transformers make half a million objects that stay, and to look through them at every other step is up to
    a quarter of the time that they take to import.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
