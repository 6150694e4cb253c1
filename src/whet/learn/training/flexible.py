"""Attention along a Layout by torch's `flex_attention`: one kernel for a whole part on a CUDA GPU.

Bands (`packing.py`) gather each row's keys along its path, which copies them; here every token looks at the flat row
itself, through a mask that knows which branches lead to it.  A block of the mask that nobody looks at is not computed.
On a processor this kernel has no backward pass, so bands are used there; the tests compare the values of the two.
This module is loaded where a tensor is on a GPU: the kernel's own takes a second, and is there from torch 2.5 on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .packing import Layout, plan
from .packing import attend as banded

NARROWEST = 16
"""Width of a head below which the kernel does not go."""


_masks: list[tuple[Layout, Any]] = []
"""The mask of the layout that was asked for last: all layers of a pass ask for one."""


def usable(q: Tensor, k: Tensor) -> bool:
    """True where the kernel is faster than bands, and has been seen to agree with them."""
    if q.device.type != "cuda" or q.shape[-1] < NARROWEST:
        return False
    return _seen_to_agree(q.device, q.dtype, q.shape[-1], q.shape[1], k.shape[1])


@lru_cache(maxsize=16)
def _seen_to_agree(device: torch.device, dtype: torch.dtype, width: int, heads: int, groups: int) -> bool:
    try:
        return agrees(device, dtype, width=width, heads=heads, groups=groups)
    except Exception:  # compilers fail in many ways, and bands do without one
        return False


def agrees(device: torch.device, dtype: torch.dtype, *, width: int, heads: int, groups: int) -> bool:
    """True if values, and gradients but on a processor, are those of bands on a small forest.

    A wrong mask differs by about their own size.
    """
    rows = [
        [*range(40)],
        [*range(24), *range(90, 120)],
        [*range(24), *range(90, 108), *range(60, 75)],
        [7] * 9,
    ]
    layout = plan(rows, [range(len(row)) for row in rows]).to(device)
    generator = torch.Generator().manual_seed(0)
    shapes = [(len(layout.ids), number, width) for number in (heads, groups, groups)]
    drawn = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
    results: list[list[Tensor]] = []
    trains = device.type != "cpu"  # the kernel has no backward pass there
    with torch.set_grad_enabled(trains):
        for along in (attend, banded):
            inputs = [tensor.clone().requires_grad_(trains) for tensor in drawn]
            out = along(layout, *inputs)
            if trains:
                weights = torch.arange(1, width + 1, device=device)
                (out.float() * weights).sum().backward()  # type: ignore[no-untyped-call]
            results.append([out, *(tensor.grad for tensor in inputs if tensor.grad is not None)])
    near = 1e-4 if dtype is torch.float32 else 0.05
    return all(
        float((one.float() - other.float()).norm()) <= near * float(other.float().norm())
        for one, other in zip(*results, strict=True)
    )


def attend(layout: Layout, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """As `packing.attend`: (T, heads, width) queries over (T, kv heads, width) keys and values."""
    flat = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    out: Tensor = _kernel()(*flat, block_mask=_mask(layout, q.device), scale=scale, enable_gqa=grouped)
    return out[0].transpose(0, 1)


@lru_cache(maxsize=1)
def _kernel() -> Any:
    """The kernel, compiled where it can be."""
    # Uncompiled it makes the whole matrix of scores: right, and slow.
    return torch.compile(flex_attention, dynamic=True) if torch.cuda.is_available() else flex_attention


def _mask(layout: Layout, device: torch.device) -> Any:
    if _masks and _masks[0][0] is layout:
        return _masks[0][1]
    branch, limit = (torch.from_numpy(values).to(device) for values in branches(layout))
    positions = layout.positions.to(device)

    def visible(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
        before = positions[key] <= positions[query]
        return before & (positions[key] < limit[branch[query], branch[key]])

    count = len(positions)
    mask = create_block_mask(visible, None, None, count, count, device=str(device))
    _masks[:] = [(layout, mask)]
    return mask


def branches(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """(T,) the branch of each token, and (B, B) the position before which one branch sees another."""
    rows: list[tuple[np.ndarray, int]] = []
    branch = np.zeros(len(layout.ids), dtype=np.int64)
    for band in layout.bands:
        path, slots = band.path.cpu().numpy(), band.slots.cpu().numpy()
        width = path.shape[1] - band.start
        for row in range(len(path)):
            columns = slots[slots // width == row] % width + band.start
            first, beyond = int(columns.min()), int(columns.max()) + 1
            branch[path[row, first:beyond]] = len(rows)
            rows.append((path[row, :first], beyond))
    limit = np.zeros((len(rows), len(rows)), dtype=np.int64)
    for number, (shared, beyond) in enumerate(rows):
        # Positions rise along the path: of those on one branch the last stays, one less than the limit.
        limit[number, branch[shared]] = np.arange(1, len(shared) + 1)
        limit[number, number] = beyond
    return branch, limit
