"""The gateway: a part of the server that speaks the model APIs and records every call.

An agent whose base URL is changed to `http://HOST:PORT/v1`, or to `/run/ID/v1` and
`/run/ID/TOKEN/v1` where it can set nothing else, goes on as before: its calls are passed to an
upstream, its answers are its upstream's.  On the way each call is recorded, joined to the agent's
own spans, and given the prompt, model and parameters of the Bundle that its run was assigned.  With `/trial`
before the `/v1`, a call is that of a candidate: it keeps its own prompt and is not recorded.

It does not retry, cache or balance load, and an agent cannot tell it where to send anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product
from typing import Annotated
from urllib.parse import quote

import msgspec

from ...errors import InputError, NotFoundError, StoreError, WhetError
from ...models.trial import TRIAL
from ...record.permissions.enforcement import Enforcement
from ...record.store import Store
from ...record.store.call_tally import CallTally
from ...record.store.group_commit import releases_written
from ...record.store.releases import GATEWAY
from ...record.store.trials import TRIALS, Trials
from ...types import Bundle, Failure, Fault, Span, Version
from ..durable import settled
from ..http import Handler, HttpRoute, Refused, Request, Response, Role, answer, reads, without_paths, writes
from .assignment import Assignments, Reassigned, Recorded
from .dialects import DIALECTS, Dialect
from .exchange import Exchange, query_of
from .failures import CLIENT_GONE, ClientGone, UpstreamFailed
from .identity import Identity, identify, readable, trace_of
from .interrupt import Interrupter, Interruptible
from .mirror import ShadowMirror
from .mirror_wire import MirrorLimits
from .moderation import Moderation
from .record import ENCODING, ModelCall, Recorder
from .serving import ServedBundle
from .traffic import Traffic
from .upstream import Upstream, Upstreams, choose, forwarded, returned

BODY = 64 * 1024 * 1024
"""Bytes of a request: pictures are sent inside it."""
DURABLE = 10.0
"""Seconds that an answer which must be recorded first waits for that."""
WATCH_SECONDS = 1.0
"""Interval of looking in the record for another live release."""
_DEPLOYED = "/deployed/{bundle}"
_PREFIXES = (
    ("", None),
    ("/run/{run}", None),
    ("/run/{run}/{token}", "token"),
    (_DEPLOYED, None),
    (f"{_DEPLOYED}/{{token}}", "token"),
    (f"{_DEPLOYED}/run/{{run}}/{{token}}", "token"),
)
"""Paths before `/v1`, and the parameter of the token: what was deployed with the last three as its base URL runs a
Bundle's code, which nobody else could tell of its calls."""


class Assign(msgspec.Struct):
    """Versions that a run is to be served."""

    versions: list[str]
    """Ids of Versions in the record."""


class Drain(msgspec.Struct):
    """The wait for calls under way."""

    seconds: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 60.0


class Status(msgspec.Struct):
    """The gateway's state."""

    paused: bool
    in_flight: int
    held: int
    live: dict[str, str]
    """Resource → Version id, of the gateway's resources in what new runs get."""
    swaps: int
    calls: int
    recorded: int
    waiting: int
    """Calls whose record is not durable yet."""
    lost: int
    """Calls whose record could not be written."""
    lost_before: int
    """Calls of earlier servers of this store that were begun and never recorded, as when one is killed."""
    durable: bool
    """Answers wait for the commit of their records."""
    error: str | None
    """The reason that the record cannot be written or the live release cannot be served."""
    upstreams: dict[str, list[str]]
    """Name → the APIs that it speaks."""
    shadows: dict[str, int]
    """What became of the calls that shadows were to answer: mirrored, answered, failed, paired, dropped, left out."""


