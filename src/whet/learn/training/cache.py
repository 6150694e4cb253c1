"""The key-value cache of many contexts, and the forward that extends it.

One row per context, allocated for the longest so far.  New tokens are computed
packed, without padding; only attention sees them padded.  Rows that lie close
together are attended to in place, others are gathered first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .forward import Fused, feed_forward, normalise, rotate, rotations
from .model import ModelOptions
from .packing import scaled_attention

_PREFILL_CELLS = 1 << 21
"""Attention scores held at once, batch × heads × new × context; more does not stay in the cache."""


class Slot:
    """One conversation's row of a cache, freed with the last reference to it.

    Args:
        held: whoever made it keeps it from answer to answer; else it is given up with the answer.
    """

    __slots__ = ("cache", "cached", "held", "row", "weights")

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.cache: Cache | None = None
        self.row = -1
        self.cached = 0
        """Ids whose keys and values are in the row."""
        self.weights: Fused | None = None
        """The weights that they were computed with."""

    def free(self) -> None:
        """Return the row."""
        if self.cache is not None:
            self.cache.release(self.row)
            self.cache = None

    def __del__(self) -> None:
        self.free()


class Cache:
    """Keys and values, per layer (rows, kv heads, length, width)."""

    def __init__(self, options: ModelOptions) -> None:
        self.options = options
        self.rows = self.length = 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._free: list[int] = []

    @property
    def used(self) -> int:
        """Rows that slots hold."""
        return self.rows - len(self._free)

    def acquire(self) -> int:
        """A free row, the lowest."""
        if not self._free:
            grown = max(16, 2 * self.rows)
            self._free = list(range(self.rows, grown))
            self._resize(grown, self.length)
        return heapq.heappop(self._free)

    def release(self, row: int) -> None:
        """Give a row back."""
        heapq.heappush(self._free, row)

    def _resize(self, rows: int, length: int) -> None:
        options = self.options
        shape = (rows, options.kv_heads, length, options.head_width)
        for tensors in (self.keys, self.values):
            # Zeros and not `empty`: a masked key weighs 0, and 0 times a NaN of unused memory is NaN.
            fresh = [torch.zeros(shape) for _ in range(options.layers)]
            if self.rows and self.length:
                for new, old in zip(fresh, tensors, strict=True):
                    new[: self.rows, :, : self.length] = old
            tensors[:] = fresh
        self.rows, self.length = rows, length

    def _reserve(self, length: int) -> None:
        if length > self.length:
            self._resize(self.rows, min(self.options.max_length, max(length, 2 * self.length, 64)))

    def forward(
        self, fused: Fused, rows: np.ndarray, past: np.ndarray, new: Sequence[Sequence[int]]
    ) -> Tensor:
        """Extend these contexts by their new ids.

        Args:
            rows: (B,) cache rows, ascending.
            past: (B,) ids cached already.
            new: B lists of at least one id.

        Returns:
            (B, hidden): the normalised last hidden state after each context's last id.
        """
        first: dict[tuple[int, ...], int] = {}
        # Only contexts with nothing cached can share: equal new ids after another past have other states.
        source = np.array([i if past[i] else first.setdefault(tuple(ids), i) for i, ids in enumerate(new)])
        unique, inverse = np.unique(source, return_inverse=True)
        if len(unique) == len(new):
            return self._in_parts(fused, rows, past, new)
        # the rollouts of one task begin alike: compute the beginning once and copy it
        states = self._in_parts(fused, rows[unique], past[unique], [new[i] for i in unique.tolist()])
        # Copied after the forward: it may have grown the cache, which makes new tensors.
        copies = np.flatnonzero(source != np.arange(len(new)))
        length = max(len(new[i]) for i in copies.tolist())
        into, out_of = torch.from_numpy(rows[copies]), torch.from_numpy(rows[source[copies]])
        for tensor in (*self.keys, *self.values):
            tensor[into, :, :length] = tensor[out_of, :, :length]
        return states[torch.from_numpy(inverse)]

    def _in_parts(
        self, fused: Fused, rows: np.ndarray, past: np.ndarray, new: Sequence[Sequence[int]]
    ) -> Tensor:
        counts = np.array([len(ids) for ids in new])
        self._reserve(int((past + counts).max()))
        cells = self.options.heads * int(counts.max()) * int((past + counts).max())
        step = max(1, _PREFILL_CELLS // cells)
        if step >= len(new):
            return self._extend(fused, rows, past, counts, new)
        parts = []
        for start in range(0, len(new), step):
            part = slice(start, start + step)
            parts.append(self._extend(fused, rows[part], past[part], counts[part], new[part]))
        return torch.cat(parts)

    def _extend(
        self,
        fused: Fused,
        rows: np.ndarray,
        past: np.ndarray,
        counts: np.ndarray,
        new: Sequence[Sequence[int]],
    ) -> Tensor:
        options = self.options
        heads, kv, width, epsilon = options.heads, options.kv_heads, options.head_width, options.norm_epsilon
        ids = torch.from_numpy(np.concatenate(new).astype(np.int64))
        ends = np.cumsum(counts)
        offset = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        member = np.repeat(np.arange(len(counts)), counts)
        position = torch.from_numpy(past[member] + offset)
        view = _View(self, rows, past, counts, member, offset)
        # Keys are kept rotated, at the position that they have in their own context.
        rotation = rotations(options, self.options.max_length)[position]
        last = torch.from_numpy(ends - 1)
        x = F.embedding(ids, fused.embedding)
        for number, layer in enumerate(fused.layers):
            final = number == len(fused.layers) - 1
            normal = normalise(x, epsilon)
            if not final:
                qkv = F.linear(normal, layer.qkv, layer.qkv_bias).view(len(ids), -1, width)
                qk = rotate(qkv[:, : heads + kv], rotation)
                view.write(number, qk[:, heads:], qkv[:, heads + kv :])
                attended = view.attend(number, qk[:, :heads])
                x = x + F.linear(attended, layer.out)
            else:  # only the last position of each context is read from here on
                cut = heads * width
                both = F.linear(normal, layer.qkv[cut:], layer.qkv_bias[cut:]).view(len(ids), -1, width)
                view.write(number, rotate(both[:, :kv], rotation), both[:, kv:])
                q = F.linear(normal[last], layer.qkv[:cut], layer.qkv_bias[:cut]).view(-1, heads, width)
                attended = view.attend_last(number, rotate(q, rotation[last]))
                x = x[last] + F.linear(attended, layer.out)
            x = feed_forward(layer, x, epsilon)
        return normalise(x, epsilon)


def _mask(reach: np.ndarray, length: int) -> Tensor:
    """(B, 1, N, length): 0 up to each query's own position, -inf beyond.  Added, as the kernel wants it."""
    hidden = torch.arange(length) > torch.from_numpy(reach).unsqueeze(-1)
    return torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf")).unsqueeze(1)


