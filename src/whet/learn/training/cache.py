"""The key-value cache of many contexts, whatever network it is of.

One row per context, allocated for the longest so far.  New tokens are computed
packed, without padding; only attention sees them padded.  Rows that lie close
together are attended to in place, others are gathered first.

A row stays when its answer is done, so that the next turn of the conversation reads what is new
alone.  What lies there unused is bounded by bytes: the conversation used longest ago gives its row
up, and reads its context again if it goes on.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from .packing import scaled_attention

CACHE_BYTES = 4 << 30
"""Bytes up to which conversations that nobody is answering keep their rows."""
_CHUNK = 1024
"""New ids of one context that are read at once; the mask of more would outgrow the weights."""
_PREFILL_CELLS = {"cpu": 1 << 21}
"""Attention scores held at once, batch × heads × new × context; more does not stay in a processor's cache."""
_PREFILL_CELLS_ELSEWHERE = 1 << 28

Extend = Callable[["View", Tensor, Tensor, Tensor], Tensor]
"""A network's forward over new tokens: the part of the cache that it reads and writes, their ids (T,), their positions
(T,), and which are the last of their context (B,); gives (B, width) of those."""


class Slot:
    """One conversation's row of a cache, freed with the last reference to it.

    Args:
        held: whoever made it keeps it from answer to answer; else it is given up with the answer.
    """

    __slots__ = ("__weakref__", "cache", "cached", "held", "row", "weights")

    def __init__(self, *, held: bool) -> None:
        self.held = held
        self.cache: Cache | None = None
        self.row = -1
        self.cached = 0
        """Ids whose keys and values are in the row."""
        self.weights: object = None
        """The weights that they were computed with."""

    def free(self) -> None:
        """Return the row."""
        if self.cache is not None:
            self.cache.release(self.row)
            self.cache = None

    def __del__(self) -> None:
        self.free()


