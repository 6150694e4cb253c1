"""Precision, recomputation and bits of pretrained weights, and the dtype in which they are kept."""

import json

import pytest
import torch
from methods_toys import context
from safetensors.torch import load_file
from test_training_processes import answered, run

from whet.errors import InputError
from whet.learn.optimizers.grpo import GRPO
from whet.learn.training import huggingface
from whet.learn.training.batch import Merged, parts
from whet.learn.training.compute import ComputeOptions
from whet.learn.training.huggingface import LoRAOptions
from whet.learn.training.learner import Learner, cloning_loss
from whet.learn.training.local import LocalModels, adopted, use_compute
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.options import AlarmOptions, GRPOOptions, OptimOptions, SFTOptions
from whet.types import Bundle, new_id

SLOW = OptimOptions(learning_rate=1e-5, muon=False, schedule="constant", betas=(0.9, 0.95))


def written(folder, dtype=torch.float32):
    """A Llama of random weights in a folder."""
    from transformers import LlamaConfig, LlamaForCausalLM  # seconds to import

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=120,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    LlamaForCausalLM(config).to(dtype).save_pretrained(folder)
    return folder


def sequences():
    return [
        Merged(unit, [1, 2, 3 + unit, 4, 5, 6, 7 + unit, 8], [4, 5, 6, 7], [0.0] * 4) for unit in range(6)
    ]


def trained(network, updates, options=SLOW):
    learner = Learner(network, options)
    cut = parts(sequences(), 16)
    losses = [learner.update(cut, cloning_loss(cut), rate=options.learning_rate)[0] for _ in range(updates)]
    return learner, losses


def test_updates_too_small_for_bfloat16_are_kept_in_float32(tmp_path):
    folder = written(tmp_path / "m", torch.bfloat16)
    whole = huggingface.load(folder)
    half = huggingface.load(folder, compute=ComputeOptions(dtype="bfloat16"))
    start = {name: weight.detach().clone() for name, weight in half.weights().items()}
    # 20 steps of 1e-5 from a weight of about 0.02: each one is a fifth of what bfloat16 can tell apart there.
    one, _ = trained(whole, 20)
    other, _ = trained(half, 20)
    name = "model.layers.0.mlp.down_proj.weight"
    assert half.weights()[name].dtype is torch.bfloat16
    moved = one.optimizer.values()[name] - start[name].float()
    kept = other.optimizer.values()[name] - start[name].float()
    assert float(torch.nn.functional.cosine_similarity(moved.flatten(), kept.flatten(), dim=0)) > 0.95
    assert torch.equal(half.weights()[name], other.optimizer.values()[name].bfloat16())
    # What bfloat16 alone would have come to: an update that rounds to nothing, every time.
    alone = start[name].clone()
    for _ in range(20):
        alone += (moved / 20).bfloat16()
    assert float((alone - start[name]).abs().sum()) < 0.7 * float(moved.abs().sum())


def test_a_bfloat16_learner_resumes_with_its_masters(tmp_path):
    load = lambda: huggingface.load(written(tmp_path / "m"), compute=ComputeOptions(dtype="bfloat16"))  # noqa: E731
    learner, _ = trained(load(), 3)
    saved = learner.save(tmp_path / "state")
    again = Learner(load(), SLOW)
    again.restore(tmp_path / "state", saved)
    cut = parts(sequences(), 16)
    for one in (learner, again):
        one.update(cut, cloning_loss(cut), rate=1e-5)
    mine, theirs = learner.optimizer.values(), again.optimizer.values()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    before = learner.snapshot()
    learner.update(cut, cloning_loss(cut), rate=1e-2)
    learner.revert(before)
    assert all(torch.equal(learner.optimizer.values()[name], before[name]) for name in before)


def kept_for_the_backward_pass(network):
    """Bytes that a forward pass keeps, weights aside."""
    sizes = {}
    weights = {weight.data_ptr() for weight in network.model.parameters()}

    def keep(tensor):
        if tensor.data_ptr() not in weights:
            sizes[tensor.data_ptr(), tensor.numel()] = tensor.numel() * tensor.element_size()
        return tensor

    cut = parts(sequences(), 4096)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network.output(cut[0])
    return sum(sizes.values())


@pytest.mark.parametrize("lora", [None, LoRAOptions(rank=4)])
def test_recomputing_keeps_less_and_changes_nothing(tmp_path, lora):
    folder = written(tmp_path / "m")
    plain = huggingface.load(folder, lora=lora)
    again = huggingface.load(folder, lora=lora, compute=ComputeOptions(recompute=True))
    assert again.packs
    assert again.layers(), "layers are still found by their name"
    assert kept_for_the_backward_pass(again) < 0.5 * kept_for_the_backward_pass(plain)
    # A copy, as a reference or a sampler is: its layers recompute by themselves, not by the original's.
    for network in (again, again.copy()):
        one, losses = trained(huggingface.load(folder, lora=lora), 2)
        other, same = trained(network, 2)
        assert losses == same
        mine, theirs = one.optimizer.values(), other.optimizer.values()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_full_weights_are_saved_in_the_dtype_they_came_in(tmp_path):
    network = huggingface.load(written(tmp_path / "m", torch.bfloat16))
    assert next(iter(network.weights().values())).dtype is torch.float32
    network.copy().save(tmp_path / "saved")
    assert {t.dtype for t in load_file(tmp_path / "saved" / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "saved" / "config.json").read_bytes())["dtype"] == "bfloat16"
    assert huggingface.load(tmp_path / "saved").saved_as is torch.bfloat16


