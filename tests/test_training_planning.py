"""The memory of training by a model's headers, before anything is loaded."""

import json
import struct
import subprocess
import sys

import pytest
import torch
from policy_world import downloaded

from whet.cli import app
from whet.errors import InputError, NotFoundError
from whet.learn.training import huggingface
from whet.learn.training.huggingface import LoRAOptions
from whet.learn.training.learner import Learner
from whet.learn.training.options import LORA_TARGETS, OptimOptions
from whet.learn.training.planning import planned, sizes_of


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


@pytest.fixture
def seven(tmp_path):
    """A folder with the headers of a model of 7.6 B weights, and not one of them."""
    config = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    }
    shapes = {"model.embed_tokens.weight": [152064, 3584], "lm_head.weight": [152064, 3584]}
    for layer in range(28):
        for name, shape in (
            ("self_attn.q_proj", [3584, 3584]),
            ("self_attn.k_proj", [512, 3584]),
            ("self_attn.v_proj", [512, 3584]),
            ("self_attn.o_proj", [3584, 3584]),
            ("mlp.gate_proj", [18944, 3584]),
            ("mlp.up_proj", [18944, 3584]),
            ("mlp.down_proj", [3584, 18944]),
        ):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header = json.dumps({name: {"dtype": "BF16", "shape": shape} for name, shape in shapes.items()}).encode()
    folder = tmp_path / "seven"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def on_a_gpu(capsys, folder, *words):
    code = run(
        *("train", "grpo", "--model", folder, "--output", folder / "out", "--device", "cuda", "--json"),
        *words,
    )
    return code, json.loads(capsys.readouterr().out)


def test_seven_billion_weights_train_as_factors_on_a_gpu_of_80_gib_and_not_whole(seven, capsys):
    code, whole = on_a_gpu(capsys, seven, "--plan-for", 80)
    assert (code, whole["fits"], whole["recompute"]) == (1, False, True)
    # Weights in bfloat16; masters, gradients and two moments in float32.
    assert sum(whole["bytes"][name] for name in whole["bytes"] if "part" not in name) == 18 * whole["weights"]
    assert "--lora-rank 16 --recompute" in whole["would_fit"]
    code, factors = on_a_gpu(capsys, seven, "--plan-for", 80, "--lora-rank", 16)
    assert (code, factors["fits"], factors["dtype"]) == (0, True, "bfloat16")
    code, four = on_a_gpu(
        capsys, seven, "--plan-for", 16, "--lora-rank", 16, "--four-bit", "--part-tokens", 1024
    )
    assert four["fits"]
    assert four["bytes"]["weights"] < 0.4 * factors["bytes"]["weights"]
    code, small = on_a_gpu(capsys, seven, "--plan-for", 24, "--lora-rank", 16)
    assert small["recompute"], "where activations would not fit they are computed again"
    assert small["fits"]


@pytest.mark.parametrize("lora", [None, LoRAOptions(rank=4)])
def test_what_is_counted_is_what_a_learner_holds(tmp_path, lora):
    folder = downloaded(tmp_path / "m")
    model = sizes_of(folder)
    network = huggingface.load(folder, lora=lora)
    learner = Learner(network, OptimOptions())
    plan = planned(
        model, device="cpu", dtype="float32", lora_rank=lora.rank if lora else 0, targets=LORA_TARGETS
    )
    held = sum(weight.numel() for weight in network.model.parameters()) * 4
    moments = sum(tensor.numel() * 4 for tensor in learner.optimizer.state().values())
    assert plan.parts["weights"] + plan.parts.get("LoRA factors", 0) == held
    assert plan.parts["moments"] == moments
    assert plan.parts["gradients"] == 4 * sum(weight.numel() for weight in network.weights().values())
    assert "float32 masters" not in plan.parts
    half = planned(model, device="cuda", dtype="bfloat16")
    assert half.parts["float32 masters"] == 2 * half.parts["weights"]


def test_nothing_is_loaded_and_torch_is_not_imported_for_a_device_that_is_elsewhere(seven):
    program = (
        "import sys\nfrom whet.cli import app\n"
        "code = app(sys.argv[1:], result_action='return_value')\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "sys.exit(code)\n"
    )
    words = [
        "train",
        "sft",
        "--model",
        seven,
        "--output",
        seven / "out",
        "--device",
        "cuda",
        "--plan-for",
        200,
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "7,615,283,200 weights" in done.stdout
    assert "fits: 200.00 GiB" in done.stdout
    assert not (seven / "out").exists()


def test_a_reference_and_conversations_count_where_they_are_kept(seven, capsys):
    _, plain = on_a_gpu(capsys, seven, "--plan-for", 200)
    _, watched = on_a_gpu(capsys, seven, "--plan-for", 200, "--alarms.max-kl", 1.0)
    assert "reference" not in plain["bytes"]
    assert watched["bytes"]["reference"] == plain["bytes"]["weights"]
    _, here = on_a_gpu(capsys, seven, "--plan-for", 200, "--env", "world:env")
    _, there = on_a_gpu(capsys, seven, "--plan-for", 200, "--env", "world:env", "--rollouts", "vllm")
    assert "open conversations" in here["bytes"]
    assert "open conversations" not in there["bytes"]


def test_what_cannot_be_planned_is_said(tmp_path, capsys):
    with pytest.raises(InputError, match="webrl may hold others"):
        run("train", "webrl", "--model", tmp_path, "--output", tmp_path / "o", "--plan")
    with pytest.raises(InputError, match="for a pretrained model"):
        run("train", "sft", "--output", tmp_path / "o", "--plan")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"no \.safetensors file"):
        run("train", "sft", "--model", tmp_path / "empty", "--output", tmp_path / "o", "--plan")
    # Here, and by what is free here.
    folder = downloaded(tmp_path / "m")
    assert run("train", "sft", "--model", folder, "--output", tmp_path / "o", "--plan") == 0
    assert f"on {'cuda' if torch.cuda.is_available() else 'cpu'} in" in capsys.readouterr().out
