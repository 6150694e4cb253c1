"""The server: ingest, queue, gateway and feedback over HTTP, on one store and one socket."""

from .app import Mount, Server, run, running
from .asgi import Part, Refused, Request, Response, Role, Route, Stream, answer
from .auth import Access, Limits, make_tokens, token_file, tokens_of

__all__ = [
    "Access",
    "Limits",
    "Mount",
    "Part",
    "Refused",
    "Request",
    "Response",
    "Role",
    "Route",
    "Server",
    "Stream",
    "answer",
    "make_tokens",
    "run",
    "running",
    "token_file",
    "tokens_of",
]
