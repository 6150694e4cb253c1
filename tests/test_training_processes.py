"""Several processes train to the weights of one, and give up together."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods_toys import SMALL, beginning, collect, tasks
from policy_world import downloaded
from safetensors.torch import load_file

from whet.cli import app
from whet.errors import InputError, NotFoundError
from whet.learn.training import model, processes, sharding
from whet.learn.training.local import LocalModels
from whet.record.exchange import formats
from whet.types import Outcome, Step, Task, Tokens, Trajectory


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    groups = asyncio.run(collect(beginning(folder), tasks(16), 8, models=LocalModels()))
    path = folder / "trajectories.jsonl"
    formats.write_trajectories(path, [trajectory for group in groups for trajectory in group.trajectories])
    return path


def launched(processes, *words, **environment):
    """`whet` under accelerate, on the processor, as a user starts it."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", str(processes)]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", "0", "--num_cpu_threads_per_process", "1", "-m", "whet"]
    given = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", **environment}
    return subprocess.run(
        [*command, *map(str, words)], env=given, capture_output=True, text=True, timeout=300, check=False
    )


def spread(file, *words, program=("-m", "whet"), **environment):
    """`whet`, or another program, under accelerate as a file of `whet parallel` says."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
    command += ["--main_process_port", "0", *map(str, (*program, *words))]
    given = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    given |= environment
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=240, check=False)


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


def tensors(output):
    """The weights that a run of a transformers model ended with."""
    return load_file(sorted(output.rglob("weights-*"))[-1] / "model.safetensors")


def answered(path):
    """Trajectories over the ids of `downloaded`'s model, an odd number of each step's items among them."""
    rng = random.Random(0)
    found = []
    for number in range(7):
        prompt = tuple(rng.randrange(5, 90) for _ in range(20))
        for place in range(4):
            tokens = Tokens(prompt, tuple(rng.randrange(65, 90) for _ in range(5)), (-4.5,) * 5)
            step = Step(observation="?", action="x", reward=float(place % 2), kind="llm", tokens=tokens)
            outcome = Outcome.SUCCESS if place % 2 else Outcome.FAILURE
            found.append(Trajectory(task=Task(id=str(number)), steps=[step], outcome=outcome))
    formats.write_trajectories(path, found)
    return path


@pytest.mark.parametrize(("dtype", "ways"), [("float32", ("fsdp", "copies")), ("bfloat16", ("fsdp",))])
def test_processes_that_share_a_transformers_model_train_to_the_weights_of_one(dtype, ways, tmp_path, capsys):
    pytest.importorskip("torch", minversion="2.8")
    base = downloaded(tmp_path / "m", seed=1)
    data = answered(tmp_path / "data.jsonl")
    words = [
        "train",
        "sft",
        "--data",
        data,
        "--model",
        base,
        "--batch",
        3,
        "--epochs",
        2,
        "--part-tokens",
        60,
    ]
    words += ["--optim.learning-rate", 0.01]
    # In bfloat16 each process recomputes as well, and what layers gather is rounded from shares in float32.
    words += ["--dtype", dtype, *(["--recompute"] if dtype == "bfloat16" else [])]
    assert run(*words, "--output", tmp_path / "one") == 0
    for how in ways:
        file = tmp_path / f"{how}.yaml"
        assert run("parallel", how, "--cpu", "--output", file, "--model", base) == 0
        assert "GiB a process" in capsys.readouterr().out
        done = spread(file, *words, "--output", tmp_path / how)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count("sft: ") == 1, "only one process may speak"
        one, two, start = (
            tensors(tmp_path / "one"),
            tensors(tmp_path / how),
            load_file(base / "model.safetensors"),
        )
        assert set(one) == set(two) == set(start)
        moved = max(float((one[name] - start[name]).abs().max()) for name in one)
        apart = max(float((one[name] - two[name]).abs().max()) for name in one)
        assert moved > 1e-2
        if dtype == "float32":
            assert apart < 1e-3 * moved
        else:  # a gradient that rounds to the other sign moves a weight as far the other way
            moves = [torch.cat([(end[name] - start[name]).flatten() for name in one]) for end in (one, two)]
            assert float(torch.cosine_similarity(*moves, dim=0)) > 0.9


SHARED_OUT = """
import sys
from pathlib import Path
import torch
from whet.learn.training import huggingface, processes, sharding