class Gateway:
    """A part of the server.

    Args:
        store: the record; its live release is what new runs are served.
        upstreams: name → Upstream; an API goes to the first that speaks it, else translated to the
            first that speaks chat or Messages, unless a Bundle's route names another.
        live: name of the release to follow.
        redact: applied to the spans before they are written.
        durable: an answer is told once its record is committed; else a call may ask for that itself, by the header
            `x-whet-durable: true`.
        shadow_limits: what shadows may spend.
        run_under_way: the run that a call belongs to, by the one that its address names: for a program that does one
            run after the other and keeps its address.
        enforcement: permissions that the tool calls in answers are held to.
        moderation: sees the prompts before they are sent.

    Raises:
        InputError: no upstream, or a live release that cannot be served.
    """

    def __init__(
        self,
        store: Store,
        upstreams: Mapping[str, Upstream],
        *,
        live: str = "live",
        redact: Callable[[Sequence[Span]], Sequence[Span]] | None = None,
        durable: bool = False,
        run_under_way: Callable[[str], str] | None = None,
        enforcement: Enforcement | None = None,
        moderation: Moderation | None = None,
        shadow_limits: MirrorLimits | None = None,
    ) -> None:
        if not upstreams:
            raise InputError("a gateway needs an upstream; give --upstream URL")
        self._store, self._name, self._run_under_way = store, live, run_under_way
        self._enforcement, self._moderation = enforcement, moderation
        self.upstreams = dict(upstreams)
        self.assignments = Assignments(self.upstreams)
        self._bundles: dict[str, Mapping[str, str]] = {}
        """Bundle → Versions, of those that run where they were deployed."""
        self.mirror = ShadowMirror(store, self.upstreams, limits=shadow_limits)
        self.assignments.swap(*self._standing())
        self.tally, self.durable = CallTally(store), durable
        self.recorder = Recorder(store.spans, tally=self.tally, redact=redact)
        self.traffic = Traffic()
        self.calls = 0
        self._client: Upstreams | None = None
        self._interrupter: Interrupter | None = None
        self._trouble: str | None = None
        self._written = releases_written()

    @property
    def lost(self) -> int:
        """Model calls of this store that were begun and never recorded, those of earlier servers among them."""
        return self.tally.lost + self.recorder.lost

    @property
    def routes(self) -> Sequence[HttpRoute]:
        """The model APIs, below `/v1` and below the paths that name a run, and the admin routes."""
        return (*self._model_routes(), *self._admin_routes())

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the connections, follow the live release; at the end write what waits."""
        self._client, self._interrupter = Upstreams(), Interrupter()
        follower = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            follower.cancel()
            await self._client.close()
            # In a thread: it waits for the disk, for PATIENCE seconds if need be.
            await asyncio.to_thread(self.recorder.close)
            await asyncio.to_thread(self.mirror.close)
            self.tally.close()

    # -- calls --------------------------------------------------------------------------------

    def _model_routes(self) -> Sequence[HttpRoute]:
        routes = []
        for (prefix, token), trial in product(_PREFIXES, (False, True)):
            if trial and prefix.startswith(_DEPLOYED):
                continue  # a candidate is no deployment

            def route(
                method: str,
                path: str,
                handler: Handler,
                *,
                prefix: str = f"{prefix}/{TRIAL}" if trial else prefix,
                token: str | None = token,
                note: str = ", of a candidate on trial" if trial else ", recorded",
            ) -> HttpRoute:
                return HttpRoute(
                    method=method,
                    path=f"{prefix}/v1{path}",
                    handler=handler,
                    role=Role.WRITE,
                    of_run=True,
                    summary=f"{method} {path} of the upstream" + (note if path in _RECORDED else ""),
                    request=dict if method == "POST" else None,
                    response=dict,
                    token_param=token,
                    body_limit=BODY,
                )

            for dialect in DIALECTS.values():
                routes.append(route("POST", dialect.path, self._handler(dialect, trial=trial)))
            for method, path, api in _UNRECORDED:
                routes.append(route(method, path, self._pass_on(path, api)))
        return routes

    def _handler(self, dialect: Dialect, *, trial: bool) -> Handler:
        async def handle(request: Request) -> Response | None:
            return await (self._trial if trial else self._call)(request, dialect)

        return handle

    async def _trial(self, request: Request, dialect: Dialect) -> Response | None:
        """Answer one call of a candidate on trial: under its own prompt, and unrecorded, for it is no production."""
        call = ModelCall(dialect.api, Identity(None, b"", b""))
        exchange: Exchange | None = None
        try:
            request.own_run(request.params.get("run"))
            assert self._client is not None
            assert self._interrupter is not None
            raw = await request.body()
            with self._interrupter.call(request.disconnected) as under_way:
                await self.traffic.let_in()
                with self.traffic:
                    live = self.assignments.live.served
                    served = replace(live, versions={}, prompt=None, rewrites={})
                    exchange = self._exchange(request, dialect, call, served, call.id.hex())
                    return await exchange.run(raw, {}, self._client, under_way)
        except UpstreamFailed as failed:
            return await self._failed(dialect, exchange, failed)
        except ClientGone:
            return None
        except Refused as refused:
            return _refused(dialect, refused)

    async def _call(self, request: Request, dialect: Dialect) -> Response | None:
        """Answer one call and have it recorded, whatever becomes of it."""
        try:
            identity = identify(request)
            if self._run_under_way is not None and identity.run is not None:
                identity = identity.within(self._run_under_way(identity.run))
        except InputError as error:
            return _error(dialect, UpstreamFailed(Fault.AGENT, "invalid_id", str(error), status=400))
        except Refused as refused:
            return _refused(dialect, refused)
        call = ModelCall(dialect.api, identity)
        self.calls += 1
        self.tally.begin()
        waits = self.durable or request.header("x-whet-durable") == "true"
        exchange: Exchange | None = None
        try:
            assert self._client is not None
            assert self._interrupter is not None
            raw = await request.body()
            # Interruptible outermost: a call that is held by a pause must end when its agent hangs up.
            with self._interrupter.call(request.disconnected) as under_way:
                await self.traffic.let_in()
                with self.traffic:
                    served = await self._assigned(identity)
                    if deployed := request.params.get("bundle"):
                        own = await self._deployed(deployed)
                        served = replace(served, versions={**served.versions, **own})
                    call.versions, call.trials = served.versions, served.trials
                    exchange = self._exchange(request, dialect, call, served, identity.key)
                    if waits:
                        exchange.commit = lambda: self._commit(call)
                    return await exchange.run(raw, _own_headers(call), self._client, under_way)
        except UpstreamFailed as failed:
            if not call.added:
                call.failure = failed.failure
                if exchange is None or exchange.stream is None:
                    call.status = failed.status
                if waits:
                    with contextlib.suppress(UpstreamFailed):  # the agent is told of a failure already
                        await self._commit(call)
            failed.headers.update(_own_headers(call))
            return await self._failed(dialect, exchange, failed)
        except ClientGone:
            if exchange is None or not exchange.complete:
                gone = "the agent hung up before its answer was whole"
                call.status, call.failure = CLIENT_GONE, Failure(Fault.AGENT, "client_gone", gone)
            return None
        except Refused as refused:
            call.status = refused.status
            call.failure = Failure(Fault.AGENT, refused.kind, str(refused))
            return _refused(dialect, refused)
        except BaseException as error:
            # BaseException: a call that the stopping server cuts off is recorded too.
            call.status = call.status or 500
            call.failure = Failure(Fault.ENVIRONMENT, type(error).__name__, str(error))
            raise
        finally:
            self._finish(call)
            self.recorder.add(call)
            # Last: the agent has its answer. Of one that was served a canary what is live has no answer to compare.
            if call.status == 200 and call.failure is None and not _on_trial(call):
                self.mirror.offer(call, request)

    def _finish(self, call: ModelCall) -> None:
        if not call.added:
            call.latency = time.perf_counter() - call.clock
            self._check_assignment(call)

    async def _commit(self, call: ModelCall) -> None:
        """Have a call recorded, and return once that is committed.

        Raises:
            UpstreamFailed: it is not, after `DURABLE` seconds.
        """
        self._finish(call)
        try:
            async with asyncio.timeout(DURABLE):
                await settled(self.recorder.durable(call))
        except (TimeoutError, StoreError) as error:
            reason = str(error) or f"the record was not committed within {DURABLE:g} seconds"
            raise UpstreamFailed(
                Fault.ENVIRONMENT,
                "not_recorded",
                f"The model has answered, and its answer is withheld because it could not be recorded: {reason}",
                status=503,
                headers={"retry-after": "1"},
            ) from error

    def _exchange(
        self, request: Request, dialect: Dialect, call: ModelCall, served: ServedBundle, key: str
    ) -> Exchange:
        """The exchange of a call with the upstream that its Bundle sends this key to."""
        name, spoken = choose(self.upstreams, dialect.api, served.upstream(key))
        exchange = Exchange(
            request,
            dialect,
            call,
            served=served,
            upstream=self.upstreams[name],
            spoken=DIALECTS[spoken],
        )
        exchange.enforcement, exchange.moderation = self._enforcement, self._moderation
        return exchange

    async def _failed(
        self, dialect: Dialect, exchange: Exchange | None, failed: UpstreamFailed
    ) -> Response | None:
        """Tell the agent in its own dialect: as an answer, or inside the stream that was begun."""
        if exchange is None or exchange.stream is None:
            return _error(dialect, failed)
        if not exchange.error_sent:
            await exchange.stream.write(
                dialect.error_events(failed.kind, without_paths(str(failed)), exchange.reader.sequence)
            )
        await exchange.stream.close()
        return None

    def _check_assignment(self, call: ModelCall) -> None:
        """The Versions that the call was served are those that its run is assigned."""
        assigned = self.assignments.known(call.identity.key)
        own = {name: version for name, version in call.versions.items() if name in GATEWAY}
        if assigned is not None and dict(assigned.versions) != own and call.request:
            call.failure = Failure(
                Fault.ENVIRONMENT,
                "assignment_mismatch",
                f"the call was served {own}, its run is assigned {dict(assigned.versions)}",
            )

    async def _deployed(self, bundle: str) -> Mapping[str, str]:
        """The Versions of a Bundle that runs where it was deployed, by their resources.

        Raises:
            UpstreamFailed: the record has no such Bundle.
        """
        if bundle not in self._bundles:
            try:
                stored = await asyncio.to_thread(self._store.bundle, bundle)
            except NotFoundError as error:
                raise UpstreamFailed(Fault.AGENT, "invalid_id", str(error), status=404) from error
            self._bundles[bundle] = {name: id for name, id in stored.ids.items() if name not in GATEWAY}
        return self._bundles[bundle]

    def _pass_on(self, path: str, api: str) -> Handler:
        """A handler for what is not a model's answer: passed on as it is and not recorded."""

        async def handle(request: Request) -> Response:
            request.own_run(request.params.get("run"))
            caller_api = "messages" if request.header("anthropic-version") else api
            model = request.params.get("model", "")
            # Quoting leaves dots as they are, and a client library would resolve them.
            if model in (".", ".."):
                raise NotFoundError(f"no model is called {model!r}")
            # The name is quoted again: one that holds `../` must not become another path of the upstream.
            target = path.replace("{model}", quote(model, safe="")) + query_of(request)
            try:
                body = await request.body() if request.method == "POST" else None
                assert self._interrupter is not None
                with self._interrupter.call(request.disconnected) as under_way:
                    return await self._passed(request, caller_api, target, body, under_way)
            except UpstreamFailed as failed:
                return _error(DIALECTS["messages" if caller_api == "messages" else "chat"], failed)
            except ClientGone:
                raise Refused(408, "client_gone", "the client went away") from None

        return handle

    async def _passed(
        self, request: Request, api: str, path: str, body: bytes | None, under_way: Interruptible
    ) -> Response:
        name, spoken = choose(self.upstreams, api, None)
        upstream = self.upstreams[name]
        assert self._client is not None
        headers = forwarded(
            request.headers,
            upstream,
            api=spoken,
            credential=request.credential,
            translated=spoken != api,
        )
        async with await self._client.open(
            upstream, request.method, path, headers=headers, body=body, under_way=under_way
        ) as opened:
            content = await opened.body()
        kind = opened.content_type or "application/json"
        return Response(opened.status, content, content_type=kind, headers=returned(opened.headers))

    # -- Bundles ------------------------------------------------------------------------------

    async def _assigned(self, identity: Identity) -> ServedBundle:
        served = self.assignments.known(identity.key)
        if served is not None:
            return served
        if releases_written() != self._written:
            await self._catch_up()  # this process has released or rolled back: new runs have it at once
        recorded = None
        try:
            # The agent goes on without a record, and the status says so.
            with contextlib.suppress(StoreError):
                if not identity.fresh and self._seen(identity):
                    recorded = await asyncio.to_thread(self._recorded, identity)
            return self.assignments.of(
                identity.key, recorded, session=identity.session, subject=identity.subject
            )
        except WhetError as error:
            raise UpstreamFailed(Fault.ENVIRONMENT, "bad_bundle", str(error), status=500) from error

    def _seen(self, identity: Identity) -> bool:
        """True if the record knows the run.

        Asked in the loop: for nearly every run the answer is no, and takes a third of what it costs to ask in a thread.
        """
        spans, run = self._store.spans, identity.run
        if run is None:
            return spans.known(trace=identity.trace)
        return spans.known(run=run) or self._store.rollouts.bundle(run) is not None

    def _recorded(self, identity: Identity) -> Recorded | None:
        """What this run was served before or what its rollout runs under; None if neither is recorded."""
        spans = self._store.spans
        run_spans = spans.trace(identity.trace) if identity.run is None else spans.run(identity.run)
        calls = [span for span in run_spans if span.encoding == ENCODING]
        if not calls:
            named = None if identity.run is None else self._store.rollouts.bundle(identity.run)
            return None if named is None else Recorded(self._store.bundle(named), {})
        last = msgspec.json.decode(calls[-1].body)
        versions = last.get("versions") or {}
        return Recorded(Bundle(self._store.versions(ids=list(versions.values()))), last.get(TRIALS) or {})

    async def _follow(self) -> None:
        """Swap to another release once it is live, whoever made it so."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._catch_up()

    async def _catch_up(self) -> None:
        try:
            await self.reload()
            self._trouble = None
        except WhetError as error:
            self._trouble = str(error)

    async def reload(self) -> bool:
        """Serve what the record says is live now; False if that was served already.

        Raises:
            InputError: it cannot be served; new runs get what they got before.
        """
        # Read first: a release that comes while the log is read is then looked for again.
        before = releases_written()
        bundle, trials = await asyncio.to_thread(self._standing)
        self._written = before  # not sooner: whoever comes meanwhile waits for the answer too
        return self.assignments.swap(bundle, trials)

    def _standing(self) -> tuple[Bundle, Trials]:
        """What is live, and the canaries beside it that change what the gateway serves."""
        bundle, standing = self._store.live(self._name) or Bundle(), self._store.on_trial(self._name)
        self.mirror.stand(standing)
        return bundle, Trials(standing, bundle, reads=lambda name: name in GATEWAY)

    # -- administration -----------------------------------------------------------------------

    def _admin_routes(self) -> Sequence[HttpRoute]:
        base = "/api/gateway"
        changes = (
            ("pause", self._pause, "Hold calls that arrive", None),
            ("resume", self._resume, "Release held calls", None),
            ("drain", self._drain, "Pause, and wait until no call is under way", Drain),
            ("swap", self._swap, "Serve the live release to new runs at once", None),
        )
        return (
            reads(base, self._status, "The state of the gateway", Status),
            *(
                writes(f"{base}/{name}", handler, summary, body, Status, role=Role.ADMIN)
                for name, handler, summary, body in changes
            ),
            HttpRoute(
                method="PUT",
                path=f"{base}/runs/{{run}}",
                handler=self._assign,
                summary="Assign Versions to a run that has not begun",
                request=Assign,
                response=dict,
            ),
        )

    def status(self) -> Status:
        """The gateway's state."""
        recorder, live = self.recorder, self.assignments.live
        trouble = recorder.error or self._trouble
        return Status(
            paused=self.traffic.paused,
            in_flight=self.traffic.in_flight,
            held=self.traffic.held,
            live=dict(live.served.versions),
            swaps=self.assignments.swaps,
            calls=self.calls,
            recorded=recorder.recorded,
            waiting=recorder.waiting,
            lost=recorder.lost,
            lost_before=self.tally.lost,
            durable=self.durable,
            error=None if trouble is None else without_paths(trouble),
            upstreams={name: sorted(upstream.speaks) for name, upstream in self.upstreams.items()},
            shadows=self.mirror.status,
        )

    async def _status(self, request: Request) -> Response:
        return answer(self.status())

    async def _pause(self, request: Request) -> Response:
        self.traffic.pause()
        return answer(self.status())

    async def _resume(self, request: Request) -> Response:
        self.traffic.resume()
        return answer(self.status())

    async def _drain(self, request: Request) -> Response:
        raw = await request.body()
        seconds = request.parsed(raw, Drain).seconds if raw else Drain().seconds
        in_flight = await self.traffic.drain(seconds)
        return answer(self.status(), 200 if not in_flight else 504)

    async def _swap(self, request: Request) -> Response:
        await self.reload()
        return answer(self.status())

    async def _assign(self, request: Request) -> Response:
        assignment = await request.json(Assign)
        run = readable("run", request.params["run"])
        bundle = Bundle(await asyncio.to_thread(self._versions, assignment.versions))
        if self.assignments.known(run) is None and self._store.spans.known(run=run):
            # It has begun and is no longer remembered: what it is served stands in the record.
            begun = Identity(run, trace_of(run), b"")
            self.assignments.of(run, await asyncio.to_thread(self._recorded, begun))
        try:
            served = self.assignments.assign(run, bundle)
        except Reassigned as error:
            raise Refused(409, "already_assigned", str(error)) from error
        return answer({"run": run, "versions": dict(served.versions)})

    def _versions(self, ids: Sequence[str]) -> list[Version]:
        return [self._store.version(id) for id in ids]