class _View:
    """The part of the cache that one batch reads and writes."""

    def __init__(
        self,
        cache: Cache,
        rows: np.ndarray,
        past: np.ndarray,
        counts: np.ndarray,
        member: np.ndarray,
        offset: np.ndarray,
    ) -> None:
        self.cache = cache
        self.length = int((past + counts).max())
        self.most = int(counts.max())
        # Rows come ascending; `EmbeddedSteps.logits` sorts them.
        first, beyond = int(rows[0]), int(rows[-1]) + 1
        # attending to a few idle rows costs less than copying the busy ones out
        self.dense = beyond - first <= 2 * len(rows)
        self.first, self.beyond = first, beyond
        slots = rows - first if self.dense else np.arange(len(rows))
        self.batch = beyond - first if self.dense else len(rows)
        self.rows = torch.from_numpy(rows)
        self.slots = torch.from_numpy(slots)
        self.member_rows = torch.from_numpy(rows[member])
        self.positions = torch.from_numpy(past[member] + offset)
        self.packed = torch.from_numpy(slots[member] * self.most + offset)
        # Idle and padded queries reach position 0: a row of the mask with −∞ alone would give NaN.
        reach = np.zeros((self.batch, self.most), dtype=np.int64)
        reach[slots[member], offset] = past[member] + offset
        self.mask = _mask(reach, self.length)
        reach_last = np.zeros((self.batch, 1), dtype=np.int64)
        reach_last[slots, 0] = past + counts - 1
        self.mask_last = self.mask if self.most == 1 else _mask(reach_last, self.length)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store (T, kv heads, width) of the new tokens."""
        self.cache.keys[layer][self.member_rows, :, self.positions] = keys
        self.cache.values[layer][self.member_rows, :, self.positions] = values

    def _read(self, layer: int) -> tuple[Tensor, Tensor]:
        both = self.cache.keys[layer], self.cache.values[layer]
        if self.dense:
            keys, values = (tensor[self.first : self.beyond, :, : self.length] for tensor in both)
        else:
            keys, values = (tensor[:, :, : self.length].index_select(0, self.rows) for tensor in both)
        return keys, values

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """(T, heads, width) → (T, heads · width), each token over its own context so far."""
        heads, width = q.shape[1:]
        padded = q.new_zeros(self.batch * self.most, heads, width)
        padded[self.packed] = q
        padded = padded.view(self.batch, self.most, heads, width).transpose(1, 2)
        out = self._attention(padded, layer, self.mask)
        return out.transpose(1, 2).reshape(self.batch * self.most, heads * width)[self.packed]

    def attend_last(self, layer: int, q: Tensor) -> Tensor:
        """(B, heads, width) → (B, heads · width): the last token of each context over all of it."""
        heads, width = q.shape[1:]
        padded = q.new_zeros(self.batch, heads, width)
        padded[self.slots] = q
        out = self._attention(padded.unsqueeze(2), layer, self.mask_last)
        return out.reshape(self.batch, heads * width)[self.slots]

    def _attention(self, q: Tensor, layer: int, mask: Tensor) -> Tensor:
        keys, values = self._read(layer)
        return scaled_attention(q, keys, values, mask)
