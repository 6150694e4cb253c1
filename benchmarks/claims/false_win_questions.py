"""Questions that a model writes from mail, a quarter of them without a right answer, and signs that users give unasked.

A scripted writer is shown 20 real mails at a time and writes a question about a phone number, an amount or a date of
one of them, with the passage that holds it.  A quarter of its questions are spoiled, in five ways, and nothing marks
them: no mail answers them, with a passage that was made up or with a real one; the passage is another mail's, and its
value is not what was asked; several mails answer them differently; the answer is another value of the right mail.  What
the filter of `whet tasks write` keeps is then compared with the mails.  The reader is scripted too: it takes the shown
mails that hold most words of the question, gives their values of the kind that is asked for, and slips in one of five.
Beside it stand the checks of the texts without a reader, and a reader who names any value.  The filter was developed on
one mailbox; all others are held out.  The signs are told of in `false_win_signals.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import false_win_signals
import msgspec
from newcomers_shell import Noted

from whet.cli.task_writing import mail_document
from whet.learn.datasets.documents import Document, pieces
from whet.learn.datasets.written import BATCH, Draft, QuestionFilter, write_questions
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.types import digest
from whet.worlds.email import BODY_KINDS, Mail, MailWorld, derive, extract, plain_subject, read_mail, same
from whet.worlds.email.entities import Kind, located

FIRST = "kean-s"
"""The mailbox that the filter was developed on; all others are held out."""
FEWEST = 40
"""Questions of a mailbox below which it is added to the small ones."""
SPOILED = 0.25
SLIPS = 0.2
SEEDS = 3
PRECISION, OFF = 0.95, 0.75
_FENCED = re.compile(r"<(data-\w+)>\n(.*?)\n</\1>", re.DOTALL)
_ASKED: dict[Kind, str] = {
    "phone": r"\b(?:phone|telephone|call|dial|number)\b",
    "amount": r"\b(?:money|amount|dollars?|sum|price|cost|how much|figure)\b",
    "date": r"\b(?:date|day|when)\b",
}
WAYS = ("made up", "off the point", "another mail", "several mails", "another value")


@dataclass(frozen=True)
class Planned:
    """A draft of the scripted writer, and whether it is right."""

    draft: Draft
    way: str
    """How it was spoiled; "" for one that was not."""
    right: bool


def documents_of(mails: Sequence[Mail]) -> list[Document]:
    """Mails as `whet tasks write` reads them, in the pieces that it shows."""
    return [piece for mail in mails for piece in pieces(mail_document(mail))]


def raw(kind: Kind, value: str, text: str) -> str:
    """A value as the text writes it; "" where it does not hold it."""
    at = next((at for held, at in located(kind, text) if held == value), None)
    if at is None:
        return ""
    for end in range(at + 2, min(len(text), at + 60) + 1):
        if [held for held, _ in located(kind, text[at:end])] == [value]:
            return text[at:end] + re.match(r"\w*", text[end:])[0]
    return ""


def sentence(text: str, value: str) -> str:
    """The line that a value stands in, and what is around it."""
    at = text.index(value)
    return text[max(0, at - 80) : at + len(value) + 40].strip()


class Author:
    """Plans one draft for each mail that holds a fact, a quarter of them spoiled."""

    def __init__(self, mails: Sequence[Mail], world: MailWorld, seed: int) -> None:
        self.rng = random.Random(f"author:{seed}")
        self.mails = {mail.id: mail for mail in mails}
        box = sorted({mail.mailbox for mail in mails})
        tasks = derive(world, mailboxes=box, seed=seed, unanswerable=0.0, tiers=("exact", "vague"))
        self.asked = [task for task in tasks if task.meta["kind"] in BODY_KINDS]
        self.values: dict[Kind, list[tuple[str, str]]] = {
            kind: [(mail.id, value) for mail in mails for value in extract(kind, mail)] for kind in BODY_KINDS
        }
        self.pieces = {mail.id: pieces(mail_document(mail)) for mail in mails}
        self.home = {piece.id: mail for mail, own in self.pieces.items() for piece in own}
        self.planned: dict[str, list[Planned]] = defaultdict(list)
        taken: set[str] = set()
        for number, task in enumerate(self.asked):
            mail = self.mails[task.meta["evidence"]]
            if mail.id in taken:
                continue
            # The next way where one cannot be had of this mail.
            ways = [*WAYS[number % len(WAYS) :], *WAYS[: number % len(WAYS)]]
            for way in ways if self.rng.random() < SPOILED else [""]:
                plan = self._plan(task.instruction, task.meta["kind"], str(task.answer), mail, way)
                if plan is not None:
                    break
            if plan is not None:
                taken.add(mail.id)
                self.planned[plan.draft.document].append(plan)

    def _plan(self, question: str, kind: Kind, answer: str, mail: Mail, way: str) -> Planned | None:
        shown = raw(kind, answer, mail.own)
        if not shown:
            return None
        draft = Draft(mail.id, question, shown, sentence(mail.own, shown))
        if way:
            spoiled = self._spoiled(draft, kind, answer, mail, way)
            if spoiled is None:
                return None
            draft = spoiled
        draft = self._placed(draft)
        own = self.home[draft.document] == mail.id and same(kind, draft.answer, answer)
        return Planned(draft, way, own and way not in ("made up", "off the point", "several mails"))

    def _placed(self, draft: Draft) -> Draft:
        """The draft with the piece of its mail that holds the passage; the first one where none does."""
        own = self.pieces[draft.document]
        holding = [piece.id for piece in own if draft.passage in piece.text]
        return msgspec.structs.replace(draft, document=(holding or [own[0].id])[0])

    def _spoiled(self, draft: Draft, kind: Kind, answer: str, mail: Mail, way: str) -> Draft | None:
        others = [(id, value) for id, value in self.values[kind] if value != answer and id != mail.id]
        if way == "made up":
            value = self._invented(kind)
            return msgspec.structs.replace(
                draft, answer=value, passage=draft.passage.replace(draft.answer, value)
            )
        if way == "off the point":
            # A mail without any value of this kind, whose own words are given for the answer.
            lacking = [one for one in self.mails.values() if len(one.own) > 80 and not extract(kind, one)]
            if not lacking:
                return None
            other = self.rng.choice(sorted(lacking, key=lambda one: one.id))
            words = re.findall(r"[A-Za-z]{4,}", other.own)
            if len(words) < 8:
                return None
            subject = other.subject or " ".join(words[:5])
            asked = f"Which {_noun(kind)} does {other.sender_name or other.sender} give about {subject}?"
            word = self.rng.choice(words)
            return Draft(other.id, asked, word, sentence(other.own, word))
        if way == "another mail" and others:
            id, value = self.rng.choice(others)
            shown = raw(kind, value, self.mails[id].own)
            return Draft(id, draft.question, shown, sentence(self.mails[id].own, shown)) if shown else None
        if way == "several mails":
            by_sender, by_subject = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
            for id, value in self.values[kind]:
                by_sender[self.mails[id].sender].add(value)
                by_subject[plain_subject(self.mails[id].subject)].add(value)
            subject = plain_subject(mail.subject)
            if subject and len(by_subject[subject]) > 1:
                return msgspec.structs.replace(
                    draft, question=f'What {_noun(kind)} is in the mail "{subject}"?'
                )
            if len(by_sender[mail.sender]) < 2:
                return None
            return msgspec.structs.replace(
                draft, question=f"What {_noun(kind)} did {mail.sender_name or mail.sender} give me?"
            )
        if way == "another value":
            held = [(k, value) for k in BODY_KINDS for value in extract(k, mail) if value != answer]
            if not held:
                return None
            other_kind, value = self.rng.choice(held)
            shown = raw(other_kind, value, mail.own)
            return (
                msgspec.structs.replace(draft, answer=shown, passage=sentence(mail.own, shown))
                if shown
                else None
            )
        return None

    def _invented(self, kind: Kind) -> str:
        draw = self.rng.randint
        if kind == "phone":
            return f"{draw(201, 989)}-{draw(201, 989)}-{draw(1000, 9999)}"
        if kind == "amount":
            return f"${draw(11, 99)},{draw(100, 999)}"
        return f"{self.rng.choice(('March', 'June', 'October'))} {draw(1, 28)}, 20{draw(10, 30)}"

    def write(self, request: ModelRequest) -> str:
        """The answer to a batch of mails."""
        documents = shown_documents(request.text)
        drafts = [plan.draft for one in documents for plan in self.planned.get(one["id"], ())]
        return msgspec.json.encode({"questions": drafts}).decode()


def _noun(kind: Kind) -> str:
    return {"phone": "phone number", "amount": "dollar amount", "date": "date"}.get(kind, kind)


def shown_documents(prompt: str) -> list[dict[str, str]]:
    """The documents of a prompt."""
    return msgspec.json.decode(_FENCED.findall(prompt)[0][1], type=list[dict[str, str]])


def reading(prompt: str, rng: random.Random) -> list[dict[str, str]]:
    """What a reader finds: values of the kind that is asked for, in the documents with most of the question's words."""
    documents, question = (
        shown_documents(prompt),
        msgspec.json.decode(_FENCED.findall(prompt)[1][1], type=str),
    )
    kind = next((kind for kind, words in _ASKED.items() if re.search(words, question.lower())), None)
    if kind is None:
        return []
    words = set(re.findall(r"[\w@.]{3,}", question.lower())) - _COMMON
    held = {one["id"]: sum(word in one["text"].lower() for word in words) for one in documents}
    most = max(held.values(), default=0)
    answers = []
    for one in documents:
        if held[one["id"]] < most or not most:
            continue
        # The head of a mail says when it was sent, which is not what is asked.
        body = one["text"].partition("\n\n")[2]
        for value, _ in located(kind, body):
            shown = raw(kind, value, body)
            if shown:
                answers.append({"document": one["id"], "answer": shown, "passage": sentence(body, shown)})
    if rng.random() < SLIPS:
        return [] if rng.random() < 0.5 else answers[:1]
    return answers


