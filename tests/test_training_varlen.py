"""Attention by entries of any length against bands; the kernel's own where there is a GPU."""

import random

import pytest
import torch
from torch.nn import functional

from whet.learn.training.packing import attend, plan


@pytest.fixture(scope="module")
def varlen():
    """Imported here: torch compiles its compiler for it, a second of processor time in each process of the tests."""
    return pytest.importorskip("whet.learn.training.varlen", reason="torch has no varlen_attn before 2.10")


def forest(rng):
    """Sequences that share beginnings to several depths, one that repeats another, and one that stands alone."""
    trunk = [rng.randrange(100) for _ in range(rng.randrange(17, 60))]
    rows = [trunk, list(trunk)]
    for _ in range(rng.randrange(2, 7)):
        parent = rng.choice(rows)
        cut = rng.randrange(1, len(parent) + 1)
        rows.append([*parent[:cut], *(rng.randrange(100) for _ in range(rng.randrange(1, 40)))])
    return [*rows, [rng.randrange(100) for _ in range(rng.randrange(1, 9))]]


def one_by_one(q, k, v, entries, scale, *, late=0):
    """What the kernel computes, entry by entry; of `late` tokens too many each sees the next."""
    outputs = []
    for number in range(len(entries.queries) - 1):
        mine = slice(entries.queries[number], entries.queries[number + 1])
        theirs = slice(entries.keys[number], entries.keys[number + 1])
        own, keys, values = (x.transpose(0, 1) for x in (q[mine], k[theirs], v[theirs]))
        assert own.shape[1] <= entries.most_queries
        assert keys.shape[1] <= entries.most_keys
        seen = torch.ones(own.shape[1], keys.shape[1], dtype=torch.bool)
        seen = seen.tril(keys.shape[1] - own.shape[1] + late)
        out = functional.scaled_dot_product_attention(
            own[None], keys[None], values[None], attn_mask=seen, scale=scale, enable_gqa=True
        )
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("seed", range(6))
def test_a_token_sees_what_lies_before_it_in_its_own_sequence_and_nothing_else(varlen, seed):
    rows = forest(random.Random(seed))
    layout = plan(rows, [range(len(row)) for row in rows])
    results = []
    for along in (attend, lambda *inputs, **s: varlen.attend(*inputs, kernel=one_by_one, **s)):
        generator = torch.Generator().manual_seed(seed)
        shapes = [(len(layout.ids), heads, 16) for heads in (4, 2, 2)]
        inputs = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        out = along(layout, *inputs, scale=0.3)
        (out * torch.arange(16)).sum().backward()
        results.append([out, *(tensor.grad for tensor in inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_sequences_that_share_nothing_are_not_gathered(varlen):
    layout = plan([[1, 2, 3], [4, 5]], [[0], [0]])
    assert varlen.entries_of(layout).context is None
    assert varlen.entries_of(layout).queries.tolist() == varlen.entries_of(layout).keys.tolist() == [0, 2, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_differs_is_found_out(varlen, dtype):
    device, shape = torch.device("cpu"), {"width": 16, "heads": 4, "groups": 2}
    assert varlen.agrees(one_by_one, device, dtype, **shape)
    assert not varlen.agrees(lambda *given: one_by_one(*given, late=1), device, dtype, **shape)
    assert not varlen.agrees(lambda *given: one_by_one(*given).detach() + given[0], device, dtype, **shape)


def test_a_processor_and_float32_have_bands(varlen):
    for dtype in (torch.float32, torch.bfloat16):
        assert not varlen.usable(torch.zeros(1, 4, 16, dtype=dtype), torch.zeros(1, 2, 16, dtype=dtype))


def test_each_torch_is_told_in_its_own_words(varlen):
    first = {"query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k", "return_aux"}
    assert varlen.settings_of(first | {"is_causal"}, 0.3) == {"is_causal": True}  # 2.10
    later = first | {"window_size", "scale"}
    assert varlen.settings_of(later, 0.3) == {"window_size": (-1, 0), "scale": 0.3}  # 2.11
    assert varlen.settings_of(later | {"enable_gqa"}, None) == {"window_size": (-1, 0), "enable_gqa": True}
    assert {"window_size", "is_causal"} & varlen._known, "a torch with words of its own"


def test_a_kernel_that_does_not_hear_the_scale_is_found_out(varlen):
    def deaf(q, k, v, entries, scale):
        return one_by_one(q, k, v, entries, None)

    assert not varlen.agrees(deaf, torch.device("cpu"), torch.bfloat16, width=16, heads=4, groups=2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel needs a GPU")
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (14, 2)])
def test_the_kernel_agrees_on_a_gpu(varlen, width, heads, groups):
    q = torch.zeros(1, heads, width, dtype=torch.bfloat16, device="cuda")
    assert varlen.usable(q, q[:, :groups])
