"""Activations computed again in the backward pass (Chen et al. 2016), layer by layer.

transformers has this for models in training mode, where dropout is on; networks here are never in that mode.  So a
layer's class is exchanged for one whose forward is a checkpoint, as `fully_shard` exchanges it for its own: copies of
the layer, and processes that share it, keep it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_classes: dict[type[nn.Module], type[nn.Module]] = {}
"""A layer's class → the one that recomputes."""


def enable(model: Any) -> bool:
    """Have the layers of a model of transformers recompute, in place; False if it does not say what its layers are."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    for layer in layers:
        layer.__class__ = _recomputing(type(layer))
    return bool(layers)


def enabled(model: nn.Module) -> bool:
    """True if a model's layers recompute."""
    return any(isinstance(module, _Recomputing) for module in model.modules())


def _recomputing(layer: type[nn.Module]) -> type[nn.Module]:
    if layer not in _classes:
        # Under the same name, by which `_no_split_modules` and FSDP find it.
        _classes[layer] = type(layer.__name__, (_Recomputing, layer), {})
    return _classes[layer]


class _Recomputing(nn.Module):
    def forward(self, *inputs: Any, **settings: Any) -> Any:
        forward = super().forward
        if not torch.is_grad_enabled():
            return forward(*inputs, **settings)
        # No dropout, so no state of a random stream has to be brought back.
        return checkpoint(
            partial(forward, **settings), *inputs, use_reentrant=False, preserve_rng_state=False
        )
