"""The holder of weights under training.

A `Learner` owns a decoder, its optimizer and the count of its updates, the
policy version.  Weights change at every step and are written only at
checkpoints: in between, a Bundle carries a *live* Version, which names the
learner and its policy version and resolves only in this process and only while
that version is current (`local.py`).  So what served is always what is recorded,
and a Version with a path always has its file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, cast
from weakref import WeakSet

import msgspec
import torch
from torch import Tensor, nn

from ...errors import InputError, TrainingRefused
from ...types import Json, Version, new_id
from . import model, processes, sharding
from .batch import Merged, MicroBatch
from .batch import parts as cut_into_parts
from .network import Network, adapted, computing, explained, predict, pretrained, saved
from .optim import MuonAdamW, OptimOptions
from .options import LearningRates
from .predictions import Predictions

T = TypeVar("T")

Loss = Callable[[Predictions, MicroBatch], Tensor]
"""Predictions at a MicroBatch's targets → a scalar to be minimised."""


class Refreshed(Protocol):
    """A sampler of the weights, which must hear of their change."""

    def refresh(self, policy_version: str | None = None) -> None:
        """Take up weights that were changed in place."""
        ...


_FILE_NAME = re.compile(r"[0-9a-z-]+\.safetensors")


class Learner:
    """Weights under training.

    Args:
        decoder: owned from here on.
        options: what is omitted is settled by `rates` and by what the decoder is.
        rates: the method's learning rates.
        policy_version: updates made before, by whatever trained these weights first.
        heads: trained and saved with it, and no part of the policy's Version.
    """

    def __init__(
        self,
        decoder: Network,
        options: OptimOptions,
        *,
        rates: LearningRates | None = None,
        policy_version: int = 0,
        heads: Mapping[str, nn.Module] | None = None,
    ) -> None:
        # Before the optimizer, which keeps moments for the parameters that it finds: shares, from here on.
        sharding.shard(decoder)
        self.decoder = decoder
        self.heads = dict(heads or {})
        self.options = options.settled(
            rates or LearningRates(), pretrained=pretrained(decoder), adapted=adapted(decoder)
        )
        self.optimizer = MuonAdamW(decoder.weights() | self._head_weights(), self.options)
        self.policy_version = policy_version
        self.handle = new_id()
        # Weak: a sampler that nobody holds any more must not be kept alive by its learner.
        self.samplers: WeakSet[Refreshed] = WeakSet()
        """Told when the weights change."""
        self.penalty: Callable[[], Tensor] | None = None
        """Added to what every update minimises: a guard against forgetting, say."""

    def _head_weights(self) -> dict[str, nn.Parameter]:
        return {
            f"head.{name}.{inner}": weight
            for name, head in self.heads.items()
            for inner, weight in head.named_parameters()
        }

    @property
    def updates(self) -> int:
        """Updates that this learner has made."""
        return self.optimizer.steps

    def update(
        self, parts: Sequence[MicroBatch], loss: Loss, *, rate: float, temperature: float = 1.0
    ) -> tuple[float, float]:
        """One optimizer step on the sum of the loss over these parts; its value and the gradient's length.

        Args:
            loss: its values are added up, so it holds the weights of the tokens.
            rate: learning rate of this step.
            temperature: what the tokens were sampled at.

        Raises:
            TrainingRefused: the loss or gradient is not finite; the weights are unchanged.
        """
        total_and_norm = self.descend(
            parts, lambda part: loss(predict(self.decoder, part, temperature), part), rate=rate
        )
        sums = getattr(loss, "sums", None)
        if sums is not None:  # measured on this process's share
            processes.add_up_sums(sums)
        return total_and_norm

    def descend(
        self, items: Iterable[T], objective: Callable[[T], Tensor], *, rate: float
    ) -> tuple[float, float]:
        """One optimizer step on the sum of an objective over any items; its value and the gradient's length.

        Where several processes train together, each computes its share of the items.

        Raises:
            TrainingRefused: the objective or gradient is not finite, or memory ran out; the weights are
                unchanged.
        """
        total, failure = 0.0, None
        every, where = list(items), processes.place()
        if where.sharded and self.penalty is not None:
            raise InputError("a guard against forgetting needs whole weights; launch without FSDP")
        try:
            with explained(f"at update {self.updates}"):
                for item in processes.share(every):
                    value = objective(item)
                    value.backward()  # type: ignore[no-untyped-call]
                    total += value.item()
                # Passes gather layers from all processes: one with an item less must make one all the same.
                if where.sharded and where.rank >= len(every) % where.size > 0:
                    cast(sharding.Shardable, self.decoder).idle()
                # A term of the sum over processes, so one of them adds it.
                if self.penalty is not None and processes.place().first:
                    value = self.penalty()
                    value.backward()  # type: ignore[no-untyped-call]
                    total += value.item()
        except Exception as error:
            if where.sharded:
                raise  # the others wait for this share: the launcher ends them
            failure = error
        except BaseException:
            # An interrupt leaves at once; gradients that stay would be added to the next update's.
            self.optimizer.clear()
            raise
        # Reached after a failure too: the others stand in this exchange and wait.
        total, failed = processes.add_up(self._all_weights().values(), total, failed=failure is not None)
        if failed:  # in any process: all of them leave the step together, or the others would wait
            self._give_up(failure)
        # After the sum over processes, or each would clip by the length of its own share.
        norm = self.optimizer.gradient_norm()
        if not (math.isfinite(total) and math.isfinite(norm)):
            self.optimizer.clear()
            raise TrainingRefused(
                f"loss {total} and gradient norm {norm} at update {self.updates}: not finite. "
                "Nothing was changed. Look at rewards and log-probabilities, or lower the learning rate."
            )
        self.optimizer.step(rate, norm)
        # Only now, and samplers are told at once: a tag names the weights that sampled.
        self.policy_version += 1
        self._refresh()
        return total, norm

    def _refresh(self) -> None:
        """Tell whoever samples that the weights changed."""
        for sampler in self.samplers:
            sampler.refresh(str(self.policy_version))

    def _give_up(self, failure: Exception | None) -> NoReturn:
        """Leave the weights as they were and say why."""
        self.optimizer.clear()
        if failure is None:
            raise TrainingRefused(
                f"another process failed at update {self.updates}; nothing was changed. Its own error says why."
            )
        raise failure

    @torch.no_grad()
    def chosen(self, part: MicroBatch, temperature: float = 1.0) -> Tensor:
        """(N,) log-probability of each target of a part, of the weights as they are."""
        return chosen_logprobs(self.decoder, part, temperature)

    def mean_loss(self, parts: Sequence[MicroBatch]) -> float:
        """Cross-entropy per target, in nats, of the weights as they are."""
        return mean_loss(self.decoder, parts)

    def snapshot(self) -> Any:
        """A copy of everything that is trained, heads included, for `revert`; in main memory."""
        # A copy beside the weights would be what a GPU has no room for.
        return {name: value.detach().to("cpu", copy=True) for name, value in self.optimizer.values().items()}

    @torch.no_grad()
    def revert(self, snapshot: Any) -> None:
        """Go back to what `snapshot` kept; the optimizer's moments stay as they are."""
        for name, value in self.optimizer.values().items():
            value.copy_(snapshot[name])
        self.optimizer.publish()
        self._refresh()

    def _all_weights(self) -> dict[str, nn.Parameter]:
        return self.decoder.weights() | self._head_weights()

    def live(self, resource: str) -> Version:
        """The Version of the weights as they are now, good until the next update and in this process."""
        return Version(
            resource=resource,
            kind="weights",
            content={"live": self.handle, "policy_version": self.policy_version},
            meta={"policy_version": self.policy_version},
        )

    def checkpoint(self, resource: str, folder: Path, parent: str | None, meta: dict[str, Json]) -> Version:
        """Write the weights under `folder` and return their Version."""
        path = folder / f"weights-{new_id()}"
        learned: dict[str, Json] = {
            "policy_version": self.policy_version,
            "optim": msgspec.to_builtins(self.options),
            "compute": computing(self.decoder),
        }
        return saved(self.decoder, resource, path, parent, {**meta, **learned})

    def save(self, folder: Path, extra: dict[str, Tensor] | None = None) -> Json:
        """Write weights, moments and `extra` to one file; what is returned finds it again in that folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"learner-{new_id()}.safetensors"
        # Under FSDP every process has to ask for whole weights, though the first alone keeps the file.
        tensors: dict[str, Tensor] = {
            f"weights/{name}": sharding.whole(weight) for name, weight in self.decoder.weights().items()
        }
        tensors |= {f"heads/{name}": weight for name, weight in self._head_weights().items()}
        tensors |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.state().items()}
        tensors |= {f"extra/{name}": tensor for name, tensor in (extra or {}).items()}
        model.save_tensors(tensors, path)
        return {
            "file": path.name,
            "sha256": model.sha256(path),
            "policy_version": self.policy_version,
            "updates": self.updates,
        }

    @staticmethod
    def forget(folder: Path, names: Iterable[str]) -> None:
        """Delete files that `save` wrote."""
        for name in names:
            if _FILE_NAME.fullmatch(name):
                (folder / name).unlink(missing_ok=True)

    def restore(self, folder: Path, saved: Json) -> dict[str, Tensor]:
        """Go on exactly from what `save` wrote; returns the `extra` tensors.

        Raises:
            InputError: the file was changed, or is another model's.
            NotFoundError: it is gone.
        """
        # The name comes from a saved state: it must not lead out of the folder.
        if not _FILE_NAME.fullmatch(saved["file"]):
            raise InputError(f"{saved['file']!r} is not the name of a file that a learner saved")
        path = folder / saved["file"]
        tensors = model.load_tensors(path)
        if model.sha256(path) != saved["sha256"]:
            raise InputError(f"{path} was changed since it was saved; resume from an earlier state")
        self.decoder.copy_from(_under("weights/", tensors))
        heads = _under("heads/", tensors)
        with torch.no_grad():
            for name, weight in self._head_weights().items():
                weight.copy_(heads[name])
        self.optimizer.restore(_under("optimizer/", tensors), int(saved["updates"]))
        self.policy_version = int(saved["policy_version"])
        self._refresh()
        return _under("extra/", tensors)


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def logprobs(network: Network, part: MicroBatch) -> Tensor:
    """(N, vocabulary) log-probabilities at the targets of a MicroBatch; under autograd unless switched off."""
    return predict(network, part).logprobs()


def chosen_logprobs(network: Network, part: MicroBatch, temperature: float = 1.0) -> Tensor:
    """(N,) log-probability of each target."""
    return predict(network, part, temperature).chosen


@torch.no_grad()
def unit_logprobs(
    network: Network, sequences: Sequence[Merged], units: int, part_tokens: int | None
) -> Tensor:
    """(units,) log-probability of all targets of each unit."""
    sums = torch.zeros(units)
    for part in cut_into_parts(sequences, part_tokens):
        sums.index_add_(0, part.units, chosen_logprobs(network, part))
    return sums


def cloning_loss(step_parts: Sequence[MicroBatch]) -> Loss:
    """Mean cross-entropy over the targets of these parts together."""
    count = sum(len(part.targets) for part in step_parts)
    return lambda predictions, part: -predictions.chosen.sum() / count


@torch.no_grad()
def mean_loss(network: Network, parts: Iterable[MicroBatch]) -> float:
    """Cross-entropy per target, in nats."""
    total, count = 0.0, 0
    for part in parts:
        total -= float(chosen_logprobs(network, part).sum())
        count += len(part.targets)
    return total / max(1, count)
