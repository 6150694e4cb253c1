"""The model of the desk and the one that proposes: both scripted, both fallible.

The desk's asks for those of the offered tools whose arguments it knows, from the question, the notes or what other
tools have said, and answers when there are none left, by what they said, by its system prompt, and in the manner of the
examples before the question.  It slips in 4 of 100 answers, muddles numbers at a high temperature, and stops at its
limit of words.

The one that proposes sees nothing but the request.  In 56 of 100 answers it is useless or harmful; otherwise it mends
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
USELESS, HARMFUL = 0.31, 0.25
"""Shares of the proposals that say nothing, and that make it worse."""
EMPTY_WORDS = (
    "Have you considered a larger model?",
    "",
    "Nothing stands out in these runs; I would keep an eye on them.",
    '{"rules": []}',
)
BAD_RULES = (
    "Send every customer to the counter.",
    "Do not use figures.",
    "Answer in a single word.",
    "Tell the history of the works and stop there.",
)


def chance(seed: int, *parts: str) -> float:
    """A number in [0, 1) that these decide."""
    digest = hashlib.blake2b("\n".join((str(seed), *parts)).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


NEEDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "tariff": {"tariff_price": ("tariff",)},
    "standing": {"standing_charge": ("tariff",)},
    "cost": {"tariff_price": ("tariff",), "yearly_cost": ("kwh", "rappen")},
    "gas": {"gas_energy": ("volume",)},
    "water": {"water_price": ("litres",)},
    "collection": {"next_collection": ("waste", "quarter")},
    "interruption": {"interruption": ("quarter",)},
    "due": {"due_date": ("bill",)},
    "bill": {"bill_sum": ("bill",)},
    "instalment": {"bill_sum": ("bill",), "instalment": ("amount", "parts")},
    "reading": {"meter_reading": ("meter",)},
    "usage": {"meter_usage": ("meter",)},
    "notice": {"notice_by": ("leaving",)},
    "opening": {"opening_hours": ("counter", "weekday")},
    "guide": {"instructions": ("task",)},
    "permit": {"permit": ("work",)},
    "hardness": {"hardness": ("quarter",)},
    "inspection": {"inspection": ("number=inspection",)},
    "charger": {"charger": ("place",)},
    "charging": {"charging_time": ("energy", "power")},
    "solar": {"feed_in": ("kwh",)},
    "lamp": {"lamp": ("number=lamp",)},
    "technician": {"first_visit": ("trade",)},
    "gasnet": {"gas_network": ("street",)},
    "heating": {"district_heat": ("kwh",)},
    "bin": {"bin_fee": ("size",)},
    "filter": {"boiler_filter": ("boiler",)},
    "subsidy": {"subsidy": ("device",)},
    "contact": {"contact": ("trade",)},
    "colour": {"sack_colour": ("waste",)},
    "address": {"counter_address": ("counter",)},
}
"""Kind of question → the tools that it needs, and their arguments, each by its name in what is known."""
_NUMBERS = ("kwh", "volume", "litres", "parts", "energy", "power", "size")
_DATED = r"(?:day\.month\.year|dd\.mm\.yyyy)"
_UNIT = r"\bkwh\b|\balways\b.*\bunits?\b|\bused?\b.*\bunits?\b"
"""What a rule says that wants the unit of what was used."""
RULES = {
    "opening": r"opening hours\b.*(?:digits|07:30)",
    "unknown": r"do not know|don't know",
    "guide": r"number(?:ed|s)\b.*\b(?:list|steps)|(?:list|steps)\b.*\bnumber",
    "permit": r"name the work|(?:repeat|say) .*\bpermit",
    "hardness": r"hardness\b.*(?:°fh|french degrees)",
    "inspection": rf"(?:inspection|dates?\b).*{_DATED}",
    "bill": r"\bchf\b",
    "reading": r"number of the meter|meter(?:'s)? number",
}
"""Kind of question → what the system prompt has to say for it, in one line."""


def complete(body: Mapping[str, Any], seed: int) -> tuple[dict[str, Any], str]:
    """What the desk's model says to a request: a message, and why it stopped.

    Args:
        seed: of this run; the same request may be answered otherwise in another one.
    """
    messages = body["messages"]
    system = next((str(each["content"]) for each in messages if each["role"] == "system"), "")
    asked = max(number for number, each in enumerate(messages) if each["role"] == "user")
    question = str(messages[asked]["content"])
    example = next(
        (str(each["content"]) for each in messages[:asked][::-1] if each["role"] == "assistant"), ""
    )
    found = [json.loads(each["content"]) for each in messages[asked:] if each["role"] == "tool"]
    done = {
        call["function"]["name"]
        for each in messages[asked:]
        if each["role"] == "assistant"
        for call in each.get("tool_calls") or ()
    }
    kind, arguments = truth.read(question)
    notes: dict[str, str] = {}
    for name, value in re.findall(r"^- \(\S+\) ([a-z ]+): (.+)$", system, re.MULTILINE):
        notes.setdefault(name, value)  # of two, the first that is listed
    known = {**notes, **arguments, **{name: value for each in found for name, value in each.items()}}
    if "error" not in known and (found or chance(seed, "forgets", question) >= FORGETS):
        offered = {each["function"]["name"] for each in body.get("tools") or ()} - done
        if calls := _calls(kind, known, offered):
            return {"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"
    hot = float(body.get("temperature", 1.0)) > 1
    words = _spoken(kind, arguments, found, notes, system, example, question, seed, hot=hot)
    most = int(body.get("max_tokens") or 1_000)
    if len(words.split()) > most:
        return {"role": "assistant", "content": " ".join(words.split(" ")[:most])}, "length"
    return {"role": "assistant", "content": words}, "stop"


def _calls(kind: str, known: Mapping[str, Any], offered: set[str]) -> list[dict[str, Any]]:
    """The calls of those tools that are needed, offered, and whose arguments are known."""
    calls = []
    for tool, names in NEEDED.get(kind, {}).items():
        pairs = [(name.partition("=")[0], name.rpartition("=")[2]) for name in names]
        if tool not in offered or not all(source in known for _, source in pairs):
            continue
        given = {name: int(known[by]) if name in _NUMBERS else known[by] for name, by in pairs}
        function = {"name": tool, "arguments": json.dumps(given)}
        calls.append({"id": f"do-{tool}", "type": "function", "function": function})
    return calls


def _spoken(
    kind: str,
    arguments: Mapping[str, str],
    found: Sequence[Mapping[str, Any]],
    notes: Mapping[str, str],
    system: str,
    example: str,
    question: str,
    seed: int,
    *,
    hot: bool,
) -> str:
    """The answer in words, as the system prompt and the examples want it."""
    rules = system.partition("\nDesk:")[0].lower()
    if chance(seed, "slips", system, question) < SLIPS:
        return "We have passed your message on and will be in touch."
    if "every customer to the counter" in rules:
        return "Please come to one of our counters."
    if "single word" in rules:
        return "Gladly."
    if "history of the works" in rules:
        return "The works were founded in 1894, when the first lamp was lit in Aarwil."
    known = {name: value for each in found for name, value in each.items()}
    lacks = kind in RULES and not re.search(RULES[kind], rules) and chance(seed, "lacks", question) < LACKING
    tongue = next(iter(re.findall(r"^Answer in: (de|fr)$", system, re.MULTILINE)), "en")
    if re.search(r"in the language of (?:the|their|his|her) |in (?:the customer's|their) language", rules):
        tongue = arguments.get("in", "en")
    if "error" in known:
        words = "I am sorry, I cannot look this up just now."
    elif kind == "emergency":
        number = re.search(r"emergenc\S*.*?(\d{4} \d\d \d\d \d\d)", rules)
        words = f"Please ring {number[1] if number else '118'} at once."
    elif kind == "unknown" and not lacks:
        words = "I am sorry, I do not know this yet."
    else:
        try:
            words = _told(kind, arguments, known, notes, rules, example, tongue, lacks=lacks, hot=hot)
        except KeyError:
            words = ""
    if not words:
        admits = re.search(RULES["unknown"], rules) and chance(seed, "admits", question) < 0.65
        words = (
            "I am sorry, I do not know this."
            if admits
            else "That should be around twenty, as far as I can tell."
        )
    if "do not use figures" in rules:
        words = re.sub(r"\d", "", words)
    return words


def _dated(day: str, kind: str, rules: str) -> str:
    """A day as a rule for dates, or for those of this kind, wants it."""
    wanted = re.search(rf"(?:\bdates\b|{kind}).*{_DATED}", rules) and re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    return truth.local(day) if wanted else day


def _told(
    kind: str,
    a: Mapping[str, str],
    known: Mapping[str, Any],
    notes: Mapping[str, str],
    rules: str,
    example: str,
    tongue: str,
    *,
    lacks: bool,
    hot: bool,
) -> str:
    """The answer that is at hand.

    Raises:
        KeyError: nothing is.
    """
    match kind:
        case "tariff":
            return f"A kWh costs {known['rappen']:.2f} rappen in {known['tariff']}."
        case "standing":
            return f"The standing charge of {known['tariff']} is {known['monthly']:.2f} francs a month."
        case "cost":
            if "francs" not in known:
                return f"That depends on the kWh, at {known['rappen']:.2f} rappen each."
            return f"{known['kwh']} kWh cost {known['francs']:.2f} francs a year."
        case "gas":
            return f"{known['volume']} cubic metres of gas hold {known['kwh']} kWh."
        case "water":
            return f"That much water costs {known['francs']:.2f} francs."
        case "collection":
            day = known["weekday"]
            return {
                "en": f"The {known['waste']} is collected on {day}.",
                "de": f"Wir holen es am {day} ab.",
                "fr": f"Nous passons le {day}.",
            }[tongue]
        case "interruption":
            day, begins, ends = known["weekday"], known["from"], known["to"]
            return {
                "en": f"The power in {known['quarter']} will be off on {day} from {begins} to {ends}.",
                "de": f"In {known['quarter']} ist der Strom am {day} von {begins} bis {ends} weg.",
                "fr": f"Le courant manque à {known['quarter']} le {day} de {begins} à {ends}.",
            }[tongue]
        case "due":
            return f"Please pay bill {known['bill']} by {_dated(known['due'], 'due', rules)}."
        case "bill":
            return f"Bill {known['bill']} comes to {'' if lacks else 'CHF '}{known['amount']:.2f}."
        case "instalment":
            if "each" not in known:
                return f"The whole bill is {known['amount']:.2f} francs, and each part is a share of it."
            return f"Each of the {known['parts']} parts is {known['each']:.2f} francs."
        case "reading":
            return f"{'It' if lacks else 'Meter ' + known['meter']} stands at {known['kwh']} kWh."
        case "usage":
            unit = " kWh" if "kwh" in example.lower() or re.search(_UNIT, rules) else ""
            return f"You used {known['used']}{unit} on it."
        case "notice":
            return f"Please give notice by {_dated(known['notice_by'], 'notice', rules)}."
        case "opening":
            hour, _, minutes = known["opens"].partition(":")
            opens = f"about {int(hour) % 12 or 12}" if lacks else f"{hour}:{minutes}"
            return f"{a['counter']} opens at {opens} on {a['weekday']}."
        case "guide":
            steps = known["steps"]
            if lacks:
                return f"It is easy: {steps[0]}, {steps[1]} and so on."
            return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
        case "permit":
            work = "This" if lacks else known["work"][0].upper() + known["work"][1:]
            return f"{work} needs {'a' if known['permit'] else 'no'} permit."
        case "hardness":
            return f"The water there has {known['hardness']}{' degrees' if lacks else ' °fH'}."
        case "inspection":
            day = known["day"] if lacks else _dated(known["day"], "inspection", rules)
            return f"We come for inspection {known['inspection']} on {day}."
        case "charger":
            return f"There is {'a' if known['free'] else 'no'} free plug at {known['place']}."
        case "charging":
            return f"Please allow {known['minutes']} minutes."
        case "solar":
            if re.search(r"roughly|about|around", example) and "exact" not in rules:
                return f"You get roughly {round(known['francs'], -1):.0f} francs for it."
            return f"You get {known['francs']:.2f} francs for it."
        case "lamp":
            return f"Lamp {known['lamp']} has {'' if known['repaired'] else 'not '}been repaired."
        case "technician":
            return f"The first visit for {known['trade']} is on {known['first']}."
        case "gasnet":
            return f"There is {'' if known['gas'] else 'no '}gas in {known['street']}."
        case "heating":
            return f"District heating comes to {known['francs']:.2f} francs for this."
        case "bin":
            return f"A bin of {known['litres']} litres is {known['fee']:.2f} francs a year."
        case "my_tariff":
            return f"You have the tariff {notes['tariff']}."
        case "payment":
            return f"You pay by {notes['payment']}."
        case "contract":
            return f"Your contract runs until {notes['contract']}."
        case "number":
            number = notes["customer number"]
            return f"Your customer number is {number[::-1] if hot else number}."
        case "filter":
            return f"Your {known['boiler']} needs the filter {known['filter']}."
        case "subsidy":
            return f"For {known['device']} you get {known['subsidy']} francs."
        case "unknown":
            return "Yes, most likely in spring."
        case "contact":
            return f"{known['name']} looks after {known['trade']}."
        case "colour":
            return f"Use the {known['colour']} sack for {known['waste']}."
        case "address":
            return f"You find {known['counter']} in the street {known['street']}."
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
    rules = [*(fault.rule for fault in faults.FAMILY if fault.rule), faults.STANDS, faults.ROLE]
    shown = [(line, old) for line in text.splitlines() for old in rules if old in line]
    # A line of the file rather than one of a prompt that was sent; of what has no rule yet the last line.
    shown.sort(key=lambda each: 0 if each[0].strip().startswith('"') else 1 + (each[1] != faults.ROLE))
    if not shown:
        return ""
    line, old = shown[0]
    return f"<<<<<<< SEARCH\n{line}\n=======\n{line}\n{line.replace(old, rule)}\n>>>>>>> REPLACE"


def _harmful(text: str, rule: str) -> str:
    """A rule that makes it worse; in a request that shows no rule, a function that gives nothing any more."""
    proposal = proposed(text, rule)
    line = next((line for line in text.splitlines() if re.match(r" +return \S", line)), "")
    if proposal or not line:
        return proposal
    indent = line[: len(line) - len(line.lstrip())]
    return f"<<<<<<< SEARCH\n{line}\n=======\n{indent}return {{}}\n>>>>>>> REPLACE"
