"""Questions with checkable answers, derived from the mails themselves.

A fact is a value that one mail gives: the only phone number, dollar amount or
full date in the text that its sender wrote, or its date, sender or subject;
the mail's (sender, subject) is unique in its mailbox.  A question asks for it
through clues of one of three tiers:

- *exact*: the full subject and the sender's address;
- *vague*: 1-3 subject and 0-2 body words, part of the sender or none, the
  month in 30 %, one wrong word in a third;
- *hard*: mostly body words and 0-2 wrong ones, the sender wrong in 15 %, the
  month in 20 %, searched in one index over all the mailboxes given.

The true clues of a hard question identify its value, always; those of a vague
one where six tries find such clues (`meta["identified"]` says).  Unanswerable
questions ask for a fact whose mail is withheld, with every other mail that
gives the value under the same clues, or for an attribute that the mail does not
have.  No language model writes or judges anything here.

`python -m whet.worlds.email DIR --seed 0 --sample 30` prints a sample
with its evidence, to be checked by hand.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...errors import InputError
from ...types import Json, Task, digest
from .entities import BODY_KINDS, KINDS, MONTHS, Kind, extract, find, plain_subject
from .index import MailIndex, MailWorld, tokens, words_outside
from .parse import Mail
from .phrasing import TEMPLATE_WORDS, TIERS, Clues, ClueWord, SenderForm, Tier, phrase
from .vocabulary import NO_PERSON, STOP_WORDS, WEEKDAYS

_STOP = frozenset(STOP_WORDS)
_NO_PERSON = frozenset(NO_PERSON)
_CALENDAR = frozenset((*MONTHS, *(month[:3] for month in MONTHS), "sept", *WEEKDAYS))
_NO_WORDS = _STOP | _CALENDAR | TEMPLATE_WORDS
_LINKS = re.compile(
    r"\S{1,100}@\S{1,100}|https?:\S{1,400}|www\.\S{1,400}|<<[^>]{0,200}>>"
    r"|\S{1,80}\.(?:doc|xls|pdf|ppt|zip|html?)\b|=[0-9A-F]{2}",
    re.IGNORECASE,
)
_BOILERPLATE = 12
"""A phone number in more mails than this is a signature: withholding one of them hides nothing."""
_MISNAMED = 0.18
"""Makes 15 % of all hard questions: those for the sender name none."""
_TRIES = {"exact": 8, "vague": 6, "hard": 14}


@dataclass(frozen=True, slots=True)
class Fact:
    """One value that one mail gives, or (value None) an attribute that it lacks."""

    mail: Mail
    kind: Kind
    value: str | None

    @property
    def id(self) -> str:
        """Stable over seeds and tiers."""
        return digest((self.mail.id, self.kind))


class _Bench:
    """Facts about one index that deriving needs over and over, computed once."""

    def __init__(self, index: MailIndex) -> None:
        self.index = index
        self.common = max(4, index.size // 10)
        self._months: dict[int, frozenset[int]] = {
            month: frozenset(
                row for row, mail in enumerate(index.mails) if mail.date and mail.date.month == month
            )
            for month in range(1, 13)
        }
        self._values_of: dict[tuple[Kind, int], frozenset[str]] = {}
        self._holding: dict[Kind, dict[str, list[int]]] = {}
        self.subjects: dict[str, list[int]] = {}
        for row, mail in enumerate(index.mails):
            self.subjects.setdefault(plain_subject(mail.subject).casefold(), []).append(row)

    def values(self, kind: Kind, row: int) -> frozenset[str]:
        """The values of a kind that the mail in this row gives."""
        key = (kind, row)
        if key not in self._values_of:
            self._values_of[key] = frozenset(extract(kind, self.index.mails[row]))
        return self._values_of[key]

    def holders(self, kind: Kind, value: str) -> list[int]:
        """Rows of the mails that show the value anywhere, quoted text included."""
        if kind not in self._holding:
            holding: dict[str, list[int]] = {}
            for row, mail in enumerate(self.index.mails):
                values = find(kind, mail.body) if kind in BODY_KINDS else extract(kind, mail)
                for holder_value in values:
                    holding.setdefault(holder_value, []).append(row)
            self._holding[kind] = holding
        return self._holding[kind].get(value, [])

    def matching(self, clues: Clues, *, sender: bool = True) -> frozenset[int]:
        """Rows of the mails that fit every true clue."""
        rows = self.index.holding(
            part for word in clues.words if not word.wrong for part in tokens(word.text)
        )
        if sender and clues.sender and not clues.sender_wrong:
            rows &= self.index.sent_by(clues.sender)
        if clues.month:
            rows &= self._months[clues.month]
        if clues.subject is not None:
            rows &= frozenset(self.subjects.get(plain_subject(clues.subject).casefold(), ()))
        return rows

    def identifies(self, clues: Clues, value: str | None) -> bool:
        """True if the mails that fit the true clues give this value and no other (None: give none)."""
        expected = frozenset() if value is None else frozenset([value])
        values: set[str] = set()
        for row in self.matching(clues):
            values |= self.values(clues.kind, row)
            if not values <= expected:
                return False
        return values == expected


class _Mailbox(_Bench):
    """A mailbox's facts and the words that its mails can be remembered by."""

    def __init__(self, name: str, index: MailIndex) -> None:
        super().__init__(index)
        self.name = name
        self._words: dict[int, tuple[list[str], list[str]]] = {}
        self.vocabulary = sorted(
            word for word, rows in index.postings.items() if 2 <= len(rows) <= self.common and _content(word)
        )
        sender_subjects: dict[tuple[str, str], int] = {}
        for mail in index.mails:
            key = (mail.sender, plain_subject(mail.subject).casefold())
            sender_subjects[key] = sender_subjects.get(key, 0) + 1
        lacks = [self._lacks(row, sender_subjects) for row in range(index.size)]
        self.askable = [row for row, lack in enumerate(lacks) if not lack]
        """Rows of the mails that a question can be about; the others are counted by why not."""
        self.unaskable = Counter(lack for lack in lacks if lack)

    def _lacks(self, row: int, sender_subjects: Mapping[tuple[str, str], int]) -> str:
        mail = self.index.mails[row]
        subject = plain_subject(mail.subject)
        if not mail.sender:
            return "without a sender's address"
        if not tokens(subject):
            return "without a subject"
        if sender_subjects[mail.sender, subject.casefold()] > 1:
            return "with the sender and subject of another"
        if sum(map(len, self.words(row))) < 2:
            return "without two words to ask by (3 to 15 letters a to z, in few of the mails)"
        return ""

    def words(self, row: int) -> tuple[list[str], list[str]]:
        """(content words of the subject, of the rest of the own text)."""
        if row not in self._words:
            mail = self.index.mails[row]
            name = set(tokens(f"{mail.sender_name} {mail.sender}"))
            held = self.index.tokens[row]

            def content(words: Iterable[str]) -> list[str]:
                return [
                    word
                    for word in dict.fromkeys(words)
                    if _content(word)
                    and word not in name
                    and word in held  # a Mail made by hand need not hold its own part
                    and len(self.index.postings[word]) <= self.common
                ]

            subject = content(tokens(plain_subject(mail.subject)))
            own = [word for word in content(words_outside(mail.own, _LINKS)) if word not in subject]
            self._words[row] = (subject, own)
        return self._words[row]

    def remembered(self, words: Sequence[str], count: int, rng: random.Random) -> list[str]:
        """At most `count` of a mail's words: people remember particular ones, so rare ones more often."""
        # Drawn evenly, a third of the words were such as "because", and a classifier on every feature at hand
        # reached .837 on unseen owners; drawn like this it reached .913.
        postings = self.index.postings
        return sorted(
            words, key=lambda word: rng.random() ** float(len(postings[word])) ** 0.5, reverse=True
        )[:count]

    def facts(self, seed: int) -> list[Fact]:
        """The mailbox's facts: every phone, amount and date, and a third as many of each other kind."""
        body = [
            Fact(self.index.mails[row], kind, next(iter(self.values(kind, row))))
            for row in self.askable
            for kind in BODY_KINDS
            if len(self.values(kind, row)) == 1 and not find(kind, self.index.mails[row].subject)
        ]
        facts = list(body)
        for kind in KINDS:
            if kind in BODY_KINDS:
                continue
            able = [row for row in self.askable if self._tells(kind, row)]
            chosen = random.Random(f"{seed}:{self.name}:{kind}").sample(
                able, min(len(able), max(6, len(body) // 3))
            )
            facts += [
                Fact(self.index.mails[row], kind, next(iter(self.values(kind, row))))
                for row in sorted(chosen)
            ]
        return facts

    def _tells(self, kind: Kind, row: int) -> bool:
        mail = self.index.mails[row]
        if not self.values(kind, row):
            return False
        if kind == "date_sent":
            # Archives stamp 1979 or the like on mail whose date was lost.
            return mail.date is not None and mail.date.year >= 1990
        return kind != "subject" or len(self.words(row)[1]) >= 2

    def lacking(self, kind: Kind) -> list[Fact]:
        """For each askable mail that shows no value of the kind anywhere, its absence."""
        return [
            Fact(mail, kind, None)
            for row in self.askable
            if len((mail := self.index.mails[row]).own) >= 30 and not find(kind, mail.body)
        ]


def _content(word: str) -> bool:
    return 3 <= len(word) <= 15 and word.isalpha() and word.isascii() and word not in _NO_WORDS


def shortage(world: MailWorld, mailboxes: Iterable[str]) -> str:
    """Why these mailboxes give few questions or none: a clause with the counts of mails.

    Raises:
        NotFoundError: no such mailbox.
    """
    boxes = [_Mailbox(name, world.index([name])) for name in sorted(set(mailboxes))]
    lacks = sum((box.unaskable for box in boxes), Counter[str]()).most_common()
    counts = ", ".join(f"{count:,} {lack}" for lack, count in lacks)
    askable, mails = (sum(len(box.askable) for box in boxes), sum(box.index.size for box in boxes))
    return f"of {mails:,} mails {askable:,} can be asked about" + (f" ({counts})" if counts else "")


def derive(
    world: MailWorld,
    *,
    mailboxes: Iterable[str],
    seed: int,
    variants: int = 1,
    unanswerable: float = 0.35,
    tiers: Sequence[Tier] = TIERS,
    counts: MutableMapping[str, int] | None = None,
) -> list[Task]:
    """Questions about the mails of these mailboxes, in an order shuffled by the seed.

    Args:
        mailboxes: those of one split; hard questions are searched in all of them.
        variants: differently worded questions for each fact and tier.
        unanswerable: share of questions that have no answer; half of those that
            can be ask for an attribute which the mail lacks, the others are withheld.
        counts: filled with `ambiguous` (kept) and `dropped` (hard or unanswerable, no
            identifying clues found), for the record.

    Returns:
        Tasks with `group` the evidence's mailbox, `answer` the value or None, and `meta`:
        kind, tier, clues, evidence (id, None if unanswerable), mail (id of the mail asked
        about), fact (stable id), unanswerable (`withheld`, `absent` or None), identified.
        None at all where no mail can be asked about; `shortage` says why.

    Raises:
        NotFoundError: no such mailbox.
        InputError: a share outside 0 to 1, no variants, or an unknown tier.
    """
    if not 0 <= unanswerable <= 1 or variants < 1:
        raise InputError(
            f"unanswerable={unanswerable}, variants={variants}: give a share and at least 1 variant"
        )
    if unknown := set(tiers) - set(TIERS):
        raise InputError(f"no tier {sorted(unknown)[0]!r}; there are {', '.join(TIERS)}")
    names = sorted(set(mailboxes))
    everything = _Bench(world.index(names))
    tally: MutableMapping[str, int] = counts if counts is not None else {}
    tasks: list[Task] = []
    for name in names:
        box = _Mailbox(name, world.index([name]))
        lacking = {kind: box.lacking(kind) for kind in BODY_KINDS}
        maker = _Maker(box, everything, names, lacking, unanswerable)
        for fact in box.facts(seed):
            for tier in tiers:
                for variant in range(variants):
                    # One generator for each question: a question does not change when others come or go.
                    rng = random.Random(f"{seed}:{fact.id}:{tier}:{variant}")
                    task = maker.question(fact, tier, rng)
                    if task is None:
                        tally["dropped"] = tally.get("dropped", 0) + 1
                        continue
                    tally["ambiguous"] = tally.get("ambiguous", 0) + (not task.meta["identified"])
                    tasks.append(task)
    random.Random(f"{seed}:order").shuffle(tasks)
    # Variants of a fact may come out alike, and then have one id.
    return list({task.id: task for task in tasks}.values())


@dataclass(frozen=True, slots=True)
class _Maker:
    box: _Mailbox
    everything: _Bench
    mailboxes: list[str]
    lacking: dict[Kind, list[Fact]]
    unanswerable: float

    def question(self, fact: Fact, tier: Tier, rng: random.Random) -> Task | None:
        """One question about the fact, or, in place of some unanswerable ones, about an absent one."""
        bench = self.everything if tier == "hard" else self.box
        reason = None
        # Each draw is part of the question's random stream: one more or one less changes all questions.
        if rng.random() < self.unanswerable:
            absent = self.lacking.get(fact.kind)
            boilerplate = len(self.box.holders(fact.kind, fact.value or "")) > _BOILERPLATE
            reason = "withheld"
            if absent and ((boilerplate and fact.kind == "phone") or rng.random() < 0.5):
                reason, fact = "absent", rng.choice(absent)
        # Before the tries: drawn in each, it would be rarer among the clues that identify a value.
        misnamed = fact.kind != "sender" and rng.random() < _MISNAMED
        samplers: dict[Tier, Callable[[Fact, random.Random], Clues | None]] = {
            "exact": self._exact,
            "vague": self._vague,
            "hard": partial(self._hard, misnamed=misnamed),
        }
        clues, identified = None, False
        for _ in range(_TRIES[tier]):
            tried = samplers[tier](fact, rng)
            if tried is None:
                break
            clues, identified = tried, bench.identifies(tried, fact.value)
            if identified:
                break
        if clues is None or not (identified or (tier == "vague" and reason is None)):
            return None
        clues = self._noisy(clues, fact, tier, rng)
        return self._task(fact, tier, clues, rng, reason, identified)

    def _task(
        self, fact: Fact, tier: Tier, clues: Clues, rng: random.Random, reason: str | None, identified: bool
    ) -> Task:
        bench, names = (self.everything, self.mailboxes) if tier == "hard" else (self.box, [self.box.name])
        state: dict[str, Json] = {"mailboxes": names, "without": []}
        if reason == "withheld":
            state["without"] = _withheld(bench, fact, clues)
        return Task(
            instruction=phrase(clues, tier, rng, coming=_coming(fact)),
            initial_state=state,
            answer=None if reason else fact.value,
            group=self.box.name,
            meta={
                "kind": fact.kind,
                "tier": tier,
                "clues": clues.to_json(),
                "evidence": None if reason else fact.mail.id,
                "mail": fact.mail.id,
                "fact": fact.id,
                "unanswerable": reason,
                "identified": identified,
            },
        )

    def _row(self, fact: Fact) -> int:
        return self.box.index.rows[fact.mail.id]

    def _exact(self, fact: Fact, rng: random.Random) -> Clues | None:
        """True clues only; the wrong ones are added by `_noisy`."""
        if fact.kind == "subject":
            own = self.box.words(self._row(fact))[1]
            if len(own) < 2:
                return None
            words = tuple(ClueWord(word, "body") for word in self.box.remembered(own, rng.randint(2, 4), rng))
            return Clues(kind=fact.kind, words=words, sender=fact.mail.sender, sender_form="address")
        subject = plain_subject(fact.mail.subject)
        parts = tokens(subject)
        words = tuple(ClueWord(part, "subject") for part in dict.fromkeys(parts) if part not in _STOP)
        words = words or tuple(ClueWord(part, "subject") for part in dict.fromkeys(parts))
        quoted = (subject if rng.random() < 0.5 else fact.mail.subject).replace('"', "'")
        clues = Clues(kind=fact.kind, words=words, subject=quoted)
        if fact.kind == "sender":
            return replace(clues, month=self._month(fact, rng, 0.3))
        return replace(clues, sender=fact.mail.sender, sender_form="address")

    def _vague(self, fact: Fact, rng: random.Random) -> Clues | None:
        subject, own = self.box.words(self._row(fact))
        if fact.kind == "subject":
            chosen = [ClueWord(word, "body") for word in self.box.remembered(own, rng.randint(2, 3), rng)]
        else:
            heads = self.box.remembered(subject, rng.randint(1, 3), rng)
            rest = self.box.remembered(own, rng.randint(0 if heads else 2, 2), rng)
            chosen = [
                *(ClueWord(word, "subject") for word in heads),
                *(ClueWord(word, "body") for word in rest),
            ]
        if not chosen:
            return None
        clues = Clues(kind=fact.kind, words=tuple(chosen), month=self._month(fact, rng, 0.3))
        return self._with_sender(clues, fact.mail, rng, 0.65)

    def _hard(self, fact: Fact, rng: random.Random, *, misnamed: bool) -> Clues | None:
        subject, own = self.box.words(self._row(fact))
        if fact.kind == "subject":
            subject = []
        if len(own) + len(subject) < 2:
            return None
        rest = self.box.remembered(own, rng.randint(3, 5), rng)
        heads = self.box.remembered(subject, rng.randint(0, 1) if len(rest) > 1 else 2, rng)
        chosen = [*(ClueWord(word, "body") for word in rest), *(ClueWord(word, "subject") for word in heads)]
        rng.shuffle(chosen)
        clues = Clues(kind=fact.kind, words=tuple(chosen), month=self._month(fact, rng, 0.2))
        if misnamed:
            # The other clues must then identify the value; `_noisy` puts the wrong name in.
            return replace(clues, sender_wrong=True)
        return self._with_sender(clues, fact.mail, rng, 0.5)

    def _noisy(self, clues: Clues, fact: Fact, tier: Tier, rng: random.Random) -> Clues:
        """The clues with the tier's false ones put among them."""
        if tier == "exact":
            return clues
        number = int(rng.random() < 1 / 3) if tier == "vague" else rng.choices((0, 1, 2), (4, 3, 3))[0]
        words = list(clues.words)
        held = self.box.index.tokens[self._row(fact)]
        used = {word.text for word in words}
        for _ in range(number):
            wrong = next(
                (
                    word
                    for word in (rng.choice(self.box.vocabulary) for _ in range(20) if self.box.vocabulary)
                    if word not in held and word not in used
                ),
                None,
            )
            if wrong:
                used.add(wrong)
                where = rng.choice(words).where
                words.insert(rng.randint(0, len(words)), ClueWord(wrong, where, True))
        clues = replace(clues, words=tuple(words))
        return self._misnamed(clues, fact, rng) if clues.sender_wrong else clues

    def _misnamed(self, clues: Clues, fact: Fact, rng: random.Random) -> Clues:
        """The clues with somebody else as the sender, or with none if everybody has the same name."""
        nobody = replace(clues, sender=None, sender_form=None, sender_wrong=False)
        # Drawn until the name is wrong, so that the share of wrong senders is what is promised.
        for _ in range(8):
            misnamed = self._with_sender(nobody, rng.choice(self.everything.index.mails), rng, 1.0)
            if misnamed.sender and self._row(fact) not in self.box.index.sent_by(misnamed.sender):
                return replace(misnamed, sender_wrong=True)
        return nobody

    def _month(self, fact: Fact, rng: random.Random, share: float) -> int | None:
        stated = rng.random() < share
        return fact.mail.date.month if stated and fact.mail.date else None

    def _with_sender(self, clues: Clues, mail: Mail, rng: random.Random, share: float) -> Clues:
        if clues.kind == "sender" or rng.random() >= share:
            return clues
        forms = sender_parts(mail)
        if not forms:
            return clues
        form, part = rng.choice(forms)
        return replace(clues, sender=part, sender_form=form)


def sender_parts(mail: Mail) -> list[tuple[SenderForm, str]]:
    """(form, text) of the parts by which someone may name the sender; each occurs in address or name."""
    sender_line = f"{mail.sender_name} <{mail.sender}>".lower()
    names = [part for part in re.findall(r"[a-z]+", mail.sender_name.lower()) if len(part) > 2]
    forms: list[tuple[SenderForm, str]] = []
    if 1 < len(names) < 5 and not _NO_PERSON & set(names):
        forms = [("first", names[0]), ("last", names[-1])]
    host = mail.sender.rpartition("@")[2].split(".")
    if len(host) > 1 and len(host[-2]) > 2:
        forms.append(("organisation", host[-2]))
    return [(form, part) for form, part in forms if part in sender_line and part not in _NO_WORDS]


def _withheld(bench: _Bench, fact: Fact, clues: Clues) -> list[str]:
    """Ids to withhold so that nothing left gives the fact's value under the question's clues."""
    mails = bench.index.mails
    subject = plain_subject(fact.mail.subject).casefold()
    fitting = bench.matching(clues, sender=False)
    hidden = {
        row
        for row in bench.holders(fact.kind, fact.value or "")
        if row in fitting
        or (fact.kind in BODY_KINDS and plain_subject(mails[row].subject).casefold() == subject)
    }
    hidden.add(bench.index.rows[fact.mail.id])
    return sorted(mails[row].id for row in hidden)


def _coming(fact: Fact) -> bool:
    sent = fact.mail.date
    return fact.kind == "date" and (
        fact.value is None or sent is None or fact.value > sent.date().isoformat()
    )
