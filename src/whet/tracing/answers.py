"""What a recorded run knows of its tools: which were called, with what, and what they answered.

A decorator or an instrumentor records a tool's call as a step.  A gateway sees none: it sees the model
ask for a call, and the result in the messages of the next request.  Both are tool steps here, and a
call that was seen both ways is one.  Nothing is guessed: a call whose result no request shows has none.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from ..types import Json, Step, Trajectory, canonical
from .encode import IMMUTABLE

TOLD = "told"
"""In the info of a tool step that was read from the messages of model calls, or from actions."""
_PARSED = {"dict", "list", "tuple", "int", "float", "bool", "Any"}
"""Return annotations, without their parameters, of tools whose recorded text is read as JSON."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tool's function takes and gives: how a recorded call is recognised as one of it."""

    names: tuple[str, ...] = ()
    defaults: Mapping[str, Json] | None = None
    returns: str = ""
    """The annotation's name without its parameters, "" where there is none."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Shape:
        """The shape of a function; an empty one where Python does not know its signature."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls()
        given = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        plain = [each for each in given if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        returns = signature.return_annotation
        text = returns if isinstance(returns, str) else getattr(returns, "__name__", str(returns))
        return cls(
            names=tuple(each.name for each in plain),
            # Others may be unequal to themselves, or have no JSON form: a call that spells them out is another.
            defaults={each.name: each.default for each in plain if type(each.default) in IMMUTABLE},
            returns="" if returns is signature.empty else text.partition("[")[0].rpartition(".")[2],
        )

    def arguments(self, given: Json) -> Json:
        """One form for one call: name → value without what equals its default; a lone value is the first.

        Older recordings of a decorated function of one argument have "Paris" for {"city": "Paris"}.
        """
        if not self.names:
            return next(iter(given.values())) if isinstance(given, dict) and len(given) == 1 else given
        if not isinstance(given, dict) or not set(given) <= set(self.names):
            given = {self.names[0]: given}
        defaults = self.defaults or {}
        return {name: each for name, each in given.items() if name not in defaults or defaults[name] != each}

    def result(self, step: Step) -> Json:
        """What the tool returned.

        Spans and messages carry it as text.  That is what a function returned that is annotated `str`;
        of one that is not, text in the form of a JSON object or array is the value, for that is what
        an agent makes JSON of.
        """
        text = step.action
        foreign = TOLD in step.info or "span_ids" in step.info
        if not isinstance(text, str) or not foreign or self.returns == "str":
            return text
        if self.returns not in _PARSED and text.lstrip()[:1] not in ("{", "["):
            return text
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text


def bare(tool: str) -> str:
    """The tool's own name: `Agent.run.<locals>.search` and `search` are one tool."""
    return tool.rsplit(".", 1)[-1]


def arguments(step: Step) -> Json:
    """What a recorded tool was called with."""
    return step.info.get("arguments", step.observation)


def tool_steps(trajectory: Trajectory) -> list[Step]:
    """The tool calls of a run that have an answer, in order: its own steps, then what its messages or actions tell.

    An action `{"name", "arguments"}` in an Env is one, and what the Env showed next is its answer.

    A span without a result is none: what the tool answered was not recorded, or only in the messages.
    """
    own = [
        step
        for step in trajectory.steps
        if step.kind == "tool"
        and not ("span_ids" in step.info and step.action is None and step.error is None)
    ]
    ids = {step.info["tool_call_id"] for step in own if step.info.get("tool_call_id")}
    known = Counter(_sign(step) for step in own)
    told: list[Step] = []
    seen: Counter[bytes] = Counter()
    for step in trajectory.steps:
        if step.kind != "llm":
            continue
        here: Counter[bytes] = Counter()
        for each in _answered(step.observation):
            # A request repeats the conversation before it: a call is new where there are more of it.
            sign = canonical((each.name, each.observation, each.action))
            here[sign] += 1
            if here[sign] <= seen[sign]:
                continue
            seen[sign] += 1
            if each.info["tool_call_id"] in ids:
                continue
            if known[_sign(each)] > 0:
                known[_sign(each)] -= 1
                continue
            told.append(each)
    return own + told + list(_acted(trajectory))


def foreign_tools(trajectory: Trajectory) -> set[str]:
    """Names of tools that spans or messages tell of, so that nothing says that a decorator is on them."""
    traced = {bare(step.name) for step in trajectory.steps if step.kind == "tool" and "span_ids" in step.info}
    told = {bare(step.name) for step in tool_steps(trajectory) if TOLD in step.info}
    asked = {
        bare(str(call.get("name")))
        for step in trajectory.steps
        if step.kind == "llm" and "span_ids" in step.info and isinstance(step.action, dict)
        for call in step.action.get("tool_calls") or ()
    }
    decorated = {
        bare(step.name) for step in trajectory.steps if step.kind == "tool" and "span_ids" not in step.info
    }
    return (traced | told | asked) - decorated


def _answered(messages: Json) -> Iterator[Step]:
    """The calls in a conversation that a tool's message answers."""
    asked: dict[str, Mapping[str, Any]] = {}
    for each in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(each, dict):
            continue
        for call in each.get("tool_calls") or ():
            asked[str(call.get("id"))] = call
        if each.get("role") == "tool":
            found = asked.pop(str(each.get("tool_call_id")), None)
            if found is not None and isinstance(found.get("name"), str):
                yield Step(
                    observation=found.get("arguments"),
                    action=each.get("text", ""),
                    kind="tool",
                    name=found["name"],
                    info={TOLD: True, "tool_call_id": str(found.get("id"))},
                )


def _acted(trajectory: Trajectory) -> Iterator[Step]:
    """The actions of an episode that are calls of tools."""
    taken = [step for step in trajectory.steps if step.kind == "action" and step.parent is None]
    for step, after in pairwise(taken):
        action = step.action
        called = isinstance(action, dict) and isinstance(action.get("name"), str)
        if called and isinstance(action.get("arguments"), dict):
            yield Step(
                observation=action["arguments"],
                action=after.observation,
                kind="tool",
                name=action["name"],
                info={TOLD: True, "tool_call_id": action.get("id")},
            )


def _sign(step: Step) -> bytes:
    """Tool and arguments, however they were recorded: for telling what was seen twice."""
    given = arguments(step)
    values = list(given.values()) if isinstance(given, dict) else [given]
    return canonical((bare(step.name), values))
