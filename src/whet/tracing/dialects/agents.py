"""Which agent made a model call, as far as the wire tells it.

A gateway sees calls and no agents.  Frameworks tell all the same: in a header (`x-whet-agent`, or `gen_ai.agent.name`
in `baggage`), in the request's `metadata`, in the `name` that later requests give an assistant's message (LangChain,
LangGraph), and in the tool call that a sub-agent works on.  A sub-agent becomes a step of kind `agent` around its
calls, as in a trace with spans.

The tool call that spawned a conversation needs evidence: its arguments are in the first question, its result is the
last answer, or it is a handoff (`transfer_to_NAME`) that the conversation goes on from.  Two agents that merely run at
once are never put inside each other.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ...types import Json, Step, canonical, digest
from .messages import Message
from .reading import AGENT, Wire

SPAWNED = "spawned"
"""In the info of an agent step that the wire told: `handoff` or `call`."""
TOLD_BY = "agent_told_by"
"""In the info of a call's step: how its agent is known."""
_HANDOFF = re.compile(r"(?:transfer|hand_?off|delegate)_(?:back_)?to_(.+)")
_ROLE = re.compile(r"\s*you(?:'re| are) (?:an? |the )?([^.,;:\n]{2,60})", re.IGNORECASE)
_TYPE = ("subagent_type", "agent_name", "agent", "recipient")
"""Arguments in which a tool that starts sub-agents (deepagents' `task`) is told which."""
_LONG = 16
"""Characters from which an argument that stands in a question is evidence; a city's name would stand in many."""
_SHORTEST = 4
"""Characters from which an answer that stands in a tool's result is evidence."""


@dataclass(slots=True)
class _Call:
    step: Step
    wire: Wire
    started: int
    ended: int
    name: str = ""
    how: str = ""
    turn: _Turn | None = None

    @property
    def conversation(self) -> list[Message]:
        """Without the system prompt."""
        asked = self.step.observation if isinstance(self.step.observation, list) else []
        return [each for each in asked if each.get("role") not in ("system", "developer")]

    @property
    def asked_for(self) -> Sequence[Message]:
        """The tool calls of its answer."""
        return self.step.action.get("tool_calls") or () if isinstance(self.step.action, dict) else ()


@dataclass(slots=True)
class _Turn:
    """The calls of one conversation of one agent."""

    calls: list[_Call] = field(default_factory=list)
    opener: tuple[_Call, Message, str] | None = None
    """The call that asked for it, its tool call, and `handoff` or `call`."""


def wire_of(request: Mapping[str, Json], stated: str | None, asked: Sequence[Message]) -> Wire:
    """What a request tells.

    Args:
        request: as the agent sent it.
        stated: by a header.
        asked: its messages in the common form.
    """
    metadata = request.get("metadata")
    held: Mapping[str, Json] = metadata if isinstance(metadata, dict) else {}
    named = (held.get(key) for key in ("gen_ai.agent.name", "agent_name", "agent"))
    stated = stated or next((each for each in named if isinstance(each, str) and each), None)
    speakers = []
    given = request.get("messages", request.get("input"))
    for each in given if isinstance(given, list) else ():
        name = each.get("name") if isinstance(each, dict) and each.get("role") == "assistant" else None
        if isinstance(name, str) and name:
            speakers.append((name, each))
    system = "\n".join(each.get("text", "") for each in asked if each["role"] in ("system", "developer"))
    return Wire(stated, speakers, system, tuple(sorted(_tool_names(request))))


def _tool_names(request: Mapping[str, Json]) -> Iterator[str]:
    tools = request.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        inner = tool.get("function") if isinstance(tool, dict) else None
        name = (inner if isinstance(inner, dict) else tool if isinstance(tool, dict) else {}).get("name")
        if isinstance(name, str):
            yield name