folder, output = map(Path, sys.argv[1:])
with processes.joined(output):
    network = huggingface.load(folder, to_share=True)
    rank = processes.place().rank
    empty = [weight for _, weight in network.model.named_parameters(remove_duplicate=False) if weight.is_meta]
    whole = huggingface.load(folder)
    assert not any(weight.is_meta for weight in whole.model.parameters())
    assert (network.packs, network._split) == (whole.packs, whole._split)
    sharding.shard(network)
    assert not any(weight.is_meta for weight in network.model.parameters())
    assert network.model.lm_head.weight is network.model.get_input_embeddings().weight
    for name, buffer in whole.model.named_buffers():
        assert torch.equal(network.model.get_buffer(name), buffer), name
    for name, weight in network.model.named_parameters():
        assert torch.equal(sharding.whole(weight), whole.model.get_parameter(name)), name
    shares = sum(sharding.own(weight).numel() for weight in network.model.parameters())
    Path(output.parent, f"rank-{rank}").write_text(f"{len(empty)} {shares}")
    torch.distributed.barrier()  # who leaves first takes gloo's threads away under the other
"""


def test_the_first_process_alone_reads_a_model_and_the_others_get_their_shares_of_it(tmp_path, capsys):
    pytest.importorskip("torch", minversion="2.8")
    from transformers import AutoModelForCausalLM

    tied = AutoModelForCausalLM.from_pretrained(downloaded(tmp_path / "m", seed=1))
    tied.config.tie_word_embeddings = True
    tied.lm_head.weight = tied.get_input_embeddings().weight
    tied.save_pretrained(tmp_path / "tied")
    (script := tmp_path / "shared_out.py").write_text(SHARED_OUT)
    assert run("parallel", "fsdp", "--cpu", "--output", tmp_path / "launch.yaml") == 0
    capsys.readouterr()
    done = spread(tmp_path / "launch.yaml", tmp_path / "tied", tmp_path / "out", program=[script])
    assert done.returncode == 0, done.stderr[-3000:]
    (empty, first), (empty_too, second) = (
        map(int, (tmp_path / f"rank-{rank}").read_text().split()) for rank in (0, 1)
    )
    size = sum(weight.numel() for weight in tied.parameters())
    assert (empty, empty_too) == (0, len(list(tied.named_parameters(remove_duplicate=False))))
    assert first < 0.8 * size
    assert second < 0.8 * size


def test_what_would_not_be_followed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(InputError, match="whet parallel fsdp"), processes.joined(tmp_path):
        pass
    monkeypatch.setattr(processes, "place", lambda: processes.ProcessRank(0, 2, sharded=True))
    monkeypatch.setattr(sharding, "place", processes.place)
    with pytest.raises(InputError, match="fits in every process"):
        sharding.shard(model.build(SMALL, 9, 0))
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    with pytest.raises(InputError, match="does not know fsdp_offload_params"):
        sharding.shard(model.build(SMALL, 9, 0))


@pytest.mark.parametrize("how", ["copies", "fsdp", "deepspeed"])
def test_the_launchers_file_is_what_accelerate_reads(how, tmp_path, capsys):
    from accelerate.commands.config.config_args import load_config_from_file

    file = tmp_path / "launch.yaml"
    assert run("parallel", how, "--processes", 4, "--output", file, "--json") == 0
    assert json.loads(capsys.readouterr().out)["how"] == how
    read = load_config_from_file(str(file))
    assert (read.num_processes, read.use_cpu, read.mixed_precision) == (4, False, "no")
    assert (
        str(read.distributed_type).rpartition(".")[2]
        == {
            "copies": "MULTI_GPU",
            "fsdp": "FSDP",
            "deepspeed": "DEEPSPEED",
        }[how]
    )
    with pytest.raises(InputError, match="exists"):
        run("parallel", how, "--output", file)
    with pytest.raises(InputError, match="2 or more"):
        run("parallel", how, "--processes", 1, "--output", tmp_path / "one.yaml")


def test_memory_is_told_by_what_each_process_holds(tmp_path, capsys):
    base = downloaded(tmp_path / "m")
    sizes = {name: tensor.numel() for name, tensor in load_file(base / "model.safetensors").items()}
    layers = sum(size for name, size in sizes.items() if ".layers." in name)

    def told(how):
        words = ["--processes", 4, "--output", tmp_path / f"{how}.yaml", "--model", base, "--json"]
        assert run("parallel", how, *words) == 0
        return json.loads(capsys.readouterr().out)["bytes_per_process"]

    assert told("copies") == 16 * sum(sizes.values())
    assert told("fsdp") == 16 * (sum(sizes.values()) - layers + layers // 4)
    with pytest.raises(NotFoundError, match=r"no \.safetensors"):
        run("parallel", "fsdp", "--output", tmp_path / "x.yaml", "--model", tmp_path)


def weights(output):
    (found,) = output.rglob("weights-*")
    return model.load(found).weights()


@pytest.mark.parametrize(
    "method",
    [
        ["sft", "--epochs", 3, "--part-tokens", 16],
        ["grpo", "--round-tasks", 4, "--floor", 0, "--part-tokens", 16, "--off-policy"],
    ],
)
def test_two_processes_train_to_the_weights_of_one(method, recorded, tmp_path):
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
