"""What can be wrong with the front desk or around it, of which a night draws twenty.

A fault is planted in a copy of the agent's folder: lines of one of its files are put otherwise (`edits`), or one of the
clinic's systems or the patients change from a day on, which the planted lines do not allow for.
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
"""The day, of `people.DAYS`, on which a system or the patients change."""
_When = Callable[[str, Mapping[str, str]], bool]


@dataclass(frozen=True)
class Fault:
    """One thing that can be planted."""

    id: str
    family: str
    """prompt, tool, flow, route, knob, memory, data, drift or upstream."""
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
    """From CHANGED_ON on patients say the second where the first, a pattern, is."""
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
        """A question in the words that patients have since the change."""
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


_COSTLY = tuple(name for name, each in truth.TREATMENTS.items() if each["category"] == "dental")
_BLANK = tuple(truth.EXAMINATIONS)[::2]
_CONTRACTS = tuple(truth.INSURERS)[1::2]
_STALE = "2026-08-31"
"""Day on which old facts were read into the notes once more."""


def _treatment(name: str, factor: float = 1.0) -> str:
    each = truth.TREATMENTS[name]
    return f"{name},{each['category']},{each['fee'] * factor:.2f}"


def _examination(name: str, *, blank: bool = False) -> str:
    each = truth.EXAMINATIONS[name]
    return f"{name},{each['minutes']},{'' if blank else each['fasting']},{each['lead']}"


def _insurer(name: str, *, turned: bool = False) -> str:
    each = truth.INSURERS[name]
    return f'"{name}": {json.dumps({**each, "contract": each["contract"] != turned})}'


def _lines(entries: Mapping[str, object]) -> str:
    """A JSON object with one line for each entry."""
    inside = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    return f"{{\n{inside}\n}}\n"


def notes() -> dict[str, list[str]]:
    """What the clinic has noted of each patient."""
    return {
        person: [
            f"2020-0{1 + place % 9}-14 complaint: {truth.COMPLAINT[person]}",
            f"2021-0{1 + place % 7}-03 pharmacy: {truth.PHARMACY[person][1]}",
            f"2022-0{1 + place % 8}-21 reminder: {('letter', 'telephone')[place % 2]}",
            f"2022-1{place % 3}-09 next of kin: {('sister', 'husband', 'son', 'neighbour')[place % 4]}",
            f"2023-0{1 + place % 6}-17 patient number: {truth.NUMBER[person]}",
            f"2024-0{1 + place % 9}-28 tetanus: {truth.TETANUS[person]}",
            f"2025-0{1 + place % 5}-11 allergy: {truth.ALLERGY[person]}",
            f"2026-0{1 + place % 8}-06 pharmacy: {truth.PHARMACY[person][0]}",
        ]
        for place, person in enumerate(truth.PEOPLE)
    }


def tables() -> dict[str, str]:
    """The agent's files that the clinic's tables make."""
    rows = {
        "treatments.csv": [
            "treatment,category,fee",
            *(_treatment(name) for name in truth.TREATMENTS),
        ],
        "examinations.csv": [
            "examination,minutes,fasting,lead",
            *(_examination(name) for name in truth.EXAMINATIONS),
        ],
        "doctors.csv": [
            "doctor,specialty,languages",
            *(
                f"{name},{each['specialty']},{'|'.join(each['languages'])}"
                for name, each in truth.DOCTORS.items()
            ),
        ],
    }
    office = {
        "referral": truth.REFERRAL,
        "lowest age": truth.LOWEST_AGE,
        "sick note": truth.SICK_NOTE,
        "exercise": truth.EXERCISES,
    }
    rota = {doctor: {day[:3]: hours for day, hours in each.items()} for doctor, each in truth.ROTA.items()}
    return {name: "\n".join(lines) + "\n" for name, lines in rows.items()} | {
        "rota.json": _lines(rota),
        "plans.json": "{\n" + ",\n".join(f" {_insurer(name)}" for name in truth.INSURERS) + "\n}\n",
        "office.json": json.dumps(office, indent=2) + "\n",
        "shuttle.json": _lines(truth.SHUTTLE | dict([truth.NEW_SITE])),
        "notes.json": json.dumps(notes(), indent=1) + "\n",
    }


def _rule(kind: str, rule: str, file: str = "frontdesk.py") -> Fault:
    line = f'    "{rule}",\n' if file.endswith(".py") else f"- {rule}\n"
    return Fault(f"prompt-{kind}", "prompt", ("prompt",), (kind,), file, ((line, ""),), rule=rule)


def _edit(id: str, kind: str, file: str, good: str, bad: str, *components: str, **more: object) -> Fault:
    return Fault(id, id.partition("-")[0], components, (kind,), file, ((good, bad),), **more)  # type: ignore[arg-type]


def _stale(kind: str, note: str) -> Fault:
    edits = tuple((f'"{person}": [\n', f'"{person}": [\n  "{_STALE} {note}",\n') for person in truth.PEOPLE)
    return Fault(f"memory-{kind}", "memory", ("memory",), (kind,), "notes.json", edits)


def _playbook(topic: str, kind: str, good: str, bad: str) -> Fault:
    entry = f'    "{topic}": '
    return _edit(f"flow-{kind}", kind, "frontdesk.py", f"{entry}({good}),", f"{entry}({bad}),", "route")


_DESK, _HELP, _TOPICS, _STYLE = "frontdesk.py", "helpers.py", "topics.csv", "house_style.txt"
FAMILY: tuple[Fault, ...] = (
    _rule("visit", "Name the doctor whenever you confirm an appointment."),
    _rule("unknown", "If the records have nothing on a question, say that you cannot tell."),
    _rule("sample", "Repeat the number of the sample when you speak of laboratory results."),
    _rule("urgent", "For urgent trouble at night give the number 0844 117 011."),
    _rule("referral", "Name the specialty when you say whether a referral is needed."),
    _rule("opening", "When you give opening hours, write the time with four digits, such as 08:30.", _STYLE),
    _rule("prepare", "List preparations one to a line, each behind a dash.", _STYLE),
    _rule("bill", "Write the amount of a bill with CHF in front.", _STYLE),
    _rule("age", "Give the age for a vaccination in months.", _STYLE),
    _edit("tool-supply", "supply", _DESK, "tablets // per_day", "per_day // tablets", "tool"),
    _edit("tool-fever", "fever", _DESK, "(fahrenheit - 32)", "(fahrenheit + 32)", "tool"),
    _edit(
        "tool-speaks", "speaks", _DESK, 'DOCTORS[doctor]["languages"].split("|")',
        'DOCTORS[doctor]["languages"].split(",")', "tool",
        when=lambda question, a: a["language"] in truth.DOCTORS[a["doctor"]]["languages"],
    ),
    _edit("tool-vaccine", "vaccine", _DESK, '"there": doses > 0}', '"there": doses < 0}', "tool",
          when=lambda question, a: truth.DOSES[f"{a['vaccine']}@{a['site']}"] > 0),
    _edit("tool-consulting", "consulting", _HELP, "return weekday[:3]", "return weekday[:2]", "tool"),
    _edit("tool-arrival", "arrival", _HELP, "total = total - minutes", "total = total + minutes", "tool"),
    _edit("tool-move", "move", _DESK, 'self.seen["hours"] >= NOTICE', 'self.seen["hours"] < NOTICE', "tool"),
    _edit("tool-ward", "ward", _DESK, "ward.lower()", "ward.upper()", "tool"),
    _edit(
        "tool-sicknote", "sicknote", _DESK, 'OFFICE["sick note"]["base"] + ', 'OFFICE["sick note"]["base"] * ',
        "tool",
    ),
    _edit("tool-copay", "copay", _DESK, 'left = 100 - PLANS[insurer]["covers"]', 'left = PLANS[insurer]["covers"]',
          "tool"),
    _playbook("own share", "copay", '"fee", "own_share"', '"fee",'),
    _playbook("instalments", "instalment", '"bill", "instalment"', '"bill",'),
    _playbook("arrival", "arrival", '"lead", "be_there"', '"be_there",'),
    _playbook("moving", "move", '"appointment", "may_move"', '"appointment",'),
    _edit("flow-tetanus", "tetanus", _DESK, 'NOTED = ("allergy", "tetanus",', 'NOTED = ("allergy",', "route", "memory"),
    _edit("route-sample", "sample", _TOPICS, "sample,laboratory", "sample,prescription", "route"),
    _edit("route-supply", "supply", _TOPICS, "tablets,supply", "tablets,prescription", "route"),
    _edit("route-fever", "fever", _TOPICS, "fahrenheit,fever", "fahrenheit,laboratory", "route"),
    _edit("route-referral", "referral", _TOPICS, "referral,referral", "referral,specialty", "route"),
    _edit(
        "route-ward", "ward", _TOPICS, "ward,ward", "ward,opening", "route",
        when=lambda question, a: "visiting hours" not in question,
    ),
    _edit("knob-notes", "exercise", "config.json", '"notes_kept": 10', '"notes_kept": 6', "memory", "model"),
    _edit("knob-reply", "prepare", "config.json", '"longest_reply": 220', '"longest_reply": 22', "model"),
    _edit("knob-temperature", "number", _DESK, "TEMPERATURE = 0.3", "TEMPERATURE = 1.6", "model"),
    _edit("knob-settling", "duration", _DESK, "SETTLING = 10 ", "SETTLING = 100 ", "tool", "model"),
    _edit(
        "knob-notice", "move", _DESK, "NOTICE = 24 ", "NOTICE = 4 ", "tool", "model",
        when=lambda question, a: 4 <= truth.APPOINTMENTS[a["reference"]]["hours_ahead"] < 24,
    ),
    _stale("allergy", "allergy: none"),
    _stale("tetanus", "tetanus: 1994"),
    _edit("memory-pharmacy", "pharmacy", _HELP, "sorted(notes, reverse=True)", "sorted(notes)", "memory", "tool"),
    Fault(
        "data-fees", "data", ("data",), ("fee",), "treatments.csv",
        tuple((_treatment(name), _treatment(name, 10.0)) for name in _COSTLY),
        when=lambda question, a: a["treatment"] in _COSTLY, also=("copay",),
    ),
    Fault(
        "data-fasting", "data", ("data", "tool"), ("fasting",), "examinations.csv",
        tuple((_examination(name), _examination(name, blank=True)) for name in _BLANK),
        when=lambda question, a: a["examination"] in _BLANK,
    ),
    Fault(
        "data-insurers", "data", ("data",), ("insurer",), "plans.json",
        tuple((_insurer(name), _insurer(name, turned=True)) for name in _CONTRACTS),
        when=lambda question, a: a["insurer"] in _CONTRACTS,
    ),
    _edit(
        "drift-site", "shuttle", "shuttle.json", '"Enge": 18,\n "Seefeld": 31', '"Enge": 18', "data", "tool",
        word=("Castel|Dorfmatt|Enge", "Seefeld"),
    ),
    _edit(
        "drift-letter", "sicknote", _TOPICS, "sick note,certificate\nabsence letter,certificate",
        "sick note,certificate", "route", word=("a sick note", "an absence letter"),
    ),
    _edit(
        "drift-jab", "age", _TOPICS, "vaccination,vaccination age\njab,vaccination age",
        "vaccination,vaccination age", "route", word=("vaccination", "jab"),
    ),
    _edit(
        "upstream-slots", "slots", _DESK, 'answer["next"] if "next" in answer else answer["free"][0]',
        'answer["next"]', "upstream", "tool", service="slots",
    ),
    _edit(
        "upstream-pharmacy", "prescription", _DESK,
        'answer["ready"] if "ready" in answer else answer["status"] == "ready"', 'answer["ready"]',
        "upstream", "tool", service="pharmacy",
    ),
    _edit(
        "upstream-bill", "bill", _DESK, 'answer["amount"] if "amount" in answer else answer["rappen"] / 100',
        'answer["amount"]', "upstream", "tool", service="billing", also=("instalment",),
    ),
)  # fmt: skip
_APART = (
    {"memory-pharmacy", "memory-allergy"},
    {"memory-pharmacy", "memory-tetanus"},
    {"memory-pharmacy", "knob-notes"},
    {"flow-instalment", "upstream-bill"},
)
"""Faults of which one would undo the other, or leave it no question of its own."""


def draw(seed: int) -> list[Fault]:
    """Twenty faults of a night: one at most for each kind of question, at least one of each family."""
    chance = random.Random(f"what is wrong at the clinic {seed}")
    families = {fault.family for fault in FAMILY}
    while True:
        chosen: list[Fault] = []
        for fault in chance.sample(FAMILY, len(FAMILY)):
            taken = {kind for other in chosen for kind in other.kinds}
            ids = {other.id for other in chosen} | {fault.id}
            if not taken & set(fault.kinds) and not any(pair <= ids for pair in _APART):
                chosen.append(fault)
        chosen = chosen[:PLANTED]
        if len(chosen) == PLANTED and {fault.family for fault in chosen} == families:
            return sorted(chosen, key=lambda fault: fault.id)
