"""The gateway's record of a model call: the one dialect that knows token ids.

The body is JSON, written by this package: the request and the answer verbatim in the dialect of the
API that was called, and beside them what the gateway measured and what the model server told it
(`api`, `model`, `request`, `response`, `status`, `error`, `latency`, `first_token`, `usage`,
`choices`, `policy_version`, `versions`, `session`, `subject`, `agent`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...errors import InputError
from ...types import Json, Span, Tokens
from ..content import Content
from .agents import wire_of
from .messages import Message, joined, message, messages, with_wire_ids
from .reading import LLM, Reading, number, usage, word

ENCODING = "call+json"


def read(span: Span) -> tuple[Content, Reading]:
    """A call as a span whose reading is that of a model call.

    Raises:
        InputError: the body is no such record.
    """
    try:
        body = msgspec.json.decode(span.body)
    except (msgspec.DecodeError, RecursionError) as exception:
        raise InputError(f"call {span.id.hex()} cannot be read: {exception}") from exception
    if not isinstance(body, dict):
        raise InputError(f"call {span.id.hex()} cannot be read: it is no object.")
    request, response = _object(body, "request"), _object(body, "response")
    reading = Reading(LLM, span.name or f"{body.get('api') or 'model'} {word(body, 'model') or ''}".strip())
    reading.model = word(body, "model") or word(request, "model")
    reading.response_model = word(response, "model")
    reading.response_id = word(response, "id")
    reading.input = with_wire_ids(_asked(request)) or None
    answers, reading.finish = _answered(response)
    reading.output, reading.others = (answers[0] if answers else None), answers[1:]
    spent = _object(body, "usage")
    counts = [number(spent, key) for key in ("input", "output", "cached_input", "reasoning")]
    reading.usage = usage(*counts)
    _blame(body, reading)
    _tokens(body, reading)
    for key in ("status", "latency", "first_token"):
        if isinstance(body.get(key), int | float):
            reading.extra[key] = body[key]
    # A released prompt is one for all agents: the prompts that tell them apart are those that were sent.
    sent = _object(body, "original_request") or request
    reading.wire = wire_of(sent, word(body, "agent"), _asked(sent))
    versions = {key: value for key, value in _object(body, "versions").items() if isinstance(value, str)}
    reading.versions.update(versions)
    redacted = _object(body, "redacted")
    if redacted:
        reading.extra["redacted"] = redacted
    told = {"session.id": body.get("session"), "user.id": body.get("subject")}
    return Content(span, told), reading


def _asked(request: Mapping[str, Json]) -> list[Message]:
    """Messages of a request: `messages`, or the `input` of the responses API, after its instructions."""
    first: list[Message] = []
    system = request.get("instructions") or request.get("system")
    if system:
        first = message({"role": "system", "content": system})
    given = request.get("messages", request.get("input", request.get("prompt")))
    if isinstance(given, str):
        return [*first, {"role": "user", "text": given}]
    return [*first, *messages(given)]


def _answered(response: Mapping[str, Json]) -> tuple[list[Message], Json]:
    """Every answer to the one prompt, and the finish reason of the first."""
    choices = response.get("choices")
    if isinstance(choices, list):
        found: list[Message] = []
        reason = None
        for each in choices:
            if not isinstance(each, dict):
                continue
            whole = joined(message({"role": "assistant", **_object(each, "message")}))
            if whole is None and isinstance(each.get("text"), str):
                whole = {"role": "assistant", "text": each["text"]}
            if whole is not None:
                found.append(whole)
                reason = reason or each.get("finish_reason")
        return found, reason
    items = response.get("output")
    if isinstance(items, list):
        whole = joined(messages(items))
        cut = _object(response, "incomplete_details").get("reason")
        return ([whole] if whole is not None else []), cut or response.get("status")
    if isinstance(response.get("content"), list):
        whole = joined(message({"role": "assistant", "content": response["content"]}))
        return ([whole] if whole is not None else []), response.get("stop_reason")
    return [], None


def _blame(body: Mapping[str, Json], reading: Reading) -> None:
    error = body.get("error")
    if isinstance(error, dict):
        said = error.get("message")
        reading.error = (word(error, "type") or "Error", said if isinstance(said, str) else "")
        reading.fault = word(error, "fault")


def _tokens(body: Mapping[str, Json], reading: Reading) -> None:
    """Token ids of the answer that was used, and of every sample when there were several."""
    policy = word(body, "policy_version")
    if policy:
        reading.extra["policy_version"] = policy
    choices = body.get("choices")
    found = (
        [_sample(each, policy) if isinstance(each, dict) else None for each in choices or ()]
        if (isinstance(choices, list))
        else []
    )
    if found:
        reading.tokens = found[0]
    if len(found) > 1 or reading.others:
        answers = [reading.output, *reading.others]
        reading.extra["choices"] = [
            {
                "output": answers[place] if place < len(answers) else None,
                "tokens": None if place >= len(found) else _plain(found[place]),
            }
            for place in range(max(len(answers), len(found)))
        ]


def _sample(choice: Mapping[str, Json], policy: str | None) -> Tokens | None:
    """None where ids or log-probabilities are missing or do not match: half of them trains nothing."""
    prompt, output, logprobs = (choice.get(key) for key in ("prompt_ids", "output_ids", "logprobs"))
    if not (isinstance(prompt, list) and isinstance(output, list) and isinstance(logprobs, list)):
        return None
    whole = all(type(id) is int for ids in (prompt, output) for id in ids)
    if not whole or len(output) != len(logprobs) or not all(isinstance(p, int | float) for p in logprobs):
        return None
    mask = choice.get("mask")
    if mask is not None and not (
        isinstance(mask, list) and len(mask) == len(output) and all(type(one) is bool for one in mask)
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


def _object(body: Mapping[str, Json], key: str) -> dict[str, Json]:
    found = body.get(key)
    return found if isinstance(found, dict) else {}
