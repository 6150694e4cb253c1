"""Weights from a trainer to an engine through memory: a process group of the two, and no file.

The group is formed as OpenRLHF and SGLang form theirs (`init_custom_process_group`): the trainer is rank 0 and holds
the store at an address, the engine joins under a name, and each tensor is a broadcast.  It stands beside torch's own
default group, of which a trainer and an engine each may have one.  `nccl` needs a GPU for each of the two; `gloo` does
it on processors, or between processes that share a GPU.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...errors import InputError, TrainingRefused

GROUP_SECONDS = 600.0
"""That one side waits for the other, as a large model's first tensor may be long in coming."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ENGINE_RANK = 1
"""The trainer is rank 0."""


class WeightGroup:
    """One side's end of the group; both make theirs at the same time.

    Args:
        address: of the trainer.
        port: that the trainer listens at.
        rank: 0 for the trainer, who sends.
        size: processes together; an engine of several has a rank for each.
        backend: `gloo` or `nccl`.
        name: of the group, the same on both sides.

    Raises:
        InputError: this torch has no such backend.
        TrainingRefused: the other side did not come.
    """

    def __init__(
        self,
        address: str,
        port: int,
        *,
        rank: int,
        size: int = 2,
        backend: str = "gloo",
        name: str = "whet",
        seconds: float = GROUP_SECONDS,
    ) -> None:
        if backend not in ("gloo", "nccl") or not dist.is_available():
            raise InputError(f"weights are sent by gloo or nccl; got {backend!r}")
        if backend == "nccl" and not (torch.cuda.is_available() and dist.is_nccl_available()):
            raise InputError(
                "nccl sends between GPUs, and there is none here; hand weights over by disk or gloo"
            )
        # By torch's own pieces, as there is no public way to a group beside the default one.
        c10d: Any = import_module("torch.distributed.distributed_c10d")

        wait = timedelta(seconds=seconds)
        try:
            with _on_loopback(address):
                store, _, _ = next(c10d.rendezvous(f"tcp://{address}:{port}", rank, size, timeout=wait))
                store.set_timeout(wait)
                group, _ = c10d._new_process_group_helper(
                    size,
                    rank,
                    [],
                    backend,
                    c10d.PrefixStore(name, store),
                    group_name=name,
                    timeout=wait,
                )
        except (RuntimeError, ValueError) as error:
            raise TrainingRefused(
                f"no group for weights was formed at {address}:{port}: {str(error).splitlines()[0]:.200}"
            ) from error
        c10d._world.pg_group_ranks[group] = {one: one for one in range(size)}
        self._group: Any = group
        self.backend = backend

    def send(self, tensors: Iterable[Tensor]) -> None:
        """Send these, in their order; every receiver takes them meanwhile."""
        for tensor in tensors:
            # Contiguous, as a broadcast sends memory as it lies.
            dist.broadcast(self._placed(tensor.detach()).contiguous(), 0, group=self._group)

    @torch.no_grad()
    def receive_into(
        self, weights: Mapping[str, Tensor], names: Sequence[str], dtypes: Sequence[str]
    ) -> None:
        """Take what is sent into weights of these names, in this order.

        Args:
            dtypes: that they are sent in, which need not be the weights' own.

        Raises:
            InputError: there is no such dtype.
        """
        for name, dtype in zip(names, [_named_dtype(one) for one in dtypes], strict=True):
            tensor = self._placed(torch.empty(weights[name].shape, dtype=dtype))
            dist.broadcast(tensor, 0, group=self._group)
            weights[name].copy_(tensor)

    def _placed(self, tensor: Tensor) -> Tensor:
        if self.backend == "nccl":
            return tensor.cuda()
        return tensor.cpu()

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group(self._group)


def _named_dtype(name: str) -> torch.dtype:
    """The dtype of a name, with or without `torch.` before it.

    Raises:
        InputError: there is no such dtype.
    """
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"{name!r} is no dtype of a weight")
    return dtype


def refuse_others(
    weights: Mapping[str, Tensor], names: Sequence[str], shapes: Sequence[Sequence[int]]
) -> None:
    """Refuse what is not to be sent to these weights.

    Raises:
        InputError: a name or a shape does not fit.
    """
    own = {name: list(weight.shape) for name, weight in weights.items()}
    coming = {name: list(shape) for name, shape in zip(names, shapes, strict=False)}
    if own != coming or len(names) != len(shapes):
        odd = sorted(set(own) ^ set(coming)) or sorted(name for name in own if own[name] != coming[name])
        raise InputError(f"these weights belong to another model: {', '.join(odd[:3])} does not fit")


def described(tensors: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Names, dtypes and shapes of tensors that are to be sent, as SGLang asks for them."""
    return {
        "names": list(tensors),
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()],
        "shapes": [list(tensor.shape) for tensor in tensors.values()],
    }


@contextmanager
def _on_loopback(address: str) -> Iterator[None]:
    """gloo listens where the machine's name leads, unless it is told which interface to take."""
    variable = "GLOO_SOCKET_IFNAME"
    if address not in LOOPBACK or variable in os.environ:
        yield
        return
    os.environ[variable] = "lo0" if sys.platform == "darwin" else "lo"
    try:
        yield
    finally:
        os.environ.pop(variable, None)
