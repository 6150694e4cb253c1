"""What people say of runs, over HTTP: of a step, a trajectory, a run, or a whole session; late is fine.

Feedback refers to an id that the agent's side was given, never to "the latest"; that of a run that
has not arrived yet is kept and joined when it does.  Repeating one with its id stores it once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec

from ..errors import InputError
from ..store import Store
from ..tracing.labels import Kind, check_feedback, feedback_kind
from ..tracing.redact import Redactor
from ..types import Feedback, Json, new_id
from .asgi import Request, Response, Route, answer, reads, writes
from .ingest import PAGE, Page

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
MOST = 10_000


class Said(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that somebody said.

    A thumb has the value 1 or -1, a rating any number; a correction or demonstration says in
    `correction` what should have been; a preference has there `{"chosen", "rejected"}`; a comment is one.
    """

    run: Id | None = None
    """Id of a run or of a trajectory."""
    session: Id | None = None
    """Id of a conversation, instead of a run."""
    step: Id | None = None
    """A step of that run."""
    kind: Kind | None = None
    """By what is given, if left out: a thumb or rating, a correction, or a comment."""
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


class Given(msgspec.Struct):
    """Its ids, in the order given."""

    ids: list[str]


class FoundFeedback(msgspec.Struct):
    """What was said."""

    feedback: list[Feedback]


class FeedbackPart:
    """Feedback, in and out.

    Args:
        store: the record.
        redactor: takes secrets out of comments and corrections before they are stored.
    """

    def __init__(self, store: Store, *, redactor: Redactor | None = None) -> None:
        self._store, self._redactor = store, redactor
        self.routes: Sequence[Route] = (
            writes(
                "/api/feedback",
                self._put,
                "Record what people said of steps, runs or sessions",
                GiveFeedback,
                Given,
            ),
            reads(
                "/api/feedback",
                self._list,
                "What was said, of one run or of all, in the order in which it was recorded",
                FoundFeedback,
                query={"run": str, "limit": Page},
            ),
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Nothing runs."""
        yield

    async def _put(self, request: Request) -> Response:
        given = (await request.json(GiveFeedback)).feedback
        nouns = [self._noun(number, said) for number, said in enumerate(given)]
        await asyncio.to_thread(self._store.add_feedback, *nouns)
        return answer(Given([one.id for one in nouns]))

    async def _list(self, request: Request) -> Response:
        run, limit = request.asked("run", str), request.asked("limit", Page, PAGE)

        def read() -> list[Feedback]:
            return [said for said, _ in zip(self._store.feedback(run), range(limit), strict=False)]

        return answer(FoundFeedback(await asyncio.to_thread(read)))

    def _noun(self, number: int, said: Said) -> Feedback:
        more = {} if said.at is None else {"at": said.at}
        try:
            noun = Feedback(
                run=said.run or "",
                session=said.session,
                step=said.step,
                kind=feedback_kind(said.kind, said.value, said.correction),
                value=said.value,
                comment=said.comment,
                correction=None if said.correction is msgspec.UNSET else said.correction,
                id=said.id or new_id(),
                **more,
            )
            check_feedback(noun)
        except InputError as error:
            raise InputError(f"{number}: {error}") from error
        return noun if self._redactor is None else self._redactor.feedback(noun)
