"""ScriptedServer, the public fake of a model endpoint: real HTTP on loopback, from a script.

For tests of anything that speaks to a model endpoint: answers, tool calls, token ids and every
way of failing, each on cue, in any of the three model APIs.  It binds 127.0.0.1 only, understands
nothing and serves no one else.
"""

from __future__ import annotations

import asyncio
import inspect
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from typing import Any

import msgspec

from ...errors import ModelError
from ...escapes import read_json
from ...types import Json
from ..base import Completion, ModelRequest
from ..scripted import Answer, Script, as_completion
from . import answers
from .weights import ScriptedSGLangWeights, ScriptedWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted HTTP answer: what is said, or how it goes wrong."""

    answer: Answer = ""
    """Text, tool calls or a Completion; its `tokens` are sent where a chat asks for them, and their
    policy version, if they have one, as a policy server tags its answers."""
    samples: Sequence[Answer] = ()
    """Further choices of a chat that asks for `n` of them.  A script that gives bare answers is asked
    once for each."""
    status: int = 200
    """Any other status is sent with an error object instead of the answer."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, such as `{"Retry-After": "1"}`."""
    body: bytes | None = None
    """Sent as it is in place of the answer: malformed JSON, for instance."""
    delay: float = 0.0
    """Seconds before the answer."""
    event_delay: float = 0.0
    """Seconds before each event of a stream."""
    events: Iterable[bytes] | None = None
    """Sent as they are in place of a stream's events, each asked for when the one before it is sent."""
    cut_after: int | None = None
    """Send this many stream events (or, unstreamed, bytes of the body) and drop the connection."""


@dataclass(frozen=True, slots=True)
class Received:
    """One HTTP request that the server was sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Json


class ScriptedServer:
    """An OpenAI-compatible endpoint that answers from a script.

    >>> with ScriptedServer(["Paris", Reply(status=429, headers={"Retry-After": "1"})]) as server:
    ...     model = OpenAIModel(server.base_url, "scripted")

    Serves POST /v1/chat/completions, /v1/responses and /v1/messages (plain and streamed), /v1/completions
    (plain) and GET /v1/models; vLLM's routes for weights and sleep, if it speaks `vllm`; and SGLang's /generate,
    of token ids, and its routes for weights, if it speaks `sglang`. What was loaded is in `weights`, and adapters
    can be asked for by their names.

    `aborted` counts the answers whose client hung up before they were complete.

    Args:
        script: as `ScriptedModel` takes it, whose answers may also be Replies.
        models: names that /v1/models lists; a chat with any other is a 404.
        by_model: model → a script of its own, for an endpoint whose models answer differently; listed as well.
        api_key: if given, other keys are a 401 that quotes the wrong one, as real ones do.
        speaks: of `chat`, `responses`, `messages`, `completions`, `vllm` and `sglang`; a path of any other is a 404.
    """

    def __init__(
        self,
        script: str | Sequence[Answer | Reply] | Mapping[str, Any] | Callable[[ModelRequest], Any] = "",
        *,
        models: Sequence[str] = ("scripted",),
        by_model: Mapping[str, Callable[[ModelRequest], Any]] | None = None,
        api_key: str | None = None,
        speaks: Sequence[str] = ("chat", "responses", "messages", "completions"),
    ) -> None:
        self._by_model: dict[str, Script[Answer | Reply]] = {
            name: Script(own) for name, own in (by_model or {}).items()
        }
        self.models = (*models, *self._by_model)
        self.aborted = 0
        self.requests: list[Received] = []
        self._script: Script[Answer | Reply] = Script(script)
        self._key = api_key
        self.weights: ScriptedWeights | None = None
        if "vllm" in speaks or "sglang" in speaks:
            self.weights = ScriptedSGLangWeights() if "sglang" in speaks else ScriptedWeights()
        self._apis = {path: api for path, api in _APIS.items() if api in speaks}
        self._http: _HTTP | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The base_url of an OpenAIModel that asks this server.

        Raises:
            RuntimeError: the server is not running.
        """
        if self._http is None:
            raise RuntimeError(
                "ScriptedServer is not running. Use it as `with ScriptedServer(...) as server:`."
            )
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._http = _HTTP(("127.0.0.1", 0), _Handler)
        self._http.owner = self
        # A poll every 20 ms: `shutdown` waits for the next one, which by default takes up to half a second.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._http is not None
        assert self._thread is not None
        # In this order: no connection is accepted any more when the open ones are hung up on.
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()
        self._http = self._thread = None

    def api(self, path: str) -> str:
        """The API that a path belongs to, "" if none that is served here."""
        return self._apis.get(path.partition("?")[0], "")

    def reply(self, received: Received) -> tuple[Reply, list[Completion]]:
        """The script's reply to a request, and the answers that it stands for, unless it is a failure."""
        api = self.api(received.path)
        model = received.body["model"] if api != "sglang" else self.models[0]
        try:
            request = answers.request(api, received.body)
            scripted = self._next(request, model)
            reply = scripted if isinstance(scripted, Reply) else Reply(answer=scripted)
            if isinstance(reply.answer, Exception):
                return Reply(status=500, body=_error(str(reply.answer))), []
            samples = [reply.answer, *reply.samples]
            while not isinstance(scripted, Reply) and len(samples) < (received.body.get("n") or 1):
                further = self._next(request, model)
                samples.append(further.answer if isinstance(further, Reply) else further)
            return reply, [as_completion(sample, request, model) for sample in samples]
        except Exception as error:
            # 400, not 500: a client that retries would hide that the script ran out or is broken.
            problem = str(error) if isinstance(error, ModelError) else f"the script raised {error!r}"
            return Reply(status=400, body=_error(problem)), []

    def _next(self, request: ModelRequest, model: str) -> Answer | Reply:
        """The script's next answer; an event loop costs more than most, and only some need one."""
        scripted: Any = self._by_model.get(model, self._script).take(request)
        if not inspect.isawaitable(scripted):
            # A request has a thread of its own here, and no event loop that an async script could run in.
            return scripted  # type: ignore[no-any-return]

        async def come() -> Any:
            return await scripted

        return asyncio.run(come())  # type: ignore[no-any-return]

    def refusal(self, received: Received) -> Reply | None:
        """The error for a request that no script is asked about, None if it is in order."""
        bearer = received.headers.get("authorization", "").removeprefix("Bearer ")
        token = received.headers.get("x-api-key", bearer)
        if self._key is not None and token != self._key:
            return Reply(status=401, body=_error(f"Incorrect API key provided: {token}"))
        api = self.api(received.path)
        if received.method == "POST" and api:
            field = {"responses": "input", "completions": "prompt", "sglang": "input_ids"}.get(
                api, "messages"
            )
            if not isinstance(received.body, dict) or not received.body.get(field):
                return Reply(status=400, body=_error(f"a {api} request needs {field}"))
            named = received.body.get("lora_path" if api == "sglang" else "model")
            adapters = self.weights.adapters if self.weights else ()
            if named not in (*self.models, *adapters, *((None,) if api == "sglang" else ())):
                return Reply(status=404, body=_error(f"no model {named!r}"))
            if self.weights and self.weights.asleep:
                return Reply(status=503, body=_error("the engine is asleep"))
            return None
        if received.method == "POST" and self.weights is not None:
            reply = self.weights.post(received.path, received.body)
            if reply is not None:
                status, answer = reply
                return Reply(status=status, body=b"" if answer is None else msgspec.json.encode(answer))
        if received.method == "GET" and received.path == "/v1/models":
            return None
        if received.method == "GET" and isinstance(self.weights, ScriptedSGLangWeights):
            about = self.weights.get(received.path, self.models[0])
            if about is not None:
                return Reply(body=msgspec.json.encode(about))
        return Reply(status=404, body=_error(f"no {received.method} {received.path} here"))


