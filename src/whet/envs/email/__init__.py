"""The e-mail world: mailboxes, search, questions with checkable answers, and an Env to ask them in."""

from .entities import BODY_KINDS, KINDS, Kind, extract, find, plain_subject, same
from .index import Hit, Inbox, MailIndex, World
from .mailbox import Duplicate, Mail, Problem, Reading, read_mail
from .phrasing import TEMPLATE_WORDS, TIERS, Clues, ClueWord, Tier
from .questions import Fact, derive, sender_parts

__all__ = [
    "BODY_KINDS",
    "KINDS",
    "TEMPLATE_WORDS",
    "TIERS",
    "ClueWord",
    "Clues",
    "Duplicate",
    "Fact",
    "Hit",
    "Inbox",
    "Kind",
    "Mail",
    "MailIndex",
    "Problem",
    "Reading",
    "Tier",
    "World",
    "derive",
    "extract",
    "find",
    "plain_subject",
    "read_mail",
    "same",
    "sender_parts",
]
