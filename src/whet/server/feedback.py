"""What people say of runs, over HTTP: of a step, a trajectory, a run, or a whole session; late is fine.

Feedback refers to an id that the agent's side was given, never to "the latest"; that of a run that
has not arrived yet is kept and joined when it does.  Repeating one with its id stores it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

import msgspec

from ..errors import InputError
from ..store import Store
from ..tracing.redact import Redactor
from ..types import Feedback, Json, new_id
from .asgi import Request, Response, Route, answer, reads, writes
from .ingest import PAGE, Page

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Kind = Literal["thumb", "rating", "correction", "demonstration", "preference"]
MOST = 10_000


class Said(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that somebody said.

    A thumb has the value 1 or -1, a rating any number; a correction or demonstration says in
    `correction` what should have been; a preference has there `{"chosen", "rejected"}`.
    """

    run: Id | None = None
    """Id of a run or of a trajectory."""
    session: Id | None = None
    """Id of a conversation, instead of a run."""
    step: Id | None = None
    """A step of that run."""
    kind: Kind = "thumb"
    value: float | None = None
    comment: Annotated[str, msgspec.Meta(max_length=100_000)] = ""
    correction: Json = None
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
        _check(number, said)
        more = {} if said.at is None else {"at": said.at}
        noun = Feedback(
            run=said.run or "",
            session=said.session,
            step=said.step,
            kind=said.kind,
            value=said.value,
            comment=said.comment,
            correction=said.correction,
            id=said.id or new_id(),
            **more,
        )
        return noun if self._redactor is None else self._redactor.feedback(noun)


def _check(number: int, said: Said) -> None:
    """Refuse what could not be used later, while whoever sends it can still mend it.

    Raises:
        InputError: nothing or two things are meant, or the kind lacks what makes it one.
    """
    wrong = ""
    if (said.run is None) == (said.session is None):
        wrong = "name either a run or a session"
    elif said.step is not None and said.run is None:
        wrong = "a step belongs to a run: name the run too"
    elif said.kind == "thumb" and said.value not in (1, -1):
        wrong = f"a thumb has the value 1 or -1, not {said.value!r}"
    elif said.kind == "rating" and (said.value is None or not math.isfinite(said.value)):
        wrong = "a rating needs a value"
    elif said.kind in ("correction", "demonstration") and said.correction is None:
        wrong = f"a {said.kind} says in `correction` what should have been"
    elif said.kind == "preference" and not (
        isinstance(said.correction, dict) and {"chosen", "rejected"} <= set(said.correction)
    ):
        wrong = 'a preference says in `correction` {"chosen": ..., "rejected": ...}'
    if wrong:
        raise InputError(f"feedback {number}: {wrong}")
