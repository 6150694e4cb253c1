"""Answers what people ask about their own mail, which lies in a folder of their name below the one that MAIL names."""

import functools
import os
from pathlib import Path

from mail_agent import agent
from mail_agent.tools import Inbox


@functools.lru_cache(100)
def inbox(person):
    """A person's mail, indexed once."""
    return Inbox(Path(os.environ["MAIL"]) / person)


def answer(question, person=""):
    """The answer to one question about a person's mail."""
    return agent.answer(question, inbox(person))
