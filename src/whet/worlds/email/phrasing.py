"""The wording of a question: the English templates, and the clues that fill them.

Every tier of every kind has at least eight templates.  A question shows only
its clues; which of them are wrong is in the gold `Clues` and not in the text.
Words of the templates are never clue words (`TEMPLATE_WORDS`), so that a
parser can tell the two apart, as a reader does.  `questions.py` chooses the clues.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from ...errors import InputError
from ...types import Json
from .entities import MONTHS, Kind

Tier = Literal["exact", "vague", "hard"]
SenderForm = Literal["address", "first", "last", "organisation"]
TIERS: tuple[Tier, ...] = ("exact", "vague", "hard")


@dataclass(frozen=True, slots=True)
class ClueWord:
    """One content word that the question names."""

    text: str
    where: Literal["subject", "body"]
    """Where the asker believes that it stood."""
    wrong: bool = False
    """The evidence does not hold it: the asker misremembers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clues:
    """The gold parse of a question."""

    kind: Kind
    words: tuple[ClueWord, ...] = ()
    sender: str | None = None
    """As the question has it and as a search takes it: lower case."""
    sender_form: SenderForm | None = None
    sender_wrong: bool = False
    month: int | None = None
    """1 to 12."""
    subject: str | None = None
    """The whole subject, where the question quotes it (exact tier)."""

    def to_json(self) -> dict[str, Json]:
        """As kept in `Task.meta["clues"]`."""
        data: dict[str, Json] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_json(cls, data: Json) -> Clues:
        """Back from `Task.meta["clues"]`.

        Raises:
            InputError: it is not of that shape.
        """
        try:
            return msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise InputError(
                f"these are not clues of a question: {error}. Give Task.meta['clues']."
            ) from error


