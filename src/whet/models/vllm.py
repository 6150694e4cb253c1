"""A sampler behind a URL: vLLM, or `whet serve-policy`, which speaks its routes.

`VLLM.sampler()` gives the same as `learn.training.sampler.Sampler` in process: a session per rollout, token
ids and log-probabilities as sampled.  New weights go in between rounds as vLLM documents it:

- LoRA factors by `/v1/load_lora_adapter`, each version under a name of its own, so that what is under
  way ends on the version it began with (vLLM: `--enable-lora`, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1).
- Full weights by `/collective_rpc` with `reload_weights`, and with `sleep` around it where the GPU's
  memory is needed in between (vLLM: VLLM_SERVER_DEV_MODE=1, `--enable-sleep-mode`).

The server reads weights from a folder, so both must see the same file system.  vLLM gives the
log-probabilities of the untempered model unless it was started with
`--logprobs-mode processed_logprobs`; at temperature 1 the two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from ..errors import InputError, ModelError
from ..escapes import read_json
from ..types import Json, digest
from .endpoint import Endpoint, Retry
from .sampling import Sampled
from .wire.neutral import trainable


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] = []


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    policy_version: str | None = None


class VLLM:
    """A server of one policy and its adapters.

    Args:
        base_url: up to and including `/v1`, as the OpenAI SDK takes it.
        model: the name that the policy is served under.
        api_key: sent as a bearer token; None sends none.
        retry: limits on the retries of each request.

    Raises:
        InputError: base_url is not a plain http(s) URL that ends in /v1, or api_key cannot be one.
    """

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, retry: Retry | None = None
    ) -> None:
        # What replaces weights lies beside /v1, not below it.
        self._endpoint = Endpoint(base_url.rstrip("/").removesuffix("/v1"), api_key, retry)
        self.base_url = f"{self._endpoint.base_url}/v1"
        if base_url.rstrip("/") != self.base_url:
            raise InputError(f"base_url is {base_url!r}; it must look like http://host:port/v1.")
        self.model = model
        self.policy_version: str | None = None
        """Of the weights that were handed over last, for a server that does not tag its answers."""

    def __repr__(self) -> str:
        return f"VLLM({self.base_url!r}, {self.model!r})"

    async def __aenter__(self) -> VLLM:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._endpoint.aclose()

    def sampler(self, *, greedy: bool = False, temperature: float = 1.0) -> RemoteSampler:
        """Samples from the policy, whatever weights it has by then."""
        return RemoteSampler(self, greedy=greedy, temperature=temperature)

    async def complete(self, body: Mapping[str, Json]) -> Json:
        """The answer of `/v1/completions`.

        Raises:
            ModelError: no answer, after retries.
        """
        return await self._post("/v1/completions", body)

    # -- weights ------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path, *, policy_version: str | None = None) -> None:
        """Have LoRA factors served under a name of their own, and sample from them from now on.

        Raises:
            ModelError: the server did not take them.
        """
        await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
        # Not before: until the server has taken it, calls ask for the version that it has.
        self.model, self.policy_version = name, policy_version or name

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter.

        Raises:
            ModelError: it was not served.
        """
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def load_weights(self, folder: Path, *, policy_version: str | None = None) -> None:
        """Have the policy's weights replaced by those in a folder.

        Raises:
            ModelError: the server did not take them.
        """
        path = str(folder.resolve())
        await self._post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": path}})
        # Keys and values of the old weights would be taken for those of the new.
        await self._post("/reset_prefix_cache", None)
        self.policy_version = policy_version or folder.name

    async def sleep(self, level: int = 2) -> None:
        """Free the server's GPU memory; level 2 forgets the weights, 1 keeps them in main memory."""
        await self._post(f"/sleep?{urlencode({'level': level})}", None)

    async def wake_up(self, *tags: str) -> None:
        """Take memory again: all of it, or what the tags name (`weights`, `kv_cache`)."""
        await self._post(f"/wake_up?{urlencode([('tags', tag) for tag in tags])}".rstrip("?"), None)

    async def replace_asleep(self, folder: Path, *, policy_version: str | None = None) -> None:
        """Wake a sleeping server with other weights: room for weights, the weights, room for the cache."""
        await self.wake_up("weights")
        await self.load_weights(folder, policy_version=policy_version)
        await self.wake_up("kv_cache")

    # -- HTTP ---------------------------------------------------------------------------------

    async def _post(self, path: str, body: Json) -> Json:
        content = b"" if body is None else msgspec.json.encode(body)

        async def attempt() -> Json:
            answer = await self._endpoint.transport.post(path, content)
            try:
                return read_json(msgspec.json.decode, answer) if answer else None
            except msgspec.DecodeError:
                return answer.decode(errors="replace")  # vLLM says in words that an adapter was loaded

        return await self._endpoint.insist(path.partition("?")[0], attempt)


class RemoteSampler:
    """A TokenSampler on a server; made by `VLLM.sampler`."""

    def __init__(self, server: VLLM, *, greedy: bool = False, temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {temperature}; for the likeliest token set greedy=True"
            )
        self.server = server
        self.greedy = greedy
        self.temperature = temperature
        self.model: str | None = None
        """The model asked for, where it is not the server's own name."""
        self.policy_version = server.policy_version

    def session(self, seed: int) -> RemoteSession:
        """A fresh session that draws from `seed` alone."""
        return RemoteSession(self, seed)

    def refresh(self, policy_version: str | None = None) -> None:
        """Note the version that untagged answers come from; the server has the weights."""
        self.policy_version = policy_version


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
        body: dict[str, Json] = {
            "model": sampler.model or sampler.server.model,
            "prompt": prompt,
            "max_tokens": max_new_tokens,
            "temperature": 0.0 if sampler.greedy else sampler.temperature,
            "seed": seed,
            # 0 is not off: the log-probability of the sampled token, and no alternatives.
            "logprobs": 0,
            "return_token_ids": True,
            # A turn ends at stop_id or the limit alone (`sampling.py`), not at the tokenizer's end token.
            "ignore_eos": True,
            "stop_token_ids": [] if stop_id is None else [stop_id],
        }
        sampled = _read(await sampler.server.complete(body), sampler)
        # Not before: a call that failed is made again from the same seed and the same context.
        self._calls += 1
        self.context = [*prompt, *sampled[0]]
        return Sampled(tuple(prompt), *sampled)


def _read(answer: Any, sampler: RemoteSampler) -> tuple[tuple[int, ...], tuple[float, ...], str | None]:
    where = sampler.server.base_url
    try:
        completion = msgspec.convert(answer, _Answer)
        choice = completion.choices[0]
    except (msgspec.ValidationError, IndexError) as error:
        raise ModelError(f"{where} answered with no completion: {error}") from error
    ids = choice.token_ids or []
    logprobs = [value for value in (choice.logprobs or _Logprobs()).token_logprobs if value is not None]
    if not trainable(ids, logprobs):
        raise ModelError(
            f"{where} gave {len(ids)} token_ids and {len(logprobs)} log-probabilities, which cannot be trained "
            "on. Serve the model with vLLM 0.10.2 or newer, or with whet serve-policy."
        )
    return tuple(ids), tuple(logprobs), completion.policy_version or sampler.policy_version
