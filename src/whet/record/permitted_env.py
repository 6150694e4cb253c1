"""An Env whose actions are checked before it takes them, where permissions hold.

An action that the rules deny never reaches the environment: the episode ends as blocked, or its observation is the
refusal and it goes on, as the rules say.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..types import Json, Outcome, Task
from .permissions.enforcement import NOTE, Enforcement
from .permissions.rules import PermissionDecision
from .tracing.tool_calls import requested_calls

ACTION = "action"
"""The name under which rules declare an action that calls no tool: `"tools": {"action": {"action": "command"}}`."""


class PermittedEnv:
    """An environment behind permissions; `rollout` puts one around its own.

    Where the rules want consent for what cannot be taken back, an environment with `snapshot` and `restore` may have
    `reverse(action)`: the actions that take it back, none ([]) for one that changes nothing, None where there are none.

    Args:
        env: the environment.
        enforcement: the rules, and whom to ask.
    """

    def __init__(self, env: Any, enforcement: Enforcement) -> None:
        self._env, self._enforcement = env, enforcement

    def __getattr__(self, name: str) -> Any:
        # `snapshot`, `restore` and `meta`, where the environment has them.
        return getattr(self._env, name)

    def reset(self, task: Task, seed: int) -> Any:
        """As the environment's."""
        return self._env.reset(task, seed)

    async def step(self, action: Json) -> Any:
        """As the environment's, or the refusal."""
        denied: PermissionDecision | None = None
        calls = _calls(action, self._enforcement)
        for name, arguments in calls:
            decision = self._enforcement.decided(name, arguments)
            if decision.decision == "deny":
                denied = decision
                break
        if denied is None and calls and self._enforcement.rules.irreversible != "allow":
            denied = await self._unconsented(action, *calls[0])
        if denied is None:
            return await _resolved(self._env.step(action))
        ends = self._enforcement.rules.when_denied == "end"
        info: dict[str, Json] = {NOTE: self._enforcement.note(denied)}
        if ends:
            info["outcome"] = Outcome.BLOCKED.value
        # Five plain values: a StepResult is defined by whom this module serves.
        return denied.sentence, None, ends, False, info

    async def _unconsented(self, action: Json, name: str, arguments: Json) -> PermissionDecision | None:
        """The refusal of an action that cannot be taken back, None where it can or a person consents."""
        why = await self._irreversible(action)
        if not why:
            return None
        allowed = PermissionDecision(decision="allow", reason="the rules allow it", tool=name)
        decision = self._enforcement.consented(allowed, arguments, why)
        return decision if decision.decision == "deny" else None

    async def _irreversible(self, action: Json) -> str:
        """Try the action and its reverse, and restore: "" if the state came back, else the reason that it may not."""
        reverse = getattr(self._env, "reverse", None)
        if reverse is None or not hasattr(self._env, "snapshot"):
            return "the environment tells no reverse, or has no snapshot to try it on"
        back = await _resolved(reverse(action))
        if back is None:
            return "the environment knows no reverse of it"
        if not back:
            return ""
        before = await _resolved(self._env.snapshot())
        try:
            for each in (action, *back):
                await _resolved(self._env.step(each))
            after = await _resolved(self._env.snapshot())
        except Exception as error:
            return f"trying it failed: {type(error).__name__}: {error}"
        finally:
            await _resolved(self._env.restore(before))
        return "" if before == after else "its reverse does not bring the state back"


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _calls(action: Json, enforcement: Enforcement) -> list[tuple[str, Json]]:
    """The calls that an action is."""
    requested = requested_calls(action)
    if requested:
        # One without a name cannot be read: under the name "" no rule allows it that does not allow all.
        return [(call.name or "", call.arguments) for call in requested]
    if ACTION not in enforcement.rules.tools:
        return []
    return [(ACTION, action if isinstance(action, Mapping) else {ACTION: action})]
