"""What can be wrong with the desk of the works or around it, of which a night draws twenty.

A fault is planted in a copy of the agent's folder: lines of one of its files are put otherwise (`edits`), or a service
or the customers change from a day on, which the planted lines do not allow for.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import truth

PLANTED = 20
CHANGED_ON = 5
"""The day, of `people.DAYS`, on which a service or the customers change."""
STANDS = "Never promise a refund."
"""A rule that no fault takes away."""
ROLE = "Keep to what the tools and the notes say, in one or two sentences."
"""The last line of what the desk is told before its rules."""
_When = Callable[[str, Mapping[str, str]], bool]


@dataclass(frozen=True)
class Fault:
    """One thing that can be planted."""

    id: str
    family: str
    """prompt, example, tool, flow, route, knob, memory, data, drift or upstream."""
    components: tuple[str, ...]
    """What `whet issues` may put it down to and be right."""
    kinds: tuple[str, ...]
    """Kinds of question that it spoils."""
    file: str
    edits: tuple[tuple[str, str], ...]
    """Of the file, text as it is right and as it is planted."""
    rule: str = ""
    """Of the prompt, which lacks it."""
    service: str = ""
    """Speaks its new form from CHANGED_ON on."""
    word: tuple[str, str] | None = None
    """From CHANGED_ON on customers say the second where the first, a pattern, is."""
    when: _When | None = None
    """Of a question and its arguments: True if the fault spoils it; all of its kinds if None."""
    also: tuple[str, ...] = ()
    """Kinds that it spoils on the side, which may have a fault of their own."""

    def plant(self, files: dict[str, str]) -> None:
        """Put it into the agent's files.

        Raises:
            ValueError: the file does not have what is to be replaced, once.
        """
        text = files[self.file]
        for good, bad in self.edits:
            if text.count(good) != 1:
                raise ValueError(f"{good!r} of fault {self.id} is {text.count(good)} times in {self.file}")
            text = text.replace(good, bad)
        files[self.file] = text

    def hits(self, question: str, day: int) -> bool:
        """True if the fault spoils the answer to this question on this day."""
        kind, arguments = truth.read(question)
        if kind not in (*self.kinds, *self.also) or ((self.service or self.word) and day < CHANGED_ON):
            return False
        if self.word and self.word[1] not in question:
            return False
        return self.when is None or self.when(question, arguments)

    def reworded(self, question: str) -> str:
        """A question in the words that customers have since the change."""
        if self.word is None or truth.read(question)[0] not in self.kinds:
            return question
        return re.sub(*self.word, question)

    def shown_in(self, text: str) -> bool:
        """True if a request shows what is broken: the lines of the file, or questions that lack the rule."""
        if self.rule:
            return self.rule not in text and any(truth.asks(kind, text) for kind in self.kinds)
        return any(_broken(good, bad, text) for good, bad in self.edits)

    def mended(self, text: str) -> str:
        """The repair in the form that a request asks for: blocks to search and replace, else all that it shows."""
        pairs: dict[str, str] = {}
        for good, bad in self.edits:
            if not _broken(good, bad, text):
                continue
            if "\n" in bad:
                pairs[bad.rstrip("\n")] = good.rstrip("\n")
            else:
                pairs |= {line: line.replace(bad, good) for line in text.splitlines() if bad in line}
        if "<<<<<<< SEARCH" in text:
            return "\n".join(
                f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE" for old, new in pairs.items()
            )
        blocks = re.findall(r"```(?:\w+)?\n(.*?)```", text, re.DOTALL)
        whole = next((block for block in blocks if any(old in block for old in pairs)), text)
        for old, new in pairs.items():
            whole = whole.replace(old, new)
        return f"```\n{whole}```"


def _broken(good: str, bad: str, text: str) -> bool:
    """True if a text has the planted words, and not as a part of the right ones."""
    return bad in text and not (bad in good and good in text)


_COSTLY = tuple(name for name, each in truth.TARIFFS.items() if each["group"] == "business")
_BLANK = tuple(truth.BINS)[1::2]
_TURNED = tuple(truth.STREETS)[::2]
_GERMAN = truth.QUARTERS[::2]
_STALE = "2026-10-31"
"""Day on which old facts were written into the notes once more."""


def _tariff(name: str, factor: float = 1.0) -> str:
    each = truth.TARIFFS[name]
    return f"{name},{each['group']},{each['rappen'] * factor:.2f},{each['monthly']:.2f}"


def _bin(size: int, *, blank: bool = False) -> str:
    fee = (truth.BINS | dict([truth.NEW_BIN]))[size]
    return f"{size},{'' if blank else format(fee, '.2f')},{'cellar' if size < 200 else 'yard'}"


def _street(name: str, *, turned: bool = False) -> str:
    number = list(truth.STREETS).index(name)
    return (
        f"{name},{('north', 'east', 'south')[number % 3]},{'yes' if truth.STREETS[name] != turned else 'no'}"
    )


def _water(quarter: str, factor: float = 1.0) -> str:
    return f"{quarter},{('lake', 'spring')[len(quarter) % 2]},{round(truth.HARDNESS[quarter] * factor)}"


def customers() -> dict[str, list[str]]:
    """What the works have noted of each customer."""
    return {
        person: [
            f"(2019-0{1 + place % 9}-14) tariff: {truth.MY_TARIFF[person][1]}",
            f"(2018-0{1 + place % 8}-21) boiler: {truth.BOILER[person]}",
            f"(2020-0{1 + place % 7}-03) payment: {truth.PAYMENT[person][1]}",
            f"(2021-1{place % 3}-09) letters: {('by post', 'by mail')[place % 2]}",
            f"(2022-0{1 + place % 6}-17) customer number: {truth.NUMBER[person]}",
            f"(2023-0{1 + place % 5}-11) contract: {truth.CONTRACT[person]}",
            f"(2024-0{1 + place % 9}-28) tariff: {truth.MY_TARIFF[person][0]}",
            f"(2025-0{1 + place % 8}-06) payment: {truth.PAYMENT[person][0]}",
            f"(2025-1{place % 3}-02) dog: {('yes', 'no')[place % 2]}",
        ]
        for place, person in enumerate(truth.PEOPLE)
    }


def tables() -> dict[str, str]:
    """The agent's files that the tables of the works make."""
    rows = {
        "tariffs.csv": ["tariff,group,rappen,monthly", *map(_tariff, truth.TARIFFS)],
        "bins.csv": ["litres,fee,place", *map(_bin, [*truth.BINS, truth.NEW_BIN[0]])],
        "streets.csv": ["street,side,gas", *map(_street, truth.STREETS)],
        "water.csv": ["quarter,source,hardness", *map(_water, truth.QUARTERS)],
    }
    office = {
        "permits": truth.PERMITS,
        "subsidies": truth.SUBSIDIES | dict([truth.NEW_DEVICE]),
        "filters": truth.FILTERS,
        "contacts": truth.CONTACTS,
        "colours": truth.COLOURS,
    }
    return {f"data/{name}": "\n".join(lines) + "\n" for name, lines in rows.items()} | {
        "data/office.json": json.dumps(office, indent=2) + "\n",
        "data/customers.json": json.dumps(customers(), indent=1) + "\n",
    }


