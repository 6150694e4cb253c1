"""Live shadows: calls that were answered are handed to a process beside the server, where candidates answer them again.

The gateway writes to a socket that never blocks and holds little: a full one drops the call and counts it.  Everything
else, the candidate's requests and whatever its endpoint does, happens in the other process (`mirror_process.py`), which
is started again when it dies.  Its answers come back as a shadow Trajectory for each run (`shadow_record.py`), which a
thread records.
"""

from __future__ import annotations

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

from ...errors import WhetError
from ...record.store import Release, Stage, Store
from ...record.store.codec import decode
from ...record.store.releases import GATEWAY
from ...record.store.trials import drawn, shadow_experiment
from ...types import Trajectory
from ..http import Request
from . import mirror_wire
from .mirror_wire import (
    LENGTH,
    LONGEST,
    PACKET,
    LeftOut,
    MirroredCall,
    MirrorLimits,
    MirrorSetup,
    ShadowBundle,
    ShadowRun,
    StandingShadows,
)
from .upstream import Upstream

if TYPE_CHECKING:
    from .record import ModelCall

_BUFFER = 4 * 1024 * 1024
"""Bytes of calls that may be on their way; the system may allow less."""
_AGAIN = 5.0
"""Seconds after which a process that has died is started again."""
_SILENT = 5.0
"""Seconds beyond twice the limit of a call after which a process that says nothing is ended."""
_LAST_WORDS = 3.0
"""Seconds that the process has at the end to tell what it has."""
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
        self._store = store
        self._shadows: list[Release] = []
        self._starting = threading.Lock()
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._start_at = 0.0
        self._closed = False
        self.counts: Counter[str] = Counter()
        """`mirrored`, `dropped`, `answered`, `failed`, `recorded`, `deaths` and, by reason, what was left out."""

    @property
    def status(self) -> dict[str, int]:
        """What became of the calls that shadows were to answer."""
        return dict(self.counts)

    @property
    def pid(self) -> int | None:
        """Of the process that asks the candidates; None while there is none."""
        return None if self._process is None or self._channel is None else self._process.pid

    def stand(self, standing: Sequence[Release]) -> None:
        """Mirror for these shadows from now on; called from any thread, and starts the process where one is needed."""
        shadows = [
            release
            for release in standing
            if release.stage is Stage.SHADOW and any(name in GATEWAY for name in release.bundle)
        ]
        if [release.id for release in shadows] != [release.id for release in self._shadows]:
            self._shadows = shadows
            self._send(self._standing())
        if shadows and self._channel is None:
            # In a thread of its own: who waits for the log to be read must not wait for a process to start.
            threading.Thread(target=self._start, name="whet-shadows-start", daemon=True).start()

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
        packet = mirror_wire.encode(
            MirroredCall(
                trials,
                identity.run,
                identity.trace,
                call.id.hex(),
                identity.subject,
                identity.agent,
                call.api,
                f"?{request.query_string}" if request.query_string else "",
                # The provider would take a call with the same key for the one that it has answered.
                [(name, text) for name, text in request.headers if name != "idempotency-key"],
                request.credential,
                body,
            )
        )
        self.counts["mirrored" if self._send(packet) else "dropped"] += 1

    def close(self) -> None:
        """Record what has come, and end the process."""
        self._closed = True
        with self._starting:
            process, channel, self._channel = self._process, self._channel, None
        if channel is not None:
            channel.close()  # which it takes for the end, and tells what it has
        if process is not None:
            try:
                process.wait(_LAST_WORDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._reader is not None:
            self._reader.join()

    def _standing(self) -> bytes:
        return mirror_wire.encode(
            StandingShadows(
                [ShadowBundle(shadow.trial, [*shadow.bundle.values()]) for shadow in self._shadows]
            )
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
        with self._starting:
            if self._closed or self._channel is not None or time.monotonic() < self._start_at:
                return
            if self.counts["deaths"] >= _DEATHS:
                return
            self._start_at = time.monotonic() + _AGAIN
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            back, their_back = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            with theirs, their_back:
                descriptors = [theirs.fileno(), their_back.fileno()]
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "whet.serve.gateway.mirror_process", *map(str, descriptors)],
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=_environment(),
                )
            ours.send(mirror_wire.encode(MirrorSetup(self._upstreams, self._limits)), socket.MSG_NOSIGNAL)
            self._channel = ours
            self._send(self._standing())
            self._reader = threading.Thread(
                target=self._read, args=(back, self._process), name="whet-shadows", daemon=True
            )
            self._reader.start()

    def _read(self, back: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Take what the process tells until it ends; it is ended where it hangs itself."""
        back.settimeout(1.0)
        pending = bytearray()
        heard, asked = time.monotonic(), self.counts["mirrored"]
        while True:
            try:
                received = back.recv(1 << 16)
            except TimeoutError:
                if asked != self.counts["mirrored"] and time.monotonic() - heard > self._patience:
                    process.kill()
                continue
            except OSError:
                break
            if not received:
                break
            heard, asked = time.monotonic(), self.counts["mirrored"]
            pending += received
            if not self._take_all(pending):
                process.kill()
                break
        back.close()
        process.wait()
        if not self._closed:
            self.counts["deaths"] += 1
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()

    @property
    def _patience(self) -> float:
        return 2 * self._limits.seconds + _SILENT

    def _take_all(self, pending: bytearray) -> bool:
        """Take the messages that are whole out of `pending`; False of what this program never sends."""
        shadows: dict[str, list[Trajectory]] = {}
        while len(pending) >= LENGTH:
            end = LENGTH + int.from_bytes(pending[:LENGTH], "big")
            if end > LONGEST:
                return False
            if len(pending) < end:
                break
            try:
                message = mirror_wire.from_mirror(bytes(pending[LENGTH:end]))
                if isinstance(message, ShadowRun):
                    shadows.setdefault(message.trial, []).append(decode(message.body, Trajectory))
                elif isinstance(message, LeftOut):
                    self.counts[f"left out: {message.reason}"] += 1
                else:
                    self.counts["failed" if message.failed else "answered"] += 1
            except (msgspec.MsgspecError, WhetError):
                return False
            del pending[:end]
        for trial, runs in shadows.items():
            try:
                self._store.put(*runs, experiment=shadow_experiment(trial), replace=True)
                self.counts["recorded"] += len(runs)
            except WhetError:
                self.counts["left out: the record cannot be written"] += len(runs)
        return True


def _environment() -> dict[str, str]:
    """The server's environment without what is secret: keys of upstreams come through the channel."""
    return {
        name: text for name, text in os.environ.items() if not any(word in name.upper() for word in _SECRET)
    }
