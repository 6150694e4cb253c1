"""Logfire's own spans of openai-agents and of model clients: JSON in attributes that it names itself.

`logfire.msg_template` tells what a span is.  A model call has the request and the answer of the API verbatim
(`raw_input` and `response` of openai-agents, `request_data` and `response_data` of clients), so that they are
read as the gateway's record of a call is.  Its list of `events` has the answer among the prompt, and is not read
where these are.

Source: logfire 4 and 5, `logfire.instrument_openai_agents` and `logfire.instrument_openai`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....types import AGENT, LLM, TOOL, Json
from ..content import Content, member
from . import genai
from .calls import answers_of, prompt_of
from .messages import with_wire_ids
from .reading import NODE, UNTYPED, SpanReading, failure, word
from .values import parsed, plain, structure

_TEMPLATE = "logfire.msg_template"
MARKS = frozenset({_TEMPLATE})
"""A span without it is none of `read`'s."""
_NODES = ("OpenAI Agents trace:", "Task:", "Turn ", "Handoff:", "Custom span:", "Guardrail")


def read(content: Content) -> SpanReading | None:
    """A span of Logfire's integration of openai-agents, or one that holds a request and its answer."""
    held = content.attributes
    template = word(held, _TEMPLATE)
    if template is None:
        return None
    if "request_data" in held or "raw_input" in held or ("response" in held and "model_settings" in held):
        return _model_call(content)
    if content.scope != "logfire.openai_agents":
        return None
    if template.startswith("Agent run:"):
        reading = SpanReading(AGENT, word(held, "name") or content.span.name, named="name" in held)
    elif template.startswith("Function:"):
        reading = SpanReading(TOOL, word(held, "name") or content.span.name)
        reading.arguments = parsed(held.get("input"))
        reading.result = None if held.get("output") is None else plain(held["output"])
    elif template.startswith(_NODES):
        reading = SpanReading(NODE, word(held, "name") or content.span.name)
    elif word(held, "gen_ai.request.model"):
        return _model_call(content)
    else:
        return None
    reading.error = _failure(content)
    return reading


def _model_call(content: Content) -> SpanReading:
    held = content.attributes
    reading = genai.of_kind(content, LLM)
    reading.error = _failure(content)
    response = structure(held.get("response_data", held.get("response")))
    answer = response if isinstance(response, dict) else {}
    request = _request(held, answer)
    if request:
        reading.input = with_wire_ids(prompt_of(request)) or reading.input
    if "message" in answer:  # of a client's chat: the message alone
        answer = {"choices": [{"message": answer["message"]}]}
    answers, finish = answers_of(answer)
    if answers:
        reading.output, reading.others, reading.finish = answers[0], answers[1:], finish or reading.finish
    elif request:
        reading.output, reading.others = None, []
    reading.response_id = reading.response_id or word(answer, "id") or word(held, "response_id")
    return reading


def _request(held: Mapping[str, Json], answer: Mapping[str, Json]) -> Mapping[str, Json]:
    """The request as the API was sent it; the Responses API repeats the instructions in its answer."""
    stated = structure(held.get("request_data"))
    if isinstance(stated, dict):
        return stated
    turns = held.get("raw_input")
    if turns is None:
        return {}
    spoken = structure(turns)
    return {"instructions": answer.get("instructions"), "input": turns if spoken is None else spoken}


def _failure(content: Content) -> tuple[str, str] | None:
    """The failure, from the exception where there is one, else from what openai-agents says of it."""
    error = failure(content)
    stated = structure(content.attributes.get("error"))
    if not isinstance(stated, dict) or (error is not None and error[0] != UNTYPED):
        return error
    detail = member(stated, "data").get("error")
    told = [text for text in (stated.get("message"), detail) if isinstance(text, str) and text]
    return UNTYPED, ": ".join(told) or (error[1] if error is not None else "")
