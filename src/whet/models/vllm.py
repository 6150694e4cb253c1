"""A sampler behind a URL: vLLM, or `whet serve-policy`, which speaks its routes.

New weights go in as vLLM documents it:

- LoRA factors by `/v1/load_lora_adapter`, each version under a name of its own (vLLM: `--enable-lora`,
  VLLM_ALLOW_RUNTIME_LORA_UPDATING=1).
- Full weights by `/collective_rpc` with `reload_weights`, and with `sleep` around it where the GPU's
  memory is needed in between (vLLM: VLLM_SERVER_DEV_MODE=1, `--enable-sleep-mode`).

The server reads weights from a folder, so both must see the same file system.  vLLM gives the
log-probabilities of the untempered model unless it was started with
`--logprobs-mode processed_logprobs`; at temperature 1 the two are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from ..errors import ModelError
from ..types import Json
from .engine import EngineServer, TokenAnswer, TokenRequest


class _Logprobs(msgspec.Struct):
    token_logprobs: list[float | None] = []


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    policy_version: str | None = None


class VLLM(EngineServer):
    """A server of one policy and its adapters; arguments as of EngineServer."""

    _advice = "Serve the model with vLLM 0.10.2 or newer, or with whet serve-policy."

    async def complete(self, body: Mapping[str, Json]) -> Json:
        """The answer of `/v1/completions`.

        Raises:
            ModelError: no answer, after retries.
        """
        return await self.post("/v1/completions", dict(body))

    async def _generate(self, request: TokenRequest) -> TokenAnswer:
        body: dict[str, Json] = {
            "model": request.adapter or self.model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            # 0 is not off: the log-probability of the sampled token, and no alternatives.
            "logprobs": 0,
            "return_token_ids": True,
            # A turn ends at stop_id or the limit alone (`sampling.py`), not at the tokenizer's end token.
            "ignore_eos": True,
            "stop_token_ids": [] if request.stop_id is None else [request.stop_id],
        }
        answer: Any = await self.complete(body)
        try:
            completion = msgspec.convert(answer, _Answer)
            choice = completion.choices[0]
        except (msgspec.ValidationError, IndexError) as error:
            raise ModelError(f"{self.base_url} answered with no completion: {error}") from error
        logprobs = [value for value in (choice.logprobs or _Logprobs()).token_logprobs if value is not None]
        return TokenAnswer(tuple(choice.token_ids or ()), tuple(logprobs), completion.policy_version)

    # -- weights ------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path, *, policy_version: str | None = None) -> None:
        """As `EngineServer.load_adapter`."""
        await self.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
        # Not before: until the server has taken it, calls ask for the version that it has.
        self.model, self.policy_version = name, policy_version or name

    async def unload_adapter(self, name: str) -> None:
        """As `EngineServer.unload_adapter`."""
        await self.post("/v1/unload_lora_adapter", {"lora_name": name})

    async def _load_weights(self, folder: Path, policy_version: str) -> None:
        kwargs = {"weights_path": str(folder)}
        await self.post("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
        # Keys and values of the old weights would be taken for those of the new.
        await self.post("/reset_prefix_cache", None)

    async def sleep(self, level: int = 2) -> None:
        """Free the server's GPU memory; level 2 forgets the weights, 1 keeps them in main memory."""
        await self.post(f"/sleep?{urlencode({'level': level})}", None)

    async def wake_up(self, *tags: str) -> None:
        """Take memory again: all of it, or what the tags name (`weights`, `kv_cache`)."""
        await self.post(f"/wake_up?{urlencode([('tags', tag) for tag in tags])}".rstrip("?"), None)

    async def replace_asleep(self, folder: Path, *, policy_version: str | None = None) -> None:
        """Wake a sleeping server with other weights: room for weights, the weights, room for the cache."""
        await self.wake_up("weights")
        await self.load_weights(folder, policy_version=policy_version)
        await self.wake_up("kv_cache")


class WhetPolicies(VLLM):
    """`whet serve-policy`: vLLM's routes, and SGLang's for weights that come through memory."""

    takes_groups = True
