"""Chats in files of one's own: a program's log, a dataset for fine-tuning, an agent's transcripts.

A record is one chat: `messages` in the form of OpenAI, Anthropic or LangChain, `conversations` of `from` and `value`
(ShareGPT, ToolBench), `traj` (tau-bench), `history` (SWE-agent's .traj files), a request with its response, or a
question and its answer in two columns.  Each answer of the assistant becomes a model call whose request is what stood
before it, as if the gateway had recorded it; tools are read from the calls and the messages that answer them.  What
else a record says is kept: opinions as such, the rest in the run's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ....errors import InputError
from ....types import Json, Span, digest
from ...columns import GROUP
from ...tracing.dialects import messages as common_messages
from ...tracing.dialects.calls import ENCODING, answers_of
from ...tracing.dialects.values import plain, structure
from .holdings import Holdings, Opinion, nanoseconds, span_bytes, trace_bytes

KEYS = ()
_TURNS = (
    "messages",
    "conversations",
    "conversation",
    "traj",
    "history",
    "turns",
    "dialog",
    "dialogue",
    "chat",
)
_ASKED = ("question", "input", "prompt", "query", "instruction", "request", "user_message")
_ANSWERED = ("answer", "output", "response", "completion", "reply", "assistant_message")
_IDS = ("id", "chat_id", "conversation_id", "trace_id", "run_id", "instance_id", "uuid")
_SESSIONS = ("session", "session_id", "thread_id")
_SUBJECTS = tuple(name for name in GROUP if name not in ("group", *_SESSIONS))
_TIMES = ("timestamp", "created_at", "create_time", "created", "time", "start_time", "started_at", "date")
_EXPECTED = (
    "expected",
    "expected_output",
    "expected_answer",
    "reference",
    "ground_truth",
    "gold",
    "correction",
)
_COMMENTS = ("comment", "comments", "feedback_comment", "feedback_text", "remark")
_JUDGED = re.compile(
    r"reward|score|rating|rated|stars?$|thumb|vote|like|feedback|success|solved|passed|correct|helpful|label|quality",
    re.IGNORECASE,
)
"""Names of fields that say how good a chat was."""
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "observation": "tool",
}
"""Who speaks in `from`; others have the names of the APIs."""
_WIRE = ("system", "developer", "user", "assistant", "tool", "function")
_SAID = ("from", "speaker", "value", "text", "message")
_SAID_IN = ("choices", "output", "content", "role", "model", "usage")
"""Members of a response that are read; the others are kept."""


def read(record: Mapping[str, Json], holdings: Holdings) -> bool:
    """Add one chat.

    Raises:
        InputError: it is none, nobody answers in it, or a turn does not say who speaks.
    """
    fields = dict(record)
    turns, answer = _turns(fields)
    if not answer and not any(turn["role"] == "assistant" for turn in turns):
        raise InputError("nobody answers in it: a chat has a message of the role assistant")
    # Of a logged call, the answers before its own were calls of their own, and perhaps logged as such.
    before_it = len(turns) if answer else 0
    calls = [(before, said) for before, said in _calls([*turns, *answer]) if len(before) >= before_it]
    _chat(fields, [*turns, *answer], calls, holdings)
    return True


def _turns(fields: dict[str, Json]) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """The messages of a record and the answer that stands beside them, taken out of it."""
    if "role" in fields and "content" in fields and not any(name in fields for name in _TURNS):
        raise InputError('a message alone; write each chat as one object, {"messages": [...]}')
    request = structure(fields.get("request"))
    if isinstance(request, dict) and isinstance(request.get("messages", request.get("input")), list | str):
        del fields["request"]
        # The request's fields beside the record's own: who reads on finds one chat.
        for name, value in request.items():
            listed = name == "input" and isinstance(value, list)
            fields.setdefault("messages" if listed else "system" if name == "instructions" else name, value)
    for name in _TURNS:
        several = structure(fields.get(name))
        if isinstance(several, list) and several and all(isinstance(turn, dict) for turn in several):
            del fields[name]
            turns = [said for number, turn in enumerate(several, 1) for said in _turn(turn, number)]
            return _under_system(fields, turns), _response(fields, last=turns[-1]["role"])
    asked = next((name for name in _ASKED if _says(fields.get(name))), None)
    answered = next((name for name in _ANSWERED if name != asked and _says(fields.get(name))), None)
    if asked is None:
        raise InputError(
            f"no chat: it has neither messages ({', '.join(_TURNS[:5])}) nor a question ({', '.join(_ASKED[:3])}); "
            f"it has {', '.join(map(str, fields)) or 'nothing'}"
        )
    if answered is None:
        raise InputError(f"it has a question ({asked}) and no answer ({', '.join(_ANSWERED[:4])})")
    question = _spoken(fields.pop(asked), "user")
    return _under_system(fields, question), _response(fields, last="user", name=answered)


def _under_system(fields: dict[str, Json], turns: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """The messages behind the system prompt that stands beside them, taken out of the record."""
    system = fields.get("system")
    if not isinstance(system, str | list) or not system:
        return turns
    del fields["system"]
    return [{"role": "system", "content": system}, *turns]


def _turn(turn: Mapping[str, Json], number: int) -> list[dict[str, Json]]:
    """A message as those of the chat API, as it came where it is one of that or of Anthropic's."""
    if "from" in turn or "speaker" in turn:
        speaker = turn.get("from", turn.get("speaker"))
        said = next((turn[name] for name in ("value", "content", "text", "message") if name in turn), None)
        rest = {name: value for name, value in turn.items() if name not in _SAID}
        turn = {**rest, "role": _ROLES.get(str(speaker).lower(), speaker), "content": said}
    role = str(turn.get("role")).lower()
    if role in _WIRE:
        # SWE-agent: a tool's message names the calls that it answers in a list.
        ids = turn.get("tool_call_ids")
        named = (
            {"tool_call_id": ids[0]} if isinstance(ids, list) and ids and "tool_call_id" not in turn else {}
        )
        return [{**turn, **named, "role": role}]
    # LangChain's, the items of the Responses API, Gemini's: in the one form that all readers of messages know.
    if several := common_messages([dict(turn)]):
        return [_on_the_wire(message) for message in several]
    raise InputError(
        f"turn {number} does not say who speaks: it has {', '.join(map(str, turn)) or 'nothing'}"
    )


