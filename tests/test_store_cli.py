"""`whet tasks add` and `whet release`: work, and what it is done with, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import command

from whet.cli import app
from whet.errors import InputError, NotFoundError
from whet.record.store import Store, bundle_of, write_bundle
from whet.types import Bundle, Failure, Fault, Outcome, Split, Task, Trajectory, Version

TASKS = (
    '{"task_id": "buy", "natural_language_instruction": "Buy a keyboard.", "initial_state": {"url": "x"}}\n'
    '{"id": "ask", "instruction": "When is the move?", "split": "gate"}\n'
)


def run(*words: object) -> int | None:
    found = app([str(word) for word in words], result_action="return_value")
    return found if isinstance(found, int) else None


def test_tasks_are_queued_once_for_the_mode_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = tmp_path / "tasks.jsonl", tmp_path / "runs.db"
    file.write_text(TASKS)
    assert run("tasks", "add", file, "--store", path, "--mode", "val", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["tasks"], first["queued"]) == (2, 2)
    assert run("tasks", "add", file, "--store", path, "--mode", "val", "--times", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out)["queued"] == 4
    with Store(path) as store:
        assert {task.id: task.split for task in store.tasks()} == {"buy": Split.VALIDATION, "ask": Split.GATE}
        leases = store.queue.claim("w", n=9, modes=["val"]).result()
        assert {each.rollout.id for each in leases} >= set(first["ids"])
        assert [each.rollout.task.id for each in leases].count("buy") == 3
        assert leases[0].rollout.task.initial_state == {"url": "x"}


def test_work_added_while_a_server_owns_the_store_is_claimable_there(tmp_path: Path) -> None:
    file, path = tmp_path / "tasks.jsonl", tmp_path / "runs.db"
    file.write_text(TASKS)
    with Store(path, serve=True) as server:
        queue = server.queue
        assert run("tasks", "add", file, "--store", path, "--max-attempts", "1") == 0
        assert [each.rollout.max_attempts for each in queue.claim("w", n=9).result()] == [1, 1]


def test_a_recorded_bundle_is_what_tasks_may_be_run_under(tmp_path: Path) -> None:
    path, file = tmp_path / "runs.db", tmp_path / "tasks.jsonl"
    file.write_text(TASKS)
    with Store(path) as store:
        id = store.put_bundle(bundle_of({"system_prompt": "Be brief."}))
    assert run("tasks", "add", file, "--store", path, "--resources", id) == 0
    with Store(path) as store:
        assert {lease.rollout.resources for lease in store.queue.claim("w", n=9).result()} == {id}


def test_the_environment_may_name_the_store_and_a_failure_is_shown_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    broken = Failure(Fault.AGENT, "ValueError", "no such\ncity")
    with Store(path) as store:
        store.put(Trajectory(task=Task(instruction="where?"), outcome=Outcome.FAILURE, error=broken))
    monkeypatch.setenv("WHET_STORE", str(path))
    assert run("show", "trajectories") == 0
    assert "where?  (ValueError: no such city)" in capsys.readouterr().out
    with pytest.raises(NotFoundError, match="other"):
        run("show", "--store", tmp_path / "other.db")


def test_what_is_released_is_live_beside_the_rest_until_it_is_rolled_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, prompt = tmp_path / "runs.db", tmp_path / "prompt.txt"
    prompt.write_text("Answer in one sentence.")
    trained = tmp_path / "out"
    trained.mkdir()
    weights = Version(resource="policy", content={"path": "/w", "sha256": "0"}, kind="weights")
    write_bundle(trained / "bundle.json", Bundle([weights]))
    with Store(path, serve=True) as server:
        named = ["release", "gateway.system_prompt", prompt, "--store", path, "--unproven"]
        assert run(*named, "--reason", "shorter") == 0
        assert run("release", trained, "--store", path, "--unproven", "--json") == 0
        live = server.live()
        assert live is not None
        assert dict(live)["policy"] == weights
        assert live["gateway.system_prompt"].content == "Answer in one sentence."
        assert live["gateway.system_prompt"].kind == "prompt"
        assert json.loads(capsys.readouterr().out.splitlines()[-1]) == live.ids
        assert [one.reason.partition(";")[0] for one in server.history()] == ["shorter", f"from {trained}"]
        assert run("rollback", "--store", path) == 0
        back = server.live()
        assert back is not None
        assert set(back) == {"gateway.system_prompt"}
        assert run("rollback", "--store", path) == 0
        assert server.live() == Bundle()
        assert "the agent is as it came" in capsys.readouterr().out
    with pytest.raises(NotFoundError, match="as it came"):
        run("rollback", "--store", path)
    with pytest.raises(NotFoundError, match="output folder of a learner"):
        run("release", tmp_path, "--store", path)
    with pytest.raises(InputError, match=r"none\.txt"):
        run("release", "prompt", tmp_path / "none.txt", "--store", path)
    with pytest.raises(NotFoundError):
        run("rollback", "--store", tmp_path / "new.db")


def test_a_version_is_listed_with_its_parent_and_shown_as_a_diff_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    old = Version(resource="tone", content="You are a clerk.\nBe brief.", kind="prompt")
    new = Version(resource="tone", content="You are a clerk.\nBe kind.", kind="prompt", parent=old.id)
    with Store(path) as store:
        store.put_versions(old, new, Version(resource="limit", content=3))
        store.release(Bundle([new]), reason="kinder", unproven=True, new_names=True)
    assert run("show", "versions", "--store", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        [old.id, "prompt", "tone"],
        [new.id, "live", "prompt", "tone", "from", old.id],
    ]
    assert run("show", "versions", new.id, "--store", path) == 0
    assert "-Be brief.\n+Be kind." in capsys.readouterr().out
    assert run("show", "versions", "--store", path, "--resource", "limit", "--json") == 0
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["content"], found["live"], found["parent"]) == (3, False, None)
    with pytest.raises(NotFoundError, match="no Version 'nope'"):
        run("show", "versions", "nope", "--store", path)


def test_a_command_that_reads_leaves_an_empty_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    for words in (
        ["show", "--store", path],
        ["show", "trajectories", "--store", path],
        ["erase", "ann", "--store", path],
        ["retain", "--store", path, "--days", "1"],
        ["replay", "json:dumps", "--store", path],
        ["capture", "check", "--store", path],
        ["export", "trl-sft", "--store", path, "--output", tmp_path / "rows.jsonl"],
    ):
        with pytest.raises(NotFoundError, match="empty file"):
            run(*words)
        assert path.read_bytes() == b""


def test_a_person_is_erased_while_a_server_owns_the_store_and_old_runs_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.db"
    with Store(path, serve=True) as server:
        server.put(Trajectory(task=Task(id="a"), id="hers", subject="ann"))
        server.put(
            Trajectory(task=Task(id="b"), id="old", started=1.0), Trajectory(task=Task(id="b"), id="new")
        )
        assert run("erase", "ann", "--store", path, "--json") == 0
        assert json.loads(capsys.readouterr().out)["trajectories"] == 1
        assert run("retain", "--store", path, "--days", "30") == 0
        assert "trajectories              1" in capsys.readouterr().out
        assert [each.id for each in server.trajectories()] == ["new"]
        assert run("erase", "ann", "--store", path) == 0
        said = capsys.readouterr().out
        assert "holds nothing that came from 'ann'" in said
        assert "remains: copies outside" in said
        assert run("retain", "--store", path, "--days", "30") == 0
        assert "nothing that may be deleted is older than 30 days" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks", "add", "{tmp}/none.jsonl"], "none.jsonl"),
        (["tasks", "add", "{tmp}/bad.jsonl"], "line 1"),
        (["tasks", "add", "{tmp}/good.jsonl", "--resources", "never"], "never"),
        (["release", "p", "{tmp}/none.txt"], "none.txt"),
        (["release", "p", "{tmp}/bad.json"], "JSON"),
        (["erase", "ann"], "no store"),
        (["retain", "--days", "3"], "no store"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text("{\n")
    (tmp_path / "bad.json").write_text("{\n")
    (tmp_path / "good.jsonl").write_text(TASKS)
    given = [word.replace("{tmp}", str(tmp_path)) for word in words]
    done = command(capsys, *given, "--store", tmp_path / "runs.db")
    assert done.returncode == 2
    error = done.stderr
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error
