"""What a step does not say stays in its info: found quickly, and never missed where the quick way does not apply."""

from __future__ import annotations

import json
import random

import pytest

from whet.record.tracing.dialects.unread import StepTexts, leaves

SAID = [
    {"role": "user", "text": "where is the invoice"},
    {"role": "assistant", "tool_calls": [{"name": "search", "arguments": {"query": 'a "red" one'}}]},
    "line one\nline two",
    "Größe in cm",
]


def walked(value: object) -> bool:
    """True if every sentence of a value is in SAID, by walking through both."""
    told = "\0".join(leaves(SAID))
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
    assert StepTexts(SAID).says(value) is said


def test_the_quick_way_and_walking_agree() -> None:
    chance = random.Random(0)
    told = StepTexts(SAID)
    texts = [*leaves(SAID), "is it", "one\nline", 'a "red', "\\", '"', "not a word of it", "[", "{ }", "é à"]

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
