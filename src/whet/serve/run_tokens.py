"""Tokens of one run: signed, short-lived, and good for what that run records and nothing else.

A program that is recorded gets one of these in its environment and its base URL, where every library that it uses can
see it, and not a token of the whole server.  It reaches its run `RUN` and the runs inside it, `RUN.NAME`, which is how
`whet.run()` names its own there.

Nothing is stored: a token carries its run and its end under a signature whose key is made of the server's own tokens,
so it outlives a restart.  Renewing and revoking are kept in memory: after a restart a renewed token needs renewing
again, and a revoked one that has not expired is good until it has.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import math
import os
import struct
import time
from collections import OrderedDict
from dataclasses import dataclass

from ..errors import InputError
from ..record.store.rollouts import LONGEST
from ..record.tracing.record import INSIDE

PREFIX = "whet-run-"
SECONDS = 3_600.0
"""Seconds that a token is good for unless another time is asked for."""
_MAC = 16
_HEAD = struct.Struct("!d4s")
"""Unix time of the end, and four random bytes that tell two tokens of one run apart."""
_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class RunGrant:
    """The right that a run's token gives."""

    run: str
    until: float
    """Unix time in seconds."""

    def reaches(self, run: str) -> bool:
        """True of the run itself and of those inside it."""
        return run == self.run or run.startswith(self.run + INSIDE)


class RunTokens:
    """Makes and reads them.

    Args:
        secret: a token of the server; another secret knows none of these tokens.
    """

    def __init__(self, secret: str) -> None:
        self._key = hmac.digest(secret.encode(), b"whet: tokens of runs", "sha256")
        self._read: OrderedDict[str, RunGrant] = OrderedDict()
        """Tokens whose signature was found right."""
        self._until: OrderedDict[str, float] = OrderedDict()
        """Tokens that were renewed or revoked, and their new end."""

    def mint(self, run: str, seconds: float = SECONDS) -> str:
        """A token for a run, good for `seconds`.

        Raises:
            InputError: the id cannot be one of a run.
        """
        if not run.strip() or len(run) > LONGEST or not run.isprintable():
            raise InputError(f"the run id is {run[:40]!r}: it must be 1 to {LONGEST} printable characters")
        signed = _HEAD.pack(time.time() + seconds, os.urandom(4)) + run.encode()
        return _encoded(self._mac(signed) + signed)

    def grant(self, token: str) -> RunGrant | None:
        """The right that this token gives now; None if it is not one, or its time is over."""
        grant = self._grant(token)
        if grant is None:
            return None
        until = self._until.get(token, grant.until)
        return None if until <= time.time() else RunGrant(grant.run, until)

    def run_of(self, token: str) -> str | None:
        """The run that this token was made for, also if its time is over; None if it is not one of these."""
        grant = self._grant(token)
        return None if grant is None else grant.run

    def renew(self, token: str, seconds: float = SECONDS) -> RunGrant | None:
        """Let a token be good for `seconds` from now, also one that has expired; None if it is not one of these."""
        self._ends(token, time.time() + seconds)
        return self.grant(token)

    def revoke(self, token: str) -> None:
        """Refuse a token from now on."""
        self._ends(token, -math.inf)

    def _ends(self, token: str, until: float) -> None:
        if self._grant(token) is None:
            return
        self._until[token] = until
        self._until.move_to_end(token)
        while len(self._until) > _REMEMBERED:
            self._until.popitem(last=False)

    def _grant(self, token: str) -> RunGrant | None:
        if not token.startswith(PREFIX):
            return None
        grant = self._read.get(token)
        if grant is None:
            grant = self._verified(token)
            if grant is not None:
                self._read[token] = grant
                if len(self._read) > _REMEMBERED:
                    self._read.popitem(last=False)
        return grant

    def _verified(self, token: str) -> RunGrant | None:
        text = token.removeprefix(PREFIX)
        try:
            body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            signed = body[_MAC:]
            # Compared as text too: base64 has several spellings of some bytes, and one that was revoked has one name.
            if not hmac.compare_digest(self._mac(signed), body[:_MAC]) or _encoded(body) != token:
                return None
            until, _ = _HEAD.unpack_from(signed)
            return RunGrant(signed[_HEAD.size :].decode(), until)
        except (binascii.Error, ValueError, struct.error):
            return None

    def _mac(self, signed: bytes) -> bytes:
        return hmac.digest(self._key, signed, hashlib.sha256)[:_MAC]


def _encoded(body: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(body).rstrip(b"=").decode()
