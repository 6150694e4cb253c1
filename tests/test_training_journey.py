"""From recorded runs to a policy that answers: clone, reinforce, kill, resume, release, serve; and from an Env."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from methods_toys import ANSWERS, WORDS, beginning, collect, tasks
from processes import until
from test_policy_cli import answer, started

from whet.cli import app
from whet.errors import InputError, TrainingRefused
from whet.learn.training.local import LocalModels
from whet.record.store import Store
from whet.record.store.bundles import read_bundle
from whet.record.tasks import to_jsonl
from whet.types import Bundle, Group, Split


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


def recorded(store: Path, groups: list[Group]) -> None:
    with Store(store) as opened:
        opened.put(*[trajectory for group in groups for trajectory in group.trajectories])


def ended(output: Path) -> Bundle:
    return read_bundle(output / "bundle.json").bundle


def process(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "whet", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def killed_after(rows: int, output: Path, *words) -> None:
    """Start a run and kill it once it has noted so many rounds; again where it was over before our turn came."""
    for _ in range(5):
        running = process(*words)
        until(lambda: _rounds(output) >= rows or running.poll() is not None, "no round was noted")  # noqa: B023
        assert _rounds(output) >= rows, running.stderr.read().decode()
        running.send_signal(signal.SIGKILL)
        running.communicate()
        if not (output / "bundle.json").exists():
            return
        shutil.rmtree(output)
    pytest.fail("it was too quick to be killed")


def _rounds(output: Path) -> int:
    path = output / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_recorded_runs_become_a_policy_that_is_served(tmp_path, capsys):
    models, demonstrations, sampled = LocalModels(), tmp_path / "first.db", tmp_path / "second.db"
    recorded(demonstrations, asyncio.run(collect(beginning(tmp_path), tasks(60), 4, models=models)))
    assert (
        run("train", "sft", "--store", demonstrations, "--output", tmp_path / "sft", "--epochs", 6, "--json")
        == 0
    )
    cloned = ended(tmp_path / "sft")

    with pytest.raises(TrainingRefused, match="not sampled from these weights"):
        run(
            "train",
            "grpo",
            "--store",
            demonstrations,
            "--output",
            tmp_path / "wrong",
            "--model",
            tmp_path / "sft",
        )
    recorded(sampled, asyncio.run(collect(cloned, tasks(24, 3), 8, models=models, seed=3)))
    words = ["train", "grpo", "--store", sampled, "--model", tmp_path / "sft", "--json", "--round-tasks", 1]
    words += ["--checkpoint-every", 5, "--passes", 12]
    assert run(*words, "--output", tmp_path / "whole") == 0
    killed_after(6, tmp_path / "killed", *words, "--output", tmp_path / "killed")
    assert run(*words, "--output", tmp_path / "killed", "--resume") == 0
    made = ended(tmp_path / "killed")["policy"]
    assert made.id == ended(tmp_path / "whole")["policy"].id
    assert made.parent == cloned["policy"].id
    assert len(made.meta["data"]) == 60 * 4 + 24 * 8, "it was made from both recordings"

    with Store(sampled) as store:
        assert made.id in {version.id for version in store.versions("policy")}
    assert run("release", tmp_path / "killed", "--store", sampled, "--unproven") == 0
    WORDS.save(tmp_path / "vocabulary.json")
    with started("--store", sampled, "--vocabulary", tmp_path / "vocabulary.json") as (_, url, token):
        assert answer(url, token).system_fingerprint == made.id


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A module with an environment, and its tasks."""
    (tmp_path / "answers_world.py").write_text(ANSWERS)
    monkeypatch.chdir(tmp_path)
    to_jsonl(tmp_path / "tasks.jsonl", [replace(task, group=task.id) for task in tasks(80)])
    beginning(tmp_path)
    words = ["--env", "answers_world:env", "--policy", "answers_world:policy", "--tasks-file", "tasks.jsonl"]
    return [
        *words,
        "--model",
        tmp_path / "start",
        "--optim.learning-rate",
        0.02,
        "--json",
        "--round-tasks",
        24,
    ]


def test_in_an_environment_it_samples_as_it_learns(world, tmp_path, capsys):
    assert run("train", "grpo", *world, "--output", tmp_path / "out", "--steps", 14) == 0
    done = json.loads(capsys.readouterr().out)
    rows = [json.loads(row) for row in (tmp_path / "out" / "metrics.jsonl").read_bytes().splitlines()]
    assert done["reason"] == "all 14 rounds done"
    assert rows[-1]["success"] > rows[0]["success"] + 0.2
    assert all(row["staleness"] == 0 for row in rows), "of fresh samples, and named so"
    assert rows[-1]["rollouts"] == 14 * 24 * 8
    with Store(tmp_path / "out" / "runs.db") as store:
        runs = list(store.trajectories())
    assert len(runs) > rows[-1]["rollouts"], "those and the baseline's are in the record"
    judged = [one for one in runs if one.task.split is Split.GATE]
    assert len(judged) == 2 * done["verdict"]["n"] > 0, (
        "of the gate's tasks both sides were run once, after training"
    )
    assert min(one.started for one in judged) > max(one.started for one in runs if one not in judged)


def test_in_an_environment_a_budget_ends_it_with_weights_and_a_kill_is_gone_on_from(world, tmp_path, capsys):
    limited = [*world, "--max-rollouts", 8 * 24 * 8 + 5, "--checkpoint-every", 3]
    assert run("train", "grpo", *limited, "--output", tmp_path / "whole") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["rounds"], done["reason"][:19]) == (8, "the budget ends it:")
    assert LocalModels().decoder(ended(tmp_path / "whole")["policy"]).count() > 0
    killed_after(4, tmp_path / "killed", "train", "grpo", *limited, "--output", tmp_path / "killed")
    assert run("train", "grpo", *limited, "--output", tmp_path / "killed", "--resume") == 0
    assert ended(tmp_path / "killed")["policy"].id == ended(tmp_path / "whole")["policy"].id


def test_an_environment_is_for_methods_that_learn_from_their_own_runs(world, tmp_path):
    with pytest.raises(InputError, match=r"sft learns from a record; --env and --agent are for star, grpo"):
        run("train", "sft", *world[:-2], "--output", tmp_path / "out")
    with pytest.raises(InputError, match="--env needs tasks: give --tasks-file"):
        run("train", "grpo", "--env", "answers_world:env", "--output", tmp_path / "out")
    with pytest.raises(InputError, match="give it with --env or --agent"):
        run("train", "grpo", "--max-rollouts", 3, "--output", tmp_path / "out")
