"""Sorts messages by a prompt; `model` stands in for a language model that obeys rules and copies examples."""

import re

# whet: evolve kind=prompt
PROMPT = """You sort messages into teams.
- Answer with one word.
"""
KNOWN = {"parcel": "delivery", "tracking": "delivery", "courier": "delivery", "password": "account"}


def model(prompt: str, message: str) -> str:
    """Rules first, then what it knows, then the most similar example, else a guess."""
    words = set(re.findall("[a-z]+", message.lower()))
    for word, team in re.findall(r'When the input mentions "(\w+)", the answer is "(\w+)"', prompt):
        if word in words:
            return team
    known = [team for word, team in KNOWN.items() if word in words]
    if known:
        return known[0]
    best = (0.05, "general")
    for given, team in re.findall(r"Input: (.*)\nAnswer: (.*)", prompt):
        theirs = set(re.findall("[a-z]+", given.lower()))
        best = max(best, (len(words & theirs) / len(words | theirs), team))
    return best[1]


def sort(message: str) -> str:
    """The team that a message is for."""
    return model(PROMPT, message)
