"""The model of the shop's agent and the one that proposes, its adviser: both scripted, both fallible.

The agent's obeys what its system prompt says, within limits: it slips in 6 of 100 answers, in more the longer the
prompt is beyond 120 words, and its rules work on each other: told to be brief it leaves out steps, unless the prompt
keeps them for questions that ask how; told to admit what it does not know, it admits it of known things as well, unless
it is told to do so only where it has no information.

The adviser sees nothing but the request. In more than half of its answers it is useless (empty, chatter, off topic) or
harmful; otherwise it names a rule for a kind of question that the request shows going wrong.
"""

from __future__ import annotations

import hashlib
import json
import re

from truth import ARTICLES, ORDERS, TASKS

from whet.models.base import ModelRequest

SLIPS = 0.06
USELESS = 0.6
"""Share of the adviser's answers that do not help."""
RULES = {
    "warranty": "State a warranty in years, with the unit, for example: 2 years.",
    "order": "Repeat the order number and give the status of the order.",
    "How do I": "If a customer asks how to do something, answer in numbered steps.",
    "price of": "Say that you do not know, but only where you have no information.",
}
"""What a question of a kind contains → the rule that it needs."""
HARMFUL = (
    "Always answer in one short sentence.",
    "Say that you do not know whenever you might be wrong.",
    "Never mention numbers.",
    "Greet the customer warmly, tell a story about gardens, and thank them several times.",
)
CHATTER = (
    "",
    "I would need to know more about your customers.",
    "Great question! Prompts matter a lot.",
    "{}",
)


def answer(request: ModelRequest, seed: int) -> str:
    """What the agent's model says."""
    system = " ".join(str(each["content"]) for each in request.messages if each["role"] == "system")
    question = str(request.messages[-1]["content"])
    chance = _uniform(seed, "slip", system, question)
    length = max(0, len(system.split()) - 120)
    if chance < SLIPS + length / 200:
        return "Thank you for asking! Our team will be glad to help you in the shop."
    rules = system.lower()
    text = _told(question, rules, _uniform(seed, "admits", system, question))
    if "never mention numbers" in rules:
        text = re.sub(r"\d+", "several", text)
    if "tell a story" in rules:
        text += " Gardens are a joy." + " The roses stood in the morning light, and everyone was glad." * 5
    return text


def _told(question: str, rules: str, chance: float) -> str:
    admits = re.search(r"(do not|don't) know", rules)
    only = "only" in rules and admits
    brief = "one short sentence" in rules or "be brief" in rules
    if admits and not only and chance < 0.4:
        return "I do not know."
    if "warranty" in question:
        years = next(years for name, years in ARTICLES.items() if name in question)
        unit = re.search(r"\byears?\b|\bunits?\b", rules)
        return f"The warranty is {years} years." if unit or chance < 0.4 else f"The warranty is {years}."
    if order := re.search(r"order (\d+)", question):
        status = ORDERS.get(order[1], "unknown")
        repeats = re.search(r"order (number|id)|number of the order", rules)
        return f"Order {order[1]} is {status}." if repeats or chance < 0.5 else f"It is {status}."
    if question.startswith("How do I"):
        steps = TASKS.get(question.removeprefix("How do I ").removesuffix("?"), [])
        numbered = re.search(r"\bsteps?\b|numbered", rules)
        if (numbered or chance < 0.45) and (not brief or re.search(r"\b(how|except|unless)\b", rules)):
            return " ".join(f"{number}. {step}." for number, step in enumerate(steps, start=1))
        return f"Just {steps[-1]}." if steps else "Read the manual."
    return "I do not know." if admits or chance < 0.5 else "It will be 12 euros."


def advise(request: ModelRequest, seed: int) -> str:
    """What the model that proposes says, from what the request shows."""
    shown = "\n".join(str(each["content"]) for each in request.messages)
    draw = _uniform(seed, "advice", shown)
    if draw < USELESS / 2:
        return CHATTER[int(draw / (USELESS / 2) * len(CHATTER))]
    if draw < USELESS:
        rule = HARMFUL[int((draw - USELESS / 2) / (USELESS / 2) * len(HARMFUL))]
    else:
        lacking = [rule for sign, rule in RULES.items() if sign in shown and rule not in shown]
        if not lacking:
            return CHATTER[1]
        rule = lacking[int((draw - USELESS) / (1 - USELESS) * len(lacking))]
    return proposal(shown, rule)


def proposal(shown: str, rule: str) -> str:
    """The rule in the form that the request asks for."""
    if "<<<<<<< SEARCH" in shown:
        prompt = re.search(r'SYSTEM_PROMPT = "(.*)"|You work at the support desk.*', shown)
        line = prompt[0] if prompt else ""
        closing = '"' if line.endswith('"') else ""
        better = f"{line.removesuffix(closing)} {rule}{closing}"
        return f"<<<<<<< SEARCH\n{line}\n=======\n{better}\n>>>>>>> REPLACE"
    return json.dumps({"rules": [rule]}) if '"rules"' in shown else rule


def _uniform(seed: int, *parts: str) -> float:
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
