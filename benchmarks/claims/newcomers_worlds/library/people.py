"""Sixty-four readers with four questions each, and what they say of an answer."""

from __future__ import annotations

import hashlib
import random

from truth import BOOKS, ELSEWHERE, FINES, RENEWED, right

READERS = 64
MISTAKEN = 0.15
WORDINGS = {
    "renew": (
        (
            "Can I keep it longer? It is due back on {}.",
            "My loan is due on {}, please renew.",
            "Mine is due on {}, and I am only at page 40!",
        ),
        RENEWED,
    ),
    "where": (("Where do I find {}?", "Is {} in, and where?", "I am looking for {}."), BOOKS),
    "fine": (
        (
            "I am {} days late, what do I owe?",
            "My book is {} days overdue. The fine?",
            "What is the fine for {} days overdue?",
        ),
        FINES,
    ),
    "elsewhere": (("Can you tell me {}?",), ELSEWHERE),
}
"""Kind of question → how it is asked, and of what."""


def questions(seed: int) -> list[dict[str, str]]:
    """What the readers ask, in the order in which it comes."""
    draw = random.Random(f"readers {seed}")
    asked = []
    for number in range(READERS):
        # Most come for a loan; now and then for something that a lending desk cannot know.
        kinds = draw.choices(("renew", "where", "fine", "elsewhere"), (3, 3, 3, 2), k=4)
        for text in dict.fromkeys(_question(kind, draw) for kind in kinds):
            asked.append({"person": f"card-{7000 + 13 * number}", "question": text})
    draw.shuffle(asked)
    return asked


def _question(kind: str, draw: random.Random) -> str:
    wording, known = WORDINGS[kind]
    return draw.choice(wording).format(draw.choice(sorted(known)))


def thumb(seed: int, person: str, question: str, answer: str) -> int:
    """1 or -1; the reader is mistaken in 15 of 100."""
    digest = hashlib.sha256(f"{seed}/{person}/{question}/{answer}".encode()).digest()
    mistaken = int.from_bytes(digest[:4]) / 2**32 < MISTAKEN
    return 1 if right(question, answer) != mistaken else -1
