"""The server: ingest, queue, gateway and feedback over HTTP, on one store and one socket.

The names are looked up when first used (PEP 562): a worker, and a command that replays runs, take only `worker/` from
here, and would pay for a server's parser, client and certificates otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import from_home

if TYPE_CHECKING:
    from .app import Server, run, running, standard
    from .auth import Access, RequestLimits, make_tokens, new_tokens, token_file, tokens_of
    from .http import HttpRoute, Refused, Request, Response, Role, ServerPart, Stream, answer

_HOME = {
    "Access": "auth",
    "HttpRoute": "http",
    "Refused": "http",
    "Request": "http",
    "RequestLimits": "auth",
    "Response": "http",
    "Role": "http",
    "Server": "app",
    "ServerPart": "http",
    "Stream": "http",
    "answer": "http",
    "make_tokens": "auth",
    "new_tokens": "auth",
    "run": "app",
    "running": "app",
    "standard": "app",
    "token_file": "auth",
    "tokens_of": "auth",
}
"""Public name → module that defines it."""

__all__ = [
    "Access",
    "HttpRoute",
    "Refused",
    "Request",
    "RequestLimits",
    "Response",
    "Role",
    "Server",
    "ServerPart",
    "Stream",
    "answer",
    "make_tokens",
    "new_tokens",
    "run",
    "running",
    "standard",
    "token_file",
    "tokens_of",
]

if not TYPE_CHECKING:  # to a type checker this would make every misspelt name valid

    def __getattr__(name: str) -> object:
        return from_home(__name__, _HOME, name)
