"""The model of the shop's agent and the one that proposes, its adviser: both scripted, both fallible.

The agent's calls the tools that it is offered, one after another, and answers by what they give and by what its system
prompt says: where a rule for a kind of question is missing it gets most of them wrong in form.  It slips in 4 of 100
answers, recites remembered numbers wrongly at a high temperature, and stops at its limit of words.

The adviser sees nothing but the request.  In 6 of 10 answers it is useless or harmful; otherwise it mends what the
request shows to be broken, if anything, in the form that the request asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import faults
import truth

SLIPS, LACKING = 0.04, 0.8
"""Chance of a slip, and of an answer in the wrong form where its rule is missing."""
USELESS = 0.6
"""Share of the adviser's answers that do not help."""
CHATTER = (
    "",
    "I would need to know more about your customers.",
    "Great question! Prompts matter a lot.",
    "{}",
)
HARMFUL = (
    "Always answer in one word.",
    "Say that you do not know whenever you might be wrong.",
    "Never mention numbers.",
    "Tell a story about gardens before you answer.",
)


def uniform(seed: int, *parts: str) -> float:
    """A number in [0, 1) that these decide."""
    digest = hashlib.blake2b("\0".join((str(seed), *parts)).encode(), digest_size=4).digest()
    return int.from_bytes(digest) / 2**32


def complete(body: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], str]:
    """What the agent's model says to a request: a message, and why it stopped.

    Args:
        seed: of this run; the same request may be answered otherwise in another one.
    """
    messages = body["messages"]
    system = next((str(each["content"]) for each in messages if each["role"] == "system"), "")
    question = next(str(each["content"]) for each in messages if each["role"] == "user")
    results = [json.loads(each["content"]) for each in messages if each["role"] == "tool"]
    kind, arguments = truth.read(question)
    offered = [each["function"]["name"] for each in body.get("tools", ())]
    if len(results) < len(offered):
        called = offered[len(results)]
        call = _call(called, kind, arguments, results)
        if call is not None:
            function = {"name": called, "arguments": json.dumps(call)}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call-{len(results)}", "type": "function", "function": function}],
            }, "tool_calls"
    text = _answer(kind, arguments, results, system, question, float(body.get("temperature", 1.0)), seed)
    words = text.split()
    most = int(body.get("max_tokens") or 1_000)
    if len(words) > most:
        return {"role": "assistant", "content": " ".join(words[:most])}, "length"
    return {"role": "assistant", "content": text}, "stop"


