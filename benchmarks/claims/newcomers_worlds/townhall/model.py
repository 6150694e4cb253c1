"""The clerk's model, and an adviser that helps in fewer than half of its answers; the seed's town says how they err."""

from __future__ import annotations

import hashlib
import json
import random

from people import town
from truth import KINDS, kind_of

from whet.models.base import ModelRequest, text_of

HARMFUL = {
    "Answer in three words.": lambda text: " ".join(text.split()[:3]),
    "Send everybody to the counter.": lambda text: "Please come to the counter.",
    "Never write digits.": lambda text: "".join("some" if each.isdigit() else each for each in text),
    "Begin with the history of the town.": lambda text: (
        "The town was founded by a miller long ago. " * 6 + text
    ),
    "Tell people that you do not know it.": lambda text: "I do not know.",
    "Answer with a question.": lambda text: "What do you think?",
}
IDLE = (
    "Be professional.",
    "Think before you answer.",
    "Remember that citizens are busy people.",
    "Stay calm and kind at all times.",
    "Write plain sentences.",
)
CHATTER = ("", "Town halls are wonderful.", "I would have to know more about your citizens.", "{}")


def answer(request: ModelRequest, seed: int) -> str:
    """What the clerk says: what is needed where a rule of the prompt asks for it, else by luck."""
    here = town(seed)
    system = " ".join(text_of(each) for each in request.messages if each["role"] == "system")
    question, rules = text_of(request.messages[-1]), system.lower()
    if _uniform(seed, "slip", system, question) < here.slips + max(0, len(system.split()) - here.roomy) / 200:
        return "Thank you for your letter, we wish you a pleasant day!"
    name, thing = kind_of(question)
    if not name:
        return "I am not sure."
    kind, told = KINDS[name], _told(rules, name)
    text = (
        kind.good(thing)
        if told or _uniform(seed, "luck", system, question) < here.luck[name]
        else kind.bad(thing)
    )
    for rule, does in HARMFUL.items():
        if rule.lower() in rules:
            text = does(text)
    return text


def _told(rules: str, name: str) -> bool:
    return any(rule.lower() in rules for rule in KINDS[name].rules)


def advise(request: ModelRequest, seed: int) -> str:
    """What the adviser says, from what the request shows."""
    here = town(seed)
    shown = "\n".join(text_of(each) for each in request.messages)
    chance = _uniform(seed, "advice", shown)
    draw = random.Random(f"{seed} {chance}")
    if chance < here.useless / 2:
        return draw.choice(CHATTER)
    more = [draw.choice(IDLE)] if draw.random() < here.chatty else []
    if chance < here.useless:
        chosen = draw.choice(sorted(HARMFUL))
    else:
        lacking = [
            rule
            for name in here.kinds
            if KINDS[name].sign() in shown and not _told(shown.lower(), name)
            for rule in KINDS[name].rules
        ]
        if not lacking:
            return CHATTER[1]
        chosen = draw.choice(lacking)
    rules = [chosen, *more]
    draw.shuffle(rules)
    return json.dumps({"rules": rules}) if '"rules"' in shown else "\n".join(f"- {rule}" for rule in rules)


def _uniform(seed: int, *parts: str) -> float:
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
