"""One call from request to answer: prepared, sent, passed on as it arrives, and noted.

Everything that can go wrong is raised as `UpstreamFailed`; `gateway.py` answers with it and records
it.  An answer is looked at before it is passed on, so that what the agent did not ask for is
taken out and a broken one is never handed on as if it were whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ...errors import PermissionDenied
from ...escapes import TooManyValues, refuse_too_many
from ...models.wire import chat, messages
from ...models.wire.neutral import MISSHAPEN, AnswerReader, AnswerWriter, decode
from ...models.wire.sse import DONE, Splitter, data_of
from ...record.permissions.enforcement import Enforcement
from ...types import Failure, Fault, Json
from ..http import VALUES, Request, Response, Stream, deeper
from .dialects import Dialect, ExtraFields, answer_as, encode, request_as
from .failures import UpstreamFailed, fault_of
from .interrupt import Interruptible
from .moderation import Moderation, moderated
from .record import ModelCall
from .screen import answer_text, calls_as_before, calls_tools, has_tools, part_of, refused_calls, screened
from .serving import ServedBundle
from .text_chunk import TextChunk
from .upstream import Upstream, UpstreamAnswer, Upstreams, forwarded, returned

NESTING = 200
"""Levels of lists and objects in a request."""
_EXCERPT = 500
"""Characters of an upstream's own words that an error repeats."""
_FORMS = 4
"""Chunks whose form is tried on those that follow: of a stream with something new in each no more are."""
_POLICY = "x-whet-policy-version"


