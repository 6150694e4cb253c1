"""The versions of policies that are served: one thread computes, names point to versions.

Publishing a version under a name moves the name to it at once.  Answers under way finish on the
version they began with, in the same thread, and when the last is done the old version is let go.
At most a few old versions finish at a time; one more publication waits for them, so that memory
stays bounded.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from ....errors import InputError, ModelError, NotFoundError
from ..network import Network
from .constraints import AnswerFormat, Constraints
from .engine import Engine, EngineOptions
from .networks import steps_of
from .sampling import Generation, Sampling
from .text import TextCodec

Stopped = Callable[[int], bool]
"""Told of every token, in the engine's thread; True ends the answer."""
RETIRING = 2
"""Old versions that may finish at a time."""
PATIENCE = 120.0
"""Seconds that a publication waits for older versions to finish."""


# eq=False: `in` asks for this very engine; two versions may have equal fields.
@dataclass(slots=True, eq=False)
class ServedVersion:
    """One version under one name."""

    name: str
    policy_version: str
    """The tag of its answers."""
    version: str | None
    """Id of the Version, where the weights are one of a store's."""
    text: TextCodec
    engine: Engine
    constraints: Constraints
    since: float = field(default_factory=time.time)
    """Unix time in seconds."""

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer at most."""
        return self.engine.steps.max_length


class Ticket:
    """One answer under way, for whoever waits for it in an event loop."""

    def __init__(self, served: ServedVersion) -> None:
        self.served = served
        self.generation: Generation
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def told(self) -> None:
        """Wake who waits; from the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop has ended, and with it whoever waited
            self.generation.cancelled = True

    async def changed(self) -> None:
        """Return once there is more than at the last call.

        Raises:
            ModelError: the computation failed.
        """
        await self._event.wait()
        self._event.clear()
        if self.generation.error is not None:
            raise self.generation.error

    async def whole(self) -> Generation:
        """The answer once it is complete.

        Raises:
            ModelError: the computation failed.
        """
        while not self.generation.done:
            await self.changed()
        if self.generation.error is not None:
            raise self.generation.error
        return self.generation

    def cancel(self) -> None:
        """Let go of it; the engine drops it before its next token."""
        self.generation.cancelled = True


