"""The ways in which a call fails, and the words in which the agent hears of them.

A failure is attributed once, where it happens, and carried as `UpstreamFailed` to the one place that
answers the agent and writes the record.  Nothing here retries: an agent's client does that, and
it must see the status that its own rules are made for.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...types import Failure, Fault

CLIENT_GONE = 499
"""Status recorded for a call whose client went away before its answer was complete."""


class UpstreamFailed(Exception):
    """A call that has no whole answer.

    Args:
        status: what the agent is answered with, if nothing has been sent yet.
        kind: a stable word for programs; recorded as the failure's type.
        body: the upstream's own error, in the dialect of the agent; sent in place of ours.
        headers: of the upstream's error, such as `retry-after`.
    """

    def __init__(
        self,
        fault: Fault,
        kind: str,
        message: str,
        *,
        status: int = 502,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.fault, self.kind, self.status = fault, kind, status
        self.body, self.headers = body, dict(headers or {})

    @property
    def failure(self) -> Failure:
        """The failure as it is recorded."""
        return Failure(self.fault, self.kind, str(self))


class ClientGone(Exception):
    """The agent hung up.  The upstream call is cancelled; nobody is left to answer."""


def fault_of(status: int, *, own_key: bool) -> Fault:
    """The party at fault for an upstream's HTTP error.

    Args:
        own_key: the key was the gateway's, so that a refused one is not the agent's doing.

    A request that is refused as it stands is the agent's; a rate limit, an overload and an error
    of the server are the model's.
    """
    if status in (401, 403):
        return Fault.ENVIRONMENT if own_key else Fault.AGENT
    if status in (408, 409, 425, 429) or status >= 500 or status < 400:
        return Fault.MODEL
    return Fault.AGENT
