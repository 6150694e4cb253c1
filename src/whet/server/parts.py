"""The parts that `whet serve` is made of, in one place."""

from __future__ import annotations

from collections.abc import Mapping

from ..store import Store
from ..tracing.redact import Redactor
from .asgi import Part
from .auth import Limits
from .feedback import FeedbackPart
from .gateway import Gateway, Upstream
from .ingest import OTLP, Assembly, Backlog, Trajectories
from .legacy import Legacy
from .people import PeoplePart
from .queue import Queue
from .releases import ReleasesPart


def standard(
    store: Store,
    limits: Limits | None = None,
    *,
    open_legacy: bool = False,
    grace: float = 2.0,
    keep_days: float | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
) -> list[Part]:
    """Everything that is served over one store.

    Args:
        store: owned by this process.
        limits: those of the server's Access.
        open_legacy: also the Agent Lightning 0.1 routes, without a token and to this machine only.
        grace: seconds of silence after which a run whose root has ended becomes a trajectory.
        keep_days: what is older is taken out, but for what `Store.retain` keeps; None keeps all.
        upstreams: of the gateway; there is none without them.
    """
    limits, backlog, redactor = limits or Limits(), Backlog(), Redactor()
    parts: list[Part] = [
        Trajectories(store, backlog, redactor=redactor),
        OTLP(store, limits, backlog, redactor=redactor),
        Assembly(store, grace=grace),
        Queue(store, limits, redactor=redactor),
        ReleasesPart(store),
        FeedbackPart(store, redactor=redactor),
        PeoplePart(store, redactor=redactor, keep_days=keep_days),
        Legacy(store, open=open_legacy, redactor=redactor),
    ]
    if upstreams:
        parts.append(Gateway(store, upstreams, redact=lambda spans: [redactor.span(span) for span in spans]))
    return parts