def _call(
    tool: str, kind: str, arguments: Mapping[str, str], results: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The arguments of a call, from the question and from what earlier calls gave; None where they are not there."""
    known = {name: value for each in results for name, value in each.items()}
    wanted: dict[str, Sequence[str]] = {
        "price": ["article"],
        "stock": ["article"],
        "delivery": ["price", "count", "town"],
        "discount": ["price", "percent"],
        "convert": ["amount", "unit", "into"],
        "weight": ["article", "count"],
        "card": ["code"],
        "deposit": ["article"],
        "order": ["number"],
        "returns": ["number", "days"],
        "cancel": ["number"],
        "invoice": ["number"],
        "zone": ["town"],
        "warranty": ["article"],
        "manual": ["task"],
        "hours": ["town", "day"],
        "frost": ["plant"],
        "soil": ["plant"],
        "poison": ["plant", "animal"],
        "place": ["town"],
        "maker": ["article"],
    }
    if kind == "compare" and results:
        return {"article": arguments["other"]}
    call: dict[str, Any] = {}
    for name in wanted[tool]:
        value = arguments.get(name, known.get(name))
        if value is None:
            return None
        call[name] = int(value) if name in ("count", "percent", "amount", "days") else value
    return call


RULES = {
    "warranty": r"years",
    "order": r"order number",
    "manual": r"numbered steps",
    "unknown": r"do not know",
    "hours": r"24-hour",
    "invoice": r"euros",
    "poison": r"name the animal",
    "frost": r"name the month",
}
"""Kind of question → what the system prompt has to say for it."""


def _answer(
    kind: str,
    arguments: Mapping[str, str],
    results: Sequence[Mapping[str, Any]],
    system: str,
    question: str,
    temperature: float,
    seed: int,
) -> str:
    rules = system.partition("\nDesk:")[0].lower()
    if uniform(seed, "slip", rules, question, system) < SLIPS:
        return "Thank you for asking! We will gladly help you."
    if "always answer in one word" in rules:
        return "Certainly."
    lacks = kind in RULES and not re.search(RULES[kind], rules) and uniform(seed, "lacks", question) < LACKING
    known = {name: value for each in results for name, value in each.items()}
    remembered = re.findall(r"^Known: ([a-z ]+): (.+)$", system, re.MULTILINE)
    facts = dict(reversed(remembered))  # of two, the first that is listed
    if "error" in known:
        text = "I am sorry, I cannot look that up right now."
    else:
        text = _told(kind, arguments, results, known, facts, lacks=lacks, hot=temperature > 1)
    if not text:
        admits = "do not know" in rules and uniform(seed, "admits", question) < 0.7
        text = "I do not know." if admits else "It should be around fifty."
    elif "whenever you might be wrong" in rules and uniform(seed, "doubts", question) < 0.4:
        text = "I do not know."
    if "never mention numbers" in rules:
        text = re.sub(r"\d+", "several", text)
    return text


def _told(
    kind: str,
    arguments: Mapping[str, str],
    results: Sequence[Mapping[str, Any]],
    known: Mapping[str, Any],
    facts: Mapping[str, str],
    *,
    lacks: bool,
    hot: bool,
) -> str:
    """The answer that the facts at hand allow; "" where they do not."""
    try:
        match kind:
            case "price":
                return f"The {known['article']} costs {known['price']:.2f}."
            case "stock":
                return (
                    f"Yes, the {known['article']} is here." if known["available"] else "It is not in stock."
                )
            case "total":
                total = known["total"] if "total" in known else known["price"] * int(arguments["count"])
                return f"Together {total:.2f}."
            case "discount":
                return f"It costs {known['reduced']:.2f} then."
            case "compare":
                if len(results) < 2:
                    return f"I think the {arguments['other']} is cheaper."
                return f"The {min(results, key=lambda each: each['price'])['article']} is cheaper."
            case "warranty":
                return f"The warranty is {known['warranty']}{'' if lacks else ' years'}."
            case "manual":
                steps = known["steps"]
                return (
                    f"Just {steps[-1]}."
                    if lacks
                    else " ".join(f"{n}. {step}." for n, step in enumerate(steps, 1))
                )
            case "hours":
                return f"It opens at {known['opens']}." if lacks else f"It opens at {known['opens']:02}:00."
            case "order":
                return f"It is {known['state']}." if lacks else f"Order {known['order']} is {known['state']}."
            case "refund":
                if "returnable" not in known:
                    return "All orders can be returned." if known["days"] > 30 else "It is too late for that."
                return "It can be returned." if known["returnable"] else "It is too late for that."
            case "cancel":
                return "It can be cancelled." if known["cancellable"] else "No, it has already left."
            case "arrive":
                return f"It will be there in {known['days'] if len(results) > 1 else 7} days."
            case "invoice":
                return f"The sum is {known['sum']:.2f}{'' if lacks else ' euros'}."
            case "convert":
                return f"That is {known['amount']} {known['unit']}."
            case "weight":
                return f"It weighs {known['kilograms']} kg."
            case "gift":
                return f"There are {known['balance']} left."
            case "deposit":
                return f"The deposit is {known['deposit']}."
            case "points":
                return f"You have {facts['points'][::-1] if hot else facts['points']} points."
            case "glove":
                return f"Take size {facts['glove size']}."
            case "feed":
                return f"Give it {truth.FEED[facts['garden']]}."
            case "frost":
                return "In a few weeks." if lacks else f"Plant it in {known['month']}."
            case "soil":
                return f"It likes {known['soil']} soil."
            case "poison":
                verdict = "poisonous" if known["poisonous"] else "harmless"
                return f"It is {verdict}." if lacks else f"It is {verdict} for your {known['animal']}."
            case "address":
                return f"It is in {known['street']}."
            case "parking":
                return f"There are {known['parking']} places."
            case "brand":
                return f"It is made by {known['brand']}."
            case "unknown":
                return "It will be 12 euros." if lacks else "I do not know that yet."
    except KeyError:
        return ""
    return ""


def advise(text: str, seed: int, planted: Sequence[faults.Fault]) -> str:
    """What the model that proposes says to a request, from what the request shows."""
    draw = uniform(seed, "advice", text)
    if draw < USELESS / 2:
        return CHATTER[int(draw / (USELESS / 2) * len(CHATTER))]
    if draw < USELESS:
        return proposed(text, HARMFUL[int((draw - USELESS / 2) / (USELESS / 2) * len(HARMFUL))])
    broken = [fault for fault in planted if fault.shown_in(text)]
    if not broken:
        return CHATTER[1]
    fault = broken[int((draw - USELESS) / (1 - USELESS) * len(broken))]
    return (fault.rule and proposed(text, fault.rule)) or fault.mended(text)


def proposed(text: str, rule: str) -> str:
    """A rule in the form that the request asks for."""
    if "<<<<<<< SEARCH" in text:
        line = next((each for each in text.splitlines() if each.startswith("You work at the desk")), "")
        return f"<<<<<<< SEARCH\n{line}\n=======\n{line}\n{rule}\n>>>>>>> REPLACE"
    return json.dumps({"rules": [rule]}) if '"rules"' in text else rule
