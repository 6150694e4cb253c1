"""Recording what an agent does, and handles on what can be improved in it."""

from ..store.redaction.current import redact_with
from ..tools import Effect
from .live import current_bundle, load_bundle, save_bundle, set_live_bundle, using
from .record import Run
from .replay import Diverged, Replay, ReplayedError
from .resources import (
    ImportTimeRead,
    Resource,
    attach,
    evolve,
    import_time_reads,
    register_loader,
    resource,
    resources,
)
from .sink import dropped, flush, record_to
from .trace import collecting, feedback, propagate, recorded_in, run, step, trace

__all__ = [
    "Diverged",
    "Effect",
    "ImportTimeRead",
    "Replay",
    "ReplayedError",
    "Resource",
    "Run",
    "attach",
    "collecting",
    "current_bundle",
    "dropped",
    "evolve",
    "feedback",
    "flush",
    "import_time_reads",
    "load_bundle",
    "propagate",
    "record_to",
    "recorded_in",
    "redact_with",
    "register_loader",
    "resource",
    "resources",
    "run",
    "save_bundle",
    "set_live_bundle",
    "step",
    "trace",
    "using",
]