_COMMON = frozenset(
    """
    what which phone telephone number date day amount money dollar dollars figure sum price did does the that was for
    and about from mail e-mail give gave mention mentioned wrote write sent send call dial think can you need find
    when how much many where into with included according stated stands named name names written telling said say
    """.split()  # noqa: SIM905 - a list of words is read as words
)


def reader(request: ModelRequest) -> str:
    """A reader who slips now and then."""
    rng = random.Random(digest(request.text, 8))
    return msgspec.json.encode({"answers": reading(request.text, rng)}).decode()


def at_random(request: ModelRequest) -> str:
    """A reader who gives any value of any document."""
    rng = random.Random(digest(request.text, 8))
    found = [
        {"document": one["id"], "answer": shown, "passage": sentence(one["text"], shown)}
        for one in shown_documents(request.text)
        for kind in BODY_KINDS
        for value, _ in located(kind, one["text"])
        if (shown := raw(kind, value, one["text"]))
    ]
    return msgspec.json.encode({"answers": rng.sample(found, min(1, len(found)))}).decode()


def kept_of(
    author: Author, documents: Sequence[Document], reads: Callable[[ModelRequest], str]
) -> list[Planned]:
    """The drafts that `write_questions` keeps."""
    writer, asked = ScriptedModel(author.write, name="writer"), ScriptedModel(reads, name="reader")
    tasks, account = asyncio.run(write_questions(documents, 10_000, writer=writer, reader=asked))
    assert account.batches == -(-len(documents) // BATCH)
    by_text = {plan.draft.question.strip(): plan for plans in author.planned.values() for plan in plans}
    return [by_text[task.instruction] for task in tasks]


def without_reader(author: Author, documents: Sequence[Document]) -> list[Planned]:
    """The drafts that stand by their texts alone."""
    plain, named = QuestionFilter(documents, None), {document.id: document for document in documents}
    plans = [plan for own in author.planned.values() for plan in own]
    reasons = asyncio.run(plain.reasons([plan.draft for plan in plans], named))
    return [plan for plan, why in zip(plans, reasons, strict=True) if not why]


def measure(data: Path, folder: Path) -> list[Noted]:
    """Every mailbox, the small ones together; then the signs."""
    world = MailWorld(read_mail(data / "enron_mail").mails)
    boxes: dict[str, list[str]] = {FIRST: [FIRST]}
    for name in sorted(set(world.mailboxes) - {FIRST}):
        asked = derive(world, mailboxes=[name], seed=0)
        few = sum(task.meta["kind"] in BODY_KINDS for task in asked) < 3 * FEWEST
        boxes.setdefault("the small ones" if few else name, []).append(name)
    noted, held_out = [], _Kept()
    for name, members in boxes.items():
        own = _Kept()
        mails = [mail for member in members for mail in world.index([member]).mails]
        for seed in range(SEEDS):
            author, documents = Author(mails, world, seed), documents_of(mails)
            own.plans += [plan for plans in author.planned.values() for plan in plans]
            own.texts += without_reader(author, documents)
            own.kept += kept_of(author, documents, reader)
            own.by_chance += kept_of(author, documents, at_random)
        noted.append(own.noted(name if name == FIRST else f"{name}, held out"))
        if name != FIRST:
            held_out.add(own)
    noted.append(held_out.noted("all that were held out", bars=True))
    return [*noted, *false_win_signals.measure(data, folder)]


@dataclass
class _Kept:
    """The drafts of some mailboxes, and which of them were kept by what."""

    plans: list[Planned] = field(default_factory=list)
    texts: list[Planned] = field(default_factory=list)
    kept: list[Planned] = field(default_factory=list)
    by_chance: list[Planned] = field(default_factory=list)

    def add(self, other: _Kept) -> None:
        self.plans += other.plans
        self.texts += other.texts
        self.kept += other.kept
        self.by_chance += other.by_chance

    def noted(self, name: str, *, bars: bool = False) -> Noted:
        """The figures, and the bars where they are asked for."""
        off, texts, kept = precision(self.plans), precision(self.texts), precision(self.kept)
        missed = Counter(plan.way or "not spoiled" for plan in self.kept if not plan.right)
        right = sum(plan.right for plan in self.plans)
        figures = {
            "questions": str(len(self.plans)),
            "right, filter off": f"{off:.3f}",
            "texts alone": f"{texts:.3f}",
            "with the reader": f"{kept:.3f}",
            "kept": str(len(self.kept)),
            "of the right ones": f"{sum(plan.right for plan in self.kept) / max(1, right):.2f}",
            "kept by a reader who names any value": f"{len(self.by_chance)} of {len(self.plans)}",
            "wrong ones that were kept": ", ".join(f"{way} {count}" for way, count in missed.items())
            or "none",
        }
        lines = {
            f"precision of what is kept at least {PRECISION}": kept >= PRECISION,
            f"about {OFF} are right without the filter": abs(off - OFF) <= 0.05,
            "the reader is worth its calls": kept > texts,
            "a reader who names any value lets next to nothing through": len(self.by_chance)
            < 0.2 * len(self.plans),
        }
        return Noted(f"questions: {name}", figures=figures, lines=lines if bars else {})


def precision(plans: Sequence[Planned]) -> float:
    """Share that is right."""
    return sum(plan.right for plan in plans) / max(1, len(plans))
