"""Steps for the tools of an agent whose model calls alone were recorded.

The gateway sees an agent's model calls and not its tools: what the model asks for, and in a later request what the
tool gave.  The two make a step of kind `tool`, behind the call that asked.  A tool that was recorded itself, by a
decorator or an instrumentor, stays the one step that it is; a call whose result no request shows has no step, for
nothing says that it ran; one that another agent worked on is that agent's step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...types import Json, Step, canonical
from ..tools import bare
from .tool_calls import TOLD

CALLED = "status"
"""In the info of a model call's step that the gateway has recorded."""


@dataclass(slots=True)
class _AskedFor:
    """A call that a model asked for, and its result once a request has shown it."""

    id: str | None
    name: str
    arguments: Json
    sign: bytes
    answered: bool = False
    result: str = ""


def with_told_tools(steps: Sequence[Step]) -> list[Step]:
    """The steps, with one behind each model call of the gateway's for every tool that it had called.

    Args:
        steps: of one run, in the order in which they began.  Steps that were added before are made anew.
    """
    recorded = [step for step in steps if not (step.kind == "tool" and TOLD in step.info)]
    if not any(CALLED in step.info and _requests(step.action) for step in recorded):
        return recorded
    asked = _asked(recorded)
    _leave_out_recorded(recorded, [call for calls in asked.values() for call in calls])
    return [told for step in recorded for told in (step, *_steps(step, asked.get(step.id, ())))]


def _asked(steps: Sequence[Step]) -> dict[str, list[_AskedFor]]:
    """Step id → the calls that it asked for, with the results that later requests show."""
    asked: dict[str, list[_AskedFor]] = {}
    waiting: dict[str | None, list[_AskedFor]] = {}
    for step in steps:
        if step.kind != "llm":
            continue
        if waiting:
            _answer(waiting, step.observation)
        if CALLED not in step.info:
            continue
        calls = [
            _AskedFor(request.get("id"), str(request["name"]), request.get("arguments"), _sign(request))
            for request in _requests(step.action)
            if request.get("name")
        ]
        for call in calls:
            waiting.setdefault(call.id, []).append(call)
        asked[step.id] = calls
    return asked


def _answer(waiting: dict[str | None, list[_AskedFor]], conversation: Json) -> None:
    """Give the calls that wait their results from a request."""
    # From the end: a server may give every call the same id, and the newest results are those of the newest calls.
    for request, message in reversed([*_results(conversation)]):
        calls = waiting.get(message.get("tool_call_id"), [])
        if request is None:
            # A conversation that the server remembers: the request holds the results alone.
            fitting = calls if len(calls) == 1 else []
        else:
            fitting = [call for call in calls if call.sign == _sign(request)]
        if fitting:
            call = fitting[-1]
            call.answered, call.result = True, message.get("text") or ""
            calls.remove(call)
            if not calls:
                del waiting[call.id]


def _results(conversation: Json) -> Iterator[tuple[Mapping[str, Any] | None, Mapping[str, Any]]]:
    """Each tool's message of a conversation with the call that it answers, if the conversation has that."""
    requests: dict[str | None, Mapping[str, Any]] = {}
    for message in conversation if isinstance(conversation, list | tuple) else ():
        if not isinstance(message, dict):
            continue
        for request in _requests(message):
            requests[request.get("id")] = request
            if request.get("id_wire"):
                requests[request["id_wire"]] = request
        if message.get("role") == "tool":
            yield requests.pop(message.get("tool_call_id"), None), message


def _requests(message: Json) -> Sequence[Mapping[str, Any]]:
    requests = message.get("tool_calls") if isinstance(message, dict) else None
    return [request for request in requests or () if isinstance(request, dict)]


def _sign(request: Mapping[str, Any]) -> bytes:
    return canonical((bare(str(request.get("name"))), request.get("arguments")))


def _leave_out_recorded(steps: Sequence[Step], calls: Sequence[_AskedFor]) -> None:
    """Take from the calls those of which the run has a step, of the tool or of an agent that worked on it."""
    own = [step for step in steps if step.kind == "tool"]
    _leave_out_by_id(own, calls)
    # What a decorator records has no id: the same tool with the same arguments, else the same tool.
    unnamed = [step for step in own if not step.info.get("tool_call_id")]
    exact = Counter(canonical((bare(step.name), step.observation)) for step in unnamed)
    names = Counter(bare(step.name) for step in unnamed)
    worked_on = Counter(
        canonical((step.info["tool_call_id"], step.observation))
        for step in steps
        if step.kind == "agent" and step.info.get("tool_call_id")
    )
    for call in calls:
        delegated = canonical((call.id, call.arguments))
        for counts, key in ((worked_on, delegated), (exact, call.sign)):
            if call.answered and counts[key] > 0:
                call.answered = False
                counts[key] -= 1
                names[bare(call.name)] -= int(counts is exact)
    for call in calls:
        if call.answered and names[bare(call.name)] > 0:
            call.answered = False
            names[bare(call.name)] -= 1


def _leave_out_by_id(own: Sequence[Step], calls: Sequence[_AskedFor]) -> None:
    """Take from the calls as many of each id as there are steps of it: some models give two calls one id."""
    exact = Counter(
        (id, canonical((bare(step.name), step.observation)))
        for step in own
        if (id := step.info.get("tool_call_id"))
    )
    named = Counter(step.info["tool_call_id"] for step in own if step.info.get("tool_call_id"))
    # First those whose result no request shows: a step that fits one of them is of the last call of a run.
    for call in sorted(calls, key=lambda call: call.answered):
        if exact[call.id, call.sign] > 0:
            exact[call.id, call.sign] -= 1
            named[call.id] -= 1
            call.answered = False
    for call in calls:
        if call.answered and named[call.id] > 0:
            named[call.id] -= 1
            call.answered = False


def _steps(asking: Step, calls: Sequence[_AskedFor]) -> Iterator[Step]:
    for number, call in enumerate(calls, 1):
        if call.answered:
            info = {TOLD: True, "tool_call_id": call.id, "trace_id": asking.info.get("trace_id")}
            yield Step(
                observation=call.arguments,
                action=call.result,
                kind="tool",
                name=call.name,
                agent=asking.agent,
                id=f"{asking.id}.{number}",
                parent=asking.parent,
                info={key: value for key, value in info.items() if value is not None},
            )
