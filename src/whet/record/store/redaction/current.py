"""The Redactor of this process: what any Batch that is not a server's goes through.

It is apart from `redact.py`, which a program need not import, and whose patterns it need not compile, before
it writes something.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .redact import Redactor

_redactor: list[Redactor | None] = []
searching = threading.RLock()
"""Held while records are searched, and by a fork: a child would wait for ever for a lock inside the search or its
import that a thread held which the child does not have."""


def redact_with(redactor: Redactor | None) -> None:
    """Set the Redactor of all records from now on; None redacts nothing.

    >>> redact_with(Redactor([*RULES, EMAIL]))
    """
    _redactor[:] = [redactor]


def redaction() -> Redactor | None:
    """The Redactor in use: with `RULES` unless `redact_with` set another."""
    if not _redactor:
        with searching:
            from .redact import Redactor  # here: a program that records nothing need not compile its patterns

            if not _redactor:
                _redactor[:] = [Redactor()]
    return _redactor[0]


os.register_at_fork(
    before=searching.acquire, after_in_parent=searching.release, after_in_child=searching.release
)
