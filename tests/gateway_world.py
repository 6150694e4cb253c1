"""A gateway on a real socket between a real client and a scripted upstream, for the tests of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import msgspec
import openai

from whet.fakes import ScriptedServer
from whet.server import Access, Role, Server, running
from whet.server.gateway import Gateway, Upstream
from whet.store import Store

TOKEN = "whet-token-of-the-tests"
HELLO = [{"role": "user", "content": "hello"}]


@dataclass
class World:
    """What a test of the gateway looks at."""

    url: str
    gateway: Gateway
    store: Store

    def openai(self, run: str = "r1", **given: Any) -> openai.OpenAI:
        """OpenAI's own client with only its base URL changed."""
        base = f"{self.url}/run/{run}/{TOKEN}/v1"
        return openai.OpenAI(**{"base_url": base, "api_key": "sk-agent", "max_retries": 0, **given})

    def async_openai(self, run: str = "r1", **given: Any) -> openai.AsyncOpenAI:
        base = f"{self.url}/run/{run}/{TOKEN}/v1"
        return openai.AsyncOpenAI(**{"base_url": base, "api_key": "sk-agent", "max_retries": 0, **given})

    def anthropic(self, run: str = "r1", **given: Any) -> anthropic.Anthropic:
        """Anthropic's own client with only its base URL changed."""
        base = f"{self.url}/run/{run}/{TOKEN}"
        return anthropic.Anthropic(**{"base_url": base, "api_key": "sk-agent", "max_retries": 0, **given})

    def async_anthropic(self, run: str = "r1", **given: Any) -> anthropic.AsyncAnthropic:
        base = f"{self.url}/run/{run}/{TOKEN}"
        return anthropic.AsyncAnthropic(
            **{"base_url": base, "api_key": "sk-agent", "max_retries": 0, **given}
        )

    def calls(self, run: str = "r1") -> list[dict[str, Any]]:
        """What the record holds of a run, read back from the store, in order."""
        assert self.gateway.recorder.flush(), "the recorder did not become idle"
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
