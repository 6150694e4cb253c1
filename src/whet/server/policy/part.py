"""The routes of the policy server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from ...errors import InputError, ModelError
from ...models.wire import chat
from ...models.wire.sse import DONE
from ...training.serving.host import Host, Served
from ...types import Json
from ..asgi import Refused, Request, Response, Role, Route, answer
from .answers import Choice, Words, head, used
from .requests import Asked, ChatRequest, CompletionRequest, read_chat, read_completion
from .weights import LoRA, Reload, Unload, Weights

_TAG = "x-whet-policy-version"
Reads = Callable[[dict[str, Any], Any, int], Asked]


class PolicyPart:
    """Answers for the policies of a host.

    Args:
        weights: how versions come in by request; None takes none.
    """

    def __init__(self, host: Host, weights: Weights | None = None) -> None:
        self.host, self.weights = host, weights

    @property
    def routes(self) -> Sequence[Route]:
        asks: dict[str, Any] = {"role": Role.WRITE, "response": dict[str, Any], "open_stream": True}
        own = [
            Route(
                method="POST",
                path="/v1/chat/completions",
                handler=self._chat,
                summary="Answer a chat",
                request=ChatRequest,
                **asks,
            ),
            Route(
                method="POST",
                path="/v1/completions",
                handler=self._complete,
                summary="Go on from a text or token ids",
                request=CompletionRequest,
                **asks,
            ),
            Route(
                method="GET",
                path="/v1/models",
                handler=self._models,
                role=Role.READ,
                summary="What can be asked for",
                response=dict[str, Any],
            ),
            Route(
                method="GET",
                path="/v1/policy",
                handler=self._status,
                role=Role.READ,
                summary="Versions that are served, old ones that still finish included, and what they do",
                response=dict[str, Any],
            ),
        ]
        if self.weights is None:
            return own
        changes = {
            "/v1/load_lora_adapter": (self._load_adapter, LoRA, "Serve LoRA factors under a name"),
            "/v1/unload_lora_adapter": (self._unload_adapter, Unload, "Serve a name no longer"),
            "/collective_rpc": (self._reload, Reload, "Take up other weights: reload_weights alone"),
            "/reset_prefix_cache": (self._nothing, None, "Does nothing: no cache outlives its weights"),
        }
        return own + [
            Route(
                method="POST",
                path=path,
                handler=handler,
                role=Role.ADMIN,
                summary=about,
                request=kind,
                response=dict[str, Any],
            )
            for path, (handler, kind, about) in changes.items()
        ]

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    # -- generation ---------------------------------------------------------------------------

    async def _chat(self, request: Request) -> Response | None:
        return await self._answer(request, read_chat)

    async def _complete(self, request: Request) -> Response | None:
        return await self._answer(request, read_completion)

    async def _answer(self, request: Request, reads: Reads) -> Response | None:
        body = await request.json(dict[str, Any])
        name = body.get("model")
        if not isinstance(name, str):
            raise InputError(f"model must name what is served here: {', '.join(self.host.names)}")
        served = self.host.served(name)
        asked = reads(body, served.text, served.max_length)
        choices = self._begin(asked, served)
        try:
            gone = asyncio.ensure_future(request.disconnected())
            work = asyncio.ensure_future(
                self._stream(request, asked, served, choices)
                if asked.stream
                else self._whole(asked, served, choices)
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

    def _begin(self, asked: Asked, served: Served) -> list[Choice]:
        choices: list[Choice] = []
        try:
            for index, sampling in enumerate(asked.samplings):
                words = Words(served.text, asked.stops, bool(asked.tools))
                ticket = self.host.ask(
                    asked.model, asked.ids, sampling, form=asked.form, stopped=words.push, on=served
                )
                choices.append(Choice(index, ticket, words, asked))
        except ModelError as error:
            for choice in choices:
                choice.ticket.cancel()
            raise Refused(503, "overloaded", str(error), headers={"retry-after": "1"}) from error
        return choices

    async def _whole(self, asked: Asked, served: Served, choices: Sequence[Choice]) -> Response:
        for choice in choices:
            await choice.ticket.whole()
        found = head(asked, served, chunk=False)
        found["choices"] = [choice.whole() for choice in choices]
        found["usage"] = used(choices)
        if asked.chat and asked.token_ids:
            found["prompt_token_ids"] = list(asked.ids)
        return answer(found, x_whet_policy_version=served.policy_version)

    async def _stream(
        self, request: Request, asked: Asked, served: Served, choices: Sequence[Choice]
    ) -> None:
        stream = await request.stream(headers={_TAG: served.policy_version})
        common = head(asked, served, chunk=True)
        try:
            first: dict[str, Json] = {}
            if asked.chat:
                if asked.token_ids:
                    first["prompt_token_ids"] = list(asked.ids)
                await stream.write(
                    chat.frame({**common, "choices": [one.opening() for one in choices], **first})
                )
            async for events in _merged(choices):
                for event in events:
                    await stream.write(chat.frame({**common, "choices": [event]}))
            if asked.usage:
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
                "max_model_len": self.host.served(name).max_length,
                "policy_version": self.host.served(name).policy_version,
            }
            for name in self.host.names
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

    async def _nothing(self, request: Request) -> Response:
        return answer({})


async def _merged(choices: Sequence[Choice]) -> AsyncIterator[list[dict[str, Json]]]:
    """The events of all choices as they come, each choice's own in order."""
    waiting = {asyncio.ensure_future(one.ticket.changed()): one for one in choices}
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