# {subject} {sender} exact; {who} a person or "someone ...", {about} the topic, {when} " in March" or nothing.
_EXACT: dict[str, tuple[str, ...]] = {
    "phone": (
        'What phone number does {sender} give in the mail "{subject}"?',
        'Which number can I call according to "{subject}" from {sender}?',
        'In "{subject}", what telephone number did {sender} write?',
        'What is the phone number in {sender}\'s mail "{subject}"?',
        'I need the telephone number from the e-mail "{subject}" that {sender} sent.',
        'Find the phone number that {sender} included in "{subject}".',
        '{sender} wrote "{subject}". What phone number is in it?',
        'Which telephone number is mentioned in "{subject}" by {sender}?',
    ),
    "amount": (
        'How much money is mentioned in "{subject}" from {sender}?',
        'What dollar amount does {sender} give in the mail "{subject}"?',
        'In "{subject}", what sum did {sender} write?',
        'What amount is in {sender}\'s mail "{subject}"?',
        'I need the dollar figure from the e-mail "{subject}" that {sender} sent.',
        'Find the amount of money that {sender} included in "{subject}".',
        '{sender} wrote "{subject}". How many dollars is it about?',
        'Which price or sum is mentioned in "{subject}" by {sender}?',
    ),
    "date": (
        'What date does {sender} mention in the mail "{subject}"?',
        'Which date is given in "{subject}" from {sender}?',
        'In "{subject}", what date did {sender} write about?',
        'What is the date named in {sender}\'s mail "{subject}"?',
        'I need the date stated inside the e-mail "{subject}" that {sender} sent.',
        'Find the calendar date that {sender} included in "{subject}".',
        '{sender} wrote "{subject}". What date is in it?',
        'Which day is mentioned in "{subject}" by {sender}?',
    ),
    "date_sent": (
        'When did {sender} send the mail "{subject}"?',
        'On what day was "{subject}" sent by {sender}?',
        'When was "{subject}" from {sender} written?',
        'On which day did {sender} mail "{subject}"?',
        'When did I get "{subject}" from {sender}?',
        'What day did {sender} send out "{subject}"?',
        '{sender} wrote "{subject}". When was that sent?',
        'Tell me when the e-mail "{subject}" by {sender} went out.',
    ),
    "sender": (
        'Who sent the mail "{subject}"{when}?',
        'Who wrote "{subject}"{when}?',
        'Which person is "{subject}" from{when}?',
        'Who is the sender of the e-mail "{subject}"{when}?',
        'From whom did the message "{subject}" come{when}?',
        'Who mailed "{subject}"{when}?',
        'Tell me who the author of "{subject}" is{when}.',
        '"{subject}" came{when}. Who was it from?',
    ),
    "subject": (
        "What is the subject of {sender}'s mail {about}{when}?",
        "Which subject line did {sender} use for the mail {about}{when}?",
        "Under what title did {sender} write {about}{when}?",
        "What did {sender} put as the subject when writing {about}{when}?",
        "{sender} wrote {about}{when}. What was the subject line?",
        "Give me the subject of the e-mail {about} by {sender}{when}.",
        "What was the heading of the message {about} from {sender}{when}?",
        "How was the mail {about} titled that {sender} sent{when}?",
    ),
}
_VAGUE: dict[str, tuple[str, ...]] = {
    "phone": (
        "What phone number did {who} give {about}{when}?",
        "Which number do I call {about}, the one {who} sent{when}?",
        "What is the phone number {about} that {who} wrote{when}?",
        "What telephone number did {who} mention {about}{when}?",
        "Where can I call {about}? I think {who} wrote the number{when}.",
        "Can you find the phone number {who} sent {about}{when}?",
        "What number did {who} say to dial {about}{when}?",
        "Which telephone number was in the mail from {who} {about}{when}?",
    ),
    "amount": (
        "How much money did {who} mention {about}{when}?",
        "What amount did {who} give {about}{when}?",
        "What did it cost, according to {who}, {about}{when}?",
        "How many dollars did {who} write {about}{when}?",
        "What was the dollar figure {who} sent {about}{when}?",
        "Can you find the sum {who} named {about}{when}?",
        "What price did {who} quote {about}{when}?",
        "How much was it that {who} wrote {about}{when}?",
    ),
    "date": (
        "What date did {who} give {about}{when_sent}?",
        "Which date did {who} mention {about}{when_sent}?",
        "For what date was it, the thing {who} wrote {about}{when_sent}?",
        "When is the {topic} that {who} wrote about{when_sent}?",
        "Can you find the date {who} named {about}{when_sent}?",
        "When does it happen, according to {who}, {about}{when_sent}?",
        "What is the date in the mail from {who} {about}{when_sent}?",
        "When is {whose} {topic}{when_sent}?",
        "Which day did {who} name {about}{when_sent}?",
        "What date did {who} write down {about}{when_sent}?",
        "Can you tell me the date that {who} stated {about}{when_sent}?",
        "Which calendar date is in what {who} sent {about}{when_sent}?",
    ),
    "date_sent": (
        "When did {who} send the mail {about}{when}?",
        "On what day did {who} write to me {about}{when}?",
        "When was the mail from {who} {about} sent{when}?",
        "What day did I get the message {about} from {who}{when}?",
        "When did {who} mail {about}{when}?",
        "On which day did the e-mail {about} from {who} arrive{when}?",
        "Can you tell me when {who} wrote {about}{when}?",
        "How long ago did {who} send something {about}{when}? I need the exact day.",
    ),
    "sender": (
        "Who wrote {about}{when}?",
        "Who sent me the mail {about}{when}?",
        "From whom was the message {about}{when}?",
        "Who was it that mailed {about}{when}?",
        "Which person sent something {about}{when}?",
        "Can you tell me who wrote to me {about}{when}?",
        "Who is the sender of the e-mail {about}{when}?",
        "There was a mail {about}{when}. Who was it from?",
    ),
    "subject": (
        "What was the subject of the mail {who} sent {about}{when}?",
        "Which subject line did {who} use when writing {about}{when}?",
        "Under what title did {who} write {about}{when}?",
        "What did {who} put as the subject of the message {about}{when}?",
        "How was the mail titled that {who} wrote {about}{when}?",
        "What is the heading of the e-mail from {who} {about}{when}?",
        "Can you find the subject line of what {who} sent {about}{when}?",
        "I got a mail from {who} {about}{when}. What was its subject?",
    ),
}
_HARD_OPENERS = (
    "I remember something {about}, from {who}{when}.",
    "There was a mail {about}, I believe by {who}{when}.",
    "I am looking for the message {about}; it came from {who}{when}.",
    "Some time ago {who} wrote {about}{when}.",
    "I vaguely recall {who} writing {about}{when}.",
    "It was {about}, and {who} sent it{when}.",
    "Somewhere {who} mentioned this: {about}{when}.",
    "You know, the e-mail {about} that {who} sent{when}.",
)
_HARD_ASK: dict[str, tuple[str, ...]] = {
    "phone": (
        "What phone number was in it?",
        "What was the telephone number?",
        "Which number should I call?",
        "Can you give me the phone number?",
        "What number was I to dial?",
        "I need the telephone number from it.",
        "What was the number to call?",
        "Which phone number did it give?",
    ),
    "amount": (
        "How much money was it?",
        "What was the dollar amount?",
        "Which sum did it name?",
        "What did it cost?",
        "How many dollars were mentioned?",
        "What price did it give?",
        "I need the dollar figure from it.",
        "What amount did it state?",
    ),
    "date": (
        "What date did it name?",
        "Which date was given?",
        "When is it to happen?",
        "What was the date it mentioned?",
        "For what date is it?",
        "I need the date that it gave.",
        "When is it, by what it said?",
        "Which calendar date stood in it?",
        "What date did it state?",
        "Which date was mentioned?",
        "I need to know which date it named.",
        "Can you give me the date in it?",
    ),
    "date_sent": (
        "When was it sent?",
        "On what day did it arrive?",
        "When did I get it?",
        "What day was the mail sent?",
        "On which day was it written?",
        "Tell me when it went out.",
        "When was this mailed?",
        "I need to know when it was sent.",
    ),
    "sender": (
        "Who sent it?",
        "Who wrote it?",
        "Who was it from?",
        "From whom did it come?",
        "Which person sent this?",
        "Who is its author?",
        "Tell me who mailed it.",
        "I need to know the sender.",
    ),
    "subject": (
        "What was its subject?",
        "Which subject line did it have?",
        "What was it titled?",
        "Under what heading was it sent?",
        "I need the subject of it.",
        "What stood in the subject line?",
        "Which title did the mail have?",
        "Tell me its subject.",
    ),
}
# Where the question has no sender to name, these openers leave the sender out.
_HARD_OPENERS_UNKNOWN = (
    "I remember something {about}{when}.",
    "There was a mail {about}{when}.",
    "I am looking for the message {about}{when}.",
    "Some time ago there was talk {about}{when}.",
    "I vaguely recall an e-mail {about}{when}.",
    "It was {about}, I am sure{when}.",
    "Somewhere this came up: {about}{when}.",
    "You know, the e-mail {about}{when}.",
)
_ABOUT = ("about", "on", "regarding", "concerning", "about")
_MENTIONING = ("mentioning", "with the words", "that mentioned", "where it says")
_COMING = ("When is", "When does", "For what date", "to happen")
"""Wordings that ask for a date which was still to come when the mail was sent."""
_ANYONE = ("someone", "somebody", "they")
_AT = ("someone at {}", "somebody at {}", "a person at {}", "someone from {}")

