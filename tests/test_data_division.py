"""Sides share no group and no question, and the gate gets its share all the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import GateError, InputError
from whet.learn.datasets.division import divide, standing
from whet.learn.datasets.examples import divided, leaks, load
from whet.learn.datasets.near import Near, normalised
from whet.record.rows import row
from whet.types import Split, Task

WORDS = [
    *("invoice", "refund", "parcel", "courier", "login", "password", "address", "order", "delivery", "late"),
    *("broken", "colour", "size", "exchange", "voucher", "account", "newsletter", "receipt", "warranty"),
    *("repair", "stock", "shop", "opening", "hours", "phone", "mail", "payment", "card"),
]
FORMS = ("{}", "hello there {}", "{} thanks", "please {}")


def asked(rows: int, people: int, questions: int, seed: int = 0) -> list[Task]:
    """People who ask one of so many questions, each in their own form of words."""
    rng = random.Random(seed)
    pool = [" ".join(rng.sample(WORDS, 14)) for _ in range(questions)]
    return [
        Task(
            id=f"t{n}",
            instruction=rng.choice(FORMS).format(rng.choice(pool)),
            group=f"person {n % people}",
            answer="x",
        )
        for n in range(rows)
    ]


def across(tasks: list[Task]) -> list[tuple[str, str]]:
    """Pairs on different sides that nearly say the same, or share a group."""
    texts = [normalised(task.instruction) for task in tasks]
    index = Near(texts)
    found = []
    for task, text in zip(tasks, texts, strict=True):
        for place, _ in index.of(text):
            if tasks[place].split is not task.split:
                found.append((task.id, tasks[place].id))
    sides: dict[str, Split | None] = {}
    for task in tasks:
        if task.group and sides.setdefault(task.group, task.split) is not task.split:
            found.append((task.group, task.id))
    return found


@pytest.mark.parametrize("questions", [40, 120, 240])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_people_asking_the_same_questions_leave_the_gate_its_fifth(
    questions: int, seed: int
) -> None:
    tasks = asked(240, 60, questions, seed)
    done = divide(tasks, seed=seed)
    held = [task for task in done.tasks if task.split is Split.GATE]
    assert len(held) >= 36
    assert len({task.group for task in held}) >= 9
    assert across(done.tasks) == []
    assert len(done.tasks) + len(done.left_out) == 240
    assert sum(task.split is not Split.GATE for task in done.tasks) >= len(held) / 3
    groups = {task.id: task.group for task in tasks}
    assert all(task.group == groups[task.id] for task in done.tasks), "clusters are the user's groups"


def test_five_questions_that_everybody_asks_are_divided_as_the_people_are() -> None:
    done = divide(asked(240, 60, 5))
    counts = Counter(task.split for task in done.tasks)
    assert across(done.tasks) == []
    assert counts[Split.GATE] >= 4
    assert counts[Split.TRAIN] >= 40


@given(
    st.integers(1, 60),
    st.integers(1, 25),
    st.integers(1, 40),
    st.integers(0, 99),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=80)
def test_nothing_is_shared_across_sides_whatever_the_tasks(
    rows: int, people: int, questions: int, seed: int, alone: bool, some_given: bool
) -> None:
    rng = random.Random(seed)
    tasks = asked(rows, people, questions, seed)
    if alone:
        tasks = [Task(id=t.id, instruction=t.instruction, group=rng.choice(["", t.group])) for t in tasks]
    if some_given:
        tasks[0] = Task(id="given", instruction=tasks[0].instruction, group=tasks[0].group, split=Split.TRAIN)
    done = divide(tasks, seed=seed)
    assert across(done.tasks) == []
    assert {task.id for task in [*done.tasks, *done.left_out]} == {task.id for task in tasks}
    assert divide(tasks, seed=seed).tasks == done.tasks
    if some_given:
        assert done.tasks[0].split is Split.TRAIN or tasks[0] in done.left_out


def test_where_nothing_repeats_nothing_is_left_out_and_few_move_when_rows_are_added() -> None:
    rng = random.Random(5)
    tasks = [
        Task(id=f"t{n}", instruction=f"{' '.join(rng.sample(WORDS, 9))} {n * 7919}", group=f"person {n % 80}")
        for n in range(400)
    ]
    before = divide(tasks[:320])
    assert before.left_out == []
    counts = Counter(task.split for task in before.tasks)
    assert [counts[part] for part in Split] == [192, 64, 64]
    after = {task.id: task.split for task in divide(tasks).tasks}
    moved = sum(after[task.id] is not task.split for task in before.tasks)
    assert moved <= 32


def test_rows_that_link_few_groups_stay_together_and_none_is_left_out() -> None:
    rows = [
        row(f"When does the train number {part} to the coast leave in the morning?", expected=part)
        for part in range(6)
    ] + [row(f"{' '.join(random.Random(n).sample(WORDS, 12))}", expected=n) for n in range(40)]
    done = divided(rows)
    assert len(done) == 46
    assert len({task.split for task in done if "train number" in str(task.initial_state["input"])}) == 1
    assert {row.group for row in done} == {""}
    assert leaks(done).clean
    repeated = [
        row("one two three four", split=Split.TRAIN),
        row("One, two, three four!", split=Split.GATE),
    ]
    assert not leaks(repeated).clean


def test_a_group_that_was_given_two_sides_is_refused_when_rows_are_read(tmp_path: Path) -> None:
    for part in ("train", "gate"):
        row = {"input": part, "expected": 1, "group": "ann"}
        (tmp_path / f"{part}.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(GateError, match="'ann'"):
        load(tmp_path)


def test_rows_that_were_given_sides_lose_those_that_nearly_repeat_the_gate(tmp_path: Path) -> None:
    text = "When does the last ferry to the island leave on Sunday?"
    rows = [
        {"input": text, "expected": 1, "split": "gate", "group": "ann"},
        {"input": f"{text} Thanks", "expected": 1, "split": "train", "group": "bob"},
        {"input": "Something else that nobody else asked at all", "expected": 2, "split": "train"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told: list[str] = []
    done = load(path, note=told.append)
    assert [row.split for row in done] == [Split.GATE, Split.TRAIN]
    assert leaks(done).clean
    assert "1 of 3 rows are left out" in told[0]


def test_what_the_gate_can_prove_is_said_in_pairs_and_groups() -> None:
    tasks = [Task(id=f"{n}", group=f"g{n % 12}", split=Split.GATE, answer=n) for n in range(48)]
    tasks += [Task(id=f"t{n}", group=f"h{n}", split=Split.TRAIN) for n in range(20)]
    found = standing(tasks)
    assert (found.rows, found.groups, found.pairs, found.clusters) == (68, 32, 48, 12)
    assert found.gain is not None
    assert 0.1 <= found.gain <= 0.2
    assert "48 pairs in 12 groups" in found.sentence
    one = standing([Task(id=f"{n}", group="g", split=Split.GATE, answer=n) for n in range(48)])
    assert one.gain is None
    assert "more groups" in one.sentence
    alone = standing([Task(id=f"{n}", split=Split.GATE, answer=n) for n in range(2)])
    assert (
        alone.needed == standing([Task(id=f"{n}", split=Split.GATE, answer=n) for n in range(200)]).needed
    ), "a row more is a group more: two of them are no reason to ask for thousands"
    assert standing([replace(task, answer=None) for task in tasks]).pairs == 0
    rows = [row(n, output=None, split=Split.GATE) for n in range(9)]
    assert "nothing can be proven" in standing(rows).sentence


def test_repeated_rows_are_merged_and_contradictions_are_told_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"input": 1, "expected": 2}\n{"input": 1, "expected": 2}\n{"input": 2, "expected": 1}\n'
        '{"input": 2, "expected": null}\n{"input": 3, "expected": null}\n{"input": 3, "output": 5}\n'
    )
    told: list[str] = []
    rows = load(path, note=told.append)
    assert [(row.initial_state["input"], row.answer, row.meta["provenance"]["repeats"]) for row in rows] == [
        (1, 2, 2),
        (3, None, 2),
    ]
    assert "line 3 (1), line 4 (null)" in told[0]
    assert "2 of 6 rows repeat" in told[1]
    path.write_text('{"input": 1, "expected": 2}\n{"input": 1, "expected": 3}\n')
    with pytest.raises(InputError, match="no row that is not contradicted"):
        load(path)


@pytest.mark.parametrize("side", list(Split))
@pytest.mark.parametrize("groups", [1, 2, 3, 5, 12])
def test_what_was_given_is_filled_up_with_what_there_is_and_nothing_unlike_the_rest_is_left_out(
    groups: int, side: Split
) -> None:
    for fixed in range(groups + 1):
        rows = [
            row(number, expected=1, group=f"g{number}", split=side if number < fixed else None)
            for number in range(groups)
        ]
        done = divided(rows)
        assert len(done) == groups, "nothing repeats anything"
        assert {row.split for row in done[:fixed]} <= {side}
        wanted = [
            part for part in (Split.TRAIN, Split.VALIDATION, Split.GATE) if part is not side or not fixed
        ]
        assert set(wanted[: groups - fixed]) <= {row.split for row in done[fixed:]}, "train before the others"


def test_rows_without_answers_are_not_told_to_have_more_groups(tmp_path: Path) -> None:
    lines = [{"question": f"question {n}", "answer": str(n)} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sentence = standing(load(tmp_path / "rows.jsonl")).sentence
    assert "none of the gate's says what is right. Give it as expected" in sentence
    assert "more groups" not in sentence
