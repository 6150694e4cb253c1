"""PydanticAI's own spans: GenAI conventions, with the agent's run told in attributes of its own."""

from __future__ import annotations

from ....types import AGENT
from ..content import Content
from . import genai
from .messages import Message, messages, with_wire_ids
from .reading import SpanReading, number, word
from .values import plain

MARKS = frozenset({"pydantic_ai.all_messages", "agent_name"})
"""A span without either is none of `read`'s."""


def read(content: Content) -> SpanReading | None:
    """An agent's run; everything else PydanticAI writes is plain GenAI."""
    held = content.attributes
    if "pydantic_ai.all_messages" not in held and (
        content.scope != "pydantic-ai" or "agent_name" not in held
    ):
        return None
    reading = genai.of_kind(content, AGENT)
    name = word(held, "gen_ai.agent.name", "agent_name")
    reading.name, reading.named = name or reading.name, name is not None
    reading.model = word(held, "gen_ai.request.model", "model_name")
    dialogue = messages(held.get("pydantic_ai.all_messages") or held.get("all_messages_events"))
    if dialogue:
        new = number(held, "pydantic_ai.new_message_index") or 0
        prompt: list[Message] = [{"role": "system", "text": turn["text"]} for turn in _system(content)]
        prompt += dialogue[:new]
        for turn in dialogue[new:]:
            if turn["role"] == "assistant":
                break
            prompt.append(turn)
        reading.input = with_wire_ids(prompt)
    result = held.get("final_result")
    answers = [turn for turn in dialogue if turn["role"] == "assistant"]
    if result is not None:
        reading.output = {"role": "assistant", "text": plain(result)}
    elif answers and reading.error is None:
        reading.output = answers[-1]
    return reading


def _system(content: Content) -> list[Message]:
    reading = SpanReading(AGENT, "")
    genai.spoken(content, reading)
    return [turn for turn in reading.input or () if turn["role"] == "system" and "text" in turn]
