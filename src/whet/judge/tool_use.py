"""RLTR: a planner is paid for whether its tool calls cover what the task needs, not for the answer.

After "Reinforcement Learning with Tool-use Rewards" (Li et al. 2025), which trains the
planner apart from the summariser, because a final answer says too little about the plan
(and is no use where a summariser's faults hide it).  The paper's coefficients are not
public; the form here is ours:

    R = w_c · covered / required − w_x · redundant / calls − w_e · failed calls − w_f · malformed

*Required* calls come from the task (`meta["required_calls"]`) or a function; a call covers
a requirement when name and the required arguments are the same, and whatever must come
first has been covered before it.  A call that repeats another one exactly, or covers
nothing, is redundant: without that term, calling everything would pay best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..errors import InputError
from ..record.tracing.tool_calls import Invocation, tool_calls
from ..types import Json, Score, Step, Trajectory, canonical, digest
from .base import version_of
from .rules import NO_DECISIONS

_UNTOLD = (
    "the model calls are recorded as text, which tells of no tool calls; mark the tools with "
    "@whet.step(kind='tool'), or run the agent behind the gateway"
)
_UNKNOWN = (
    "the task does not say which calls it needs; list them in its meta['required_calls'], or give required="
)


@dataclass(frozen=True, slots=True)
class Required:
    """A call that the task needs."""

    name: str
    arguments: Mapping[str, Json] = field(default_factory=dict)
    """Those that matter; others may have any value."""
    after: Sequence[int] = ()
    """Places of required calls that must be covered before it: a partial order."""


@dataclass(frozen=True, kw_only=True)
class ToolUseOptions:
    """Weights of the terms."""

    coverage: float = 1.0
    """Weight of the share of required calls that were made."""
    redundancy: float = 0.1
    """Weight of the share of calls that repeat another or cover nothing."""
    errors: float = 0.2
    """Taken off for each call that failed."""
    malformed: float = 1.0
    """Taken off once if any call could not be read."""

    def __post_init__(self) -> None:
        if min(self.coverage, self.redundancy, self.errors, self.malformed) < 0:
            raise InputError(f"weights of tool use must be 0 or more; got {self}")


class ToolUse:
    """Tool-use completeness as a Reward.

    Args:
        required: Trajectory → the calls its task needs, None where nobody knows; `meta["required_calls"]`
            of the task if left out.
        calls: Trajectory → the calls that were made; if left out those that its decorators, spans, model calls or
            actions tell of (`whet.record.tracing.tool_calls`).
    """

    def __init__(
        self,
        options: ToolUseOptions | None = None,
        *,
        required: Callable[[Trajectory], Sequence[Required] | None] | None = None,
        calls: Callable[[Trajectory], Sequence[Invocation]] | None = None,
    ) -> None:
        self.options = options or ToolUseOptions()
        self._required = required or required_of
        self._calls = calls or tool_calls
        self.__name__ = "tool_use"
        functions: list[Any] = [required, calls]
        given = ["" if function is None else version_of(function) for function in functions]
        self.version = f"1:{digest([msgspec.to_builtins(self.options), *given], 12)}"

    def __call__(self, trajectory: Trajectory) -> Score:
        """Its score; None where it is not known what was needed."""
        needed = self._required(trajectory)
        if not needed:
            return Score(self.__name__, None, _UNKNOWN, self.version)
        calls = list(self._calls(trajectory))
        if why := untold(trajectory, calls):
            return Score(self.__name__, None, why, self.version)
        covered, redundant = matched(needed, calls)
        options = self.options
        failed = sum(call.failed for call in calls)
        malformed = any(call.name is None for call in calls)
        value = (
            options.coverage * len(covered) / len(needed)
            - options.redundancy * redundant / max(1, len(calls))
            - options.errors * failed
            - options.malformed * malformed
        )
        reason = (
            f"{len(covered)} of {len(needed)} required calls, {redundant} of {len(calls)} redundant, "
            f"{failed} failed{', malformed' if malformed else ''}"
        )
        return Score(self.__name__, value, reason, self.version)


def matched(needed: Sequence[Required], calls: Sequence[Invocation]) -> tuple[set[int], int]:
    """Places of the requirements that are covered, and how many calls were redundant."""
    covered: set[int] = set()
    keys: set[bytes] = set()
    redundant = 0
    for call in calls:
        key = canonical([call.name, call.arguments])
        repeated, index = key in keys, None
        keys.add(key)
        if call.name is not None and not call.failed and not repeated:
            index = next(
                (
                    n
                    for n, required in enumerate(needed)
                    if n not in covered and _covers(call, required, covered)
                ),
                None,
            )
        if index is not None:
            covered.add(index)
        elif call.name is not None and not call.failed:
            redundant += 1
    return covered, redundant


def _covers(call: Invocation, required: Required, covered: set[int]) -> bool:
    return call.name == required.name and call.has(required.arguments) and set(required.after) <= covered


def required_of(trajectory: Trajectory) -> list[Required] | None:
    """The task's `meta["required_calls"]`: objects with `name`, `arguments` and `after`.

    Raises:
        InputError: it is something else.
    """
    listed: Any = trajectory.task.meta.get("required_calls")
    if listed is None:
        return None
    try:
        return [
            Required(str(call["name"]), dict(call.get("arguments") or {}), tuple(call.get("after") or ()))
            for call in listed
        ]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InputError(
            f"required_calls of task {trajectory.task.id} is not a list of calls: {error!r}"
        ) from error


def untold(trajectory: Trajectory, calls: Sequence[Invocation]) -> str:
    """Why a run without calls may have made some all the same; "" where it made none, or they are known."""
    steps = trajectory.steps
    if calls or not steps:
        return ""
    if all(map(_text_alone, steps)):
        return _UNTOLD
    # Spans of functions: whether one of them is a tool, nothing says.
    return NO_DECISIONS if all(step.kind == "function" and "span_ids" in step.info for step in steps) else ""


def _text_alone(step: Step) -> bool:
    """A model call of which only the text is known: whether it asked for a tool is not."""
    return step.kind == "llm" and isinstance(step.action, str)


TOOL_USE = ToolUse()
"""The reward that is named `tool_use`."""
