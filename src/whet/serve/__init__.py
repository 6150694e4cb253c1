"""The server: ingest, queue, gateway and feedback over HTTP, on one store and one socket."""

from .app import Server, run, running, standard
from .auth import Access, RequestLimits, make_tokens, new_tokens, token_file, tokens_of
from .http import HttpRoute, Refused, Request, Response, Role, ServerPart, Stream, answer

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