def _edit(id: str, kind: str, file: str, good: str, bad: str, *components: str, **more: object) -> Fault:
    return Fault(id, id.partition("-")[0], components, (kind,), file, ((good, bad),), **more)  # type: ignore[arg-type]


def _rule(kind: str, rule: str) -> Fault:
    return Fault(
        f"prompt-{kind}",
        "prompt",
        ("prompt",),
        (kind,),
        "prompts/desk.toml",
        ((f'  "{rule}",\n', ""),),
        rule=rule,
    )


def _stale(kind: str, note: str) -> Fault:
    edits = tuple((f'"{person}": [\n', f'"{person}": [\n  "({_STALE}) {note}",\n') for person in truth.PEOPLE)
    return Fault(f"memory-{kind}", "memory", ("memory",), (kind,), "data/customers.json", edits)


def _plan(kind: str, good: str, bad: str, *components: str, **more: object) -> Fault:
    return _edit(
        f"flow-{kind}", kind, "plans.toml", f"\n{kind} = {good}", f"\n{kind} = {bad}", *components, **more
    )


def _keyword(id: str, kind: str, phrase: str, topic: str, *components: str, **more: object) -> Fault:
    """A phrase of the keyword table that leads to another topic."""
    row = f"\n{phrase},{kind},"
    return _edit(
        f"route-{id}", kind, "keywords.csv", row, f"\n{phrase},{topic},", *(components or ("route",)),
        when=lambda question, a: phrase in question.lower(), **more,
    )  # fmt: skip


