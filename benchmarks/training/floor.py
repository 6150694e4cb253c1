"""How near the networks are to the least that the same shape costs: a minimal module, and the matmul peak.

The minimal module is Qwen2's computation written down in the fewest calls of torch: padded rows, causal
attention by torch's kernel, RMSNorm by torch's kernel, logits at the wanted positions only.  It keeps no
names, loads nothing, and knows no cache; what a general implementation costs more is overhead.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from world import measured

from whet.learn.training import huggingface
from whet.learn.training.batch import Merged, parts
from whet.learn.training.learner import chosen_logprobs
from whet.learn.training.model import ModelOptions, build, to_transformers

ROWS, LENGTH, EVERY = 16, 256, 10
"""Of the batch: rows, tokens each, and one chosen token in so many."""
SHAPES = {
    "embedded": (ModelOptions(), 150),
    "wider": (ModelOptions(hidden=256, layers=4, heads=8, kv_heads=4, ffn=688), 4_000),
}


class Minimal(nn.Module):
    """A decoder of this shape."""

    def __init__(self, options: ModelOptions, vocabulary: int) -> None:
        super().__init__()
        self.options = o = options
        self.embedding = nn.Embedding(vocabulary, o.hidden)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(o.hidden, (o.heads + 2 * o.kv_heads) * o.head_width),
                    "out": nn.Linear(o.hidden, o.hidden, bias=False),
                    "up": nn.Linear(o.hidden, 2 * o.ffn, bias=False),
                    "down": nn.Linear(o.ffn, o.hidden, bias=False),
                }
            )
            for _ in range(o.layers)
        )
        self.norms = nn.ParameterList(torch.ones(o.hidden) for _ in range(2 * o.layers + 1))
        frequency = o.rope_theta ** -(torch.arange(0, o.head_width, 2) / o.head_width)
        angle = torch.outer(torch.arange(o.max_length).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """(B, L) ids and (B, Q) positions → (B · Q, vocabulary) logits."""
        o, (batch, length) = self.options, ids.shape
        cos, sin = self.cos[:length], self.sin[:length]

        def rotated(x: Tensor) -> Tensor:
            one, other = x.chunk(2, dim=-1)
            return x * cos + torch.cat((-other, one), dim=-1) * sin

        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            made = layer["qkv"](F.rms_norm(x, (o.hidden,), self.norms[2 * number], o.norm_epsilon))
            made = made.view(batch, length, -1, o.head_width).transpose(1, 2)
            q, k, v = made.split((o.heads, o.kv_heads, o.kv_heads), dim=1)
            seen = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + layer["out"](seen.transpose(1, 2).reshape(batch, length, o.hidden))
            normal = F.rms_norm(x, (o.hidden,), self.norms[2 * number + 1], o.norm_epsilon)
            gate, up = layer["up"](normal).chunk(2, dim=-1)
            x = x + layer["down"](F.silu(gate) * up)
        x = x.gather(1, wanted.unsqueeze(-1).expand(-1, -1, o.hidden)).flatten(0, 1)
        return F.rms_norm(x, (o.hidden,), self.norms[-1], o.norm_epsilon) @ self.embedding.weight.T


def operations(options: ModelOptions, vocabulary: int, wanted: int) -> float:
    """Multiplications and additions of one forward and backward of the batch."""
    o, tokens = options, ROWS * LENGTH
    layer = 2 * o.hidden * o.hidden + 2 * o.hidden * o.kv_heads * o.head_width + 3 * o.hidden * o.ffn
    attention = o.hidden * LENGTH  # scores and sums over half of the context each
    return 6.0 * (o.layers * tokens * (layer + attention) + wanted * o.hidden * vocabulary)


def peak(repeat: int) -> float:
    """Operations per CPU second of a large matrix product."""
    size = 1_024
    one, other = torch.randn(size, size), torch.randn(size, size)
    return 2.0 * size**3 / measured(lambda: one @ other, repeat)[1]


def floor(repeat: int) -> dict[str, Any]:
    """CPU seconds of forward and backward, as multiples of the minimal module's."""
    found: dict[str, Any] = {"matmul_gflops": round(peak(repeat) / 1e9, 1)}
    positions = list(range(EVERY, LENGTH, EVERY))
    for name, (options, vocabulary) in SHAPES.items():
        torch.manual_seed(0)
        ids = torch.randint(vocabulary, (ROWS, LENGTH))
        rows = [Merged(n, row, positions, [0.0] * len(positions)) for n, row in enumerate(ids.tolist())]
        (part,) = parts(rows, 10**9)
        own, minimal = build(options, vocabulary, 0), Minimal(options, vocabulary)
        wanted = (torch.tensor(positions) - 1).expand(ROWS, -1)
        with tempfile.TemporaryDirectory() as folder:
            to_transformers(own).save_pretrained(Path(folder) / "m")
            general = huggingface.load(Path(folder) / "m")

        def least(minimal: Minimal = minimal, ids: Tensor = ids, wanted: Tensor = wanted) -> None:
            minimal.zero_grad()
            scores = torch.log_softmax(minimal(ids, wanted), dim=-1)
            (-scores.gather(1, ids.gather(1, wanted + 1).flatten().unsqueeze(1)).mean()).backward()

        def ours(network: Any, part: Any = part) -> None:
            for weight in network.weights().values():
                weight.grad = None
            (-chosen_logprobs(network, part).mean()).backward()

        base = measured(least, repeat)[1]
        seconds = {
            "embedded": measured(lambda own=own: ours(own), repeat)[1],
            "transformers": measured(lambda general=general: ours(general), repeat)[1],
        }
        work = operations(options, vocabulary, ROWS * len(positions))
        found[name] = {
            "minimal_seconds": round(base, 4),
            "packs": general.packs,
            **{f"{one}_ratio": round(value / base, 3) for one, value in seconds.items()},
            **{
                f"{one}_share_of_peak": round(work / value / 1e9 / found["matmul_gflops"], 3)
                for one, value in seconds.items()
            },
        }
    return found
