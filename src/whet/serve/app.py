"""The server: one process, one socket, and the parts that it is made of.

aiohttp carries the HTTP, in the loop of the handlers (`connections.py`).  The server owns nothing
but the socket and the loop: the Store is given, and is closed by whoever opened it.  Stopping drains:
requests under way are answered, long polls come back empty, nothing new is accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..autopilot.serving import PilotProcess
from ..errors import InputError, WhetError
from ..record.permissions.enforcement import Enforcement
from ..record.permissions.person import AskPerson
from ..record.permissions.rules import Permissions
from ..record.store import Store
from ..record.store.redaction.redact import Redactor
from .approvals import Approvals
from .auth import Access, RequestLimits
from .autopilot import AutopilotPart
from .connections import BACKLOG, Connections, descriptors
from .durable import Backlog
from .feedback import FeedbackPart
from .gateway import Gateway, Upstream
from .gateway.mirror_wire import MirrorLimits
from .gateway.moderation import Moderation
from .http import (
    HttpRoute,
    Refused,
    Request,
    Response,
    Role,
    Router,
    ServerPart,
    answer,
    refusal,
    refusal_of,
    writes,
)
from .ingest import OTLP, Assembly, Trajectories
from .issues import IssuesPart
from .legacy import Legacy
from .memory import return_free_memory
from .openapi import document
from .people import PeoplePart
from .queue import QueuePart
from .readers import Readers
from .releases import ReleasesPart
from .run_tokens import RunTokens
from .trials import TrialsPart
from .worker import wire

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another on: the loop waits so long for the assembler at
each of its wake-ups, and the writer for the loop at each statement.  Python's own is ten times as long."""
COLLECT = (10_000, 20, 50)
"""Thresholds of the garbage collector (`gc.set_threshold`): a request makes a thousand objects and no cycle, and with
Python's own 700 it looked for cycles all the time."""
TRIM = 60.0
"""Seconds after which memory that is free is given back to the system: 3 ms of CPU."""
PATIENCE = 10.0
"""Seconds that requests under way have to end when the server stops."""


