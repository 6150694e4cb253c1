"""Bundles, Verdicts and the release log over HTTP.

Recording a Bundle changes nothing that runs; releasing one does, and is for the role admin.  Versions of a kind
that a program may load code or files by are taken from that role alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from ..errors import InputError
from ..record.diffs import changed, diff
from ..record.store import Release, Stage, Store, bundle_of
from ..record.store.batch import redactor_of
from ..record.store.bundles import EMPTY, checked, read_verdict, refuse_secrets
from ..record.store.ids import whole_of
from ..record.store.redaction.redact import Redactor
from ..types import Bundle, Json, Verdict
from .http import HttpRoute, Passive, Refused, Request, Response, Role, answer, reads, writes
from .worker import wire

PLAIN_KINDS = ("prompt", "value")
"""Kinds of Versions that are only data to their readers."""


class NewRelease(wire.NewBundle):
    """A release: of a recorded Bundle by its id, or of a Bundle given as for recording."""

    bundle: str | None = None
    verdict: dict[str, Json] | None = None
    """On this Bundle; the newest recorded one if None."""
    unproven: bool = False
    new_names: bool = False
    reason: str = ""
    stage: Stage = Stage.LIVE
    """shadow, canary or live."""
    share: float | None = None
    """Of a canary (0.1) or a shadow (1)."""
    unit: str = "session"
    """What a canary is drawn by: session, subject or run."""


class Ended(msgspec.Struct, forbid_unknown_fields=True):
    """The end of a trial."""

    id: str
    """Of the release, or of its Bundle."""
    reason: str = "taken back"


class VersionChange(msgspec.Struct):
    """Ids of a resource's Versions in two states of the agent; null where it has none."""

    before: str | None
    after: str | None


class Differences(msgspec.Struct):
    """What differs between two states of the agent."""

    changed: dict[str, VersionChange]
    """By resource name."""
    diff: str
    """A unified diff of the readable contents."""


class Back(msgspec.Struct, forbid_unknown_fields=True):
    """A rollback, with the reason for the log."""

    reason: str = "rollback"


class NewVerdict(msgspec.Struct, forbid_unknown_fields=True):
    """A Verdict to record."""

    verdict: dict[str, Json]
    experiment: str = ""


class Verdicts(msgspec.Struct):
    """Verdicts in the order in which they were recorded."""

    verdicts: Sequence[Verdict]


class ReleaseEntry(msgspec.Struct):
    """One entry of the release log."""

    id: str
    bundle: str
    versions: dict[str, str]
    """Resource name → Version id."""
    previous: str | None
    at: float
    reason: str
    verdict: str | None
    unproven: bool
    stage: Stage
    share: float
    unit: str
    candidate: str
    """Id of the Bundle as it was released."""
    trial: str
    """Id of the first entry of the same trial."""


class ReleaseLog(msgspec.Struct):
    """Entries of the release log, oldest first."""

    releases: Sequence[ReleaseEntry]


