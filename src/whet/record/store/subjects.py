"""The people that runs served: an id, and metadata that the user's program keeps of them.

An id needs no entry here: whoever `Trajectory.subject` names is listed.  The metadata of a person is deleted with
the person (`Store.erase`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ...errors import InputError
from ...types import Json
from .batch import Batch
from .database import Database
from .schema import SUBJECTS

LONGEST = 200
"""Characters of an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A person, and how many trajectories there are of theirs."""

    id: str
    meta: dict[str, Json] = field(default_factory=dict)
    trajectories: int = 0


class Subjects:
    """`Store.subjects`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, id: str, meta: Mapping[str, Json]) -> None:
        """Keep metadata of a person, in place of earlier metadata.

        Raises:
            InputError: the id is empty or longer than `LONGEST`, or something has no JSON form.
        """
        if not 0 < len(id) <= LONGEST:
            raise InputError(f"a subject's id must have 1 to {LONGEST} characters, not {len(id)}")
        with Batch(self._database) as batch:
            batch.put_state(f"{SUBJECTS}{id}", dict(meta), learned=False)

    def list(self, *, after: str = "", limit: int | None = None) -> list[Subject]:
        """Everyone of whom something is recorded, by id.

        Args:
            after: only ids that come after this one.
            limit: at most so many.
        """
        rows = self._database.rows(
            "SELECT id, max(meta), sum(runs) FROM ("
            "SELECT subject AS id, NULL AS meta, count(*) AS runs FROM trajectories "
            "WHERE subject IS NOT NULL AND subject > ?1 GROUP BY subject "
            "UNION ALL SELECT substr(key, ?3), body, 0 FROM states WHERE key > ?4 || ?1 AND key < ?5) "
            "GROUP BY id ORDER BY id LIMIT ?2",
            # "0" is what comes after "/": the end of the keys with the prefix.
            [after, -1 if limit is None else limit, len(SUBJECTS) + 1, SUBJECTS, SUBJECTS[:-1] + "0"],
        )
        return [
            Subject(id=id, meta={} if meta is None else msgspec.json.decode(meta), trajectories=runs)
            for id, meta, runs in rows
        ]
