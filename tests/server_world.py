"""What the tests of the server share: a server over a store in memory or a file, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.serve import Access, RequestLimits, Role, Server, running, standard
from whet.serve.gateway import Upstream

TOKENS = {role: f"whet-test-{role.name.lower()}-0123456789" for role in Role}


def bearer(role: Role | None) -> dict[str, str]:
    return {} if role is None else {"authorization": f"Bearer {TOKENS[role]}"}


class World:
    """A running server, its store, and a client with the role admin."""

    def __init__(self, server: Server, store: Store, url: str, http: httpx2.Client) -> None:
        self.server, self.store, self.url, self.http = server, store, url, http

    def post(self, path: str, body: Any, role: Role = Role.WRITE) -> Any:
        """The answer's JSON; the answer must be a success."""
        answered = self.http.post(path, json=body, headers=bearer(role))
        assert answered.status_code == 200, answered.text
        return answered.json()

    def get(self, path: str, role: Role = Role.READ) -> Any:
        answered = self.http.get(path, headers=bearer(role))
        assert answered.status_code == 200, answered.text
        return answered.json()


@contextmanager
def world(
    path: str | Path = ":memory:",
    *,
    open_legacy: bool = False,
    grace: float = 2.0,
    upstreams: Any = None,
    readers: int = 0,
    **limits: Any,
) -> Iterator[World]:
    given = RequestLimits(**limits)
    with Store(path) as store:
        access = Access(TOKENS, limits=given)
        server = Server(
            access,
            standard(
                store,
                given,
                open_legacy=open_legacy,
                grace=grace,
                upstreams=upstreams,
                secrets=access.secrets,
                readers=readers,
            ),
        )
        with running(server) as url, httpx2.Client(base_url=url, timeout=90) as http:
            yield World(server, store, url, http)
        assert server.bugs == 0


@contextmanager
def before_a_model(path: Path) -> Iterator[World]:
    """A server whose gateway leads to a model that always says "fine", and which reads runs at once."""
    with (
        ScriptedServer("fine", speaks=("chat",)) as upstream,
        world(path, grace=0.0, upstreams={"default": Upstream(url=upstream.base_url)}) as here,
    ):
        yield here
