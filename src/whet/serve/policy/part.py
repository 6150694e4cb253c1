"""The routes of the policy server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from ...errors import InputError, ModelError
from ...learn.training.serving.host import Host, ServedVersion
from ...models.wire import chat
from ...models.wire.sse import DONE
from ...types import Json
from ..http import HttpRoute, Refused, Request, Response, Role, answer, reads, writes
from .answers import Choice, ChoiceText, head, used
from .requests import ChatRequest, CompletionRequest, GenerationRequest, read_chat, read_completion
from .weights import JoinGroup, LoRA, Reload, TakeWeights, Unload, WeightLoader

_TAG = "x-whet-policy-version"
Reads = Callable[[dict[str, Any], Any, int], GenerationRequest]


class PolicyPart:
    """Answers for the policies of a host.

    Args:
        weights: takes up the versions that a request names; None refuses such requests.
        aliases: further name → what is served under it, for clients that ask for a model of their own.
    """

    def __init__(
        self, host: Host, weights: WeightLoader | None = None, *, aliases: Mapping[str, str] | None = None
    ) -> None:
        self.host, self.weights = host, weights
        self._aliases = dict(aliases or {})

    @property
    def routes(self) -> Sequence[HttpRoute]:
        answer_type = dict[str, Any]
        status = "Versions that are served, old ones that still finish included, and what they do"
        own = [
            writes("/v1/chat/completions", self._chat, "Answer a chat", ChatRequest, answer_type),
            writes(
                "/v1/completions",
                self._complete,
                "Continue a text or token ids",
                CompletionRequest,
                answer_type,
            ),
            reads("/v1/models", self._models, "The models that can be asked", answer_type),
            reads("/v1/policy", self._status, status, answer_type),
        ]
        if self.weights is None:
            return own
        changes = (
            ("/v1/load_lora_adapter", self._load_adapter, "Serve LoRA factors under a name", LoRA),
            ("/v1/unload_lora_adapter", self._unload_adapter, "Stop serving a name", Unload),
            ("/collective_rpc", self._reload, "Load other weights: reload_weights alone", Reload),
            ("/init_weights_update_group", self._join, "Join a trainer's process group", JoinGroup),
            ("/update_weights_from_distributed", self._take, "Load weights that come by it", TakeWeights),
            ("/reset_prefix_cache", self._nothing, "Does nothing: no cache outlives its weights", None),
        )
        return own + [
            writes(path, handler, summary, body, answer_type, role=Role.ADMIN)
            for path, handler, summary, body in changes
        ]

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    # -- generation ---------------------------------------------------------------------------

    async def _chat(self, request: Request) -> Response | None:
        return await self._answer(request, read_chat)

    async def _complete(self, request: Request) -> Response | None:
        return await self._answer(request, read_completion)

    async def _answer(self, request: Request, read: Reads) -> Response | None:
        body = await request.json(dict[str, Any])
        name = body.get("model")
        if not isinstance(name, str):
            raise InputError(f"model must name what is served here: {', '.join(self.host.names)}")
        # Taken once for all choices: a swap meanwhile must not divide them between two policies.
        served = self.host.served(self._aliases.get(name, name))
        query = read(body, served.text, served.max_length)
        choices = self._begin(query, served)
        try:
            # Watched from the start: an answer that nobody waits for must free its place in the batch.
            gone = asyncio.ensure_future(request.disconnected())
            work = asyncio.ensure_future(
                self._stream(request, query, served, choices)
                if query.request.stream
                else self._whole(query, served, choices)
            )
            try:
                await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    return None
                return work.result()
            finally:
                for task in (gone, work):
                    task.cancel()
        finally:
            for choice in choices:
                choice.ticket.cancel()

    def _begin(self, query: GenerationRequest, served: ServedVersion) -> list[Choice]:
        choices: list[Choice] = []
        try:
            for index, sampling in enumerate(query.samplings):
                words = ChoiceText(served.text, query.stops, bool(query.tools))
                ticket = self.host.ask(
                    query.request.model, query.ids, sampling, form=query.form, stopped=words.push, on=served
                )
                choices.append(Choice(index, ticket, words, query))
        except ModelError as error:
            for choice in choices:
                choice.ticket.cancel()
            raise Refused(503, "overloaded", str(error), headers={"retry-after": "1"}) from error
        return choices

    async def _whole(
        self, query: GenerationRequest, served: ServedVersion, choices: Sequence[Choice]
    ) -> Response:
        for choice in choices:
            await choice.ticket.whole()
        body = head(query, served, chunk=False)
        body["choices"] = [choice.whole() for choice in choices]
        body["usage"] = used(choices)
        if query.chat and query.request.return_token_ids:
            body["prompt_token_ids"] = list(query.ids)
        return answer(body, x_whet_policy_version=served.policy_version)

    async def _stream(
        self, request: Request, query: GenerationRequest, served: ServedVersion, choices: Sequence[Choice]
    ) -> None:
        stream = await request.stream(headers={_TAG: served.policy_version})
        common = head(query, served, chunk=True)
        try:
            first: dict[str, Json] = {}
            if query.chat:
                if query.request.return_token_ids:
                    first["prompt_token_ids"] = list(query.ids)
                await stream.write(
                    chat.frame({**common, "choices": [choice.opening() for choice in choices], **first})
                )
            async for events in _merged(choices):
                for event in events:
                    await stream.write(chat.frame({**common, "choices": [event]}))
            if (query.request.stream_options or {}).get("include_usage"):
                await stream.write(chat.frame({**common, "choices": [], "usage": used(choices)}))
        except ModelError as error:  # the head is out, so the error is an event
            await stream.write(chat.frame({"error": {"type": "model_error", "message": str(error)}}))
        await stream.write(DONE)
        await stream.close()

    # -- what is served -----------------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        data = [
            {
                "id": name,
                "object": "model",
                "owned_by": "whet",
                "max_model_len": self.host.served(served).max_length,
                "policy_version": self.host.served(served).policy_version,
            }
            for name, served in [*((name, name) for name in self.host.names), *self._aliases.items()]
        ]
        return answer({"object": "list", "data": data})

    async def _status(self, request: Request) -> Response:
        return answer({"serving": self.host.status(), "swaps": self.host.swaps})

    async def _load_adapter(self, request: Request) -> Response:
        assert self.weights is not None
        served = await asyncio.to_thread(self.weights.adapter, await request.json(LoRA))
        return answer({"name": served.name, "policy_version": served.policy_version})

    async def _unload_adapter(self, request: Request) -> Response:
        assert self.weights is not None
        self.weights.unload((await request.json(Unload)).lora_name)
        return answer({})

    async def _reload(self, request: Request) -> Response:
        assert self.weights is not None
        served = await asyncio.to_thread(self.weights.reload, await request.json(Reload))
        return answer({"results": [{"name": served.name, "policy_version": served.policy_version}]})

    async def _join(self, request: Request) -> Response:
        assert self.weights is not None
        await asyncio.to_thread(self.weights.join, await request.json(JoinGroup))
        return answer({"success": True})

    async def _take(self, request: Request) -> Response:
        assert self.weights is not None
        served = await asyncio.to_thread(self.weights.take, await request.json(TakeWeights))
        return answer({"success": True, "policy_version": served.policy_version})

    async def _nothing(self, request: Request) -> Response:
        return answer({})


async def _merged(choices: Sequence[Choice]) -> AsyncIterator[list[dict[str, Json]]]:
    """The events of all choices as they come, each choice's own in order."""
    waiting = {asyncio.ensure_future(choice.ticket.changed()): choice for choice in choices}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                choice = waiting.pop(task)
                task.result()
                if choice.generation.done:
                    yield choice.ending()
                    continue
                waiting[asyncio.ensure_future(choice.ticket.changed())] = choice
                piece = choice.piece()
                if piece is not None:
                    yield [piece]
    finally:
        for task in waiting:
            task.cancel()
