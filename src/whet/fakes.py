"""ScriptedServer, the public fake of an OpenAI-compatible endpoint: real HTTP on loopback, from a script.

For tests of anything that speaks to a model endpoint: answers, tool calls, token ids and every
way of failing, each on cue.  It binds 127.0.0.1 only, understands nothing and serves no one else.
`whet.models.ScriptedModel` is the same without HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from .errors import ModelError
from .models.base import Completion, Request
from .models.scripted import Answer, Script, as_completion, pieces
from .types import Json, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One scripted HTTP answer: what is said, or how it goes wrong."""

    answer: Answer = ""
    """Text, tool calls or a Completion; its `tokens` are sent where the request asks for them."""
    status: int = 200
    """Any other status is sent with an error object instead of the answer."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, such as `{"Retry-After": "1"}`."""
    body: bytes | None = None
    """Sent as it is in place of the answer: malformed JSON, for instance."""
    delay: float = 0.0
    """Seconds before the answer."""
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

    Serves POST /v1/chat/completions (plain and streamed) and GET /v1/models.

    Args:
        script: as `ScriptedModel` takes it, whose answers may also be Replies.
        models: names that /v1/models lists; a chat with any other is a 404.
        api_key: if given, other bearer tokens are a 401 that quotes the wrong key, as real ones do.
    """

    def __init__(
        self,
        script: str | Sequence[Answer | Reply] | Mapping[str, Any] | Callable[[Request], Any] = "",
        *,
        models: Sequence[str] = ("scripted",),
        api_key: str | None = None,
    ) -> None:
        self.models = tuple(models)
        self.requests: list[Received] = []
        self._script: Script[Answer | Reply] = Script(script)
        self._key = api_key
        self._http: _HTTP | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What OpenAIModel takes as base_url.

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
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._http is not None
        assert self._thread is not None
        self._http.shutdown()
        self._thread.join()
        self._http.hang_up()
        self._http.server_close()
        self._http = self._thread = None

    def reply(self, received: Received) -> tuple[Request, Reply]:
        """The script's reply to a chat request."""
        settings = {name: value for name, value in received.body.items() if name not in _OWN}
        request = Request.of(received.body["messages"], settings)
        try:
            found = asyncio.run(self._script.next(request))
        except Exception as error:
            # 400, not 500: a client that retries would hide that the script ran out or is broken.
            what = str(error) if isinstance(error, ModelError) else f"the script raised {error!r}"
            return request, Reply(status=400, body=_error(what))
        return request, found if isinstance(found, Reply) else Reply(answer=found)

    def refusal(self, received: Received) -> Reply | None:
        """The error for a request that no script is asked about, None if it is in order."""
        token = received.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is not None and token != self._key:
            return Reply(status=401, body=_error(f"Incorrect API key provided: {token}"))
        if received.method == "POST" and received.path == "/v1/chat/completions":
            if not isinstance(received.body, dict) or not received.body.get("messages"):
                return Reply(status=400, body=_error("a chat request needs messages"))
            if received.body.get("model") not in self.models:
                return Reply(status=404, body=_error(f"no model {received.body.get('model')!r}"))
            return None
        if received.method == "GET" and received.path == "/v1/models":
            return None
        return Reply(status=404, body=_error(f"no {received.method} {received.path} here"))


_OWN = ("model", "messages", "stream", "stream_options", "return_token_ids", "logprobs")


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
        """End kept-alive connections, whose threads `server_close` waits for."""
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
            content = msgspec.json.decode(body) if body else None
        except msgspec.DecodeError:
            content = None
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(method, self.path, headers, content)
        owner = self.server.owner
        owner.requests.append(received)
        refusal = owner.refusal(received)
        if refusal is not None:
            self._send(refusal)
        elif method == "GET":
            names = [{"id": name, "object": "model"} for name in owner.models]
            self._send(Reply(body=msgspec.json.encode({"object": "list", "data": names})))
        else:
            self._chat(received)

    def _chat(self, received: Received) -> None:
        request, reply = self.server.owner.reply(received)
        if reply.delay:
            time.sleep(reply.delay)
        if reply.status != 200 or reply.body is not None:
            body = _error(f"scripted status {reply.status}") if reply.body is None else reply.body
            self._send(reply, body)
            return
        if isinstance(reply.answer, Exception):
            self._send(Reply(status=500), _error(str(reply.answer)))
            return
        model = received.body["model"]
        completion = as_completion(reply.answer, request, model)
        asked = bool(received.body.get("return_token_ids"))
        if received.body.get("stream"):
            self._stream(reply, _events(completion, model, asked))
        else:
            self._send(reply, msgspec.json.encode(_answer(completion, model, asked)))

    def _head(self, reply: Reply, **headers: str) -> None:
        self.send_response(reply.status)
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send(self, reply: Reply, body: bytes | None = None) -> None:
        body = (reply.body or b"") if body is None else body
        self._head(reply, Content_Type="application/json", Content_Length=str(len(body)))
        if reply.cut_after is not None:
            body, self.close_connection = body[: reply.cut_after], True
        self.wfile.write(body)

    def _stream(self, reply: Reply, events: list[Json]) -> None:
        self._head(reply, Content_Type="text/event-stream", Transfer_Encoding="chunked")
        whole = reply.cut_after is None
        lines = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]
        for line in lines if whole else lines[: reply.cut_after]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not whole


def _calls(completion: Completion) -> list[Json]:
    return [
        {
            "index": number,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(completion.tool_calls)
    ]


def _usage(completion: Completion) -> Json:
    usage = completion.usage
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.output_tokens}


def _logprobs(tokens: Tokens) -> Json:
    return {"content": [{"token": "", "logprob": value} for value in tokens.logprobs]}


def _answer(completion: Completion, model: str, asked: bool) -> Json:
    message: dict[str, Json] = {"role": "assistant", "content": completion.text}
    if completion.tool_calls:
        message = {"role": "assistant", "content": None, "tool_calls": _calls(completion)}
    choice: dict[str, Json] = {"index": 0, "message": message, "finish_reason": completion.finish or "stop"}
    answer: dict[str, Json] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "model": model,
        "choices": [choice],
        "usage": _usage(completion),
    }
    if asked and completion.tokens is not None:
        choice["token_ids"] = list(completion.tokens.output_ids)
        choice["logprobs"] = _logprobs(completion.tokens)
        answer["prompt_token_ids"] = list(completion.tokens.prompt_ids)
    return answer


def _events(completion: Completion, model: str, asked: bool) -> list[Json]:
    """The answer as a server streams it: text by words, each call's arguments in two pieces, usage last."""
    deltas: list[dict[str, Json]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(completion.text)]
    for call in _calls(completion):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        first = {**call, "function": {**call["function"], "arguments": arguments[:half]}}
        rest = {"index": call["index"], "function": {"arguments": arguments[half:]}}
        deltas += [{"tool_calls": [first]}, {"tool_calls": [rest]}]
    common = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "model": model}
    events: list[Json] = [{**common, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if asked and completion.tokens is not None:
        events[0]["prompt_token_ids"] = list(completion.tokens.prompt_ids)
        # All ids ride on the second event: how they are cut up is the server's choice.
        carrier = events[min(1, len(events) - 1)]["choices"][0]
        carrier["token_ids"] = list(completion.tokens.output_ids)
        carrier["logprobs"] = _logprobs(completion.tokens)
    last = {"index": 0, "delta": {}, "finish_reason": completion.finish or "stop"}
    events.append({**common, "choices": [last]})
    events.append({**common, "choices": [], "usage": _usage(completion)})
    return events
