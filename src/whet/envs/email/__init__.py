"""The e-mail world: mailboxes, search, questions with checkable answers, and an Env to ask them in."""

from .entities import BODY_KINDS, KINDS, Kind, extract, find, plain_subject, same
from .index import Hit, Inbox, MailIndex, ToolCall, World, tokens
from .mailbox import Duplicate, Mail, Problem, Reading, read_mail
from .phrasing import TEMPLATE_WORDS, TIERS, Clues, ClueWord, Tier
from .questions import Fact, derive, sender_parts, shortage
from .rubric import Rubric, checked, published_reward, says_unknown, training_reward
from .synthetic import generate, write
from .world_env import MailEnv

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
    "MailEnv",
    "MailIndex",
    "Problem",
    "Reading",
    "Rubric",
    "Tier",
    "ToolCall",
    "World",
    "checked",
    "derive",
    "extract",
    "find",
    "generate",
    "plain_subject",
    "published_reward",
    "read_mail",
    "same",
    "says_unknown",
    "sender_parts",
    "shortage",
    "tokens",
    "training_reward",
    "write",
]
