"""Weights from a folder or a Version, ready to be served.

Folders are read by `huggingface` and `model`: safetensors only, no code that came with a model.
Adapters share the weights of the base that is served already, so that a new one costs its factors
alone.  A folder may say which policy version its weights are (`tag`, `tag_of`): a server reads
that when it is told to take the folder up.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ....errors import InputError, NotFoundError
from ....escapes import read_json
from ....types import Version
from .. import huggingface, model
from ..compute import ComputeOptions
from ..huggingface import ADAPTER, ADAPTER_CONFIG, CausalLM
from ..local import LocalModels
from ..network import Network

TAG = "whet.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network and what its answers are tagged with."""

    network: Network
    policy_version: str
    version: str | None
    """Id of the Version, None for a folder that is none."""
    folder: Path | None
    """Where its tokenizer may be."""


def tag(folder: Path, version: Version) -> None:
    """Note beside weights which policy version they are."""
    names = {"policy_version": _tag_of(version), "version": version.id}
    (folder / TAG).write_bytes(msgspec.json.encode(names))


def _tag_of(version: Version) -> str:
    return str(version.meta.get("policy_version", version.id))


def tag_of(folder: Path) -> tuple[str, str | None]:
    """Policy version and Version id of a folder: as `tag` noted, else a digest of the weights."""
    try:
        names = read_json(msgspec.json.Decoder(dict[str, str]).decode, (folder / TAG).read_bytes())
        return names["policy_version"], names.get("version")
    except FileNotFoundError:
        return huggingface.digest_of(folder)[:16], None
    except (OSError, msgspec.MsgspecError, KeyError) as error:
        raise InputError(f"{folder / TAG} does not name a policy version: {error!r}") from error


def from_version(version: Version) -> Loaded:
    """The weights of a Version.

    Raises:
        InputError: it is no Version of weights, or its file was changed.
        NotFoundError: its file is gone.
    """
    network = LocalModels(compute=_compute()).decoder(version)
    base = version.content.get("base")
    folder = Path(base["path"] if base else version.content["path"])
    return Loaded(network, _tag_of(version), version.id, folder if folder.is_dir() else None)


def from_folder(source: str | Path, *, base: Network | None = None) -> Loaded:
    """The weights in a folder: a decoder of ours, a causal LM of transformers, or LoRA factors.

    Args:
        base: what factors stand beside, where that is loaded already.

    Raises:
        InputError, NotFoundError, MissingExtra: as `huggingface.load`.
    """
    folder = Path(source)
    if not folder.is_dir():
        if folder.is_absolute():
            raise NotFoundError(f"there is no folder {folder}")
        return Loaded(huggingface.load(source, compute=_compute()), str(source), None, None)
    policy_version, version = tag_of(folder)
    if (folder / ADAPTER).is_file():
        network, under = _adapter(folder, base)
        return Loaded(network, policy_version, version, under)
    if huggingface.is_ours(folder):
        return Loaded(model.load(folder), policy_version, version, folder)
    return Loaded(huggingface.load(folder, compute=_compute()), policy_version, version, folder)


def _adapter(folder: Path, base: Network | None) -> tuple[CausalLM, Path | None]:
    if base is not None:
        if not isinstance(base, CausalLM):
            raise InputError("LoRA factors stand beside a model of transformers, and none is served here")
        return huggingface.load_adapter(
            folder, base.base or {"path": "", "sha256": None}, onto=_shared(base)
        ), None
    try:
        config = read_json(msgspec.json.decode, (folder / ADAPTER_CONFIG).read_bytes())
        path = str(config["base_model_name_or_path"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"{folder / ADAPTER_CONFIG} does not name the base model: {error!r}") from error
    under = Path(path)
    adapted = huggingface.load_adapter(folder, {"path": path, "sha256": None}, compute=_compute())
    return adapted, under if under.is_dir() else None


def _shared(base: CausalLM) -> CausalLM:
    """The base's own model with the same weights, without factors."""
    inner = base.model
    weights = {id(weight): weight for weight in inner.parameters()}
    copied = copy.deepcopy(inner, weights)
    # `unload` takes the factors out of the copy; the base that is served keeps its own.
    return CausalLM(copied.unload() if base.adapted else copied)


def _compute() -> ComputeOptions:
    return LocalModels.shared().compute


def refuse_device(network: Network, device: str) -> None:
    """Refuse a device that was asked for by name and that a network does not go to.

    Raises:
        InputError: the network is an embedded one, which is for processors.
    """
    if device not in ("auto", "cpu") and not isinstance(network, CausalLM):
        raise InputError(f"an embedded policy computes on the processor, not on {device}; leave --device out")
