"""What an autopilot did, each step a row in plain sentences, written in one transaction with where the work stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..errors import InputError
from ..escapes import neutral
from ..record.store import Store
from ..types import Json
from .night import Night

_PLACE = re.compile(r"[0-9]{1,6}-[0-9]{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRow:
    """One entry."""

    night: int
    number: int
    at: float
    """Unix time in seconds."""
    issue: str
    """Id of the issue; weights:NAME of the job on weights; "" of the night itself."""
    step: str
    """find, diagnose, propose, prove, shadow, trial, look, ramp, alone, ship, take back; ask; train, gate, release;
    night."""
    sentence: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Ids and figures: Bundle, Verdict, release, branch, spending."""

    def line(self) -> str:
        """As `--journal` prints it."""
        when = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        about = f"{self.issue[:12]:12} " if self.issue else f"{'':12} "
        return neutral(f"{when}  {about} {self.step:9} {self.sentence}")


@dataclass(frozen=True, slots=True)
class NewRow:
    """What a row is to say."""

    sentence: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    issue: str = ""
    work: Mapping[str, Json] | None = None
    """Where the work on the issue stands from now on; None where it stands as before."""


class Journal:
    """The journal of a night, and where the work on each issue stands."""

    def __init__(self, store: Store, night: Night) -> None:
        self._store, self._night = store, night
        self._next = sum(1 for _ in read(store, night.number)) + 1

    def write(
        self,
        step: str,
        sentence: str,
        *,
        issue: str = "",
        work: Mapping[str, Json] | None = None,
        **facts: Json,
    ) -> JournalRow:
        """Add a row, together with where the work on the issue stands from now on; both or neither."""
        (row,) = self.write_together(step, [NewRow(sentence, facts, issue, work)])
        return row

    def write_together(
        self, step: str, rows: Sequence[NewRow], states: Mapping[str, Json] | None = None
    ) -> list[JournalRow]:
        """Add the rows of one step on several issues, with where the work on each stands; all or none.

        Args:
            states: key → value, of what else stands otherwise from now on.
        """
        written = [
            JournalRow(
                night=self._night.number,
                number=number,
                at=self._night.now,
                issue=row.issue,
                step=step,
                sentence=row.sentence,
                facts=row.facts,
            )
            for number, row in enumerate(rows, self._next)
        ]
        with self._store.batch() as batch:
            for row, new in zip(written, rows, strict=True):
                batch.put_state(f"{self._night.prefix}/journal/{row.number:06d}", msgspec.to_builtins(row))
                if new.work is not None:
                    batch.put_state(f"autopilot/work/{new.issue}", dict(new.work))
            for key, value in (states or {}).items():
                batch.put_state(key, value)
        self._next += len(rows)
        return written

    def work(self, issue: str) -> dict[str, Any]:
        """Where the work on an issue stands; empty before the first step."""
        return dict(self._store.state(f"autopilot/work/{issue}") or {})


def read(store: Store, night: int | None = None) -> Iterator[JournalRow]:
    """The rows of a night, oldest first; those of all nights if None."""
    prefix = "autopilot" if night is None else f"autopilot/{night:06d}"
    # ":" follows "9" and "0" follows "/".
    begin, end = (
        (f"{prefix}/0", f"{prefix}/:") if night is None else (f"{prefix}/journal/", f"{prefix}/journal0")
    )
    for _, body in _rows(store, begin, end, -1):
        yield msgspec.json.decode(body, type=JournalRow)


def page(store: Store, after: str, limit: int) -> tuple[list[JournalRow], str]:
    """Rows of all nights behind a place, oldest first.

    Args:
        after: a place that an earlier page gave; "" for the beginning.
        limit: most rows.

    Returns:
        The rows, and the place behind the last of them, behind which later rows will be.

    Raises:
        InputError: that is no place.
    """
    if after and not _PLACE.fullmatch(after):
        raise InputError(
            f"after={after!r:.60} is no place in the journal: give the `next` of an earlier page"
        )
    night, _, number = after.partition("-")
    begin = f"autopilot/{int(night):06d}/journal/{int(number):06d}:" if after else "autopilot/0"
    rows = [
        msgspec.json.decode(body, type=JournalRow) for _, body in _rows(store, begin, "autopilot/:", limit)
    ]
    return rows, f"{rows[-1].night}-{rows[-1].number}" if rows else after


def _rows(store: Store, begin: str, end: str, limit: int) -> Iterator[Any]:
    return iter(
        store.database.rows(
            "SELECT key, body FROM states WHERE key >= ? AND key < ? AND key LIKE '%/journal/%' ORDER BY key LIMIT ?",
            [begin, end, limit],
        )
    )
