"""Search over mails: a MailIndex on in-memory SQLite FTS5, and the MailWorld of mailboxes it serves.

An index is asked about a million times in a training run, so everything that
does not depend on the words (who a sender pattern matches, which mails are
of a month, which words a mail holds) is kept as sets, and a query's ranking
is remembered.  `without` is applied after the search, so that questions which
withhold different mails share one memory.  Words are data: they are reduced
to letters and digits and quoted before FTS5 sees them.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Literal
from weakref import WeakValueDictionary

from ...errors import InputError, NotFoundError
from ...types import Json, Task
from .parse import Mail

Match = Literal["all", "any"]

_WORD = re.compile(r"[^\W_]+")
_SLACK = 12
"""Hits remembered beyond the ten shown, so that withholding a few mails does not ask SQLite again."""
_FEW = 16
"""Mails of a word that are kept as a tuple."""
_REMEMBERED = 24_000
"""Queries per index; some 2 KB each."""


@lru_cache(maxsize=65_536)
def tokens(text: str) -> tuple[str, ...]:
    """The words of a short text as the index knows them: lower case, no accents, letters and digits."""
    return tuple(_tokens(text))


def _tokens(text: str) -> list[str]:
    return [intern(word) for word in _WORD.findall(_folded(text))]  # a mailbox holds each of them many times


def _folded(text: str) -> str:
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in decomposed if not unicodedata.combining(char))
    return text.lower()


def words_outside(text: str, links: re.Pattern[str]) -> list[str]:
    """The text's words as the index knows them, without those that a match of `links` touches.

    To cut the matches out and split what is left would make words that no mail holds: `guitars` of
    `20guitars` in an undecoded `=20guitars`, the end of a link longer than the pattern.
    """
    folded = _folded(text)
    cuts = [match.span() for match in links.finditer(folded)]
    words: list[str] = []
    at = 0
    for word in _WORD.finditer(folded):
        while at < len(cuts) and cuts[at][1] <= word.start():
            at += 1
        if at == len(cuts) or cuts[at][0] >= word.end():
            words.append(word[0])
    return words


def _spelled(word: str) -> str:
    """The word as FTS5 gets it: which letters there are is for `_WORD` alone, FTS5 knows fewer alphabets."""
    return word if word.isascii() else f"x{word.encode('utf-8', 'surrogatepass').hex()}"


class MailWords:
    """The words of mails, each mail's set kept once for all indexes that hold it."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[frozenset[str], frozenset[str]]] = {}

    def of(
        self, mail: Mail, subject: Iterable[str], body: Iterable[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Those of the subject, and all of the mail."""
        key = (mail.mailbox, mail.id)
        if key not in self._of:
            heading = frozenset(subject)
            self._of[key] = heading, heading.union(body)
        return self._of[key]


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a search; no text of the body, which has to be read."""

    id: str
    sender: str
    sender_name: str
    date: datetime | None
    subject: str
    matched: frozenset[str]
    """Which of the words occur in the mail, as the index knows them."""
    in_subject: int
    """The number of the words that occur in its subject."""
    rank: float
    """BM25, lower is better; 0.0 where there were no words."""

    @property
    def hits(self) -> int:
        """The number of the words that occur in the mail."""
        return len(self.matched)


class MailIndex:
    """Mails, searchable.  `search` may be called from several threads."""

    def __init__(self, mails: Iterable[Mail], words: MailWords | None = None) -> None:
        """
        Args:
            words: shared with other indexes over the same mails.

        Raises:
            InputError: two mails have the same id.
        """
        self.mails: tuple[Mail, ...] = tuple(mails)
        self.rows: dict[str, int] = {mail.id: row for row, mail in enumerate(self.mails)}
        if len(self.rows) != len(self.mails):
            raise InputError(
                "two mails have the same id; give the mails of one Reading, or of several made distinct"
            )
        # Not `tokens`: bodies would push short texts out of its cache.
        texts = [(_tokens(mail.subject), _tokens(mail.body)) for mail in self.mails]
        words = words or MailWords()
        held = [words.of(mail, *text) for mail, text in zip(self.mails, texts, strict=True)]
        self.subject_tokens: list[frozenset[str]] = [subject for subject, _ in held]
        self.tokens: list[frozenset[str]] = [text_tokens for _, text_tokens in held]
        postings: dict[str, list[int]] = {}
        for row, text_tokens in enumerate(self.tokens):
            for word in text_tokens:
                postings.setdefault(word, []).append(row)
        # Most words are in few mails, where a set would be six times a tuple.
        self.postings: dict[str, tuple[int, ...] | frozenset[int]] = {
            word: tuple(rows) if len(rows) <= _FEW else frozenset(rows) for word, rows in postings.items()
        }
        self._senders = [f"{mail.sender_name} <{mail.sender}>".lower() for mail in self.mails]
        self._newest = sorted(range(len(self.mails)), key=self._age)
        self._scores: dict[str, dict[int, float]] = {}
        self._lock = threading.Lock()
        # Threads share the connection, one at a time (`_lock`).
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        # The connection's own method: one of this object would keep it alive forever.
        weakref.finalize(self, self._database.close)
        self._database.execute("CREATE VIRTUAL TABLE mail USING fts5(subject, body, content='')")
        self._database.executemany(
            "INSERT INTO mail(rowid, subject, body) VALUES (?, ?, ?)",
            (
                (row, " ".join(map(_spelled, subject)), " ".join(map(_spelled, body)))
                for row, (subject, body) in enumerate(texts)
            ),
        )
        # One b-tree in place of many: every later query is a read of it.
        self._database.execute("INSERT INTO mail(mail) VALUES ('optimize')")
        # Caches of the instance: one on the method would keep every index alive, and be shared by all.
        self._ranked = lru_cache(maxsize=_REMEMBERED)(self._rank)
        self.sent_by: Callable[[str], frozenset[int]] = lru_cache(maxsize=65_536)(self._sent_by)

    @property
    def size(self) -> int:
        """Number of mails."""
        return len(self.mails)

    def search(
        self,
        words: Sequence[str],
        *,
        match: Match = "all",
        sender: str | None = None,
        month: int | None = None,
        year: int | None = None,
        since: date | None = None,
        until: date | None = None,
        without: Set[str] = frozenset(),
        limit: int = 10,
    ) -> list[Hit]:
        """The best mails for the words, by BM25 with a word in the subject counting eight times.

        Args:
            words: searched in subject and body. `pg&e` is the two words pg and e.
            match: whether all words must occur, or any of them.
            sender: part of the address or of the display name, whatever its case.
            month: 1 to 12, of any year.
            since, until: first and last day of sending, both included.
            without: ids that are not there for this question.
            limit: at most this many.

        Returns:
            Hits, best first; the newest first if no words are given.

        Raises:
            InputError: month, match or limit out of range.
        """
        if match not in ("all", "any"):
            raise InputError(f"match is {match!r}; it can be 'all' or 'any'")
        if month is not None and not 1 <= month <= 12:
            raise InputError(f"month is {month!r}; it can be 1 to 12")
        if limit < 1:
            raise InputError(f"limit is {limit!r}; it must be at least 1")
        key = (tuple(words), match, sender, month, year, since, until)
        ranked = self._ranked(*key, limit + _SLACK)
        hits = [hit for hit in ranked if hit.id not in without][:limit] if without else ranked[:limit]
        if len(hits) < limit and len(ranked) == limit + _SLACK:
            hits = [hit for hit in self._ranked(*key, self.size) if hit.id not in without][:limit]
        return list(hits)

    def read(self, id: str) -> Mail:
        """The mail with this id.

        Raises:
            NotFoundError: there is none.
        """
        row = self.rows.get(id)
        if row is None:
            raise NotFoundError(f"no mail has the id {id!r}; give an id that a search returned")
        return self.mails[row]

    def document_frequency(self, word: str) -> int:
        """In how many mails the word occurs (all its parts, if it has several)."""
        parts = tokens(word)
        if len(parts) == 1:
            return len(self.postings.get(parts[0], ()))
        return len(self.holding(parts)) if parts else 0

    def holding(self, words: Iterable[str]) -> frozenset[int]:
        """Rows of the mails that hold all these tokens; of all mails if there are none."""
        rows: frozenset[int] | None = None
        for posting in sorted((self.postings.get(word, ()) for word in words), key=len):
            rows = frozenset(posting) if rows is None else rows.intersection(posting)
        return frozenset(range(self.size)) if rows is None else rows

    def missing(self, words: Iterable[str], id: str) -> list[str]:
        """Those of the words that do not occur in the mail.

        Raises:
            NotFoundError: no such mail.
        """
        self.read(id)
        held = self.tokens[self.rows[id]]
        return [word for word in words if not held.issuperset(tokens(word))]

    def _age(self, row: int) -> float:
        sent = self.mails[row].date
        return -sent.timestamp() if sent else float("inf")

    def _sent_by(self, sender: str) -> frozenset[int]:
        """Rows of the mails whose sender's name or address holds this."""
        part = sender.lower().strip()
        return frozenset(row for row, sender_line in enumerate(self._senders) if part in sender_line)

    def _rank(
        self,
        words: tuple[str, ...],
        match: Match,
        sender: str | None,
        month: int | None,
        year: int | None,
        since: date | None,
        until: date | None,
        limit: int,
    ) -> list[Hit]:
        parts = tuple(dict.fromkeys(part for word in words for part in tokens(word)))
        if words and not parts:
            return []
        allowed = self.sent_by(sender) if sender and sender.strip() else None
        dated = not (month is None and year is None and since is None and until is None)
        rows: Iterable[tuple[float, int]] = ((0.0, row) for row in self._newest)
        if parts:
            scores = self._scored(parts, match)
            if allowed is not None:
                scores = {row: score for row, score in scores.items() if row in allowed}
            ranked = ((score, row) for row, score in scores.items())
            # Days are looked at one by one below, so where they are given the best few are not enough.
            rows = sorted(ranked) if dated else heapq.nsmallest(limit, ranked)
        hits: list[Hit] = []
        query = frozenset(parts)
        for rank, row in rows:
            if allowed is not None and row not in allowed:  # where there were no words to rank by
                continue
            mail = self.mails[row]
            if dated and not _within(mail.date, month, year, since, until):
                continue
            matched, inside = query & self.tokens[row], len(query & self.subject_tokens[row])
            hits.append(
                Hit(mail.id, mail.sender, mail.sender_name, mail.date, mail.subject, matched, inside, rank)
            )
            if len(hits) == limit:
                break
        return hits

    def _scored(self, parts: Sequence[str], match: Match) -> dict[int, float]:
        """Row → BM25 of the mails that match.

        BM25 is a sum over words, so FTS5 is asked once for each word, and not for each query.
        """
        tables = [self._word_scores(part) for part in parts]
        if match == "all":
            return {row: sum(table[row] for table in tables) for row in self.holding(parts)}
        scores: dict[int, float] = {}
        for table in tables:
            for row, score in table.items():
                scores[row] = scores.get(row, 0.0) + score
        return scores

    def _word_scores(self, part: str) -> dict[int, float]:
        if part not in self._scores:
            query = "SELECT rowid, bm25(mail, 8.0, 1.0) FROM mail WHERE mail MATCH ?"
            with self._lock:  # one connection for all threads
                self._scores[part] = dict(self._database.execute(query, (f'"{_spelled(part)}"',)))
        return self._scores[part]


def _within(
    sent: datetime | None, month: int | None, year: int | None, since: date | None, until: date | None
) -> bool:
    if sent is None:
        return False
    day = sent.date()
    return (
        (month is None or day.month == month)
        and (year is None or day.year == year)
        and (since is None or day >= since)
        and (until is None or day <= until)
    )


@dataclass(frozen=True, slots=True)
class InboxCall:
    """One use of an Inbox."""

    tool: str
    arguments: Mapping[str, Json]
    found: Sequence[str] | None
    """Ids that a search returned or a read opened; None if there was no such mail."""


class Inbox:
    """The tools of an agent, for one question; their use is kept in `log`.

    Anything with `search` and `read` of this shape can stand in for it.
    """

    def __init__(self, index: MailIndex, without: Set[str] = frozenset()) -> None:
        self.index = index
        self.without = frozenset(without)
        self.log: list[InboxCall] = []
        self.frequency = index.document_frequency
        """In how many mails a word occurs; knowing it costs no turn."""
        self.missing = index.missing

    def search(
        self,
        words: Sequence[str] | str,
        *,
        match: Match = "all",
        sender: str | None = None,
        month: int | None = None,
        year: int | None = None,
        since: date | None = None,
        until: date | None = None,
    ) -> list[Hit]:
        """At most ten mails, best first; see `MailIndex.search`. A string is split into words."""
        if isinstance(words, str):
            words = words.split()
        hits = self.index.search(
            words,
            match=match,
            sender=sender,
            month=month,
            year=year,
            since=since,
            until=until,
            without=self.without,
        )
        arguments: dict[str, Any] = {
            "words": list(words),
            "match": match,
            "sender": sender,
            "month": month,
            "year": year,
        }
        arguments |= {"since": since and since.isoformat(), "until": until and until.isoformat()}
        arguments = {name: value for name, value in arguments.items() if value is not None}
        self.log.append(InboxCall("search", arguments, [hit.id for hit in hits]))
        return hits

    def read(self, id: str) -> Mail:
        """The mail with this id.

        Raises:
            NotFoundError: there is none, or it is withheld.
        """
        try:
            if id in self.without:
                raise NotFoundError(f"no mail has the id {id!r}; give an id that a search returned")
            mail = self.index.read(id)
        except NotFoundError:
            self.log.append(InboxCall("read", {"id": id}, None))
            raise
        self.log.append(InboxCall("read", {"id": id}, [id]))
        return mail


class MailWorld:
    """All mail at hand, by mailbox, with one index for each set of mailboxes that is asked for."""

    def __init__(self, mails: Iterable[Mail]) -> None:
        by_mailbox: dict[str, list[Mail]] = {}
        for mail in mails:
            by_mailbox.setdefault(mail.mailbox, []).append(mail)
        self.mailboxes: dict[str, tuple[Mail, ...]] = {
            name: tuple(by_mailbox[name]) for name in sorted(by_mailbox)
        }
        self._indexes: dict[tuple[str, ...], MailIndex] = {}
        self._words = MailWords()
        self._lock = threading.Lock()
        # Weak: an Env that is dropped within its episode takes its Inbox along.
        self.episodes: WeakValueDictionary[str, Inbox] = WeakValueDictionary()
        """Inboxes of the episodes under way, by the handle in their first observation."""

    def describe(self, id: str) -> str:
        """One line about a mail: who sent it, when and about what.

        Raises:
            NotFoundError: no mail has this id.
        """
        mail = self.index(self.mailboxes).read(id)
        day = mail.date.date().isoformat() if mail.date else "no date"
        return f"{mail.sender_name or mail.sender}, {day}: {mail.subject} {mail.id}"

    def index(self, mailboxes: Iterable[str]) -> MailIndex:
        """The index over these mailboxes, made when first asked for.

        Raises:
            NotFoundError: a mailbox that is not in this world.
        """
        key = tuple(sorted(set(mailboxes)))
        with self._lock:
            if key not in self._indexes:
                for name in key:
                    if name not in self.mailboxes:
                        there = ", ".join(self.mailboxes) or "none"
                        raise NotFoundError(f"there is no mailbox {name!r} here; there are: {there}")
                mails = (mail for name in key for mail in self.mailboxes[name])
                self._indexes[key] = MailIndex(mails, self._words)
            return self._indexes[key]

    def inbox(self, task: Task) -> Inbox:
        """The tools for one question: its `initial_state` names `mailboxes` and ids `without`.

        Raises:
            InputError: the task names no mailboxes.
            NotFoundError: a mailbox that is not in this world.
        """
        names = task.initial_state.get("mailboxes")
        if not isinstance(names, (list, tuple)) or not names:
            raise InputError(
                f"task {task.id} names no mailboxes; its initial_state needs "
                '{"mailboxes": [names], "without": [ids]}'
            )
        return Inbox(self.index(names), frozenset(task.initial_state.get("without", ())))
