"""Which tokens a part computes, and which of them each may look at: no padding, no token twice.

The sequences of a part are a forest: where two begin alike, the beginning is one branch and is
computed once, whoever shares it (the prompt of a group, of a pair, of the steps of one tree).
All tokens lie flat in one row; linear layers never see a padding, and positions restart with
every sequence.  Only attention looks at sequences, in *bands*: rows of about one length whose
own tokens begin at about one place.  A row's keys are gathered along its path from the root.

Shared tokens collect the gradients of all that look back at them, so losses and gradients are
those of separate sequences (within rounding), which needs a causal network without dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from packaging.version import Version
from torch import Tensor

WORTH = 16
"""Tokens that two sequences must begin with in common before sharing them saves more than it costs."""
_BAND = 16_000
"""The cost of one more band, in pairs of a query and a key: a few calls of the kernel in each layer."""
_GROUPED = Version(torch.__version__) >= Version("2.5")
"""True if torch's attention shares keys and values between heads by itself."""
_BLOCK = 64
"""Queries attended to at once; by itself torch computes the upper triangle of short sequences too."""


@dataclass(frozen=True, slots=True)
class Band:
    """R sequences of at most L tokens that are attended to together."""

    first: int
    """Its own tokens lie at [first, last) of the flat row, sequence after sequence."""
    last: int
    start: int
    """No sequence of the band owns a token before this position."""
    path: Tensor
    """(R, L) where in the flat row each position of each sequence lies, padded on the right with anything."""
    slots: Tensor
    """(M,) where in R × (L − start) each own token stands."""
    rooted: bool
    """Every sequence owns all of its tokens."""
    full: bool
    """Own tokens fill R × (L − start) without a gap, in order."""
    read_first: int
    """Its wanted tokens lie at [read_first, read_last) of `Layout.wanted`."""
    read_last: int
    read_slots: Tensor
    """(q,) where in R × most each wanted token stands."""
    read_positions: Tensor
    """(R, most) positions of the wanted tokens, padded with 0."""

    def context(self, values: Tensor) -> Tensor:
        """(T, heads, width) of all tokens → (R, L, heads, width) along each sequence's path."""
        shape = (*self.path.shape, *values.shape[1:])
        if self.rooted:
            return self.padded(values[self.first : self.last])
        return values.index_select(0, self.path.flatten()).view(shape)

    def padded(self, own: Tensor) -> Tensor:
        """(M, ...) of own tokens → (R, L − start, ...)."""
        rows, length = self.path.shape
        shape = (rows, length - self.start, *own.shape[1:])
        return own.reshape(shape) if self.full else _placed(own, self.slots, shape)

    def packed(self, values: Tensor) -> Tensor:
        """The inverse of `padded`."""
        flat = values.flatten(0, 1)
        return flat if self.full else flat.index_select(0, self.slots)

    def to_read(self, values: Tensor) -> Tensor:
        """(q, ...) of its wanted tokens → (R, most, ...)."""
        return _placed(values, self.read_slots, (*self.read_positions.shape, *values.shape[1:]))


@dataclass(frozen=True, slots=True)
class Layout:
    """T tokens to compute, and the Q of them whose next token somebody wants predicted."""

    ids: Tensor
    """(T,)"""
    positions: Tensor
    """(T,) of each token in its sequence."""
    bands: tuple[Band, ...]
    wanted: Tensor
    """(Q,) where in the flat row, ascending, each once."""
    index: Tensor
    """(N,) for each target, which of the Q predicts it; sequence after sequence as they were given."""
    paths: tuple[np.ndarray, ...]
    """Of each sequence that owns tokens, in the order in which these lie: where its tokens lie in the flat row."""
    starts: tuple[int, ...]
    """Of each of these, the position of the first token that it owns."""

    @property
    def longest(self) -> int:
        """Tokens of its longest sequence."""
        return max(band.path.shape[1] for band in self.bands)

    def to(self, device: torch.device) -> Layout:
        """The same on a device."""
        if self.ids.device == device:
            return self
        moved = [
            replace(
                band,
                path=band.path.to(device),
                slots=band.slots.to(device),
                read_slots=band.read_slots.to(device),
                read_positions=band.read_positions.to(device),
            )
            for band in self.bands
        ]
        tensors = {name: getattr(self, name).to(device) for name in ("ids", "positions", "wanted", "index")}
        return replace(self, bands=tuple(moved), **tensors)


