"""Weights that are trained and sampled by a server of the Tinker API: hosted, or SkyRL on one's own machines.

`TinkerModels` stands where `LocalModels` stands, so SFT, STaR, GRPO, RLOO and REINFORCE are the same classes with
the same options.  A step is two requests: a forward pass gives the log-probabilities of the targets, the
optimizer's loss is computed here, and what it is worth for each target goes back as weights of a
cross-entropy, whose gradient is the loss's own; then one AdamW step on the server.

Differences from training here: the optimizer is the server's AdamW (no Muon) on LoRA factors; a loss may
read the log-probabilities of the targets only, so entropy is their sample estimate without a gradient,
and neither entropy bonus nor KL to a reference are offered; sampling is at temperature 1.  A value head, a
learned reward and DPO read states, or train what the protocol has no request for: PPO, reward models and DPO
are refused.  The protocol is spoken by the official SDK (`pip install tinker`), which changes with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...errors import InputError, MissingExtra, ModelError, TrainingRefused
from ...models.sampling import Sampled
from ...types import Json, Version, digest, new_id
from .batch import MicroBatch
from .learner import Learner, Loss
from .local import LocalModels
from .network import Network
from .optim import OptimOptions
from .options import LearningRates
from .predictions import Output, Predictions

KIND = "tinker"
_NO_STATES = (
    "a Tinker server gives log-probabilities and no states or logits; use SFT, STaR, GRPO, RLOO or REINFORCE, "
    "which need no more, or train on weights of your own"
)


def _sdk() -> Any:
    try:
        return import_module("tinker")
    except ImportError as error:
        raise MissingExtra("tinker", "tinker") from error


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence for the server, and which targets of a MicroBatch it predicts."""

    ids: list[int]
    at: dict[int, int]
    """Position → number of the target that is predicted there."""


