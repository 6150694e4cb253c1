"""Several processes train to the weights of one, and give up together."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods_toys import beginning, collect, tasks

from whet.data import files
from whet.training import model
from whet.training.local import LocalModels


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    groups = asyncio.run(collect(beginning(folder), tasks(16), 8, models=LocalModels()))
    path = folder / "trajectories.jsonl"
    files.write(path, [trajectory for group in groups for trajectory in group.trajectories])
    return path


def launched(processes, *words, **environment):
    """`whet` under accelerate, on the processor, as a user starts it."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes)]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", "0", "--num_cpu_threads_per_process", "1", "-m", "whet.cli"]
    given = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", **environment}
    return subprocess.run(
        [*command, *map(str, words)], env=given, capture_output=True, text=True, timeout=120, check=False
    )


def weights(output):
    (found,) = output.rglob("weights-*")
    return model.load(found).weights()


@pytest.mark.parametrize(
    "method",
    [["sft", "--epochs", 3, "--part-tokens", 16], ["grpo", "--steps", 3, "--floor", 0, "--part-tokens", 16]],
)
def test_two_processes_train_to_the_weights_of_one(method, recorded, tmp_path):
    from whet.cli import app

    common = [*method, "--data", recorded, "--optim.learning-rate", "0.02"]
    app(
        [str(word) for word in ("train", *common, "--output", tmp_path / "one")], result_action="return_value"
    )
    done = launched(2, "train", *common, "--output", tmp_path / "two")
    assert done.returncode == 0, done.stderr[-2000:]
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    start = model.load(tmp_path / "one" / "start").weights()
    moved = max(float((one[name] - start[name]).detach().abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).detach().abs().max()) for name in one)
    assert moved > 1e-2
    assert apart < 1e-3 * moved
    assert done.stdout.count(f"{method[0]}: ") == 1, "only one process may speak"
    torch.testing.assert_close(
        *[model.load(folder / "start").weights() for folder in (tmp_path / "one", tmp_path / "two")]
    )
