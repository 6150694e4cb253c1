"""The normaliser under generated spans: it reads or says that it could not, and accounts for every span."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from otlp_fuzzer import KEYS, MEMBERS, WORDS, accounted, fuzz, recorded
from otlp_spans import call, decoded, one, pairs

from whet.record.store.codec import encode
from whet.record.tracing.dialects import survey
from whet.types import Span

PARTS = st.sampled_from(MEMBERS)
TEXTS = st.sampled_from(WORDS)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), TEXTS, st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PARTS, inner, max_size=4),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(KEYS), st.one_of(TEXTS, TEXTS, VALUES.map(json.dumps), VALUES), max_size=8
)
NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
EVENTS = st.lists(
    st.builds(
        lambda name, held: {"name": name, "timeUnixNano": "1", "attributes": pairs(held)},
        st.sampled_from(["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"]),
        st.dictionaries(PARTS | st.just("exception.type"), VALUES, max_size=4),
    ),
    max_size=2,
)
SPANS = st.lists(
    st.builds(
        lambda name, parent, held, at, status, events: one(
            name, held, parent=parent, at=at, status={"code": status}, events=events
        ),
        NAMES,
        st.none() | NAMES,
        ATTRIBUTES,
        st.integers(0, 5),
        st.integers(0, 2),
        EVENTS,
    ),
    max_size=5,
)
CALLS = st.lists(
    st.builds(
        lambda parent, request, response, choices, usage, error: call(
            "x", parent=parent, request=request, response=response, choices=choices, usage=usage, error=error
        ),
        st.none() | NAMES,
        *[VALUES | st.dictionaries(PARTS, VALUES, max_size=4)] * 5,
    ),
    max_size=2,
)


def finite(value: Any) -> Any:
    """JSON of the wire has no NaN."""
    return json.loads(json.dumps(value), parse_constant=lambda _: 0.0)


@settings(max_examples=40)
@given(SPANS, CALLS)
@example([one("a", {"openinference.span.kind": "CHAIN"}, parent="a")], [])
def test_every_span_is_accounted_for(spans: list[dict[str, Any]], calls: list[Span]) -> None:
    accounted(
        [
            *decoded(*finite(spans)),
            *[each._replace(body=json.dumps(finite(json.loads(each.body))).encode()) for each in calls],
        ]
    )


@settings(max_examples=25)
@given(SPANS, CALLS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(
    spans: list[dict[str, Any]], calls: list[Span], chance: random.Random
) -> None:
    # Spans of one name and time are told apart by arrival alone, so each has its own time here.
    apart = [each | {"startTimeUnixNano": str(place)} for place, each in enumerate(finite(spans))]
    named = {each["spanId"]: each for each in apart}
    found = decoded(*named.values())
    shuffled = list(found)
    chance.shuffle(shuffled)
    assert [encode(each) for each in survey(found).trajectories] == [
        encode(each) for each in survey(shuffled).trajectories
    ]


def test_the_fuzzer_finds_nothing(data: Path) -> None:
    assert fuzz(recorded(data / "otel"), seed=0, rounds=300) == 300
