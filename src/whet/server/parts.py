"""The parts that `whet serve` is made of, in one place."""

from __future__ import annotations

from ..store import Store
from ..tracing.redact import Redactor
from .asgi import Part
from .auth import Limits
from .feedback import FeedbackPart
from .ingest import OTLP, Assembly, Backlog, Trajectories
from .legacy import Legacy
from .queue import Queue


def standard(
    store: Store, limits: Limits | None = None, *, open_legacy: bool = False, grace: float = 2.0
) -> list[Part]:
    """Everything that is served over one store.

    Args:
        store: owned by this process.
        limits: those of the server's Access.
        open_legacy: also the Agent Lightning 0.1 routes, without a token and to this machine only.
        grace: seconds of silence after which a run whose root has ended becomes a trajectory.
    """
    limits, backlog, redactor = limits or Limits(), Backlog(), Redactor()
    return [
        Trajectories(store, backlog, redactor=redactor),
        OTLP(store, limits, backlog, redactor=redactor),
        Assembly(store, grace=grace),
        Queue(store, limits),
        FeedbackPart(store, redactor=redactor),
        Legacy(store, open=open_legacy),
    ]
