"""The calls of torch's FSDP2: loaded by `sharding.py` where processes hold shares, for it takes a second.

It decides nothing: what is sharded, and whether it may be, is said there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

COMPLETE = hasattr(FSDPModule, "set_force_sum_reduction_for_comms")
"""True if this torch has all that is used here: 2.8 does."""


def spread(layers: Sequence[nn.Module], device: str, processes: int, dtype: torch.dtype | None) -> None:
    """Leave on each process its share of every layer, in place.

    Args:
        dtype: in which layers compute; gradients are added up in float32 all the same.
    """
    rounded = dtype if dtype is not torch.float32 else None
    precision = MixedPrecisionPolicy(param_dtype=rounded, reduce_dtype=torch.float32 if rounded else None)
    mesh = init_device_mesh(device, (processes,))
    again = os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false"
    for layer in layers:
        sharded_layer = fully_shard(layer, mesh=mesh, reshard_after_forward=again, mp_policy=precision)
        sharded_layer.set_gradient_divide_factor(1.0)  # losses are sums over the parts of all processes
        sharded_layer.set_force_sum_reduction_for_comms(True)  # gloo knows no other


def gathered(share: Tensor, cut: Any) -> Tensor:
    """All of a tensor whose shares are cut as the DTensor `cut`.  Every process must ask."""
    full = DTensor.from_local(share, cut.device_mesh, cut.placements, shape=cut.shape, stride=cut.stride())
    return full.full_tensor()


def share_of(tensor: Tensor, cut: Any) -> Tensor:
    """This process's share of a whole tensor, cut as the DTensor `cut`."""
    # src_data_rank=None: every process has the whole tensor, so nothing is sent.
    return distribute_tensor(tensor, cut.device_mesh, cut.placements, src_data_rank=None).to_local()
