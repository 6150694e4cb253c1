"""Citizens, and what they say of an answer; every seed is another town."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from truth import KINDS, THINGS, right


@dataclass(frozen=True)
class Town:
    """What is drawn for a seed: which kinds are asked, how often, and how everybody errs."""

    kinds: tuple[str, ...]
    weights: tuple[int, ...]
    people: int
    things: tuple[str, ...]
    mistaken: float
    silent: float
    luck: dict[str, float]
    """Kind → how often the model has it right without its rule."""
    slips: float
    useless: float
    """Share of the adviser's answers that do not help, half of it harmful."""
    chatty: float
    """Share of the adviser's answers that add a rule that changes nothing."""
    roomy: int
    """Words of a prompt from which on the model errs more."""


def town(seed: int) -> Town:
    """The same one for seeds that are a thousand apart: people whom nothing has seen live there."""
    draw = random.Random(f"town {seed % 1000}")
    kinds = tuple(draw.sample(sorted(KINDS), draw.choice([3, 4, 4, 5])))
    return Town(
        kinds,
        tuple(draw.choice([2, 3, 3, 4]) for _ in kinds),
        draw.randint(50, 64),
        tuple(draw.sample(THINGS, draw.randint(7, 12))),
        draw.uniform(0.08, 0.16),
        draw.choice([0.0, 0.0, 0.06]),
        {name: draw.uniform(0.2, 0.5) for name in kinds},
        draw.uniform(0.03, 0.07),
        draw.uniform(0.5, 0.65),
        draw.choice([0.0, 0.3, 0.5]),
        draw.randint(80, 130),
    )


def questions(seed: int) -> list[dict[str, str]]:
    """Four of each citizen, in the order in which they come."""
    here, draw = town(seed), random.Random(f"questions {seed}")
    asked = []
    for each in range(here.people):
        kinds = draw.choices(here.kinds, here.weights, k=4)
        texts = {draw.choice(KINDS[kind].asked).format(draw.choice(here.things)): None for kind in kinds}
        asked += [{"person": f"citizen-{each:02}", "question": text} for text in texts]
    draw.shuffle(asked)
    return asked


def thumb(seed: int, person: str, question: str, answer: str) -> int:
    """1 or -1; 0 where this citizen says nothing."""
    here = town(seed)
    digest = hashlib.sha256(f"{seed}|{person}|{question}|{answer}".encode()).digest()
    chance = int.from_bytes(digest[:4]) / 2**32
    if chance > 1 - here.silent:
        return 0
    return 1 if right(question, answer) != (chance < here.mistaken) else -1
