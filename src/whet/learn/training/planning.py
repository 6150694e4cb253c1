"""What training takes in memory, by arithmetic from the headers of a model's files, before anything is loaded.

Counted are weights, their float32 masters, gradients, moments, a reference, and one part of a step
(`memory.py`); open conversations where the method samples.  Not counted is what an allocator leaves between
tensors, and what CUDA and the libraries hold for themselves, about half a GiB.  Nothing here imports torch.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...errors import InputError, MissingExtra, NotFoundError
from ...escapes import read_json
from .memory import (
    STEPPED_TOGETHER,
    WORTH_KEEPING,
    NetworkShape,
    part_bytes,
    part_tokens_for,
    shape_of,
    with_recomputing,
)

CONVERSATION_TOKENS, CONVERSATIONS = 2_048, 64
"""Of a conversation that is sampled in this process, and how many are open at once (`Sampler`)."""
_FOUR_BITS = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in NF4, with its share of the absolute maxima, which are quantised too (Dettmers et al. 2023)."""
TRAINED_BYTES = 16
"""Of a trained weight in float32: itself, its gradient and AdamW's two moments."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What a model's files say of it."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    """Name → shape of each tensor."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of its text part, for a model of several."""

    @property
    def count(self) -> int:
        """Weights."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def in_layers(self) -> int:
        """Weights within its layers, which processes can share."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if _in_layer(name))

    @property
    def matrices_in_layers(self) -> int:
        """Weights of the layers' matrices, which can be held in four bits."""
        matrices = (shape for name, shape in self.shapes.items() if _in_layer(name) and len(shape) == 2)
        return sum(map(math.prod, matrices))

    def factors(self, rank: int, targets: Sequence[str]) -> int:
        """Weights of LoRA factors beside it."""
        beside = (
            shape
            for name, shape in self.shapes.items()
            if len(shape) == 2 and name.removesuffix(".weight").rpartition(".")[2] in targets
        )
        return sum(rank * (rows + columns) for rows, columns in beside)

    def shape(self, *, dtype_bytes: int, on_cpu: bool) -> NetworkShape:
        """The sizes that decide what a token takes.

        Raises:
            InputError: the configuration does not name them.
        """
        shape = shape_of(self.config, dtype_bytes=dtype_bytes, on_cpu=on_cpu)
        if shape is None:
            raise InputError(f"the config.json of {self.name} does not say its sizes by the usual names")
        return shape


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of each part of training on the device, and whether they fit."""

    parts: Mapping[str, int]
    """In words → bytes, on the device."""
    part_tokens: int
    recompute: bool
    free: int | None = None
    """Bytes at hand; None where that is not known."""
    main: int = 0
    """Bytes in main memory beside a GPU: the best weights so far."""

    @property
    def total(self) -> int:
        """Bytes at the peak of a step."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        """Whether the total is at hand; None where that is not known."""
        return None if self.free is None else self.total <= self.free


def planned(
    model: ModelSizes,
    *,
    device: str,
    dtype: Literal["float32", "bfloat16"],
    lora_rank: int = 0,
    targets: Sequence[str] = (),
    four_bit: bool = False,
    recompute: bool | None = None,
    part_tokens: int | None = None,
    muon: bool = False,
    reference: bool = False,
    samples: bool = False,
    best: bool = False,
    free: int | None = None,
) -> MemoryPlan:
    """The memory that training takes in one process that holds the whole model.

    Args:
        device: `cpu`, `cuda` or `mps`.
        lora_rank: of LoRA factors; 0 trains all weights.
        targets: layers beside which factors stand.
        recompute: activations; None where they would not fit otherwise, on a GPU.
        part_tokens: tokens computed at once; None for as many as are worth it and fit.
        muon: the layers' matrices have one moment and not two.
        reference: a second copy of what is trained is kept.
        samples: conversations are sampled in this process.
        best: the best weights so far are kept for early stopping.
        free: bytes at hand.

    Raises:
        InputError: the model's configuration does not say its sizes.
    """
    size = 4 if dtype == "float32" else 2
    on_cpu = device == "cpu"
    trained = model.factors(lora_rank, targets) if lora_rank else model.count
    moments = (
        4 * model.matrices_in_layers + 8 * (model.count - model.matrices_in_layers)
        if muon
        else 8 * model.count
    )
    whole = model.shape(dtype_bytes=size, on_cpu=on_cpu)
    parts = {"weights": model.count * size}
    if lora_rank:
        if four_bit:
            packed = model.matrices_in_layers
            parts["weights"] = int(packed * _FOUR_BITS) + (model.count - packed) * size
        parts["LoRA factors"] = size * trained
        moments = 8 * trained
    if size == 2:
        parts["float32 masters"] = 4 * trained
    parts["gradients"], parts["moments"] = 4 * trained, moments
    if reference:
        parts["reference"] = trained * size
    if samples:
        open_tokens = CONVERSATIONS * CONVERSATION_TOKENS
        parts["open conversations"] = 2 * whole.layers * whole.keys * size * open_tokens
    if best and on_cpu:
        parts["best weights so far"] = 4 * trained
    room = None if free is None else free - sum(parts.values())
    shape, tokens = _part(whole, recompute, part_tokens, room)
    # AdamW's step makes the square and the corrected second moment of a group of tensors, or of one large one.
    largest = max(map(math.prod, model.shapes.values())) if not lora_rank else 0
    together = max(largest, min(trained, STEPPED_TOGETHER))
    part = part_bytes(shape, tokens, adapted=bool(lora_rank))
    parts["a part of a step"] = max(part, 3 * 4 * together)
    return MemoryPlan(parts, tokens, shape.recompute, free, 0 if on_cpu or not best else 4 * trained)


def _part(
    shape: NetworkShape, recompute: bool | None, part_tokens: int | None, room: int | None
) -> tuple[NetworkShape, int]:
    """The shape, with or without recomputing, and the tokens of a part."""
    shape = with_recomputing(shape, room, recompute)
    if part_tokens is not None or room is None:
        return shape, part_tokens or WORTH_KEEPING
    return shape, part_tokens_for(shape, max(0, room))


# -- a model's files ----------------------------------------------------------------------------


def sizes_of(model: str | Path) -> ModelSizes:
    """The sizes of a model, by the headers of its safetensors files: a folder's, the cache's, or the hub's.

    Raises:
        NotFoundError: there is no such model within reach.
        InputError: a file cannot be read.
    """
    folder = Path(model)
    if not folder.is_dir():
        cached = _cached(str(model))
        if cached is None:
            return _of_hub(str(model))
        folder = cached
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotFoundError(f"no .safetensors file in {folder}; give the folder of a model")
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        shapes |= _header(path)
    return ModelSizes(str(model), shapes, _config(folder / "config.json"))


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            # A file of another kind claims any length in its first eight bytes.
            header = read_json(msgspec.json.decode, file.read(min(length, 1 << 27)))
        return {
            name: tuple(int(size) for size in tensor["shape"])
            for name, tensor in header.items()
            if name != "__metadata__"
        }
    except (
        OSError,
        struct.error,
        msgspec.DecodeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise InputError(f"{path} is not a safetensors file: {error!r}") from error


def _config(path: Path) -> dict[str, Any]:
    try:
        config = read_json(msgspec.json.decode, path.read_bytes())
        return dict(config.get("text_config") or config)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, AttributeError, TypeError) as error:
        raise InputError(f"{path} is not a model's configuration: {error!r}") from error


def _cached(name: str) -> Path | None:
    """The folder of a hub's model in the local cache, where its weights are there too."""
    try:
        from huggingface_hub import try_to_load_from_cache  # comes with transformers
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "train") from error
    try:
        path = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of a model at all
        return None
    folder = Path(path).parent if isinstance(path, str) else None
    return folder if folder is not None and any(folder.glob("*.safetensors")) else None


def _of_hub(name: str) -> ModelSizes:
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        files = api.get_safetensors_metadata(name).files_metadata.values()
        shapes = {key: tuple(info.shape) for file in files for key, info in file.tensors.items()}
        config = _config(Path(api.hf_hub_download(name, "config.json")))
    except Exception as error:  # no network, no such model, no right to it, no name at all
        raise NotFoundError(
            f"there is no folder {name}, and no model of that name in the cache or within reach "
            f"({str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__})"
        ) from error
    return ModelSizes(name, shapes, config)


def _in_layer(name: str) -> bool:
    return any(part.isdigit() for part in name.split("."))
