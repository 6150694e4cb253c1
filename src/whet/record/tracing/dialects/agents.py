"""The agent that made a model call, as far as the wire tells it.

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

from ....escapes import read_json
from ....types import AGENT, Json, Step, canonical, digest
from .messages import Message
from .reading import Wire

SPAWNED = "spawned"
"""In the info of an agent step that the wire told: `handoff` or `call`."""
TOLD_BY = "agent_told_by"
"""In the info of a call's step: how its agent is known."""
_HANDOFF = re.compile(r"(?:transfer|hand_?off|delegate)_(?:back_)?to_(.+)")
_ROLE = re.compile(r"\s*you(?:'re| are) (?:an? |the )?([^.,;:\n]{2,60})", re.IGNORECASE)
_TYPE = ("subagent_type", "agent_name", "agent", "recipient")
"""Arguments that tell a tool that starts sub-agents (deepagents' `task`) which one to start."""
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
    conversation: list[Message] = field(init=False)
    """Without the system prompt; made once, for each call is compared with all before it."""

    def __post_init__(self) -> None:
        messages = self.step.observation if isinstance(self.step.observation, list) else []
        self.conversation = [
            message for message in messages if message.get("role") not in ("system", "developer")
        ]

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


def wire_of(request: Mapping[str, Json], stated: str | None, messages: Sequence[Message]) -> Wire:
    """The signs of its agent in a request.

    Args:
        request: as the agent sent it.
        stated: by a header.
        messages: its messages in the common form.
    """
    metadata = request.get("metadata")
    held: Mapping[str, Json] = metadata if isinstance(metadata, dict) else {}
    named = (held.get(key) for key in ("gen_ai.agent.name", "agent_name", "agent"))
    stated = stated or next((agent for agent in named if isinstance(agent, str) and agent), None)
    speakers = []
    sent_messages = request.get("messages", request.get("input"))
    for message in sent_messages if isinstance(sent_messages, list) else ():
        name = (
            message.get("name") if isinstance(message, dict) and message.get("role") == "assistant" else None
        )
        if isinstance(name, str) and name:
            speakers.append((name, message))
    system = "\n".join(
        message.get("text", "") for message in messages if message["role"] in ("system", "developer")
    )
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
    # In this order: `_turns` parts agents of one prompt by their names, and `_name_turns` needs the openers.
    _name(calls)
    turns = _turns(calls)
    for number, turn in enumerate(turns):
        turn.opener = _opener(turn, turns[:number], calls)
    _name_turns(turns)
    _name_by_role(calls)
    attributed: dict[str, Step] = {}
    inside: dict[str, list[Step]] = {}
    for turn in turns:
        if turn.opener is not None:
            step = _agent_step(turn, calls)
            inside[turn.calls[0].step.id] = [step]
        for call in turn.calls:
            attributed[call.step.id] = _named(call, None if turn.opener is None else _id(turn))
    nested = {
        call.step.id
        for turn in turns
        if turn.opener is not None and turn.opener[2] == "call"
        for call in turn.calls
    }
    ordered: list[Step] = []
    for step in steps:
        ordered += (*inside.get(step.id, ()), attributed.get(step.id, step))
    return ordered, nested


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
            signature = _signature(message)
            for earlier in reversed(calls[:number]):
                if earlier.ended <= call.started and signature == _signature(earlier.step.action):
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
        aliases = names.get(call.wire.persona, set())
        if not call.name and len({name for name, _ in aliases}) == 1:
            call.name, call.how = min(aliases)


