"""What is right, which only the test knows: neither the agent nor whet is shown this file."""

from __future__ import annotations

import re

ARTICLES = {
    "mower": 3,
    "hose": 2,
    "trimmer": 4,
    "pump": 5,
    "lamp": 1,
    "barrow": 7,
    "shredder": 6,
    "sprayer": 8,
}
ORDERS = {
    str(4100 + 37 * number): state
    for number, state in enumerate(["packed", "sent", "delayed", "delivered"] * 6)
}
TASKS = {
    "wind up the hose": ["drain the hose", "turn the crank", "lock the reel"],
    "change the blade of the mower": ["pull the plug", "loosen the bolt", "fit the blade"],
    "store the pump in winter": ["empty the pump", "dry the pump", "keep it above freezing"],
    "clean the shredder": ["pull the plug", "open the lid", "brush the knives"],
    "charge the trimmer": ["remove the battery", "place it on the charger", "wait for the green light"],
}
UNKNOWN = ["bulbs", "compost", "tulips", "bark", "gravel", "pond foil"]
LONGEST = 45
"""Words of a right answer, at most."""


def right(question: str, answer: str) -> bool:
    """True if this answer is what the customer needs."""
    text = answer.lower()
    if len(text.split()) > LONGEST:
        return False
    if "warranty" in question:
        article = next(name for name in ARTICLES if name in question)
        years = ARTICLES[article]
        return re.search(rf"\b{years} years?\b", text) is not None
    if order := re.search(r"order (\d+)", question):
        return order[1] in text and ORDERS[order[1]] in text
    if question.startswith("How do I"):
        task = question.removeprefix("How do I ").removesuffix("?")
        return all(f"{number}. {step}" in text for number, step in enumerate(TASKS[task], start=1))
    return "do not know" in text or "don't know" in text
