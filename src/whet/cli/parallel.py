"""`whet parallel`: the launcher's file for training in several processes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from .app import app

How = Literal["copies", "fsdp", "deepspeed"]
Scalar = str | int | float | bool
Setting = Scalar | Mapping[str, Scalar]

_FSDP: dict[str, Scalar] = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_state_dict_type": "FULL_STATE_DICT",
    "fsdp_offload_params": False,
    "fsdp_cpu_ram_efficient_loading": False,
}
_DEEPSPEED: dict[str, Scalar] = {
    "zero_stage": 3,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_init_flag": True,
    "zero3_save_16bit_model": False,
}
_BYTES = 16
"""Of a trained weight in float32: itself, its gradient and AdamW's two moments."""


@app.command(name="parallel")
def parallel(
    how: How,
    /,
    *,
    output: Path,
    processes: int = 2,
    cpu: bool = False,
    model: Path | None = None,
    json: bool = False,
) -> int:
    """Write the file by which `accelerate launch` starts training in several processes of one machine.

    Then: accelerate launch --config_file FILE -m whet train METHOD ... (one process gives the same weights, up
    to rounding). copies: every process holds the model whole and computes its share of a step. fsdp: the processes
    also share the layers, their gradients and the optimizer's state between them (FSDP2, torch 2.8 or newer).
    deepspeed: ZeRO-3, for a trainer that lets DeepSpeed own the optimizer, such as TRL on what whet export wrote;
    whet train itself refuses it.

    Parameters
    ----------
    how
        What the processes share.
    output
        The file to write.
    processes
        How many: one for each GPU.
    cpu
        Train on the processor.
    model
        Folder of the model, to say about how much memory each process needs for it.
    json
        Print one JSON object.
    """
    from ..errors import InputError

    if processes < 2:
        raise InputError(f"processes must be 2 or more, got {processes}; one process needs no launcher")
    if output.exists():
        raise InputError(f"{output} exists; name a file that does not")
    if cpu and how == "deepspeed":
        raise InputError("accelerate starts DeepSpeed on GPUs alone; on the processor use fsdp")
    counts = _weights(model) if model is not None else None
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(_yaml(_settings(how, processes, cpu)), encoding="utf-8")
    needed = None if counts is None else _needed(how, *counts, processes)
    if json:
        print(msgspec.json.encode({"file": str(output), "how": how, "bytes_per_process": needed}).decode())
        return 0
    then = "YOUR_TRAINER.py" if how == "deepspeed" else "-m whet train METHOD ..."
    print(f"{output}\naccelerate launch --config_file {output} {then}")
    if counts is not None and needed is not None:
        whole = sum(counts) * 4 / 2**30
        print(
            f"{sum(counts):,} weights: about {needed / 2**30:.2f} GiB a process for weights, gradients and "
            f"moments in float32, activations besides; {whole:.2f} GiB for a moment, when it is loaded"
        )
    return 0


def _settings(how: How, processes: int, cpu: bool) -> dict[str, Setting]:
    kinds = {"copies": "MULTI_CPU" if cpu else "MULTI_GPU", "fsdp": "FSDP", "deepspeed": "DEEPSPEED"}
    found: dict[str, Setting] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kinds[how],
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": "no",
        "num_machines": 1,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": cpu,
    }
    if how == "fsdp":
        found["fsdp_config"] = _FSDP
    elif how == "deepspeed":
        found["deepspeed_config"] = _DEEPSPEED
    return found


def _yaml(settings: Mapping[str, Setting] | Mapping[str, Scalar], indent: str = "") -> str:
    """Names and scalars as YAML, whose plain `no` would be read as false."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{name}:\n{_yaml(value, indent + '  ')}")
        else:
            shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
            lines.append(f"{indent}{name}: {shown}\n")
    return "".join(lines)


def _needed(how: How, layers: int, others: int, processes: int) -> int:
    """Bytes of one process that trains all weights."""
    match how:
        case "copies":
            held = layers + others
        case "fsdp":  # what is outside the layers stays whole
            held = -(-layers // processes) + others
        case "deepspeed":
            held = -(-(layers + others) // processes)
    return held * _BYTES


def _weights(model: Path) -> tuple[int, int]:
    """Weights within a model's layers and outside of them, by the heads of its safetensors files.

    Raises:
        NotFoundError: there are none.
        InputError: one cannot be read.
    """
    from ..errors import InputError, NotFoundError

    files = sorted(model.glob("*.safetensors")) if model.is_dir() else []
    if not files:
        raise NotFoundError(f"no .safetensors file in {model}; give the folder of a model")
    layers = others = 0
    for path in files:
        try:
            with open(path, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                head = msgspec.json.decode(file.read(min(length, 1 << 27)))
            sizes = {name: math.prod(one["shape"]) for name, one in head.items() if name != "__metadata__"}
        except (OSError, struct.error, msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no safetensors file: {error!r}") from error
        for name, size in sizes.items():
            if any(part.isdigit() for part in name.split(".")):
                layers += size
            else:
                others += size
    return layers, others
