"""One training run in several processes: `accelerate launch --num_processes N whet train ...`.

Every process holds the whole model, computes its share of each step's parts, and gradients are added
up; losses here are sums over parts, so the sum is what one process would have computed, up to the
order of additions.  Whatever decides the course of the run (losses, measurements, refusals) is made
the same everywhere; the first process alone writes and speaks.  Launched with FSDP, the processes also
share the layers of the model between them (`sharding.py`).

DeepSpeed wants to own the optimizer and the backward pass, which are whet's own here, so it is refused:
its ZeRO-3 keeps what FSDP keeps.  `whet parallel` writes the launcher's file for either.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ...errors import InputError, MissingExtra

T = TypeVar("T")
_sharded = False
"""True once this process, launched to hold a share of the model, has joined the others."""
GLOO_LETS_GO = 0.2
"""Seconds that gloo's threads are given to let go of their last tensors."""


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """Which of how many processes this is."""

    rank: int = 0
    size: int = 1
    sharded: bool = False
    """True if each holds a share of the model."""

    @property
    def first(self) -> bool:
        """True for the one that writes and logs."""
        return self.rank == 0


def place() -> ProcessRank:
    """Where this process stands among those that train together; alone unless `joined`."""
    if not (dist.is_available() and dist.is_initialized()):
        return ProcessRank()
    return ProcessRank(dist.get_rank(), dist.get_world_size(), _sharded)


@contextmanager
def joined(output: Path) -> Iterator[Path]:
    """Join the processes that a launcher has started; gives the folder that this one writes to.

    The first writes to `output`, the others to a folder of their own that is thrown away, which begins
    as a copy so that all of them can resume.

    Raises:
        InputError: the launcher was told to use DeepSpeed.
        MissingExtra: accelerate is not installed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        yield output
        return
    global _sharded
    if _asked("ACCELERATE_USE_DEEPSPEED"):
        raise InputError(
            "DeepSpeed owns the optimizer and the backward pass, which whet train has of its own. To share the "
            "model between processes launch it with FSDP (whet parallel fsdp --processes N --output FILE)"
        )
    try:
        from accelerate import PartialState
    except ImportError as error:
        raise MissingExtra("accelerate", "train") from error
    state = PartialState()
    if state.device.type == "cuda":
        torch.cuda.set_device(state.device)
    _sharded = _asked("ACCELERATE_USE_FSDP")
    try:
        # Asked of torch: accelerate takes processes that shard a model on the CPU for one each.
        if place().first:
            dist.barrier()
            yield output
            return
        with tempfile.TemporaryDirectory(prefix="whet-process-") as scratch:
            own = Path(scratch) / "output"
            # Copied before the barrier, after which the first process may write to it.
            if output.is_dir():
                shutil.copytree(output, own)
            dist.barrier()
            yield own
    finally:
        _sharded = False
        if dist.get_backend() == "gloo":
            # A thread of gloo's lets go of a collective's tensors after it has told who waited for it. Where
            # that is as late as Python's own end, the process aborts (pytorch/pytorch#179291), a good training
            # with it. FSDP's caches keep these threads beyond the group's end, so nothing can be joined.
            time.sleep(GLOO_LETS_GO)
        state.destroy_process_group()


def _asked(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true")


def sharded(tensor: Tensor) -> bool:
    """True if this process holds only a share of a tensor (a DTensor)."""
    return hasattr(tensor, "placements")


def share(items: Iterable[T]) -> Sequence[T]:
    """This process's part of the items of a step."""
    where = place()
    every = list(items)
    return every if where.size == 1 else every[where.rank :: where.size]


def add_up(weights: Iterable[nn.Parameter], value: float, *, failed: bool) -> tuple[float, bool]:
    """Add gradients and a value up over all processes; the sum, and whether any process failed.

    Where one failed, gradients are left alone: every process gives up on the step together, and none
    waits for one that is gone.
    """
    if place().size == 1:
        return value, failed
    # Who failed is asked before gradients are exchanged: those of a process that failed are incomplete.
    sums = torch.tensor([value, float(failed)], dtype=torch.float64, device=_device())
    dist.all_reduce(sums)
    total, failures = sums.tolist()
    if failures > 0:
        return float(total), True
    # What is sharded has been added up where it was computed.
    _add_up_gradients([weight for weight in weights if not sharded(weight)])
    return float(total), False


def of_first(compute: Callable[[], bool]) -> bool:
    """What the first process computes, in all of them.  Every process must ask."""
    answers = [compute() if place().first else False]
    dist.broadcast_object_list(answers, src=0, device=_device())
    return answers[0]


def _device() -> torch.device:
    """Where numbers are exchanged: NCCL knows GPUs alone."""
    if "nccl" in dist.get_backend():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


BUCKET = 1 << 24
"""Numbers of gradients that are exchanged at once: one exchange a weight would wait for each, one for all would hold
them twice."""


def _add_up_gradients(weights: Sequence[nn.Parameter]) -> None:
    device = _device()
    bucket: list[Tensor] = []
    for weight in weights:
        if weight.grad is None:
            # Every process must exchange the same numbers.
            weight.grad = torch.zeros_like(weight, dtype=getattr(weight, "grad_dtype", None) or weight.dtype)
        together = bucket and bucket[0].device == weight.grad.device and bucket[0].dtype == weight.grad.dtype
        if bucket and not (together and sum(map(Tensor.numel, bucket)) + weight.numel() <= BUCKET):
            _exchange(bucket, device)
            bucket = []
        bucket.append(weight.grad)
    if bucket:
        _exchange(bucket, device)


def _exchange(gradients: Sequence[Tensor], device: torch.device) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).to(device)
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def add_up_sums(sums: dict[str, float]) -> None:
    """Add named values up over all processes, in place; names that one process lacks count as 0 there."""
    if place().size == 1:
        return
    # Not a tensor: a process without an item has measured nothing and lacks the names.
    every: list[dict[str, float]] = [{}] * place().size
    dist.all_gather_object(every, dict(sums))
    for name in sorted({name for shares in every for name in shares}):
        sums[name] = sum(shares.get(name, 0.0) for shares in every)