_ALL = (
    *(text for table in (_EXACT, _VAGUE, _HARD_ASK) for texts in table.values() for text in texts),
    *_HARD_OPENERS, *_HARD_OPENERS_UNKNOWN, *_ABOUT, *_MENTIONING, *_ANYONE, *_AT,
    "the and in back of this month's it was",
)  # fmt: skip
TEMPLATE_WORDS = frozenset(
    word for text in _ALL for word in re.findall(r"[a-z]+", re.sub(r"\{\w*\}", " ", text).lower())
)
"""Every word that a template can bring into a question; none of them is used as a clue."""


def phrase(clues: Clues, tier: Tier, rng: random.Random, *, coming: bool = True) -> str:
    """The question's text; `rng` chooses among the templates.

    Args:
        coming: False if the date asked for was past when the mail was sent, so that it is
            not asked "When is it?".
    """

    def suitable(texts: tuple[str, ...]) -> tuple[str, ...]:
        if coming or clues.kind != "date":
            return texts
        return tuple(text for text in texts if not any(part in text for part in _COMING))

    when = f" in {MONTHS[clues.month - 1].capitalize()}" if clues.month else ""
    if tier == "exact":
        template = rng.choice(_EXACT[clues.kind])
        return _finished(
            template.format(
                subject=clues.subject, sender=clues.sender, when=when, about=_about(clues, rng, split=False)
            )
        )
    who, whose = _who(clues, rng), _whose(clues)
    if tier == "vague":
        choices = suitable(_VAGUE[clues.kind])
        if whose is None:
            choices = tuple(text for text in choices if "{whose}" not in text)
        template = rng.choice(choices)
        topic = " ".join(word.text for word in clues.words)
        return _finished(
            template.format(
                who=who,
                whose=whose,
                topic=topic,
                when=when,
                # "What date ... in March" would read as the value's month.
                when_sent=f" (sent{when})" if when else "",
                about=_about(clues, rng, split=True),
            )
        )
    unknown = clues.sender is None or clues.kind == "sender"
    opener = rng.choice(_HARD_OPENERS_UNKNOWN if unknown else _HARD_OPENERS)
    first = opener.format(who=who, when=when, about=_about(clues, rng, split=False))
    return _finished(f"{first} {rng.choice(suitable(_HARD_ASK[clues.kind]))}")


def _finished(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:] if not text.startswith(('"',)) and "@" not in text.split()[0] else text


def _who(clues: Clues, rng: random.Random) -> str:
    if clues.sender is None:
        return rng.choice(_ANYONE)
    if clues.sender_form == "organisation":
        return rng.choice(_AT).format(clues.sender)
    return _capital(clues.sender)


def _whose(clues: Clues) -> str | None:
    if clues.sender is None:
        return "the"
    return None if clues.sender_form == "organisation" else f"{_capital(clues.sender)}'s"


def _capital(name: str) -> str:
    return name if "@" in name else " ".join(part[:1].upper() + part[1:] for part in name.split(" "))


def _about(clues: Clues, rng: random.Random, *, split: bool) -> str:
    topic = [word.text for word in clues.words if word.where == "subject"] if split else []
    rest = [word.text for word in clues.words if word.text not in topic]
    if not topic:
        return f"{rng.choice(_ABOUT)} {_listed(rest, rng)}"
    mention = f" {rng.choice(_MENTIONING)} {_listed(rest, rng)}" if rest else ""
    the = "the " if rng.random() < 0.4 else ""
    return f"{rng.choice(_ABOUT)} {the}{' '.join(topic)}{mention}"


def _listed(words: list[str], rng: random.Random) -> str:
    if len(words) < 2 or rng.random() < 0.2:
        return " ".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
