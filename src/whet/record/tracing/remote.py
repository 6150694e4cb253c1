"""Where a traced program records when the store is a server's: over HTTP, as `whet run --url` sets it up.

It sends trajectories and feedback to the server that `WHET_URL` names, with the token in `WHET_TOKEN`.  A
send to a server that is unreachable or overloaded is retried for some seconds; what it refuses is not sent again.
It runs on threads of its own, and reads nothing but the live Bundle.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from ...types import Bundle, Feedback, Version
from ..store.group_commit import Writes

PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 0.0)
"""Seconds between attempts; after the last one the records are dropped."""
_SPARE = (408, 429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


LIVE = 2.0
"""Seconds that the server has to answer with the live Bundle."""


class _Recorded(msgspec.Struct):
    """A Bundle as the server gives it."""

    versions: list[Version]


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for one server."""

    def redirect_request(self, *_: Any) -> None:
        # urllib then raises HTTPError with the 3xx, which `_post` takes for a refusal.
        return None


class Remote:
    """The server at `url`.

    Args:
        token: with the role write.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._headers = url.rstrip("/"), {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        # A proxy set for the internet must not see what is meant for this machine.
        own = urlsplit(url).hostname in _LOOPBACK
        self._opener = urllib.request.build_opener(
            _Straight, urllib.request.ProxyHandler({} if own else None)
        )

    def send(self, writes: Writes) -> int:
        """Have the server record these; how many it refused.

        Raises:
            OSError: it was unreachable or overloaded for as long.
        """
        refused = 0
        for key, rows in writes:
            bodies = [row[-1] for row in rows if isinstance(row[-1], bytes)]
            if key == "trajectory":
                refused += self._post(
                    "/api/trajectories", "trajectories", [msgspec.Raw(body) for body in bodies]
                )
            elif key == "feedback":
                refused += self._post("/api/feedback", "feedback", [_as_posted(body) for body in bodies])
        return refused

    def live(self) -> Bundle:
        """The Bundle that is live in the server's record.

        Raises:
            OSError, ValueError: it is unreachable, or does not answer as a whet server.
        """
        return self.bundle("live")

    def bundle(self, id: str) -> Bundle:
        """A Bundle of the server's record.

        Raises:
            OSError, ValueError: as of `live`, or the record has none of this id.
        """
        request = urllib.request.Request(
            f"{self._url}/api/bundles/{quote(id, safe='')}", headers=self._headers
        )
        with self._opener.open(request, timeout=LIVE) as answered:
            return Bundle(msgspec.json.decode(answered.read(), type=_Recorded).versions)

    def _post(self, path: str, name: str, records: list[msgspec.Raw]) -> int:
        body = msgspec.json.encode({name: records})
        for pause in PAUSES:
            request = urllib.request.Request(self._url + path, body, self._headers, method="POST")
            try:
                with self._opener.open(request, timeout=10) as answered:
                    answered.read()
                return 0
            except urllib.error.HTTPError as refusal:
                refusal.close()
                if refusal.code not in _SPARE:
                    break
                # Raised, so that the sink drops them all: one by one they would keep a server busier.
                if not pause:
                    raise
            except OSError:
                if not pause:
                    raise
            time.sleep(pause)
        if len(records) == 1:
            return 1
        # The server refuses a request whole: sent one by one, only the record at fault is lost.
        return sum(self._post(path, name, [record]) for record in records)


def _as_posted(body: bytes) -> msgspec.Raw:
    """Feedback as the server takes it, without its empty fields."""
    feedback = msgspec.json.decode(body, type=Feedback)
    stated = {key: value for key, value in msgspec.to_builtins(feedback).items() if value not in (None, "")}
    return msgspec.Raw(msgspec.json.encode(stated))
