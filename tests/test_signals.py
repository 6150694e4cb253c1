"""Implicit feedback, measured on a labelled set, with shuffled labels as the control."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from signals_corpus import corpus

import whet
from whet import Store, Task, Trajectory
from whet.cli import main
from whet.judge import implied, rated, score, thumbs
from whet.record.tracing import flush
from whet.record.tracing.assemble import Assembler
from whet.record.tracing.signals import Turn, hear, implicit_feedback, signals
from whet.types import Feedback

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


def talked(store: Store, session: str | None, *turns: tuple[str, str]) -> list[str]:
    """A conversation with a traced agent, as a program records it; ids of its runs."""
    replies = iter([answer for _, answer in turns])

    @whet.trace(store)
    def agent(question: str) -> str:
        return next(replies)

    ids = []
    for question, _ in turns:
        with whet.run(session=session) as run:
            agent(question)
        ids.append(run.id)
    assert flush()
    return ids


BROKER = [
    ("Find the number of the broker", "It is 555."),
    ("that's wrong", "It is 777."),
    ("Perfect, thank you!", "You are welcome."),
]


def values(store: Store) -> dict[str, float | None]:
    return {run.id: score(implied, run).value for run in store.trajectories()}


def test_what_a_user_let_show_in_a_recorded_session_is_a_score_and_a_row(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        wrong, right, _ = talked(store, "s1", *BROKER)
        (alone,) = talked(store, None, ("that's wrong", "Sorry."))
        tasks = {task.meta["trajectories"][0]: task for task in whet.tasks(store)}
        assert (tasks[wrong].meta["feedback"], tasks[right].meta["feedback"]) == (-1.0, 1.0)
        assert "feedback" not in tasks[alone].meta
        runs = {run.id: run for run in store.trajectories()}
        assert [said.kind for said in runs[wrong].feedback] == ["implicit.criticised"]
        assert (score(rated, runs[wrong]).value, score(rated, runs[right]).value) == (-1.0, 1.0)
        assert score(rated, runs[alone]).value is score(implied, runs[alone]).value is None
        assert score(thumbs, runs[wrong]).value is None  # nobody gave one
        # What a person says outranks what the same person let show, however early it was said.
        store.add_feedback(Feedback(run=wrong, value=0.5, kind="rating", at=1.0))
        again = store.trajectory(wrong)
        assert (score(rated, again).value, score(implied, again).value) == (0.5, -1.0)
        assert next(t for t in whet.tasks(store) if t.id == tasks[wrong].id).meta["feedback"] == 0.5


def command_line(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_command_that_reads_runs_hears_their_sessions_first(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        talked(store, "s1", *BROKER)
    if command == "show":
        command_line(["show", "trajectories", "--store", str(path), "--json"])
        shown = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        kinds = [[said["kind"] for said in run["feedback"]] for run in shown]
        assert kinds == [["implicit.criticised"], ["implicit.praised"], []]
    else:
        words = ["trl-kto", "--store", str(path), "--output", str(tmp_path / "rows.jsonl")]
        command_line(["export", *words, "--reward-function", "whet.judge:rated"])
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        assert [row["label"] for row in rows] == [False, True]
    with Store(path) as store:  # it is in the record, once
        (count,) = store.database.rows("SELECT count(*) FROM labels WHERE kind LIKE 'implicit.%'")[0]
        assert count == 2
        assert hear(store) == 0


def test_a_server_hears_sessions_as_they_go_on(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        wrong, _, _ = talked(store, "s1", *BROKER)
        stop = threading.Event()
        stop.set()
        Assembler(store).run(stop)
        assert values(store)[wrong] == -1.0


def test_a_session_that_goes_on_is_heard_again_and_one_that_is_left_when_its_time_is_up() -> None:
    def turn(at: float, question: str, answer: str) -> Trajectory:
        return Trajectory(
            task=Task(instruction=question), session="s", started=at, output=answer, seconds=1.0
        )

    with Store(":memory:") as store:
        first = turn(1_000.0, "Book a table for two", "Sorry, I cannot.")
        store.put(first)
        assert hear(store, now=1_100.0) == 0  # the user may be thinking
        assert hear(store, now=1_200.0) == 0
        assert hear(store, now=1_001.0 + 1_900.0) == 1
        assert score(implied, store.trajectory(first.id)).value == -1.0
        assert hear(store, now=99_999.0) == 0
        # Late, the same user comes back: what shows last counts.
        store.put(turn(100_000.0, "that worked, thanks", "Good."))
        assert hear(store, now=100_010.0) == 1
        kinds = [said.kind for said in store.feedback()]
        assert kinds == ["implicit.abandoned", "implicit.praised"]
        assert score(implied, store.trajectory(first.id)).value == 1.0


def test_what_is_only_implied_keeps_no_run_from_retention_and_goes_with_its_person() -> None:
    def turn(at: float, question: str, answer: str) -> Trajectory:
        task = Task(instruction=question)
        return Trajectory(task=task, session="s", subject="ann", started=at, output=answer, seconds=1.0)

    with Store(":memory:") as store:
        runs = [turn(1.0, *BROKER[0]), turn(9.0, *BROKER[1])]
        store.put(*runs)
        assert hear(store) == 1
        store.add_feedback(Feedback(run=runs[1].id, value=1.0))
        store.retain(days=1)
        assert [run.id for run in store.trajectories()] == [runs[1].id]
        store.put(turn(20.0, *BROKER[2]))
        assert hear(store) == 1
        store.erase("ann")
        assert not list(store.feedback())
        assert hear(store) == 0


def test_a_long_session_costs_no_more_for_a_message_than_a_short_one() -> None:
    dice = random.Random(1)
    words = [f"w{int(dice.paretovariate(0.6))}x" for _ in range(20_000)]
    turns: list[Turn] = []
    for number in range(3_200):
        turns.append(Turn("user", f"What is {' '.join(dice.choices(words, k=8))}?", 60.0 * number))
        turns.append(Turn("assistant", "It is on Friday.", 60.0 * number + 2, f"run-{number}"))

    def cost(length: int) -> float:
        taken = []
        for _ in range(3):
            began = time.thread_time()
            assert signals(turns[:length])
            taken.append((time.thread_time() - began) / length)
        return min(taken)

    assert cost(6_400) < 1.8 * cost(400)
