"""Hikers, of whom most say nothing: 15 of 100 answers get a thumb, and more of those that somebody is cross about."""

from __future__ import annotations

import hashlib
import random

from truth import GROUPS, SPACE, SUMMITS, right

MISTAKEN = 0.12
CROSS, PLEASED = 0.18, 0.12
"""How often who is cross and who is pleased says so."""
ASKED = {
    "chemin": ("Comment monter : {} ?", "Par où passe-t-on : {} ?"),
    "sac": ("Que faut-il emporter : {} ?", "Qu'est-ce qu'on met dans le sac : {} ?"),
    "danger": ("Y a-t-il du danger : {} ?", "Quels risques : {} ?"),
    "prix": ("Combien coûte une nuit pour {} personnes{} ?", "Prix pour {} personnes{} ?"),
}


def questions(seed: int) -> list[dict[str, str]]:
    """What 170 hikers ask, some once and some a dozen times, in the order in which they come."""
    draw = random.Random(f"refuge {seed}")
    asked = []
    for number in range(170):
        person = f"{draw.choice('abc')}{number}@sentier.example"
        kinds = draw.choices(sorted(ASKED), k=draw.choice([1, 4, 8, 12, 16]))
        asked += [{"person": person, "question": _question(kind, draw)} for kind in kinds]
    draw.shuffle(asked)
    return asked


def thumb(seed: int, person: str, question: str, answer: str) -> int:
    """1, -1, or mostly 0; 12 of 100 thumbs are mistaken."""
    digest = hashlib.sha256(f"{seed}|{person}|{question}|{answer}".encode()).digest()
    speaks, errs = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (0, 4))
    liked = right(question, answer) != (errs < MISTAKEN)
    if speaks > (PLEASED if liked else CROSS):
        return 0
    return 1 if liked else -1


def _question(kind: str, draw: random.Random) -> str:
    words = draw.choice(ASKED[kind]).replace(" ?", f"{SPACE}?")
    if kind == "prix":
        return words.format(draw.choice(GROUPS), draw.choice(["", " en demi-pension"]))
    return words.format(draw.choice(sorted(SUMMITS)))
