"""An engine behind a URL as a sampler: what vLLM, SGLang and `whet serve-policy` have in common.

`EngineServer.sampler()` gives the same as `learn.training.sampler.Sampler` in process: a session per rollout,
token ids and log-probabilities as sampled.  New weights go in between rounds or under way:

- LoRA factors each under a name of their own, so that what is under way ends on the version it began with.
- Full weights in the place of those before.  An engine that does not tag its answers could finish one on other
  weights than it began it with, so calls that are under way are waited for first, and new ones wait meanwhile.
  What takes longer than `patience` is cut off, counted in `interrupted`, and asked again under the new weights.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, ModelError
from ..escapes import read_json
from ..types import Json, digest
from .base import AttemptRefused
from .endpoint import AtEndpoint, Endpoint, Retry
from .sampling import Sampled
from .wire.neutral import trainable

PATIENCE = 60.0
"""Seconds that a change of weights waits for calls that are under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What an engine is asked for one turn."""

    prompt: Sequence[int]
    """The whole context."""
    max_new_tokens: int
    temperature: float
    """0 takes the likeliest token."""
    seed: int
    stop_id: int | None
    adapter: str | None
    """Name of the LoRA factors to sample with; None for the served weights themselves."""


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """What it gave."""

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    policy_version: str | None
    """As the engine tags it; None if it does not."""


class EngineServer(AtEndpoint, ABC):
    """A server of one policy and its adapters.

    Args:
        base_url: up to and including `/v1`, as the OpenAI SDK takes it.
        model: the name that the policy is served under.
        api_key: sent as a bearer token; None sends none.
        retry: limits on the retries of each request.
        patience: seconds that a change of full weights waits for calls that are under way.

    Raises:
        InputError: base_url is not a plain http(s) URL that ends in /v1, or api_key cannot be one.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        retry: Retry | None = None,
        patience: float = PATIENCE,
    ) -> None:
        # What replaces weights lies beside /v1, not below it.
        self._endpoint = Endpoint(base_url.rstrip("/").removesuffix("/v1"), api_key, retry)
        self.base_url = f"{self._endpoint.base_url}/v1"
        if base_url.rstrip("/") != self.base_url:
            raise InputError(f"base_url is {base_url!r}; it must look like http://host:port/v1.")
        self.model, self.api_key = model, api_key
        self.policy_version: str | None = None
        """Of the weights that were handed over last, for a server that does not tag its answers."""
        self.patience = patience
        self.interrupted = 0
        """Calls that were cut off by a change of weights, and asked again."""
        self._tags = False
        self._under_way: set[asyncio.Task[TokenAnswer]] = set()
        self._cut: set[asyncio.Task[TokenAnswer]] = set()
        self._open: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_url!r}, {self.model!r})"

    def sampler(self, *, greedy: bool = False, temperature: float = 1.0) -> RemoteSampler:
        """Samples from the policy, whatever weights it has by then."""
        return RemoteSampler(self, greedy=greedy, temperature=temperature)

    async def generate(self, request: TokenRequest) -> TokenAnswer:
        """One turn, tagged with the policy version that wrote it.

        Raises:
            ModelError: the server failed, or gave nothing that can be trained on.
        """
        while True:
            await self._opened().wait()
            version = self.policy_version
            call = asyncio.ensure_future(self._generate(request))
            self._under_way.add(call)
            try:
                answer = await call
                break
            except asyncio.CancelledError:
                if call not in self._cut:
                    call.cancel()  # whoever asked has gone
                    raise
                self.interrupted += 1
            finally:
                self._under_way.discard(call)
                self._cut.discard(call)
        if not trainable(answer.output_ids, answer.logprobs):
            raise ModelError(
                f"{self.base_url} gave {len(answer.output_ids)} token_ids and {len(answer.logprobs)} "
                f"log-probabilities, which cannot be trained on. {self._advice}"
            )
        self._tags = answer.policy_version is not None
        if self._tags or request.adapter is not None:
            return answer
        return TokenAnswer(answer.output_ids, answer.logprobs, version)

    _advice: str
    """What to do about an answer without token ids."""

    @abstractmethod
    async def _generate(self, request: TokenRequest) -> TokenAnswer:
        """One request of the engine's own protocol."""

    # -- weights ------------------------------------------------------------------------------

    @abstractmethod
    async def load_adapter(self, name: str, folder: Path, *, policy_version: str | None = None) -> None:
        """Have LoRA factors served under a name of their own, and sample from them from now on.

        Raises:
            ModelError: the server did not take them.
        """

    @abstractmethod
    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter.

        Raises:
            ModelError: it was not served.
        """

    @abstractmethod
    async def _load_weights(self, folder: Path, policy_version: str) -> None:
        """Replace the weights; no call is under way."""

    takes_groups = False
    """True if full weights can also come by a process group of trainer and engine, by SGLang's routes."""

    async def join_group(self, meeting: Mapping[str, Json]) -> None:
        """Have the engine join a process group, for weights that come by it; returns when both are in it.

        Args:
            meeting: `master_address`, `master_port`, `rank_offset`, `world_size`, `group_name` and `backend`.

        Raises:
            ModelError: it did not join.
        """
        await self.did("/init_weights_update_group", dict(meeting))

    async def take_weights(
        self,
        tensors: Mapping[str, Json],
        group: str,
        send: Callable[[], Awaitable[None]],
        policy_version: str,
    ) -> None:
        """Have the policy's weights replaced by what is sent through a group that the engine has joined.

        Args:
            tensors: `names`, `dtypes` and `shapes`, in the order in which they are sent.
            send: sends them, while the engine receives.

        Raises:
            ModelError: the engine did not take them.
        """
        body = {**tensors, "group_name": group, "flush_cache": True, "weight_version": policy_version}
        async with self.standing_still():
            sending = asyncio.ensure_future(send())
            try:
                # Once: what is sent is sent, and an engine that is asked again would wait for it in vain.
                await self.did("/update_weights_from_distributed", body, once=True)
                await sending
            except BaseException:
                sending.cancel()
                raise
            self.policy_version = policy_version

    async def load_weights(self, folder: Path, *, policy_version: str | None = None) -> None:
        """Have the policy's weights replaced by those in a folder.

        Raises:
            ModelError: the server did not take them.
        """
        version = policy_version or folder.name
        async with self.standing_still():
            await self._load_weights(folder.resolve(), version)
            self.policy_version = version

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[None]:
        """No call of an untagged engine is under way while this is entered, and none begins."""
        gate = self._opened()
        gate.clear()
        try:
            waited = set(self._under_way)
            if waited and not self._tags:
                _, late = await asyncio.wait(waited, timeout=self.patience)
                self._cut |= late
                for call in late:
                    call.cancel()
                if late:
                    await asyncio.wait(late)
            yield
        finally:
            gate.set()

    def _opened(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        # An event belongs to the loop that it was first waited for in; a run may use several in turn.
        if self._open is None or self._open[0] is not loop:
            self._open = (loop, asyncio.Event())
            self._open[1].set()
            self._under_way, self._cut = set(), set()
        return self._open[1]

    # -- HTTP ---------------------------------------------------------------------------------

    async def did(self, path: str, body: Json, *, once: bool = False) -> None:
        """Post, and refuse an answer that says it came to nothing: SGLang says so with status 200 or 400."""
        answer: Any = await self.post(path, body, once=once)
        if isinstance(answer, dict) and answer.get("success") is False:
            problem = answer.get("message") or answer.get("error_message") or answer
            raise ModelError(f"{path} at {self.base_url}: it was not taken: {problem}")

    async def post(self, path: str, body: Json, *, once: bool = False) -> Json:
        """The answer of a route, decoded where it is JSON.

        Args:
            once: the first failure is final.

        Raises:
            ModelError: no answer, after retries.
        """
        content = b"" if body is None else msgspec.json.encode(body)

        async def attempt() -> Json:
            answer = await self._endpoint.transport.post(path, content)
            try:
                return read_json(msgspec.json.decode, answer) if answer else None
            except msgspec.DecodeError:
                return answer.decode(errors="replace")  # vLLM says in words that an adapter was loaded

        subject, asked = path.partition("?")[0], attempt
        if not once:
            return await self._endpoint.insist(subject, asked)
        try:
            return await asked()
        except AttemptRefused as refusal:
            raise self._endpoint.error(subject, refusal) from refusal


class RemoteSampler:
    """A TokenSampler on a server; made by `EngineServer.sampler`."""

    def __init__(self, server: EngineServer, *, greedy: bool = False, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {temperature}; for the likeliest token set greedy=True"
            )
        self.server = server
        self.greedy = greedy
        self.temperature = temperature
        self.model: str | None = None
        """Name of the adapter that is asked for, where it is not the server's own choice."""
        self.policy_version = server.policy_version

    def session(self, seed: int) -> RemoteSession:
        """A fresh session that draws from `seed` alone."""
        return RemoteSession(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Note the version that untagged answers come from; the server has the weights."""
        self.policy_version = self.server.policy_version = policy_version


class RemoteSession:
    """The model's side of one rollout; the server keeps nothing of it but what its cache may hold."""

    def __init__(self, sampler: RemoteSampler, seed: int) -> None:
        self._sampler = sampler
        self._seed = seed
        self._calls = 0
        self.context: list[int] = []
        """All ids so far, prompts and outputs."""

    async def generate(
        self, prompt_ids: Sequence[int], *, stop_id: int | None, max_new_tokens: int = 32
    ) -> Sampled:
        """Read these ids after what came before, and write until `stop_id` or the limit.

        Raises:
            InputError: nothing to read.
            ModelError: the server failed or gave no token ids; the context is as it was.
        """
        if not prompt_ids and not self.context:
            raise InputError("the first call of a session needs a prompt; give at least one id")
        sampler = self._sampler
        prompt = [*self.context, *prompt_ids]
        # The first call draws as a session in process does; each further one needs a seed of its own.
        seed = self._seed if self._calls == 0 else int(digest([self._seed, self._calls], 12), 16)
        answer = await sampler.server.generate(
            TokenRequest(
                prompt=prompt,
                max_new_tokens=max_new_tokens,
                temperature=0.0 if sampler.greedy else sampler.temperature,
                seed=seed,
                stop_id=stop_id,
                adapter=sampler.model,
            )
        )
        # Not before: a call that failed is made again from the same seed and the same context.
        self._calls += 1
        self.context = [*prompt, *answer.output_ids]
        version = answer.policy_version or sampler.policy_version
        return Sampled(tuple(prompt), answer.output_ids, answer.logprobs, version)
