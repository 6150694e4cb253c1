"""The gateway's record of a model call: the one dialect that knows token ids.

The body is JSON, written by this package: the request and the answer verbatim in the dialect of the
API that was called, and beside them the gateway's measurements and the model server's report
(`api`, `model`, `request`, `response`, `status`, `error`, `latency`, `first_event`, `usage`,
`choices`, `policy_version`, `versions`, `session`, `subject`, `agent`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ....errors import InputError
from ....types import LLM, Json, Span, Tokens
from ...store.trials import TRIALS
from ..content import Content, member
from .agents import wire_of
from .messages import Message, conversation_of, joined, message, messages, with_wire_ids
from .reading import UNTYPED, SpanReading, number, usage, word

ENCODING = "call+json"


class _Asked(msgspec.Struct):
    """The messages of a request of the chat or Messages API, undecoded."""

    messages: list[msgspec.Raw] | None = None


class _AskedCall(msgspec.Struct):
    request: _Asked | None = None


_asked = msgspec.json.Decoder(_AskedCall)


def read(span: Span) -> tuple[Content, SpanReading]:
    """A call as a span whose reading is that of a model call.

    Raises:
        InputError: the body is not such a record.
    """
    try:
        body = msgspec.json.decode(span.body)
    except (msgspec.DecodeError, RecursionError) as exception:
        raise InputError(f"call {span.id.hex()} cannot be read: {exception}") from exception
    if not isinstance(body, dict):
        raise InputError(f"call {span.id.hex()} cannot be read: it is not an object.")
    request, response = member(body, "request"), member(body, "response")
    reading = SpanReading(
        LLM, span.name or f"{body.get('api') or 'model'} {word(body, 'model') or ''}".strip()
    )
    reading.model = word(body, "model") or word(request, "model")
    reading.response_model = word(response, "model")
    reading.response_id = word(response, "id")
    prompt = prompt_of(request, _undecoded(span.body))
    reading.input = with_wire_ids(prompt) or None
    answers, reading.finish = answers_of(response)
    reading.output, reading.others = (answers[0] if answers else None), answers[1:]
    spent = member(body, "usage")
    counts = [number(spent, key) for key in ("input", "output", "cached_input", "reasoning")]
    reading.usage = usage(*counts)
    _blame(body, reading)
    _tokens(body, reading)
    for key in ("status", "latency", "first_event", "first_token"):  # the last in older records
        if isinstance(body.get(key), int | float):
            reading.extra[key] = body[key]
    if isinstance(body.get("refused"), list):
        reading.extra["refused"] = body["refused"]
    # A released prompt is one for all agents: the prompts that tell them apart are those that were sent.
    sent = member(body, "original_request") or request
    reading.wire = wire_of(sent, word(body, "agent"), prompt if sent is request else prompt_of(sent))
    versions = {key: value for key, value in member(body, "versions").items() if isinstance(value, str)}
    reading.versions.update(versions)
    reading.trials.update(member(body, TRIALS))
    redacted = member(body, "redacted")
    if redacted:
        reading.extra["redacted"] = redacted
    stated = {"session.id": body.get("session"), "user.id": body.get("subject")}
    # Without what is not stated: nobody need look for the owner of a run in its calls then.
    attributes = {key: value for key, value in stated.items() if value is not None}
    return Content(span, attributes), reading


def _undecoded(body: bytes) -> list[msgspec.Raw] | None:
    """The messages of a call's request, of which all but the last few were read with the calls before it."""
    try:
        request = _asked.decode(body).request
    except msgspec.DecodeError:
        return None
    return None if request is None else request.messages


