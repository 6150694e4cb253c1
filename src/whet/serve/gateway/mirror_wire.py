"""What the gateway and its mirror process say to each other: packets on one socket, each a message of its own."""

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


class ShadowAnswer(msgspec.Struct, tag="answer"):
    """A candidate's answer to a call, or that it failed; `body` is the call as the record keeps one."""

    trial: str
    run: str | None
    trace: bytes
    call: str
    subject: str | None
    name: str
    started: int
    ended: int
    failed: bool
    body: bytes


class LeftOut(msgspec.Struct, tag="left"):
    """A call that no candidate was asked."""

    reason: str


ToMirror: TypeAlias = Setup | Standing | MirroredCall
FromMirror: TypeAlias = ShadowAnswer | LeftOut
encode = msgspec.msgpack.Encoder().encode
to_mirror = msgspec.msgpack.Decoder(ToMirror).decode
from_mirror = msgspec.msgpack.Decoder(FromMirror).decode
