"""Where a process computes with pretrained weights, and in which numbers.

It is a property of the process and not of a Version: the same weights are trained on a GPU and served on a
processor.  A decoder of whet's own stays on the processor in float32, where one of its size is fastest.
Options are read without torch; what they come to on this machine is in `placement.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...errors import InputError

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """Device and precision of pretrained weights."""

    device: str = "auto"
    """Where pretrained weights compute: `cpu`, `cuda`, `cuda:1` or `mps`; `auto` takes what WHET_DEVICE names, else a
    CUDA GPU if there is one."""
    dtype: Dtype = "auto"
    """Numbers of pretrained weights: `float32` or `bfloat16`, whose updates are kept in float32 beside them; `auto` is
    bfloat16 on a GPU and float32 elsewhere."""
    recompute: bool | None = None
    """Compute each layer's activations again in the backward pass instead of keeping them: a third more time for a
    fraction of the memory. If omitted, where the device could not hold them."""
    four_bit: bool = False
    """Hold the frozen weights beside LoRA factors in 4 bits (QLoRA, by bitsandbytes)."""

    def __post_init__(self) -> None:
        if self.dtype not in ("auto", "float32", "bfloat16"):
            raise InputError(f"{self.dtype!r} is no dtype to train in; choose auto, float32 or bfloat16")
        kind, _, index = self.device.partition(":")
        if kind not in ("auto", "cpu", "cuda", "mps") or (
            index and not (kind == "cuda" and index.isdecimal())
        ):
            raise InputError(f"{self.device!r} is no device; choose auto, cpu, cuda, cuda:1 or mps")
