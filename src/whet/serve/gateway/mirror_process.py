"""The mirror: a process of its own that asks the models of shadows, so that nothing they do reaches who is served.

It has its own connections, budget and limits of memory and descriptors, may write no file, and ends with the server.
Effects are impossible by construction: what is sent back is a model's answer, tool calls in it are text that nobody
executes, and a request that would have the provider itself run something (web search, code, MCP) is not sent at all.

    python -m whet.serve.gateway.mirror_process DESCRIPTOR DESCRIPTOR
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from ...errors import BudgetExceeded, WhetError
from ...models.base import Completion, ModelRequest
from ...models.budget import Meter
from ...models.prices import known_prices, price_for
from ...models.spending import Reservation
from ...models.wire.neutral import MISSHAPEN
from ...record.store.codec import encode as encode_json
from ...types import Bundle, Failure, Fault, Usage
from .dialects import DIALECTS, answer_as, request_as
from .exchange import read_request
from .failures import UpstreamFailed
from .identity import Identity
from .mirror_wire import (
    LENGTH,
    PACKET,
    FromMirror,
    LeftOut,
    MirroredCall,
    Setup,
    ShadowAnswered,
    ShadowBundle,
    ShadowRun,
    Standing,
    encode,
    to_mirror,
)
from .record import ModelCall
from .serving import ServedBundle, served
from .shadow_record import ShadowRuns
from .upstream import Upstream, Upstreams, choose, forwarded

MEMORY = 512 * 1024 * 1024
"""Bytes of data that it may have: what floods it ends it, and nothing else."""
DESCRIPTORS = 256
LARGEST = 4 * 1024 * 1024
"""Bytes of a candidate's answer."""
WAITING = 16
"""Calls that wait for a place; beyond that they stay in the socket, and at last are dropped there."""
_OWN_TOOLS = frozenset({"function", "custom", None})
"""Types of tools that the agent runs and not the provider."""
_RUNS_THERE = ("web_search_options", "mcp_servers", "container", "plugins", "background", "conversation")
"""Fields of a request by which the provider does more than answer."""
_PR_SET_PDEATHSIG = 1


