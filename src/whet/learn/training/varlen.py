"""Attention along a Layout by flash attention over sequences of any length: one kernel for a whole part on a CUDA GPU.

Bands (`packing.py`) are padded to one length and masked by a tensor.  Here each sequence is one entry of torch's
`varlen_attn` (Dao 2023): the queries of the tokens that it owns over the keys along its whole path, of which the last
query sees the last key.  The kernel takes 16-bit numbers alone; bands do the rest, and all that is on a processor.
Its backward pass adds up in no fixed order, so two runs of one step differ by rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from .packing import Layout, plan
from .packing import attend as banded

WIDEST = 256
"""Width of a head above which there is no kernel."""
_ODD_SCALE = 0.3
"""That no width has by itself: a kernel that takes no scale must be told it by its queries."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """The sequences of a layout as the kernel wants them."""

    context: Tensor | None
    """(C,) where in the flat row the keys of each entry lie, entry after entry; None where it is the flat row."""
    queries: Tensor
    """(E + 1,) where the queries of each entry begin, and where the last ones end."""
    keys: Tensor
    """(E + 1,) the same of its keys."""
    most_queries: int
    most_keys: int


Kernel = Callable[[Tensor, Tensor, Tensor, Stretches, float | None], Tensor]
"""(T, heads, width) queries, (C, kv heads, width) keys and values, their entries and a scale → (T, heads, width)."""

_last: list[tuple[Layout, Stretches]] = []
"""Those of the layout that was asked for last: all layers of a pass ask for one."""


def usable(q: Tensor, k: Tensor) -> bool:
    """True where the kernel can be used, and has been seen to agree with bands."""
    fits = q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] <= WIDEST and q.shape[-1] % 8 == 0
    if q.device.type != "cuda" or not fits:
        return False
    return _seen_to_agree(q.device, q.dtype, q.shape[-1], q.shape[1], k.shape[1])


@lru_cache(maxsize=16)
def _seen_to_agree(device: torch.device, dtype: torch.dtype, width: int, heads: int, groups: int) -> bool:
    try:
        return agrees(flash, device, dtype, width=width, heads=heads, groups=groups)
    except Exception:  # an older GPU than the kernel was built for, say; bands do without one
        return False


def agrees(
    kernel: Kernel, device: torch.device, dtype: torch.dtype, *, width: int, heads: int, groups: int
) -> bool:
    """True if values and gradients are those of bands on a small forest.

    A query that sees a token too many differs by about the values' own size.
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
    weights = torch.arange(1, width + 1, device=device)
    results: list[list[Tensor]] = []
    with torch.enable_grad():
        for along in (banded, partial(attend, kernel=kernel)):
            inputs = [tensor.clone().requires_grad_() for tensor in drawn]
            out = along(layout, *inputs, scale=_ODD_SCALE)
            (out.float() * weights).sum().backward()  # type: ignore[no-untyped-call]
            results.append([out.detach(), *(tensor.grad for tensor in inputs if tensor.grad is not None)])
    near = 1e-4 if dtype is torch.float32 else 0.05
    return len(results[0]) == len(results[1]) and all(
        float((one.float() - other.float()).norm()) <= near * float(one.float().norm())
        for one, other in zip(*results, strict=True)
    )


def settings_of(known: Collection[str], scale: float | None) -> dict[str, Any]:
    """How a torch whose `varlen_attn` has these parameters is told what is wanted: 2.10 has other words than 2.11.

    Without a word for the scale, it has to be in the queries.
    """
    settings: dict[str, Any] = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    settings |= {"enable_gqa": True} if "enable_gqa" in known else {}
    return settings | ({"scale": scale} if scale is not None and "scale" in known else {})


_known = frozenset(inspect.signature(varlen_attn).parameters)


def flash(q: Tensor, k: Tensor, v: Tensor, entries: Stretches, scale: float | None) -> Tensor:
    """The Kernel of torch."""
    settings = settings_of(_known, scale)
    if scale is not None and "scale" not in settings:
        q = q * (scale * q.shape[-1] ** 0.5)
    limits = (entries.queries, entries.keys, entries.most_queries, entries.most_keys)
    out = varlen_attn(q, k, v, *limits, **settings)
    assert isinstance(out, Tensor)  # without its logsumexp, which nobody asked for
    return out


def attend(
    layout: Layout, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, kernel: Kernel = flash
) -> Tensor:
    """As `packing.attend`: (T, heads, width) queries over (T, kv heads, width) keys and values."""
    entries = entries_of(layout)
    if entries.context is not None:
        k, v = (tensor.index_select(0, entries.context) for tensor in (k, v))
    return kernel(q.contiguous(), k.contiguous(), v.contiguous(), entries, scale)


def entries_of(layout: Layout) -> Stretches:
    """The entries of a layout, on its device."""
    if _last and _last[0][0] is layout:
        return _last[0][1]
    device = layout.ids.device
    lengths = np.array([len(path) for path in layout.paths])
    owned = lengths - np.array(layout.starts)
    bounds = [np.concatenate(([0], np.cumsum(counts))).astype(np.int32) for counts in (owned, lengths)]
    # Entries stand in the order of the flat row, so that queries are not gathered.
    context = torch.from_numpy(np.concatenate(layout.paths)) if any(layout.starts) else None
    entries = Stretches(
        context=None if context is None else context.to(device),
        queries=torch.from_numpy(bounds[0]).to(device),
        keys=torch.from_numpy(bounds[1]).to(device),
        most_queries=int(owned.max()),
        most_keys=int(lengths.max()),
    )
    _last[:] = [(layout, entries)]
    return entries