def _placed(values: Tensor, slots: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows of values put where `slots` says, zeros elsewhere."""
    flat = values.new_zeros(shape[0] * shape[1], *shape[2:])
    return flat.index_copy(0, slots, values).view(shape)


def common(first: np.ndarray, second: np.ndarray) -> int:
    """Length of the common beginning of two sequences."""
    length = min(len(first), len(second))
    differ = np.flatnonzero(first[:length] != second[:length])
    return int(differ[0]) if len(differ) else length


def lexicographic(sequences: Sequence[np.ndarray]) -> list[int]:
    """Their order as words in a dictionary, so that what begins alike stands together."""
    # Big-endian, so that bytes sort as the ids do; four of them hold every id up to `merging.LARGEST_ID`.
    keys = [sequence.astype(">u4").tobytes() for sequence in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def plan(
    sequences: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]], *, share: bool = True
) -> Layout:
    """A Layout that computes these sequences together.

    Args:
        sequences: token ids, at least one each.
        wanted: of each sequence, the positions whose next token is to be predicted.
        share: False computes a common beginning once for each sequence.
    """
    ids = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    before, own = _shared(ids) if share else ([-1] * len(ids), [0] * len(ids))
    # A repetition of another sequence owns no token: it is in no band, and only in `paths`.
    rows = [row for row in range(len(ids)) if own[row] < len(ids[row])]
    groups = _bands(rows, own, [len(sequence) for sequence in ids])
    offsets, total = {}, 0
    for group in groups:
        for row in group:
            offsets[row] = total
            total += len(ids[row]) - own[row]
    paths: dict[int, np.ndarray] = {}
    # In this order a row's predecessor, whose path it begins with, has its own path already.
    for row in lexicographic(ids) if share else range(len(ids)):
        mine = np.arange(len(ids[row]) - own[row]) + offsets.get(row, 0)
        paths[row] = np.concatenate((paths[before[row]][: own[row]], mine)) if own[row] else mine
    places = [paths[row][np.asarray(some, dtype=np.int64)] for row, some in enumerate(wanted)]
    # Sorted, and each band is one stretch of the flat row: so `_band` finds its wanted tokens by bisection.
    unique, index = np.unique(np.concatenate(places), return_inverse=True)
    flat, positions = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    for row, offset in offsets.items():
        end = offset + len(ids[row]) - own[row]
        flat[offset:end] = ids[row][own[row] :]
        positions[offset:end] = np.arange(own[row], len(ids[row]))
    return Layout(
        ids=torch.from_numpy(flat),
        positions=torch.from_numpy(positions),
        bands=tuple(_band(group, own, paths, offsets, unique, positions) for group in groups),
        wanted=torch.from_numpy(unique),
        index=torch.from_numpy(index.reshape(-1)),
        paths=tuple(paths[row] for row in offsets),
        starts=tuple(own[row] for row in offsets),
    )


def _shared(ids: Sequence[np.ndarray]) -> tuple[list[int], list[int]]:
    """For each sequence, another that has its beginning, and where its own tokens begin."""
    before, own = [-1] * len(ids), [0] * len(ids)
    order = lexicographic(ids)
    for previous, row in pairwise(order):
        same = common(ids[previous], ids[row])
        if same >= WORTH:
            before[row], own[row] = previous, same
    return before, own


def _bands(rows: Sequence[int], own: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Rows that are attended to together: roots with roots, and no more padding than a band costs."""
    bands: list[list[int]] = []
    longest = start = 0
    for row in sorted(rows, key=lambda row: (own[row] > 0, own[row], lengths[row])):
        begins, ends = own[row], lengths[row]
        if bands and bool(own[bands[-1][0]]) == bool(begins):
            size = len(bands[-1])
            together = (size + 1) * _pairs(start, max(longest, ends))
            if together <= size * _pairs(start, longest) + _pairs(begins, ends) + _BAND:
                bands[-1].append(row)
                longest = max(longest, ends)
                continue
        bands.append([row])
        start, longest = begins, ends
    return bands


def _pairs(start: int, end: int) -> int:
    return (end - start) * (end + start) // 2


def _band(
    rows: Sequence[int],
    own: Sequence[int],
    paths: dict[int, np.ndarray],
    offsets: dict[int, int],
    unique: np.ndarray,
    positions: np.ndarray,
) -> Band:
    start, length = min(own[row] for row in rows), max(len(paths[row]) for row in rows)
    path = np.zeros((len(rows), length), dtype=np.int64)
    slots, reads = [], []
    first = offsets[rows[0]]
    last = first
    for number, row in enumerate(rows):
        path[number, : len(paths[row])] = paths[row]
        slots.append(number * (length - start) + np.arange(own[row], len(paths[row])) - start)
        last = offsets[row] + len(paths[row]) - own[row]
        low, high = np.searchsorted(unique, (offsets[row], last))
        reads.append(positions[unique[low:high]])
    most = max(1, *(len(some) for some in reads))
    read_positions = np.zeros((len(rows), most), dtype=np.int64)
    for number, some in enumerate(reads):
        read_positions[number, : len(some)] = some
    read_slots = [number * most + np.arange(len(some)) for number, some in enumerate(reads)]
    read_first, read_last = np.searchsorted(unique, (first, last))
    return Band(
        first=first,
        last=last,
        start=start,
        path=torch.from_numpy(path),
        slots=torch.from_numpy(np.concatenate(slots)),
        rooted=start == 0,
        full=last - first == len(rows) * (length - start),
        read_first=int(read_first),
        read_last=int(read_last),
        read_slots=torch.from_numpy(np.concatenate(read_slots)),
        read_positions=torch.from_numpy(read_positions),
    )


def attend(layout: Layout, q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Softmax attention of every token over those before it in its sequence.

    Args:
        q: (T, heads, width).
        k: (T, kv heads, width); kv heads divide heads.
        v: as k.
        scale: of the scores; None for 1/√width.

    Returns:
        (T, heads, width)
    """
    outputs = []
    for band in layout.bands:
        own = band.padded(q[band.first : band.last])
        attended = _causal(own, band.context(k), band.context(v), band.start, scale)
        outputs.append(band.packed(attended))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def attend_wanted(layout: Layout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same for the wanted tokens alone: (Q, heads, width) queries in and out."""
    outputs = []
    for band in layout.bands:
        if band.read_first == band.read_last:
            continue
        own = band.to_read(q[band.read_first : band.read_last])
        # Padding reads position 0 and so sees one key; a query that sees none would be NaN.
        visible = torch.arange(band.path.shape[1], device=q.device) <= band.read_positions.unsqueeze(-1)
        attended = _attention(own, band.context(k), band.context(v), visible.unsqueeze(1), None)
        outputs.append(attended.flatten(0, 1).index_select(0, band.read_slots))
    return torch.cat(outputs)


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # what is kept serves training too, whoever asked first
def _mask(start: int, end: int, device: torch.device) -> Tensor:
    """(end − start, end): 0 up to each query's own position, -inf beyond.  Added, as the kernel wants it."""
    beyond = torch.arange(end) > torch.arange(start, end).unsqueeze(1)
    return torch.zeros(beyond.shape).masked_fill_(beyond, float("-inf")).to(device)


def _causal(q: Tensor, k: Tensor, v: Tensor, start: int, scale: float | None) -> Tensor:
    """(R, L − start) queries over (R, L) keys, heads and width behind."""
    length = k.shape[1]
    size = _BLOCK if q.device.type == "cpu" else length
    blocks = [(begin, min(begin + size, length)) for begin in range(start, length, size)]
    widths = [end - begin for begin, end in blocks]
    queries = torch.split(q, widths, dim=1)
    widths[0] += start
    keys, values = torch.split(k, widths, dim=1), torch.split(v, widths, dim=1)
    outputs = []
    for number, (begin, end) in enumerate(blocks):
        # Joined anew from pieces: the gradient of a slice would be as long as all keys, zeros and all.
        before = keys[: number + 1], values[: number + 1]
        k, v = (torch.cat(pieces, dim=1) if number else pieces[0] for pieces in before)
        mask = _mask(begin, end, q.device).to(q.dtype)
        outputs.append(_attention(queries[number], k, v, mask, scale))
    return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    out = scaled_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, scale)
    return out.transpose(1, 2)


def scaled_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """(R, heads, T, width) over (R, kv heads, S, width), by torch's own kernel."""
    heads, groups = q.shape[1], k.shape[1]
    if heads == groups:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    if not _GROUPED:
        k, v = (shared.repeat_interleave(heads // groups, dim=1) for shared in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
