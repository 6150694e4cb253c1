"""Implicit feedback, measured on a labelled set, with shuffled labels as the control."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from signals_corpus import corpus

from whet import Store, Task, Trajectory
from whet.data.signals import Turn, implicit_feedback, signals

KINDS = ("continued", "rephrased", "praised", "criticised", "abandoned")


def said(conversation: list[Turn]) -> str:
    last = max(index for index, turn in enumerate(conversation) if turn.role == "assistant")
    return next((one.kind for one in signals(conversation) if one.turn == last), "")


def precision(found: list[str], labels: list[str], kind: str) -> float:
    right = sum(one == label == kind for one, label in zip(found, labels, strict=True))
    return right / max(1, found.count(kind))


def test_each_extractor_is_right_nine_times_in_ten_and_shuffled_labels_are_not() -> None:
    rows = corpus()
    assert len(rows) >= 200
    labels = [label for _, label in rows]
    found = [said(conversation) for conversation, _ in rows]
    shuffled = labels[:]
    random.Random(0).shuffle(shuffled)
    for kind in KINDS:
        wrong = [
            (conversation[-1].text, label, one)
            for (conversation, label), one in zip(rows, found, strict=True)
            if kind in (one, label) and one != label
        ]
        assert precision(found, labels, kind) >= 0.9, wrong
        assert precision(found, shuffled, kind) <= 0.6
        recall = sum(a == b == kind for a, b in zip(found, labels, strict=True)) / Counter(labels)[kind]
        assert recall >= 0.6, wrong


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Which hotels in Rome have a pool?", "Which hotels in Oslo have a pool?"),
        ("Who paid invoice 17?", "Who paid invoice 18?"),
        ("When is the meeting on Monday?", "And on Tuesday?"),
    ],
)
def test_the_same_question_about_something_else_is_no_complaint(before: str, after: str) -> None:
    turns = [Turn("user", before), Turn("assistant", "Here it is."), Turn("user", after)]
    assert all(one.value > 0 for one in signals(turns))


def test_who_has_not_answered_yet_has_not_left() -> None:
    turns = [Turn("user", "q", 0.0), Turn("assistant", "Sorry, I cannot.", 100.0)]
    assert signals(turns, ended=200.0) == []
    assert [one.kind for one in signals(turns, ended=10_000.0)] == ["abandoned"]


def test_sessions_become_feedback_that_can_be_recorded_twice() -> None:
    def run(session: str | None, at: float, question: str, answer: str) -> Trajectory:
        return Trajectory(
            task=Task(instruction=question), session=session, started=at, output=answer, seconds=1.0
        )

    first = run("s1", 1.0, "Find the number of the broker", "It is 555.")
    runs = [
        run("s1", 9.0, "that's wrong", "I am sorry."),
        first,
        run(None, 2.0, "alone", "x"),
        run("s2", 3.0, "Find the number of the lawyer", "It is 777."),
    ]
    found = implicit_feedback(runs)
    assert [(one.run, one.kind, one.value) for one in found] == [
        (first.id, "implicit.criticised", -1.0),
        (runs[0].id, "implicit.abandoned", -1.0),
    ]
    with Store(":memory:") as store:
        store.put(*runs)
        store.add_feedback(*found)
        store.add_feedback(*implicit_feedback(store.trajectories()))
        assert len(list(store.feedback())) == 2