def attribute(
    steps: Sequence[Step], wires: Mapping[str, tuple[Wire, int, int]]
) -> tuple[list[Step], set[str]]:
    """The steps with the agents of their calls, and with a step for each sub-agent, before its first call.

    Args:
        wires: step id → what its request told, and when it began and ended in nanoseconds.

    Returns:
        The steps, and the ids of calls whose answer went to another agent and not out of the run.
    """
    calls = [_Call(step, *wires[step.id]) for step in steps if step.id in wires]
    _name(calls)
    turns = _turns(calls)
    for number, turn in enumerate(turns):
        turn.opener = _opener(turn, turns[:number], calls)
    _name_turns(turns)
    _name_by_role(calls)
    made: dict[str, Step] = {}
    inside: dict[str, list[Step]] = {}
    for turn in turns:
        if turn.opener is not None:
            step = _agent_step(turn, calls)
            inside[turn.calls[0].step.id] = [step]
        for call in turn.calls:
            made[call.step.id] = _named(call, None if turn.opener is None else _id(turn))
    nested = {
        call.step.id
        for turn in turns
        if turn.opener is not None and turn.opener[2] == "call"
        for call in turn.calls
    }
    return [one for step in steps for one in (*inside.get(step.id, ()), made.get(step.id, step))], nested


def _named(call: _Call, parent: str | None) -> Step:
    step = call.step
    if not call.name and parent is None:
        return step
    how = {TOLD_BY: call.how} if call.name and not step.agent else {}
    return replace(
        step, agent=step.agent or call.name, parent=step.parent or parent, info={**step.info, **how}
    )


def _name(calls: Sequence[_Call]) -> None:
    """Names that are stated, then those of the messages that later requests repeat, then of whoever has one prompt."""
    for number, call in enumerate(calls):
        if call.wire.agent:
            call.name, call.how = call.wire.agent, "request"
        for speaker, message in call.wire.speakers:
            said = _said(message)
            for earlier in reversed(calls[:number]):
                if earlier.ended <= call.started and said == _said(earlier.step.action):
                    if not earlier.name:
                        earlier.name, earlier.how = speaker, "message name"
                    break
    _share(calls)


def _share(calls: Sequence[_Call]) -> None:
    """One prompt with one set of tools is one agent, unless it goes by several names."""
    names: dict[Any, set[tuple[str, str]]] = {}
    for call in calls:
        if call.name and call.wire.persona is not None:
            names.setdefault(call.wire.persona, set()).add((call.name, call.how))
    for call in calls:
        known = names.get(call.wire.persona, set())
        if not call.name and len({name for name, _ in known}) == 1:
            call.name, call.how = min(known)


def _said(message: Json) -> bytes | None:
    """A message of an assistant for comparison: its text and its calls, in whatever API's form."""
    if not isinstance(message, dict):
        return None
    content = message.get("text", message.get("content"))
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    asked = []
    for call in message.get("tool_calls") or ():
        held = call.get("function", call)
        given = held.get("arguments")
        if isinstance(given, str):
            with contextlib.suppress(msgspec.DecodeError):
                given = msgspec.json.decode(given)
        asked.append([call.get("id"), held.get("name"), given])
    return canonical([content or "", asked])


def _turns(calls: Sequence[_Call]) -> list[_Turn]:
    """Conversations: a call goes on with the last one of its agent whose messages it begins with."""
    turns: list[_Turn] = []
    for call in calls:
        before = [turn for turn in reversed(turns) if _goes_on(call, turn.calls[-1])]
        own = [turn for turn in before if turn.calls[-1].wire.persona == call.wire.persona]
        # Some frameworks offer no tools any more where they want the answer.
        own = own or [turn for turn in before if turn.calls[-1].wire.system == call.wire.system]
        if own:
            turn = own[0]
        else:
            turns.append(turn := _Turn())
        turn.calls.append(call)
        call.turn = turn
    return turns


def _goes_on(call: _Call, earlier: _Call) -> bool:
    """Whether a conversation is an earlier one with more messages."""
    now, before = call.conversation, earlier.conversation
    return (
        earlier.ended <= call.started
        and len(now) > len(before)
        and now[: len(before)] == before
        and (not call.name or not earlier.name or call.name == earlier.name)
    )


def _opener(
    turn: _Turn, before: Sequence[_Turn], calls: Sequence[_Call]
) -> tuple[_Call, Message, str] | None:
    first = turn.calls[0]
    taken = {id(other.opener[1]) for other in before if other.opener is not None}
    for call in reversed([each for each in calls if each.ended <= first.started and each.turn is not turn]):
        for asked in call.asked_for:
            if call.wire.persona == first.wire.persona or id(asked) in taken:
                continue
            if _handed_over(asked, first):
                return call, asked, "handoff"
            apart = not _goes_on(first, call) and _open(asked, call, first, calls)
            if apart and _evident(asked, turn, calls):
                return call, asked, "call"
    return None


