"""How the next logits of many generations are computed together, for each family of networks.

`EmbeddedSteps` keeps a row of the key-value cache for each generation, and for a while after:
a prompt that goes on from an earlier conversation is not read again.  `CausalSteps` keeps one
left-padded cache of transformers for all; generations join and leave between two tokens, without
the others noticing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..cache import Cache
from ..forward import fuse
from ..huggingface import CausalLM
from ..model import Decoder
from ..network import Network
from .sampling import Generation


class Steps(Protocol):
    """What an engine asks of a network."""

    vocab_size: int
    max_length: int

    def logits(self, generations: Sequence[Generation]) -> Tensor:
        """(B, vocabulary) on the CPU in float32, after each one's last token.

        Those that are new are read whole; the others have one token more than last time.
        """
        ...

    def release(self, generation: Generation) -> None:
        """This one will not come again."""
        ...

    def clear(self) -> None:
        """Forget everything that was cached."""
        ...


def steps_of(network: Network, *, keep: int = 64) -> Steps:
    """How this network is stepped.

    Args:
        keep: contexts of finished generations that an embedded network keeps for those that go on.
    """
    return EmbeddedSteps(network, keep=keep) if isinstance(network, Decoder) else CausalSteps(network)


class EmbeddedSteps:
    """Our own decoder."""

    def __init__(self, decoder: Decoder, *, keep: int = 64) -> None:
        self.vocab_size = decoder.vocab_size
        self.max_length = decoder.options.max_length
        self.reused = 0
        """Tokens that were in the cache already."""
        with torch.inference_mode():
            self._fused = fuse(decoder)
        self._options = decoder.options
        self._cache = Cache(decoder.options)
        self._rows: dict[Generation, tuple[int, int]] = {}
        """Generation → its row, and how many of its tokens are cached."""
        self._kept: OrderedDict[int, list[int]] = OrderedDict()
        """Row → ids cached in it, the one used longest ago first."""
        self._keep = keep

    @torch.inference_mode()
    def logits(self, generations: Sequence[Generation]) -> Tensor:
        for generation in generations:
            if generation not in self._rows:
                self._rows[generation] = self._row(generation.prompt)
        order = sorted(range(len(generations)), key=lambda place: self._rows[generations[place]][0])
        new, past, rows = [], [], []
        for place in order:
            generation = generations[place]
            row, cached = self._rows[generation]
            context = [*generation.prompt, *generation.output]
            new.append(context[cached:])
            past.append(cached)
            rows.append(row)
            self._rows[generation] = (row, len(context))
        states = self._cache.forward(self._fused, np.array(rows), np.array(past), new)
        found = torch.empty(len(generations), self.vocab_size)
        found[order] = F.linear(states, self._fused.head)
        return found

    def _row(self, prompt: list[int]) -> tuple[int, int]:
        """A row for this prompt, and how much of the prompt it holds."""
        best, common = -1, 0
        for row, ids in self._kept.items():
            shared = _shared(ids, prompt)
            if shared > common:
                best, common = row, shared
        if best < 0:
            return self._cache.acquire(), 0
        del self._kept[best]
        self.reused += min(common, len(prompt) - 1)
        return best, min(common, len(prompt) - 1)  # the last one is read for its logits

    def release(self, generation: Generation) -> None:
        row, cached = self._rows.pop(generation, (-1, 0))
        if row < 0:
            return
        self._kept[row] = [*generation.prompt, *generation.output][:cached]
        while len(self._kept) > self._keep:
            oldest, _ = self._kept.popitem(last=False)
            self._cache.release(oldest)

    def clear(self) -> None:
        self._cache = Cache(self._options)
        self._rows.clear()
        self._kept.clear()


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two lists have in common from the beginning."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(place for place in range(most) if one[place] != other[place])


class CausalSteps:
    """A causal language model of transformers."""

    def __init__(self, network: CausalLM) -> None:
        self.vocab_size = network.vocab_size
        self.max_length = network.max_length
        self._model = network.model
        self._device = network.device
        self._batch: list[Generation] = []
        self._cache: Any = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)

    @torch.inference_mode()
    def logits(self, generations: Sequence[Generation]) -> Tensor:
        known = [generation for generation in self._batch if generation in generations]
        fresh = [generation for generation in generations if generation not in known]
        self._keep(known)
        if fresh and known and not self._mergeable():
            known, fresh = [], list(generations)  # what cannot be merged is read again
            self.clear()
        parts: list[Tensor] = []
        if known:
            last = torch.tensor([[generation.output[-1]] for generation in known])
            self._mask = torch.cat((self._mask, self._mask.new_ones(len(known), 1)), dim=1)
            parts.append(self._forward(last, self._mask, self._mask.sum(1, keepdim=True) - 1, self._cache))
        if fresh:
            parts.append(self._read(fresh))
        self._batch = [*known, *fresh]
        rows = {generation: row for row, generation in enumerate(self._batch)}
        return torch.cat(parts)[[rows[generation] for generation in generations]]

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        out = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            position_ids=positions.to(self._device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._made = out.past_key_values
        logits: Tensor = out.logits[:, -1].float().cpu()
        return logits

    def _read(self, fresh: Sequence[Generation]) -> Tensor:
        """Read whole contexts, and have them join the batch."""
        contexts = [[*generation.prompt, *generation.output] for generation in fresh]
        most = max(map(len, contexts))
        # Padded on the left, so that the last column is every row's newest token.
        ids = torch.zeros((len(contexts), most), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, context in enumerate(contexts):
            ids[row, most - len(context) :] = torch.tensor(context)
            mask[row, most - len(context) :] = 1
        logits = self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)
        if self._cache is None:
            self._cache, self._mask = self._made, mask
        else:
            self._merge(self._made, mask)
        return logits

    def _merge(self, other: Any, mask: Tensor) -> None:
        length = max(self._mask.shape[1], mask.shape[1])
        for mine, theirs in zip(self._cache.layers, other.layers, strict=True):
            mine.keys = torch.cat((_widened(mine.keys, length), _widened(theirs.keys, length)))
            mine.values = torch.cat((_widened(mine.values, length), _widened(theirs.values, length)))
        pads = [F.pad(one, (length - one.shape[1], 0)) for one in (self._mask, mask)]
        self._mask = torch.cat(pads)

    def _mergeable(self) -> bool:
        from transformers.cache_utils import DynamicLayer  # loaded with the model

        return all(type(layer) is DynamicLayer for layer in self._cache.layers)

    def _keep(self, known: list[Generation]) -> None:
        """Drop the rows of the others, and the columns that only they had."""
        if len(known) == len(self._batch):
            return
        if not known:
            self.clear()
            return
        rows = torch.tensor([self._batch.index(generation) for generation in known])
        self._cache.batch_select_indices(rows.to(self._device))
        self._mask = self._mask[rows]
        empty = int(self._mask.any(0).int().argmax())
        if empty and self._mergeable():
            for layer in self._cache.layers:
                layer.keys, layer.values = layer.keys[:, :, empty:], layer.values[:, :, empty:]
            self._mask = self._mask[:, empty:]
        self._batch = known

    def release(self, generation: Generation) -> None:
        if generation in self._batch:
            self._keep([one for one in self._batch if one is not generation])

    def clear(self) -> None:
        self._batch, self._cache = [], None


def _widened(values: Tensor, length: int) -> Tensor:
    """(B, heads, L, width) → (B, heads, length, width), zeros on the left."""
    return F.pad(values, (0, 0, length - values.shape[2], 0))
