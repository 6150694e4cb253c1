"""Visitors of the museum, and what they say of an answer."""

from __future__ import annotations

import hashlib
import random

from truth import TOURS, WORKS, right

WRONG_THUMBS = 0.13


def questions(seed: int) -> list[dict[str, str]]:
    """What 58 visitors ask, in the order in which they come."""
    draw = random.Random(f"museum {seed}")
    asked = []
    for number in range(58):
        kinds = ["room", "painter", "tour", draw.choice(["room", "painter"])]
        for text in dict.fromkeys(_question(kind, draw) for kind in kinds):
            asked.append({"person": f"visitor-{number:02}", "question": text})
    draw.shuffle(asked)
    return asked


def thumb(seed: int, person: str, question: str, answer: str) -> int:
    """1 or -1; a visitor is mistaken in 13 of 100."""
    digest = hashlib.sha256(f"{seed}|{person}|{question}|{answer}".encode()).digest()
    mistaken = int.from_bytes(digest[:4]) / 2**32 < WRONG_THUMBS
    return 1 if right(question, answer) != mistaken else -1


def _question(kind: str, draw: random.Random) -> str:
    work = draw.choice(sorted(WORKS))
    if kind == "room":
        return draw.choice([f"Where does {work} hang?", f"I am looking for {work}."])
    if kind == "painter":
        return f"Who painted {work}, and when?"
    return f"When is the tour on {draw.choice(sorted(TOURS))}?"
