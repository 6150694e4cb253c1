"""The server: ingest, queue, gateway and feedback over HTTP, on one store and one socket."""

from .app import Server, run, running, standard
from .asgi import Part, Refused, Request, Response, Role, Route, Stream, answer
from .auth import Access, Limits, make_tokens, new_tokens, token_file, tokens_of

__all__ = [
    "Access",
    "Limits",
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
    "new_tokens",
    "run",
    "running",
    "standard",
    "token_file",
    "tokens_of",
]