def prompt_of(request: Mapping[str, Json], undecoded: Sequence[msgspec.Raw] | None = None) -> list[Message]:
    """Messages of a request: `messages`, or the `input` of the responses API, after its instructions.

    Args:
        undecoded: the same messages, where they are to be remembered.
    """
    first: list[Message] = []
    system = request.get("instructions") or request.get("system")
    if system:
        first = message({"role": "system", "content": system})
    if undecoded is not None:
        return [*first, *conversation_of(undecoded)]
    prompt = request.get("messages", request.get("input", request.get("prompt")))
    if isinstance(prompt, str):
        return [*first, {"role": "user", "text": prompt}]
    return [*first, *messages(prompt)]


def answers_of(response: Mapping[str, Json]) -> tuple[list[Message], Json]:
    """Every answer to the one prompt, and the finish reason of the first."""
    choices = response.get("choices")
    if isinstance(choices, list):
        answers: list[Message] = []
        reason = None
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            answer = joined(message({"role": "assistant", **member(choice, "message")}))
            if answer is None and isinstance(choice.get("text"), str):
                answer = {"role": "assistant", "text": choice["text"]}
            if answer is not None:
                answers.append(answer)
                reason = reason or choice.get("finish_reason")
        return answers, reason
    items = response.get("output")
    if isinstance(items, list):
        answer = joined(messages(items))
        cut = member(response, "incomplete_details").get("reason")
        return ([answer] if answer is not None else []), cut or response.get("status")
    if isinstance(response.get("content"), list):
        answer = joined(message({"role": "assistant", "content": response["content"]}))
        return ([answer] if answer is not None else []), response.get("stop_reason")
    return [], None


def _blame(body: Mapping[str, Json], reading: SpanReading) -> None:
    error = body.get("error")
    if isinstance(error, dict):
        text = error.get("message")
        reading.error = (word(error, "type") or UNTYPED, text if isinstance(text, str) else "")
        reading.fault = word(error, "fault")


def _tokens(body: Mapping[str, Json], reading: SpanReading) -> None:
    """Token ids of the answer that was used, and of every sample when there were several."""
    policy = word(body, "policy_version")
    if policy:
        reading.extra["policy_version"] = policy
    choices = body.get("choices")
    samples = (
        [_sample(choice, policy) if isinstance(choice, dict) else None for choice in choices or ()]
        if (isinstance(choices, list))
        else []
    )
    if samples:
        reading.tokens = samples[0]
    # Answers and samples may differ in number: a server may report token ids of some choices alone.
    if len(samples) > 1 or reading.others:
        answers = [reading.output, *reading.others]
        reading.extra["choices"] = [
            {
                "output": answers[index] if index < len(answers) else None,
                "tokens": None if index >= len(samples) else _plain(samples[index]),
            }
            for index in range(max(len(answers), len(samples)))
        ]


def _sample(choice: Mapping[str, Json], policy: str | None) -> Tokens | None:
    """None where ids or log-probabilities are missing or do not match: half of them trains nothing."""
    prompt, output, logprobs = (choice.get(key) for key in ("prompt_ids", "output_ids", "logprobs"))
    if not (isinstance(prompt, list) and isinstance(output, list) and isinstance(logprobs, list)):
        return None
    # type, not isinstance: true is an int for Python and no token id.
    integers = all(type(id) is int for ids in (prompt, output) for id in ids)
    if not integers or len(output) != len(logprobs) or not all(isinstance(p, int | float) for p in logprobs):
        return None
    mask = choice.get("mask")
    if mask is not None and not (
        isinstance(mask, list) and len(mask) == len(output) and all(type(trained) is bool for trained in mask)
    ):
        return None
    chosen = None if mask is None else tuple(mask)
    return Tokens(tuple(prompt), tuple(output), tuple(float(p) for p in logprobs), chosen, policy)


def _plain(tokens: Tokens | None) -> Json:
    if tokens is None:
        return None
    return {
        "prompt_ids": list(tokens.prompt_ids),
        "output_ids": list(tokens.output_ids),
        "logprobs": list(tokens.logprobs),
        **({} if tokens.mask is None else {"mask": list(tokens.mask)}),
    }
