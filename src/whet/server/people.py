"""Sessions and people over HTTP: who there is, what is kept of them, erasure and retention.

Erasing and retention need the role admin.  What they do, and what they cannot reach, `store/erasure.py` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

import msgspec

from ..errors import StoreError
from ..store import Erased, Store, Subject
from ..tracing.redact import Redactor
from ..types import Json
from .asgi import Request, Response, Role, Route, answer, reads, writes
from .ingest import PAGE, Page

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Kept = Literal["feedback", "experiment", "lineage"]
HOUR = 3_600.0


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """What to keep of a person."""

    id: Id
    meta: dict[str, Json]


class Describe(msgspec.Struct, forbid_unknown_fields=True):
    """People, and what to keep of them in place of what was kept."""

    subjects: Annotated[list[Described], msgspec.Meta(max_length=PAGE)]


class Named(msgspec.Struct):
    """Their ids, in the order given."""

    ids: list[str]


class People(msgspec.Struct):
    """Some of those of whom there is something, by id."""

    subjects: list[Subject]


class Erase(msgspec.Struct, forbid_unknown_fields=True):
    """Whose record to take out."""

    subject: Id


class Retain(msgspec.Struct, forbid_unknown_fields=True):
    """What to take out: all that is older than `days`, but for what is to be kept."""

    days: Annotated[float, msgspec.Meta(ge=0)]
    keep: list[Kept] = msgspec.field(default_factory=lambda: ["feedback", "experiment", "lineage"])


class PeoplePart:
    """Subjects, erasure and retention.

    Args:
        store: the record.
        redactor: takes secrets out of what is kept of a person.
        keep_days: the rule of retention: what is older goes, at the start and every hour; None keeps all.
    """

    def __init__(
        self, store: Store, *, redactor: Redactor | None = None, keep_days: float | None = None
    ) -> None:
        self._store, self._redactor, self._keep_days = store, redactor, keep_days
        self.routes: Sequence[Route] = (
            reads(
                "/api/subjects",
                self._list,
                "The people of whom there is something, by id; those after one",
                People,
                query={"after": str, "limit": Page},
            ),
            writes("/api/subjects", self._put, "Keep something of people", Describe, Named),
            writes(
                "/api/erase",
                self._erase,
                "Take out everything that came from a person, and say what remains",
                Erase,
                Erased,
                role=Role.ADMIN,
            ),
            writes("/api/retain", self._retain, "Take out what is old", Retain, Erased, role=Role.ADMIN),
        )

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Applies the rule of retention, if there is one."""
        rule = None if self._keep_days is None else asyncio.create_task(self._rule(self._keep_days))
        try:
            yield
        finally:
            if rule is not None:
                rule.cancel()
                await asyncio.gather(rule, return_exceptions=True)

    async def _rule(self, days: float) -> None:
        while True:
            try:
                await asyncio.to_thread(lambda: self._store.retain(days=days))
            except StoreError as failure:  # a full disk, for instance: it is tried again
                print(
                    f"whet: what is older than {days:g} days could not be taken out: {failure}",
                    file=sys.stderr,
                )
            await asyncio.sleep(HOUR)

    async def _list(self, request: Request) -> Response:
        after, limit = request.asked("after", str, ""), request.asked("limit", Page, PAGE)
        return answer(People(await asyncio.to_thread(self._store.subjects.list, after=after, limit=limit)))

    async def _put(self, request: Request) -> Response:
        given = (await request.json(Describe)).subjects

        def put() -> None:
            for one in given:
                self._store.subjects.put(one.id, self._clean(one.meta))

        await asyncio.to_thread(put)
        return answer(Named([one.id for one in given]))

    def _clean(self, meta: dict[str, Json]) -> dict[str, Json]:
        clean: dict[str, Json] = meta if self._redactor is None else self._redactor.json(meta)
        return clean

    async def _erase(self, request: Request) -> Response:
        given = await request.json(Erase)
        return answer(await asyncio.to_thread(self._store.erase, given.subject))

    async def _retain(self, request: Request) -> Response:
        given = await request.json(Retain)
        return answer(await asyncio.to_thread(lambda: self._store.retain(days=given.days, keep=given.keep)))
