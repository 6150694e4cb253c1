"""Advances all answers of one version together, a token at a time.

An answer joins when there is room and leaves when it is done; nobody waits for a batch to end.
Room is a number of answers and a number of cached tokens, so memory is bounded; what finds none
waits in line, and a line that is full refuses.  An engine belongs to one thread (`host.py`'s);
`submit` and `cancelled` are what others may touch.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from ....errors import ModelError
from ..cache import CACHE_BYTES
from .networks import EngineNetwork
from .sampling import Generation, draw


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Bounds of the work done at once."""

    batch: int = 64
    """Answers under way at once."""
    tokens: int = 1 << 20
    """Tokens of context, prompts and outputs at their longest, that may be cached at once."""
    waiting: int = 1024
    """Answers in line; one more is refused."""
    cache_bytes: int = CACHE_BYTES
    """Memory up to which conversations that nobody is answering stay read; the one used longest ago goes first."""


class Engine:
    """One version's answers.

    Args:
        steps: what computes; touched by the thread that calls `step` alone.
    """

    def __init__(self, steps: EngineNetwork, options: EngineOptions) -> None:
        self.steps = steps
        self.options = options
        self.live: list[Generation] = []
        self.prompt_tokens = self.output_tokens = self.batches = 0
        self._waiting: deque[Generation] = deque()
        self._lock = threading.Lock()  # of the line; `live` is the stepping thread's alone

    @property
    def busy(self) -> bool:
        """True while an answer is under way or in line."""
        return bool(self.live or self._waiting)

    @property
    def waiting(self) -> int:
        """Answers in line."""
        return len(self._waiting)

    def submit(self, generation: Generation) -> bool:
        """Put an answer in line; False if the line is full.  From any thread."""
        with self._lock:
            if len(self._waiting) >= self.options.waiting:
                return False
            self._waiting.append(generation)
            return True

    def step(self) -> list[Generation]:
        """One token for every answer under way, under inference mode; those that changed."""
        # First of all: whoever hung up gives its room to those in line.
        self._retire([generation for generation in self.live if generation.cancelled])
        if self._waiting:
            self._admit()
        if not self.live:
            return []
        advanced = list(self.live)
        self.batches += 1
        try:
            draw(self.steps.logits(advanced), advanced)
        except Exception as error:  # out of memory, say: the machine's failure, not the policy's
            failure = ModelError(f"sampling failed: {error!r}", retryable=True)
            failure.__cause__ = error
            # All of them: after a failure nobody knows which rows of the cache were written.
            return self._drop(failure)
        self.output_tokens += len(advanced)
        # An answer whose form broke is done with an error of its own, and fails alone.
        self._retire([generation for generation in advanced if generation.done])
        return advanced

    def fail(self, error: ModelError) -> list[Generation]:
        """Drop every answer, those in line included, and return them."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), deque()
        for generation in waiting:
            generation.error = error
        return [*self._drop(error), *waiting]

    def _drop(self, error: ModelError) -> list[Generation]:
        dropped, self.live = self.live, []
        for generation in dropped:
            generation.error = error
        self.steps.clear()
        return dropped

    def _retire(self, generations: list[Generation]) -> None:
        if generations:
            retired = set(generations)
            self.live = [generation for generation in self.live if generation not in retired]
            self.steps.release(generations)

    def _admit(self) -> None:
        reserved = sum(map(_reserved, self.live))
        with self._lock:
            while self._waiting and len(self.live) < self.options.batch:
                first = self._waiting[0]
                if first.cancelled:
                    self._waiting.popleft()
                    continue
                reserved += _reserved(first)
                # One alone always enters, however long: it would wait forever.
                if self.live and reserved > self.options.tokens:
                    return
                self.live.append(self._waiting.popleft())
                self.prompt_tokens += len(first.prompt)


def _reserved(generation: Generation) -> int:
    return len(generation.prompt) + generation.sampling.max_tokens
