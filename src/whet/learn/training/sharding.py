"""Weights spread over processes: each holds a share of every layer and of what its optimizer keeps.

PyTorch's `fully_shard` (FSDP2) gathers a layer when it is computed and lets it go again, and leaves on
each process the sum of the gradients for its own share.  What is outside the layers (embedding, last
norm, output layer, a value head) stays whole everywhere, and so does the reference of a KL penalty.
The first process alone reads the network; the others begin with its shapes and get their shares from
the first, layer by layer.  Shares and gradients are float32; in bfloat16
a layer is rounded as it is gathered.

It shards causal LMs of transformers that can be packed, because then each item of a step is one forward
and one backward pass, which all processes must make together; it moves nothing to main memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import InputError
from .processes import place, sharded

_ON = ("1", "true")
_UNKNOWN = {
    "FSDP_OFFLOAD_PARAMS": "fsdp_offload_params",
    "FSDP_ACTIVATION_CHECKPOINTING": "fsdp_activation_checkpointing (it is --recompute here)",
}
"""Settings of accelerate that change what is computed where, and that are not followed here."""


@runtime_checkable
class Shardable(Protocol):
    """A network whose layers can be held in shares."""

    packs: bool
    """True if an item is one forward pass, whatever is in it."""

    layer_dtype: torch.dtype | None
    """Dtype in which layers compute; their own if None."""

    model: nn.Module
    """All of it."""

    home: torch.device | None
    """Where its weights go, of a network that the first process alone has read; None if every process has it."""

    @property
    def device(self) -> torch.device:
        """Where its weights are, or go."""
        ...

    def layers(self) -> list[nn.Module]:
        """The layers that are gathered and released one by one."""
        ...

    def idle(self) -> None:
        """A forward and a backward pass that come to nothing."""
        ...


def shard(network: object) -> None:
    """Spread a network over the processes that train together, in place, where they were launched for that.

    Raises:
        InputError: this network or this torch cannot be sharded, or a setting is not known.
    """
    if not place().sharded:
        return
    for name, shown in _UNKNOWN.items():
        if os.environ.get(name, "").lower() in _ON:
            raise InputError(f"whet train does not know {shown}; leave it out, or train LoRA factors instead")
    if not isinstance(network, Shardable):
        raise InputError("a model of whet's own fits in every process; launch it without FSDP")
    if not network.packs:
        raise InputError(
            "this model's attention cannot be packed, so its processes would not compute in step; train LoRA "
            "factors, or launch without FSDP"
        )
    layers = network.layers()
    if not layers:
        raise InputError(
            "this model does not say what its layers are (_no_split_modules); launch without FSDP"
        )
    try:
        from . import fsdp
    except ImportError as error:
        raise InputError(f"FSDP2 needs torch 2.8 or newer; this is {torch.__version__}") from error
    if not fsdp.COMPLETE:
        raise InputError(f"FSDP2 needs torch 2.8 or newer; this is {torch.__version__}")
    fsdp.spread(
        layers,
        network.device,
        place().size,
        network.layer_dtype,
        given_out=network.model if network.home else None,
    )
    network.home = None


def own(tensor: Tensor) -> Tensor:
    """This process's share, by reference; all of what is not sharded."""
    local: Tensor = _laid_out(tensor).to_local() if sharded(tensor) else tensor
    return local


def whole(tensor: Tensor) -> Tensor:
    """All of it.  Every process must ask."""
    full: Tensor = _laid_out(tensor.detach()).full_tensor() if sharded(tensor) else tensor
    return full


def gathered(share: Tensor, weight: Tensor) -> Tensor:
    """All of a tensor whose shares are cut as the weight's.  Every process must ask."""
    if not sharded(weight):
        return share
    from . import fsdp

    return fsdp.gathered(share, _laid_out(weight))


def share_of(tensor: Tensor, weight: Tensor) -> Tensor:
    """This process's share of a whole tensor, cut as the weight's; of one that is cut already, its share."""
    if sharded(tensor) or not sharded(weight):
        return own(tensor)
    from . import fsdp

    return fsdp.share_of(tensor, _laid_out(weight))


def _laid_out(tensor: Tensor) -> Any:
    """A sharded tensor as what it is: torch's DTensor."""
    return tensor


def length(gradients: Mapping[str, Tensor]) -> float:
    """Euclidean length of all of them together."""
    if not gradients:
        return 0.0
    norms: Sequence[Tensor] = torch._foreach_norm(
        [own(slope) for slope in gradients.values()], 2, torch.float32
    )
    parts = [norm for norm, gradient in zip(norms, gradients.values(), strict=True) if sharded(gradient)]
    if not parts:
        return _length(norms)
    # Shares alone are added up: what is whole has the same gradient in every process already.
    squares = torch.stack(parts).square().sum()
    dist.all_reduce(squares)
    rest = [norm for norm, gradient in zip(norms, gradients.values(), strict=True) if not sharded(gradient)]
    return float((squares.cpu() + sum(norm.square().cpu() for norm in rest)).sqrt())


def _length(norms: Sequence[Tensor]) -> float:
    """Length of the vector of these norms: a policy's may be on a GPU, and its value head's are not."""
    by_device: dict[torch.device, list[Tensor]] = {}
    for norm in norms:
        by_device.setdefault(norm.device, []).append(norm.float())
    lengths = [torch.stack(some).norm() for some in by_device.values()]
    return float(
        lengths[0] if len(lengths) == 1 else torch.stack([length.cpu() for length in lengths]).norm()
    )
