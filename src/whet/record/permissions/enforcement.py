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
from .reversing import UndoLog, WorldCopy
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
    copy: WorldCopy | None = None
    """For trying reverse actions on."""
    undo: UndoLog | None = None
    """Keeps what was done, with how to take it back."""

    def decided(self, tool: str, arguments: Json, effect: Effect | None = None) -> PermissionDecision:
        """What holds for a call: allowed or denied, after a person was asked if need be."""
        try:
            decision = self.rules.decide(tool, arguments, effect=effect)
        except Exception as error:  # a bug in reading a call must not let it through
            return PermissionDecision(
                decision="deny", reason=f"it could not be read ({type(error).__name__}: {error})", tool=tool
            )
        return self.answered(decision, arguments)

    def consented(self, decision: PermissionDecision, arguments: Json, why: str) -> PermissionDecision:
        """What holds for an allowed call that cannot be taken back.

        Args:
            why: the reason that it cannot.
        """
        reason = f"{decision.reason}; it is irreversible: {why}"
        return self.answered(replace(decision, decision=self.rules.irreversible, reason=reason), arguments)

    def answered(self, decision: PermissionDecision, arguments: Json) -> PermissionDecision:
        """The decision, after a person was asked where it says so."""
        if decision.decision != "ask":
            return decision
        if self.ask is None:
            return _denied(decision, "nobody can be asked")
        request = PermissionRequest(decision.tool, arguments, decision, self.rules.ask_seconds)
        try:
            allowed = self.ask(request) is True
        except Exception as error:
            return _denied(decision, f"asking failed: {error}")
        if not allowed:
            return _denied(decision, "nobody allowed it")
        return replace(
            decision, decision="allow", reason=f"{decision.reason} (a person allowed it)", by_person=True
        )

    def note(self, decision: PermissionDecision) -> dict[str, Json]:
        """The decision as a step keeps it."""
        return {
            "decision": decision.decision,
            "rule": decision.rule,
            "reason": decision.reason,
            "rules": self.rules.id,
        }


def _denied(decision: PermissionDecision, why: str) -> PermissionDecision:
    return replace(decision, decision="deny", reason=f"{decision.reason} ({why})", by_person=True)


_active: ContextVar[Enforcement | None] = ContextVar("whet_permissions", default=None)
_everywhere: list[Enforcement] = []
"""Those that hold now, for threads that no context reaches."""
_lock = threading.Lock()
_of_process: list[Enforcement | None] = []
"""The one that `WHET_PERMISSIONS` names, once it was looked for."""


@contextmanager
def permissions(
    rules: Permissions | str | os.PathLike[str],
    *,
    ask: AskPerson | None = None,
    copy: WorldCopy | None = None,
    undo: UndoLog | str | os.PathLike[str] | None = None,
) -> Iterator[Permissions]:
    """Hold tools and rollouts inside to rules: what they deny is not done.

    >>> with permissions("rules.json"):
    ...     agent("Tidy up the project.")

    Args:
        rules: Permissions, or the path of a rule file.
        ask: called with a PermissionRequest where a rule says `ask`; True allows the call. None denies it.
        copy: a context manager in which tools act on a copy of their world, and whose value is a function that returns
            the copy's state as JSON; reverse actions are tried in it.
        undo: where calls with a reverse are kept, a file or an UndoLog, so that they can be taken back.

    Raises:
        InputError: the rule file cannot be used.
    """
    held = rules if isinstance(rules, Permissions) else load_permissions(rules)
    log = undo if isinstance(undo, UndoLog) or undo is None else UndoLog(undo)
    enforcement = Enforcement(held, ask, copy, log)
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
            if _of_process:
                return _of_process[0]
            path = os.environ.get(FILE)
            asks = ask_terminal if os.environ.get(ASK) == "terminal" else None
            # A file that cannot be used raises at every tool: none runs unguarded because of a typing error.
            _of_process.append(Enforcement(load_permissions(Path(path)), asks) if path else None)
    return _of_process[0]
