"""Texts that nearly repeat each other: the index finds exactly those that comparing every pair finds."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from whet.learn.datasets.near import Near, linked, normalised, shingles

DESK = [
    "invoice",
    "meeting",
    "flight",
    "phone",
    "office",
    "gas",
    "power",
    "trade",
    "desk",
    "budget",
    "report",
]


def compared(texts: list[str], similarity: float = 0.7) -> set[tuple[int, int]]:
    """Every pair of places that are near, by comparing all."""
    sets = [shingles(text) for text in texts]
    return {
        (one, other)
        for one, left in enumerate(sets)
        for other, right in enumerate(sets)
        if one != other and len(left & right) / len(left | right) >= similarity
    }


def indexed(texts: list[str], similarity: float = 0.7) -> set[tuple[int, int]]:
    index = Near(texts, similarity)
    found = {(one, other) for one, text in enumerate(texts) for other, _ in index.of(text) if one != other}
    later = {(one, other) for one in range(len(texts)) for other, _ in index.after(one)}
    assert later == {(one, other) for one, other in found if one < other}
    return found


def template(count: int) -> list[str]:
    return [f"when does the train number {n} to the coast leave in the morning" for n in range(count)]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Random sentences of a dozen words: nearly every 5-gram is common."""
    rng = random.Random(seed)
    return [f"{' '.join(rng.choices(DESK, k=12))} {rng.randrange(10_000)}" for _ in range(count)]


@given(st.lists(st.text("abc ", max_size=24), max_size=14), st.sampled_from([0.3, 0.5, 0.7, 1.0]))
@settings(max_examples=80)
def test_any_texts_are_near_as_comparing_every_pair_says(texts: list[str], similarity: float) -> None:
    unique = list(dict.fromkeys(map(normalised, texts)))
    assert indexed(unique, similarity) == compared(unique, similarity)


def test_common_and_rare_words_and_templates_in_one_file_are_near_as_comparing_every_pair_says() -> None:
    texts = [*sentences(200), *template(90)]
    rng = random.Random(1)
    for text in sentences(60):  # one word changed
        words = text.split()
        words[rng.randrange(12)] = "rocket"
        texts.append(" ".join(words))
    texts = list(dict.fromkeys(texts))
    found = indexed(texts)
    assert found == compared(texts)
    assert len(found) > 1000
    numbers = linked(texts)
    assert len({numbers[texts.index(text)] for text in template(90)}) == 1


def test_real_questions_are_near_as_comparing_every_pair_says(data: Path) -> None:
    files = sorted((data / "conversations").glob("*.questions.jsonl"))
    read = [json.loads(line)["question"] for path in files for line in path.read_text().splitlines()]
    texts = list(dict.fromkeys(map(normalised, read)))[:500]
    found = indexed(texts)
    assert found == compared(texts)
    assert found


def test_linked_texts_are_the_components_of_the_pairs() -> None:
    texts = list(dict.fromkeys([*sentences(150, 3), *template(120)]))
    component = list(range(len(texts)))
    for one, other in compared(texts):
        old, new = component[one], component[other]
        component = [new if number == old else number for number in component]
    numbers = linked(texts)
    assert {
        (numbers[a] == numbers[b]) == (component[a] == component[b]) for a in range(270) for b in range(270)
    } == {True}
    assert len(set(linked(["", "", "a b c d"]))) == 3


def test_four_thousand_rows_of_one_template_or_of_few_words_take_seconds_not_minutes() -> None:
    begun = time.process_time()
    assert len(set(linked(template(4000)))) == 1
    assert len(set(linked(sentences(4000)))) > 3900
    assert time.process_time() - begun < 60
