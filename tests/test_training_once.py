"""`whet train` on a recording: learned from once, gone on with, refused where other weights sampled it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest
from methods_toys import beginning, collect, tasks

from whet.cli import app
from whet.cli.train import METHODS
from whet.data import formats
from whet.errors import TrainingRefused
from whet.store import Store
from whet.training.local import LocalModels
from whet.types import Bundle, Group, Split, Version

OWN = [method for method, about in METHODS.items() if about.own]
"""Methods that learn from tokens of their own."""


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


def written(path, trajectories):
    formats.write_trajectories(path, trajectories)
    return path


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """The weights that made the recording: folder and Bundle."""
    folder = tmp_path_factory.mktemp("recorded")
    return folder / "start", beginning(folder)


@pytest.fixture(scope="module")
def groups(start) -> list[Group]:
    return asyncio.run(collect(start[1], tasks(24), 8, models=LocalModels()))


@pytest.fixture
def recorded(groups, tmp_path):
    return written(tmp_path / "trajectories.jsonl", [t for group in groups for t in group.trajectories])


@pytest.mark.parametrize("method", OWN)
def test_of_a_record_each_run_is_learned_from_once_and_then_it_says_how_to_sample(
    method, recorded, groups, start, tmp_path, capsys
):
    words = ["--data", recorded, "--output", tmp_path / "out", "--model", start[0]]
    more = {"webrl": ["--epochs", 1], "star": ["--epochs", 1]}.get(method, [])
    assert run("train", method, *words, "--steps", 100, "--round-tasks", 8, *more) == 0
    said = capsys.readouterr()
    assert "one pass over the recorded trajectories" in said.out
    assert f"whet train {method} --store STORE --output {tmp_path / 'out'} --resume" in said.out
    rows = [json.loads(row) for row in (tmp_path / "out" / "metrics.jsonl").read_bytes().splitlines()]
    assert len(rows) == 3  # 24 tasks, 8 a round
    assert not any({"reward", "success"} & set(row) for row in rows), "recorded figures are named so"
    if method != "star":
        worth = [row["recorded_reward"] for row in rows]
        assert len(set(worth)) > 1, "each round is of other runs"
        every = [t.reward for group in groups for t in group.trajectories]
        assert sum(worth) / 3 == pytest.approx(sum(every) / len(every))
    version = msgspec.convert(
        json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"][0], type=Version
    )
    assert LocalModels().decoder(version).count() > 0  # written, though the last round was no checkpoint's


def test_a_run_goes_on_with_what_is_new_in_the_record(groups, start, tmp_path, capsys):
    words = ["train", "grpo", "--output", tmp_path / "out", "--model", start[0], "--json"]
    every = [trajectory for group in groups for trajectory in group.trajectories]
    half = written(tmp_path / "half.jsonl", every[:96])
    assert run(*words, "--data", half) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["rounds"], first["metrics"]["trajectories"]) == (1, 96)
    assert run(*words, "--data", half, "--resume") == 0
    assert json.loads(capsys.readouterr().out)["bundle"] == first["bundle"]  # nothing new, nothing learned
    models = LocalModels()
    policy = msgspec.convert(
        json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"][0], type=Version
    )
    sampled = asyncio.run(collect(Bundle([policy]), tasks(12, 5), 8, seed=5, models=models))
    fresh = [trajectory for group in sampled for trajectory in group.trajectories]
    both = written(tmp_path / "both.jsonl", [*every[:96], *fresh])
    assert run(*words, "--data", both, "--resume") == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["rounds"], second["metrics"]["trajectories"]) == (2, 96)
    assert second["bundle"] != first["bundle"]
    assert second["metrics"]["staleness"] == 0.0


def test_tokens_of_other_weights_are_refused_with_what_to_do(recorded, tmp_path, capsys):
    words = ["train", "grpo", "--data", recorded, "--output", tmp_path / "out", "--json"]
    with pytest.raises(TrainingRefused, match=r"not sampled from these weights.*--off-policy"):
        run(*words)
    assert run(*words, "--off-policy") == 0
    found = json.loads(capsys.readouterr().out)["metrics"]
    assert found["gap"] > 0.1
    assert 0 < found["effective_share"] < 1


def test_a_run_begins_where_another_ended(recorded, tmp_path, capsys):
    cloned = tmp_path / "cloned"
    assert run("train", "sft", "--data", recorded, "--output", cloned, "--epochs", 1, "--json") == 0
    (before,) = json.loads((cloned / "bundle.json").read_bytes())["bundle"]
    words = ["--data", recorded, "--output", tmp_path / "dpo", "--model", cloned]
    assert run("train", "dpo", *words, "--epochs", 1, "--json") == 0
    (after,) = json.loads((tmp_path / "dpo" / "bundle.json").read_bytes())["bundle"]
    assert after["parent"] == before["id"]
    with Store(tmp_path / "dpo" / "runs.db") as store:
        assert {version.id for version in store.versions("policy")} >= {before["id"], after["id"]}


def test_nothing_is_learned_from_the_gates_tasks(groups, tmp_path, capsys):
    hidden = [
        replace(t, task=replace(t.task, split=Split.GATE if number < 6 else Split.TRAIN))
        for number, group in enumerate(groups)
        for t in group.trajectories
    ]
    path = written(tmp_path / "split.jsonl", hidden)
    assert run("train", "sft", "--data", path, "--output", tmp_path / "out", "--epochs", 1) == 0
    assert "left out: 48 trajectories of the gate's tasks" in capsys.readouterr().err
    (version,) = json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"]
    assert not {t.id for t in hidden[:48]} & set(version["meta"]["data"])
