"""People over HTTP: their ids and metadata, erasure and retention.

Erasure and retention need the role admin; `record/store/erasure.py` says what they do and what they cannot reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

import msgspec

from ..errors import StoreError
from ..record.store import Erased, Store, Subject
from ..record.store.rollouts import Id
from ..types import Json
from .http import PAGE, HttpRoute, Page, Request, Response, Role, answer, reads, writes
from .worker.wire import Added

# The words of `retention.KEEP`, written out because a type needs literals.
Kept = Literal["feedback", "experiment", "lineage"]
HOUR = 3_600.0


class Described(msgspec.Struct, forbid_unknown_fields=True):
    """A person and their metadata."""

    id: Id
    meta: dict[str, Json]


class Describe(msgspec.Struct, forbid_unknown_fields=True):
    """People with metadata, which replaces earlier metadata."""

    subjects: Annotated[list[Described], msgspec.Meta(max_length=PAGE)]


class People(msgspec.Struct):
    """People of whom something is recorded, by id."""

    subjects: list[Subject]


class Erase(msgspec.Struct, forbid_unknown_fields=True):
    """The person whose record to delete."""

    subject: Id


class Retain(msgspec.Struct, forbid_unknown_fields=True):
    """Delete what is older than `days`, except what `keep` names."""

    days: Annotated[float, msgspec.Meta(ge=0)]
    keep: list[Kept] = msgspec.field(default_factory=lambda: ["feedback", "experiment", "lineage"])


class PeoplePart:
    """Subjects, erasure and retention.

    Args:
        store: the record.
        keep_days: retention: runs older than this are deleted at the start and every hour; None keeps all.
    """

    def __init__(self, store: Store, *, keep_days: float | None = None) -> None:
        self._store, self._keep_days = store, keep_days
        self.routes: Sequence[HttpRoute] = (
            reads(
                "/api/subjects",
                self._list,
                "People of whom something is recorded, by id; those after one",
                People,
                query={"after": str, "limit": Page},
            ),
            writes("/api/subjects", self._put, "Keep metadata of people", Describe, Added),
            writes(
                "/api/erase",
                self._erase,
                "Delete everything that came from a person, and report what remains",
                Erase,
                Erased,
                role=Role.ADMIN,
            ),
            writes("/api/retain", self._retain, "Delete what is old", Retain, Erased, role=Role.ADMIN),
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
            except StoreError as failure:  # a full disk, for instance: it is retried
                print(
                    f"whet: runs older than {days:g} days could not be deleted: {failure}",
                    file=sys.stderr,
                )
            await asyncio.sleep(HOUR)

    async def _list(self, request: Request) -> Response:
        after, limit = request.parameter("after", str, ""), request.parameter("limit", Page, PAGE)
        return answer(People(await asyncio.to_thread(self._store.subjects.list, after=after, limit=limit)))

    async def _put(self, request: Request) -> Response:
        subjects = (await request.json(Describe)).subjects

        def put() -> None:
            for subject in subjects:
                self._store.subjects.put(subject.id, subject.meta)

        await asyncio.to_thread(put)
        return answer(Added([subject.id for subject in subjects]))

    async def _erase(self, request: Request) -> Response:
        subject = (await request.json(Erase)).subject
        return answer(await asyncio.to_thread(self._store.erase, subject))

    async def _retain(self, request: Request) -> Response:
        rule = await request.json(Retain)
        return answer(await asyncio.to_thread(lambda: self._store.retain(days=rule.days, keep=rule.keep)))
