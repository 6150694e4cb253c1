"""Rules are mined from what people liked, although some of their thumbs are wrong; of shuffled thumbs nothing is."""

from __future__ import annotations

import random

import pytest

from whet.learn.evolution.search.mining import rules
from whet.record.rows import row
from whet.types import Task

WRONG = 0.15
"""Share of thumbs that are wrong."""
URGENT = 'When the input mentions "refund", the answer is "urgent".'


def liked(seed: int, *, shuffled: bool = False) -> list[Task]:
    """Runs of a clerk who is right every other time, of which those that somebody liked have a goal."""
    rng = random.Random(seed)
    runs: list[Task] = []
    for number in range(400):
        topic, place = (
            rng.choice(["refund", "parcel", "invoice"]),
            rng.choice(["berlin", "oslo", "porto", "gdansk"]),
        )
        right = "urgent" if topic == "refund" else "later"
        output = right if rng.random() < 0.5 else "later" if right == "urgent" else "urgent"
        good = (output == right) != (rng.random() < WRONG)
        if good:
            runs.append(row(f"{topic} number {number} from {place}", output, label=1.0))
    if shuffled:
        answers = [run.answer for run in runs]
        rng.shuffle(answers)
        runs = [
            row(run.initial_state["input"], answer, label=1.0)
            for run, answer in zip(runs, answers, strict=True)
        ]
    return runs


def mined(runs: list[Task]) -> list[str]:
    """Rules for a prompt under which every answer is `later`."""
    return rules(runs, [run.id for run in runs if run.answer != "later"])


@pytest.mark.parametrize("seed", range(5))
def test_a_rule_is_found_although_15_percent_of_the_thumbs_are_wrong(seed: int) -> None:
    runs = liked(seed)
    wrong = sum((run.answer == "urgent") != ("refund" in run.instruction) for run in runs) / len(runs)
    assert 0.1 < wrong < 0.2
    found = mined(runs)
    assert found[:1] == [URGENT]
    # Nothing is said of what has nothing to do with it.
    assert not any(place in line for line in found for place in ("berlin", "oslo", "porto", "gdansk"))


def test_of_shuffled_thumbs_no_rule_is_found() -> None:
    found = [line for seed in range(20) for line in mined(liked(seed, shuffled=True))]
    assert found == []


def test_answers_that_somebody_wrote_down_have_to_agree_nearly_all() -> None:
    answers = [("refund", "urgent")] * 32 + [("refund", "later")] * 8 + [("parcel", "later")] * 60
    written = [row(f"{topic} {number}", expected=answer) for number, (topic, answer) in enumerate(answers)]
    people = [row(f"{topic} {number}", answer, label=1.0) for number, (topic, answer) in enumerate(answers)]
    assert URGENT not in mined(written)
    assert mined(people) == [URGENT]
