"""The published shapes load and save with the same content; nothing is resolved that was not allowed."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from whet.errors import InputError
from whet.record.env import Transition
from whet.record.exchange.formats import (
    from_transitions,
    read_trajectories,
    strip_comments,
    task_from_json,
    task_to_json,
    to_transitions,
    trajectory_from_json,
    trajectory_to_json,
)
from whet.record.tasks import from_jsonl
from whet.types import Step, Task, Trajectory

TASK = """{"task_id": "buy_bluetooth_keyboard_cheapest",
 "natural_language_instruction": "Find the cheapest Bluetooth keyboard and add it to the cart.",
 "initial_state": {"url": "https://shop.webarena.dev", "dom": "<html>...</html>"},
 "success_checker": "python:function_that_checks_cart_for_correct_item"}"""
TRAJECTORY = """{"task_id": "buy_bluetooth_keyboard_cheapest", // the task above
 "steps": [{"obs": "https://shop.webarena.dev", "action": "click(id='search-box')", "reward": 0.0},
           // ... more steps
           {"obs": "...", "action": "ANSWER: I've added \\"it\\" // done.", "reward": 1.0, "done": true}]}"""


def test_the_published_task_loads_and_saves_verbatim() -> None:
    task = task_from_json(TASK)
    assert task.id == "buy_bluetooth_keyboard_cheapest"
    assert task.instruction.startswith("Find the cheapest")
    assert task.initial_state["url"] == "https://shop.webarena.dev"
    saved = task_to_json(task)
    assert saved == json.loads(TASK)
    assert list(saved) == list(json.loads(TASK))


def test_the_published_trajectory_loads_and_saves_verbatim() -> None:
    task = task_from_json(TASK)
    trajectory = trajectory_from_json(TRAJECTORY, {task.id: task})
    assert trajectory.task is task
    assert trajectory.reward == 1.0
    assert [step.done for step in trajectory.steps] == [False, True]
    assert trajectory.output == 'ANSWER: I\'ve added "it" // done.'
    assert trajectory_to_json(trajectory) == json.loads(strip_comments(TRAJECTORY))
    assert trajectory_from_json(TRAJECTORY).id == trajectory.id


def test_keys_that_the_shape_does_not_name_are_kept() -> None:
    given = {
        "task_id": "a",
        "natural_language_instruction": "b",
        "difficulty": 3,
        "answer": [1],
        "group": "g",
    }
    assert task_to_json(task_from_json(given)) == given
    steps = {"task_id": "a", "steps": [{"obs": 1, "action": None, "thought": "hm"}], "model": "m"}
    assert trajectory_to_json(trajectory_from_json(steps)) == steps


def test_an_unscored_step_stays_unscored() -> None:
    trajectory = trajectory_from_json({"task_id": "a", "steps": [{"obs": 1, "action": 2}]})
    assert trajectory.steps[0].reward is None
    with pytest.raises(InputError, match="no reward"):
        to_transitions(trajectory)


@pytest.mark.parametrize(
    "text", ['{"a": "http://x"} // end', '{"a": "\\\\"} // "quoted"', '// first\n{"a": "\\"//"}']
)
def test_comments_go_and_strings_stay(text: str) -> None:
    assert json.loads(strip_comments(text)) in ({"a": "http://x"}, {"a": "\\"}, {"a": '"//'})


@pytest.mark.parametrize(
    "source",
    [
        "{",
        "[]",
        b"\xff",
        "{}",
        '{"task_id": 3, "instruction": "x"}',
        '{"task_id": "a", "id": "b"}',
        '{"task_id": "a", "initial_state": []}',
    ],
)
def test_what_is_no_task_is_refused(source: str | bytes) -> None:
    with pytest.raises(InputError):
        task_from_json(source)


@pytest.mark.parametrize(
    "source",
    [
        "{}",
        '{"task_id": "a"}',
        '{"task_id": "a", "steps": {}}',
        '{"task_id": "a", "steps": [1]}',
        '{"task_id": "a", "steps": [{"obs": 1}]}',
        '{"task_id": "a", "steps": [{"action": 1, "reward": "1"}]}',
        '{"task_id": "a", "steps": [{"action": 1, "reward": true}]}',
        '{"task_id": "a", "steps": [{"action": 1, "done": 1}]}',
    ],
)
def test_what_is_no_trajectory_is_refused(source: str) -> None:
    with pytest.raises(InputError):
        trajectory_from_json(source)


def test_meta_that_would_overwrite_a_field_is_refused() -> None:
    with pytest.raises(InputError, match="answer"):
        task_to_json(Task(id="a", meta={"answer": 1}))


def test_transitions_survive_both_ways() -> None:
    episode = [Transition("a", "1", 0.0, False, "b"), Transition("b", "2", 1.0, True, "end")]
    assert to_transitions(from_transitions(episode, Task(id="t"))) == episode
    assert to_transitions(from_transitions([], Task(id="t"))) == []


def test_steps_inside_a_step_are_no_transitions() -> None:
    steps = (
        Step(observation="a", action="1", reward=0.5, id="0", done=True),
        Step(kind="llm", parent="0", action="thinking", id="0.0"),
    )
    assert to_transitions(Trajectory(task=Task(id="t"), steps=steps)) == [
        Transition("a", "1", 0.5, True, None)
    ]


def test_public_browser_tasks_load_with_all_their_keys(data: Path) -> None:
    rows = json.loads((data / "webarena" / "test.raw.json").read_text(encoding="utf-8"))[:50]
    for row in rows:
        shaped = {
            "task_id": str(row.pop("task_id")),
            "natural_language_instruction": row.pop("intent"),
            **row,
        }
        assert task_to_json(task_from_json(json.dumps(shaped))) == shaped


def test_files_of_programs_on_windows_and_texts_cut_inside_an_emoji_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"task_id": "a", "natural_language_instruction": "cut \ud83d", "steps": [{"action": "cut \ud83d"}]}
    file.write_bytes(codecs.BOM_UTF8 + json.dumps(row).encode() + b"\r\n")
    assert [task.instruction for task in from_jsonl(file)] == ["cut \ufffd"]
    assert [one.output for one in read_trajectories(file)] == ["cut \ufffd"]


@pytest.mark.parametrize("line", [b'{"task_id":' + b"[" * 100_000, b"[]", b"null", b"\xff"])
def test_a_line_that_is_no_trajectory_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n" + line)
    for reader in (from_jsonl, read_trajectories):
        with pytest.raises(InputError, match=r"rows\.jsonl, line 2: "):
            list(reader(file))
