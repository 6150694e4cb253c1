"""A gateway on a real socket between a real client and a scripted upstream, for the tests of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
from hypothesis import strategies as st

from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.serve import Access, Role, Server, running
from whet.serve.gateway import Gateway, Upstream

TOKEN = "whet-token-of-the-tests"
HELLO = [{"role": "user", "content": "hello"}]
AGENT: dict[str, Any] = {"api_key": "sk-agent", "max_retries": 0}
NO_TLS = False
"""All of it is plain HTTP on loopback; loading certificates would take longer than the calls."""


def http(method: str, url: str, **given: Any) -> httpx2.Response:
    """One plain request."""
    with httpx2.Client(verify=NO_TLS, timeout=90) as client:
        return client.request(method, url, **given)


def pieces(text: str, cuts: st.DataObject) -> list[str]:
    """A text cut where hypothesis says."""
    at = sorted(cuts.draw(st.sets(st.integers(0, len(text)), max_size=4)) | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(at)]


@dataclass
class World:
    """What a test of the gateway looks at."""

    url: str
    gateway: Gateway
    store: Store

    def openai(self, run: str = "r1") -> openai.OpenAI:
        """OpenAI's own client with only its base URL changed."""
        client = openai.DefaultHttpxClient(verify=NO_TLS)
        return openai.OpenAI(base_url=f"{self.base(run)}/v1", http_client=client, **AGENT)

    def async_openai(self, run: str = "r1") -> openai.AsyncOpenAI:
        client = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
        return openai.AsyncOpenAI(base_url=f"{self.base(run)}/v1", http_client=client, **AGENT)

    def anthropic(self, run: str = "r1") -> anthropic.Anthropic:
        """Anthropic's own client with only its base URL changed."""
        client = anthropic.DefaultHttpxClient(verify=NO_TLS)
        return anthropic.Anthropic(base_url=self.base(run), http_client=client, **AGENT)

    def async_anthropic(self, run: str = "r1") -> anthropic.AsyncAnthropic:
        client = anthropic.DefaultAsyncHttpxClient(verify=NO_TLS)
        return anthropic.AsyncAnthropic(base_url=self.base(run), http_client=client, **AGENT)

    def base(self, run: str = "r1") -> str:
        """The base URL of a run, for what can set nothing else."""
        return f"{self.url}/run/{run}/{TOKEN}"

    def settle(self) -> None:
        """Wait until every call is durable or lost: `Recorder.flush` knows only of those it has been handed."""
        recorder, deadline = self.gateway.recorder, time.monotonic() + 90
        # A call is handed to the recorder when the agent has its answer already.
        while recorder.recorded + recorder.lost < self.gateway.calls and time.monotonic() < deadline:
            recorder.flush(0.05)
            time.sleep(0.002)

    def calls(self, run: str = "r1") -> list[dict[str, Any]]:
        """What the record holds of a run, read back from the store, in order."""
        self.settle()
        return [msgspec.json.decode(span.body) for span in self.store.spans.run(run)]

    def call(self, run: str = "r1") -> dict[str, Any]:
        """The one call that the record holds of a run."""
        (found,) = self.calls(run)
        return found


@contextmanager
def world(
    upstream: ScriptedServer | Mapping[str, Upstream],
    *,
    store: Store | None = None,
    options: Mapping[str, Any] | None = None,
    **given: Any,
) -> Iterator[World]:
    """Serve a gateway while the block runs.

    Args:
        upstream: a scripted server, or named Upstreams.
        options: fields of the Upstream made for a scripted server.
        given: further arguments of the Gateway.
    """
    if isinstance(upstream, ScriptedServer):
        upstream = {"default": Upstream(url=upstream.base_url, **(options or {}))}
    kept = store or Store(":memory:")
    try:
        gateway = Gateway(kept, upstream, **given)
        server = Server(Access({Role.ADMIN: TOKEN}), [gateway])
        with running(server) as url:
            yield World(url, gateway, kept)
    finally:
        if store is None:
            kept.close()
