"""The server's shell over real sockets: routing, errors, limits, streaming, draining."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from whet.errors import InputError, NotFoundError
from whet.serve import Access, HttpRoute, Request, RequestLimits, Response, Role, Server, answer, running
from whet.serve.http import Router, deeper

TOKEN = "a-token-of-this-test"


class Pair(msgspec.Struct):
    left: int
    right: list[str]


class Echo:
    """A part that answers with what it was given."""

    def __init__(self) -> None:
        self.entered = self.left = False
        self.gone = threading.Event()
        self.asked = threading.Event()

    @property
    def routes(self) -> Sequence[HttpRoute]:
        def route(method: str, path: str, handler: Any, **given: Any) -> HttpRoute:
            return HttpRoute(
                method=method, path=path, handler=handler, role=given.pop("role", Role.READ), **given
            )

        return [
            route("GET", "/echo/{name}", self.name),
            route("POST", "/pair", self.pair, role=Role.WRITE, request=Pair),
            route("POST", "/size", self.size, role=Role.WRITE),
            route("GET", "/stream", self.stream),
            route("GET", "/endless", self.endless),
            route("GET", "/broken", self.broken),
            route("GET", "/headers", self.headers),
            route("GET", "/bug", self.bug),
            route("GET", "/missing", self.missing),
            route("GET", "/poll", self.poll),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        self.entered = True
        yield
        self.left = True

    async def name(self, request: Request) -> Response:
        return answer({"name": request.params["name"], "query": dict(request.query)})

    async def pair(self, request: Request) -> Response:
        return answer(await request.json(Pair))

    async def size(self, request: Request) -> Response:
        return answer(len(await request.body()))

    async def stream(self, request: Request) -> None:
        stream = await request.stream()
        await stream.write(b"data: one\n\n")
        await stream.write(b"data: two\n\n")
        await stream.close()

    async def endless(self, request: Request) -> None:
        stream = await request.stream()
        await stream.write(b"data: begun\n\n")
        await request.disconnected()
        self.gone.set()

    async def broken(self, request: Request) -> None:
        stream = await request.stream()
        await stream.write(b"data: begun\n\n")
        raise ZeroDivisionError("in the middle")

    async def headers(self, request: Request) -> Response:
        return answer(
            None, x_upstream="a\r\nx-slipped-in: b", x_octets=b"caf\xe9".decode("utf-8", "surrogateescape")
        )

    async def bug(self, request: Request) -> Response:
        raise ZeroDivisionError("a bug of the test")

    async def missing(self, request: Request) -> Response:
        raise NotFoundError("there is no such thing")

    async def poll(self, request: Request) -> Response:
        self.asked.set()
        await request.closing.wait()
        return answer("drained")


def access(**limits: Any) -> Access:
    return Access({Role.ADMIN: TOKEN}, limits=RequestLimits(**limits))


def client(url: str, **given: Any) -> httpx2.Client:
    return httpx2.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=90, **given)


def test_a_path_parameter_is_decoded_once_and_may_hold_a_slash() -> None:
    with running(Server(access(), [Echo()])) as url, client(url) as http:
        assert http.get("/echo/a%2Fb%2520c?x=1&x=2").json() == {"name": "a/b%20c", "query": {"x": "2"}}


def test_a_body_of_the_wrong_shape_says_where() -> None:
    with running(Server(access(), [Echo()])) as url, client(url) as http:
        assert http.post("/pair", json={"left": 1, "right": ["a"]}).json() == {"left": 1, "right": ["a"]}
        for body in (b'{"left": 1, "right": [2]}', b"{", b"\xff", b""):
            refused = http.post("/pair", content=body)
            assert refused.status_code == 400
            assert refused.json()["error"]["type"] == "invalid_request"
        assert (
            "right[0]" in http.post("/pair", content=b'{"left": 1, "right": [2]}').json()["error"]["message"]
        )


def test_unknown_paths_and_methods_are_refused_with_what_is_known() -> None:
    with running(Server(access(), [Echo()])) as url, client(url) as http:
        assert http.get("/nowhere").status_code == 404
        refused = http.get("/pair")
        assert refused.status_code == 405
        assert refused.headers["allow"] == "POST"


def test_errors_become_json_and_a_bug_does_not_show_its_text(capfd: pytest.CaptureFixture[str]) -> None:
    server = Server(access(), [Echo()])
    with running(server) as url, client(url) as http:
        assert http.get("/missing").json() == {
            "error": {"type": "not_found", "message": "there is no such thing"}
        }
        failed = http.get("/bug")
        assert failed.status_code == 500
        assert "a bug of the test" not in failed.text
        assert http.get("/healthz").json() == {"status": "ok"}
    assert server.bugs == 1
    assert "a bug of the test" in capfd.readouterr().err


def test_a_body_over_the_limit_is_refused_by_length_and_when_chunked() -> None:
    with running(Server(access(body=1000), [Echo()])) as url, client(url) as http:
        assert http.post("/size", content=b"x" * 1000).json() == 1000
        assert http.post("/size", content=b"x" * 1001).status_code == 413

        def chunks() -> Any:
            for _ in range(30):
                yield b"x" * 100

        assert http.post("/size", content=chunks()).status_code == 413


def test_a_large_body_arrives_whole() -> None:
    with running(Server(access(), [Echo()])) as url, client(url) as http:
        assert http.post("/size", content=b"x" * 3_000_001).json() == 3_000_001


def test_a_stream_arrives_in_pieces_and_its_end_is_noticed_when_the_client_leaves() -> None:
    echo = Echo()
    with running(Server(access(), [echo])) as url, client(url) as http:
        with http.stream("GET", "/stream") as answered:
            assert b"".join(answered.iter_bytes()) == b"data: one\n\ndata: two\n\n"
        with http.stream("GET", "/endless") as answered:
            assert next(answered.iter_bytes()) == b"data: begun\n\n"
        assert echo.gone.wait(90)


def test_a_stream_that_breaks_off_does_not_look_whole() -> None:
    with (
        running(Server(access(), [Echo()])) as url,
        client(url) as http,
        http.stream("GET", "/broken") as answered,
        pytest.raises(httpx2.RemoteProtocolError),
    ):
        b"".join(answered.iter_bytes())


def test_a_header_of_an_answer_is_one_header_and_its_octets_are_those_that_came() -> None:
    with running(Server(access(), [Echo()])) as url, client(url) as http:
        answered = http.get("/headers")
        assert "x-slipped-in" not in answered.headers
        assert (b"x-octets", b"caf\xe9") in [(name.lower(), value) for name, value in answered.headers.raw]


def raw_client(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=90)


def request_bytes(body: bytes, *headers: str, version: str = "1.1") -> bytes:
    head = (f"POST /size HTTP/{version}", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}", *headers)
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def test_requests_that_are_sent_together_are_answered_in_their_order() -> None:
    server = Server(access(), [Echo()])
    with running(server), raw_client(server) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"".join(request_bytes(b"x" * length) for length in range(60)))
        for length in range(60):
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = http.client.parse_headers(answers)
            assert int(answers.read(int(headers["content-length"]))) == length
            assert headers["date"].endswith("GMT")


def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on() -> None:
    server = Server(access(body=1000), [Echo()])
    with running(server), raw_client(server) as connection, connection.makefile("rb") as answers:
        head, _, body = request_bytes(b"xyz", "Expect: 100-continue").partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        assert answers.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert answers.readline() == b"\r\n"
        connection.sendall(body)
        assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
    with running(server), raw_client(server) as connection, connection.makefile("rb") as answers:
        too_much, _, _ = request_bytes(b"x" * 1001, "Expect: 100-continue").partition(b"\r\n\r\n")
        connection.sendall(too_much + b"\r\n\r\n")
        assert answers.readline().startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("version", "asked", "kept"),
    [
        ("1.1", (), True),
        ("1.1", ("Connection: close",), False),
        ("1.0", (), False),
        ("1.0", ("Connection: keep-alive",), True),
    ],
)
def test_a_connection_is_kept_as_its_client_asks(version: str, asked: tuple[str, ...], kept: bool) -> None:
    server = Server(access(), [Echo()])
    with running(server), raw_client(server) as connection, connection.makefile("rb") as answers:
        for number in (1, 2):
            connection.sendall(request_bytes(b"x" * number, *asked, version=version))
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            assert answers.read(int(http.client.parse_headers(answers)["content-length"])) == b"%d" % number
            if not kept:
                assert answers.read() == b""
                break


def test_stopping_answers_what_waits_and_leaves_the_lifespan() -> None:
    echo = Echo()
    answered: list[Any] = []
    with running(Server(access(), [echo])) as url:
        assert echo.entered

        def poll() -> None:
            with client(url) as http:
                answered.append(http.get("/poll").json())

        waiting = threading.Thread(target=poll)
        waiting.start()
        assert echo.asked.wait(90)
        assert not echo.left
    waiting.join(90)
    assert answered == ["drained"]
    assert echo.left


def test_two_servers_do_not_share_a_port() -> None:
    with running(Server(access(), [])) as url:
        port = urlsplit(url).port
        assert port
        with pytest.raises(InputError, match=str(port)), running(Server(access(), [], port=port)):
            pass


def test_two_parts_with_one_route_are_refused() -> None:
    with pytest.raises(InputError, match="/echo"):
        Server(access(), [Echo(), Echo()])


def test_many_requests_on_one_connection() -> None:
    with running(Server(access(), [Echo()])) as url:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=90)
        for number in range(50):
            connection.request("POST", "/size", b"x" * number, {"authorization": f"Bearer {TOKEN}"})
            assert msgspec.json.decode(connection.getresponse().read()) == number
        connection.close()


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        (b"1", 0),
        (b"[]", 1),
        (b"[[],[],{}]", 2),
        (b'{"a":[{"b":[1]}]}', 4),
        (b'["]]]][[[["]', 1),
        (b'["\\"[[[\\\\"]', 1),
        (b"[" * 90 + b"]" * 90, 90),
    ],
)
def test_the_depth_of_json_is_known_exactly(body: bytes, depth: int) -> None:
    assert not deeper(body, depth)
    if depth:
        assert deeper(body, depth - 1)


def test_a_pattern_does_not_take_an_empty_segment() -> None:
    async def handler(request: Request) -> Response:
        return answer(None)

    router = Router([HttpRoute(method="GET", path="/a/{id}/b", handler=handler)])
    assert router.find("GET", "/a/x/b")[1] == {"id": "x"}
    with pytest.raises(NotFoundError):
        router.find("GET", "/a//b")


def test_a_client_that_sends_half_a_request_does_not_hold_up_the_others() -> None:
    server = Server(access(), [Echo()])
    with (
        running(server) as url,
        socket.create_connection(("127.0.0.1", server.port)) as half,
        client(url) as http,
    ):
        head = f"POST /size HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        half.sendall(f"{head}Content-Length: 9\r\n\r\nabc".encode())
        assert http.get("/healthz").status_code == 200
