"""Marked tools are called only if the permissions which hold there allow it (`record/permissions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import PermissionDenied
from ..permissions.enforcement import NOTE, Enforcement, enforced
from ..tools import Effect, bare
from .encode import thaw
from .kinds import forwarding, kind_of
from .record import CallSite, current


def guarded(function: Any, called: CallSite, effect: Effect | None) -> Any:
    """A tool that is called only if the permissions which hold there allow it; of the same kind."""
    several = kind_of(function) in ("generator", "async generator")

    def choose(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        enforcement = enforced()
        if enforcement is None:
            return function  # type: ignore[no-any-return]
        refusal = _checked(enforcement, called, effect, args, kwargs)
        if refusal is None:
            return function  # type: ignore[no-any-return]
        answer = [refusal] if several else refusal
        return lambda *_args, **_kwargs: answer

    if kind_of(function) != "async":
        return forwarding(function, choose)

    async def waiting(*args: Any, **kwargs: Any) -> Any:
        enforcement = enforced()
        if enforcement is None or enforcement.ask is None:
            return await choose_awaited(args, kwargs)
        # In a thread: a person is waited for, and the loop must go on meanwhile.
        refusal = await asyncio.to_thread(_checked, enforcement, called, effect, args, kwargs)
        return await function(*args, **kwargs) if refusal is None else refusal

    async def choose_awaited(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        chosen = choose(args, kwargs)
        return await function(*args, **kwargs) if chosen is function else chosen()

    return forwarding(function, lambda _args, _kwargs: waiting)


def _checked(
    enforcement: Enforcement,
    called: CallSite,
    effect: Effect | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> str | None:
    """None if the call may be made, else the refusal.

    Raises:
        PermissionDenied: the rules end a run whose call is denied.
    """
    arguments = called.observation(called.freeze(args, dict(kwargs)), thaw)
    decision = enforcement.decided(bare(called.name), arguments, effect)
    if decision.decision == "allow" and "person" not in decision.reason:
        return None
    frame = current.get()
    if frame is not None and frame.step is not None:
        frame.step.info = {**(frame.step.info or {}), NOTE: enforcement.note(decision)}
    if decision.decision == "allow":
        return None
    if enforcement.rules.when_denied == "end":
        raise PermissionDenied(decision.sentence)
    return decision.sentence