def test_factors_learn_beside_weights_of_four_bits(tmp_path):
    pytest.importorskip("bitsandbytes")
    folder = written(tmp_path / "m")
    options = ComputeOptions(four_bit=True)
    network = huggingface.load(folder, lora=LoRAOptions(rank=8), compute=options)
    frozen = network.model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight
    assert frozen.dtype is torch.uint8
    assert network.packs
    twin = network.copy()
    assert twin.model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight is frozen
    _, losses = trained(network, 8, OptimOptions(learning_rate=1e-2, muon=False))
    assert losses[-1] < losses[0] - 0.3
    network.save(tmp_path / "factors")
    base = {"path": str(folder), "sha256": None}
    loaded = huggingface.load_adapter(tmp_path / "factors", base, compute=options)
    cut = parts(sequences(), 4096)
    assert torch.equal(loaded.output(cut[0]).states, network.output(cut[0]).states)


def test_what_is_not_there_is_refused_in_a_sentence(tmp_path, capsys):
    for options, why in (
        (ComputeOptions(device="cuda:7"), "there is no device cuda:7 here"),
        (ComputeOptions(four_bit=True), "train LoRA factors beside them"),
    ):
        with pytest.raises(InputError, match=why):
            huggingface.load(written(tmp_path / "m"), compute=options)
    with pytest.raises(InputError, match="is no device"):
        ComputeOptions(device="gpu")
    words = ["train", "sft", "--data", answered(tmp_path / "d.jsonl"), "--model", tmp_path / "m"]
    with pytest.raises(InputError, match="--lora-rank 16"):
        run(*words, "--output", tmp_path / "out", "--four-bit")


def test_a_command_trains_in_bfloat16_and_recomputes(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalModels, "_shared", LocalModels())
    data = answered(tmp_path / "d.jsonl")
    folder = written(tmp_path / "m", torch.bfloat16)
    words = ["train", "sft", "--data", data, "--model", folder, "--output", tmp_path / "out", "--epochs", 1]
    words += ["--ids-only", "--optim.learning-rate", "1e-3"]
    assert run(*words, "--dtype", "bfloat16", "--recompute") == 0
    assert LocalModels.shared().compute == ComputeOptions(dtype="bfloat16", recompute=True)
    weights = load_file(next((tmp_path / "out").rglob("weights-*")) / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    use_compute(ComputeOptions())


def test_defaults_know_what_is_trained_and_how(tmp_path):
    folder = written(tmp_path / "m")
    full, factors = huggingface.load(folder), huggingface.load(folder, lora=LoRAOptions(rank=2))
    fresh = build(ModelOptions(), 20, 0)
    rate = {
        (kind, method): Learner(network.copy(), options.optim, rates=options.rates).options
        for kind, network in (("fresh", fresh), ("full", full), ("factors", factors))
        for method, options in (("sft", SFTOptions()), ("grpo", GRPOOptions()))
    }
    assert [rate[kind, "sft"].learning_rate for kind in ("fresh", "full", "factors")] == [3e-3, 2e-5, 2e-4]
    assert [rate[kind, "grpo"].learning_rate for kind in ("fresh", "full", "factors")] == pytest.approx(
        [1e-3, 1e-6, 1e-5]
    )
    assert [rate[kind, "grpo"].muon for kind in ("fresh", "full", "factors")] == [True, False, False]
    # A pretrained model warms up where it is shown text, and keeps its rate where it samples its own.
    cloned, reinforced = rate["full", "sft"], rate["full", "grpo"]
    assert [cloned.rate(step, 100) for step in (0, 2, 99)] == pytest.approx([2e-5 / 3, 2e-5, 2e-6], rel=0.01)
    assert {reinforced.rate(step, 100) for step in range(100)} == {1e-6}
    # What is asked for is what is done.
    asked = OptimOptions(learning_rate=5e-4, muon=True, warmup=0, schedule="linear")
    assert Learner(full.copy(), asked, rates=SFTOptions.rates).options == asked


def test_a_reference_is_kept_only_where_it_is_asked_for(tmp_path):
    folder = written(tmp_path / "m")
    for options, lora, kept in (
        (GRPOOptions(), None, False),
        (GRPOOptions(kl_coefficient=0.04), None, True),
        (GRPOOptions(kl_every=5), None, True),
        (GRPOOptions(alarms=AlarmOptions(max_kl=1.0)), None, True),
        (GRPOOptions(), LoRAOptions(rank=2), True),  # it costs its factors alone
    ):
        models = LocalModels()
        start = Bundle([adopted("policy", folder, tmp_path / new_id(), lora=lora)])
        optimizer = GRPO(options, models=models)
        optimizer._begin(start, context(tmp_path))
        assert (optimizer._reference is not None) == kept
        if kept and lora is not None:
            mine, theirs = (
                network.model.get_base_model().model.layers[0].mlp.up_proj.base_layer.weight
                for network in (optimizer._reference, optimizer._learner.decoder)
            )
            assert mine is theirs
