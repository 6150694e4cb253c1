"""The records of a search: one entry of the log per proposal, in the order of proposals.

A search that is run again is replayed from here: what is recorded is neither proposed nor judged nor
paid for again, and since every proposal draws from a generator of its own number, what follows is
what would have followed.  Nothing else of a search has to be saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from ....record.store import Log
from .judging import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRecord(Judgement):
    """The fate and the judgement of one proposal."""

    number: int
    operator: str
    status: str
    """`scored`, `duplicate` (of text or behaviour), `failed` (it does not run, or has no score) or
    `nothing` (no change came)."""
    parent: int | None = None
    donor: int | None = None
    island: int = 0
    parts: Mapping[str, str] | None = None
    """The program; None where it was not kept: only what has a score can become a parent."""
    id: str = ""
    shape: str = ""
    evaluated: bool = False
    """It reached the evaluator."""
    cost: float = 0.0
    """In evaluations; see `bandit.py`."""
    rollouts: int = 0
    """That judging it took, those tried again after a failure of the machine among them."""
    swept: str = ""
    """Program whose single edits it tried (`sweep.Sweep.key`), "" where it tried none."""
    tried: int = 0
    """Edits of it that it tried side by side."""
    halves: tuple[int, ...] = ()
    """Those of them that are perhaps half of a repair."""
    beside: int = 0
    """Programs that it had judged beside this one."""


class SearchProgress(Protocol):
    """Called with every committed record and the function that it is about."""

    def __call__(self, name: str, record: ProposalRecord, *, search: int = 0, searches: int = 1) -> None: ...


class Records:
    """The records of one search in a log.

    Args:
        run: name of the search; records under the same name belong together.
    """

    def __init__(self, log: Log | None = None, run: str = "search") -> None:
        self.log, self.run = log if log is not None else Log(), run

    def __contains__(self, number: int) -> bool:
        """True if the proposal was committed."""
        return self._key(number) in self.log

    def load(self, number: int) -> ProposalRecord | None:
        """The record of a proposal, None if it was not committed."""
        return msgspec.convert(self.log.get(self._key(number)), ProposalRecord) if number in self else None

    def save(self, record: ProposalRecord) -> None:
        """Commit a record; durable by the next `flush`."""
        self.log.put(self._key(record.number), msgspec.to_builtins(record))

    def flush(self) -> None:
        """Wait until everything is on disk.

        Raises:
            StoreError: it could not be written.
        """
        self.log.flush()

    def _key(self, number: int) -> str:
        return f"{self.run}/{number}"


def opened(
    log: Log, run: str, subject: str, made_of: Mapping[str, str], notice: Callable[[str], None] | None = None
) -> Records:
    """The records of a search, which says why where it does not go on with the last one about the same subject.

    Args:
        run: digest of all that the search depends on.
        subject: what is made better, in a user's words.
        made_of: what the search depends on → its digest; entered for the next time.
        notice: told, in one line.
    """
    records, begin = Records(log, run), f"made of/{subject}/"
    earlier = [(log.get(key), key.removeprefix(begin)) for key in log if key.startswith(begin)]
    if earlier and 0 not in records and notice is not None:
        before, last = max(earlier, key=lambda search: search[0]["order"])
        was = before["of"]
        changed = [name for name in {**was, **made_of} if was.get(name) != made_of.get(name)]
        if changed and 0 in Records(
            log, last
        ):  # else it ended before anything was judged, and nothing is lost
            notice(f"{subject}: begins anew, for this is not what it was: {', '.join(changed)}")
    log.put(f"{begin}{run}", {"order": len(earlier), "of": dict(made_of)})
    return records
