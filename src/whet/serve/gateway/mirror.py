"""Live shadows: calls that were answered are handed to a process beside the server, where candidates answer them again.

The gateway writes to a socket that never blocks and holds little: a full one drops the call and counts it.  Everything
else, the candidate's requests and whatever its endpoint does, happens in the other process (`mirror_process.py`), which
is started again when it dies.  Its answers come back as records: a shadow Trajectory for each run, on the task of the
real one and paired with it (`shadow_record.py`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...record.store import Release, Stage, Store
from ...record.store.releases import GATEWAY
from ...record.store.trials import drawn
from ..asgi import Request
from . import mirror_wire
from .mirror_wire import PACKET, LeftOut, MirroredCall, MirrorLimits, Setup, ShadowBundle, Standing
from .shadow_record import ShadowRecorder
from .upstream import Upstream

if TYPE_CHECKING:
    from .record import ModelCall

_BUFFER = 4 * 1024 * 1024
"""Bytes of calls that may be on their way; the system may allow less."""
_AGAIN = 5.0
"""Seconds after which a process that has died is started again."""
_SILENT = 5.0
"""Seconds beyond twice the limit of a call after which a process that says nothing is ended."""
_DEATHS = 20
"""Deaths after which it is not started again before the server is."""
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")


class ShadowMirror:
    """The gateway's end.

    Args:
        store: where shadow trajectories go.
        upstreams: those that candidates may be routed to.
        limits: what candidates may spend.
    """

    def __init__(
        self, store: Store, upstreams: Mapping[str, Upstream], *, limits: MirrorLimits | None = None
    ) -> None:
        self._upstreams, self._limits = dict(upstreams), limits or MirrorLimits()
        self._shadows: list[Release] = []
        self._lock = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._start_at = 0.0
        self._closed = False
        self.recorder = ShadowRecorder(store)
        self.counts: Counter[str] = Counter()
        """`mirrored`, `dropped`, `deaths` and, by reason, what was left out."""

    @property
    def status(self) -> dict[str, int]:
        """What became of the calls that shadows were to answer."""
        return {**self.counts, **self.recorder.counts}

    @property
    def pid(self) -> int | None:
        """Of the process that asks the candidates; None while there is none."""
        return None if self._process is None else self._process.pid

    def stand(self, standing: Sequence[Release]) -> None:
        """Mirror for these shadows from now on; called from any thread, and starts the process where one is needed."""
        shadows = [
            release
            for release in standing
            if release.stage is Stage.SHADOW and any(name in GATEWAY for name in release.bundle)
        ]
        if [release.id for release in shadows] != [release.id for release in self._shadows]:
            self._shadows = shadows
            with self._lock:
                self._send(self._standing())
        if shadows:
            self._start()

    def offer(self, call: ModelCall, request: Request) -> None:
        """Have the shadows answer a call that was answered; returns at once, whatever they do."""
        identity = call.identity
        units = {"session": identity.session, "subject": identity.subject}
        trials = [
            shadow.trial
            for shadow in self._shadows
            if drawn(shadow.trial, units.get(shadow.unit) or identity.key, shadow.share)
        ]
        if not trials:
            return
        body = call.original or call.request or b""
        if len(body) > PACKET - 20_000:
            self.counts["left out: too large"] += 1
            return
        query: bytes = request.scope.get("query_string") or b""
        packet = mirror_wire.encode(
            MirroredCall(
                trials,
                identity.run,
                identity.trace,
                call.id.hex(),
                identity.subject,
                identity.agent,
                call.api,
                f"?{query.decode('latin-1')}" if query else "",
                # The provider would take a call with the same key for the one that it has answered.
                [(name, text) for name, text in request.headers if name != "idempotency-key"],
                request.credential,
                body,
            )
        )
        self.counts["mirrored" if self._send(packet) else "dropped"] += 1

    def close(self) -> None:
        """End the process, and record what has come."""
        self._closed = True
        with self._lock:
            process, channel = self._process, self._channel
            self._channel = None
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
        if process is not None:
            process.kill()  # what it was asked is nobody's answer
            process.wait()
        if self._reader is not None:
            self._reader.join()
        self.recorder.flush()

    def _standing(self) -> bytes:
        return mirror_wire.encode(
            Standing([ShadowBundle(shadow.trial, [*shadow.bundle.values()]) for shadow in self._shadows])
        )

    def _send(self, packet: bytes) -> bool:
        channel = self._channel
        if channel is None:
            return False
        try:
            channel.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (
            OSError
        ):  # full, too large, or the process has died: the call is dropped, and its agent never knows
            return False
        return True

    def _start(self) -> None:
        """Start the process unless it runs, or died a moment ago, or too often."""
        with self._lock:
            if self._closed or self._channel is not None or time.monotonic() < self._start_at:
                return
            if self.counts["deaths"] >= _DEATHS:
                return
            self._start_at = time.monotonic() + _AGAIN
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "whet.serve.gateway.mirror_process", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                )
            self._channel = ours
            self._send(mirror_wire.encode(Setup(self._upstreams, self._limits)))
            self._send(self._standing())
            self._reader = threading.Thread(
                target=self._read, args=(ours, self._process), name="whet-shadows", daemon=True
            )
            self._reader.start()

    def _read(self, channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
        channel.settimeout(self.recorder.idle / 3)
        heard, asked = time.monotonic(), self.counts["mirrored"]
        settle_at = 0.0
        while True:
            try:
                packet = channel.recv(PACKET + 1_000)
            except TimeoutError:
                packet = None
            except OSError:
                packet = b""
            now = time.monotonic()
            if packet == b"":
                break
            if packet is not None:
                self._take(packet)
                heard, asked = now, self.counts["mirrored"]
            elif asked != self.counts["mirrored"] and now - heard > 2 * self._limits.seconds + _SILENT:
                process.kill()  # it hangs itself, and not only what it asks
            if now >= settle_at:
                self.recorder.settle()
                settle_at = now + self.recorder.idle / 3
        with self._lock:
            if self._channel is channel:
                self._channel = None
            channel.close()
        process.wait()
        if not self._closed:
            self.counts["deaths"] += 1

    def _take(self, packet: bytes) -> None:
        try:
            message = mirror_wire.from_mirror(packet)
        except msgspec.MsgspecError:
            self.counts["left out: unreadable"] += 1
            return
        if isinstance(message, LeftOut):
            self.counts[f"left out: {message.reason}"] += 1
        else:
            self.recorder.add(message)


def _environment() -> dict[str, str]:
    """The server's environment without what is secret: keys of upstreams come through the channel."""
    return {
        name: text for name, text in os.environ.items() if not any(word in name.upper() for word in _SECRET)
    }
