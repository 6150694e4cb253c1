"""What a part of a step takes in memory: the arithmetic against what autograd keeps."""

import random
from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from whet.learn.training import huggingface
from whet.learn.training.batch import Merged, parts
from whet.learn.training.memory import Shape, layer_bytes, logit_bytes, part_bytes, part_tokens_for
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.network import predict

SMALL = Shape(hidden=64, layers=2, ffn=152, vocabulary=150, queries=64, keys=32)
ELEVEN_MILLION = Shape(hidden=384, layers=6, ffn=1024, vocabulary=4_000, queries=384, keys=384)
SEVEN_BILLION = Shape(
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
    shape = Shape(
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
    assert logit_bytes(SEVEN_BILLION, 100_000, 100_000) == logit_bytes(SEVEN_BILLION, 1_000, 1_000)
    whole = replace(SEVEN_BILLION, whole_logits=True)
    assert logit_bytes(whole, 4_000, 4_000) > 5 * logit_bytes(SEVEN_BILLION, 4_000, 4_000)


def test_parts_are_as_large_as_is_faster_on_a_processor():
    assert part_tokens_for(SMALL, 16 * GIB) == 4_096
    assert part_tokens_for(ELEVEN_MILLION, 16 * GIB) == 1_024


def test_parts_are_as_large_as_fits_on_an_accelerator():
    chosen = {room: part_tokens_for(SEVEN_BILLION, room * GIB) for room in (4, 8, 16, 64)}
    assert chosen[4] < chosen[8] < chosen[16] < chosen[64]
    for room, tokens in chosen.items():
        assert part_bytes(SEVEN_BILLION, tokens) <= room * GIB / 2
    again = replace(SEVEN_BILLION, recompute=True)
    assert part_tokens_for(again, 8 * GIB) > chosen[8]


def test_where_memory_is_short_parts_are_small_and_never_none():
    assert part_tokens_for(ELEVEN_MILLION, GIB // 4) < 1_024
    assert part_tokens_for(SEVEN_BILLION, 0) == 64