class Exchange:
    """One call that has been let in.

    Args:
        call: its record, which is filled in here.
        served: the run's Bundle.
        upstream: the endpoint that answers.
        spoken: the API that the upstream is asked in, where it is not the agent's own.
    """

    def __init__(
        self,
        request: Request,
        dialect: Dialect,
        call: ModelCall,
        *,
        served: ServedBundle,
        upstream: Upstream,
        spoken: Dialect,
    ) -> None:
        self._request, self._dialect, self._call = request, dialect, call
        self._served, self._upstream, self._spoken = served, upstream, spoken
        self._translated = spoken is not dialect
        self._headers: dict[str, str] = {}
        self._body: Mapping[str, Any] = {}
        self._asked: ExtraFields | None = None
        self.stream: Stream | None = None
        """Set once a streamed answer was begun; then an error must be an event in it."""
        self.error_sent = False
        """The upstream's own error was passed on in the stream already."""
        self.commit: Callable[[], Awaitable[None]] | None = None
        """Awaited before the agent is given its answer, or the end of a streamed one."""
        self._held: list[bytes] = []
        """The end of a stream, which waits for that."""
        self.enforcement: Enforcement | None = None
        """Permissions of the tool calls in the answer."""
        self.moderation: Moderation | None = None
        """Looks at the prompt before it is sent."""
        self._screens = False
        """The answer may call tools, and permissions hold."""
        self._holding = False
        """What comes of a stream waits until it is whole, and has been looked at."""
        self._sent = ""
        """The text that the agent had before that."""
        self.complete = False
        """All of a streamed answer was sent; many agents hang up then, without waiting for its end."""
        self.reader: AnswerReader = dialect.stream_reader()
        """Of what was sent to the agent so far."""
        self._upstream_reader = self.reader
        """Of what the upstream has sent; another one than `reader` where a stream is translated."""
        self._writer: AnswerWriter | None = None
        """Of a translated stream."""
        self._chunk: TextChunk | None = None
        """One of a stream that held a text alone."""
        self._unlike = _FORMS
        """How many more chunks may be such a one."""

    async def run(
        self, raw: bytes, headers: Mapping[str, str], client: Upstreams, under_way: Interruptible
    ) -> Response | None:
        """Ask the upstream and answer the agent; None where the answer was streamed.

        Args:
            raw: the agent's body.
            headers: further ones for the agent.
            under_way: the call, whose waits are limited.

        Raises:
            UpstreamFailed: there is no whole answer.
        """
        body = await self._prepare(raw)
        forwarded_headers = forwarded(
            self._request.headers,
            self._upstream,
            api=self._spoken.api,
            credential=self._request.credential,
            translated=self._translated,
        )
        path = self._spoken.path + query_of(self._request)
        async with await client.open(
            self._upstream, "POST", path, headers=forwarded_headers, body=body, under_way=under_way
        ) as opened:
            self._headers = {**returned(opened.headers), **headers}
            self._call.status = opened.status
            if opened.status != 200:
                raise self._refusal(opened, await opened.body())
            self._call.policy_version = opened.headers.get(_POLICY)
            if self._body.get("stream"):
                await self._relay(opened)
                return None
            answer = await self._answer(await opened.body())
        if self.commit is not None:
            await self.commit()
        return answer

    # -- the request --------------------------------------------------------------------------

    async def _prepare(self, raw: bytes) -> bytes:
        """The body for the upstream; the agent's own bytes where nothing has to be changed."""
        call, served = self._call, self._served
        # Before it is noted: the record embeds the request as JSON unchecked, and must not get what is none.
        body = self._body = read_request(raw)
        call.request, call.versions = raw, served.versions
        try:
            if served.changes:
                body = self._body = served.applied(body, self._dialect.api, translated=self._translated)
                call.request, call.original = encode(body), raw
            if self.moderation is not None:
                # Noted only masked: what the function took out is not in the record either.
                call.request, call.original = b"null", None
                before, body = body, await moderated(body, self.moderation)
                call.request = encode(body) if body != before or served.changes else raw
                self._body = body
            self._screens = self.enforcement is not None
            # Of chat the text is passed on at once: a call begins a new part of the stream, and cannot be mistaken.
            whole = self._translated or self._dialect.api != "chat"
            self._holding = self._screens and whole and has_tools(body)
            model = body.get("model")
            call.model = model if isinstance(model, str) else None
            sent = request_as(body, self._dialect.api, self._spoken.api)
            if self._spoken.api != "chat":
                return encode(sent) if self._translated else call.request
            self._asked = ExtraFields(sent)
            asking = chat.asking(sent, tokens=self._upstream.tokens, usage=self._upstream.usage)
        except MISSHAPEN as exception:
            raise _invalid(f"it is not a {self._dialect.api} request ({exception!r})") from exception
        if asking == body:
            return call.request
        added = asking.keys() - body.keys()
        if sent is body and added == {"stream_options"}:
            # Added to the agent's own bytes: to write a long conversation anew costs more than all else here.
            return (
                call.request.rstrip()[:-1] + b',"stream_options":' + encode(asking["stream_options"]) + b"}"
            )
        return encode(asking)

    # -- a refusal ----------------------------------------------------------------------------

    def _refusal(self, opened: UpstreamAnswer, body: bytes) -> UpstreamFailed:
        """The upstream's error, in the agent's dialect."""
        self._call.bulk = len(body)
        fault = fault_of(opened.status, own_key=self._upstream.key is not None)
        message, kind = _error_words(_json(body))
        # A redirect or a 204 does not answer a model call; sent on, it would confuse the agent's client.
        status = opened.status if opened.status >= 400 else 502
        text = message or body[:_EXCERPT].decode(errors="replace") or "nothing"
        own = body if message is not None and not self._translated and status == opened.status else None
        return UpstreamFailed(
            fault,
            kind or "upstream_error",
            text if own is not None else f"the upstream answered {opened.status}: {text}",
            status=status,
            body=own,
            headers=self._headers,
        )

    # -- a plain answer -----------------------------------------------------------------------

    async def _answer(self, raw: bytes) -> Response:
        call = self._call
        call.bulk = len(raw)
        try:
            answer = decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as exception:
            raise _malformed(f"is not JSON ({exception})", raw) from exception
        if not self._spoken.accepts(answer):
            message, _ = _error_words(answer)
            raise _malformed(f"is not a {self._spoken.api} answer" + (f": {message}" if message else ""), raw)
        try:
            body = self._noted(raw, answer)  # before the translation, in which token ids are lost
            if self._translated:
                answer = answer_as(answer, self._dialect.api, self._spoken.api, self._body)
                body = encode(answer)
            if self._screens:
                kept = await self._screened(answer)
                answer, body = (kept, encode(kept)) if kept is not None else (answer, body)
            call.response, call.usage = body, self._dialect.usage(answer)
        except MISSHAPEN as exception:
            raise _malformed(f"cannot be read ({exception!r})", raw) from exception
        return Response(200, body, headers=self._headers)

    async def _screened(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """The answer without calls that the permissions deny; None where there are none."""
        assert self.enforcement is not None
        refused = await refused_calls(answer, self._dialect.api, self.enforcement)
        if not refused:
            return None
        ends = self.enforcement.rules.when_denied == "end"
        self._call.refused = [call.note for call in refused]
        if ends:
            self._call.failure = Failure(Fault.AGENT, PermissionDenied.__name__, refused[0].decision.sentence)
        return screened(answer, self._dialect.api, refused, ends=ends)

    def _noted(self, raw: bytes, answer: dict[str, Any]) -> bytes:
        """Note token ids and the policy's version, and take out what was not asked for."""
        call = self._call
        call.policy_version = chat.version_of(answer) or call.policy_version
        self._check_version()
        if self._asked is None:
            return raw
        call.samples = chat.samples(answer)
        return self._asked.stripped(raw, answer, streamed=False) or raw

    def _check_version(self) -> None:
        """The policy that answered is the one that the run was assigned.

        Raises:
            UpstreamFailed: it is another, or does not say.
        """
        assigned, answering = self._served.policy_version, self._call.policy_version
        if assigned is not None and answering != assigned:
            version = "no policy version" if answering is None else f"policy version {answering!r}"
            raise UpstreamFailed(
                Fault.MODEL,
                "version_mismatch",
                f"the run was assigned policy version {assigned!r}, and the upstream answered with {version}. "
                "Load the assigned weights, or release a Bundle that names those which are loaded.",
            )

    # -- a streamed answer --------------------------------------------------------------------

    async def _relay(self, opened: UpstreamAnswer) -> None:
        if "event-stream" not in opened.content_type:
            raw = await opened.body()
            message, _ = _error_words(_json(raw))
            raise _malformed(f"is not an event stream{f': {message}' if message else ''}", raw)
        if self._translated:
            self._upstream_reader, self._writer = (
                self._spoken.stream_reader(),
                self._dialect.stream_writer(self._body),
            )
        reader, writer = self._upstream_reader, self._writer
        splitter, done = Splitter(), False
        try:
            async for chunk in opened.chunks():
                self._call.bulk += len(chunk)
                done = await self._pass(splitter.feed(chunk)) or done
            done = await self._pass(splitter.end()) or done
            if not reader.finished and not (done and reader.response() is not None):
                raise UpstreamFailed(
                    Fault.MODEL, "upstream_cut", "the upstream's stream ended before its answer was complete"
                )
            if writer is not None:
                last: list[bytes] = []
                ending = self._place(last)
                ending += self._written(writer.end())
                ending += [DONE] if self._dialect.api == "chat" else []
                self.complete = self.commit is None and not self._holding
                await self._write(last)
        finally:
            self._note_stream()
        if self._holding:
            await self._screen_stream()
        if self.commit is not None:
            await self.commit()
        if self.commit is not None or self._holding:
            self.complete = True
            await self._write(self._held)
        if self.stream is not None:
            await self.stream.close()

    async def _screen_stream(self) -> None:
        """Put an answer without its denied calls in the place of what was held back."""
        answer = self._call.response
        try:
            kept = await self._screened(answer) if isinstance(answer, dict) else {}
            if kept is None:
                return
            part = part_of(kept, self._dialect.api, sent=self._sent)
        except MISSHAPEN as exception:
            raise _malformed(f"cannot be held to permissions ({exception!r})", b"") from exception
        self._call.response = kept
        writer = self._dialect.stream_writer(self._body)
        events = writer.write(part) + writer.end()
        if self._dialect.api == "chat" and not ExtraFields(self._body).usage:
            events = [event for event in events if event["choices"]]
        self._held = [self._dialect.frame(event) for event in events]
        self._held += [DONE] if self._dialect.api == "chat" else []

    async def _pass(self, events: list[bytes]) -> bool:
        """Pass whole events on; True if the last of the stream is among them."""
        outgoing: list[bytes] = []
        done = False
        try:
            for event in events:
                if self._chunk is not None and (passed := self._chunk.read(event)) is not None:
                    self._unlike = 0
                    self._place(outgoing).append(passed)
                    continue
                data = data_of(event)
                if data and data != b"[DONE]":
                    marked = self._asked is not None and self._asked.in_stream(event)
                    unchanged = self._writer is None and not marked
                    self._pass_one(event, data, outgoing, unchanged)
                else:
                    done = done or bool(data)
                    if self._writer is None:
                        self._place(outgoing).append(event)
        finally:  # what came before a broken event is the agent's all the same
            # Before it is sent: the agent may be gone when that returns.
            whole = self._writer is None and self.reader.finished
            self.complete = whole and self.commit is None and not self._holding
            await self._write(outgoing)
        return done

    def _pass_one(self, event: bytes, data: bytes, outgoing: list[bytes], unchanged: bool) -> None:
        """Read one event and add the agent's form of it to `outgoing`.

        Args:
            unchanged: that is the event itself.
        """
        value = _json(data)
        if not isinstance(value, dict):
            raise _malformed("has an event that is not JSON", data)
        reader, first_event = self._upstream_reader, self._call.first is None
        if first_event:
            self._call.begun()
        try:
            if self._screens and not self._holding and calls_tools(value):
                if self._translated or self._dialect.api != "chat":
                    raise _malformed("calls a tool that the request does not have", data)
                self._holding, self._sent = True, answer_text(reader.response())
            if self._holding and calls_as_before(value):
                raise _malformed("calls a function as no tool, which cannot be held to permissions", data)
            reader.read(value)
            if self.commit is not None or self._holding:
                outgoing = self._place(outgoing)
            if unchanged:
                passed = [event]
            elif reader.failure is None or self._writer is None:
                passed = self._translated_event(event, value)
            else:
                passed = []
            outgoing += passed
            if self._unlike and len(passed) == 1 and self._writer is None:
                self._learn(event, passed[0], value)
        except MISSHAPEN as exception:
            raise _malformed(f"has an event that cannot be read ({exception!r})", data) from exception
        if reader.failure is not None:
            self.error_sent = self._writer is None
            message, kind = _error_words({"error": reader.failure})
            raise UpstreamFailed(Fault.MODEL, kind or "upstream_error", message or "the upstream failed")
        if reader.policy_version:
            self._call.policy_version = reader.policy_version
        if first_event:
            try:
                self._check_version()
            except UpstreamFailed:
                outgoing.clear()  # nothing of another policy's answer is passed on
                raise

    def _learn(self, event: bytes, passed: bytes, value: dict[str, Any]) -> None:
        """Take the form of the next chunks from one that was read, as long as none has had it."""
        if isinstance(self._upstream_reader, chat.ChatStreamReader):
            self._chunk = TextChunk.of(event, passed, value, self._upstream_reader) or self._chunk
            self._unlike -= self._chunk is not None

    def _translated_event(self, event: bytes, value: dict[str, Any]) -> list[bytes]:
        """An event as the agent gets it: its own bytes, unless it is translated or something is taken out."""
        if self._writer is not None:
            assert isinstance(self._upstream_reader, chat.ChatStreamReader | messages.MessagesStreamReader)
            pieces = self._upstream_reader.pieces(value)
            return [line for piece in pieces for line in self._written(self._writer.write(piece))]
        assert self._asked is not None  # or the event would be unchanged
        stripped = self._asked.stripped(event, value, streamed=True)
        if stripped is None or stripped is event:
            return [] if stripped is None else [event]
        return [b"data: " + stripped + b"\n\n"]

    def _written(self, events: list[Json]) -> list[bytes]:
        """Events of a translated stream as bytes, noted as told to the agent."""
        for event in events:
            self.reader.read(event)
        if self._dialect.api == "chat" and not ExtraFields(self._body).usage:
            events = [event for event in events if event["choices"]]
        return [self._dialect.frame(event) for event in events]

    def _place(self, outgoing: list[bytes]) -> list[bytes]:
        """The list for the next events: held back from where the answer ends, if it must be recorded first."""
        if self._holding:
            return self._held
        return outgoing if self.commit is None or not self._upstream_reader.finished else self._held

    async def _write(self, events: list[bytes]) -> None:
        if not events:
            return
        if self.stream is not None:
            await self.stream.write(b"".join(events))
            return
        headers = {**self._headers, "cache-control": "no-cache", "x-accel-buffering": "no"}
        self.stream = await self._request.stream(200, headers=headers, first=b"".join(events))

    def _note_stream(self) -> None:
        """Put the answer together, whole or cut, for the record."""
        call = self._call
        try:
            answer = self._upstream_reader.response()
            if self._asked is not None and answer is not None:
                call.samples = chat.samples(answer)  # first: the next line takes the ids out
                self._asked.take_out(answer, streamed=False)
            call.response = self.reader.response() if self._translated else answer
            call.usage = self._dialect.usage(call.response) if isinstance(call.response, dict) else None
        except MISSHAPEN as exception:
            raise _malformed(f"cannot be put together ({exception!r})", b"") from exception


def read_request(raw: bytes) -> dict[str, Any]:
    """The agent's body as JSON.

    Raises:
        UpstreamFailed: it is not a JSON object, is nested too deeply, or has too many values.
    """
    try:
        refuse_too_many(raw, VALUES)
        body = decode(raw)
    except TooManyValues as exception:
        raise _invalid(str(exception), 413) from exception
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exception:
        raise _invalid(f"the body is not JSON ({exception})") from exception
    if not isinstance(body, dict):
        raise _invalid(f"the body is a {type(body).__name__}, not an object")
    if raw.count(b"[") + raw.count(b"{") > NESTING and deeper(raw, NESTING):
        raise _invalid(f"the body is nested deeper than {NESTING} levels")
    return body


def _invalid(why: str, status: int = 400) -> UpstreamFailed:
    return UpstreamFailed(Fault.AGENT, "invalid_request", f"the request cannot be used: {why}", status=status)


def _malformed(why: str, raw: bytes) -> UpstreamFailed:
    excerpt = raw[:_EXCERPT].decode(errors="replace")
    return UpstreamFailed(
        Fault.MODEL, "malformed_answer", f"the upstream's answer {why}. It began: {excerpt}"
    )


def _json(raw: bytes) -> Json:
    try:
        return decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _error_words(answer: Json) -> tuple[str | None, str | None]:
    """Message and kind of an error object, whoever wrote it; (None, None) of anything else."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, str):
        return error, None
    if not isinstance(error, dict):
        return None, None
    kind = error.get("code") or error.get("type")
    message = error.get("message")
    return str(message) if message is not None else str(error), None if kind is None else str(kind)


def query_of(request: Request) -> str:
    """The query string, `?` included; empty if there is none."""
    return f"?{request.query_string}" if request.query_string else ""
