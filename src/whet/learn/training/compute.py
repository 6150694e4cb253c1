"""Where a process computes with pretrained weights, and in which numbers.

It is a property of the process and not of a Version: the same weights are trained on a GPU and served on a
processor.  A decoder of whet's own stays on the processor in float32, where one of its size is fastest.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...errors import InputError, MissingExtra

if TYPE_CHECKING:
    import torch

Dtype = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """Device and precision of pretrained weights."""

    device: str = "auto"
    """Where pretrained weights compute: `cpu`, `cuda`, `cuda:1` or `mps`; `auto` takes a CUDA GPU if there is one."""
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

    def placed(self) -> Placement:
        """The device and dtype that this comes to here.

        Raises:
            InputError: there is no such device, or it cannot compute in bfloat16.
            MissingExtra: four bits are asked for, and bitsandbytes is not installed.
        """
        import torch  # seconds to import, and options are read without it

        device = torch.device(self._device())
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InputError(
                f"there is no device {self.device} here: torch {torch.__version__} sees "
                f"{torch.cuda.device_count()} GPUs. Compute on the processor with --device cpu"
            )
        if device.type == "mps" and not torch.backends.mps.is_available():
            raise InputError("there is no device mps here; compute on the processor with --device cpu")
        if device.type == "cuda" and device.index is None:
            # A launcher starts a process for each GPU, and says which is whose.
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        if self.dtype != "auto":
            dtype = torch.bfloat16 if self.dtype == "bfloat16" else torch.float32
        else:
            able = device.type == "cuda" and torch.cuda.is_bf16_supported()
            dtype = torch.bfloat16 if able else torch.float32
        if self.four_bit:
            _require_bitsandbytes()
        return Placement(device, dtype, self.recompute, self.four_bit)

    def _device(self) -> str:
        import torch

        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class Placement:
    """A device and a dtype that are there."""

    device: torch.device
    dtype: torch.dtype
    recompute: bool | None = None
    four_bit: bool = False

    def free(self) -> int | None:
        """Bytes of the device's memory that nobody holds; None where that is not known."""
        import torch

        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0])
        if self.device.type == "mps":
            return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
        try:
            with open("/proc/meminfo", encoding="ascii") as lines:
                return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        except (OSError, StopIteration, ValueError):
            return None


def _require_bitsandbytes() -> None:
    try:
        import bitsandbytes  # noqa: F401  # transformers imports it, and its own message names no extra of whet's
    except ImportError as error:
        raise MissingExtra("bitsandbytes", "qlora") from error
