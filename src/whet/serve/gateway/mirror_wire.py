"""The messages of the gateway and its mirror process: packets to it, which may be dropped, and a stream back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from ...types import Budget, Version
from .upstream import Upstream

PACKET = 400_000
"""Bytes of one packet, at most: a longer call is left out and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """What shadows may spend, apart from what serves people. They count from the start of the server."""

    calls: int | None = 10_000
    """Calls to the models of candidates."""
    tokens: int | None = None
    """Their tokens, those of a call reserved before it by its length."""
    dollars: float | None = None
    """Their cost, by the prices that are known; a model without a price is not asked then."""
    concurrency: int = 4
    """Calls at once; what comes beyond that waits in a short queue, and is dropped where that is full."""
    seconds: float = 60.0
    """For one call, from its beginning to the end of its answer."""
    idle: float = 3.0
    """Seconds without a further call of a run after which its shadow is recorded."""

    @property
    def budget(self) -> Budget:
        """As a Meter takes it."""
        return Budget(calls=self.calls, tokens=self.tokens, dollars=self.dollars)


class Setup(msgspec.Struct, tag="setup"):
    """The first packet."""

    upstreams: dict[str, Upstream]
    limits: MirrorLimits


class ShadowBundle(msgspec.Struct):
    """A candidate that answers beside what is live."""

    trial: str
    versions: Sequence[Version]


class Standing(msgspec.Struct, tag="standing"):
    """The shadows that stand now."""

    shadows: list[ShadowBundle]


class MirroredCall(msgspec.Struct, tag="call"):
    """A call that was answered, to be answered again by the shadows that it was drawn for."""

    trials: list[str]
    run: str | None
    trace: bytes
    call: str
    subject: str | None
    agent: str | None
    api: str
    query: str
    headers: list[tuple[str, str]]
    credential: str | None
    body: bytes


class ShadowAnswered(msgspec.Struct, tag="answer"):
    """A candidate has answered a call, or failed."""

    failed: bool


class ShadowRun(msgspec.Struct, tag="run"):
    """A candidate's answers to a run, as a Trajectory in JSON."""

    trial: str
    body: bytes


class LeftOut(msgspec.Struct, tag="left"):
    """A call that no candidate was asked."""

    reason: str


ToMirror: TypeAlias = Setup | Standing | MirroredCall
FromMirror: TypeAlias = ShadowAnswered | ShadowRun | LeftOut
LENGTH = 4
"""Bytes of the length before each message of the stream."""
LONGEST = 64 * 1024 * 1024
"""Bytes of such a message: more is nothing that this program sent."""
encode = msgspec.msgpack.Encoder().encode
to_mirror = msgspec.msgpack.Decoder(ToMirror).decode
from_mirror = msgspec.msgpack.Decoder(FromMirror).decode