def _on_the_wire(message: Mapping[str, Any]) -> dict[str, Json]:
    """A message in the common form as the chat API has it."""
    text = message.get("text")
    parts = [{"type": "text", "text": text}] * bool(text) + list(message.get("parts") or ())
    wire: dict[str, Json] = {"role": message["role"], "content": parts if message.get("parts") else text}
    if message.get("tool_call_id") is not None:
        wire["tool_call_id"] = message["tool_call_id"]
    if message.get("reasoning"):
        wire["reasoning_content"] = message["reasoning"]
    if message.get("tool_calls"):
        wire["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {"name": call.get("name"), "arguments": plain(call.get("arguments"))},
            }
            for call in message["tool_calls"]
        ]
    return wire


def _response(fields: dict[str, Json], *, last: Json, name: str = "") -> list[dict[str, Json]]:
    """What was answered to a request that ends before its answer, taken out of the record."""
    name = name or next((key for key in _ANSWERED if fields.get(key) is not None), "")
    if last == "assistant" or not name or not _says(fields[name]):
        return []
    value = fields.pop(name)
    held = structure(value)
    answers = answers_of(held)[0] if isinstance(held, dict) else []
    if isinstance(held, dict) and held.get("error") and not answers:
        raise InputError(f"its {name} is an error: {plain(held['error'])[:200]}")
    if not isinstance(held, dict) or not answers:
        # Any other object is an answer that is an object.
        return _spoken(value, "assistant")
    for key in ("model", "usage"):
        if held.get(key) is not None:
            fields.setdefault(key, held[key])
    fields["response"] = {key: part for key, part in held.items() if key not in _SAID_IN}
    return [_on_the_wire(answers[0])]


def _spoken(value: Json, role: str) -> list[dict[str, Json]]:
    """A text as a message of `role`; messages as they are."""
    held = structure(value) if isinstance(value, str) and value[:1] in ("[", "{") else value
    several: Any = [held] if isinstance(held, dict) else held
    if (
        isinstance(several, list)
        and several
        and all(isinstance(turn, dict) and "role" in turn for turn in several)
    ):
        return [said for number, turn in enumerate(several, 1) for said in _turn(turn, number)]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return [{"role": role, "content": text}]


def _says(value: Json) -> bool:
    return value is not None and value != "" and value != []


def _chat(
    fields: dict[str, Json],
    turns: Sequence[dict[str, Json]],
    calls: Sequence[tuple[Sequence[dict[str, Json]], dict[str, Json]]],
    holdings: Holdings,
) -> None:
    own = next((fields[name] for name in _IDS if _says(fields.get(name))), None)
    # Without its opinions: a thumb that comes later is one on the same run. Two equal chats are two runs.
    content = digest([own, turns], 32)
    trace = digest([content, holdings.again(content)], 32)
    at = _time(fields) or holdings.began
    model = fields.pop("model", None)
    # What several calls took together is nobody's usage: it stays where it stood.
    usage = _usage(fields) if len(calls) == 1 else None
    tools = fields.pop("tools", fields.pop("functions", None))
    for number, (before, answer) in enumerate(calls):
        started = _time(dict(answer)) or at + number * 1_000
        request: dict[str, Json] = {"model": model, "messages": list(before)}
        if isinstance(tools, list):
            request["tools"] = tools
        response = {"model": model, "choices": [{"index": 0, "message": dict(answer)}]}
        body = {
            "api": "chat",
            "model": model,
            "request": request,
            "response": response,
            "status": 200,
            "usage": usage,
        }
        span = Span(
            trace_bytes(trace),
            span_bytes(f"{trace} {number}"),
            b"",
            started,
            started,
            "chat" if not isinstance(model, str) else f"chat {model}",
            msgspec.json.encode(body, enc_hook=str),
            ENCODING,
        )
        holdings.spool.put_span(f"{trace} {number}", span)
    last = max(place for place, turn in enumerate(turns) if turn["role"] == "assistant")
    _ended(turns[last], turns[last + 1 :], trace, at + len(turns) * 1_000, holdings)
    _note(fields, turns[last + 1 :], trace, at / 1e9, holdings)