def data_of(part: MicroBatch) -> list[Datum]:
    """The sequences of a MicroBatch one by one; what they have in common is written out for each.

    Where two targets are predicted by one token (a shared beginning that goes on in two ways), the
    sequence is given twice.
    """
    layout = part.layout
    owners: dict[int, tuple[int, int, int]] = {}
    for number, band in enumerate(layout.bands):
        width = band.path.shape[1] - band.start
        for offset, slot in enumerate(band.slots.tolist()):
            owners[band.first + offset] = (number, slot // width, band.start + slot % width)
    targets_of: dict[tuple[int, int], list[dict[int, int]]] = {}
    for target, flat in enumerate(layout.wanted[layout.index].tolist()):
        number, row, position = owners[flat]
        rounds = targets_of.setdefault((number, row), [])
        free = next((targets for targets in rounds if position not in targets), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[position] = target
    data = []
    for (number, row), rounds in targets_of.items():
        path = layout.ids[layout.bands[number].path[row]].tolist()
        data += [Datum(path[: max(at) + 1], at) for at in rounds]
    return data


class TinkerNetwork:
    """Stands for weights that are elsewhere; it computes nothing."""

    def __init__(self, models: TinkerModels, version: Version) -> None:
        self.models, self.version = models, version

    def weights(self) -> dict[str, nn.Parameter]:
        """Nothing: no weight is here."""
        return {}

    @property
    def vocab_size(self) -> int:
        """Asked by whatever would compute with it here.

        Raises:
            InputError: always.
        """
        raise InputError(_NO_STATES)

    @property
    def hidden(self) -> int:
        """Asked by whatever would put a head on its states.

        Raises:
            InputError: always.
        """
        raise InputError(_NO_STATES)

    def copy_from(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing to take."""

    def copy(self) -> TinkerNetwork:
        """The same."""
        return self


class TinkerLearner(Learner):
    """Weights under training on a server.

    Args:
        client: the SDK's TrainingClient; nobody else's from here on.
    """

    def __init__(
        self,
        network: TinkerNetwork,
        client: Any,
        options: OptimOptions,
        *,
        rates: LearningRates | None = None,
        policy_version: int,
    ) -> None:
        super().__init__(cast(Network, network), options, rates=rates, policy_version=policy_version)
        self.client = client
        self._updates = 0

    @property
    def updates(self) -> int:
        """Updates that this learner has made."""
        return self._updates

    def update(
        self, parts: Sequence[MicroBatch], loss: Loss, *, rate: float, temperature: float = 1.0
    ) -> tuple[float, float]:
        """One step on the server on the sum of the loss over these parts.

        Raises:
            TrainingRefused: the loss or its gradient is not finite; nothing was changed.
            InputError: a temperature other than 1, or a loss that needs what a server does not give.
            ModelError: the server failed.
        """
        _refuse(loss, temperature)
        types = _sdk().types
        data = [data_of(part) for part in parts]
        total, weights = 0.0, []
        for part, chosen in zip(parts, self._forward(parts, data), strict=True):
            chosen.requires_grad_(True)
            value = loss(_Told(chosen, part), part)
            value.backward()  # type: ignore[no-untyped-call]
            total += value.item()
            # The server's cross-entropy is −Σ w log p: weights of −gradient give it this loss's own.
            weights.append(torch.zeros_like(chosen) if chosen.grad is None else -chosen.grad)
        if not all(bool(tensor.isfinite().all()) for tensor in (*weights, torch.tensor(total))):
            raise TrainingRefused(
                f"loss {total} at update {self.updates} or its gradient is not finite; nothing was changed. "
                "Look at rewards and log-probabilities, or lower the learning rate."
            )
        weighted = [
            _datum(types, datum, part, weight)
            for part, own, weight in zip(parts, data, weights, strict=True)
            for datum in own
        ]
        back = self.client.forward_backward(weighted, "cross_entropy")
        step = self.client.optim_step(_adam(types, self.options, rate))
        _waited(back)
        norm = (_waited(step).metrics or {}).get("grad_norm", float("nan"))
        self._updates += 1
        self.policy_version += 1
        self._refresh()
        return total, norm

    def chosen(self, part: MicroBatch, temperature: float = 1.0) -> torch.Tensor:
        """(N,) log-probability of each target of a part, as the server computes it.

        Raises:
            ModelError: the server failed.
        """
        return self._forward([part], [data_of(part)])[0]

    def mean_loss(self, parts: Sequence[MicroBatch]) -> float:
        """Cross-entropy per target, in nats, as the server computes it.

        Raises:
            ModelError: the server failed.
        """
        logprobs: list[float] = [
            value for chosen in self._forward(parts, map(data_of, parts)) for value in chosen.tolist()
        ]
        return -sum(logprobs) / max(1, len(logprobs))

    def _forward(self, parts: Sequence[MicroBatch], data: Iterable[Sequence[Datum]]) -> list[Tensor]:
        """(N,) log-probability of the targets of each part, in one request."""
        types = _sdk().types
        owned = [
            (part, number, datum)
            for number, (part, own) in enumerate(zip(parts, data, strict=True))
            for datum in own
        ]
        request = [_datum(types, datum, part, None) for part, _, datum in owned]
        answers = _waited(self.client.forward(request, "cross_entropy")).loss_fn_outputs
        chosen = [torch.zeros(len(part.targets)) for part in parts]
        for (_, number, datum), answer in zip(owned, answers, strict=True):
            logprobs = answer["logprobs"].tolist()
            for position, target in datum.at.items():
                chosen[number][target] = logprobs[position]
        return chosen

    def snapshot(self) -> str:
        """Have the server keep the weights; where."""
        path: str = _waited(self.client.save_state(f"whet-{new_id()}")).path
        return path

    def revert(self, snapshot: str) -> None:
        """Go on from weights that the server kept, with fresh moments."""
        service = cast(TinkerNetwork, self.decoder).models.service
        self.client = _waited(service.create_training_client_from_state(snapshot))
        self._refresh()

    def checkpoint(self, resource: str, folder: Path, parent: str | None, meta: dict[str, Json]) -> Version:
        """Have the server keep the weights, for sampling and for going on; their Version."""
        name = f"whet-{new_id()}"
        sampled = _waited(self.client.save_weights_for_sampler(name)).path
        content = {KIND: sampled, "state": _waited(self.client.save_state(name)).path}
        tags = {**meta, "policy_version": self.policy_version}
        return Version(resource=resource, kind="weights", content=content, parent=parent, meta=tags)

    def save(self, folder: Path, extra: dict[str, Tensor] | None = None) -> Json:
        """Have the server keep weights and moments; what is returned finds them again."""
        path = _waited(self.client.save_state(f"whet-{new_id()}")).path
        return {"file": path, "policy_version": self.policy_version, "updates": self.updates}

    def restore(self, folder: Path, saved: Json) -> dict[str, Tensor]:
        """Go on from what `save` had kept."""
        service = cast(TinkerNetwork, self.decoder).models.service
        self.client = _waited(service.create_training_client_from_state_with_optimizer(saved["file"]))
        self.policy_version, self._updates = int(saved["policy_version"]), int(saved["updates"])
        return {}


class _Told(Predictions):
    """A server's log-probabilities of the targets, and differentiable in them."""

    def __init__(self, chosen: Tensor, part: MicroBatch) -> None:
        super().__init__(Output(chosen.detach().unsqueeze(1), logits=chosen.detach().unsqueeze(1)), part)
        self._chosen = chosen
        self._entropy = -chosen.detach()  # an unbiased estimate: the targets were drawn from it


def _refuse(loss: Any, temperature: float) -> None:
    if temperature != 1.0:
        raise InputError(f"a Tinker server's log-probabilities are at temperature 1, not {temperature}")
    if getattr(loss, "entropy_bonus", 0.0) or getattr(loss, "kl_coefficient", 0.0):
        raise InputError(
            "a Tinker server gives no entropies and no reference; set entropy_bonus and kl_coefficient to 0"
        )
    if getattr(loss, "reference", None) is not None:
        # The stand-in computes nothing, and `PolicyLoss` would ask a reference for its predictions.
        loss.reference = None  # it would be measured and no more


def _datum(types: Any, datum: Datum, part: MicroBatch, weights: Tensor | None) -> Any:
    targets, worth = [0] * len(datum.ids), [0.0] * len(datum.ids)
    for position, target in datum.at.items():
        targets[position] = int(part.targets[target])
        worth[position] = 1.0 if weights is None else float(weights[target])
    inputs = {"target_tokens": targets, "weights": worth}
    return types.Datum(model_input=types.ModelInput.from_ints(datum.ids), loss_fn_inputs=inputs)


def _adam(types: Any, options: OptimOptions, rate: float) -> Any:
    return types.AdamParams(
        learning_rate=rate,
        beta1=options.betas[0],
        beta2=options.betas[1],
        eps=1e-8,
        weight_decay=options.weight_decay,
        grad_clip_norm=options.max_norm,
    )


_threads = ThreadPoolExecutor(1, thread_name_prefix="whet-tinker")


def _waited(future: Any) -> Any:
    """The result of one of the SDK's futures, from code that may run in an event loop."""
    try:
        return _threads.submit(future.result).result()
    except _sdk().TinkerError as error:
        raise ModelError(f"the Tinker server failed: {error}") from error


class TinkerModels(LocalModels):
    """Weights on a server of the Tinker API.

    Args:
        service: the SDK's ServiceClient, which knows address and key.
        base_model: what LoRA factors are trained beside.
        rank: of the factors.
        seed: of their first weights.
    """

    def __init__(self, service: Any, base_model: str, *, rank: int = 32, seed: int = 0) -> None:
        super().__init__()
        self.service, self.base_model, self.rank, self.seed = service, base_model, rank, seed
        self._clients: dict[str, Any] = {}

    def start(self, resource: str = "policy") -> Version:
        """Fresh factors beside the base model, as the Version to begin with."""
        content = {KIND: None, "base": self.base_model, "rank": self.rank, "seed": self.seed}
        return Version(resource=resource, kind="weights", content=content, meta={"policy_version": 0})

    def decoder(self, version: Version, *, to_share: bool = False) -> Network:
        """The local stand-in for these weights.

        Raises:
            InputError: they are not on a Tinker server.
        """
        if not isinstance(version.content, dict) or not ({KIND, "live"} & set(version.content)):
            raise InputError(f"{version.resource} {version.id} is not kept by a Tinker server")
        return cast(Network, TinkerNetwork(self, version))

    def learn(
        self,
        network: Network,
        options: OptimOptions,
        *,
        rates: LearningRates | None = None,
        policy_version: int = 0,
        heads: Mapping[str, nn.Module] | None = None,
    ) -> Learner:
        """A learner of these weights, on the server.

        Raises:
            InputError: a head is to be trained beside them.
            ModelError: the server failed.
        """
        if heads:
            raise InputError(
                "a Tinker server trains no head; use GRPO, RLOO or REINFORCE without a value head"
            )
        stands = cast(TinkerNetwork, network)
        state = stands.version.content.get("state")
        if state:
            client = _waited(self.service.create_training_client_from_state(state))
        else:
            client = _waited(
                self.service.create_lora_training_client(self.base_model, rank=self.rank, seed=self.seed)
            )
        return TinkerLearner(stands, client, options, rates=rates, policy_version=policy_version)

    def sampler(  # type: ignore[override]
        self, version: Version, *, greedy: bool = False, temperature: float = 1.0
    ) -> TinkerSampler:
        """A sampler of these weights on the server.

        Raises:
            InputError: they are not on a Tinker server.
            NotFoundError: its live weights have moved on.
        """
        live = self._live(version) if "live" in version.content else None
        policy_version = str(version.meta.get("policy_version", version.id))
        return TinkerSampler(
            self, version, cast("TinkerLearner | None", live), greedy, temperature, policy_version
        )

    async def client_of(self, version: Version, learner: TinkerLearner | None) -> Any:
        """The SDK's SamplingClient of a Version, made once."""
        key = f"{version.id}/{version.meta.get('policy_version')}"
        if key not in self._clients:
            if learner is not None:
                saving = asyncio.to_thread(
                    _waited, learner.client.save_weights_for_sampler(f"whet-{new_id()}")
                )
                path = (await saving).path
                source = {"model_path": path}
            else:
                path = version.content[KIND]
                source = {"model_path": path} if path else {"base_model": version.content["base"]}
            self._clients[key] = await asyncio.to_thread(
                _waited, self.service.create_sampling_client(**source)
            )
        return self._clients[key]


class TinkerSampler:
    """A TokenSampler on the server; made by `TinkerModels.sampler`."""

    def __init__(
        self,
        models: TinkerModels,
        version: Version,
        learner: TinkerLearner | None,
        greedy: bool,
        temperature: float,
        policy_version: str,
    ) -> None:
        self.models, self.version, self.learner = models, version, learner
        self.temperature = 0.0 if greedy else temperature
        self.policy_version: str | None = policy_version
        self._one = asyncio.Lock()

    def session(self, seed: int) -> TinkerSession:
        """A fresh session that draws from `seed` alone."""
        return TinkerSession(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Nothing: a sampler keeps to its Version."""

    async def client(self) -> Any:
        """The SDK's SamplingClient."""
        async with self._one:
            return await self.models.client_of(self.version, self.learner)


class TinkerSession:
    """The model's side of one rollout."""

    def __init__(self, sampler: TinkerSampler, seed: int) -> None:
        self._sampler, self._seed, self._calls = sampler, seed, 0
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """Read these ids after what came before, and write until `stop_id` or the limit.

        Raises:
            InputError: nothing to read.
            ModelError: the server failed; the context is as it was.
        """
        prompt = [*self.context, *prompt_ids]
        if not prompt:
            raise InputError("the first call of a session needs a prompt; give at least one id")
        tinker, sampler = _sdk(), self._sampler
        params = tinker.types.SamplingParams(
            max_tokens=max_new_tokens,
            # A seed for each call: with the session's alone the same prompt would have the same answer.
            seed=int(digest([self._seed, self._calls], 7), 16),
            temperature=sampler.temperature,
            stop=[] if stop_id is None else [stop_id],
        )
        client = await sampler.client()
        try:
            request = client.sample(tinker.types.ModelInput.from_ints(prompt), 1, params)
            sequence = (await request).sequences[0]
        except tinker.TinkerError as error:
            raise ModelError(f"the Tinker server failed: {error}") from error
        if sequence.logprobs is None or len(sequence.logprobs) != len(sequence.tokens):
            raise ModelError(
                "the Tinker server gave no log-probabilities, without which nothing can be trained"
            )
        self._calls += 1
        self.context = [*prompt, *sequence.tokens]
        return Sampled(
            tuple(prompt), tuple(sequence.tokens), tuple(sequence.logprobs), sampler.policy_version
        )
