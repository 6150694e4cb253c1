"""Where policies get their sampler: models by Version, loaded once, live ones included.

A PolicyFactory calls `models.sampler(bundle["policy"])` for every rollout; all
rollouts under one Version share one Sampler and so one batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec
import torch
from torch import nn

from ...errors import InputError, NotFoundError
from ...escapes import read_json
from ...types import Json, Version
from . import huggingface, model
from .batch import PART_TOKENS
from .compute import ComputeOptions
from .huggingface import CausalLM, LoRAOptions
from .learner import Learner
from .memory import NetworkShape, part_tokens_for, shape_of, with_recomputing
from .model import ModelOptions
from .network import Network, saved
from .optim import OptimOptions
from .options import CloneOptions, LearningRates, RoundOptions
from .placement import placed
from .sampler import Sampler

Options = TypeVar("Options", bound=CloneOptions | RoundOptions)


def use_threads(count: int) -> None:
    """Set the number of threads that torch computes with in this process."""
    torch.set_num_threads(count)


def use_compute(options: ComputeOptions) -> None:
    """Set where, and in which numbers, this process computes with pretrained weights.

    Raises:
        InputError: there is no such device here.
        MissingExtra: four bits are asked for, and bitsandbytes is not installed.
    """
    placed(options)
    LocalModels.shared().compute = options


def fresh(
    resource: str,
    folder: Path,
    *,
    options: ModelOptions | None = None,
    vocab_size: int,
    seed: int,
    **meta: Json,
) -> Version:
    """A new model with random weights, saved in `folder`, as the Version to begin with."""
    options = options or ModelOptions()
    model.save(model.build(options, vocab_size, seed), folder)
    return model.weights_version(resource, folder, meta={**meta, "seed": seed, "policy_version": 0})


def adopted(resource: str, source: str | Path, folder: Path, *, lora: LoRAOptions | None = None) -> Version:
    """A pretrained model as the Version to begin with: its own folder, or fresh LoRA factors beside it.

    Args:
        source: folder or name of a transformers causal LM, or folder of a decoder of ours.
        folder: where the factors are written; not touched for full weights.

    Raises:
        InputError, NotFoundError, MissingExtra: as `huggingface.load`.
    """
    where = Path(source)
    if lora is None and huggingface.is_ours(where):
        return model.weights_version(resource, where, meta={"policy_version": 0})
    network = huggingface.load(source, lora=lora, compute=LocalModels.shared().compute)
    meta: dict[str, Json] = {"policy_version": 0, "source": str(source)}
    if lora is None and where.is_dir():
        content = {"path": str(where.resolve()), "sha256": huggingface.digest_of(where)}
        return Version(resource=resource, kind="weights", content=content, meta=meta)
    return saved(network, resource, Path(folder), None, meta)


class LocalModels:
    """Weights in this process, by Version id.

    Args:
        keep: how many samplers stay in memory; the one used longest ago goes first.
        compute: where and in which numbers pretrained weights compute.
    """

    elsewhere = False
    """True if another engine samples, whose log-probabilities are not the learner's own."""
    _shared: LocalModels | None = None

    def __init__(self, keep: int = 4, *, compute: ComputeOptions | None = None) -> None:
        self._keep = keep
        self.compute = compute or ComputeOptions()
        self._samplers: OrderedDict[tuple[str, bool, float], Sampler] = OrderedDict()
        # Weak: an optimizer owns its learner, whose weights go with it.
        self._learners: WeakValueDictionary[str, Learner] = WeakValueDictionary()

    @classmethod
    def shared(cls) -> LocalModels:
        """The one of this process; what optimizers and policies use unless given another."""
        if LocalModels._shared is None:
            LocalModels._shared = cls()
        return LocalModels._shared

    def add(self, learner: Learner) -> None:
        """Make a learner's live Versions resolve here for as long as it exists."""
        self._learners[learner.handle] = learner

    def learner(self, handle: str) -> Learner | None:
        """The learner of this handle, None if it is not in this process (any more)."""
        return self._learners.get(handle)

    def learn(
        self,
        network: Network,
        options: OptimOptions,
        *,
        rates: LearningRates | None = None,
        policy_version: int = 0,
        heads: Mapping[str, nn.Module] | None = None,
    ) -> Learner:
        """A learner of this network, which owns it from here on; `Learner` says what the rest is."""
        return Learner(network, options, rates=rates, policy_version=policy_version, heads=heads)

    def sampler(self, version: Version, *, greedy: bool = False, temperature: float = 1.0) -> Sampler:
        """The sampler of these weights, shared by all who ask for the same.

        Raises:
            InputError: no Version of weights, or its file was changed.
            NotFoundError: its file is gone, or its live weights have moved on.
        """
        live = self._live(version)
        policy_version = str(version.meta.get("policy_version", version.id))
        # With the policy version: equal weights have one id, and answers are tagged with their version.
        key = (live.handle if live else f"{version.id}/{policy_version}", greedy, temperature)
        sampler = self._samplers.get(key)
        if sampler is None:
            network = live.decoder if live else self.decoder(version)
            sampler = Sampler(network, greedy=greedy, temperature=temperature, policy_version=policy_version)
            if live:
                # One sampler follows the learner through all updates; `refresh` tells it of each.
                live.samplers.add(sampler)
            self._samplers[key] = sampler
            if len(self._samplers) > self._keep:
                self._samplers.popitem(last=False)
        self._samplers.move_to_end(key)
        return sampler

    def decoder(self, version: Version, *, to_share: bool = False) -> Network:
        """A copy of these weights, the caller's to change.

        Args:
            to_share: it goes to `learn` next, in every process that trains; see `huggingface.load`.

        Raises:
            InputError, NotFoundError: as `sampler`.
        """
        live = self._live(version)
        if live:
            return live.decoder.copy()
        if version.kind == "adapter":  # what the factors stand beside need not be in memory twice
            key_of_version = f"{version.id}/{version.meta.get('policy_version', version.id)}"
            for (key, *_), sampler in self._samplers.items():
                if key == key_of_version and isinstance(sampler.network, CausalLM):
                    return sampler.network.copy()
        content, folder = version.content, Path(version.content["path"])
        if version.kind == "adapter":
            return huggingface.load_adapter(
                folder, content["base"], sha=content["sha256"], compute=self.compute
            )
        if huggingface.is_ours(folder) or not folder.is_dir():
            return model.load(folder, sha=content["sha256"])
        return huggingface.load(folder, sha=content["sha256"], compute=self.compute, to_share=to_share)

    def sized(self, options: Options, version: Version) -> Options:
        """The options with the tokens of a part that suit these weights here, unless they say how many."""
        if options.part_tokens is not None:
            return options
        shape, room = self._shape(version)
        tokens = PART_TOKENS if shape is None else part_tokens_for(shape, room)
        return replace(options, part_tokens=tokens)

    def _shape(self, version: Version) -> tuple[NetworkShape | None, int]:
        """What a configuration says of these weights, and the bytes that are left for a part of a step."""
        content = version.content if isinstance(version.content, dict) else {}
        learner = self._learners.get(content.get("live", ""))
        base = content["base"] if isinstance(content.get("base"), dict) else content
        network = learner.decoder if learner is not None else None
        if isinstance(network, model.Decoder):
            config = model.configuration(network)
        elif isinstance(network, CausalLM):
            config = network.model.config.to_dict()
        else:
            try:
                config = read_json(
                    msgspec.json.decode, (Path(base.get("path", "")) / model.CONFIG).read_bytes()
                )
            except (OSError, msgspec.DecodeError):
                return None, 0
        if not isinstance(config, dict):
            return None, 0
        ours = "whet" in config
        # A decoder of ours stays on the processor in float32.
        placement = placed(ComputeOptions(device="cpu", dtype="float32") if ours else self.compute)
        shape = shape_of(
            config,
            dtype_bytes=placement.dtype.itemsize,
            on_cpu=placement.device.type == "cpu",
        )
        free = placement.free()
        # Where memory is not known, what a part takes must do; a learner that is there is out of `free` already.
        room = 1 << 40 if free is None else free
        if shape is None:
            return None, 0
        if learner is None:
            room = max(0, room - shape.held_bytes(adapted="base" in content))
        return with_recomputing(shape, room, placement.recompute), room

    def _live(self, version: Version) -> Learner | None:
        content = version.content
        if (
            version.kind not in ("weights", "adapter")
            or not isinstance(content, dict)
            or not ({"live", "path"} & set(content))
        ):
            raise InputError(
                f"{version.resource} {version.id} is of kind {version.kind}, not weights kept by whet; "
                "begin with whet.learn.training.local.fresh(...)"
            )
        if "live" not in content:
            return None
        learner = self._learners.get(content["live"])
        if learner is None or learner.policy_version != content["policy_version"]:
            now = (
                "its learner is not in this process"
                if learner is None
                else f"now at {learner.policy_version}"
            )
            raise NotFoundError(
                f"live weights at policy version {content['policy_version']} were never written ({now}). "
                "Go on from the last checkpoint's Version."
            )
        return learner
