"""The e-mail world: mailboxes, search, questions with checkable answers, and an Env to ask them in."""

from .entities import BODY_KINDS, KINDS, extract, find, plain_subject, same
from .index import Hit, Inbox, MailIndex, MailWorld, tokens
from .mailbox import MailFolder, read_mail
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
    "MailFolder",
    "MailIndex",
    "MailWorld",
    "Rubric",
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