class Cache:
    """Keys and values, per layer (rows, kv heads, length, width); their shape is that of the first ones written.

    Args:
        heads: query heads of a layer.
        max_length: of a context.
        device: where the network computes.
        most: bytes up to which idle rows stay; what is being answered is never given up.
    """

    def __init__(
        self,
        heads: int,
        max_length: int,
        *,
        device: torch.device | None = None,
        most: int = CACHE_BYTES,
    ) -> None:
        self.heads, self.max_length, self.most = heads, max_length, most
        self.device = device or torch.device("cpu")
        self.rows = self.length = self.evicted = 0
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self._free: list[int] = []
        self._slots: dict[int, weakref.ref[Slot]] = {}
        """Row → its slot, the one used longest ago first."""

    @property
    def used(self) -> int:
        """Rows that slots hold."""
        return len(self._slots)

    @property
    def bytes(self) -> int:
        """Memory that is allocated."""
        return sum(tensor.nbytes for tensor in (*self.keys.values(), *self.values.values()))

    def release(self, row: int) -> None:
        """Give a row back."""
        del self._slots[row]
        heapq.heappush(self._free, row)

    def seat(self, slots: Sequence[Slot], longest: int) -> None:
        """Give each of these a row, all of them room for so many ids; idle rows go where memory is short.

        A slot without a row gets an empty one.
        """
        fresh = sum(slot.cache is not self for slot in slots)
        if longest > self.length or fresh > len(self._free):
            self._make_room(slots, longest, fresh)
        for slot in slots:
            if slot.cache is not self:
                slot.cache, slot.row, slot.cached = self, heapq.heappop(self._free), 0
                self._slots[slot.row] = weakref.ref(slot)
            else:  # to the end: used last
                self._slots[slot.row] = self._slots.pop(slot.row)

    def _make_room(self, slots: Sequence[Slot], longest: int, fresh: int) -> None:
        token = self.bytes // (self.rows * self.length) if self.rows and self.length else 0
        length = self.length
        if longest > length:
            length = min(self.max_length, max(longest, 2 * length, 64))
        needed = self.used + fresh
        rows = self.rows if needed <= self.rows else max(16, 2 * self.rows, needed)
        if token * rows * length > self.most:  # no more than there must be
            rows, length = max(needed, 1), max(longest, self._longest())
            busy = {slot.row for slot in slots if slot.cache is self}
            for row in [row for row in self._slots if row not in busy]:
                if token * rows * length <= self.most:
                    break
                self._evict(row)
                rows, length = max(rows - 1, 1), max(longest, self._longest())
        self._resize(rows, length)

    def _longest(self) -> int:
        return max((slot.cached for ref in self._slots.values() if (slot := ref()) is not None), default=0)

    def _evict(self, row: int) -> None:
        slot = self._slots[row]()
        if slot is not None:  # else it is being collected, and gives its row back itself
            slot.free()
            self.evicted += 1

    def _resize(self, rows: int, length: int) -> None:
        """Allocate anew, the rows in use moved together."""
        before, kept = list(self._slots.items()), min(length, self.length)
        old = torch.tensor([row for row, _ in before], dtype=torch.long, device=self.device)
        for tensors in (self.keys, self.values):
            for layer, tensor in tensors.items():
                # Zeros and not `empty`: a masked key weighs 0, and 0 times a NaN of unused memory is NaN.
                moved = tensor.new_zeros((rows, tensor.shape[1], length, tensor.shape[3]))
                if before:
                    moved[: len(before), :, :kept] = tensor[old, :, :kept]
                tensors[layer] = moved
        self._slots = {}
        for row, (_, ref) in enumerate(before):
            slot = ref()
            assert slot is not None  # a slot that is collected has released its row
            slot.row = row
            self._slots[row] = ref
        self._free = list(range(len(before), rows))
        self.rows, self.length = rows, length

    def write(self, layer: int, rows: Tensor, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store (T, kv heads, width) of new tokens."""
        for tensors, new in ((self.keys, keys), (self.values, values)):
            if layer not in tensors:
                tensors[layer] = new.new_zeros((self.rows, new.shape[1], self.length, new.shape[2]))
            tensors[layer][rows, :, positions] = new

    def forward(
        self, extend: Extend, rows: np.ndarray, past: np.ndarray, new: Sequence[Sequence[int]]
    ) -> Tensor:
        """Extend these contexts, whose slots are seated, by their new ids.

        Args:
            rows: (B,) cache rows, ascending.
            past: (B,) ids cached already.
            new: B lists of at least one id.

        Returns:
            (B, width): what the network gives after each context's last id.
        """
        first: dict[tuple[int, ...], int] = {}
        # Only contexts with nothing cached can share: equal new ids after another past have other states.
        source = np.array([i if past[i] else first.setdefault(tuple(ids), i) for i, ids in enumerate(new)])
        unique, inverse = np.unique(source, return_inverse=True)
        if len(unique) == len(new):
            return self._in_parts(extend, rows, past, new)
        # the rollouts of one task begin alike: compute the beginning once and copy it
        states = self._in_parts(extend, rows[unique], past[unique], [new[i] for i in unique.tolist()])
        copies = np.flatnonzero(source != np.arange(len(new)))
        length = max(len(new[i]) for i in copies.tolist())
        into, out_of = self.placed(rows[copies]), self.placed(rows[source[copies]])
        for tensor in (*self.keys.values(), *self.values.values()):
            tensor[into, :, :length] = tensor[out_of, :, :length]
        return states[torch.from_numpy(inverse).to(states.device)]

    def placed(self, array: np.ndarray) -> Tensor:
        """An array as a tensor where the network computes."""
        return torch.from_numpy(array).to(self.device)

    def _in_parts(
        self, extend: Extend, rows: np.ndarray, past: np.ndarray, new: Sequence[Sequence[int]]
    ) -> Tensor:
        counts = np.array([len(ids) for ids in new])
        while counts.max() > _CHUNK:
            long = np.flatnonzero(counts > _CHUNK)
            self._in_parts(extend, rows[long], past[long], [new[i][:_CHUNK] for i in long.tolist()])
            past, new = past.copy(), list(new)
            past[long] += _CHUNK
            for i in long.tolist():
                new[i] = new[i][_CHUNK:]
            counts[long] -= _CHUNK
        cells = self.heads * int(counts.max()) * int((past + counts).max())
        step = max(1, _PREFILL_CELLS.get(self.device.type, _PREFILL_CELLS_ELSEWHERE) // cells)
        parts = []
        for start in range(0, len(new), step):
            part = slice(start, start + step)
            parts.append(self._extend(extend, rows[part], past[part], counts[part], new[part]))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _extend(
        self,
        extend: Extend,
        rows: np.ndarray,
        past: np.ndarray,
        counts: np.ndarray,
        new: Sequence[Sequence[int]],
    ) -> Tensor:
        ids = self.placed(np.concatenate(new).astype(np.int64))
        ends = np.cumsum(counts)
        offset = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        member = np.repeat(np.arange(len(counts)), counts)
        view = View(self, rows, past, counts, member, offset)
        return extend(view, ids, view.positions, self.placed(ends - 1))


class View:
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
        # Rows come ascending; `RowSteps.logits` sorts them.
        first, beyond = int(rows[0]), int(rows[-1]) + 1
        # attending to a few idle rows costs less than copying the busy ones out
        self.dense = beyond - first <= 2 * len(rows)
        self.first, self.beyond = first, beyond
        slots = rows - first if self.dense else np.arange(len(rows))
        self.batch = beyond - first if self.dense else len(rows)
        self.rows = cache.placed(rows)
        self.slots = cache.placed(slots)
        self.member_rows = cache.placed(rows[member])
        self.positions = cache.placed(past[member] + offset)
        self.packed = cache.placed(slots[member] * self.most + offset)
        # Idle and padded queries reach position 0: a row of the mask with −∞ alone would give NaN.
        self._reach = np.zeros((self.batch, self.most), dtype=np.int64)
        self._reach[slots[member], offset] = past[member] + offset
        self._reach_last = np.zeros((self.batch, 1), dtype=np.int64)
        self._reach_last[slots, 0] = past + counts - 1
        self._masks: dict[bool, Tensor] = {}

    def _mask(self, dtype: torch.dtype, *, last: bool = False) -> Tensor:
        """(B, 1, N, length): 0 up to each query's own position, -inf beyond.  Added, as the kernel wants it."""
        last = last and self.most > 1
        if last not in self._masks:
            reach = self.cache.placed(self._reach_last if last else self._reach)
            hidden = torch.arange(self.length, device=reach.device) > reach.unsqueeze(-1)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=reach.device)
            self._masks[last] = mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
        return self._masks[last]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Store (T, kv heads, width) of the new tokens."""
        self.cache.write(layer, self.member_rows, self.positions, keys, values)

    def _read(self, layer: int) -> tuple[Tensor, Tensor]:
        both = self.cache.keys[layer], self.cache.values[layer]
        if self.dense:
            keys, values = (tensor[self.first : self.beyond, :, : self.length] for tensor in both)
        else:
            keys, values = (tensor[:, :, : self.length].index_select(0, self.rows) for tensor in both)
        return keys, values

    def attend(self, layer: int, q: Tensor, scale: float | None = None) -> Tensor:
        """(T, heads, width) → (T, heads · width), each token over its own context so far."""
        heads, width = q.shape[1:]
        padded = q.new_zeros(self.batch * self.most, heads, width)
        padded[self.packed] = q
        padded = padded.view(self.batch, self.most, heads, width).transpose(1, 2)
        out = self._attention(padded, layer, self._mask(q.dtype), scale)
        return out.transpose(1, 2).reshape(self.batch * self.most, -1)[self.packed]

    def attend_last(self, layer: int, q: Tensor) -> Tensor:
        """(B, heads, width) → (B, heads · width): the last token of each context over all of it."""
        heads, width = q.shape[1:]
        padded = q.new_zeros(self.batch, heads, width)
        padded[self.slots] = q
        out = self._attention(padded.unsqueeze(2), layer, self._mask(q.dtype, last=True), None)
        return out.reshape(self.batch, -1)[self.slots]

    def _attention(self, q: Tensor, layer: int, mask: Tensor, scale: float | None) -> Tensor:
        keys, values = self._read(layer)
        return scaled_attention(q, keys, values, mask, scale)
