"""Sixty customers with four questions each, and what they say of an answer."""

from __future__ import annotations

import hashlib
import random

from truth import ARTICLES, ORDERS, TASKS, UNKNOWN, right

PEOPLE, EACH = 60, 4
WRONG_THUMBS = 0.15


def questions(seed: int) -> list[dict[str, str]]:
    """What the customers ask, in the order in which they come; nobody asks one thing twice."""
    draw = random.Random(f"questions {seed}")
    asked = []
    for number in range(PEOPLE):
        person = f"customer-{number:02}"
        kinds = [*draw.sample(["warranty", "order", "how", "unknown"], 3), "warranty"]
        for text in {_question(kind, draw): None for kind in kinds}:
            asked.append({"person": person, "question": text})
    draw.shuffle(asked)
    return asked


def thumb(seed: int, person: str, question: str, answer: str) -> int:
    """1 or -1; the customer is mistaken in 15 of 100."""
    digest = hashlib.sha256(f"{seed}|{person}|{question}|{answer}".encode()).digest()
    mistaken = int.from_bytes(digest[:4]) / 2**32 < WRONG_THUMBS
    return 1 if right(question, answer) != mistaken else -1


def _question(kind: str, draw: random.Random) -> str:
    match kind:
        case "warranty":
            article = draw.choice(sorted(ARTICLES))
            return draw.choice(
                [
                    f"How long is the warranty of the {article}?",
                    f"The warranty of my {article}: how long is it?",
                ]
            )
        case "order":
            return f"Where is my order {draw.choice(sorted(ORDERS))}?"
        case "how":
            return f"How do I {draw.choice(sorted(TASKS))}?"
        case _:
            return f"Do you know the price of {draw.choice(UNKNOWN)} next spring?"
