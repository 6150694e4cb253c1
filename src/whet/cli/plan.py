"""`whet train METHOD --plan`: the memory that a run would take, printed before anything is read or loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from .root import print_json
from .train_input import Method, TrainArguments

if TYPE_CHECKING:
    from ..learn.training.planning import MemoryPlan, ModelSizes

GIB = 1 << 30
SEVERAL = ("webrl", "rlhf")
"""Methods that hold a critic, or a reward model and a reference, beside the policy."""
FACTORS = 16
"""Rank of the factors in what is suggested."""


def plan(name: str, method: Method, options: Any, common: TrainArguments) -> int:
    """Print what training would take, and what would fit where it does not.

    Returns:
        0 if it fits or nothing is known of the device, 1 if it does not.

    Raises:
        InputError: there is no pretrained model to plan for, or the method holds several.
        NotFoundError: the model is not within reach.
    """
    from ..learn.training.planning import sizes_of  # there where the extra `train` is installed

    if common.model in ("", "tiny"):
        raise InputError(
            "--plan is for a pretrained model: give one with --model; a tiny one fits everywhere"
        )
    if method.plugin or name in SEVERAL:
        raise InputError(
            f"--plan counts one network that is trained, and {name} may hold others; plan for sft or grpo"
        )
    model = sizes_of(common.model)
    device, dtype, free = _device(common)
    memory = _planned(model, method, options, common, device, dtype, free)
    others: list[tuple[str, int]] = []
    if memory.fits is False:
        others = list(_fitting(model, method, options, common, device, dtype, free))
    if common.json:
        print_json(
            {
                "method": name,
                "weights": model.count,
                "device": device,
                "dtype": dtype,
                "bytes": dict(memory.parts),
                "total": memory.total,
                "main_memory": memory.main,
                "free": memory.free,
                "fits": memory.fits,
                "part_tokens": memory.part_tokens,
                "recompute": memory.recompute,
                "would_fit": [words for words, _ in others],
            }
        )
        return int(memory.fits is False)
    trained = f"LoRA factors of rank {common.lora_rank}" if common.lora_rank else "all weights"
    print(f"{name} of {model.name}: {model.count:,} weights, {trained} trained, on {device} in {dtype}")
    for what, size in memory.parts.items():
        print(f"  {_named(what, memory):40} {size / GIB:9.2f} GiB")
    print(f"  {'at the peak of a step':40} {memory.total / GIB:9.2f} GiB")
    if memory.main:
        print(f"  {'best weights so far, in main memory':40} {memory.main / GIB:9.2f} GiB")
    if memory.free is None:
        print(f"what {device} holds is not known here; say it with --plan-for GIB")
        return 0
    if memory.fits:
        print(f"fits: {memory.free / GIB:.2f} GiB are at hand")
        return 0
    print(f"does not fit: {memory.free / GIB:.2f} GiB are at hand")
    for words, size in others:
        print(f"would fit: {words} ({size / GIB:.2f} GiB)")
    return 1


def _named(what: str, memory: MemoryPlan) -> str:
    if what != "a part of a step":
        return what
    return f"a part of {memory.part_tokens:,} tokens" + (", recomputed" if memory.recompute else "")


def _device(common: TrainArguments) -> tuple[str, Literal["float32", "bfloat16"], int | None]:
    """Device, dtype and bytes at hand: of the machine, or of the one that is planned for."""
    device, free = common.device, None
    if common.plan_for is not None:
        free = int(common.plan_for * GIB)
    if device == "auto" or free is None:
        placement = None
        try:
            from ..learn.training.placement import placed  # with torch, which takes seconds

            placement = placed(common.compute)
        except InputError:
            if device == "auto":
                raise
            # A plan for another machine's GPU, whose memory was not said.
        if placement is not None:
            device = placement.device.type
            free = placement.free() if free is None else free
    kind = device.partition(":")[0]
    if common.dtype != "auto":
        return kind, common.dtype, free
    return kind, "bfloat16" if kind == "cuda" else "float32", free


def _planned(
    model: ModelSizes,
    method: Method,
    options: Any,
    common: TrainArguments,
    device: str,
    dtype: Literal["float32", "bfloat16"],
    free: int | None,
) -> MemoryPlan:
    from ..learn.training.options import LORA_TARGETS, RoundOptions
    from ..learn.training.planning import planned

    rounds = isinstance(options, RoundOptions)
    compares = rounds and (
        options.kl_coefficient > 0 or options.measured_every(full=not common.lora_rank) is not None
    )
    return planned(
        model,
        device=device,
        dtype=dtype,
        lora_rank=common.lora_rank,
        targets=LORA_TARGETS,
        four_bit=common.four_bit,
        recompute=common.recompute,
        part_tokens=getattr(options, "part_tokens", None),
        muon=bool(getattr(options, "optim", None) and options.optim.muon),
        reference=compares,
        samples=common.env is not None and not common.elsewhere,
        best=not rounds and getattr(options, "validation_share", 0) > 0,
        free=free,
    )


def _fitting(
    model: ModelSizes,
    method: Method,
    options: Any,
    common: TrainArguments,
    device: str,
    dtype: Literal["float32", "bfloat16"],
    free: int | None,
) -> Iterator[tuple[str, int]]:
    """Options that would make it fit, the mildest first."""
    rank = common.lora_rank or FACTORS
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        ("--recompute", {"recompute": True}),
        (f"--lora-rank {rank}", {"lora_rank": rank}),
        (f"--lora-rank {rank} --recompute", {"lora_rank": rank, "recompute": True}),
        (
            f"--lora-rank {rank} --four-bit --recompute",
            {"lora_rank": rank, "four_bit": True, "recompute": True},
        ),
    )
    smaller = options
    if getattr(options, "part_tokens", None) is not None and options.part_tokens > 1_024:
        smaller = replace(options, part_tokens=1_024)
    for words, change in changes:
        for suffix, of_method in (("", options), (" --part-tokens 1024", smaller)):
            memory = _planned(model, method, of_method, replace(common, **change), device, dtype, free)
            if memory.fits:
                yield words + suffix, memory.total
                break
