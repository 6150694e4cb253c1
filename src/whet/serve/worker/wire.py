"""The bodies of `/api/rollouts`, for the server, the worker and other clients.

Rollout and Lease themselves are nouns (`types.py`), a Claim is the store's; here are the requests and answers
around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ...record.store.rollouts import MOST, Claim, Id, Seconds
from ...types import Failure, Json, Lease, Mode, Rollout, Task, Trajectory, Version

# SQLite's integers end there: a greater one was an error of the record and not of the request.
Fence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


# A new field is refused by an older server: omit_defaults sends it only where it is used.
class StrictBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A body in which a misspelt field is refused rather than ignored."""


class Problem(msgspec.Struct):
    """The reason of a refusal."""

    type: str
    """A stable word for programs."""
    message: str
    """For people: what failed, what was given, what to do."""


class RefusalBody(msgspec.Struct):
    """The body of every answer of 400 and above."""

    error: Problem


class RunTokenRequest(StrictBody):
    """The wish for a token of one run."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=31 * 86_400)] = 3_600.0
    """Time that it is good for."""
    renew: Annotated[str, msgspec.Meta(max_length=2_000)] | None = None
    """A token that this server made for the run, to be good for that long from now; also one that has expired."""


class RevokedToken(StrictBody):
    """A run's token that is not to be accepted any more."""

    token: Annotated[str, msgspec.Meta(max_length=2_000)]


class RunToken(msgspec.Struct):
    """A token of one run."""

    token: str
    run: str
    until: float
    """Unix time in seconds; 0 of one that was revoked."""


class NewRollout(StrictBody):
    """A rollout to queue; one whose id is known is left as it is."""

    task: Task
    id: Id | None = None
    mode: Mode = "train"
    resources: Id | None = None
    """Id of the Bundle to run under; None is the one that is live at the claim."""
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    meta: dict[str, Json] = {}


class Add(StrictBody):
    """Rollouts to queue."""

    rollouts: Annotated[list[NewRollout], msgspec.Meta(max_length=MOST)]


class Added(msgspec.Struct, omit_defaults=True):
    """Ids of the items of the request, in its order."""

    ids: list[str]
    redacted: dict[str, int] = msgspec.field(default_factory=dict)
    """Rule → secrets that were taken out of them before they were recorded."""


class Claimed(msgspec.Struct):
    """The leases of a claim, perhaps none."""

    leases: Sequence[Lease]


class Withdraw(StrictBody):
    """A worker that is stopped withdraws its waiting claims: each is answered at once, empty or with the
    leases that it had just been given.  Cutting the connection would leave that in doubt."""

    worker: Id


class Withdrawn(msgspec.Struct):
    """The number of claims that were waiting."""

    claims: int


class Held(StrictBody):
    """One lease, named by its rollout and its fence."""

    id: Id
    fence: Fence


class Beat(StrictBody):
    """Keep leases for longer."""

    leases: Annotated[list[Held], msgspec.Meta(max_length=MOST)]
    lease: Seconds = 60.0


class Beaten(msgspec.Struct):
    """Until when each is held (Unix time in seconds), None for one that is lost."""

    until: list[float | None]


class FinishRequest(StrictBody):
    """The report of one rollout: a trajectory, an error, or both.

    The same report may be sent again and is recorded once.  The trajectory's task, its id, its Versions and
    whose run it is the queue knows: they may be left out and are recorded as the queue has them; what was
    sent otherwise stands in `meta.mismatch`.  Without `started` it began when it was claimed.
    """

    id: Id
    fence: Fence
    trajectory: Trajectory | None = None
    error: Failure | None = None
    spans: bytes = b""
    """An OTLP export of the spans that the agent made (ExportTraceServiceRequest, protobuf; base64 in
    JSON), kept in the same commit; a report that is refused leaves none of them.  They are the rollout's
    run, unless they name another."""
    own: dict[str, str] = {}
    """Resource name → id of the Version of the program's own that it read; names that the rollout's Bundle
    has are passed over."""


class FinishMany(StrictBody):
    """The reports of several rollouts."""

    finished: Annotated[list[FinishRequest], msgspec.Meta(max_length=MOST)]
    claim: Claim | None = None
    """Ask for more in the same commit: half the requests and flushes of a busy worker.  It is answered
    at once, with nothing if nothing waits, whatever `wait` says."""


class OneBeat(StrictBody):
    """Keep the one lease that the path names."""

    fence: Fence
    lease: Seconds = 60.0


class OneFinish(StrictBody):
    """The report of the one rollout that the path names."""

    fence: Fence
    trajectory: Trajectory | None = None
    error: Failure | None = None
    spans: bytes = b""
    own: dict[str, str] = {}
    """As in `FinishRequest`, like `spans`."""


class FinishResult(msgspec.Struct):
    """The answer to one finish; `stale` where its lease had gone to somebody else."""

    id: str
    taken: bool
    stale: bool = False
    message: str = ""


class Results(msgspec.Struct):
    """One for each finish, in the order given."""

    results: list[FinishResult]
    leases: Sequence[Lease] = ()
    """The leases of the claim that came along."""


class RolloutPage(msgspec.Struct):
    """A page of rollouts; `after` of the next page."""

    rollouts: Sequence[Rollout]
    after: int | None = None


class NewBundle(StrictBody):
    """A Bundle to record: contents by name, Versions, or both."""

    resources: Annotated[dict[str, Json], msgspec.Meta(max_length=MOST)] = {}
    """Name → content; a text is a prompt."""
    versions: Annotated[list[Version], msgspec.Meta(max_length=MOST)] = []


class BundleBody(msgspec.Struct):
    """A recorded Bundle."""

    id: str
    versions: Sequence[Version]
