"""The e-mail world: mailboxes, search, questions with checkable answers, and an Env to ask them in."""

from .entities import BODY_KINDS, KINDS, extract, find, plain_subject, same
from .index import Hit, Inbox, MailIndex, World, tokens
from .mailbox import Reading, read_mail
from .parse import Mail
from .phrasing import TEMPLATE_WORDS, TIERS, Clues, ClueWord
from .questions import derive, shortage
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
    "Hit",
    "Inbox",
    "Mail",
    "MailEnv",
    "MailIndex",
    "Reading",
    "Rubric",
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
    "shortage",
    "tokens",
    "training_reward",
    "write",
]