def _foreign(question: str, a: Mapping[str, str]) -> bool:
    return a["in"] != "en"


def _quoted(question: str, a: Mapping[str, str]) -> bool:
    return "\n>" in question


def _swapped(question: str, a: Mapping[str, str]) -> bool:
    """French questions on a weekday of the rows of the table that are put wrong."""
    planned = truth.INTERRUPTIONS[a["quarter"]]["weekday"] if "waste" not in a else ""
    return a["in"] == "fr" and (planned or truth.CALENDAR[f"{a['quarter']}/{a.get('waste')}"]) in _SWAPPED


_SWAPPED = ("Tuesday", "Wednesday", "Thursday", "Friday")
_ENERGY, _BILLS, _TOWN = (f"works/tools/{name}.py" for name in ("energy", "bills", "town"))
_PLAIN = '{ do = ["brief", "gather", "tell"], tools = '
_RECALL = '{ do = ["recall", "brief", "tell"] }'
_SETTINGS = "settings.toml"
FAMILY: tuple[Fault, ...] = (
    _rule("opening", "Write opening hours with four digits, such as 07:30."),
    _rule("unknown", "Where neither tools nor notes have anything, say that you do not know."),
    _rule("guide", "Give instructions as a numbered list."),
    _rule("permit", "Name the work whenever you say whether it needs a permit."),
    _rule("hardness", "Give the hardness of water in French degrees, with the unit °fH."),
    _rule("inspection", "Write the date of an inspection as day.month.year."),
    _rule("bill", "Put CHF in front of the sum of a bill."),
    _rule("reading", "Repeat the number of the meter when you give a reading."),
    _rule("emergency", "In an emergency tell people to ring 0848 24 24 24."),
    _edit(
        "prompt-template", "collection", "prompts/desk.toml", "Answer in: {{ language }}", "Answer in: {{ lang }}",
        "prompt", also=("interruption",), when=_foreign,
    ),
    _edit("example-usage", "usage", "prompts/examples.jsonl", "You used 512 kWh on it.", "You used 512 on it.",
          "prompt", "data"),
    _edit("example-solar", "solar", "prompts/examples.jsonl", "You get 48.00 francs for it.",
          "You get roughly 50 francs for it.", "prompt", "data"),
    _edit("tool-gas", "gas", _ENERGY, "volume * KWH_PER_CUBIC_METRE", "volume / KWH_PER_CUBIC_METRE", "tool"),
    _edit("tool-water", "water", _ENERGY, "litres / 1000 * FRANCS", "litres / 100 * FRANCS", "tool"),
    _edit("tool-usage", "usage", _ENERGY, "now - before}", "before - now}", "tool"),
    _edit("tool-charging", "charging", _ENERGY, "energy / power * 60", "power / energy * 60", "tool"),
    _edit("tool-standing", "standing", _ENERGY, 'float(TARIFFS[tariff]["monthly"])',
          'float(TARIFFS[tariff.lower()]["monthly"])', "tool"),
    _edit("tool-heating", "heating", _ENERGY, 'HEAT["base"] + kwh * HEAT["rate"]',
          'HEAT["base"] * kwh + HEAT["rate"]', "tool"),
    _edit("tool-charger", "charger", _ENERGY, '["plugs"] > 0}', '["plugs"] > 9}', "tool",
          when=lambda question, a: truth.CHARGERS[a["place"]] > 0),
    _edit("tool-notice", "notice", _BILLS, ".date() - timedelta(", ".date() + timedelta(", "tool"),
    _edit("tool-due", "due", _BILLS, "timedelta(days=SETTINGS.rules.payment_days)",
          "timedelta(weeks=SETTINGS.rules.payment_days)", "tool"),
    _edit("tool-instalment", "instalment", _BILLS, "math.ceil(amount / parts * 20)", "math.ceil(amount / parts) * 20",
          "tool"),
    _edit("tool-inspection", "inspection", _BILLS, "number.upper()", "number.lower()", "tool"),
    _edit("tool-permit", "permit", _TOWN, 'OFFICE["permits"][work]', 'OFFICE["permits"].get(work.title(), False)',
          "tool", when=lambda question, a: truth.PERMITS[a["work"]]),
    _edit("tool-coin", "water", "works/flow.py", "round(round(value / coin) * coin, 2)", "round(value / coin) // coin",
          "tool", also=("cost", "solar", "heating")),
    _plan("cost", _PLAIN + '["tariff_price", "yearly_cost"]', _PLAIN + '["tariff_price"]', "route"),
    _plan("instalment", _PLAIN + '["bill_sum", "instalment"]', _PLAIN + '["bill_sum"]', "route"),
    _plan("payment", _RECALL, '{ do = ["brief", "tell"] }', "route", "memory"),
    _plan("contract", _RECALL, '{ do = ["brief", "recall", "tell"] }', "route", "memory"),
    _plan("due", _PLAIN + '["due_date"], finish = ["local_date"]', _PLAIN + '["due_date"]', "route", "tool"),
    _plan("interruption", _PLAIN + '["interruption"], finish = ["localise"]', _PLAIN + '["interruption"]', "route",
          "tool", when=_foreign),
    _plan("charging", '{ do = ["brief", "gather", "tell"]', '{ do = ["brief", "tell"]', "route"),
    _edit(
        "flow-quotes", "standing", "works/routing.py", 'line.startswith(">")', 'line.startswith(">>")', "route", "tool",
        when=_quoted, also=tuple({*truth.ASKED} - {"standing", "collection", "emergency", "unknown"}),
    ),
    _keyword("lamp", "lamp", "street lamp", "technician"),
    _keyword("gas", "gas", "cubic metres of gas", "gasnet"),
    _keyword("permit", "permit", "permit", "guide"),
    _keyword("subsidy", "subsidy", "subsidy", "heating"),
    _keyword("abgeholt", "collection", "abgeholt", "colour"),
    _edit("route-heating", "heating", "keywords.csv", "\ndistrict heating,heating,2", "\ndistrict heating,heating,0",
          "route", when=lambda question, a: "district heating" in question),
    _edit("route-quand", "interruption", "languages.csv", "\nquand,fr", "\nquand,en", "route", "data",
          when=lambda question, a: a["in"] == "fr" and "quand" in question.lower()),
    _edit("knob-notes", "filter", _SETTINGS, "notes_kept = 12 ", "notes_kept = 7 ", "memory", "model"),
    _edit("knob-words", "guide", _SETTINGS, "reply_words = 180", "reply_words = 15", "model"),
    _edit("knob-temperature", "number", _SETTINGS, "temperature = 0.25", "temperature = 1.5", "model"),
    Fault("knob-rounds", "knob", ("tool", "model", "route"), ("cost", "instalment"), _SETTINGS,
          (("rounds = 4 ", "rounds = 1 "),)),
    _edit("knob-plug", "charging", _SETTINGS, "plug_minutes = 5 ", "plug_minutes = 50 ", "tool", "model"),
    _edit("knob-notice", "notice", _SETTINGS, "notice_days = 14", "notice_days = 4", "tool", "model"),
    _edit("knob-payment", "due", _SETTINGS, "payment_days = 30", "payment_days = 3", "tool", "model"),
    _stale("payment", "payment: at the counter"),
    _stale("contract", "contract: 31.12.2019"),
    _edit("memory-order", "my_tariff", "works/memory.py", "CUSTOMERS.get(customer, []), reverse=True)",
          "CUSTOMERS.get(customer, []))", "memory", "tool", also=("payment",)),
    Fault(
        "data-tariffs", "data", ("data",), ("tariff",), "data/tariffs.csv",
        tuple((_tariff(name), _tariff(name, 10.0)) for name in _COSTLY),
        when=lambda question, a: a["tariff"] in _COSTLY, also=("cost",),
    ),
    Fault(
        "data-bins", "data", ("data", "tool"), ("bin",), "data/bins.csv",
        tuple((_bin(size), _bin(size, blank=True)) for size in _BLANK),
        when=lambda question, a: int(a["size"]) in _BLANK,
    ),
    Fault(
        "data-streets", "data", ("data",), ("gasnet",), "data/streets.csv",
        tuple((_street(name), _street(name, turned=True)) for name in _TURNED),
        when=lambda question, a: a["street"] in _TURNED,
    ),
    Fault(
        "data-hardness", "data", ("data",), ("hardness",), "data/water.csv",
        tuple((_water(quarter), _water(quarter, 0.56)) for quarter in _GERMAN),
        when=lambda question, a: a["quarter"] in _GERMAN,
    ),
    Fault(
        "data-weekdays", "data", ("data",), ("collection",), "weekdays.csv",
        (("Dienstag,mardi", "Dienstag,mercredi"), ("Mittwoch,mercredi", "Mittwoch,mardi"),
         ("Donnerstag,jeudi", "Donnerstag,vendredi"), ("Freitag,vendredi", "Freitag,jeudi")),
        when=_swapped, also=("interruption",),
    ),
    _edit(
        "drift-bin", "bin", "data/bins.csv", f"\n{_bin(500)}\n{_bin(770)}", f"\n{_bin(500)}", "data", "tool",
        word=(r"\b(?:60|140|240|500) litre", "770 litre"),
    ),
    _edit(
        "drift-device", "subsidy", "data/office.json",
        f'"roof insulation": 2600,\n    "{truth.NEW_DEVICE[0]}": {truth.NEW_DEVICE[1]}', '"roof insulation": 2600',
        "data", "tool", word=("a heat pump|a pellet stove|new windows", truth.NEW_DEVICE[0]),
    ),
    _edit(
        "drift-light", "lamp", "keywords.csv", "street lamp,lamp,2\nstreet light,lamp,2", "street lamp,lamp,2", "route",
        word=("street lamp", "street light"),
    ),
    _edit(
        "drift-container", "bin", "keywords.csv", "litre bin,bin,2\nlitre container,bin,2", "litre bin,bin,2", "route",
        word=("litre bin", "litre container"),
    ),
    _edit(
        "upstream-billing", "bill", _BILLS,
        'answer["amount"] if "amount" in answer else answer["total"]["rappen"] / 100',
        'answer["amount"]', "upstream", "tool", service="billing", also=("instalment",),
    ),
    _edit(
        "upstream-visits", "technician", _TOWN, 'answer["first"] if "first" in answer else answer["slots"][0]["on"]',
        'answer["first"]', "upstream", "tool", service="visits",
    ),
    _edit(
        "upstream-lamps", "lamp", _TOWN, 'answer["repaired"] if "repaired" in answer else answer["state"] == "R"',
        'answer.get("repaired", False)', "upstream", "tool", service="lamps",
        when=lambda question, a: truth.LAMPS[a["lamp"]],
    ),
    _edit(
        "upstream-meters", "usage", _ENERGY,
        'answer if "kwh" in answer else {name: wh // 1000 for name, wh in answer["register"].items()}',
        'answer.get("register", answer)', "upstream", "tool", service="meters", also=("reading",),
    ),
)  # fmt: skip
_APART = (
    {"prompt-template", "flow-interruption"},
    {"prompt-template", "route-quand"},
    {"memory-order", "memory-payment"},
    {"memory-order", "flow-payment"},
    {"memory-order", "knob-notes"},
)
"""Faults of which one would undo the other, or leave it no question of its own."""


def draw(seed: int) -> list[Fault]:
    """Twenty faults of a night: one at most for each kind of question, at least one of each family."""
    dice = random.Random(f"what is wrong at the works {seed}")
    families = {fault.family for fault in FAMILY}
    while True:
        chosen: list[Fault] = []
        for fault in dice.sample(FAMILY, len(FAMILY)):
            ids = {other.id for other in chosen} | {fault.id}
            if any(pair <= ids for pair in _APART) or any(_overlap(fault, other) for other in chosen):
                continue
            chosen.append(fault)
        chosen = chosen[:PLANTED]
        if len(chosen) == PLANTED and {fault.family for fault in chosen} == families:
            return sorted(chosen, key=lambda fault: fault.id)


def _overlap(fault: Fault, other: Fault) -> bool:
    """True if two faults are of one kind of question, or one spoils all of the other's."""
    for one, two in ((fault, other), (other, fault)):
        if {*one.kinds} & ({*two.kinds} if two.when else {*two.kinds, *two.also}):
            return True
    return False
