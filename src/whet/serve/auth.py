"""Authorisation: bearer tokens with roles, Host and Origin checks, and limits.

Tokens are on by default, on loopback too: another user of the machine, or a page in the user's
own browser, can reach a loopback port.  They are made at the first start and lie beside the
store in `FILE.tokens`, mode 0600, one for each role.  Comparison takes the same time for a wrong
token as for a right one.  What a recorded program gets is a token of its run alone
(`run_tokens.py`).  There are no users, sessions or cookies here.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import InputError
from ..record.store.redaction.redact import WHET_TOKEN
from .http import BODY_LIMIT, NESTING, HttpRoute, Refused, Request, Role
from .run_tokens import RunTokens

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
WHETS = re.compile(WHET_TOKEN)
_WILDCARD = frozenset({"0.0.0.0", "::", ""})
_REMEMBERED = 1_000
"""Host headers whose verdict is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Limits on one request and on one token."""

    body: int = BODY_LIMIT
    """Bytes of a body, compressed or not."""
    spans: int = 50_000
    """Spans or log records in one export."""
    nesting: int = NESTING
    """Levels of lists and objects in JSON, of values in OTLP."""
    rate: float = 20_000.0
    """Requests a second of one token, averaged over a second."""
    wait: float = 60.0
    """Seconds that a long poll may last."""


def token_file(store: str | os.PathLike[str]) -> Path:
    """The file beside a store that holds its tokens."""
    return Path(os.fspath(store) + ".tokens")


def tokens_of(store: str | os.PathLike[str]) -> dict[Role, str]:
    """The tokens kept beside a store, {} if there are none yet.

    Raises:
        InputError: the file can be read by others, or is not a token file.
    """
    path = token_file(store)
    try:
        mode = path.stat().st_mode
        body = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as exception:
        raise InputError(f"{path} cannot be read: {exception.strerror}") from exception
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise InputError(
            f"{path} can be read by other users (mode {stat.S_IMODE(mode):04o}). Delete it, so that new "
            f"tokens are made, or if nobody has seen it: chmod 600 {path}"
        )
    try:
        tokens = msgspec.json.decode(body, type=dict[str, str])
        return {Role[name.upper()]: _usable(token) for name, token in tokens.items()}
    except (msgspec.MsgspecError, KeyError, InputError) as exception:
        raise InputError(
            f"{path} is not a token file ({exception}). Delete it, so that one is made."
        ) from exception


def new_tokens() -> dict[Role, str]:
    """A fresh token for each role, 256 bits each."""
    return {role: f"whet-{role.name.lower()}-{secrets.token_urlsafe(32)}" for role in Role}


def make_tokens(store: str | os.PathLike[str]) -> dict[Role, str]:
    """Make a token for each role and keep them beside the store, readable by this user alone."""
    tokens = new_tokens()
    path = token_file(store)
    body = msgspec.json.format(
        msgspec.json.encode({role.name.lower(): token for role, token in tokens.items()})
    )
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        # Private from its first byte: a chmod afterwards leaves a moment in which others can open it.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(body + b"\n")
        os.replace(draft, path)
    except OSError as exception:
        raise InputError(f"{path} cannot be written: {exception.strerror}") from exception
    return tokens


def _usable(token: str) -> str:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("a token must be one or more printable ASCII characters without spaces")
    return token


class Access:
    """Decides on each request before its handler sees it.

    Args:
        tokens: role → token.
        hosts: names that the Host header may have beside the loopback names; any IP address is
            allowed where the server listens on all of them.
        limits: sizes and rates.

    Raises:
        InputError: no token, or one that cannot stand in a header.
    """

    def __init__(
        self, tokens: Mapping[Role, str], *, hosts: Sequence[str] = (), limits: RequestLimits | None = None
    ) -> None:
        if not tokens:
            raise InputError("a server needs a token; leave --token out to have one made")
        self.limits = limits or RequestLimits()
        # The highest role first, so that one token given for two roles has the greater.
        self._tokens = [
            (role, role.name.lower(), _usable(tokens[role]).encode()) for role in sorted(tokens, reverse=True)
        ]
        self.secrets = tuple(token for token in tokens.values() if not WHETS.fullmatch(token))
        """The tokens that somebody chose, which no rule of a Redactor knows by their form."""
        # Of the highest one: a new token for it is the end of all runs' tokens.
        self.runs = RunTokens(tokens[max(tokens)])
        self._any_address = any(host in _WILDCARD for host in hosts)
        self._hosts = LOOPBACK | {_bracketed(host).lower() for host in hosts if host not in _WILDCARD}
        if self._any_address:
            self._hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        self._known: dict[str, bool] = {}
        self._buckets: dict[str | None, tuple[float, float]] = {}

    def check(self, request: Request, route: HttpRoute) -> None:
        """Let the request pass, with its role and limits set on it.

        Raises:
            Refused: 401 without a known token, 403 for a role, host, origin or peer that is not allowed,
                429 for more than the rate.
        """
        # Before the token: a page in the user's own browser can reach a loopback port.
        self.check_host(request)
        if route.local_only and not is_loopback(request.peer):
            raise Refused(403, "local_only", f"{route.path} is served to this machine only")
        if not self._identify(request, route) and route.role is not None:
            raise Refused(
                401,
                "unauthorized",
                "no token, or not one of this server's. Send `Authorization: Bearer TOKEN`; "
                "the tokens lie beside the store (whet token), or were given by --token; one of a run expires.",
                headers={"www-authenticate": "Bearer"},
            )
        if request.grant is not None and not route.of_run and route.role is not None:
            raise Refused(
                403,
                "forbidden",
                f"{route.method} {route.path} is not for the token of a run; send one with the role "
                f"{route.role.name.lower()}",
            )
        if route.role is not None and (request.role is None or request.role < route.role):
            raise Refused(
                403,
                "forbidden",
                f"{route.method} {route.path} needs the role {route.role.name.lower()}; "
                f"this token has {request.token}",
            )
        self._count(request.token)
        request.body_limit = self.limits.body if route.body_limit is None else route.body_limit
        request.nesting = self.limits.nesting

    def check_host(self, request: Request) -> None:
        """Refuse a Host or Origin that is not ours: a foreign page whose name was pointed at us.

        Raises:
            Refused: 403.
        """
        host = request.header("host") or ""
        allowed = self._known.get(host)
        if allowed is None:
            allowed = self._allows(host)
            # Bounded, because a client may make up Host headers without end.
            if len(self._known) < _REMEMBERED:
                self._known[host] = allowed
        if not allowed:
            raise Refused(
                403,
                "wrong_host",
                f"the Host header says {host[:100]!r}; start the server with --allow-host to allow it",
            )
        origin = request.header("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "wrong_origin", f"requests from pages of {origin[:100]!r} are refused")
        # A page's picture or script sends no Origin, but every browser says where it was asked for.
        if request.header("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refused(403, "wrong_origin", "requests from pages of another origin are refused")

    def _allows(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        if not port.isdigit():
            name = host
        if name.lower() in self._hosts:
            return True
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _identify(self, request: Request, route: HttpRoute) -> bool:
        """Set role, token and credential from the first place that holds a token of ours."""
        shown = request.header("authorization")
        if (
            shown is not None
            and shown[:7].lower() == "bearer "
            and self._knows(request, shown[7:], "authorization")
        ):
            return True
        for header in ("x-whet-token", "x-api-key"):
            shown = request.header(header)
            if shown is not None and self._knows(request, shown, header):
                return True
        name = route.token_param
        return name is not None and self._knows(request, request.params.get(name, ""), "path")

    def _knows(self, request: Request, shown: str, credential: str) -> bool:
        # Bytes: compare_digest raises for a str that is not ASCII.
        shown_token = shown.strip().encode("latin-1", "replace")
        identity = None
        for role, name, token in self._tokens:  # every one is compared, so that timing tells nothing
            if hmac.compare_digest(shown_token, token) and identity is None:
                identity = (role, name)
        if identity is None:
            request.grant = self.runs.grant(shown.strip())
            if request.grant is None:
                return False
            identity = (Role.WRITE, f"run {request.grant.run}")
        request.role, request.token = identity
        request.credential = credential
        return True

    def _count(self, token: str | None) -> None:
        """Take one from the token's bucket, which holds a second's worth."""
        rate, now = self.limits.rate, time.monotonic()
        # Under None lie all requests without a token: they share one bucket.
        level, since = self._buckets.get(token, (rate, now))
        level = min(rate, level + (now - since) * rate)
        if level < 1.0:
            self._buckets[token] = (level, now)
            raise Refused(
                429,
                "too_many_requests",
                f"more than {rate:g} requests a second with one token; send batches, or wait",
                headers={"retry-after": "1"},
            )
        if token not in self._buckets and len(self._buckets) > _REMEMBERED:
            self._buckets.clear()  # each run's token has a bucket: what is forgotten is a second's count
        self._buckets[token] = (level - 1.0, now)


def is_loopback(address: str) -> bool:
    """True if a peer's address is this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
