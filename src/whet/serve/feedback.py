"""Feedback over HTTP: on a step, a trajectory, a run, or a whole session; it may come late.

Feedback refers to an id that the agent's side was given, never to "the latest"; that on a run which
has not arrived yet is kept and joined when it does.  Repeating one with its id stores it once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Annotated

import msgspec

from ..errors import InputError
from ..record.store import Store
from ..record.store.rollouts import Id
from ..record.tracing.labels import Kind, check_feedback, feedback_kind
from ..types import Feedback, Json, new_id
from .durable import settled
from .http import PAGE, HttpRoute, Page, Passive, Request, Response, answer, reads, writes
from .worker.wire import Added

MOST = 10_000


class Said(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One piece of feedback.

    A thumb has the value 1 or -1, a rating any number; a correction or demonstration has the right answer in
    `correction`; a preference has `{"chosen", "rejected"}` there; a comment needs neither.
    """

    run: Id | None = None
    """Id of a run or of a trajectory."""
    session: Id | None = None
    """Id of a conversation, instead of a run."""
    step: Id | None = None
    """A step of that run."""
    kind: Kind | None = None
    """If left out, it follows from the other fields: a thumb or rating, a correction, or a comment."""
    value: float | None = None
    comment: Annotated[str, msgspec.Meta(max_length=100_000)] = ""
    correction: Json | msgspec.UnsetType = msgspec.UNSET
    """null says that the right answer is null, of the kind `correction`."""
    id: Id | None = None
    at: float | None = None
    """Unix time in seconds; now if None."""


class GiveFeedback(msgspec.Struct, forbid_unknown_fields=True):
    """Feedback to record."""

    feedback: Annotated[list[Said], msgspec.Meta(max_length=MOST)]


class FoundFeedback(msgspec.Struct):
    """Feedback of the record."""

    feedback: list[Feedback]


class FeedbackPart(Passive):
    """Feedback, in and out.

    Args:
        store: the record.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.routes: Sequence[HttpRoute] = (
            writes(
                "/api/feedback",
                self._put,
                "Record feedback on steps, runs or sessions",
                GiveFeedback,
                Added,
                of_run=True,
            ),
            reads(
                "/api/feedback",
                self._list,
                "Feedback on one run or on all, in the order in which it was recorded",
                FoundFeedback,
                query={"run": str, "limit": Page},
            ),
        )

    async def _put(self, request: Request) -> Response:
        sent = (await request.json(GiveFeedback)).feedback
        nouns = [self._noun(number, feedback) for number, feedback in enumerate(sent)]
        if request.grant is not None:
            await asyncio.to_thread(self._check_reached, request, nouns)
        batch = self._store.batch()
        batch.add_feedback(*nouns)
        await settled(batch.submit())
        return answer(Added([noun.id for noun in nouns], dict(batch.redacted)))

    def _check_reached(self, request: Request, nouns: Sequence[Feedback]) -> None:
        """Feedback with the token of a run is on that run, a trajectory of it, or a session that nobody else's run had.

        Raises:
            Refused: it is on something else.
        """
        grant = request.grant
        assert grant is not None
        for noun in nouns:
            if noun.run and grant.reaches(noun.run):
                continue
            meant = {"ids": [noun.run]} if noun.run else {"session": noun.session}
            recorded = self._store.trajectories(**meant)
            runs = {str(trajectory.meta.get("run") or trajectory.id) for trajectory in recorded}
            # A run that is not recorded yet is known by its name alone, and this one is not reached by it.
            for run in runs or ({noun.run} if noun.run else ()):
                request.own_run(run)

    async def _list(self, request: Request) -> Response:
        run, limit = request.parameter("run", str), request.parameter("limit", Page, PAGE)

        def read() -> list[Feedback]:
            return [*itertools.islice(self._store.feedback(run), limit)]

        return answer(FoundFeedback(await asyncio.to_thread(read)))

    def _noun(self, number: int, sent: Said) -> Feedback:
        # Left out, not passed as None: `Feedback.at` has a default of its own, the time of now.
        more = {} if sent.at is None else {"at": sent.at}
        try:
            noun = Feedback(
                run=sent.run or "",
                session=sent.session,
                step=sent.step,
                kind=feedback_kind(sent.kind, sent.value, sent.correction),
                value=sent.value,
                comment=sent.comment,
                correction=None if sent.correction is msgspec.UNSET else sent.correction,
                id=sent.id or new_id(),
                **more,
            )
            check_feedback(noun)
        except InputError as error:
            raise InputError(f"{number}: {error}") from error
        return noun
