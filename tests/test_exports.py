"""Trajectories as other programs' datasets: what each row holds, what is left out, and that they read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whet.cli import main
from whet.record.exchange import exports
from whet.record.store import Store
from whet.types import Feedback, Outcome, Preference, Score, Step, Task, Trajectory

SYSTEM = {"role": "system", "text": "Be brief."}
CALL = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "look", "arguments": {"order": "17"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "text": "shipped"}


def asked(question: str) -> dict[str, str]:
    return {"role": "user", "text": question}


def run(
    question: str, answer: str, outcome: Outcome = Outcome.SUCCESS, *, steps: Sequence[Step] | None = None
) -> Trajectory:
    """A run with a tool in its middle, as two calls of a model."""
    first = [SYSTEM, asked(question)]
    said = {"role": "assistant", "text": answer}
    both = (
        Step(kind="llm", observation=first, action=CALL),
        Step(kind="tool", name="look", observation={"order": "17"}, action="shipped"),
        Step(kind="llm", observation=[*first, CALL, RESULT], action=said),
    )
    task = Task(instruction=question, answer="shipped", group="orders")
    return Trajectory(task=task, steps=both if steps is None else steps, output=answer, outcome=outcome)


def test_a_conversation_is_whole_once_and_a_sub_agents_is_its_own() -> None:
    inner = Step(kind="llm", observation=[asked("inner")], action={"role": "assistant", "text": "yes"})
    whole = run("where?", "shipped")
    (plain,) = exports.conversations(whole)
    assert [message["role"] for message in plain] == ["system", "user", "assistant", "tool", "assistant"]
    found = exports.conversations(replace(whole, steps=(whole.steps[0], inner, *whole.steps[1:])))
    assert sorted(len(one) for one in found) == [2, 5]


def test_messages_are_as_chat_templates_take_them() -> None:
    (row,) = exports.sft([run("where?", "shipped")], exports.worth_of()).rows
    assert row["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "where?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "id": "c1", "function": {"name": "look", "arguments": {"order": "17"}}}
            ],
        },
        {"role": "tool", "content": "shipped", "tool_call_id": "c1"},
        {"role": "assistant", "content": "shipped"},
    ]


def test_only_what_went_well_is_cloned_and_the_rest_is_counted() -> None:
    image = {"role": "user", "text": "see", "parts": [{"type": "image"}]}
    seen = Step(kind="llm", observation=[image], action={"role": "assistant", "text": "a cat"})
    made = exports.sft(
        [
            run("a", "x"),
            run("b", "x", Outcome.FAILURE),
            run("c", "x", Outcome.UNKNOWN),
            run("d", "x", Outcome.INFRASTRUCTURE_ERROR),
            run("e", "x", steps=(seen,)),
            replace(run("f", "x", steps=()), output=None),
        ],
        exports.worth_of(),
    )
    assert len(made.rows) == 1
    assert made.left_out == {
        "nobody judged it": 2,
        "it did not go well": 1,
        "a message is no text (an image, a file)": 1,
        "it has no answer": 1,
    }


def test_worth_is_the_named_score_or_the_outcome_or_what_people_said() -> None:
    unknown = run("a", "x", Outcome.UNKNOWN)
    thumbs = replace(unknown, feedback=(Feedback(value=-1.0), Feedback(value=1.0), Feedback(value=-1.0)))
    assert exports.worth_of()(thumbs) == 0.0
    assert exports.worth_of()(replace(unknown, feedback=(Feedback(value=1.0), Feedback(value=-1.0)))) is None
    scored = run("a", "x").scored(Score("exact", 0.25))
    assert exports.worth_of("exact")(scored) == 0.25
    assert exports.worth_of("other")(scored) is None


def test_pairs_are_runs_of_one_task_and_no_run_is_used_twice() -> None:
    runs = [
        run("a", "right"),
        run("a", "wrong", Outcome.FAILURE),
        run("a", "odd", Outcome.FAILURE),
        run("b", "right"),
        run("c", "wrong", Outcome.FAILURE),
    ]
    given = [
        Preference(prompt="q", chosen="yes", rejected="no"),
        Preference(prompt="q", chosen="x", rejected="y", tie=True),
    ]
    made = exports.dpo(runs, exports.worth_of(), given)
    assert [row["chosen"][-1]["content"] for row in made.rows] == ["yes", "right"]
    assert [row["rejected"][-1]["content"] for row in made.rows] == ["no", "wrong"]
    assert made.rows[1]["prompt"] == [exports.chat(SYSTEM), exports.chat(asked("a"))]
    assert made.left_out == {"a tie": 1, "no run of the same task to compare with": 3}


def test_a_traced_function_without_model_calls_is_its_question_and_answer() -> None:
    plain = run("capital of France?", "Paris", steps=())
    (row,) = exports.kto([plain], exports.worth_of()).rows
    assert row == {
        "prompt": [{"role": "user", "content": "capital of France?"}],
        "completion": [{"role": "assistant", "content": "Paris"}],
        "label": True,
    }


def test_verl_gets_a_row_a_task_with_what_it_judges_by() -> None:
    made = exports.verl([run("a", "x"), run("a", "y"), run("b", "z")], source="orders")
    assert [row["extra_info"]["index"] for row in made.rows] == [0, 1]
    assert made.rows[0]["data_source"] == "orders"
    assert made.rows[0]["reward_model"] == {"style": "rule", "ground_truth": "shipped"}
    assert made.rows[0]["prompt"][-1] == {"role": "user", "content": "a"}


def stored(path: Path) -> Path:
    with Store(path) as store:
        store.put(
            *(run(f"q{n}", "right") for n in range(4)),
            *(run(f"q{n}", "wrong", Outcome.FAILURE) for n in range(3)),
        )
    return path


def whet(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        ("trl-sft", {"messages"}),
        ("trl-kto", {"prompt", "completion", "label"}),
        ("trl-dpo", {"prompt", "chosen", "rejected"}),
        ("trl-prompts", {"prompt", "answer", "task", "group"}),
    ],
)
def test_trl_reads_what_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, kind: set[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    store, output = stored(tmp_path / "runs.db"), tmp_path / "rows.jsonl"
    assert whet("export", format, "--store", store, "--output", output) == 0

    from datasets import load_dataset
    from trl.data_utils import is_conversational

    rows = load_dataset("json", data_files=str(output), split="train", cache_dir=str(tmp_path / "cache"))
    assert set(rows.column_names) == kind
    assert all(is_conversational(row) for row in rows)


def test_runs_that_nobody_judged_are_judged_by_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_worth.py").write_text(
        "def worth(trajectory):\n    return float(trajectory.output == 'shipped')\n"
    )
    monkeypatch.chdir(tmp_path)
    with Store("runs.db") as store:
        store.put(*(replace(run("where?", said), outcome=Outcome.UNKNOWN) for said in ("shipped", "lost")))
    words = ("export", "trl-sft", "--store", "runs.db", "--output")
    assert whet(*words, "new/rows.jsonl") == 1
    assert not (tmp_path / "new").exists()
    assert whet(*words, "new/rows.jsonl", "--reward-function", "my_worth:worth") == 0
    (row,) = (tmp_path / "new/rows.jsonl").read_text().splitlines()
    assert "shipped" in row


def test_verls_file_is_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet

    store, output = stored(tmp_path / "runs.db"), tmp_path / "train.parquet"
    assert whet("export", "verl", "--store", store, "--output", output) == 0
    rows = pyarrow.parquet.read_table(output).to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == [0, 1, 2, 3]
    assert set(rows[0]) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}


def test_what_is_exported_whole_comes_back_whole_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, output = stored(tmp_path / "runs.db"), tmp_path / "runs.jsonl"
    assert whet("export", "whet", "--store", store, "--output", output) == 0
    for recorded in (7, 0):
        capsys.readouterr()
        assert whet("import", output, "--store", tmp_path / "again.db", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"read": 7, "recorded": recorded, "redacted": {}}
    with Store(store) as first, Store(tmp_path / "again.db") as second:
        assert list(first.trajectories()) == list(second.trajectories())


def test_secrets_in_a_file_that_is_imported_are_not_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "sk-ant-" + "a1b2c3d4" * 4
    given, store = tmp_path / "runs.jsonl", tmp_path / "runs.db"
    given.write_text(
        json.dumps({"task_id": "t", "steps": [{"obs": "log in", "action": f"use {key}"}]}) + "\n"
    )
    assert whet("import", given, "--store", store) == 0
    assert "redacted: 2 x anthropic-key" in capsys.readouterr().out
    assert key.encode() not in store.read_bytes()
    with Store(store) as opened:
        (found,) = opened.trajectories()
    assert found.steps[0].action == "use [redacted:anthropic-key]"
    assert found.meta["untrainable"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "trl-sft", "--store", "none.db", "--output", "x.jsonl"], "there is no store"),
        (["import", "none.jsonl", "--store", "new.db"], "there is no file"),
        (["import", "bad.jsonl", "--store", "new.db"], "line 2: not a trajectory"),
        (["export", "whet", "--store", "runs.db", "--output", "bad.jsonl"], "exists; name a file"),
    ],
)
def test_what_cannot_be_read_or_written_is_said_and_nothing_is_recorded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[Any],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(tmp_path / "runs.db")
    (tmp_path / "bad.jsonl").write_text('{"task_id": "t", "steps": []}\n{"nothing": 1}\n')
    assert whet(*words) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new.db").exists()
