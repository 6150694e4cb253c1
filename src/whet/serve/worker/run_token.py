"""The token of a run that a server records: asked for, renewed while the program runs, and revoked at its end."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx2

from ...errors import StoreError, WhetError
from .client import decoded, encoder, unreachable
from .wire import RevokedToken, RunToken, RunTokenRequest

SECONDS = 3_600.0
"""Time that the token is good for where nobody is left to renew it."""
RENEWAL = 60.0
"""Seconds between renewals: a server that was started again refuses a token of more than an hour for as long."""


@contextlib.contextmanager
def held_run_token(url: str, token: str, run: str) -> Iterator[str]:
    """A token for `run` that is good while the block runs.

    Args:
        token: one of the server, with the role write.

    Raises:
        StoreError: no server answers there.
        InputError: it refuses the token, or is not a whet server of this version.
    """
    path = f"/api/runs/{quote(run, safe='')}/token"
    with httpx2.Client(base_url=url, headers={"x-whet-token": token}, timeout=10.0) as client:
        own = _asked(client, path, RunTokenRequest(seconds=SECONDS)).token
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(RENEWAL):
                # A server that is away: the next renewal is in time, for the token is good for an hour.
                with contextlib.suppress(WhetError):
                    _asked(client, path, RunTokenRequest(seconds=SECONDS, renew=own))

        renewing = threading.Thread(target=renew, name="whet-run-token", daemon=True)
        renewing.start()
        try:
            yield own
        finally:
            ended.set()
            renewing.join()
            try:
                _asked(client, f"{path}/revoke", RevokedToken(token=own))
            except WhetError as error:
                print(
                    f"whet: the run's token could not be revoked and ends within an hour: {error}",
                    file=sys.stderr,
                )


def _asked(client: httpx2.Client, path: str, body: Any) -> RunToken:
    try:
        response = client.post(
            path, content=encoder.encode(body), headers={"content-type": "application/json"}
        )
    except httpx2.HTTPError as exception:
        problem = unreachable(str(client.base_url).rstrip("/"), exception)
        raise StoreError(f"{problem}. Is `whet serve` running there?") from exception
    return decoded(response, RunToken)
