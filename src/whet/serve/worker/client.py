"""The server as a worker sees it, over HTTP.

Requests are repeated while the server is unreachable or busy, and every one of them may be: a rollout's
fence makes a finish that arrives twice one finish.  A final refusal of the server raises.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2
import msgspec

from ...errors import InputError, StoreError
from ...escapes import read_json
from ...record.store.bundles import EMPTY
from ...record.store.codec import plain
from ...record.store.rollouts import Claim
from ...types import Bundle, Lease
from .wire import (
    Beat,
    Beaten,
    BundleBody,
    Claimed,
    FinishMany,
    FinishRequest,
    Held,
    RefusalBody,
    Results,
    Withdraw,
    Withdrawn,
)

T = TypeVar("T")

_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_FIRST, _LONGEST = 0.1, 5.0
"""Seconds between repeats, doubling."""
LONGEST_WAIT = 60.0
"""Seconds that a server may ask for (`Retry-After`)."""
REMEMBERED = 1_000
"""Bundles that are not asked for again."""
encoder = msgspec.json.Encoder(enc_hook=plain)


class BusyError(StoreError):
    """The server cannot take it now.

    Args:
        wait: seconds that it asks for, 0 if it does not say.
    """

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class QueueClient:
    """Talks to one server.

    Args:
        url: of `whet serve`.
        token: one with the role write.
        on_trouble: called with the reason, once per outage, when the server cannot be reached.
    """

    def __init__(
        self, url: str, token: str, *, on_trouble: Callable[[str], None] = lambda text: None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"{url!r} is not the URL of a server; it begins with http:// or https://")
        self.url, self._on_trouble = url.rstrip("/"), on_trouble
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
        self._http = httpx2.AsyncClient(base_url=self.url, headers=self._headers, timeout=30.0, limits=limits)
        self._bundles: dict[str, Bundle] = {EMPTY.id: EMPTY}

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def claim(self, claim: Claim) -> Sequence[Lease]:
        """Up to `claim.n` leases; waits at most `claim.wait` seconds for the first.

        Raises:
            InputError: the server refuses (a wrong token, for instance).
            StoreError: it cannot be reached.
        """
        # Not repeated here: the worker asks again anyway, and may have been stopped meanwhile.
        return (await self._post("/api/rollouts/claim", claim, Claimed, wait=claim.wait)).leases

    async def withdraw(self, worker: str) -> None:
        """Have this worker's waiting claims answered at once.

        Raises:
            StoreError, InputError: as `claim`.
        """
        await self._post("/api/rollouts/withdraw", Withdraw(worker), Withdrawn)

    async def finish(
        self, finished: Sequence[FinishRequest], *, patience: float, claim: Claim | None = None
    ) -> Results:
        """Report rollouts, and claim more in the same request; repeated for up to `patience` seconds.

        Raises:
            StoreError: the server could not be reached in that time.
            InputError: it refuses.
        """
        deadline = asyncio.get_running_loop().time() + patience
        delay = _FIRST
        while True:
            try:
                return await self._post("/api/rollouts/finish", FinishMany(list(finished), claim), Results)
            except StoreError as exception:
                # Repeated without the claim: if the answer was lost, its rollouts come back when their leases end.
                claim = None
                pause = max(delay, exception.wait if isinstance(exception, BusyError) else 0.0)
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise
                if delay == _FIRST:
                    self._on_trouble(str(exception))
                await asyncio.sleep(pause)
                delay = min(2 * delay, _LONGEST)

    async def bundle(self, id: str | None) -> Bundle:
        """The Bundle that a rollout names; None is a rollout that runs under none.

        Raises:
            InputError: the server has none with this id.
            StoreError: it cannot be reached.
        """
        if id is None:
            return EMPTY
        if id not in self._bundles:
            try:
                answered = await self._http.get(f"/api/bundles/{id}")
            except httpx2.HTTPError as exception:
                raise unreachable(self.url, exception) from exception
            if len(self._bundles) >= REMEMBERED:
                self._bundles = {EMPTY.id: EMPTY}
            self._bundles[id] = Bundle(decoded(answered, BundleBody).versions)
        return self._bundles[id]

    async def _post(self, path: str, body: Any, type: type[T], *, wait: float = 0.0) -> T:
        try:
            answered = await self._http.post(path, content=encoder.encode(body), timeout=30.0 + wait)
        except httpx2.HTTPError as exception:
            raise unreachable(self.url, exception) from exception
        return decoded(answered, type)

    def heart(self, held: Callable[[], Sequence[Held]], lost: Callable[[Held], None], lease: float) -> Heart:
        """Keeps leases alive from a thread of its own; see Heart."""
        return Heart(self.url, self._headers, held, lost, lease)


class Heart:
    """Beats every third of a lease, in its own thread and over its own connection: neither a busy
    event loop nor a slow finish can delay it.

    Args:
        held: gives the leases to keep.
        lost: called, in this thread, for each that the server no longer knows.
        lease: seconds.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        held: Callable[[], Sequence[Held]],
        lost: Callable[[Held], None],
        lease: float,
    ) -> None:
        self._url, self._headers, self._held, self._lost, self._lease = url, dict(headers), held, lost, lease
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whet-heart", daemon=True)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx2.Client(base_url=self._url, headers=self._headers, timeout=self._lease) as http:
            while not self._stopped.wait(self._lease / 3):
                leases = list(self._held())
                if leases:
                    self._beat(http, leases)

    def _beat(self, http: httpx2.Client, leases: list[Held]) -> None:
        body = encoder.encode(Beat(leases, self._lease))
        try:
            beaten = decoded(http.post("/api/rollouts/heartbeat", content=body), Beaten)
        except (httpx2.HTTPError, StoreError, InputError):
            return  # the next heartbeat or the end of the lease settles it
        for held, until in zip(leases, beaten.until, strict=False):
            if until is None:
                self._lost(held)


def unreachable(url: str, exception: Exception) -> StoreError:
    """The error of a server that gave no answer."""
    return StoreError(f"the server at {url} cannot be reached: {exception or type(exception).__name__}")


def _refusal(answered: httpx2.Response) -> str:
    """The message of a refusal; the beginning of the text if it is not one of whet's."""
    try:
        return read_json(msgspec.json.Decoder(RefusalBody).decode, answered.content).error.message
    except msgspec.MsgspecError:
        return answered.text[:300]


def _retry_after(answered: httpx2.Response) -> float:
    """Seconds; 0 where there is none, or a date, which a proxy may give."""
    stated = answered.headers.get("retry-after", "")
    return min(float(stated), LONGEST_WAIT) if stated.isascii() and stated.isdigit() else 0.0


def decoded(answered: httpx2.Response, type: type[T]) -> T:
    """The body of an answer.

    Raises:
        StoreError: the server is busy or failing, or is not one of whet's.
        InputError: it refuses.
    """
    if answered.status_code in _AGAIN:
        message = f"the server is busy or failing ({answered.status_code}): {_refusal(answered)}"
        raise BusyError(message, _retry_after(answered))
    if answered.status_code >= 400:
        raise InputError(f"the server refused ({answered.status_code}): {_refusal(answered)}")
    try:
        return read_json(msgspec.json.Decoder(type).decode, answered.content)
    except msgspec.MsgspecError as exception:
        raise StoreError(f"{answered.url} does not answer as a whet server does: {exception}") from exception
