"""Recorded runs become distinct tasks with what people said of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from whet.errors import InputError
from whet.record.columns import ColumnNames
from whet.record.tasks import from_jsonl, tasks, to_jsonl
from whet.types import Feedback, Split, Task, Trajectory


def run(id: str, instruction: str, started: float = 0.0, **more: object) -> Trajectory:
    feedback = more.pop("feedback", ())
    session = more.pop("session", None)
    return Trajectory(
        id=id,
        task=Task(instruction=instruction, **more),  # type: ignore[arg-type]
        started=started,
        feedback=feedback,  # type: ignore[arg-type]
        session=session,  # type: ignore[arg-type]
    )


def test_runs_of_the_same_content_are_one_task_with_its_provenance() -> None:
    found = tasks([run("2", "when?", 2.0), run("x", "who?", 3.0), run("1", "when?", 1.0)])
    assert [task.instruction for task in found] == ["when?", "who?"]
    assert found[0].meta["trajectories"] == ["1", "2"]


def test_the_latest_correction_is_the_answer_and_thumbs_are_averaged() -> None:
    said = (
        Feedback(run="1", value=1.0, at=1.0),
        Feedback(run="1", correction="Tuesday", at=9.0),
        Feedback(run="1", value=-1.0, correction="Monday", at=5.0),
    )
    task = tasks([run("1", "when?", answer="Sunday", feedback=said), run("2", "when?", answer="Friday")])[0]
    assert task.answer == "Tuesday"
    assert (task.meta["feedback"], task.meta["feedback_n"]) == (0.0, 2)


def test_an_unrated_task_has_no_feedback_rather_than_zero() -> None:
    task = tasks([run("1", "when?")])[0]
    assert "feedback" not in task.meta
    assert task.answer is None


def test_groups_come_from_the_session_a_name_or_a_function() -> None:
    runs = [
        run("1", "when?", session="s1", meta={"mailbox": "m"}),
        run("2", "when?", session="s2", meta={"mailbox": "m"}),
    ]
    assert [task.group for task in tasks(runs)] == ["s1", "s2"]
    assert [task.group for task in tasks(runs, group="mailbox")] == ["m"]
    assert [task.group for task in tasks(runs, group=lambda one: one.id)] == ["1", "2"]
    with pytest.raises(InputError, match="'owner'"):
        tasks(runs, group="owner")


def test_whatever_yields_trajectories_is_a_source() -> None:
    class Record:
        def trajectories(self) -> list[Trajectory]:
            return [run("1", "when?")]

    assert len(tasks(Record())) == 1


def test_tasks_survive_a_file(tmp_path: Path) -> None:
    written = [
        Task(
            id="a",
            instruction="é\n\u2028",
            initial_state={"x": [1, None]},
            answer=0,
            split=Split.GATE,
            group="g",
        ),
        Task(instruction="b", success_checker="python:f", meta={"k": {"deep": 1.5}}),
    ]
    assert to_jsonl(tmp_path / "tasks.jsonl", written) == 2
    assert from_jsonl(tmp_path / "tasks.jsonl") == written
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"id": "a"}\n{"id": \n', "line 2: not a JSON object"),
        ('{"id": "a"}\n\n{"id": "a"}', "line 3: task 'a' was already on line 1"),
        ('{"id": "a", "split": "test"}', "line 1: .*split"),
        ('{"answer": 3}', "line 1: .*task_id"),
        ("[]", "line 1: .*object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        from_jsonl(path)
    with pytest.raises(InputError, match="cannot read"):
        from_jsonl(tmp_path / "none.jsonl")


def test_the_files_of_benchmarks_are_tasks_that_say_what_is_asked(tmp_path: Path) -> None:
    swe = tmp_path / "swe.jsonl"
    swe.write_text('{"instance_id": "d-1", "repo": "django", "problem_statement": "Fix it", "patch": "diff"}')
    mind = tmp_path / "mind.json"
    mind.write_text('[{"annotation_id": "m-1", "website": "shop", "confirmed_task": "Find a ladder"}]')
    (fix,), (find,) = from_jsonl(swe), from_jsonl(mind)
    assert (fix.id, fix.instruction, fix.group, fix.meta["patch"]) == ("d-1", "Fix it", "django", "diff")
    assert (find.id, find.instruction, find.group) == ("m-1", "Find a ladder", "shop")


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ('{"id": "1", "instruction": "2 + 2?", "expected": "4"}', "4"),
        ('{"id": "1", "question": "2 + 2?", "gold": "4"}', "4"),
        ('{"id": "1", "instruction": "2 + 2?", "answer": "4", "reference": "a book"}', "4"),
        ('{"id": "1", "instruction": "2 + 2?"}', None),
    ],
)
def test_a_row_with_an_id_keeps_its_question_and_its_answer(
    row: str, answer: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(row)
    (task,) = from_jsonl(file)
    assert (task.id, task.instruction, task.answer) == ("1", "2 + 2?", answer)


def test_columns_of_tasks_may_be_named_and_a_file_zipped(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl.gz"
    rows.write_bytes(gzip.compress(b'{"code": "a", "api_call": "f()", "provider": "hub", "id": 0}\n'))
    names = ColumnNames(input=("code",), expected="api_call", group="provider")
    (task,) = from_jsonl(rows, names)
    assert (task.id, task.instruction, task.answer, task.group) == ("0", "a", "f()", "hub")
    with pytest.raises(InputError, match="no column 'nope'; it has code"):
        from_jsonl(rows, ColumnNames(input=("nope",)))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(rows.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be unzipped"):
        from_jsonl(cut)


def test_real_files_of_benchmarks_have_no_task_without_its_question(data: Path) -> None:
    webarena = from_jsonl(data / "webarena" / "test.raw.json")
    assert len(webarena) == 812
    assert (webarena[0].id, webarena[0].answer) == ("0", "Quest Lumaflex™ Band")
    assert webarena[0].initial_state == {"url": "__SHOPPING_ADMIN__"}
    assert len({task.group for task in webarena}) == 190
    # Only where the right answer is all that its checker looks at.
    assert sum(task.answer_known for task in webarena) == 40
    for file, count in (("BFCL_v4_multiple.json", 200), ("BFCL_v4_live_simple.json", 258)):
        asked = from_jsonl(data / "bfcl" / file)
        assert len(asked) == count
        assert all(task.instruction and not task.instruction.startswith("[{") for task in asked)
    spider = from_jsonl(data / "intercode_sql" / "ic_spider_dev.json", ColumnNames(group="db"))
    assert len(spider) == 808
    assert all(str(task.answer).upper().startswith(("SELECT", "WITH")) for task in spider)
    assert len({task.group for task in spider}) == 16