def _signature(message: Json) -> bytes | None:
    """A message of an assistant for comparison: its text and its calls, in whatever API's form."""
    if not isinstance(message, dict):
        return None
    content = message.get("text", message.get("content"))
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = []
    for call in message.get("tool_calls") or ():
        held = call.get("function", call)
        arguments = held.get("arguments")
        if isinstance(arguments, str):
            # The API sends arguments as text, a message in the common form has them parsed.
            with contextlib.suppress(msgspec.DecodeError):
                arguments = read_json(msgspec.json.decode, arguments)
        calls.append([call.get("id"), held.get("name"), arguments])
    return canonical([content or "", calls])


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
    """True if a conversation is an earlier one with more messages."""
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
    # By identity: two equal calls of one answer start two sub-agents, and one call starts one.
    opened = {id(earlier.opener[1]) for earlier in before if earlier.opener is not None}
    # The newest first: an agent that is called again for the same question works on the last call.
    for call in reversed(calls):
        if call.ended > first.started or call.turn is turn:
            continue
        for tool_call in call.asked_for:
            if call.wire.persona == first.wire.persona or id(tool_call) in opened:
                continue
            if _handed_over(tool_call, first):
                return call, tool_call, "handoff"
            apart = not _goes_on(first, call) and _open(tool_call, call, first, calls)
            if apart and _evident(tool_call, turn, calls):
                return call, tool_call, "call"
    return None


def _handed_over(tool_call: Message, first: _Call) -> bool:
    """A handoff whose result is the newest that the conversation has."""
    if _HANDOFF.fullmatch(tool_call.get("name") or "") is None:
        return False
    results = [message for message in first.conversation if message["role"] == "tool"]
    return bool(results) and results[-1].get("tool_call_id") == tool_call.get("id") is not None


def _result(tool_call: Message, call: _Call, calls: Sequence[_Call]) -> tuple[_Call, str] | None:
    """The first request that has the result of a tool call, and its text."""
    offset = len(call.conversation)
    for later in calls:
        if later.started < call.ended:
            continue
        for message in later.conversation[offset:]:
            same = message.get("tool_call_id") == tool_call.get("id") and tool_call.get("id") is not None
            if message["role"] == "tool" and same and later.wire.persona == call.wire.persona:
                return later, message.get("text") or ""
    return None


def _open(tool_call: Message, call: _Call, first: _Call, calls: Sequence[_Call]) -> bool:
    answered = _result(tool_call, call, calls)
    return answered is None or answered[0].started >= first.started


def _evident(tool_call: Message, turn: _Turn, calls: Sequence[_Call]) -> bool:
    questions = [
        message.get("text") or "" for message in turn.calls[0].conversation if message["role"] == "user"
    ]
    arguments = list(_texts(tool_call.get("arguments")))
    if any(
        text == question or (len(text) >= _LONG and text in question)
        for text in arguments
        for question in questions
    ):
        return True
    opened = next(call for call in calls if any(requested is tool_call for requested in call.asked_for))
    answered = _result(tool_call, opened, calls)
    last = turn.calls[-1].step.action
    answer = last.get("text") or "" if isinstance(last, dict) else ""
    return answered is not None and len(answer) >= _SHORTEST and answer in answered[1]


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _name_turns(turns: Sequence[_Turn]) -> None:
    """Name an agent that nobody named by the tool call that it works on."""
    for turn in turns:
        if turn.opener is None:
            continue
        _, tool_call, _ = turn.opener
        tool = str(tool_call.get("name") or "")
        handoff = _HANDOFF.fullmatch(tool)
        arguments = tool_call.get("arguments")
        typed = next(
            (arguments[key] for key in _TYPE if isinstance(arguments.get(key), str))
            if isinstance(arguments, dict)
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
    call, tool_call, how = turn.opener
    first, last = turn.calls[0], turn.calls[-1]
    answered = _result(tool_call, call, calls) if how == "call" else None
    answer = last.step.action if isinstance(last.step.action, dict) else {}
    outer = _around(turn)
    return Step(
        observation=tool_call.get("arguments"),
        action=answered[1] if answered is not None else answer.get("text"),
        kind=AGENT,
        name=first.name,
        agent=first.name,
        id=_id(turn),
        parent=None if outer is None else _id(outer),
        latency=max(0, last.ended - first.started) / 1e9,
        info={SPAWNED: how, "tool_call_id": tool_call.get("id"), "trace_id": first.step.info.get("trace_id")},
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
