"""A sampler behind a URL: SGLang, by its native routes.

Token ids go to `/generate` and come back with their log-probabilities.  New weights go in as SGLang documents it: full
weights by `/update_weights_from_disk`, or through memory by `/init_weights_update_group` and
`/update_weights_from_distributed`, LoRA factors by `/load_lora_adapter` (SGLang: `--enable-lora`), each version
under a name of its own.  The server reads weights from a folder, so both must see the same file system.  A seed is
kept to if the server was started with `--enable-deterministic-inference`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..errors import ModelError
from ..types import Json
from .engine import EngineServer, TokenAnswer, TokenRequest


class _Meta(msgspec.Struct):
    output_token_logprobs: list[tuple[Any, ...]] = []
    """Of each token its log-probability, its id, and perhaps its text."""


class _Answer(msgspec.Struct):
    meta_info: _Meta


class SGLang(EngineServer):
    """A server of one policy and its adapters; arguments as of EngineServer."""

    takes_groups = True
    _advice = "Serve the model with a version of SGLang whose /generate has return_logprob."

    async def _generate(self, request: TokenRequest) -> TokenAnswer:
        settings: dict[str, Json] = {
            "max_new_tokens": request.max_new_tokens,
            "temperature": request.temperature,
            "sampling_seed": request.seed,
            # SGLang lets ignore_eos switch off stop_token_ids too, so a turn may also end at the model's own end.
            "ignore_eos": request.stop_id is None,
            "stop_token_ids": [] if request.stop_id is None else [request.stop_id],
            "no_stop_trim": True,
            "skip_special_tokens": False,
        }
        body: dict[str, Json] = {
            "input_ids": list(request.prompt),
            "sampling_params": settings,
            "return_logprob": True,
        }
        if request.adapter is not None:
            body["lora_path"] = request.adapter
        answer: Any = await self.post("/generate", body)
        try:
            rows = msgspec.convert(answer, _Answer).meta_info.output_token_logprobs
            logprobs, ids = tuple(float(row[0]) for row in rows), tuple(int(row[1]) for row in rows)
        except (msgspec.ValidationError, IndexError, TypeError) as error:
            raise ModelError(f"{self.base_url} answered with no generation: {error}") from error
        return TokenAnswer(ids, logprobs, None)

    # -- weights ------------------------------------------------------------------------------

    async def load_adapter(self, name: str, folder: Path, *, policy_version: str | None = None) -> None:
        """As `EngineServer.load_adapter`."""
        await self.did("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})
        self.policy_version = policy_version or name

    async def unload_adapter(self, name: str) -> None:
        """As `EngineServer.unload_adapter`."""
        await self.did("/unload_lora_adapter", {"lora_name": name})

    async def _load_weights(self, folder: Path, policy_version: str) -> None:
        body = {"model_path": str(folder), "weight_version": policy_version, "flush_cache": True}
        await self.did("/update_weights_from_disk", body)
