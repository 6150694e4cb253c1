"""The gateway's HTTP client against real sockets and against any cut of what a server sends."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.server.gateway.failures import CallFailed
from whet.server.gateway.http import HEAD, Broken, Connection
from whet.server.gateway.upstream import Upstream, Upstreams

HELLO = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-One: a\r\nx-one: b\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n"
)


class Server:
    """Answers each request with bytes that were prepared, and notes what it was asked."""

    def __init__(self, *answers: bytes, hang_up: bool = False, context: ssl.SSLContext | None = None) -> None:
        self.answers, self.hang_up, self.context = list(answers), hang_up, context
        self.asked: list[bytes] = []
        self.connections = 0
        self.tasks: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.asked.append(head + await reader.readexactly(int(length or b"0")))
                writer.write(self.answers.pop(0))
                await writer.drain()
                if self.hang_up:
                    break
        except (asyncio.IncompleteReadError, IndexError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def run(self, use: Callable[[int], Awaitable[Any]]) -> Any:
        """What `use` makes of it, given its port."""

        async def main() -> Any:
            server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.context)
            try:
                return await use(server.sockets[0].getsockname()[1])
            finally:
                server.close()
                await ended(self.tasks)

        return asyncio.run(main())


async def ended(tasks: list[asyncio.Task[Any]]) -> None:
    """End what still serves, and let the loop close its sockets."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)


async def ask(upstreams: Upstreams, url: str, body: bytes = b"{}", **options: Any) -> tuple[int, bytes]:
    opened = await upstreams.open(
        Upstream(url=url, **options), "POST", "/chat?a=b c", headers={"x-sent": "1"}, body=body
    )
    whole = False
    try:
        found = await opened.body()
        whole = True
    finally:
        opened.close(whole=whole)
    return opened.status, found


def asked(server: Server, times: int = 1, **options: Any) -> list[tuple[int, bytes]]:
    """The answers to some requests, one after the other."""

    async def use(port: int) -> list[tuple[int, bytes]]:
        upstreams = Upstreams()
        try:
            return [await ask(upstreams, f"http://127.0.0.1:{port}/v1", **options) for _ in range(times)]
        finally:
            await upstreams.close()

    found: list[tuple[int, bytes]] = server.run(use)
    return found


def test_a_request_is_what_the_upstream_gets_and_its_connection_is_kept() -> None:
    server = Server(HELLO, CHUNKED, HELLO)
    assert asked(server, 3) == [(200, b"hello")] * 3
    assert server.connections == 1
    first = server.asked[0]
    assert first.startswith(b"POST /v1/chat?a=b%20c HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"x-sent: 1\r\ncontent-length: 2\r\n\r\n{}" in first


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello", id="closes"),
        pytest.param(b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", id="of old"),
        pytest.param(HELLO + b"HTTP/1.1 200 OK\r\n", id="says more than one answer"),
    ],
)
def test_a_connection_that_cannot_be_used_again_is_not(answer: bytes) -> None:
    server = Server(answer, HELLO)
    assert asked(server, 2) == [(200, b"hello")] * 2
    assert server.connections == 2


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    server = Server(b"HTTP/1.1 200 OK\r\n\r\nhello", hang_up=True)
    assert asked(server) == [(200, b"hello")]


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * HEAD + b"y" * 20,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello, you\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"",
    ],
)
def test_what_is_no_whole_answer_is_the_upstreams_failure(answer: bytes) -> None:
    with pytest.raises(CallFailed) as caught:
        asked(Server(answer, hang_up=True))
    assert caught.value.kind in ("upstream_failed", "upstream_cut")


@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=8), st.sampled_from([HELLO, CHUNKED]))
def test_an_answer_reads_the_same_however_it_is_cut(places: list[int], answer: bytes) -> None:
    async def read() -> tuple[int, dict[str, str], bytes, bool]:
        connection = Connection()
        cuts = [0, *sorted(places), len(answer)]
        for start, stop in pairwise(cuts):
            connection.data_received(answer[start:stop])
        await connection.head(0)
        found = b""
        while piece := await connection.read(0):
            found += piece
        return connection.status, connection.headers, found, connection.rest()

    status, headers, found, again = asyncio.run(read())
    assert (status, found, again) == (200, b"hello", True)
    assert headers.get("x-one", "a, b") == "a, b"


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"])
)
def test_no_bytes_break_the_reader(data: bytes, head: bytes) -> None:
    async def read() -> None:
        connection = Connection()
        connection.data_received(head + data)
        connection.connection_lost(None)
        with suppress(Broken):  # and nothing else
            await connection.head(0)
            while await connection.read(0):
                pass

    asyncio.run(read())


def test_an_answer_that_is_compressed_although_it_was_not_asked_for_is_unpacked() -> None:
    packed = gzip.compress(b"hello" * 1000)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    assert asked(Server(head + packed)) == [(200, b"hello" * 1000)]
    for broken in (head.replace(b"gzip", b"br") + packed, head + b"x" * len(packed)):
        with pytest.raises(CallFailed) as caught:
            asked(Server(broken))
        assert caught.value.kind == "malformed_answer"


def test_a_proxy_of_the_environment_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(HELLO)

    async def use(port: int) -> tuple[int, bytes]:
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        upstreams = Upstreams()
        try:
            return await ask(upstreams, "http://models.example/v1")
        finally:
            await upstreams.close()

    assert server.run(use) == (200, b"hello")
    assert server.asked[0].startswith(
        b"POST http://models.example/v1/chat?a=b%20c HTTP/1.1\r\nhost: models.example\r\n"
    )
    assert b"proxy-authorization: Basic bWU6c2VjcmV0" in server.asked[0]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_https_is_verified_directly_and_through_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *words.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Server(HELLO, HELLO, HELLO, context=context)

    tunnels: list[asyncio.Task[Any]] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tunnels.append(task)
        head = await reader.readuntil(b"\r\n\r\n")
        host, _, port = head.split()[1].partition(b":")
        assert host == b"models.example"
        behind = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        try:
            await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer), return_exceptions=True)
        finally:
            behind[1].transport.abort()
            writer.transport.abort()

    async def use(port: int) -> None:
        upstreams = Upstreams()
        with pytest.raises(CallFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(upstreams, f"https://localhost:{port}/v1")
        await upstreams.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        upstreams = Upstreams()
        assert await ask(upstreams, f"https://localhost:{port}/v1") == (200, b"hello")
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(CallFailed, match=r"models\.example"):  # the tunnel stands, the name is another's
            await ask(upstreams, f"https://models.example:{port}/v1")
        await upstreams.close()
        proxy.close()
        await ended(tunnels)

    server.run(use)