class Server:
    """Serves parts on one address.

    Args:
        access: tokens, allowed hosts and limits.
        parts: with their routes; `/healthz` and `/openapi.json` are always there.
        host: a name or address to listen on.
        port: 0 for any that is free.

    Raises:
        InputError: two parts share a route.
    """

    def __init__(
        self,
        access: Access,
        parts: Sequence[ServerPart],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.access, self.parts = access, tuple(parts)
        self.host, self.port = host, port
        self.routes: tuple[HttpRoute, ...] = (
            *self._own(),
            *(route for part in parts for route in part.routes),
        )
        self._document: Response | None = None
        try:
            self._router = Router(self.routes)
        except ValueError as exception:
            raise InputError(f"the parts of the server disagree: {exception}") from exception
        self.bugs = 0
        """Requests that failed with an unforeseen exception: each left a traceback on standard error."""
        self._active: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Event | None = None
        self._connections: Connections | None = None
        self._lifespans = contextlib.AsyncExitStack()

    @property
    def active(self) -> int:
        """Requests under way, long polls among them."""
        return len(self._active)

    @property
    def url(self) -> str:
        """URL of the server; the port is right once it has started."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and host[0] != '[' else host}:{self.port}"

    async def start(self) -> None:
        """Listen, and have every part running.

        Raises:
            InputError: the address cannot be had.
        """
        # Before any part runs: an address that is in use must not have started their threads.
        bound = listen(self.host, self.port)
        self.port = bound.getsockname()[1]
        self._closing = asyncio.Event()
        try:
            for part in self.parts:
                await self._lifespans.enter_async_context(part.lifespan())
        except BaseException:
            bound.close()
            await self._lifespans.aclose()
            raise
        self._connections = Connections(self._serve, self._closing)
        await self._connections.listen(bound)

    async def stop(self, patience: float = PATIENCE) -> int:
        """Answer the requests under way, then end; returns those that had to be cut off.

        Args:
            patience: seconds that they have.
        """
        if self._closing is None or self._connections is None:
            return 0
        self._closing.set()  # first: long polls end by it
        self._connections.drain()
        cut: set[asyncio.Task[None]] = set()
        if self._active:
            _, cut = await asyncio.wait(self._active, timeout=patience)
            for task in cut:
                task.cancel()
        await self._connections.shutdown(1.0)
        # The parts end after the last request, whose handler may need what they run.
        await self._lifespans.aclose()
        self._closing = self._connections = None
        return len(cut)

    def _own(self) -> Iterator[HttpRoute]:
        yield HttpRoute(
            method="GET",
            path="/healthz",
            handler=self._healthz,
            role=None,
            summary="Health check, with the model calls that were begun and never recorded, and the autopilot",
            response=dict[str, str | int],
        )
        yield writes(
            "/api/runs/{run}/token",
            self._run_token,
            "Make a token for a run, good for what it records; or renew one",
            wire.RunTokenRequest,
            wire.RunToken,
            of_run=True,
        )
        yield writes(
            "/api/runs/{run}/token/revoke",
            self._revoke,
            "Refuse a run's token from now on",
            wire.RevokedToken,
            wire.RunToken,
            of_run=True,
        )
        yield HttpRoute(
            method="GET",
            path="/openapi.json",
            handler=self._openapi,
            role=Role.READ,
            of_run=True,
            summary="This document",
            response=dict[str, Any],
        )

    async def _openapi(self, request: Request) -> Response:
        if self._document is None:
            from importlib.metadata import version  # slow to import, and seldom asked for

            self._document = answer(document(self.routes, version=version("whet")))
        return self._document

    async def _run_token(self, request: Request) -> Response:
        run, runs = request.own_run(request.params["run"]) or "", self.access.runs
        asked = await request.json(wire.RunTokenRequest)
        # A run's token makes those of runs inside it, which end with it.
        left = asked.seconds if request.grant is None else request.grant.until - time.time()
        seconds = min(asked.seconds, left)
        token = asked.renew or runs.mint(run, seconds)
        _check_of(runs, token, run)
        grant = runs.renew(token, seconds) if asked.renew else runs.grant(token)
        return answer(wire.RunToken(token, run, 0.0 if grant is None else grant.until))

    async def _revoke(self, request: Request) -> Response:
        run = request.own_run(request.params["run"]) or ""
        token = (await request.json(wire.RevokedToken)).token
        _check_of(self.access.runs, token, run)
        self.access.runs.revoke(token)
        return answer(wire.RunToken(token, run, 0.0))

    async def _healthz(self, request: Request) -> Response:
        pilots = (part.health for part in self.parts if isinstance(part, AutopilotPart))
        return answer({"status": "ok", **self._losses(), **next(pilots, {})})

    def _losses(self) -> dict[str, int]:
        lost = [part.lost for part in self.parts if isinstance(part, Gateway)]
        return {"model_calls_lost": sum(lost)} if lost else {}

    async def _serve(self, request: Request) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        try:
            response = await self._answer(request)
            if response is not None:
                await request.send(response)
        except Exception:  # the answer has no form that HTTP can carry
            self._bug(request)
            raise
        finally:
            self._active.discard(task)

    async def _answer(self, request: Request) -> Response | None:
        try:
            # A server that drains still says that it is alive.
            if request.path == "/healthz" or not self._closing or not self._closing.is_set():
                route, request.params = self._router.find(request.method, request.path, request.raw_path)
                self.access.check(request, route)
                # A filter whose name is mistyped would list everything.
                if (
                    request.query_string
                    and route.query
                    and (unknown := request.query.keys() - route.query.keys())
                ):
                    raise InputError(
                        f"there is no query parameter {min(unknown)[:100]!r} here; there are {', '.join(route.query)}"
                    )
                return await route.handler(request)
            raise Refused(503, "closing", "the server is stopping; try again", headers={"retry-after": "1"})
        except WhetError as error:
            # The head of an answer is out; a second one would break the connection's protocol.
            if request.started:
                return None
            return refusal_of(error)
        except Exception:
            self._bug(request)
            if request.started:
                return None
            return refusal(
                500, "internal", "the server failed on this request; its standard error says where"
            )

    def _bug(self, request: Request) -> None:
        self.bugs += 1
        print(f"whet: {request.method} {request.path} failed", file=sys.stderr)
        traceback.print_exc()


def _check_of(runs: RunTokens, token: str, run: str) -> None:
    """Check that a token was made here for this run, though it may have expired.

    Raises:
        InputError: it was not.
    """
    if runs.run_of(token) != run:
        raise InputError(f"that is not a token which this server made for the run {run!r}; ask for a new one")


def standard(
    store: Store,
    limits: RequestLimits | None = None,
    *,
    open_legacy: bool = False,
    grace: float = 2.0,
    keep_days: float | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
    readers: int = 0,
    secrets: Sequence[str] = (),
    durable_calls: bool = False,
    permissions: Permissions | None = None,
    moderation: Moderation | None = None,
    ask: AskPerson | None = None,
    shadow_limits: MirrorLimits | None = None,
    pilot: PilotProcess | None = None,
) -> list[ServerPart]:
    """The parts of `whet serve`: everything that is served over one store.

    Args:
        store: owned by this process.
        limits: those of the server's Access.
        open_legacy: also the Agent Lightning 0.1 routes, without a token and to this machine only.
        grace: seconds of silence after which a run whose root has ended becomes a trajectory.
        keep_days: runs older than this are deleted, except those that `Store.retain` keeps; None keeps all.
        upstreams: of the gateway, which is left out without them.
        readers: processes that read what exporters send, beside this one.
        secrets: taken out of what is recorded, beside those that have a known form (`Access.secrets`); not one of fewer
            than 8 characters, which cannot be told from a word.
        durable_calls: the gateway tells an answer once its record is committed.
        permissions: what the tool calls in the gateway's answers are held to.
        moderation: sees the gateway's prompts before they are sent.
        ask: asked where the permissions say so; if None, people with a token of the role admin, over HTTP.
        shadow_limits: what candidates that answer beside what is live may spend.
        pilot: runs the record's autopilot as a child of the server.
    """
    limits, backlog, redactor = limits or RequestLimits(), Backlog(store), Redactor()
    for secret in secrets:
        redactor.know(secret)
    store.database.redactor = redactor
    assembly = Assembly(store, grace=grace)
    parts: list[ServerPart] = [
        Trajectories(store, backlog),
        OTLP(backlog, Readers(redactor, limits, readers), assembly),
        assembly,
        QueuePart(store, limits, backlog, redactor),
        ReleasesPart(store),
        FeedbackPart(store),
        PeoplePart(store, keep_days=keep_days),
        TrialsPart(store),
        IssuesPart(store),
        AutopilotPart(store, pilot),
        Legacy(store, backlog, open=open_legacy),
    ]
    enforcement = None
    if permissions is not None:
        approvals = Approvals()
        parts.append(approvals)
        enforcement = Enforcement(permissions, ask or approvals.ask)
    if upstreams:
        parts.append(
            Gateway(
                store,
                upstreams,
                redact=lambda spans: [redactor.span(span) for span in spans],
                durable=durable_calls,
                enforcement=enforcement,
                moderation=moderation,
                shadow_limits=shadow_limits,
            )
        )
    return parts


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address.

    Raises:
        InputError: it is in use, not allowed, or no address of this machine.
    """
    name = host.strip("[]") or "0.0.0.0"
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it; without, an event of a stream waits 40 ms for the acknowledgement
        # of the one before.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind((name, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except (OSError, OverflowError) as exception:
        bound.close()
        reason = getattr(exception, "strerror", None) or exception
        raise InputError(
            f"cannot listen on {host}:{port}: {reason}. Choose another --port or --host."
        ) from exception
    return bound


def event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed: about twice as many requests a second."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(server: Server, stopped: threading.Event, ready: Callable[[str], None]) -> int:
    """Serve until `stopped` is set; `ready` is called with the URL.

    Meanwhile this process's threads give way to each other after `SWITCH` seconds, and its garbage is
    collected by `COLLECT`, without the objects that were there before; free memory is given back every `TRIM` seconds.

    Returns:
        Requests that were cut off because they did not end in time.

    Raises:
        InputError: the address cannot be had.
    """

    async def main() -> int:
        await server.start()
        try:
            ready(server.url)
            while not await asyncio.to_thread(stopped.wait, TRIM):
                await asyncio.to_thread(return_free_memory)
        finally:
            cut = await server.stop()
        return cut

    with descriptors(), _tuned(), asyncio.Runner(loop_factory=event_loop) as runner:
        return runner.run(main())


@contextlib.contextmanager
def _tuned() -> Iterator[None]:
    """The interpreter as a server wants it."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(SWITCH)
    gc.freeze()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.unfreeze()


@contextlib.contextmanager
def running(server: Server) -> Iterator[str]:
    """Serve in a thread of this process while the block runs; gives the URL.

    >>> with running(Server(access, parts)) as url:
    ...     httpx2.get(f"{url}/healthz")
    """
    stopped, started = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def ready(url: str) -> None:
        started.set()

    def serve() -> None:
        try:
            run(server, stopped, ready)
        except BaseException as exception:
            failed.append(exception)
        finally:
            started.set()

    thread = threading.Thread(target=serve, name="whet-server", daemon=True)
    thread.start()
    started.wait()
    try:
        if not failed:
            yield server.url
    finally:
        stopped.set()
        thread.join()
    if failed:
        raise failed[0]
