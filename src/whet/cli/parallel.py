"""`whet parallel`: the launcher's file for training in several processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ..errors import InputError
from .root import Print, print_json

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


def parallel(
    how: How,
    /,
    *,
    output: Path,
    processes: int = 2,
    cpu: bool = False,
    model: Path | None = None,
    json: Print = False,
) -> int:
    """Write a config for `accelerate launch`, to train in several processes on one machine.

    Then: accelerate launch --config_file FILE -m whet train METHOD ... The weights are the same as from one process,
    up to rounding. With copies, every process holds the whole model and computes its share of each step. With fsdp,
    the processes also divide the layers, their gradients and the optimizer's state (FSDP2, torch 2.8 or newer).
    deepspeed (ZeRO-3) is for trainers that let DeepSpeed own the optimizer, such as TRL on a dataset of whet export;
    whet train refuses it.

    Parameters
    ----------
    how
        How the processes divide the work.
    output
        The file to write.
    processes
        Number of processes: one per GPU.
    cpu
        Train on CPUs.
    model
        Folder of the model, to estimate the memory that each process needs.
    """

    if processes < 2:
        raise InputError(f"processes must be 2 or more, got {processes}; one process needs no launcher")
    if output.exists():
        raise InputError(f"{output} exists; name a file that does not")
    if cpu and how == "deepspeed":
        raise InputError("accelerate starts DeepSpeed on GPUs only; on CPUs use fsdp")
    counts = None
    if model is not None:
        from ..learn.training.planning import sizes_of  # there where the extra `train` is installed

        sizes = sizes_of(model)
        counts = sizes.in_layers, sizes.count - sizes.in_layers
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(_yaml(_settings(how, processes, cpu)), encoding="utf-8")
    needed = None if counts is None else _needed(how, *counts, processes)
    if json:
        print_json({"file": str(output), "how": how, "bytes_per_process": needed})
        return 0
    then = "YOUR_TRAINER.py" if how == "deepspeed" else "-m whet train METHOD ..."
    print(f"{output}\naccelerate launch --config_file {output} {then}")
    if counts is not None and needed is not None:
        loading = sum(counts) * 4 / 2**30
        print(
            f"{sum(counts):,} weights: about {needed / 2**30:.2f} GiB a process for weights, gradients and "
            f"moments in float32, plus activations; {loading:.2f} GiB briefly while it is loaded"
        )
    return 0


def _settings(how: How, processes: int, cpu: bool) -> dict[str, Setting]:
    kinds = {"copies": "MULTI_CPU" if cpu else "MULTI_GPU", "fsdp": "FSDP", "deepspeed": "DEEPSPEED"}
    settings: dict[str, Setting] = {
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
        settings["fsdp_config"] = _FSDP
    elif how == "deepspeed":
        settings["deepspeed_config"] = _DEEPSPEED
    return settings


def _yaml(settings: Mapping[str, Setting] | Mapping[str, Scalar], indent: str = "") -> str:
    """Names and scalars as YAML; texts are quoted, because a plain `no` would be read as false."""
    lines = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines.append(f"{indent}{name}:\n{_yaml(value, indent + '  ')}")
        else:
            shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
            lines.append(f"{indent}{name}: {shown}\n")
    return "".join(lines)


def _needed(how: How, layers: int, others: int, processes: int) -> int:
    """Bytes that one process needs to train all weights."""
    from ..learn.training.planning import TRAINED_BYTES

    match how:
        case "copies":
            weights = layers + others
        case "fsdp":  # weights outside the layers are not divided
            weights = -(-layers // processes) + others
        case "deepspeed":
            weights = -(-(layers + others) // processes)
    return weights * TRAINED_BYTES
