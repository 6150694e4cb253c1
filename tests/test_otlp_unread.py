"""What a step does not say of its span's attributes is kept, and what it says in other words of JSON is not."""

from __future__ import annotations

import json
import random

import pytest
from otlp_spans import call

from whet.record.tracing.content import Content
from whet.record.tracing.dialects.reading import SpanReading
from whet.record.tracing.dialects.unread import StepTexts, leaves, unread
from whet.types import LLM, Json

SAID = 'she said "go home", at\n9 o\'clock \\ ten'


def kept(value: Json, result: Json) -> dict[str, Json]:
    """What is kept of a tool's result in an attribute, where the step has `result`."""
    reading = SpanReading(LLM, "a tool")
    reading.result = result
    return unread([Content(call("one"), {"gen_ai.tool.call.result": value})], reading)


@pytest.mark.parametrize(
    "value",
    [SAID, json.dumps(SAID), json.dumps({"note": SAID}), json.dumps([{"note": json.dumps({"text": SAID})}])],
    ids=["text", "json text", "json", "json in json"],
)
@pytest.mark.parametrize(
    "result",
    [SAID, {"note": SAID}, json.dumps({"note": SAID}), json.dumps({"note": json.dumps([SAID])})],
    ids=["text", "value", "json", "json in json"],
)
def test_a_sentence_of_the_step_is_not_kept_again_however_either_is_written(
    value: Json, result: Json
) -> None:
    assert kept(value, result) == {}


@pytest.mark.parametrize("value", [SAID, json.dumps({"note": SAID}), json.dumps([{"note": SAID}])])
def test_a_sentence_that_is_nowhere_in_the_step_is_kept(value: Json) -> None:
    assert kept(value, {"note": "another one"}) == {"gen_ai.tool.call.result": value}
    assert kept(value, SAID[:-1]) == {"gen_ai.tool.call.result": value}


def test_half_of_a_character_is_looked_for_like_any_text() -> None:
    assert kept("cut \ud83d here", {"note": "cut \ud83d here"}) == {}
    assert kept("cut \ud83d here", {"note": "cut here"}) != {}


STEP = [
    {"role": "user", "text": "where is the invoice"},
    {"role": "assistant", "tool_calls": [{"name": "search", "arguments": {"query": 'a "red" one'}}]},
    "line one\nline two",
    "Größe in cm",
]


def walked(value: object) -> bool:
    """True if every sentence of a value is in STEP, by walking through both."""
    told = "\0".join(leaves(STEP))
    return not any(leaf not in told for leaf in leaves(value) if " " in leaf.strip())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("where is the invoice", True),
        ("is the", True),
        ("where is the order", False),
        (json.dumps([{"role": "user", "content": "where is the invoice"}]), True),
        (json.dumps([{"role": "user", "content": "where is the invoice?"}]), False),
        (json.dumps({"arguments": json.dumps({"query": 'a "red" one'})}), True),
        (json.dumps({"arguments": json.dumps({"query": 'a "blue" one'})}), False),
        (json.dumps("line one\nline two"), True),
        (json.dumps("Größe in cm"), True),
        ('[{"content": "where is the invoice"}] and more was said', False),
        ('[{"content": "where is the invoice', False),
        ('{"content" only begins as JSON "where is the invoice"', False),
        (["where is the invoice", {"x": ["nothing of it"]}], False),
        (None, True),
        (12, True),
        ("cut \ud83d here", False),
    ],
)
def test_whether_a_step_says_all_of_an_attribute(value: object, said: bool) -> None:
    assert StepTexts(STEP).says(value) is said


def test_the_quick_way_and_walking_agree() -> None:
    chance = random.Random(0)
    told = StepTexts(STEP)
    texts = [*leaves(STEP), "is it", "one\nline", 'a "red', "\\", '"', "not a word of it", "[", "{ }", "é à"]

    def made(depth: int) -> object:
        kind = chance.randrange(5 if depth else 2)
        if kind < 2:
            return chance.choice(texts)
        if kind == 2:
            return [made(depth - 1) for _ in range(chance.randrange(3))]
        if kind == 3:
            return {str(key): made(depth - 1) for key in range(chance.randrange(3))}
        return json.dumps(made(depth - 1), ensure_ascii=chance.random() < 0.5)

    for _ in range(3_000):
        value = made(3)
        assert told.says(value) is walked(value), value
