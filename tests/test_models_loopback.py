"""A server on this machine is spoken to without an HTTP library: every framing that HTTP/1.1 has, and none else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from whet.models.loopback import Answer, Loopback
from whet.models.wire import Refusal

Talk = Callable[[Loopback], Awaitable[None]]


def talk(script: list[bytes], use: Talk, *, seconds: float = 5.0, hang_up: bool = False) -> list[int]:
    """Let `use` speak with a server that answers its requests from a script; the connection of each request.

    Args:
        hang_up: close after each answer.
    """
    asked: list[int] = []
    connections = 0
    left = list(script)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        mine = connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                asked.append(mine)
                writer.write(left.pop(0))
                await writer.drain()
                if hang_up:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        near = Loopback(f"http://127.0.0.1:{port}/v1", {}, seconds=seconds)
        try:
            await use(near)
        finally:
            await near.aclose()
            server.close()
            await server.wait_closed()

    asyncio.run(run())
    return asked


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


@pytest.mark.parametrize(
    "said",
    [
        PLAIN,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nfi\r\n2\r\nne\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + PLAIN,
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nfine",
    ],
    ids=["length", "chunks", "after a hint", "of 1.0, kept alive"],
)
def test_an_answer_is_read_to_its_end_and_its_connection_used_again(said: bytes) -> None:
    async def use(near: Loopback) -> None:
        for _ in range(2):
            answer = await near.post("/chat", b"{}")
            assert (answer.status, answer.body) == (200, b"fine")

    assert talk([said, said], use) == [1, 1]


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\n\r\nfine",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfine",
    ],
    ids=["ended by its end", "closed"],
)
def test_a_connection_that_its_server_closes_is_not_used_again(said: bytes) -> None:
    async def use(near: Loopback) -> None:
        for _ in range(2):
            assert (await near.post("/chat", b"{}")).body == b"fine"

    assert talk([said, said], use, hang_up=True) == [1, 2]


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced() -> None:
    async def use(near: Loopback) -> None:
        await near.post("/chat", b"{}")
        (held,) = next(iter(near._idle.values()))
        await asyncio.wait_for(held.reader.read(), 5)  # the end, which the server says without a word before
        assert (await near.post("/chat", b"{}")).body == b"fine"

    assert talk([PLAIN, PLAIN], use, hang_up=True) == [1, 2]


@pytest.mark.parametrize(
    ("said", "message", "billed"),
    [
        (b"", "no answer before its end", False),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "it began with 'SSH-2.0-OpenSSH'", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine", "5 bytes too early", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nfine", "invalid literal", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nfine", "a length of -4", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfine\r\n", "longer than it said", True),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nfine",
            "encoded as gzip",
            True,
        ),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", "LimitOverrunError", True),
    ],
    ids=[
        "nothing",
        "another protocol",
        "cut",
        "no length",
        "less than nothing",
        "chunk",
        "gzip",
        "endless head",
    ],
)
def test_what_is_no_answer_is_refused_and_billed_where_it_may_cost(
    said: bytes, message: str, billed: bool
) -> None:
    async def use(near: Loopback) -> None:
        with pytest.raises(Refusal, match=message) as caught:
            await near.post("/chat", b"{}")
        assert caught.value.billed is billed
        assert caught.value.retryable

    talk([said], use, hang_up=True)


def test_silence_is_given_up_and_its_connection_with_it() -> None:
    async def use(near: Loopback) -> None:
        with pytest.raises(Refusal, match="no answer in time") as caught:
            await near.post("/chat", b"{}")
        assert caught.value.billed
        assert (await near.post("/chat", b"{}")).body == b"fine"

    assert talk([b"", PLAIN], use, seconds=0.3) == [1, 2]


def test_an_answer_that_nobody_waits_for_any_more_is_not_the_next_ones() -> None:
    async def use(near: Loopback) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await near.post("/chat", b"{}")
        answer: Answer = await near.post("/chat", b"{}")
        assert answer.body == b"fine"

    assert talk([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nb", PLAIN], use) == [1, 2]


def test_answers_of_a_megabyte_come_whole() -> None:
    body = bytes(range(256)) * 4096
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def use(near: Loopback) -> None:
        assert (await near.post("/chat", b"x" * 300_000)).body == body

    talk([said], use)
