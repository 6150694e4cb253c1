"""The model of the front desk and the one that proposes: both scripted, both fallible.

The front desk's asks for those of the offered tools that a question needs, all at once, and then answers by what they
found and by what its system prompt says: where a rule for a kind of question is missing it gets most of them wrong.  It
slips in 4 of 100 answers, recites numbers wrongly at a high temperature, and stops at its limit of words.

The one that proposes sees nothing but the request.  In 55 of 100 answers it is useless or harmful; otherwise it mends
what the request shows to be broken, if anything, in the form that the request asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import faults
import truth

SLIPS, FORGETS, LACKING = 0.03, 0.01, 0.8
"""Chance of a slip, of an answer without the tools, and of one in the wrong form where its rule is missing."""
USELESS, HARMFUL = 0.3, 0.25
"""Shares of the proposals that say nothing, and that make it worse."""
EMPTY_WORDS = (
    "Patients appreciate a warm tone.",
    "",
    "I see several possible causes; more logs would help.",
    '{"rules": []}',
)
BAD_RULES = (
    "Refer every question to the doctor.",
    "Never write any digits.",
    "Answer with yes or no only.",
    "Begin with a proverb about health and leave the details out.",
)


def chance(seed: int, *parts: str) -> float:
    """A number in [0, 1) that these decide."""
    digest = hashlib.blake2b("\n".join((str(seed), *parts)).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "fee": {"fee": ("treatment",)},
    "copay": {"fee": ("treatment",), "own_share": ("insurer",)},
    "opening": {"opening": ("site", "weekday")},
    "consulting": {"consulting": ("doctor", "weekday")},
    "ward": {"ward_hours": ("ward",)},
    "slots": {"next_free": ("doctor",)},
    "visit": {"appointment": ("reference",)},
    "move": {"appointment": ("reference",), "may_move": ()},
    "prescription": {"prescription": ("number=prescription",)},
    "supply": {"supply": ("tablets", "per_day")},
    "fever": {"celsius": ("fahrenheit",)},
    "prepare": {"preparation": ("examination",)},
    "fasting": {"fasting": ("examination",)},
    "duration": {"duration": ("examination",)},
    "arrival": {"lead": ("examination",), "be_there": ("clock",)},
    "sample": {"sample": ("number=sample",)},
    "referral": {"referral": ("specialty",)},
    "insurer": {"accepted": ("insurer",)},
    "bill": {"bill": ("number=bill",)},
    "instalment": {"bill": ("number=bill",), "instalment": ("months",)},
    "speaks": {"speaks": ("doctor", "language")},
    "age": {"lowest_age": ("vaccine",)},
    "vaccine": {"vaccine": ("vaccine", "site")},
    "sicknote": {"certificate": ("days",)},
    "shuttle": {"shuttle": ("site",)},
    "exercise": {"exercise": ("complaint",)},
    "specialty": {"specialty": ("doctor",)},
    "tram": {"site": ("site",)},
    "parking": {"site": ("site",)},
}
"""Kind of question → the tools that it needs, and their arguments, each by its name in the question or the notes."""
_NUMBERS = ("tablets", "per_day", "fahrenheit", "months", "days")
RULES = {
    "visit": r"doctor\b.*\bappointment|appointment\b.*\bname the doctor",
    "unknown": r"cannot tell|do not know",
    "sample": r"number of the sample|sample number",
    "referral": r"name the specialty",
    "opening": r"opening hours\b.*(?:digits|08:30)",
    "prepare": r"preparations?\b.*\bdash",
    "bill": r"bills?\b.*\bchf|chf\b.*\bbill",
    "age": r"age\b.*\bin months",
}
"""Kind of question → what the system prompt has to say for it, in one line."""


def complete(body: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], str]:
    """What the front desk's model says to a request: a message, and why it stopped.

    Args:
        seed: of this run; the same request may be answered otherwise in another one.
    """
    messages = body["messages"]
    system = next((str(each["content"]) for each in messages if each["role"] == "system"), "")
    question = next(str(each["content"]) for each in messages if each["role"] == "user")
    found = [json.loads(each["content"]) for each in messages if each["role"] == "tool"]
    kind, arguments = truth.read(question)
    notes: dict[str, str] = {}
    for name, value in re.findall(r"^Note: \S+ ([a-z ]+): (.+)$", system, re.MULTILINE):
        notes.setdefault(name, value)  # of two, the first that is listed
    if not found and chance(seed, "forgets", question) >= FORGETS:
        offered = [each["function"]["name"] for each in body.get("tools") or ()]
        calls = _calls(kind, {**notes, **arguments}, offered)
        if calls:
            return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
    hot = float(body.get("temperature", 1.0)) > 1
    words = _spoken(kind, arguments, found, notes, system, question, seed, hot=hot)
    most = int(body.get("max_tokens") or 1_000)
    if len(words.split()) > most:
        return {"role": "assistant", "content": " ".join(words.split(" ")[:most])}, "length"
    return {"role": "assistant", "content": words}, "stop"


def _calls(kind: str, known: Mapping[str, str], offered: Sequence[str]) -> list[dict[str, Any]]:
    """The calls of those tools that are needed, offered, and whose arguments are known."""
    calls = []
    for tool, names in NEEDED.get(kind, {}).items():
        pairs = [(name.partition("=")[0], name.rpartition("=")[2]) for name in names]
        if tool not in offered or not all(source in known for _, source in pairs):
            continue
        given = {name: int(known[by]) if name in _NUMBERS else known[by] for name, by in pairs}
        function = {"name": tool, "arguments": json.dumps(given)}
        calls.append({"id": f"use_{len(calls)}_{tool}", "type": "function", "function": function})
    return calls


def _spoken(
    kind: str,
    arguments: Mapping[str, str],
    found: Sequence[Mapping[str, Any]],
    notes: Mapping[str, str],
    system: str,
    question: str,
    seed: int,
    *,
    hot: bool,
) -> str:
    """The answer in words, as the system prompt wants it."""
    rules = system.partition("\nTopic:")[0].lower()
    if chance(seed, "slips", system, question) < SLIPS:
        return "Thank you for your patience, somebody will see to it shortly."
    if "refer every question" in rules:
        return "Please ask your doctor about this."
    if "yes or no only" in rules:
        return "Yes."
    if "proverb" in rules:
        return "An apple a day keeps the doctor away."
    known = {name: value for each in found for name, value in each.items()}
    lacks = kind in RULES and not re.search(RULES[kind], rules) and chance(seed, "lacks", question) < LACKING
    if "error" in known:
        words = "I am sorry, I cannot look this up at the moment."
    elif kind == "urgent":
        given = re.search(r"(?:urgent|emergenc|at night).*?(\d{4} \d{3} \d{3})", rules)
        words = f"Please ring {given[1] if given else '112'} at any hour."
    elif kind == "unknown" and not lacks:
        words = "I am afraid that I cannot tell you this yet."
    else:
        try:
            words = _told(kind, arguments, known, notes, lacks=lacks, hot=hot)
        except KeyError:
            words = ""
    if not words:
        admits = re.search(RULES["unknown"], rules) and chance(seed, "admits", question) < 0.6
        words = "I am afraid that I cannot tell you this." if admits else "I believe that it is about forty."
    if "never write any digits" in rules:
        words = re.sub(r"\d", "", words)
    return words


def _told(
    kind: str,
    a: Mapping[str, str],
    known: Mapping[str, Any],
    notes: Mapping[str, str],
    *,
    lacks: bool,
    hot: bool,
) -> str:
    """The answer that is at hand.

    Raises:
        KeyError: nothing is.
    """
    match kind:
        case "fee":
            return f"The {known['treatment']} costs {known['fee']:.2f} francs with us."
        case "copay":
            return f"With {a['insurer']} you pay {known.get('own_share', known['fee']):.2f} francs of that yourself."
        case "opening":
            opens = known["opens"]
            if lacks:
                opens = f"{int(opens[:2]) % 12 or 12} o'clock or somewhat later"
            return f"On {a['weekday']} our branch {a['site']} opens at {opens}."
        case "consulting":
            return f"{a['doctor']} sees patients from {known['begins']} to {known['ends']} on {a['weekday']}."
        case "ward":
            return f"You may visit the {a['ward']} ward until {known['until']}."
        case "slots":
            return f"{a['doctor']} can see you on {known['next_free']}."
        case "visit":
            whom = "" if lacks else f" with {known['doctor']}"
            return f"Your appointment {known['reference']}{whom} is on {known['day']} at {known['time']}."
        case "move":
            if known["doctor"] and known.get("movable", True):
                return f"You can still move your appointment {a['reference']}."
            return f"It is too late to move your appointment {a['reference']}."
        case "prescription":
            state = "is ready" if known["ready"] else "is not ready yet"
            return f"Your prescription {known['prescription']} {state}."
        case "supply":
            return f"The tablets will last you {known['days']} days."
        case "fever":
            return f"That is {known['celsius']} degrees Celsius."
        case "prepare":
            if lacks:
                return f"Above all, {known['steps'][-1]}."
            return "\n".join(
                [f"Before the {a['examination']} please:", *(f"- {each}" for each in known["steps"])]
            )
        case "fasting":
            return f"Please eat nothing for {known['hours']} hours before the {a['examination']}."
        case "duration":
            return f"The {a['examination']} takes {known['minutes']} minutes in all."
        case "arrival":
            return f"Please be at the desk at {known['be_there']}."
        case "sample":
            state = "are there" if known["finished"] else "are not there yet"
            whose = "" if lacks else f"of sample {known['sample']} "
            return f"The results {whose}{state}."
        case "referral":
            field = "it" if lacks else known["specialty"]
            return (
                f"You need a referral for {field}."
                if known["referral"]
                else f"No referral is needed for {field}."
            )
        case "insurer":
            if known["accepted"]:
                return f"Yes, we take patients of {known['insurer']}."
            return f"I am sorry, we have no contract with {known['insurer']}."
        case "bill":
            return f"Bill {known['bill']} comes to {'' if lacks else 'CHF '}{known['amount']:.2f}."
        case "instalment":
            return f"Each of the {a['months']} parts is {known.get('part', known['amount']):.2f} francs."
        case "speaks":
            return f"{a['doctor']} {'speaks' if known['speaks'] else 'does not speak'} {a['language']}."
        case "age":
            age = "early childhood" if lacks else f"{known['months']} months"
            return f"The {known['vaccine']} vaccine is given from {age} on."
        case "vaccine":
            if known["there"]:
                return f"Yes, {known['vaccine']} vaccine is in stock at {known['site']}."
            return f"There is no {known['vaccine']} vaccine left at {known['site']}."
        case "sicknote":
            return f"For {known['days']} days that is {known['francs']} francs."
        case "shuttle":
            return f"The shuttle takes {known['minutes']} minutes to {known['site']}."
        case "unknown":
            return "Yes, that should be decided in spring."
        case "allergy":
            return f"You are allergic to {notes['allergy']}, as we have noted."
        case "tetanus":
            return f"Your last tetanus shot was in {notes['tetanus']}."
        case "pharmacy":
            return f"Your medicines go to the {notes['pharmacy']} pharmacy."
        case "exercise":
            return f"For your {known['complaint']} we recommend the {known['exercise']}."
        case "number":
            number = notes["patient number"]
            return f"Your patient number is {number[::-1] if hot else number}."
        case "specialty":
            return f"{known['doctor']} works in {known['specialty']}."
        case "tram":
            return f"The tram stop for {known['site']} is {known['tram_stop']}."
        case "parking":
            return f"The car park in {known['site']} has {known['spaces']} spaces."
    return ""


def advise(text: str, seed: int, planted: Sequence[faults.Fault]) -> str:
    """What the model that proposes says to a request, from what the request shows."""
    draw = chance(seed, "proposal", text)
    if draw < USELESS:
        return EMPTY_WORDS[int(draw / USELESS * len(EMPTY_WORDS))]
    if draw < USELESS + HARMFUL:
        return _harmful(text, BAD_RULES[int((draw - USELESS) / HARMFUL * len(BAD_RULES))])
    broken = [fault for fault in planted if fault.shown_in(text)]
    if not broken:
        return EMPTY_WORDS[2]
    fault = broken[int((draw - USELESS - HARMFUL) / (1 - USELESS - HARMFUL) * len(broken))]
    return proposed(text, fault.rule) if fault.rule else fault.mended(text)


def proposed(text: str, rule: str) -> str:
    """A rule in the form that the request asks for: behind one of the rules that it shows, where it shows lines."""
    if "<<<<<<< SEARCH" not in text:
        return json.dumps({"rules": [rule]}) if '"rules"' in text else rule
    rules = [fault.rule for fault in faults.FAMILY if fault.rule]
    shown = [(line, old) for line in text.splitlines() for old in rules if old in line]
    # A line of the program rather than one of a prompt that was sent.
    shown.sort(key=lambda each: not each[0].strip().startswith('"'))
    if not shown:
        return ""
    line, old = shown[0]
    return f"<<<<<<< SEARCH\n{line}\n=======\n{line}\n{line.replace(old, rule)}\n>>>>>>> REPLACE"


def _harmful(text: str, rule: str) -> str:
    """A rule that makes it worse; in a request that shows no rule, a function that gives nothing any more."""
    proposal = proposed(text, rule)
    line = next((line for line in text.splitlines() if line.startswith("        return ")), "")
    if proposal or not line:
        return proposal
    return f"<<<<<<< SEARCH\n{line}\n=======\n        return {{}}\n>>>>>>> REPLACE"