_APIS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/completions": "completions",
    "/generate": "sglang",
}


def _error(message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": "scripted"}})


class _HTTP(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: ScriptedServer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End kept-alive connections: `server_close` waits for no daemon, and their threads would go on."""
        for connection in tuple(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # the client was quicker

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is its own business; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # With Nagle's algorithm the first event of a stream took 44 ms through the gateway, without 2.8 (053).
    disable_nagle_algorithm = True
    server: _HTTP

    def log_message(self, *_: Any) -> None:
        """Nothing: `ScriptedServer.requests` is the log."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            content = read_json(msgspec.json.decode, body) if body else None
        except msgspec.DecodeError:
            content = None
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(method, self.path, headers, content)
        owner = self.server.owner
        # Before the refusal: what a test counts includes the requests that were refused.
        owner.requests.append(received)
        refusal = owner.refusal(received)
        if refusal is not None:
            self._send(refusal)
        elif method == "GET":
            names = [{"id": name, "object": "model"} for name in owner.models]
            self._send(Reply(body=msgspec.json.encode({"object": "list", "data": names})))
        else:
            self._model(received)

    def _model(self, received: Received) -> None:
        owner = self.server.owner
        api = owner.api(received.path)
        reply, completions = owner.reply(received)
        if reply.delay and self._gone(reply.delay):
            return
        if reply.status != 200 or reply.body is not None:
            body = _error(f"scripted status {reply.status}") if reply.body is None else reply.body
            self._send(reply, body)
        elif received.body.get("stream") and api not in ("completions", "sglang"):
            self._stream(reply, answers.events(api, completions, received.body))
        else:
            self._send(reply, msgspec.json.encode(answers.answer(api, completions, received.body)))

    def _gone(self, seconds: float) -> bool:
        """Wait; True as soon as the client has hung up."""
        # A socket that is readable while an answer is written has been closed by its client.
        readable, _, _ = select.select([self.connection], [], [], seconds)
        try:
            hung_up = bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            hung_up = True
        if hung_up:
            self.server.owner.aborted += 1
            self.close_connection = True
        return hung_up

    def _head(self, reply: Reply, **headers: str) -> None:
        self.send_response(reply.status)
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send(self, reply: Reply, body: bytes | None = None) -> None:
        body = (reply.body or b"") if body is None else body
        self._head(reply, Content_Type="application/json", Content_Length=str(len(body)))
        if reply.cut_after is not None:
            # The head has promised the whole length, so the client sees a cut and not a short answer.
            body, self.close_connection = body[: reply.cut_after], True
        self.wfile.write(body)

    def _stream(self, reply: Reply, events: list[bytes]) -> None:
        self._head(reply, Content_Type="text/event-stream", Transfer_Encoding="chunked")
        complete = reply.cut_after is None
        for line in islice(events if reply.events is None else reply.events, reply.cut_after):
            if self._gone(reply.event_delay):
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        if complete:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not complete
