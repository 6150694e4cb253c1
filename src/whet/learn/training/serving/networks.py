"""The next logits of many generations, computed together, for each family of networks.

`RowSteps` keeps a row of the key-value cache for each generation, and after it for its
conversation: a session's for as long as it lasts, a server's for a while, found again by its
beginning.  What a conversation has read is not read again, unless memory was short meanwhile.  Our
own decoder is stepped so, and every model of transformers whose attention can be packed.
`CausalSteps` is for the others (sliding windows, states carried from token to token): one left-padded
cache of transformers for all; generations join and leave between two tokens, without the others
noticing, and a conversation's next turn is read from its beginning.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .. import packed_attention
from ..cache import CACHE_BYTES, Cache, Slot, View
from ..forward import Fused, feed_forward, fuse, normalise, rotate, rotations
from ..huggingface import CausalLM
from ..model import Decoder
from ..network import Network
from .sampling import Generation

KEPT = 64
"""Finished generations of a server whose rows stay in the cache for those that go on from them."""


class EngineNetwork(Protocol):
    """A network as an engine steps it."""

    vocab_size: int
    max_length: int

    def logits(self, generations: Sequence[Generation]) -> Tensor:
        """(B, vocabulary) on the CPU in float32, after each one's last token; under inference mode.

        Those that are new are read whole; the others have one token more than last time.
        """
        ...

    def release(self, generations: Sequence[Generation]) -> None:
        """These will not come again."""
        ...

    def clear(self) -> None:
        """Forget everything that was cached."""
        ...

    def refresh(self) -> None:
        """Take up weights that were changed in place; no generation is under way."""
        ...


def steps_of(network: Network, cache_bytes: int = CACHE_BYTES) -> EngineNetwork:
    """The EngineNetwork of this network's family.

    Args:
        cache_bytes: up to which conversations that nobody is answering stay in the cache.
    """
    if isinstance(network, Decoder):
        return EmbeddedSteps(network, cache_bytes)
    return PackedSteps(network, cache_bytes) if _has_rows(network) else CausalSteps(network)


def _has_rows(network: CausalLM) -> bool:
    """True if keys that stay in a row are the keys that would be computed again."""
    config = network.model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    # These rotate by the longest context of a batch: a key would hang on who else was there.
    # A row of the cache knows no window, so no context may outgrow it.
    whole = network.window is None or network.max_length <= network.window
    return network.packs and whole and rope.get("rope_type") not in ("dynamic", "longrope")


class RowSteps:
    """A network whose contexts have a row each of one cache; what a conversation has read is not read again."""

    vocab_size: int
    max_length: int

    def __init__(self, cache: Callable[[], Cache]) -> None:
        self.reused = 0
        """Tokens that were in the cache already."""
        self.cache = cache()
        self._fresh_cache = cache
        self._kept: OrderedDict[Slot, list[int]] = OrderedDict()
        """Slot → ids cached in its row, the one used longest ago first."""

    def logits(self, generations: Sequence[Generation]) -> Tensor:
        """(B, vocabulary) on the CPU in float32."""
        weights = self._weights()
        slots: list[Slot] = []
        for generation in generations:
            under_way = generation.output and generation.slot
            slots.append(generation.slot if under_way else self._seat(generation, weights))  # type: ignore[arg-type]
        self.cache.seat(slots, max(len(generation.context) for generation in generations))
        for generation, slot in zip(generations, slots, strict=True):
            if not generation.output:
                self.reused += slot.cached
        rows = np.array([slot.row for slot in slots])
        past, new_ids = np.array([slot.cached for slot in slots]), []
        for generation, slot in zip(generations, slots, strict=True):
            new_ids.append(generation.context[slot.cached :])
            # Before it is computed: if that fails, `Engine` clears the cache and with it every slot.
            slot.cached = len(generation.context)
        # Neighbours in the cache are to be neighbours in the batch.
        order = rows.argsort()
        logits_BV = self.cache.forward(
            self._extend, rows[order], past[order], [new_ids[place] for place in order.tolist()]
        )
        return logits_BV[torch.from_numpy(order.argsort()).to(logits_BV.device)].float().cpu()

    def _weights(self) -> object:
        """What stands for the weights as they are; another object once they changed."""
        raise NotImplementedError

    def _extend(self, view: View, ids: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        """(B, vocabulary) after the last token of each context."""
        raise NotImplementedError

    def _seat(self, generation: Generation, weights: object) -> Slot:
        """The slot in which a generation begins."""
        slot = generation.slot
        if slot is None:
            slot = generation.slot = self._resumed(generation.context)
        if slot.weights is not weights:
            slot.cached = 0
        slot.weights = weights
        return slot

    def _resumed(self, prompt: list[int]) -> Slot:
        """The kept slot that holds most of this prompt, or a fresh one."""
        longest, slot = 0, Slot(held=False)
        for kept_slot, ids in list(self._kept.items()):
            if kept_slot.cache is not self.cache:  # its row was given up
                del self._kept[kept_slot]
                continue
            shared = _shared_prefix(ids, prompt)
            if shared > longest:
                longest, slot = shared, kept_slot
        self._kept.pop(slot, None)
        slot.cached = min(longest, len(prompt) - 1)  # the last id is read for its logits
        return slot

    def release(self, generations: Sequence[Generation]) -> None:
        """Keep the rows of conversations that may go on."""
        for generation in generations:
            slot = generation.slot
            if slot is not None and not slot.held:
                generation.slot = None
                self._kept[slot] = generation.context[: slot.cached]
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)[0].free()

    def clear(self) -> None:
        """Forget everything that was cached."""
        self.cache = self._fresh_cache()  # slots see that theirs is another
        self._kept.clear()

    def refresh(self) -> None:
        """Take up weights that were changed in place."""
        # Rows hold keys of the old weights; held slots notice by `Slot.weights`.
        self._kept.clear()


class EmbeddedSteps(RowSteps):
    """Our own decoder."""

    def __init__(self, decoder: Decoder, cache_bytes: int = CACHE_BYTES) -> None:
        options = decoder.options
        super().__init__(partial(Cache, options.heads, options.max_length, most=cache_bytes))
        self.vocab_size = decoder.vocab_size
        self.max_length = decoder.max_length
        self._decoder = decoder
        self._fused: Fused | None = None

    def _weights(self) -> Fused:
        if self._fused is None:
            self._fused = fuse(self._decoder)
        return self._fused

    def _extend(self, view: View, ids: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        fused, options = self._weights(), self._decoder.options
        heads, kv, width, epsilon = options.heads, options.kv_heads, options.head_width, options.norm_epsilon
        # Keys are kept rotated, at the position that they have in their own context.
        rotation = rotations(options, options.max_length)[positions]
        x = F.embedding(ids, fused.embedding)
        for number, layer in enumerate(fused.layers[:-1]):
            qkv = F.linear(normalise(x, epsilon), layer.qkv, layer.qkv_bias).view(len(ids), -1, width)
            qk = rotate(qkv[:, : heads + kv], rotation)
            view.write(number, qk[:, heads:], qkv[:, heads + kv :])
            x = x + F.linear(view.attend(number, qk[:, :heads]), layer.out)
            x = feed_forward(layer, x, epsilon)
        # Only the last position of each context is read from here on.
        number, layer, cut = len(fused.layers) - 1, fused.layers[-1], heads * width
        normal = normalise(x, epsilon)
        both = F.linear(normal, layer.qkv[cut:], layer.qkv_bias[cut:]).view(len(ids), -1, width)
        view.write(number, rotate(both[:, :kv], rotation), both[:, kv:])
        q = F.linear(normal[last], layer.qkv[:cut], layer.qkv_bias[:cut]).view(-1, heads, width)
        attended = view.attend_last(number, rotate(q, rotation[last]))
        x = feed_forward(layer, x[last] + F.linear(attended, layer.out), epsilon)
        return F.linear(normalise(x, epsilon), fused.head)

    def refresh(self) -> None:
        """Take up weights that were changed in place."""
        self._fused = None
        super().refresh()


class PackedSteps(RowSteps):
    """A causal language model of transformers whose attention can be told where its keys are."""

    def __init__(self, network: CausalLM, cache_bytes: int = CACHE_BYTES) -> None:
        heads = int(network.model.config.get_text_config().num_attention_heads)
        super().__init__(lambda: Cache(heads, network.max_length, device=network.device, most=cache_bytes))
        self.vocab_size = network.vocab_size
        self.max_length = network.max_length
        self._network = network
        self._epoch = object()

    def _weights(self) -> object:
        return self._epoch

    def _extend(self, view: View, ids: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        arguments = packed_attention.cached(view, ids, positions)
        logits: Tensor = self._network.model(**arguments, logits_to_keep=last).logits[0]
        return logits

    def refresh(self) -> None:
        """Take up weights that were changed in place."""
        self._epoch = object()
        super().refresh()


def _shared_prefix(cached_ids: list[int], prompt: list[int]) -> int:
    """Length of the common beginning of two lists."""
    most = min(len(cached_ids), len(prompt))
    if cached_ids[:most] == prompt[:most]:
        return most
    return next(offset for offset in range(most) if cached_ids[offset] != prompt[offset])


def _cache_name(model: Any) -> str:
    """What a model calls the keys and values of earlier tokens: transformers 5.24 gave it another name."""
    while hasattr(model, "get_base_model"):  # an adapter's forward takes whatever it is given
        model = model.get_base_model()
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class CausalSteps:
    """A causal language model of transformers."""

    def __init__(self, network: CausalLM) -> None:
        self.vocab_size = network.vocab_size
        self.max_length = network.max_length
        self._network = network
        self._cached_as = _cache_name(network.model)
        self._batch: list[Generation] = []
        self._cache: Any = None
        self._mask = torch.zeros(0, 0, dtype=torch.long)

    def logits(self, generations: Sequence[Generation]) -> Tensor:
        cached = set(self._batch)
        # Who is in the batch is stepped whether asked for or not: the engine always asks for all of them.
        fresh = [generation for generation in generations if generation not in cached]
        if fresh and cached and not self._mergeable():
            fresh = list(generations)  # a cache that cannot be merged is computed again
            self.clear()
        parts: list[Tensor] = []
        if self._batch:
            # Positions count tokens, not columns: a row's padding on the left has none.
            last = torch.tensor([[generation.output[-1]] for generation in self._batch])
            self._mask = torch.cat((self._mask, self._mask.new_ones(len(self._batch), 1)), dim=1)
            parts.append(self._forward(last, self._mask, self._mask.sum(1, keepdim=True) - 1, self._cache))
        if fresh:
            parts.append(self._read(fresh))
        self._batch = [*self._batch, *fresh]
        rows = {generation: row for row, generation in enumerate(self._batch)}
        return torch.cat(parts)[[rows[generation] for generation in generations]]

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        device = self._network.device
        # Not packed: without a Layout `packed_attention` gives what sdpa gives, cache and mask included.
        out = self._network.model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            use_cache=True,
            logits_to_keep=1,
            **{self._cached_as: cache},
        )
        self._computed = getattr(out, self._cached_as)
        logits: Tensor = out.logits[:, -1].float().cpu()
        return logits

    def _read(self, fresh: Sequence[Generation]) -> Tensor:
        """Read whole contexts, and have them join the batch."""
        contexts = [generation.context for generation in fresh]
        most = max(map(len, contexts))
        # Padded on the left, so that the last column is every row's newest token.
        ids = torch.zeros((len(contexts), most), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, context in enumerate(contexts):
            ids[row, most - len(context) :] = torch.tensor(context)
            mask[row, most - len(context) :] = 1
        logits = self._forward(ids, mask, (mask.cumsum(-1) - 1).clamp(min=0), None)
        if self._cache is None:
            self._cache, self._mask = self._computed, mask
        else:
            self._merge(self._computed, mask)
        return logits

    def _merge(self, joining: Any, mask: Tensor) -> None:
        length = max(self._mask.shape[1], mask.shape[1])
        for mine, theirs in zip(self._cache.layers, joining.layers, strict=True):
            mine.keys = torch.cat((_widened(mine.keys, length), _widened(theirs.keys, length)))
            mine.values = torch.cat((_widened(mine.values, length), _widened(theirs.values, length)))
        self._mask = torch.cat([F.pad(rows, (length - rows.shape[1], 0)) for rows in (self._mask, mask)])

    def _mergeable(self) -> bool:
        from transformers.cache_utils import DynamicLayer  # loaded with the model

        # Not `isinstance`: a sliding window's and a quantised layer inherit from DynamicLayer.
        return all(type(layer) is DynamicLayer for layer in self._cache.layers)

    def release(self, generations: Sequence[Generation]) -> None:
        """Drop their rows, and the columns that only they had."""
        retired = set(generations)
        staying = [row for row, generation in enumerate(self._batch) if generation not in retired]
        if not staying:
            # Afterwards the batch is empty as `staying` is, and the next line returns.
            self.clear()
        if len(staying) == len(self._batch):
            return
        rows = torch.tensor(staying)
        self._cache.batch_select_indices(rows.to(self._network.device))
        self._mask = self._mask[rows]
        # Only padding on the left may go: columns in the middle are still some row's context.
        empty = int(self._mask.any(0).int().argmax())
        if empty and self._mergeable():
            for layer in self._cache.layers:
                layer.keys, layer.values = layer.keys[:, :, empty:], layer.values[:, :, empty:]
            self._mask = self._mask[:, empty:]
        self._batch = [self._batch[row] for row in staying]

    def clear(self) -> None:
        self._batch, self._cache = [], None

    def refresh(self) -> None:
        self.clear()


def _widened(values: Tensor, length: int) -> Tensor:
    """(B, heads, L, width) → (B, heads, length, width), zeros on the left."""
    return F.pad(values, (0, 0, length - values.shape[2], 0))
