"""The record of a search in the store: one state per proposal, in the order of proposals.

A search that is run again is replayed from here: what is recorded is neither proposed nor judged nor
paid for again, and since every proposal draws from a generator of its own number, what follows is
what would have followed.  Nothing else of a search has to be saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec

from ..store import Store
from ..types import Json, Version
from .program import Program

_BEHIND = 256
"""Commits that the disk may be behind the search; beyond it the search waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What became of one proposal."""

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
    behaviour: str = ""
    score: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    instances: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None
    timeout: bool = False
    evaluated: bool = False
    """It reached the evaluator."""
    cost: float = 0.0
    """In evaluations; see `bandit.py`."""


class Journal:
    """The records of one search.

    Args:
        store: where they are kept.
        run: name of the search; records under the same name belong together.
    """

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run = store, run
        self._waiting: deque[Future[None]] = deque()
        # Asked for once: a search looks twice for each proposal, and mostly in vain.
        begin, end = self._key(""), f"evolution/{run}0"  # 0 is what follows / in the order of keys
        rows = store.rows("SELECT key FROM states WHERE key > ? AND key < ?", [begin, end])
        self._known = {key.removeprefix(begin) for (key,) in rows}

    def __contains__(self, number: int) -> bool:
        """Whether a proposal was committed."""
        return str(number) in self._known

    def load(self, number: int) -> Record | None:
        """The record of a proposal, None if it was not committed."""
        if number not in self:
            return None
        return msgspec.convert(self.store.state(self._key(number)), Record)

    def save(self, record: Record, main: str, parent: str | None) -> None:
        """Commit a record, with its program as a Version; durable by the next `flush`."""
        batch = self.store.batch()
        batch.put_state(self._key(record.number), msgspec.to_builtins(record))
        if record.parts is not None:
            batch.put_versions(as_version(self.run, Program(record.parts, main), parent))
        self._known.add(str(record.number))
        self._waiting.append(batch.submit())
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > _BEHIND):
            self._waiting.popleft().result()

    def flush(self) -> None:
        """Wait until everything is on disk.

        Raises:
            StoreError: it could not be written.
        """
        while self._waiting:
            self._waiting.popleft().result()

    def _key(self, number: int | str) -> str:
        return f"evolution/{self.run}/{number}"


def opened(
    store: Store,
    run: str,
    subject: str,
    made_of: Mapping[str, str],
    notice: Callable[[str], None] | None = None,
) -> Journal:
    """The journal of a search, which says why where it does not go on with the last one about the same subject.

    Args:
        subject: what is made better, in a user's words.
        made_of: what the search depends on → its digest; kept for the next time.
        notice: told, in one line.
    """
    journal, key = Journal(store, run), f"made of/{subject}"
    before = store.state(key, {})
    judged = store.rows("SELECT 1 FROM states WHERE key > 'evolution/' AND key < 'evolution0' LIMIT 1", [])
    if before and judged and 0 not in journal and notice is not None:
        changed = [name for name in {**before, **made_of} if before.get(name) != made_of.get(name)]
        if changed:  # else the last one ended before anything was judged, and nothing is lost
            notice(f"{subject}: begins anew, for this is not what it was: {', '.join(changed)}")
    store.put_state(key, dict(made_of))
    return journal


def as_version(run: str, program: Program, parent: str | None) -> Version:
    """A program as a Version of the resource that the search is about."""
    content: Json = {"main": program.main, "parts": dict(program.parts)}
    return Version(resource=f"evolution/{run}", content=content, kind="program", parent=parent)
