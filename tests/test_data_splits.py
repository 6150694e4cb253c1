"""Splits keep groups whole and stay put; leaks are found."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_data_near import sentences

from whet.errors import GateError, InputError
from whet.learn.datasets.near import normalised
from whet.learn.datasets.splits import leakage, split
from whet.types import Split, Task


def rows(groups: int, each: int = 3) -> list[Task]:
    return [Task(id=f"g{group}-{row}", group=f"g{group}") for group in range(groups) for row in range(each)]


def of(tasks: list[Task]) -> dict[str, Split | None]:
    return {task.group: task.split for task in tasks}


@given(st.integers(0, 1000), st.booleans(), st.lists(st.integers(1, 30), min_size=3, max_size=25))
@settings(max_examples=60)
def test_a_group_lands_in_one_split_and_order_does_not_matter(
    seed: int, balanced: bool, sizes: list[int]
) -> None:
    tasks = [
        Task(id=f"{group}/{row}", group=str(group)) for group, size in enumerate(sizes) for row in range(size)
    ]
    done = split(tasks, seed=seed, balanced=balanced)
    assert [task.id for task in done] == [task.id for task in tasks]
    assert len({(task.group, task.split) for task in done}) == len(sizes)
    assert of(split(tasks[::-1], seed=seed, balanced=balanced)) == of(done)
    if balanced:
        assert {task.split for task in done} == set(Split)


def test_a_task_added_later_moves_no_other() -> None:
    before, after = of(split(rows(100))), of(split(rows(140)))
    assert all(after[group] == part for group, part in before.items())


def test_the_shares_are_kept_and_another_seed_divides_differently() -> None:
    counts = Counter(of(split(rows(2000))).values())
    assert counts[Split.TRAIN] / 2000 == pytest.approx(0.6, abs=0.04)
    assert counts[Split.GATE] / 2000 == pytest.approx(0.2, abs=0.03)
    assert of(split(rows(50), seed=1)) != of(split(rows(50), seed=2))


def test_few_groups_are_filled_by_size() -> None:
    tasks = [
        Task(id=f"{g}/{i}", group=g)
        for g, size in zip("abcdefgh", (50, 5, 5, 20, 20, 10, 30, 10), strict=True)
        for i in range(size)
    ]
    for seed in range(20):
        counts = Counter(task.split for task in split(tasks, seed=seed, balanced=True))
        assert all(counts[part] > 0 for part in Split)
        assert counts[Split.TRAIN] >= 0.35 * len(tasks)
    only = split(rows(4), fractions={Split.TRAIN: 0.5, Split.GATE: 0.5}, balanced=True)
    assert Counter(of(only).values()) == {Split.TRAIN: 2, Split.GATE: 2}
    with pytest.raises(InputError, match="2 groups cannot fill 3 splits"):
        split(rows(2), balanced=True)


def test_rows_without_a_group_are_split_one_by_one_only_when_said() -> None:
    alone = [Task(id=f"t{index}") for index in range(300)]
    with pytest.raises(InputError, match='by="id"'):
        split(alone)
    assert {task.split for task in split(alone, by="id")} == set(Split)


def test_a_split_that_was_given_is_kept_with_its_whole_group() -> None:
    tasks = [*rows(30), Task(id="known", group="g3", split=Split.GATE)]
    assert of(split(tasks))["g3"] is Split.GATE
    with pytest.raises(GateError, match="'g3'"):
        split([*tasks, Task(id="other", group="g3", split=Split.TRAIN)])


@pytest.mark.parametrize("fractions", [{Split.TRAIN: 0.5}, {Split.TRAIN: 1.5, Split.GATE: -0.5}, {}])
def test_shares_that_do_not_sum_to_one_are_refused(fractions: dict[Split, float]) -> None:
    with pytest.raises(InputError, match="sum to 1"):
        split(rows(3), fractions=fractions)


def test_planted_leaks_are_found_among_many_tasks_and_nothing_else() -> None:
    train, gate = (
        [Task(id=f"{side}{i}", instruction=text, group=f"g{side}{i}") for i, text in enumerate(texts)]
        for side, texts in (("a", sentences(400, 0)), ("b", sentences(400, 1)))
    )
    assert leakage(train, gate).clean
    near = train[7].instruction.split()
    near[5] = "rocket"
    gate += [
        Task(id="near", instruction=" ".join(near), group="n"),
        Task(id="same", instruction=f"  {train[9].instruction.upper()}?!", group="s"),
        Task(id="a11", instruction="something else entirely", group="x"),
        Task(id="grouped", instruction="and quite another thing here", group="ga12"),
    ]
    found = leakage(train, gate)
    assert [one[:2] for one in found.near] == [("a7", "near")]
    assert 0.7 <= found.near[0][2] < 1
    assert found.same == (("a9", "same"),)
    assert found.ids == ("a11",)
    assert found.groups == ("ga12",)
    assert str(found) == "1 shared ids, 1 shared groups, 1 same and 1 near-duplicate instructions"


def test_normalising_drops_case_accents_and_punctuation_only() -> None:
    assert normalised("  Où est   l'ÉCOLE?\n") == normalised("ou est l ecole")
    assert normalised("room 12") != normalised("room 13")
