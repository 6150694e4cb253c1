"""The computation of a `Decoder`: Qwen2's, equal to transformers' within 1e-5.

Three things make it fast where the network is small.  The projections that
share an input are one matrix, with the norm's weight multiplied in and the
rotary pairs made adjacent (a permutation inside each head, which leaves every
dot product as it was), so that rotating is one complex product.  The last layer
is computed only where a logit is wanted: its keys and values everywhere, the
rest at those positions alone.  And no token is a padding or computed twice
(`packing.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import Decoder, ModelOptions
from .packing import Layout, attend, attend_wanted, plan


class Layer(NamedTuple):
    """One layer's weights as the computation wants them."""

    qkv: Tensor
    """(q + 2 kv, hidden)"""
    qkv_bias: Tensor
    out: Tensor
    gate_up: Tensor
    """(2 ffn, hidden)"""
    down: Tensor


class Fused(NamedTuple):
    """A decoder's weights as the computation wants them; differentiable in the decoder's own."""

    options: ModelOptions
    embedding: Tensor
    layers: tuple[Layer, ...]
    head: Tensor
    """(vocabulary, hidden), the final norm's weight multiplied in"""


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept serves training too, whoever asked first
def _interleaved(heads: int, width: int) -> Tensor:
    """Row order that turns each head's halves (a, b) into pairs (a0, b0, a1, b1, ...)."""
    pairs = torch.arange(width).view(2, width // 2).T.reshape(-1)
    return (torch.arange(heads)[:, None] * width + pairs).reshape(-1)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def _rotations(width: int, length: int, theta: float) -> Tensor:
    """(length, 1, width / 2) complex: e^(i · position · frequency)."""
    frequency = 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency
    return torch.polar(torch.ones_like(angle), angle)[:, None, :]


def fuse(decoder: Decoder) -> Fused:
    """Gather the weights for one or more forwards; under autograd, gradients flow back through it."""
    options, weight = decoder.options, decoder.weight
    query = _interleaved(options.heads, options.head_width)
    key = _interleaved(options.kv_heads, options.head_width)
    layers = []
    for number in range(options.layers):
        name = f"model.layers.{number}"
        attention = f"{name}.self_attn"
        qkv = torch.cat(
            (
                weight(f"{attention}.q_proj.weight")[query],
                weight(f"{attention}.k_proj.weight")[key],
                weight(f"{attention}.v_proj.weight"),
            )
        )
        bias = torch.cat(
            (
                weight(f"{attention}.q_proj.bias")[query],
                weight(f"{attention}.k_proj.bias")[key],
                weight(f"{attention}.v_proj.bias"),
            )
        )
        gate_up = torch.cat((weight(f"{name}.mlp.gate_proj.weight"), weight(f"{name}.mlp.up_proj.weight")))
        layers.append(
            Layer(
                # The norm's weight scales a matrix's columns and not its bias, which is added afterwards.
                qkv * weight(f"{name}.input_layernorm.weight"),
                bias,
                weight(f"{attention}.o_proj.weight"),
                gate_up * weight(f"{name}.post_attention_layernorm.weight"),
                weight(f"{name}.mlp.down_proj.weight"),
            )
        )
    embedding = weight("model.embed_tokens.weight")
    return Fused(options, embedding, tuple(layers), embedding * weight("model.norm.weight"))


class _Normalise(torch.autograd.Function):
    """x / √(mean x² + ε) over the last axis, keeping the result and not the input for backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
        scale = scale.add_(epsilon).rsqrt_()
        normal: Tensor = x * scale
        ctx.save_for_backward(normal, scale)
        return normal

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        normal, scale = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, normal).unsqueeze(-1).div_(normal.shape[-1])
        return torch.addcmul(gradient, normal, along, value=-1.0).mul_(scale), None


def normalise(x: Tensor, epsilon: float) -> Tensor:
    """RMSNorm without its weight."""
    return _Normalise.apply(x, epsilon)  # type: ignore[no-any-return, no-untyped-call]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary position embedding of (..., heads, width) with adjacent pairs."""
    # Adjacent pairs, as `fuse` orders the rows; transformers' own weights have a head's halves apart.
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2)


def feed_forward(layer: Layer, x: Tensor, epsilon: float) -> Tensor:
    """x + down(silu(gate) · up) of the normalised x."""
    gate, up = F.linear(normalise(x, epsilon), layer.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def rotations(options: ModelOptions, length: int) -> Tensor:
    """(length, 1, width / 2) complex rotations of positions 0 … length−1."""
    # Always the longest table and a slice of it: the cache then has one entry for a model, not one a length.
    return _rotations(options.head_width, options.max_length, options.rope_theta)[:length]


def hidden_states(fused: Fused, layout: Layout) -> Tensor:
    """The normalised last hidden state at what a Layout wants.

    Returns:
        (Q, hidden), before the final norm's weight, which `fused.head` contains.
    """
    options = fused.options
    heads, kv, width, epsilon = options.heads, options.kv_heads, options.head_width, options.norm_epsilon
    rotation = rotations(options, options.max_length).index_select(0, layout.positions)
    x = F.embedding(layout.ids, fused.embedding)
    for layer in fused.layers[:-1]:
        qkv = F.linear(normalise(x, epsilon), layer.qkv, layer.qkv_bias).view(len(x), -1, width)
        qk = rotate(qkv[:, : heads + kv], rotation)
        attended = attend(layout, qk[:, :heads], qk[:, heads:], qkv[:, heads + kv :])
        x = x + F.linear(attended.flatten(1), layer.out)
        x = feed_forward(layer, x, epsilon)
    layer = fused.layers[-1]
    cut = heads * width
    normal = normalise(x, epsilon)
    both = F.linear(normal, layer.qkv[cut:], layer.qkv_bias[cut:]).view(len(x), 2 * kv, width)
    q = F.linear(normal.index_select(0, layout.wanted), layer.qkv[:cut], layer.qkv_bias[:cut])
    q = rotate(q.view(-1, heads, width), rotation.index_select(0, layout.wanted))
    attended = attend_wanted(layout, q, rotate(both[:, :kv], rotation), both[:, kv:])
    x = x.index_select(0, layout.wanted) + F.linear(attended.flatten(1), layer.out)
    return normalise(feed_forward(layer, x, epsilon), epsilon)


def logits(decoder: Decoder, ids: Tensor, wanted: Tensor | None = None) -> Tensor:
    """Next-token logits of (B, L) ids at the (B, Q) wanted positions, or all: (B, Q, vocabulary)."""
    if wanted is None:
        wanted = torch.arange(ids.shape[1]).expand(ids.shape[0], -1)
    layout, fused = plan(ids.tolist(), wanted.tolist()), fuse(decoder)
    states = hidden_states(fused, layout).index_select(0, layout.index)
    return F.linear(states, fused.head).view(*wanted.shape, -1)
