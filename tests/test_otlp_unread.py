"""What a step does not say of its span's attributes is kept, and what it says in other words of JSON is not."""

from __future__ import annotations

import json

import pytest
from otlp_spans import call

from whet.record.tracing.content import Content
from whet.record.tracing.dialects.reading import LLM, SpanReading
from whet.record.tracing.dialects.unread import unread
from whet.types import Json

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