def _handed_over(asked: Message, first: _Call) -> bool:
    """A handoff whose result is the newest that the conversation has."""
    if _HANDOFF.fullmatch(asked.get("name") or "") is None:
        return False
    results = [each for each in first.conversation if each["role"] == "tool"]
    return bool(results) and results[-1].get("tool_call_id") == asked.get("id") is not None


def _result(asked: Message, call: _Call, calls: Sequence[_Call]) -> tuple[_Call, str] | None:
    """The first request that has the result of a tool call, and its text."""
    place = len(call.conversation)
    for later in calls:
        if later.started < call.ended:
            continue
        for each in later.conversation[place:]:
            same = each.get("tool_call_id") == asked.get("id") and asked.get("id") is not None
            if each["role"] == "tool" and same and later.wire.persona == call.wire.persona:
                return later, each.get("text") or ""
    return None


def _open(asked: Message, call: _Call, first: _Call, calls: Sequence[_Call]) -> bool:
    answered = _result(asked, call, calls)
    return answered is None or answered[0].started >= first.started


def _evident(asked: Message, turn: _Turn, calls: Sequence[_Call]) -> bool:
    questions = [each.get("text") or "" for each in turn.calls[0].conversation if each["role"] == "user"]
    given = list(_texts(asked.get("arguments")))
    if any(
        text == question or (len(text) >= _LONG and text in question)
        for text in given
        for question in questions
    ):
        return True
    opened = next(call for call in calls if any(each is asked for each in call.asked_for))
    answered = _result(asked, opened, calls)
    last = turn.calls[-1].step.action
    said = last.get("text") or "" if isinstance(last, dict) else ""
    return answered is not None and len(said) >= _SHORTEST and said in answered[1]


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _name_turns(turns: Sequence[_Turn]) -> None:
    """What nobody named goes by the tool call that it works on."""
    for turn in turns:
        if turn.opener is None:
            continue
        _, asked, _ = turn.opener
        tool = str(asked.get("name") or "")
        handoff = _HANDOFF.fullmatch(tool)
        given = asked.get("arguments")
        typed = next(
            (given[key] for key in _TYPE if isinstance(given.get(key), str))
            if isinstance(given, dict)
            else iter(()),
            None,
        )
        for call in turn.calls:
            if not call.name:
                call.name, call.how = (handoff[1] if handoff else typed or tool), "tool call"
    _share([call for turn in turns for call in turn.calls])


def _name_by_role(calls: Sequence[_Call]) -> None:
    """The last resort, where agents are told apart by their prompts alone: "You are a planner. ..."."""
    if len({call.wire.system for call in calls}) < 2:
        return
    for call in calls:
        role = None if call.name else _ROLE.match(call.wire.system)
        if role is not None:
            call.name, call.how = role[1].strip(), "system prompt"


def _id(turn: _Turn) -> str:
    return digest(["agent", turn.calls[0].step.id])


def _agent_step(turn: _Turn, calls: Sequence[_Call]) -> Step:
    assert turn.opener is not None
    call, asked, how = turn.opener
    first, last = turn.calls[0], turn.calls[-1]
    answered = _result(asked, call, calls) if how == "call" else None
    said = last.step.action if isinstance(last.step.action, dict) else {}
    outer = _around(turn)
    return Step(
        observation=asked.get("arguments"),
        action=answered[1] if answered is not None else said.get("text"),
        kind=AGENT,
        name=first.name,
        agent=first.name,
        id=_id(turn),
        parent=None if outer is None else _id(outer),
        latency=max(0, last.ended - first.started) / 1e9,
        info={SPAWNED: how, "tool_call_id": asked.get("id"), "trace_id": first.step.info.get("trace_id")},
    )


def _around(turn: _Turn) -> _Turn | None:
    """The sub-agent that one works in: who calls it is around it, who hands over to it stands beside it."""
    if turn.opener is None:
        return None
    call, _, how = turn.opener
    outer = call.turn
    if outer is None or outer.opener is None:
        return None
    return outer if how == "call" else _around(outer)
