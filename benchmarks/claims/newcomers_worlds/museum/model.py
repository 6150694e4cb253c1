"""The guide's model, which likes to talk, and the adviser, which helps in 4 of 10 answers."""

from __future__ import annotations

import hashlib
import json
import re

from truth import TOURS, WORKS

from whet.models.base import ModelRequest, text_of

RULES = {
    "hang": "To where a work is, say the room and its number, without a sentence around it.",
    "looking for": "To where a work is, say the room and its number, without a sentence around it.",
    "painted": "To who painted something, give the painter and the year, separated by a comma.",
    "tour": "To when a tour is, give the time of day and not a word more.",
}
HARMFUL = (
    "Begin every answer with the history of the museum.",
    "Answer with one word.",
    "Send visitors to the ticket desk.",
    "Do not give numbers.",
)
CHATTER = ("", "Museums are wonderful.", "Tell me more about your visitors first.", "{}")
TALK = (
    "Thank you very much for your interest in our collection, we are delighted to help you with this today.",
    "It is a lovely question, and one that many of our visitors ask us every day of the year.",
)


def answer(request: ModelRequest, seed: int) -> str:
    """What the guide says: the bare answer where a rule asks for it, else often with much before it, or behind it.

    Which of the two the seed says: even ones have it before, odd ones behind.
    """
    system = " ".join(text_of(each) for each in request.messages if each["role"] in ("system", "developer"))
    question, rules = text_of(request.messages[-1]), system.lower()
    chance = _uniform(seed, "slip", system, question)
    if chance < 0.06 + max(0, len(system.split()) - 110) / 200:
        return "Please enjoy your visit!"
    luck = _uniform(seed, "luck", system, question)
    if "history of the museum" in rules:
        return (
            "The museum was founded by a merchant who loved ships and gave all his paintings to the town. "
            * 2
        )
    if "ticket desk" in rules:
        return "Please ask at the ticket desk."
    text, told = _said(question, rules, luck)
    if not told and luck > 0.4:
        talk = TALK[int(luck * 1000) % 2]
        text = f"{text}. {talk}" if seed % 2 else f"{talk} {text}"
    if "do not give numbers" in rules:
        text = re.sub(r"[0-9:]+", "some", text)
    return text.split()[0] if "one word" in rules else text


def _said(question: str, rules: str, luck: float) -> tuple[str, bool]:
    """An answer, and whether the prompt says how such a question is answered."""
    if day := next((day for day in TOURS if day in question), None):
        return TOURS[day], "time of day" in rules
    room, painter, year = next(WORKS[work] for work in WORKS if work in question)
    if "painted" in question:
        told = "and the year" in rules
        return f"{painter}, {year}" if told or luck < 0.3 else painter, told
    return f"Room {room}", "room and its number" in rules


def advise(request: ModelRequest, seed: int) -> str:
    """What the adviser says, from what the request shows."""
    shown = "\n".join(text_of(each) for each in request.messages)
    chance = _uniform(seed, "advice", shown)
    if chance < 0.3:
        return CHATTER[int(chance / 0.3 * len(CHATTER))]
    if chance < 0.6:
        return _proposed(shown, HARMFUL[int((chance - 0.3) / 0.3 * len(HARMFUL))])
    lacking = list(dict.fromkeys(rule for sign, rule in RULES.items() if sign in shown and rule not in shown))
    if not lacking:
        return CHATTER[1]
    return _proposed(shown, lacking[int((chance - 0.6) / 0.4 * len(lacking))])


def _proposed(shown: str, rule: str) -> str:
    return json.dumps({"rules": [rule]}) if '"rules"' in shown else rule


def _uniform(seed: int, *parts: str) -> float:
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
