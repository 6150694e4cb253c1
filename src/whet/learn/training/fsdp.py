"""The calls of torch's FSDP2: loaded by `sharding.py` where processes hold shares, for it takes a second.

It decides nothing: what is sharded, and whether it may be, is said there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

COMPLETE = hasattr(FSDPModule, "set_force_sum_reduction_for_comms")
"""True if this torch has all that is used here: 2.8 does."""


def spread(
    layers: Sequence[nn.Module],
    device: torch.device,
    processes: int,
    dtype: torch.dtype | None,
    *,
    given_out: nn.Module | None = None,
) -> None:
    """Leave on each process its share of every layer, in place.

    Args:
        dtype: in which layers compute; gradients are added up in float32 all the same.
        given_out: the network whose layers they are, where the first process alone has its weights: the others get
            their shares of layers from it, and all of what is outside them.
    """
    rounded = dtype if dtype is not torch.float32 else None
    precision = MixedPrecisionPolicy(param_dtype=rounded, reduce_dtype=torch.float32 if rounded else None)
    mesh = init_device_mesh(device.type, (processes,))
    again = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false"
    for layer in layers:
        weights = _emptied(layer) if given_out is not None else {}
        sharded_layer = fully_shard(layer, mesh=mesh, reshard_after_forward=again, mp_policy=precision)
        sharded_layer.set_gradient_divide_factor(1.0)  # losses are sums over the parts of all processes
        sharded_layer.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        if given_out is not None:
            shares = {
                name: _share_from_first(weights[name], cut, device) for name, cut in layer.named_parameters()
            }
            layer.load_state_dict(shares, assign=True, strict=False)
    if given_out is not None:
        _rest_from_first(given_out, device)


def _emptied(layer: nn.Module) -> dict[str, nn.Parameter]:
    """The weights of a layer, which is left with their shapes alone: in every process the same."""
    weights = dict(layer.named_parameters())
    for name, weight in weights.items():
        _put(layer, name, nn.Parameter(torch.empty_like(weight, device="meta"), weight.requires_grad))
    return weights


def _share_from_first(weight: Tensor, cut: Any, device: torch.device) -> nn.Parameter:
    """This process's share of a weight that the first one has, cut as the DTensor `cut`."""
    first = dist.get_rank() == 0
    full = weight.detach().to(device) if first else torch.empty(cut.shape, dtype=cut.dtype, device=device)
    return nn.Parameter(distribute_tensor(full, cut.device_mesh, cut.placements), weight.requires_grad)


def _rest_from_first(network: nn.Module, device: torch.device) -> None:
    """Give all processes what is in no layer: weights and buffers that the first one has."""
    # One tensor may have several names (an embedding that is the output layer too): they stay one, as in the first.
    names: dict[int, list[str]] = {}
    for name, tensor in (*network.named_parameters(remove_duplicate=False), *_saved_buffers(network)):
        if not isinstance(tensor, DTensor):
            names.setdefault(id(tensor), []).append(name)
    alike = [list(names.values())]
    dist.broadcast_object_list(alike, src=0, device=device)
    for several in alike[0]:
        before = _tensor(network, several[0])
        value = (
            before.detach().to(device) if dist.get_rank() == 0 else torch.empty_like(before, device=device)
        )
        dist.broadcast(value, src=0)
        after = nn.Parameter(value, before.requires_grad) if isinstance(before, nn.Parameter) else value
        for name in several:
            _put(network, name, after)
    for name, buffer in network.named_buffers():  # those that are computed, and in no file
        _put(network, name, buffer.to(device))


def _saved_buffers(network: nn.Module) -> list[tuple[str, Tensor]]:
    saved = set(network.state_dict())
    return [(name, buffer) for name, buffer in network.named_buffers(remove_duplicate=False) if name in saved]


def _tensor(network: nn.Module, name: str) -> Tensor:
    path, _, leaf = name.rpartition(".")
    tensor: Tensor = getattr(network.get_submodule(path), leaf)
    return tensor


def _put(network: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    # Buffers and parameters alike: a module keeps either where it is registered under that name.
    setattr(network.get_submodule(path), leaf, tensor)


def gathered(share: Tensor, cut: Any) -> Tensor:
    """All of a tensor whose shares are cut as the DTensor `cut`.  Every process must ask."""
    full = DTensor.from_local(share, cut.device_mesh, cut.placements, shape=cut.shape, stride=cut.stride())
    return full.full_tensor()


def share_of(tensor: Tensor, cut: Any) -> Tensor:
    """This process's share of a whole tensor, cut as the DTensor `cut`."""
    # src_data_rank=None: every process has the whole tensor, so nothing is sent.
    return distribute_tensor(tensor, cut.device_mesh, cut.placements, src_data_rank=None).to_local()