_RECORDED = {dialect.path for dialect in DIALECTS.values()}
_UNRECORDED = (
    ("POST", "/embeddings", "chat"),
    ("POST", "/messages/count_tokens", "messages"),
    ("GET", "/models", "chat"),
    ("GET", "/models/{model}", "chat"),
)
"""Method, path, and the API whose upstream it is passed on to."""


def _on_trial(call: ModelCall) -> bool:
    """True if the call was served a candidate."""
    return any(isinstance(arm, dict) and arm.get("arm") == "candidate" for arm in call.trials.values())


def _own_headers(call: ModelCall) -> dict[str, str]:
    """Headers by which the agent can name the record: the run that feedback refers to, and the call."""
    headers = {"x-whet-call": call.id.hex(), "x-whet-trace": call.identity.trace.hex()}
    if call.identity.run is not None:
        headers["x-whet-run"] = call.identity.run
    return headers


def _refused(dialect: Dialect, refused: Refused) -> Response:
    return _error(dialect, UpstreamFailed(Fault.AGENT, refused.kind, str(refused), status=refused.status))


def _error(dialect: Dialect, failed: UpstreamFailed) -> Response:
    body = failed.body
    if body is None:
        body = msgspec.json.encode(dialect.error(failed.status, failed.kind, without_paths(str(failed))))
    return Response(failed.status, body, headers=failed.headers)