def confine() -> None:
    """Set the limits of this process; it ends when its parent does."""
    for kind, limit in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_NOFILE, DESCRIPTORS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    os.nice(19)
    with contextlib.suppress(OSError, AttributeError):  # not on every system; a nice process does as well
        # Who is served goes first: this one runs when nothing else wants the core.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Waits:
    """The limits of waits of one call; a mirrored call has no agent that could hang up."""

    def within(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        # The call as a whole has a time limit, which is stricter than any of its parts.
        return contextlib.nullcontext()


class MirrorWorker:
    """Answers mirrored calls by the Bundles of shadows.

    Args:
        channel: from the gateway, in packets.
        back: to it, a stream.
        setup: the upstreams, and what may be spent.
    """

    def __init__(self, channel: socket.socket, back: socket.socket, setup: Setup) -> None:
        self._channel, self._back, self._limits = channel, back, setup.limits
        self._runs = ShadowRuns(setup.limits.idle)
        self._telling = asyncio.Lock()
        self._upstreams: Mapping[str, Upstream] = setup.upstreams
        self._meter = Meter(setup.limits.budget)
        self._prices = known_prices(None)
        self._shadows: dict[str, ServedBundle] = {}
        self._client = Upstreams()
        self._slots = asyncio.Semaphore(setup.limits.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Take packets until the gateway closes its end."""
        loop = asyncio.get_running_loop()
        recording = asyncio.create_task(self._record())
        while packet := await loop.sock_recv(self._channel, PACKET + 1_000):
            message = to_mirror(packet)
            if isinstance(message, Standing):
                self._stand(message.shadows)
            elif isinstance(message, MirroredCall):
                while len(self._tasks) >= self._limits.concurrency + WAITING:
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                for trial in message.trials:
                    task = asyncio.create_task(self._answer(trial, message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        recording.cancel()
        await self.tell_runs(all_of_them=True)

    def _stand(self, shadows: list[ShadowBundle]) -> None:
        self._shadows = {}
        for shadow in shadows:
            with contextlib.suppress(WhetError):  # a Bundle that no gateway can serve has no shadow
                self._shadows[shadow.trial] = served(Bundle(shadow.versions), self._upstreams)

    async def _answer(self, trial: str, mirrored: MirroredCall) -> None:
        async with self._slots:
            shadow = self._shadows.get(trial)
            if shadow is None:
                return await self._tell(LeftOut("the shadow has ended"))
            identity = Identity(mirrored.run, mirrored.trace, b"", None, mirrored.subject, mirrored.agent)
            call = ModelCall(mirrored.api, identity)
            call.versions = shadow.versions
            try:
                body = read_request(mirrored.body)
                if (why := _runs_at_provider(body)) is not None:
                    return await self._tell(LeftOut(why))
                body = plain(shadow.applied(body, mirrored.api, translated=False), mirrored.api)
                reservation = self._reserve(body)
            except BudgetExceeded:
                return await self._tell(LeftOut("the budget of shadows is used up"))
            except (*MISSHAPEN, WhetError, UpstreamFailed) as error:
                return await self._tell(LeftOut(f"the candidate cannot be asked ({type(error).__name__})"))
            try:
                async with asyncio.timeout(self._limits.seconds):
                    await self._ask(call, shadow, mirrored, body)
            except TimeoutError:
                call.failure = Failure(Fault.MODEL, "upstream_timeout", "the candidate did not end in time")
            except UpstreamFailed as failed:
                call.failure, call.status = failed.failure, failed.status
            except (*MISSHAPEN, MemoryError) as error:
                call.failure = Failure(Fault.MODEL, "malformed_answer", type(error).__name__)
            if call.usage is None:
                reservation.release()
            else:
                spent = Usage(call.usage.get("input", 0), call.usage.get("output", 0), calls=1)
                reservation.settled(Completion(usage=spent))
            call.latency = time.perf_counter() - call.clock
            self._runs.add(trial, mirrored, call.span())
            await self._tell(ShadowAnswered(call.failure is not None))

    async def _ask(
        self, call: ModelCall, shadow: ServedBundle, mirrored: MirroredCall, body: dict[str, Any]
    ) -> None:
        name, spoken = choose(self._upstreams, mirrored.api, shadow.upstream(call.identity.key))
        upstream, translated = self._upstreams[name], spoken != mirrored.api
        call.request = msgspec.json.encode(body)
        model = body.get("model")
        call.model = model if isinstance(model, str) else None
        headers = forwarded(
            mirrored.headers, upstream, api=spoken, credential=mirrored.credential, translated=translated
        )
        sent = msgspec.json.encode(request_as(body, mirrored.api, spoken)) if translated else call.request
        opened = await self._client.open(
            upstream,
            "POST",
            DIALECTS[spoken].path + mirrored.query,
            headers=headers,
            body=sent,
            under_way=_Waits(),  # type: ignore[arg-type]
        )
        async with opened:
            call.status = opened.status
            raw = bytearray()
            async for chunk in opened.chunks():
                raw += chunk
                if len(raw) > LARGEST:
                    raise UpstreamFailed(Fault.MODEL, "answer_too_large", f"over {LARGEST:,} bytes")
        if call.status != 200:
            raise UpstreamFailed(Fault.MODEL, "upstream_error", f"{call.status}", status=call.status)
        answer = msgspec.json.decode(raw)
        if not DIALECTS[spoken].accepts(answer):
            raise UpstreamFailed(Fault.MODEL, "malformed_answer", f"it is not a {spoken} answer")
        if translated:
            answer = answer_as(answer, mirrored.api, spoken, body)
        call.response, call.usage = answer, DIALECTS[mirrored.api].usage(answer)

    def _reserve(self, body: dict[str, Any]) -> Reservation:
        """Set aside what a call may cost, by its length and the longest answer it asks for.

        Raises:
            BudgetExceeded: the budget has not that much left.
            InputError: dollars are limited, and the model has no price.
        """
        named = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        longest = next((limit for name in named if isinstance(limit := body.get(name), int)), None)
        model = str(body.get("model"))
        request = ModelRequest(messages=(body,), max_tokens=longest)
        reservation = Reservation(self._meter, price_for(model, self._prices), request, model)
        reservation.attempt()
        return reservation

    async def _record(self) -> None:
        """Tell the runs that are quiet, now and then."""
        while True:
            await asyncio.sleep(self._limits.idle / 3)
            await self.tell_runs()

    async def tell_runs(self, *, all_of_them: bool = False) -> None:
        """Tell the gateway of runs that are quiet."""
        for trial, shadow in self._runs.quiet(all_of_them=all_of_them):
            await self._tell(ShadowRun(trial, encode_json(shadow)))

    async def _tell(self, message: FromMirror) -> None:
        body = encode(message)
        # One after the other: two tasks would mix their messages in the stream.
        async with self._telling:
            with contextlib.suppress(OSError):  # the gateway has gone: this process ends with it
                await asyncio.get_running_loop().sock_sendall(
                    self._back, len(body).to_bytes(LENGTH, "big") + body
                )


def plain(body: dict[str, Any], api: str) -> dict[str, Any]:
    """The request as one for a whole answer that the provider does not keep."""
    asked = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
    if api == "responses" or "store" in asked:
        asked["store"] = False
    return asked


def _runs_at_provider(body: Mapping[str, Any]) -> str | None:
    """The reason not to ask a candidate: the provider itself would act on it; None if it only answers."""
    tools = body.get("tools")
    kinds = {tool.get("type") if isinstance(tool, dict) else "" for tool in tools or ()}
    if kinds - _OWN_TOOLS:
        return "it has tools that the provider runs"
    if any(body.get(name) for name in _RUNS_THERE):
        return "the provider would do more than answer"
    return None


async def _serve(channel: socket.socket, back: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    setup = to_mirror(await loop.sock_recv(channel, PACKET + 1_000))
    if isinstance(setup, Setup):
        own = {name: replace(upstream, tokens=False) for name, upstream in setup.upstreams.items()}
        await MirrorWorker(channel, back, Setup(own, setup.limits)).run()


def main() -> None:
    """Serve the descriptors that are named on the command line until the first is closed."""
    confine()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes the channel
    channel, back = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    for end in (channel, back):
        end.setblocking(False)
    asyncio.run(_serve(channel, back))


if __name__ == "__main__":
    main()
