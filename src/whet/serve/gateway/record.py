"""One call as it is recorded, and the thread that records it while the agent already has its answer.

What waits to be written is bounded.  A record that cannot be written is tried again until there
is no room for it; then it is dropped, counted, and said on standard error and in the gateway's
status: it is never lost silently.  Keys and other headers are not part of a record.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...errors import StoreError, WhetError
from ...escapes import whole
from ...record.store.call_tally import CallTally
from ...record.store.spans import Spans
from ...record.store.trials import TRIALS
from ...types import Failure, Json, Span
from .identity import Identity, new_span_id

ENCODING = "call+json"
WAITING = 64 * 1024 * 1024
"""Bytes of calls that may wait to be written."""
PATIENCE = 10.0
"""Seconds that closing, or a reader, waits for what cannot be written at once."""
GATHER = 0.01
"""Seconds for which calls are gathered into one commit."""
_encode = msgspec.json.Encoder().encode
_NULL = msgspec.Raw(b"null")


@dataclass(slots=True)
class ModelCall:
    """One call; filled in as it goes on."""

    api: str
    identity: Identity
    started: int = field(default_factory=time.time_ns)
    """Unix time in nanoseconds."""
    clock: float = field(default_factory=time.perf_counter)
    id: bytes = field(default_factory=new_span_id)
    model: str | None = None
    request: bytes | None = None
    """As it was answered: the agent's own bytes, or what the Bundle made of them, in its dialect."""
    original: bytes | None = None
    """The agent's own bytes, where the Bundle changed them."""
    response: bytes | Json = None
    status: int = 0
    failure: Failure | None = None
    first: float | None = None
    """Seconds until the first event of a stream."""
    latency: float = 0.0
    usage: Mapping[str, int] | None = None
    samples: Sequence[Json] | None = None
    policy_version: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    trials: Mapping[str, Json] = field(default_factory=dict)
    bulk: int = 0
    """Bytes of the answer."""
    durable: Future[None] | None = None
    """Done once the record is committed; made where somebody waits for it."""
    added: bool = False
    """The recorder has it."""

    def begun(self) -> None:
        """The first event of a stream is here."""
        self.first = time.perf_counter() - self.clock

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits, roughly."""
        return 1_000 + len(self.request or b"") + len(self.original or b"") + self.bulk

    def span(self) -> Span:
        """The call as the record keeps it."""
        failure = self.failure
        body: dict[str, Any] = {
            "api": self.api,
            "model": self.model,
            "request": _raw(self.request),
            "response": _raw(self.response) if isinstance(self.response, bytes) else self.response,
            "status": self.status,
            "error": None,
            "latency": self.latency,
            # Not first_token: a number after a word for secrets has each stream's record looked through for one.
            "first_event": self.first,
            "usage": self.usage,
            "choices": self.samples,
            "policy_version": self.policy_version,
            "versions": dict(self.versions) or None,
            **({TRIALS: dict(self.trials)} if self.trials else {}),
            "session": self.identity.session,
            "subject": self.identity.subject,
            "agent": self.identity.agent,
        }
        if failure is not None:
            body["error"] = {"fault": failure.fault.value, "type": failure.type, "message": failure.message}
        if self.original is not None:
            body["original_request"] = _raw(self.original)
        return Span(
            trace=self.identity.trace,
            id=self.id,
            parent=self.identity.parent,
            started=self.started,
            ended=self.started + int(self.latency * 1e9),
            name=f"{self.api} {self.model or ''}".strip(),
            body=_encode(body),
            encoding=ENCODING,
            run=self.identity.run,
        )


def _raw(body: bytes | None) -> msgspec.Raw:
    # Raw is written as it is: bytes that are no JSON would spoil the whole span.
    return _NULL if body is None else msgspec.Raw(whole(body))


class Recorder:
    """Writes calls behind the agent's back.

    Args:
        tally: told what is recorded, by the commit that records it.
        redact: applied to the spans before they are written.
        limit: bytes that may wait.
    """

    def __init__(
        self,
        spans: Spans,
        *,
        tally: CallTally | None = None,
        redact: Callable[[Sequence[Span]], Sequence[Span]] | None = None,
        limit: int = WAITING,
    ) -> None:
        self._spans, self._redact, self._limit = spans, redact, limit
        self._tally = tally
        self._urgent = False
        """Somebody waits for what waits to be written."""
        self._waiting: deque[ModelCall] = deque()
        self._size = 0
        self._writing = 0
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self.patience = PATIENCE
        """Seconds that `close` waits for what cannot be written at once."""
        self.recorded = 0
        self.lost = 0
        self.error: str | None = None
        """The reason that the last attempt to write failed; None once one has succeeded."""
        self._thread = threading.Thread(target=self._run, name="whet-gateway-recorder", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Calls that are not durable yet."""
        return len(self._waiting) + self._writing

    def durable(self, call: ModelCall) -> Future[None]:
        """Have a call recorded at once; the future is done once the record is committed.

        Raises:
            StoreError: in the future: it could not be written, and was counted as lost.
        """
        call.durable = Future()
        call.durable.set_running_or_notify_cancel()
        self.add(call)
        return call.durable

    def add(self, call: ModelCall) -> None:
        """Have a call recorded, once; returns at once."""
        with self._changed:
            if call.added:
                return
            call.added = True
            if self._deadline is not None or self._size + call.size > self._limit:
                reason = self.error or "records come faster than the store takes them"
                self._lose([call], reason)
                return
            self._waiting.append(call)
            self._size += call.size
            urgent = call.durable is not None and not self._urgent
            self._urgent = self._urgent or urgent
            # The thread waits for the first one only, and then for one that is waited for; a wake-up for each costs.
            if urgent or len(self._waiting) == 1:
                self._changed.notify_all()

    def close(self) -> None:
        """Write what waits; what cannot be within `patience` seconds is counted as lost."""
        with self._changed:
            self._deadline = time.monotonic() + self.patience
            self._changed.notify()
        self._thread.join()

    def flush(self, patience: float = PATIENCE) -> bool:
        """Wait until all that was added is durable or lost; False if it is not within `patience` seconds."""
        deadline = time.monotonic() + patience
        with self._changed:
            while self.waiting:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return not self.waiting
        return True

    def _lose(self, calls: Sequence[ModelCall], reason: str) -> None:
        before = self.lost
        self.lost += len(calls)
        for call in calls:
            if call.durable is not None:
                call.durable.set_exception(StoreError(f"the call could not be recorded: {reason}"))
        if not before or self.lost // 100 != before // 100:
            print(f"whet: {self.lost:,} model calls could not be recorded: {reason}", file=sys.stderr)

    def _take(self) -> list[ModelCall]:
        with self._changed:
            while not self._waiting and self._deadline is None:
                self._changed.wait()
            if self._deadline is None:
                # What comes meanwhile shares the commit.
                self._changed.wait_for(lambda: self._urgent or self._deadline is not None, GATHER)
            self._urgent = False
            batch = list(self._waiting)
            self._waiting.clear()
            self._writing = len(batch)
            return batch

    def _run(self) -> None:
        while calls := self._take():
            spans: list[Span] = []
            encoded: list[ModelCall] = []
            for call in calls:
                try:
                    spans.append(call.span())
                    encoded.append(call)
                except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as exception:
                    self._lose([call], f"one has no JSON form ({exception})")
            try:
                self._write(encoded, spans if self._redact is None else self._redact(spans))
            except Exception as exception:  # whatever it was, what comes next must still be recorded
                self.error = f"{type(exception).__name__}: {exception}"
                self._lose(encoded, self.error)
            with self._changed:
                self._writing = 0
                # Sizes are computed anew here: a call must not change once it was added.
                self._size -= sum(call.size for call in calls)
                self._changed.notify_all()

    def _write(self, calls: Sequence[ModelCall], spans: Sequence[Span]) -> None:
        """Write them, trying again while the store has a trouble that may pass, such as a full disk."""
        wait = 0.05
        while spans:
            try:
                counted = () if self._tally is None else self._tally.record(len(spans))
                self._spans.put(spans, counted).result()
            except StoreError as exception:
                self.error = str(exception)
            except WhetError as exception:
                self.error = str(exception)
                self._lose(calls, self.error)
                return
            else:
                self.recorded += len(spans)
                self.error = None
                if self._tally is not None:
                    self._tally.committed(len(spans))
                for call in calls:
                    if call.durable is not None:
                        call.durable.set_result(None)
                return
            with self._changed:
                if self._deadline is not None and time.monotonic() > self._deadline:
                    self._lose(calls, self.error)
                    return
                self._changed.wait(wait)
            wait = min(2.0, wait * 2)
