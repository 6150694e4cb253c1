"""Attention by one kernel over the flat row, against bands; on a processor, uncompiled."""

import random

import pytest
import torch

from whet.learn.training import flexible
from whet.learn.training.packing import attend, plan

# Compiling takes a minute, and the question here is who sees whom.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def forest(rng):
    """Sequences that share beginnings to several depths, one that repeats another, and one that stands alone."""
    trunk = [rng.randrange(100) for _ in range(rng.randrange(17, 60))]
    rows = [trunk, list(trunk)]
    for _ in range(rng.randrange(2, 7)):
        parent = rng.choice(rows)
        cut = rng.randrange(1, len(parent) + 1)
        rows.append([*parent[:cut], *(rng.randrange(100) for _ in range(rng.randrange(1, 40)))])
    return [*rows, [rng.randrange(100) for _ in range(rng.randrange(1, 9))]]


@pytest.mark.parametrize("seed", range(6))
def test_a_token_sees_what_lies_before_it_in_its_own_sequence_and_nothing_else(seed):
    rng = random.Random(seed)
    rows = forest(rng)
    layout = plan(rows, [range(len(row)) for row in rows])
    branch, limit = flexible.branches(layout)
    positions = layout.positions.numpy()
    visible = (positions[None] <= positions[:, None]) & (
        positions[None] < limit[branch[:, None], branch[None]]
    )
    for band in layout.bands:
        for path in band.path.numpy():
            length = next(n for n, row in enumerate([*path, -1]) if n == len(path) or positions[row] != n)
            for place in range(length):
                assert set(visible[path[place]].nonzero()[0]) == set(path[: place + 1])


def test_values_are_those_of_bands():
    rows = forest(random.Random(3))
    layout = plan(rows, [range(len(row)) for row in rows])
    drawn = [torch.randn(len(layout.ids), heads, 16) for heads in (4, 2, 2)]
    one, other = (along(layout, *drawn, scale=0.3) for along in (flexible.attend, attend))
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_kernel_that_differs_is_found_out(monkeypatch):
    device = torch.device("cpu")
    assert flexible.agrees(device, torch.float32, width=16, heads=4, groups=2)
    assert flexible.agrees(device, torch.bfloat16, width=16, heads=4, groups=2)
    right = flexible.branches

    def wrong(layout):
        branch, limit = right(layout)
        return branch, limit + 1  # one token too many of each branch that is left

    monkeypatch.setattr(flexible, "branches", wrong)
    flexible._masks.clear()
    assert not flexible.agrees(device, torch.float32, width=16, heads=4, groups=2)
    assert not flexible.usable(torch.zeros(1, 4, 16), torch.zeros(1, 2, 16)), "never on a processor"