class ReleasesPart(Passive):
    """Bundles, Verdicts and releases.

    Args:
        store: the record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        verdicts = {"candidate": str}
        self.routes: Sequence[HttpRoute] = (
            writes(
                "/api/bundles",
                self._put,
                "Record a Bundle, without releasing it",
                wire.NewBundle,
                wire.BundleBody,
            ),
            reads(
                "/api/bundles/live",
                self._live,
                "The live Bundle; one without Versions is the agent as it came",
                wire.BundleBody,
                of_run=True,
            ),
            reads("/api/bundles/{id}", self._get, "A recorded Bundle", wire.BundleBody),
            writes("/api/verdicts", self._judged, "Record a Verdict", NewVerdict, Verdicts, role=Role.ADMIN),
            reads("/api/verdicts", self._verdicts, "Verdicts on a Bundle, or all", Verdicts, query=verdicts),
            reads(
                "/api/releases",
                self._log,
                "What was live, the last entry now; with `stage` what is on trial (trial), or the whole log (all)",
                ReleaseLog,
                query={"stage": str},
            ),
            reads(
                "/api/releases/diff",
                self._diff,
                "What differs between two Bundles, Versions, Verdicts, releases, live or live~1",
                Differences,
                query={"a": str, "b": str},
            ),
            writes(
                "/api/releases",
                self._release,
                "Make a Bundle live, or try it as a shadow or canary: proven, or marked as unproven",
                NewRelease,
                wire.BundleBody,
                role=Role.ADMIN,
            ),
            writes(
                "/api/releases/retire",
                self._retire,
                "End a shadow or canary",
                Ended,
                ReleaseEntry,
                role=Role.ADMIN,
            ),
            writes(
                "/api/releases/rollback",
                self._rollback,
                "Go back to the previous release, at last to the agent as it came",
                Back,
                wire.BundleBody,
                role=Role.ADMIN,
            ),
        )

    async def _put(self, request: Request) -> Response:
        bundle = _bundle(await request.json(wire.NewBundle), request, redactor_of(self._store.database))
        await asyncio.to_thread(self._store.put_bundle, bundle)
        return _recorded(bundle)

    async def _live(self, request: Request) -> Response:
        return _recorded(await asyncio.to_thread(lambda: self._store.live() or EMPTY))

    async def _get(self, request: Request) -> Response:
        return _recorded(await asyncio.to_thread(self._store.bundle, request.params["id"]))

    async def _judged(self, request: Request) -> Response:
        sent = await request.json(NewVerdict)
        verdict = read_verdict(sent.verdict, "this request")
        await asyncio.to_thread(lambda: self._store.put_verdict(verdict, experiment=sent.experiment))
        return answer(Verdicts([verdict]))

    async def _verdicts(self, request: Request) -> Response:
        candidate = request.parameter("candidate", str)
        return answer(Verdicts(await asyncio.to_thread(lambda: [*self._store.verdicts(candidate=candidate)])))

    async def _log(self, request: Request) -> Response:
        stage = request.parameter("stage", str) or "live"
        read = {
            "live": self._store.history,
            "trial": self._store.on_trial,
            "all": self._store.release_log,
        }.get(stage)
        if read is None:
            raise InputError(f"stage is {stage!r}; give live, trial or all")
        return answer(ReleaseLog([_entry(release) for release in await asyncio.to_thread(read)]))

    async def _diff(self, request: Request) -> Response:
        a, b = (request.parameter(name, str) or "live" for name in ("a", "b"))
        before, after = await asyncio.to_thread(lambda: (whole_of(self._store, a), whole_of(self._store, b)))
        return answer(
            Differences(
                {name: VersionChange(*ids) for name, ids in changed(before, after).items()},
                diff(before, after),
            )
        )

    async def _retire(self, request: Request) -> Response:
        sent = await request.json(Ended)
        return answer(
            _entry(await asyncio.to_thread(lambda: self._store.retire(sent.id, reason=sent.reason)))
        )

    async def _release(self, request: Request) -> Response:
        sent = await request.json(NewRelease)
        fresh = _bundle(sent, request, redactor_of(self._store.database))
        verdict = None if sent.verdict is None else read_verdict(sent.verdict, "this request")

        def release() -> Bundle:
            recorded = EMPTY if sent.bundle is None else self._store.bundle(sent.bundle)
            return self._store.release(
                recorded.put(*fresh.values()),
                verdict,
                stage=sent.stage,
                share=sent.share,
                unit=sent.unit,
                unproven=sent.unproven,
                new_names=sent.new_names,
                reason=sent.reason,
            ).bundle

        return _recorded(await asyncio.to_thread(release))

    async def _rollback(self, request: Request) -> Response:
        body = await request.body()
        reason = request.parsed(body, Back).reason if body else Back().reason
        return _recorded(await asyncio.to_thread(lambda: self._store.rollback(reason=reason)))


def _entry(release: Release) -> ReleaseEntry:
    bundle = release.bundle
    return ReleaseEntry(
        release.id,
        bundle.id,
        bundle.ids,
        release.previous,
        release.at,
        release.reason,
        release.verdict,
        release.unproven,
        release.stage,
        release.share,
        release.unit,
        release.candidate,
        release.trial,
    )


def _bundle(sent: wire.NewBundle, request: Request, redactor: Redactor | None) -> Bundle:
    """The Bundle of a request.

    Raises:
        InputError: a content has no JSON form or holds a secret, or a Version is not what its id says.
        Refused: a Version is of a kind that only the role admin may bring.
    """
    # `resources` need no look: by name alone only prompts and values are made (`bundle_of`).
    strange = sorted({version.kind for version in sent.versions} - set(PLAIN_KINDS))
    if strange and request.role is not Role.ADMIN:
        raise Refused(
            403,
            "forbidden",
            f"Versions of kind {strange[0]!r} are taken with the role admin only; a program may load them",
        )
    bundle = bundle_of(sent.resources).put(*checked(sent.versions, "this request").values())
    refuse_secrets(bundle, redactor)
    return bundle


def _recorded(bundle: Bundle) -> Response:
    return answer(wire.BundleBody(bundle.id, list(bundle.values())))
