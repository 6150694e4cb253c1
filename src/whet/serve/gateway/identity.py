"""The identity of a call: the run, the trace, the session and the person, as the request says them.

A call belongs to the run that its `x-whet-run` header or else its path (`/run/ID/v1/...`) names,
and to the span that its `traceparent` names.  The path is one for a whole program, the header is of
the call.  One that names neither is a run of its own; it is never added to whichever run was seen last.
Which of several agents calls, `x-whet-agent` says; what else tells it is read later, of the whole run.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from ...errors import InputError
from ...types import new_id
from ..http import Request

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_NONE = (bytes(16), bytes(8))
LONGEST = 200
"""Characters of a run, session or subject id, or of an agent's name."""
AGENT = "gen_ai.agent.name"
"""Of W3C baggage: OpenTelemetry's attribute of that name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The run, trace and people that a call belongs to."""

    run: str | None
    """As given; None where a traceparent alone says where the call belongs."""
    trace: bytes
    """16 bytes: the traceparent's, else made of the run id."""
    parent: bytes
    """8 bytes, the agent's span that the call was made in; b"" if it did not say."""
    session: str | None = None
    subject: str | None = None
    agent: str | None = None
    """Of several in the run, which one calls."""
    fresh: bool = False
    """The run's id was made here: nothing can have been recorded of it before."""

    @property
    def key(self) -> str:
        """The key of the run's assignment."""
        return self.run or self.trace.hex()

    def within(self, run: str) -> Identity:
        """The same call in another run."""
        return replace(self, run=run, trace=self.trace if self.parent else trace_of(run))


def identify(request: Request) -> Identity:
    """Read who calls.

    Raises:
        InputError: an id is empty, too long or has control characters.
        Refused: the request has the token of another run.
    """
    header = request.header
    run = _stated("run", header("x-whet-run") or request.params.get("run"))
    session, subject = (
        _stated("session", header("x-whet-session")),
        _stated("subject", header("x-whet-subject")),
    )
    agent = _stated("agent", header("x-whet-agent") or _agent_in(header("baggage")))
    run = request.own_run(run)
    traceparent = header("traceparent")
    fields = _TRACEPARENT.fullmatch(traceparent.strip().lower()) if traceparent else None
    if fields is not None:
        trace, parent = bytes.fromhex(fields[1]), bytes.fromhex(fields[2])
        # Ids of zeros are invalid by W3C: taken as they are, strangers' calls would share one trace.
        if trace != _NONE[0] and parent != _NONE[1]:
            return Identity(run, trace, parent, session, subject, agent)
    fresh = run is None
    run = run or new_id()
    return Identity(run, trace_of(run), b"", session, subject, agent, fresh)


def _agent_in(baggage: str | None) -> str | None:
    """The agent's name that W3C baggage carries; None where it carries none that can be read."""
    if not baggage:
        return None
    for member in baggage.split(","):
        key, _, value = member.partition(";")[0].partition("=")
        name = unquote(value.strip())
        if key.strip() == AGENT and name.strip() and len(name) <= LONGEST and name.isprintable():
            return name
    return None


def _stated(kind: str, id: str | None) -> str | None:
    return None if id is None else readable(kind, id)


def trace_of(run: str) -> bytes:
    """The trace id of a run whose agent sends no traceparent: 16 bytes of its id's hash."""
    return hashlib.sha256(run.encode()).digest()[:16]


_fresh = bytearray()


def new_span_id() -> bytes:
    """A fresh id for the span of one call.  Called in the server's loop."""
    if not _fresh:
        # Many at once: each call of urandom lets go of the interpreter, and a busy thread takes it.
        _fresh.extend(os.urandom(8 * 512))
    id = bytes(_fresh[-8:])
    del _fresh[-8:]
    return id


def readable(kind: str, id: str) -> str:
    """An id as it was given.

    Raises:
        InputError: it is empty, too long or has control characters.
    """
    if not id.strip() or len(id) > LONGEST or not id.isprintable():
        raise InputError(
            f"the {kind} id is {id[:40]!r}: it must be 1 to {LONGEST} printable characters. "
            f"Send another in x-whet-{kind}."
        )
    return id
