"""What one part of a training step takes in memory, by arithmetic from a network's shape alone.

A part is the tokens that are computed at once (`part_tokens`).  Its memory is what the backward
pass needs of the forward pass, the logits of the targets, and the gradients of the layer at hand.
The counts below are those of the tensors that autograd keeps for a Llama, Qwen or Mistral in
transformers (RMSNorm, rotary attention, gated feed-forward), with attention packed; a network of
whet's own keeps a little less.  Nothing here imports torch or looks at the machine.

Weights, gradients and moments are not in it: they are there whatever a part is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_PIECE_ON_CPU, _PIECE = 1 << 24, 1 << 28
"""Logits held at once.  A GPU takes more: each piece adds to a gradient of the whole output layer."""
STEPPED_TOGETHER = 1 << 22
"""Elements that go through a step of AdamW at once: few calls for many small tensors, short copies of large ones."""
WORTH_KEEPING = 4_096
"""Tokens of a part below which a GPU idles: rather than shorter parts, activations are computed again."""
SMALLEST, LARGEST = 256, 16_384
"""Bounds of `part_tokens_for`; a longer sequence is a part of its own whatever the bound says."""
_LARGEST_ON_CPU = 4_096
"""Larger parts leave the processor's cache and are slower, at 0.1 M parameters as at 11 M."""
_WORK_ON_CPU = 3_000_000_000
"""Multiplications after which a part's fixed costs no longer show: measured at 0.1, 4 and 11 M parameters."""
_SETTLED_ON_CPU = 1_024
"""Tokens after which they no longer show at any size."""
_ATTENTION_BLOCK = 64
"""Queries that the packed path attends to at once on a CPU (`packing.py`), each with its keys copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """The sizes of a network that decide what a token takes."""

    hidden: int
    """Width of the residual stream."""
    layers: int
    ffn: int
    """Width inside the feed-forward layer; of all experts that one token passes, together."""
    vocabulary: int
    queries: int
    """Width of all query heads together."""
    keys: int
    """Width of all key heads together, which is that of the values too."""
    dtype_bytes: int = 4
    """Of an activation: 4 for float32, 2 for bfloat16."""
    recompute: bool = False
    """Layers keep their input alone and are computed again in the backward pass."""
    whole_logits: bool = False
    """Logits are made at every token at once, because the model scales or caps them."""
    on_cpu: bool = True

    @property
    def matrices(self) -> int:
        """Weights that a token is multiplied with, embedding and output layer left out."""
        attention = 2 * self.hidden * (self.queries + self.keys)
        return self.layers * (attention + 3 * self.hidden * self.ffn)

    def held_bytes(self, *, adapted: bool = False) -> int:
        """About what a learner holds whatever a part is.

        Weights in the dtype, and in float32 a gradient, two moments and, where the dtype is shorter, a master; of
        LoRA factors the frozen weights alone, beside which they are little.
        """
        parameters = self.matrices + 2 * self.vocabulary * self.hidden
        if adapted:
            return parameters * self.dtype_bytes
        return parameters * (self.dtype_bytes + 12 + (4 if self.dtype_bytes < 4 else 0))


def shape_of(
    config: Mapping[str, Any], *, dtype_bytes: int = 4, recompute: bool = False, on_cpu: bool = True
) -> NetworkShape | None:
    """The NetworkShape that a config.json of transformers describes; None if it names its sizes otherwise."""
    text = config.get("text_config") or config
    try:
        hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
        width = int(text.get("head_dim") or hidden // heads)
        experts = int(text.get("num_experts_per_tok") or 1)
        ffn = int(text.get("moe_intermediate_size") or text["intermediate_size"]) * experts
        return NetworkShape(
            hidden=hidden,
            layers=int(text["num_hidden_layers"]),
            ffn=ffn,
            vocabulary=int(text["vocab_size"]),
            queries=heads * width,
            keys=int(text.get("num_key_value_heads") or heads) * width,
            dtype_bytes=dtype_bytes,
            recompute=recompute,
            whole_logits=changes_logits(text),
            on_cpu=on_cpu,
        )
    except (KeyError, TypeError, ValueError):
        return None


def changes_logits(config: Mapping[str, Any]) -> bool:
    """True if a configuration says that logits are capped or scaled after the output layer.

    By name, for there is no common one: final_logit_softcapping, logit_scale, logits_scaling, lm_head_multiplier.
    """
    for name, value in config.items():
        after = ("logit" in name or "lm_head" in name) and not name.startswith(
            ("attn", "attention", "router")
        )
        if after and isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1):
            return True
    return False


def layer_bytes(shape: NetworkShape, tokens: int, *, length: int = 512, adapted: bool = False) -> int:
    """What autograd keeps of one layer.

    Args:
        length: tokens of a typical sequence; on a CPU keys are copied for every block of queries.
        adapted: LoRA factors are trained beside frozen weights.
    """
    # Of each of the two norms: its input, the normalised input, the output; the first in float32 whatever the dtype.
    # Beside factors the norms are frozen, and keep no normalised input for a gradient of their weight.  On a GPU
    # torch's kernel keeps its input and no more (`norms.py`).
    kept_of_norm = (1 if adapted else 2) * shape.dtype_bytes + 4 if shape.on_cpu else 2 * shape.dtype_bytes
    norms = 2 * shape.hidden * kept_of_norm
    blocks = max(1, -(-length // _ATTENTION_BLOCK)) if shape.on_cpu else 1
    copies = 1.0 + ((blocks + 1) / 2 - 1 / blocks if blocks > 1 else 0.0)
    # Queries once rotated, the attended values, and these again as the input of the output projection.
    attention = 3 * shape.queries + 2 * copies * shape.keys
    # Gate, its activation, up, and their product.
    return int(tokens * (norms + shape.dtype_bytes * (attention + 4 * shape.ffn)))


def most_logits(*, on_cpu: bool) -> int:
    """Logits held at once; where all fit, they are kept for the gradient instead of being made again."""
    return _PIECE_ON_CPU if on_cpu else _PIECE


def logit_bytes(shape: NetworkShape, targets: int, tokens: int, *, frozen: bool = False) -> int:
    """What logits take at their peak, in the backward pass: scores, probabilities and gradient in float32.

    Args:
        frozen: the output layer is not trained, and has no gradient.
    """
    cast = 0 if shape.dtype_bytes == 4 else shape.dtype_bytes
    # The output layer's gradient, in float32, before it is added to the one that is there; a shorter product before it.
    weight = 0 if frozen else shape.vocabulary * shape.hidden * (4 + cast)
    if shape.whole_logits:
        return weight + shape.vocabulary * (2 * tokens * shape.dtype_bytes + targets * (4 * 4 + cast))
    rows = min(targets, max(1, most_logits(on_cpu=shape.on_cpu) // shape.vocabulary))
    return weight + rows * shape.vocabulary * (3 * 4 + cast)


def part_bytes(
    shape: NetworkShape, tokens: int, *, targets: int | None = None, length: int = 512, adapted: bool = False
) -> int:
    """Peak of one part's forward and backward pass, over what is there without it.

    Args:
        targets: tokens whose prediction is wanted; all if omitted.
        adapted: LoRA factors are trained beside frozen weights.
    """
    wanted = tokens if targets is None else targets
    layer = layer_bytes(shape, tokens, length=length, adapted=adapted)
    inputs = tokens * shape.hidden * shape.dtype_bytes
    last = 3 * inputs + wanted * shape.hidden * shape.dtype_bytes
    # The logits are gone before a layer's gradients are made, and before a layer is computed again: the larger counts.
    gradients = tokens * shape.dtype_bytes * (3 * shape.ffn + 4 * shape.hidden)
    logits = logit_bytes(shape, wanted, tokens, frozen=adapted)
    if shape.recompute:
        return shape.layers * inputs + last + max(logits, layer + gradients)
    return shape.layers * layer + last + max(logits, gradients)


def with_recomputing(shape: NetworkShape, room: int | None, asked: bool | None) -> NetworkShape:
    """The shape with activations computed again: as was asked, else where a GPU could not hold those of a part.

    Args:
        room: bytes left once weights, gradients and moments are there; None where that is not known.
    """
    if asked is None:
        plain = replace(shape, recompute=False)
        asked = not shape.on_cpu and room is not None and part_bytes(plain, WORTH_KEEPING) > room // 2
    return replace(shape, recompute=asked)


def part_tokens_for(shape: NetworkShape, room: int, *, length: int = 512) -> int:
    """Tokens to compute at once: no more than is any faster, and no more than half of the room holds.

    A power of two, so that a machine's small changes do not change the order in which a run adds up.

    Args:
        room: bytes left once weights, gradients and moments are there.
        length: tokens of a typical sequence.
    """
    tokens = LARGEST
    if shape.on_cpu:
        worth = max(_SETTLED_ON_CPU, _WORK_ON_CPU // max(1, shape.matrices))
        tokens = min(_LARGEST_ON_CPU, 1 << (worth.bit_length() - 1))
    # Half: allocators leave gaps, and a part may hold one sequence more than its number of tokens.
    while tokens > SMALLEST and part_bytes(shape, tokens, length=length) > room // 2:
        tokens //= 2
    return tokens
