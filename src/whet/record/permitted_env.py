"""An Env whose actions are checked before it takes them, where permissions hold.

An action that the rules deny never reaches the environment: the episode ends as blocked, or its observation is the
refusal and it goes on, as the rules say.
"""

from __future__ import annotations

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

    def step(self, action: Json) -> Any:
        """As the environment's, or the refusal."""
        denied: PermissionDecision | None = None
        for name, arguments in _calls(action, self._enforcement):
            decision = self._enforcement.decided(name, arguments)
            if decision.decision == "deny":
                denied = decision
                break
        if denied is None:
            return self._env.step(action)
        ends = self._enforcement.rules.when_denied == "end"
        info: dict[str, Json] = {NOTE: self._enforcement.note(denied)}
        if ends:
            info["outcome"] = Outcome.BLOCKED.value
        # Five plain values: a StepResult is defined by whom this module serves.
        return denied.sentence, None, ends, False, info


def _calls(action: Json, enforcement: Enforcement) -> list[tuple[str, Json]]:
    """The calls that an action is."""
    requested = requested_calls(action)
    if requested:
        # One without a name cannot be read: under the name "" no rule allows it that does not allow all.
        return [(call.name or "", call.arguments) for call in requested]
    if ACTION not in enforcement.rules.tools:
        return []
    return [(ACTION, action if isinstance(action, Mapping) else {ACTION: action})]
