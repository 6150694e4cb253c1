"""Marked tools are called only if the permissions which hold there allow it (`record/permissions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import PermissionDenied
from ..permissions.enforcement import NOTE, Enforcement, enforced
from ..permissions.reversing import Reverse, register_reverse, why_irreversible
from ..tools import Effect, bare
from .encode import freeze, thaw
from .kinds import forwarding, kind_of
from .record import CallSite, current


def guarded(function: Any, called: CallSite, effect: Effect | None, reverse: Reverse | None = None) -> Any:
    """A tool that is called only if the permissions which hold there allow it; of the same kind.

    Args:
        reverse: takes back what a call did; for plain and async functions.
    """
    kind = kind_of(function)
    several = kind in ("generator", "async generator")
    if reverse is not None:
        register_reverse(bare(called.name), reverse)
    call = _GuardedCall(function, called, effect, None if several else reverse)

    def choose(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        enforcement = enforced()
        if enforcement is None:
            return function  # type: ignore[no-any-return]
        refusal = call.checked(enforcement, args, kwargs)
        if refusal is None:
            return call.noting(enforcement)
        answer = [refusal] if several else refusal
        return lambda *_args, **_kwargs: answer

    if kind != "async":
        return forwarding(function, choose)

    async def waiting(*args: Any, **kwargs: Any) -> Any:
        enforcement = enforced()
        if enforcement is None:
            return await function(*args, **kwargs)
        # In a thread: a person may be waited for, and the loop must go on meanwhile.
        refusal = await asyncio.to_thread(call.checked, enforcement, args, kwargs)
        if refusal is not None:
            return refusal
        result = await function(*args, **kwargs)
        call.note(enforcement, args, kwargs, result)
        return result

    return forwarding(function, lambda _args, _kwargs: waiting)


class _GuardedCall:
    """The checks of one tool, and the notes of its calls."""

    def __init__(
        self, function: Any, called: CallSite, effect: Effect | None, reverse: Reverse | None
    ) -> None:
        self._function, self._called, self._effect, self._reverse = function, called, effect, reverse
        self._tool = bare(called.name)

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return self._called.observation(self._called.freeze(args, dict(kwargs)), thaw)

    def checked(
        self, enforcement: Enforcement, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str | None:
        """None if the call may be made, else the refusal.

        Raises:
            PermissionDenied: the rules end a run whose call is denied.
        """
        arguments = self._arguments(args, kwargs)
        decision = enforcement.decided(self._tool, arguments, self._effect)
        # Who allowed this very call has consented to it.
        if decision.decision == "allow" and not decision.by_person and self._effect != "read":
            loose = enforcement.rules.irreversible == "allow"
            if why := "" if loose else self._irreversible(enforcement, args, kwargs):
                decision = enforcement.consented(decision, arguments, why)
        if decision.decision == "allow" and not decision.by_person:
            return None
        frame = current.get()
        if frame is not None and frame.step is not None:
            frame.step.info = {**(frame.step.info or {}), NOTE: enforcement.note(decision)}
        if decision.decision == "allow":
            return None
        if enforcement.rules.when_denied == "end":
            raise PermissionDenied(decision.sentence)
        return decision.sentence

    def _irreversible(
        self, enforcement: Enforcement, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> str:
        if self._called.method:
            return "it is a method, and changes an object of which there is no copy"
        named = {**dict(zip(self._called.names, args, strict=False)), **kwargs}
        tool = self._function
        if kind_of(tool) == "async":
            tool = _in_a_loop(tool)
        return why_irreversible(tool, self._reverse, named, enforcement.copy)

    def noting(self, enforcement: Enforcement) -> Callable[..., Any]:
        """The tool, whose calls are noted in the undo log."""
        if self._reverse is None or enforcement.undo is None:
            return self._function  # type: ignore[no-any-return]

        def called(*args: Any, **kwargs: Any) -> Any:
            result = self._function(*args, **kwargs)
            self.note(enforcement, args, kwargs, result)
            return result

        return called

    def note(
        self, enforcement: Enforcement, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Have the undo log keep a call that was made."""
        if self._reverse is not None and enforcement.undo is not None:
            enforcement.undo.add(self._tool, self._arguments(args, kwargs), thaw(freeze(result)))


def _in_a_loop(tool: Any) -> Callable[..., Any]:
    # Checked in a thread, which has no loop of its own.
    return lambda **arguments: asyncio.run(tool(**arguments))
