from __future__ import annotations

import hashlib
import json
import re

from truth import AMOUNTS, BAKES, SWAPS

from whet.models.base import text_of

RULES = {
    "goes into": "Give amounts in grams, per person.",
    "oven": "For baking give the degrees and the minutes.",
    "bake": "For baking give the degrees and the minutes.",
    "take for": "For a replacement give the ratio, for example 2 to 1.",
    "run out": "If a cook has run out of something, the topic is swap.",
}
HARM = (
    "Answer in one word.",
    "Recommend a restaurant instead.",
    "Write a poem of eight lines about the dish first.",
    "Leave out all quantities.",
)
CHAT = ("", "Cooking is love.", "I would need to see more of the kitchen before I can say.", "{}")


def answer(request, seed):
    system = " ".join(text_of(m) for m in request.messages if m["role"] == "system")
    asked = text_of(request.messages[-1])
    rules = system.lower()
    u = _uniform(seed, "slip", system, asked)
    if asked.startswith("Topic:"):
        if u < 0.05 + max(0, len(system.split()) - 110) / 200:
            return json.dumps({"answer": "Taste it and see!"})
        topic, question = re.match(r"Topic: (.*)\nQuestion: (.*)", asked, re.S).groups()
        text = _write(topic, question, rules, _uniform(seed, "write", system, asked))
        if "leave out all quantities" in rules:
            text = re.sub(r"\d+", "some", text)
        if "restaurant" in rules:
            text = "Try the restaurant at the corner."
        if "poem" in rules:
            text = "O dish of mine, how bright you shine upon the table set for nine. " * 4 + text
        if "one word" in rules:
            text = text.split()[0]
        return json.dumps({"answer": text})
    if "restaurant" in rules or "poem" in rules:
        return "other"
    if u < 0.04:
        return "amount"
    if "goes into" in asked:
        return "amount"
    if "oven" in asked or "bake" in asked:
        return "bake"
    if "run out" in asked:
        return (
            "swap"
            if re.search(r"run out|lack|replac|missing", rules)
            or _uniform(seed, "route", system, asked) < 0.3
            else "amount"
        )
    return "swap"


def _write(topic, question, rules, u):
    for name, (what, grams) in AMOUNTS.items():
        if name in question:
            if topic != "amount":
                return "That is a matter of taste."
            full = re.search(r"\bgrams?\b|per person", rules) or u < 0.4
            return f"Take {grams} g of {what} per person." if full else f"A good handful of {what}."
    for name, (degrees, minutes) in BAKES.items():
        if name in question:
            if topic != "bake":
                return "As much as you like."
            full = re.search(r"degrees|minutes", rules) or u < 0.4
            return (
                f"Bake {name} at {degrees} degrees for {minutes} minutes."
                if full
                else f"Bake {name} in a hot oven until it looks done."
            )
    for name, (other, ratio) in SWAPS.items():
        if name in question:
            if topic != "swap":
                return "About a cup should do."
            full = re.search(r"ratio|\d to \d", rules) or u < 0.35
            return f"Take {other}, {ratio}." if full else f"You could take {other}."
    return "I am not sure."


def advise(request, seed):
    shown = "\n".join(text_of(m) for m in request.messages)
    u = _uniform(seed, "advice", shown)
    if u < 0.3:
        return CHAT[int(u / 0.3 * 4)]
    if u < 0.6:
        return _form(shown, HARM[int((u - 0.3) / 0.3 * 4)])
    lacking = list(dict.fromkeys(r for s, r in RULES.items() if s in shown and r not in shown))
    if not lacking:
        return CHAT[1]
    return _form(shown, lacking[int((u - 0.6) / 0.4 * len(lacking))])


def _form(shown, rule):
    return json.dumps({"rules": [rule]}) if '"rules"' in shown else rule


def _uniform(seed, *parts):
    digest = hashlib.sha256("\0".join((str(seed), *parts)).encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