class Host:
    """Serves versions until it is closed.

    Args:
        options: of every engine.
    """

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.swaps = 0
        self._names: dict[str, ServedVersion] = {}
        self._retiring: list[ServedVersion] = []
        self._changed = threading.Condition()
        self._closed = False
        # Entered in the thread itself: inference mode belongs to a thread.
        run = torch.inference_mode()(self._run)
        self._thread = threading.Thread(target=run, name="whet-policy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread; answers under way fail."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def names(self) -> list[str]:
        """Names of the models that are served."""
        return sorted(self._names)

    def served(self, name: str) -> ServedVersion:
        """The version that a name stands for now.

        Raises:
            NotFoundError: nothing is served under it.
        """
        served = self._names.get(name)
        if served is None:
            raise NotFoundError(
                f"no model {name!r} is served here; there is {', '.join(self.names) or 'none'}"
            )
        return served

    def publish(
        self,
        name: str,
        network: Network,
        text: TextCodec,
        *,
        policy_version: str,
        version: str | None = None,
    ) -> ServedVersion:
        """Serve a network under a name from now on; blocks while too many older versions still finish.

        Args:
            network: the host's from here on; nobody may change its weights.

        Raises:
            ModelError: older versions did not finish in time; nothing was changed.
        """
        steps = steps_of(network, self.options.cache_bytes)
        served = ServedVersion(
            name,
            policy_version,
            version,
            text,
            Engine(steps, self.options),
            Constraints(text, steps.vocab_size),
        )
        with self._changed:
            # `wait_for` lets go of the lock, without which the engine's thread could retire nothing.
            if not self._changed.wait_for(lambda: len(self._retiring) < RETIRING, PATIENCE):
                raise ModelError(
                    f"{name} {policy_version} was not taken up: {RETIRING} older versions still have answers "
                    f"under way after {PATIENCE:g} s. Publish less often, or ask for shorter answers.",
                    retryable=True,
                )
            before = self._names.get(name)
            self._names[name] = served
            if before is not None:
                self._retiring.append(before)
                self.swaps += 1
            self._changed.notify_all()
        return served

    def withdraw(self, name: str) -> None:
        """Serve a name no longer; answers under way finish.

        Raises:
            NotFoundError: it is not served.
        """
        with self._changed:
            self._retiring.append(self.served(name))
            del self._names[name]
            self._changed.notify_all()

    def ask(
        self,
        name: str,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        form: AnswerFormat | None = None,
        stopped: Stopped | None = None,
        on: ServedVersion | None = None,
    ) -> Ticket:
        """Put an answer in line; inside a running event loop.

        Args:
            on: the version to answer, where the prompt was made for one; None for the name's.

        Raises:
            NotFoundError: nothing is served under this name.
            InputError: the prompt does not fit the context or vocabulary, or the form cannot be kept to.
            ModelError: the line is full (retryable).
        """
        served = on or self.served(name)
        _check(prompt, sampling, served)
        ticket = Ticket(served)
        constraint = None if form is None else served.constraints.constraint(form)
        # Complete before it is submitted: the engine's thread may tell the ticket of a token at once.
        ticket.generation = Generation(
            prompt, sampling, constraint=constraint, stopped=stopped, told=ticket.told
        )
        with self._changed:
            if served not in self._everyone():  # it was replaced while the prompt was made
                self._retiring.append(served)
            if self._closed or not served.engine.submit(ticket.generation):
                raise ModelError(
                    f"{served.engine.waiting} answers are in line for {name}; ask again later", retryable=True
                )
            self._changed.notify_all()
        return ticket

    def status(self) -> list[dict[str, object]]:
        """Every version that is served and its counts, old versions that still finish included."""
        with self._changed:
            everyone = [(served, False) for served in self._names.values()] + [
                (served, True) for served in self._retiring
            ]
        return [
            {
                "name": served.name,
                "policy_version": served.policy_version,
                "version": served.version,
                "since": served.since,
                "retiring": old,
                "live": len(served.engine.live),
                "waiting": served.engine.waiting,
                "prompt_tokens": served.engine.prompt_tokens,
                "output_tokens": served.engine.output_tokens,
                "steps": served.engine.batches,
            }
            for served, old in everyone
        ]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._retire()
                while not self._closed and not any(served.engine.busy for served in self._everyone()):
                    self._changed.wait()
                    # Each time it wakes, or `publish` would go on waiting for versions that are done.
                    self._retire()
                if self._closed:
                    self._fail(ModelError("the policy server was stopped", retryable=True))
                    return
                busy = [served.engine for served in self._everyone() if served.engine.busy]
            # Outside the lock: requests and publications come in while tokens are computed.
            for engine in busy:
                try:
                    changed = engine.step()
                except Exception:  # a bug must not leave every later request without an answer
                    traceback.print_exc(file=sys.stderr)
                    changed = engine.fail(
                        ModelError("the policy server failed; its standard error says where")
                    )
                for generation in changed:
                    if generation.told is not None:
                        generation.told()

    def _everyone(self) -> list[ServedVersion]:
        return [*self._names.values(), *self._retiring]

    def _retire(self) -> None:
        busy = [served for served in self._retiring if served.engine.busy]
        if len(busy) != len(self._retiring):
            self._retiring = busy
            self._changed.notify_all()

    def _fail(self, error: ModelError) -> None:
        for served in self._everyone():
            for generation in served.engine.fail(error):
                if generation.told is not None:
                    generation.told()


def _check(prompt: Sequence[int], sampling: Sampling, served: ServedVersion) -> None:
    most, size = served.max_length, served.engine.steps.vocab_size
    if not prompt:
        raise InputError("the prompt is empty; give at least one token")
    if not (min(prompt) >= 0 and max(prompt) < size):
        raise InputError(f"a prompt id lies outside 0…{size - 1}; is it another vocabulary's?")
    if len(prompt) >= most:
        raise InputError(
            f"the context is too long: {len(prompt)} tokens of prompt leave none of the {most} that {served.name} "
            "takes for an answer. Send less."
        )
    if len(prompt) + sampling.max_tokens > most:
        raise InputError(
            f"the context is too long: {len(prompt)} tokens of prompt and max_tokens {sampling.max_tokens} are "
            f"more than the {most} that {served.name} takes. Send less, or lower max_tokens to "
            f"{max(0, most - len(prompt))}."
        )