def _ended(
    answer: Mapping[str, Json], after: Sequence[dict[str, Json]], trace: str, at: int, holdings: Holdings
) -> None:
    """Add the tools that the last answer called and that no later request shows: the chat ends with their results."""
    asked = {
        call["id"]: call
        for turn in common_messages([dict(answer)])
        for call in turn.get("tool_calls", ())
        if call.get("id")
    }
    for turn in common_messages(list(after)):
        call = asked.pop(turn.get("tool_call_id"), None) if turn["role"] == "tool" else None
        if call is not None:
            holdings.span(
                trace=trace,
                id=f"{trace} {call['id']}",
                parent=None,
                name=f"execute_tool {call['name']}",
                started=at,
                ended=at,
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": call["name"],
                    "gen_ai.tool.call.id": call["id"],
                    "gen_ai.tool.call.arguments": plain(call.get("arguments")),
                    "gen_ai.tool.call.result": turn.get("text", ""),
                },
            )


def _usage(fields: dict[str, Json]) -> dict[str, Json] | None:
    """The tokens of the one call, as the gateway counts them; the record keeps all that it says of them."""
    held = structure(fields.get("usage"))
    if not isinstance(held, dict):
        return None
    named = {"input": ("prompt_tokens", "input_tokens"), "output": ("completion_tokens", "output_tokens")}
    usage = {
        name: next((held[key] for key in keys if type(held.get(key)) is int), None)
        for name, keys in named.items()
    }
    return usage if any(count is not None for count in usage.values()) else None


def _calls(turns: Sequence[dict[str, Json]]) -> Iterator[tuple[Sequence[dict[str, Json]], dict[str, Json]]]:
    """What stood before each answer, and the answer."""
    for place, turn in enumerate(turns):
        if turn["role"] == "assistant":
            yield turns[:place], turn


def _time(fields: dict[str, Json]) -> int:
    """When it was, in Unix nanoseconds, taken out of the record; 0 if nothing that is read says so."""
    for name in _TIMES:
        value = fields.get(name)
        if isinstance(value, bool) or not _says(value):
            continue
        try:
            moment = nanoseconds(
                float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value
            )
        except (TypeError, ValueError, OverflowError):
            continue
        if moment > 0:
            del fields[name]
            return moment
    return 0


def _note(
    fields: dict[str, Json], after: Sequence[dict[str, Json]], trace: str, at: float, holdings: Holdings
) -> None:
    note = holdings.note(trace)
    note.transcript = True
    for names, place in ((_SESSIONS, "session"), (_SUBJECTS, "subject")):
        named = next((name for name in names if _says(fields.get(name))), None)
        if named is not None:
            setattr(note, place, fields.pop(named))
    opinions = dict(_opinions(fields))
    places = (fields, opinions)
    comment = next(
        (held.pop(name) for held in places for name in _COMMENTS if isinstance(held.get(name), str)), ""
    )
    for name, value in opinions.items():
        # A word that is no verdict is what somebody says.
        if isinstance(value, str) and " " in value.strip() and "feedback" in name.lower():
            opinion = Opinion(id=f"{trace} {name}", name=name, by="person", comment=value, at=at, trace=trace)
        else:
            opinion = Opinion(
                id=f"{trace} {name}", name=name, value=value, comment=comment, at=at, trace=trace
            )
            comment = ""
        holdings.opinion(opinion)
    if comment:
        holdings.opinion(
            Opinion(id=f"{trace} comment", name="comment", by="person", comment=comment, at=at, trace=trace)
        )
    for name in _EXPECTED:
        if _says(fields.get(name)):
            told = Opinion(
                id=f"{trace} {name}", name=name, by="person", correction=fields.pop(name), at=at, trace=trace
            )
            holdings.opinion(told)
            break
    # No call saw it: what came behind the last answer, such as thanks.
    if said := common_messages(list(after)):
        note.metadata["after"] = said
    note.metadata |= {name: value for name, value in fields.items() if _says(value)}


def _opinions(fields: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """The fields that say how good it was, taken out of the record, also those in an object such as `scores`."""
    for name in [name for name in fields if _JUDGED.search(name)]:
        held = structure(fields[name])
        inside = held if isinstance(held, dict) else {name: fields[name]}
        if not inside or not all(isinstance(value, bool | int | float | str) for value in inside.values()):
            continue  # it is kept as it is
        del fields[name]
        for key, value in inside.items():
            if _says(value):
                yield str(key), value
