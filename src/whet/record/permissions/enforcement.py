"""Keeping a program to its permissions: tools that it marks, and environments, are checked before anything happens.

`with permissions(rules)` holds for tools (`@step(kind="tool")`) and rollouts inside, those in other threads too; a
program under `whet run --permissions` is held as a whole, through `WHET_PERMISSIONS`.  A denied call ends the run
(`PermissionDenied`, which the record calls blocked) or is answered with the refusal, as the rules say.  Where a call is
left to a person and nobody can be asked, it is denied.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from ...types import Json
from ..tools import Effect
from .files import load_permissions
from .person import AskPerson, PermissionRequest, ask_terminal
from .rules import PermissionDecision, Permissions

FILE = "WHET_PERMISSIONS"
"""Variable with the path of the rules that a whole program is held to."""
ASK = "WHET_PERMISSIONS_ASK"
"""Variable that says `terminal` where a person sits at the program's terminal and may be asked."""
NOTE = "permission"
"""In the info of a step: what was decided of a call that was not simply allowed."""


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Rules, and whom to ask."""

    rules: Permissions
    ask: AskPerson | None = None

    def decided(self, tool: str, arguments: Json, effect: Effect | None = None) -> PermissionDecision:
        """What holds for a call: allowed or denied, after a person was asked if need be."""
        try:
            decision = self.rules.decide(tool, arguments, effect=effect)
        except Exception as error:  # a bug in reading a call must not let it through
            return PermissionDecision(
                decision="deny", reason=f"it could not be read ({type(error).__name__}: {error})", tool=tool
            )
        if decision.decision != "ask":
            return decision
        if self.ask is None:
            return replace(decision, decision="deny", reason=f"{decision.reason} (nobody can be asked)")
        request = PermissionRequest(tool, arguments, decision, self.rules.ask_seconds)
        try:
            allowed = self.ask(request) is True
        except Exception as error:
            return replace(decision, decision="deny", reason=f"{decision.reason} (asking failed: {error})")
        word = "a person allowed it" if allowed else "nobody allowed it"
        return replace(
            decision, decision="allow" if allowed else "deny", reason=f"{decision.reason} ({word})"
        )

    def note(self, decision: PermissionDecision) -> dict[str, Json]:
        """The decision as a step keeps it."""
        return {
            "decision": decision.decision,
            "rule": decision.rule,
            "reason": decision.reason,
            "rules": self.rules.id,
        }


_active: ContextVar[Enforcement | None] = ContextVar("whet_permissions", default=None)
_everywhere: list[Enforcement] = []
"""Those that hold now, for threads that no context reaches."""
_lock = threading.Lock()
_of_process: list[Enforcement | None] = []
"""The one that `WHET_PERMISSIONS` names, once it was looked for."""


@contextmanager
def permissions(
    rules: Permissions | str | os.PathLike[str], *, ask: AskPerson | None = None
) -> Iterator[Permissions]:
    """Hold tools and rollouts inside to rules: what they deny is not done.

    >>> with permissions("rules.json"):
    ...     agent("Tidy up the project.")

    Args:
        rules: Permissions, or the path of a rule file.
        ask: called with a PermissionRequest where a rule says `ask`; True allows the call. None denies it.

    Raises:
        InputError: the rule file cannot be used.
    """
    held = rules if isinstance(rules, Permissions) else load_permissions(rules)
    enforcement = Enforcement(held, ask)
    with _lock:
        _everywhere.append(enforcement)
    token = _active.set(enforcement)
    try:
        yield held
    finally:
        _active.reset(token)
        with _lock:
            _everywhere.remove(enforcement)


def enforced() -> Enforcement | None:
    """The rules that hold here, None where none do."""
    enforcement = _active.get()
    if enforcement is not None:
        return enforcement
    if _everywhere:
        return _everywhere[-1]
    return _of_environment()


def _of_environment() -> Enforcement | None:
    if not _of_process:
        with _lock:
            path = os.environ.get(FILE)
            asks = ask_terminal if os.environ.get(ASK) == "terminal" else None
            # A file that cannot be used raises at every tool: none runs unguarded because of a typing error.
            _of_process.append(Enforcement(load_permissions(Path(path)), asks) if path else None)
    return _of_process[0]
