"""One call from request to answer: prepared, sent, passed on as it arrives, and noted.

Everything that can go wrong is raised as `CallFailed`; `gateway.py` answers with it and records
it.  An answer is looked at before it is passed on, so that what the agent did not ask for is
taken out and a broken one is never handed on as if it were whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from ...models.wire import chat, messages
from ...models.wire.neutral import MISSHAPEN, AnswerReader, AnswerWriter, decode
from ...models.wire.sse import DONE, Splitter, data_of
from ...types import Fault, Json
from ..asgi import Request, Response, Stream, deeper
from .dialects import Asked, Dialect, answer_as, encode, request_as
from .failures import CallFailed, ClientGone, fault_of
from .record import Call
from .serving import Served
from .upstream import Opened, Upstream, Upstreams, forwarded, returned

NESTING = 200
"""Levels of lists and objects in a request."""
_EXCERPT = 500
"""Characters of an upstream's own words that an error repeats."""
_POLICY = "x-whet-policy-version"
_MOMENT = 0.02
"""Seconds before a call's client is watched."""


class Exchange:
    """One call that has been let in.

    Args:
        call: what is known of it; filled in for the record.
        served: what the run's Bundle says.
        upstream: who is asked.
        spoken: the API that the upstream is asked in, where it is not the agent's own.
    """

    def __init__(
        self,
        request: Request,
        dialect: Dialect,
        call: Call,
        *,
        served: Served,
        upstream: Upstream,
        spoken: Dialect,
    ) -> None:
        self._request, self._dialect, self._call = request, dialect, call
        self._served, self._upstream, self._spoken = served, upstream, spoken
        self._translated = spoken is not dialect
        self._headers: dict[str, str] = {}
        self._body: Mapping[str, Any] = {}
        self._asked: Asked | None = None
        self.stream: Stream | None = None
        """Set once a streamed answer was begun; then an error must be an event in it."""
        self.told = False
        """The upstream's own error was passed on in the stream already."""
        self.complete = False
        """All of a streamed answer was sent; many agents hang up then, without waiting for its end."""
        self.reader: AnswerReader = dialect.Reader()
        """What the agent has been told so far."""

    async def run(self, raw: bytes, headers: Mapping[str, str], client: Upstreams) -> Response | None:
        """Ask the upstream and answer the agent; None where the answer was streamed.

        Args:
            raw: the agent's body.
            headers: further ones for the agent.

        Raises:
            CallFailed: there is no whole answer.
        """
        body = self._prepare(raw)
        opened = await client.open(
            self._upstream,
            "POST",
            self._spoken.path + query_of(self._request),
            headers=forwarded(
                self._request.headers,
                self._upstream,
                api=self._spoken.api,
                credential=self._request.credential,
                translated=self._translated,
            ),
            body=body,
        )
        whole = False
        try:
            self._headers = {**returned(opened.headers), **headers}
            self._call.status = opened.status
            if opened.status != 200:
                raise self._refusal(opened, await opened.body())
            self._call.policy_version = opened.headers.get(_POLICY)
            if self._body.get("stream"):
                await self._relay(opened)
                whole = True
                return None
            answer = self._answer(await opened.body())
            whole = True
            return answer
        finally:
            opened.close(whole=whole)

    # -- the request --------------------------------------------------------------------------

    def _prepare(self, raw: bytes) -> bytes:
        """The body for the upstream; the agent's own bytes where nothing has to be changed."""
        call, served = self._call, self._served
        body = self._body = read_request(raw)
        call.request, call.versions = raw, served.versions
        try:
            if served.changes:
                body = self._body = served.applied(body, self._dialect.api, translated=self._translated)
                call.request, call.original = encode(body), raw
            model = body.get("model")
            call.model = model if isinstance(model, str) else None
            sent = request_as(body, self._dialect.api, self._spoken.api)
            if self._spoken.api != "chat":
                return encode(sent) if self._translated else call.request
            self._asked = Asked(sent)
            wanted = chat.asking(sent, tokens=self._upstream.tokens, usage=self._upstream.usage)
        except MISSHAPEN as exception:
            raise _invalid(f"it is no {self._dialect.api} request ({exception!r})") from exception
        return call.request if wanted == body else encode(wanted)

    # -- a refusal ----------------------------------------------------------------------------

    def _refusal(self, opened: Opened, body: bytes) -> CallFailed:
        """The upstream's error, in the agent's dialect."""
        self._call.bulk = len(body)
        fault = fault_of(opened.status, own_key=self._upstream.key is not None)
        try:
            found = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            found = None
        message, kind = _words(found)
        # A redirect or a 204 is no answer to a model call; sent on, it would confuse the agent's client.
        status = opened.status if opened.status >= 400 else 502
        text = message or body[:_EXCERPT].decode(errors="replace") or "nothing"
        own = body if message is not None and not self._translated and status == opened.status else None
        return CallFailed(
            fault,
            kind or "upstream_error",
            text if own is not None else f"the upstream answered {opened.status}: {text}",
            status=status,
            body=own,
            headers=self._headers,
        )

    # -- a plain answer -----------------------------------------------------------------------

    def _answer(self, raw: bytes) -> Response:
        call = self._call
        call.bulk = len(raw)
        try:
            answer = decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as exception:
            raise _malformed(f"is not JSON ({exception})", raw) from exception
        if not self._spoken.accepts(answer):
            message, _ = _words(answer)
            raise _malformed(f"is no {self._spoken.api} answer" + (f": {message}" if message else ""), raw)
        try:
            body = self._noted(raw, answer)
            if self._translated:
                answer = answer_as(answer, self._dialect.api, self._spoken.api, self._body)
                body = encode(answer)
            call.response, call.usage = body, self._dialect.usage(answer)
        except MISSHAPEN as exception:
            raise _malformed(f"cannot be read ({exception!r})", raw) from exception
        return Response(200, body, headers=self._headers)

    def _noted(self, raw: bytes, answer: dict[str, Any]) -> bytes:
        """Note token ids and the policy's version, and take out what was not asked for."""
        call = self._call
        call.policy_version = chat.version_of(answer) or call.policy_version
        self._check_version()
        if self._asked is None:
            return raw
        call.samples = chat.samples(answer)
        return self._asked.stripped(raw, answer, whole=True) or raw

    def _check_version(self) -> None:
        """The policy that answered is the one that the run was assigned.

        Raises:
            CallFailed: it is another, or does not say.
        """
        wanted, found = self._served.policy_version, self._call.policy_version
        if wanted is not None and found != wanted:
            said = "no policy version" if found is None else f"policy version {found!r}"
            raise CallFailed(
                Fault.MODEL,
                "version_mismatch",
                f"the run was assigned policy version {wanted!r}, and the upstream answered with {said}. "
                "Load the assigned weights, or release a Bundle that names those which are loaded.",
            )

    # -- a streamed answer --------------------------------------------------------------------

    async def _relay(self, opened: Opened) -> None:
        if "event-stream" not in opened.content_type:
            raw = await opened.body()
            message, _ = _words(_json(raw))
            raise _malformed(f"is no event stream{f': {message}' if message else ''}", raw)
        spoken = self._spoken.Reader() if self._translated else self.reader
        writer = self._dialect.Writer(self._body) if self._translated else None
        splitter, done = Splitter(), False
        try:
            async for chunk in opened.chunks():
                self._call.bulk += len(chunk)
                done = await self._pass(splitter.feed(chunk), spoken, writer) or done
            done = await self._pass(splitter.end(), spoken, writer) or done
            if not spoken.finished and not (done and spoken.response() is not None):
                raise CallFailed(
                    Fault.MODEL, "upstream_cut", "the upstream's stream ended before its answer was complete"
                )
            if writer is not None:
                last = self._told(writer.end())
                last += [DONE] if self._dialect.api == "chat" else []
                self.complete = True
                await self._write(last)
        finally:
            self._note_stream(spoken)
        if self.stream is not None:
            await self.stream.close()

    async def _pass(self, events: list[bytes], spoken: AnswerReader, writer: AnswerWriter | None) -> bool:
        """Pass whole events on; True if the last of the stream is among them."""
        out: list[bytes] = []
        done = False
        try:
            for event in events:
                data = data_of(event)
                if data and data != b"[DONE]":
                    self._pass_one(event, data, spoken, writer, out)
                else:
                    done = done or bool(data)
                    out += [event] if writer is None else []
        finally:  # what came before a broken event is the agent's all the same
            # Before it is sent: the agent may be gone when that returns.
            self.complete = writer is None and spoken.finished
            await self._write(out)
        return done

    def _pass_one(
        self,
        event: bytes,
        data: bytes,
        spoken: AnswerReader,
        writer: AnswerWriter | None,
        out: list[bytes],
    ) -> None:
        """Read one event and add to `out` what the agent is told of it."""
        value = _json(data)
        if not isinstance(value, dict):
            raise _malformed("has an event that is not JSON", data)
        begun = self._call.first is None
        self._call.begun()
        try:
            spoken.read(value)
            if writer is None:
                kept = event if self._asked is None else self._asked.stripped(event, value, whole=False)
                out += [] if kept is None else [kept if kept is event else b"data: " + kept + b"\n\n"]
            elif spoken.failure is None:
                assert isinstance(spoken, chat.Reader | messages.Reader)
                for piece in spoken.pieces(value):
                    out += self._told(writer.write(piece))
        except MISSHAPEN as exception:
            raise _malformed(f"has an event that cannot be read ({exception!r})", data) from exception
        if spoken.failure is not None:
            self.told = writer is None
            message, kind = _words({"error": spoken.failure})
            raise CallFailed(Fault.MODEL, kind or "upstream_error", message or "the upstream failed")
        self._call.policy_version = spoken.policy_version or self._call.policy_version
        if begun:
            try:
                self._check_version()
            except CallFailed:
                out.clear()  # nothing of another policy's answer is passed on
                raise

    def _told(self, events: list[Json]) -> list[bytes]:
        """Events of a translated stream, as they are sent."""
        for event in events:
            self.reader.read(event)
        if self._dialect.api == "chat" and not Asked(self._body).usage:
            events = [event for event in events if event["choices"]]
        return [self._dialect.frame(event) for event in events]

    async def _write(self, events: list[bytes]) -> None:
        if not events:
            return
        if self.stream is None:
            headers = {**self._headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
            self.stream = await self._request.stream(200, headers=headers)
        await self.stream.write(b"".join(events))

    def _note_stream(self, spoken: AnswerReader) -> None:
        """Put the answer together, whole or cut, for the record."""
        call = self._call
        try:
            answer = spoken.response()
            if self._asked is not None and answer is not None:
                call.samples = chat.samples(answer)
                self._asked.take_out(answer, whole=True)
            call.response = self.reader.response() if self._translated else answer
            call.usage = self._dialect.usage(call.response) if isinstance(call.response, dict) else None
        except MISSHAPEN as exception:
            raise _malformed(f"cannot be put together ({exception!r})", b"") from exception


def read_request(raw: bytes) -> dict[str, Any]:
    """The agent's body as JSON.

    Raises:
        CallFailed: it is no JSON object, or is nested too deeply.
    """
    try:
        body = decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exception:
        raise _invalid(f"the body is not JSON ({exception})") from exception
    if not isinstance(body, dict):
        raise _invalid(f"the body is a {type(body).__name__}, not an object")
    if raw.count(b"[") + raw.count(b"{") > NESTING and deeper(raw, NESTING):
        raise _invalid(f"the body is nested deeper than {NESTING} levels")
    return body


def _invalid(why: str) -> CallFailed:
    return CallFailed(Fault.AGENT, "invalid_request", f"the request cannot be used: {why}", status=400)


def _malformed(why: str, raw: bytes) -> CallFailed:
    said = raw[:_EXCERPT].decode(errors="replace")
    return CallFailed(Fault.MODEL, "malformed_answer", f"the upstream's answer {why}. It began: {said}")


def _json(raw: bytes) -> Json:
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _words(found: Json) -> tuple[str | None, str | None]:
    """Message and kind of an error object, whoever wrote it; (None, None) if it is none."""
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, str):
        return error, None
    if not isinstance(error, dict):
        return None, None
    kind = error.get("code") or error.get("type")
    message = error.get("message")
    return str(message) if message is not None else str(error), None if kind is None else str(kind)


def query_of(request: Request) -> str:
    """What stands after the path, `?` included; empty where nothing does."""
    query: bytes = request.scope.get("query_string") or b""
    return f"?{query.decode('latin-1')}" if query else ""


@asynccontextmanager
async def watched(request: Request) -> AsyncIterator[None]:
    """Cancel what runs inside once the client goes away.

    It begins to look after a moment: most calls of a fast upstream are over by then, and a task
    for each of them would cost more than it saves.

    Raises:
        ClientGone: it did.
    """
    task = asyncio.current_task()
    assert task is not None
    gone = False
    watchers: list[asyncio.Task[None]] = []

    async def wait() -> None:
        nonlocal gone
        await request.disconnected()
        gone = True
        task.cancel()

    def watch() -> None:
        watchers.append(asyncio.create_task(wait()))

    timer = asyncio.get_running_loop().call_later(_MOMENT, watch)
    try:
        yield
    except asyncio.CancelledError:
        if gone and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        timer.cancel()
        for watcher in watchers:
            watcher.cancel()
