"""What a part of a step takes in memory: the arithmetic against what autograd keeps."""

import asyncio
import json
import random
from dataclasses import replace

import pytest
import torch
from methods_toys import beginning, collect, context, tasks
from torch.autograd.graph import saved_tensors_hooks

from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training import huggingface
from whet.learn.training.batch import Merged, parts
from whet.learn.training.local import LocalModels
from whet.learn.training.memory import NetworkShape, layer_bytes, logit_bytes, part_bytes, part_tokens_for
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.network import predict
from whet.types import Version

SMALL = NetworkShape(hidden=64, layers=2, ffn=152, vocabulary=150, queries=64, keys=32)
ELEVEN_MILLION = NetworkShape(hidden=384, layers=6, ffn=1024, vocabulary=4_000, queries=384, keys=384)
SEVEN_BILLION = NetworkShape(
    hidden=4_096,
    layers=32,
    ffn=14_336,
    vocabulary=128_256,
    queries=4_096,
    keys=1_024,
    dtype_bytes=2,
    on_cpu=False,
)
GIB = 1 << 30


def kept_for_backward(network, part):
    """Bytes of distinct tensors that autograd holds after a forward pass, weights left out."""
    weights = {weight.untyped_storage().data_ptr() for weight in network.weights().values()}
    sizes = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        (-predict(network, part).chosen.sum()).requires_grad_()
    return sum(sizes.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [64, 320])
@pytest.mark.parametrize("kv_heads", [2, 8])
def test_a_layer_keeps_what_the_arithmetic_says(dtype, length, kv_heads):
    rng, words = random.Random(0), 50
    rows = [[rng.randrange(words) for _ in range(length)] for _ in range(4)]
    (part,) = parts([Merged(n, row, [length - 1], [0.0]) for n, row in enumerate(rows)], 10**9)
    kept = []
    for layers in (1, 3):
        options = ModelOptions(hidden=128, layers=layers, heads=8, kv_heads=kv_heads, ffn=200)
        network = huggingface.CausalLM(to_transformers(build(options, words, 0)).to(dtype))
        assert network.packs
        kept.append(kept_for_backward(network, part))
    shape = NetworkShape(
        hidden=128,
        layers=1,
        ffn=200,
        vocabulary=words,
        queries=128,
        keys=16 * kv_heads,
        dtype_bytes=dtype.itemsize,
    )
    assert layer_bytes(shape, part.computed, length=length) == pytest.approx(
        (kept[1] - kept[0]) / 2, rel=0.07
    )


def test_logits_are_counted_by_the_piece_and_whole_ones_by_the_token():
    assert logit_bytes(SEVEN_BILLION, 100_000, 100_000) == logit_bytes(SEVEN_BILLION, 5_000, 5_000)
    whole = replace(SEVEN_BILLION, whole_logits=True)
    assert logit_bytes(whole, 8_000, 8_000) > 3 * logit_bytes(SEVEN_BILLION, 8_000, 8_000)


def test_parts_are_as_large_as_is_faster_on_a_processor():
    assert part_tokens_for(SMALL, 16 * GIB) == 4_096
    assert part_tokens_for(ELEVEN_MILLION, 16 * GIB) == 1_024


def test_parts_are_as_large_as_fits_on_an_accelerator():
    chosen = {room: part_tokens_for(SEVEN_BILLION, room * GIB) for room in (16, 32, 64, 128)}
    assert chosen[16] < chosen[32] < chosen[64] < chosen[128]
    for room, tokens in chosen.items():
        assert part_bytes(SEVEN_BILLION, tokens) <= room * GIB / 2
    again = replace(SEVEN_BILLION, recompute=True)
    assert part_tokens_for(again, 16 * GIB) > chosen[16]


def test_where_memory_is_short_parts_are_small():
    assert part_tokens_for(ELEVEN_MILLION, GIB // 4) < 1_024
    assert part_tokens_for(SEVEN_BILLION, 0) == 256


def test_a_method_that_is_not_told_asks_the_model_s_shape(tmp_path):
    config = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1024, "vocab_size": 4_000}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_attention_heads": 6}))
    models = LocalModels()
    version = Version(resource="policy", kind="weights", content={"path": str(tmp_path)})
    assert models.sized(SFTOptions(), version).part_tokens == 1_024
    assert models.sized(SFTOptions(part_tokens=77), version).part_tokens == 77
    elsewhere = Version(resource="policy", kind="weights", content={"path": str(tmp_path / "gone")})
    assert models.sized(SFTOptions(), elsewhere).part_tokens == 4_096


def test_training_computes_in_parts_that_suit_the_model(tmp_path):
    models, start = LocalModels(), beginning(tmp_path)
    groups = asyncio.run(collect(start, tasks(8), 4, models=models))
    for optimizer in (
        SFT(SFTOptions(epochs=1, keep="all"), models=models),
        GRPO(GRPOOptions(steps=1), models=models),
    ):
        assert optimizer.options.part_tokens is None
        asyncio.run(optimizer.step(start, groups, context(tmp_path)))
        assert optimizer.options.part_tokens == 4_096
