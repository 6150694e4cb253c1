"""The device and the dtype that `ComputeOptions` come to on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

from ...errors import InputError, MissingExtra
from .compute import ComputeOptions


@dataclass(frozen=True, slots=True)
class Placement:
    """A device and a dtype that are there."""

    device: torch.device
    dtype: torch.dtype
    recompute: bool | None = None
    four_bit: bool = False

    def free(self) -> int | None:
        """Bytes of the device's memory that nobody holds; None where that is not known."""
        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0])
        if self.device.type == "mps":
            return int(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
        try:
            with open("/proc/meminfo", encoding="ascii") as lines:
                return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        except (OSError, StopIteration, ValueError):
            return None


def placed(options: ComputeOptions) -> Placement:
    """Where and in which numbers to compute here.

    Raises:
        InputError: there is no such device.
        MissingExtra: four bits are asked for, and bitsandbytes is not installed.
    """
    if options.device == "auto":
        options = replace(options, device=os.environ.get("WHET_DEVICE") or _fastest())
    device = torch.device(options.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"there is no device {options.device} here: torch {torch.__version__} sees "
            f"{torch.cuda.device_count()} GPUs. Compute on the processor with --device cpu"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("there is no device mps here; compute on the processor with --device cpu")
    if device.type == "cuda" and device.index is None:
        # A launcher starts a process for each GPU, and says which is whose.
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if options.dtype != "auto":
        dtype = torch.bfloat16 if options.dtype == "bfloat16" else torch.float32
    else:
        able = device.type == "cuda" and torch.cuda.is_bf16_supported()
        dtype = torch.bfloat16 if able else torch.float32
    if options.four_bit:
        _require_bitsandbytes()
    return Placement(device, dtype, options.recompute, options.four_bit)


def _fastest() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _require_bitsandbytes() -> None:
    try:
        import bitsandbytes  # noqa: F401  # transformers imports it, and its own message names no extra of whet's
    except ImportError as error:
        raise MissingExtra("bitsandbytes", "qlora") from error
