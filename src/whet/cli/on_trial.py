"""Agents that a command runs as candidates: past the record of production, and, where dollars decide, counted."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ..errors import MissingExtra

if TYPE_CHECKING:
    from ..judge.agent_env import ModelCalls
    from ..types import Span

_RUN = "trial"


@contextmanager
def on_trial(*, metered: bool) -> Iterator[ModelCalls | None]:
    """Let agents that are imported inside ask their models as candidates; gives the calls that they make.

    Args:
        metered: their calls are wanted; None is given where they cannot be had, for want of the extra `server`.
    """
    from ..models.trial import trial_environment

    before = dict(os.environ)
    environ = trial_environment(before)
    with ExitStack() as stack:
        calls: ModelCalls | None = None
        if metered:
            try:
                base, calls = stack.enter_context(_gateway(environ))
            except MissingExtra:
                pass  # a guardrail that no pair has anything of says what to do
            else:
                names = {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1", "ANTHROPIC_BASE_URL": ""}
                environ |= {name: base + version for name, version in names.items()}
        _set(environ)
        try:
            yield calls
        finally:
            _set(before)


@contextmanager
def _gateway(environ: dict[str, str]) -> Iterator[tuple[str, ModelCalls]]:
    """A gateway of this process: its address for the agents, and what they ask through it."""
    from ..record.store import Store
    from ..serve import Access, Server, new_tokens, running
    from ..serve.gateway import Gateway
    from ..serve.gateway.launch import upstreams_of

    spans: list[Span] = []

    def note(written: Sequence[Span]) -> Sequence[Span]:
        spans.extend(written)
        return written

    def taken() -> Sequence[Span]:
        taken, spans[:] = list(spans), []
        return taken

    # Whatever the agent has asked its endpoint until now is understood there.
    upstreams = upstreams_of(environ, speaks=("chat", "responses"))
    with Store(":memory:") as store:
        access = Access(new_tokens())
        # Durable: a call is noted before the agent has its answer, so none is looked for too early.
        part = Gateway(store, upstreams, redact=note, durable=True)
        with running(Server(access, [part])) as url:
            yield f"{url}/run/{_RUN}/{access.runs.mint(_RUN, math.inf)}", taken


def _set(environ: dict[str, str]) -> None:
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    os.environ.update(environ)
