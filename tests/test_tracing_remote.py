"""What a traced program sends to a server: to that server alone, and never given up without saying so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from whet.record.store import Store
from whet.record.store.group_commit import Writes
from whet.record.tracing import remote
from whet.record.tracing.remote import Remote
from whet.types import Feedback


@contextmanager
def server(status: int, **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """Its URL, and the token of every request that it was sent."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            tokens.append(self.headers["authorization"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}", tokens
    finally:
        http.shutdown()
        http.server_close()


def two_thumbs(tmp_path: Path) -> Writes:
    with Store(tmp_path / "runs.db") as store:
        batch = store.batch()
        batch.add_feedback(Feedback(run="r", value=1.0), Feedback(run="r", value=-1.0))
        return batch.writes


def test_what_is_recorded_goes_to_the_server_and_past_any_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with server(500) as (proxy, seen), server(200) as (url, tokens):
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert Remote(url, "secret").send(two_thumbs(tmp_path)) == 0
    assert (tokens, seen) == (["Bearer secret"], [])


def test_a_redirect_is_not_followed_with_the_token(tmp_path: Path) -> None:
    with server(200) as (elsewhere, seen), server(302, Location=elsewhere) as (url, tokens):
        assert Remote(url, "secret").send(two_thumbs(tmp_path)) == 2
    assert (len(tokens), seen) == (3, [])


def test_a_server_that_is_busy_for_too_long_is_an_error_and_its_rows_are_not_tried_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(remote, "PAUSES", (0.01, 0.0))
    with server(503) as (url, tokens), pytest.raises(OSError, match="503"):
        Remote(url, None).send(two_thumbs(tmp_path))
    assert tokens == [None, None]
