"""A message as the conventions have it is read by its type: what any other reading of it gives, and only that."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from otlp_spans import CHAT, decoded, one, only

from whet.record.tracing.dialects.messages import message, messages
from whet.record.tracing.dialects.standard import of_standard
from whet.record.tracing.dialects.unread import StepTexts

WORDS = [
    "",
    "Paris",
    "two words",
    '"quoted words"',
    '{"a": "b c"}',
    "[1, 2]",
    ' {"a": "b c"}',
    "é ß",
    "\\ back slash",
]


def part(chance: random.Random) -> dict[str, Any]:
    """A part of a message, mostly as the conventions have it."""
    word = chance.choice(WORDS)
    made = chance.choice(
        [
            {"type": "text", "content": word},
            {
                "type": "tool_call",
                "id": "c 1",
                "name": "find it",
                "arguments": chance.choice([word, {"q": word}, None, 3]),
            },
            {"type": "tool_call", "name": "find"},
            {"type": "tool_call_response", "id": "c 1", "response": word},
            {"type": "tool_call_response", "response": word},
        ]
    )
    if chance.random() < 0.1:
        made = made | chance.choice([{"more": "unseen words"}, {"type": "reasoning"}, {"id": 7}])
    return made


def spoken(chance: random.Random) -> dict[str, Any]:
    held: dict[str, Any] = {
        "role": chance.choice(["user", "assistant", "system", "tool"]),
        "parts": [part(chance) for _ in range(chance.randint(0, 3))],
    }
    if chance.random() < 0.3:
        held["finish_reason"] = chance.choice(["stop", "out of tokens", None])
    if chance.random() < 0.1:
        held["name"] = "somebody else"
    return held


def test_a_standard_message_is_read_as_any_other() -> None:
    chance, standard, complete = random.Random(2), 0, 0
    for _ in range(3_000):
        held = spoken(chance)
        raw = json.dumps(held).encode()
        turned = of_standard(raw)
        if turned is None:
            continue
        turns, item, says_all = turned
        assert list(turns) == message(held), held
        assert not item
        standard += 1
        complete += says_all
        # What is said to be complete is never looked at again: it must be what looking at it would find.
        assert not says_all or StepTexts([*turns]).says(raw.decode()), held
    assert standard > 1_500
    assert complete > 700


@pytest.mark.parametrize("more", [{"name": "somebody else"}, {"finish_reason": "out of tokens"}])
def test_what_a_message_says_beside_its_parts_is_kept(more: dict[str, str]) -> None:
    parts = [{"type": "text", "content": "two words"}]
    plain_step = step_with([{"role": "assistant", "parts": parts}])
    step = step_with([{"role": "assistant", "parts": parts, **more}])
    assert "attributes" not in plain_step.info
    assert next(iter(more.values())) in step.info["attributes"]["gen_ai.output.messages"]
    assert step.action == plain_step.action == {"role": "assistant", "text": "two words"}


def step_with(output: list[dict[str, Any]]) -> Any:
    """The step of a model call with these output messages."""
    (step,) = only(decoded(one("chat", CHAT | {"gen_ai.output.messages": json.dumps(output)}))).steps
    return step


def test_who_changes_a_message_changes_no_other_reading_of_it() -> None:
    text = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello there"}]}])
    first = messages(text)
    first[0]["text"] = "changed"
    assert messages(text) == [{"role": "user", "text": "hello there"}]


@pytest.mark.parametrize("more", [0, 3, 200])
def test_a_span_with_hundreds_of_attributes_is_read_like_one_with_ten(more: int) -> None:
    beside = {f"own.{number}": f"value {number}" for number in range(more)}
    (step,) = only(decoded(one("chat", CHAT | beside | {"session.id": "s"}))).steps
    assert (step.kind, step.info["model"], step.usage.prompt_tokens) == ("llm", "m", 3)  # type: ignore[union-attr]
    assert step.info.get("attributes", {}) == beside
