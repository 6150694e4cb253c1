"""What can be wrong with the agent or around it, of which a night draws twenty, and what only looks wrong.

A fault is planted in a copy of the agent's folder by putting `bad` in the place of `good` in one of its files, or
by a service or its customers changing from a day on, which the agent's files do not allow for.  It is repaired when
fresh questions of its kinds are answered right again, whatever was changed for it.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

import truth

PLANTED, DECOYS = 20, 20
CHANGED_ON = 5
"""The day, of `people.DAYS`, on which a service or the customers change."""


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
    good: str = ""
    bad: str = ""
    rule: str = ""
    """Of the prompt, which lacks it."""
    service: str = ""
    """Speaks its new form from CHANGED_ON on."""
    word: tuple[str, str] | None = None
    """From CHANGED_ON on customers say the second for the first."""
    articles: tuple[str, ...] = ()
    """Those that it is spoilt for; all if it is empty."""
    also: tuple[str, ...] = ()
    """Kinds that it spoils on the side, which may have a fault of their own."""

    def plant(self, files: dict[str, str]) -> None:
        """Put it into the agent's files.

        Raises:
            ValueError: the file does not have what is to be replaced.
        """
        before = files[self.file]
        files[self.file] = (
            _REWRITTEN[self.id](before) if self.id in _REWRITTEN else before.replace(self.good, self.bad)
        )
        if files[self.file] == before:
            raise ValueError(f"fault {self.id} changes nothing in {self.file}")

    def hits(self, question: str, day: int) -> bool:
        """True if the fault spoils the answer to this question on this day."""
        kind, arguments = truth.read(question)
        if kind not in (*self.kinds, *self.also) or ((self.service or self.word) and day < CHANGED_ON):
            return False
        if self.word and self.word[1] not in question:
            return False
        return not self.articles or bool(
            {arguments.get("article"), arguments.get("other")} & set(self.articles)
        )

    def shown_in(self, text: str) -> bool:
        """True if a request shows what is broken: the lines of the file, or failing questions that lack the rule."""
        if self.rule:
            return self.rule not in text and any(re.search(truth.PATTERNS[kind], text) for kind in self.kinds)
        if self.id in _REWRITTEN:
            return any(line in text for line in _REWRITTEN_SIGNS[self.id])
        return (self.bad or _BEFORE[self.id]) in text and self.good not in text

    def mended(self, text: str) -> str:
        """The repair in the form that a request asks for: blocks to search and replace, else all that it shows."""
        if self.id in _REWRITTEN:
            lines = text.splitlines()
            pairs = [
                _MENDED[self.id](lines[: number + 1])
                for number, line in enumerate(lines)
                if any(sign in line for sign in _REWRITTEN_SIGNS[self.id])
            ]
        elif not self.bad:  # something is missing behind a line that is there
            before = _BEFORE[self.id]
            between = "" if self.good.startswith(",") else "\n"
            pairs = [(before, f"{before}{between}{self.good.rstrip()}")]
        else:
            lines = [line for line in text.splitlines() if self.bad in line]
            pairs = (
                [(self.bad, self.good)]
                if "\n" in self.bad
                else [(ln, ln.replace(self.bad, self.good)) for ln in lines]
            )
        if "<<<<<<< SEARCH" in text:
            return "\n".join(
                f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE" for old, new in dict(pairs).items()
            )
        blocks = re.findall(r"```(?:python|json|csv)?\n(.*?)```", text, re.DOTALL)
        whole = next((block for block in blocks if any(old in block for old, _ in pairs)), text)
        for old, new in pairs:
            whole = whole.replace(old, new)
        return f"```\n{whole}```"


_BEFORE = {"drift-town": '"Elsing": 9.0', "drift-voucher": '        "gift card": "card",'}
"""Fault that leaves something out → what stands before it."""
_BRAND, _BLANK = truth.BRANDS[1], truth.BRANDS[2:]


def _prices(content: str) -> str:
    """The rows of one maker with prices ten times too high."""
    return _rows(
        content, lambda row: [*row[:2], f"{float(row[2]) * 10:.1f}", *row[3:]] if row[1] == _BRAND else row
    )


def _weights(content: str) -> str:
    """The rows of some makers without a weight."""
    return _rows(content, lambda row: [*row[:3], "", *row[4:]] if row[1] in _BLANK else row)


def _rows(content: str, change) -> str:  # type: ignore[no-untyped-def]
    head, *rows = content.splitlines()
    return "\n".join([head, *(",".join(change(row.split(","))) for row in rows)]) + "\n"


def _stale(name: str):  # type: ignore[no-untyped-def]
    """A memory in which an old fact was written again behind the new one."""

    def rewritten(content: str) -> str:
        memory = json.loads(content)
        for person, facts in memory.items():
            old = f"{name}: {'7' if name == 'points' else 'tiny'}"
            memory[person] = [*facts, old]
        return json.dumps(memory, indent=1) + "\n"

    return rewritten


_REWRITTEN = {
    "data-prices": _prices,
    "data-weights": _weights,
    "memory-points": _stale("points"),
    "memory-glove": _stale("glove size"),
}
_OF = dict(truth.ARTICLES.items())
_REWRITTEN_SIGNS = {
    "data-prices": [
        f"{name},{_BRAND},{each['price'] * 10:.1f}" for name, each in _OF.items() if each["brand"] == _BRAND
    ],
    "data-weights": [
        f"{name},{each['brand']},{each['price']:.1f},,"
        for name, each in _OF.items()
        if each["brand"] in _BLANK
    ],
    "memory-points": ['"points: 7"'],
    "memory-glove": ['"glove size: tiny"'],
}


def _true_row(lines: list[str]) -> tuple[str, str]:
    return lines[-1], article_row(lines[-1].partition(",")[0])


def _forgotten(lines: list[str]) -> tuple[str, str]:
    """What is remembered of a customer up to the last line, and the same without it."""
    first = max(number for number, line in enumerate(lines) if line.endswith("["))
    kept = "\n".join(lines[first:-1])
    return "\n".join(lines[first:]), kept if lines[-1].endswith(",") else kept.removesuffix(",")


_MENDED = {
    "data-prices": _true_row,
    "data-weights": _true_row,
    "memory-points": _forgotten,
    "memory-glove": _forgotten,
}


def article_row(name: str) -> str:
    """A row of the agent's table of articles, as it is right."""
    each = truth.ARTICLES[name]
    return f"{name},{each['brand']},{each['price']:.1f},{each['weight']:.1f},{each['warranty']}"


def tables() -> dict[str, str]:
    """The agent's files that the shop's tables make: articles, zones and what is remembered of its customers."""
    head = "article,brand,price,weight,warranty"
    zones = truth.TOWNS | dict([truth.NEW_TOWN])
    facts = {
        person: [
            "language: English",
            f"garden: {truth.GARDEN[person]}",
            "newsletter: no",
            f"glove size: {truth.GLOVES[person]}",
            f"points: {truth.POINTS[person]}",
        ]
        for person in truth.PEOPLE
    }
    return {
        "articles.csv": "\n".join([head, *map(article_row, truth.ARTICLES)]) + "\n",
        "zones.json": json.dumps(zones, indent=1) + "\n",
        "memory.json": json.dumps(facts, indent=1) + "\n",
    }


def _rule(kind: str, rule: str) -> Fault:
    return Fault(
        f"prompt-{kind}", "prompt", ("prompt",), (kind,), "desk.py", good=f"\n{rule}", bad="", rule=rule
    )


def _edit(id: str, kind: str, file: str, good: str, bad: str, *components: str, **more: object) -> Fault:
    family = id.partition("-")[0]
    return Fault(id, family, components, (kind,), file, good, bad, **more)  # type: ignore[arg-type]


def _flow(kind: str, sign: str, good: str, bad: str) -> Fault:
    # With the line above it: two of these plans may be short of a tool in the same way.
    asked = f'    if "{sign}" in words:\n        return '
    return _edit(f"flow-{kind}", kind, "planner.py", asked + good, asked + bad, "route")


_PRICED = tuple(name for name, each in truth.ARTICLES.items() if each["brand"] == _BRAND)
_WEIGHED = tuple(name for name, each in truth.ARTICLES.items() if each["brand"] in _BLANK)
_BY_PRICE = ("total", "discount", "compare")
FAMILY: tuple[Fault, ...] = (
    _rule("warranty", "State a warranty in years, with the unit."),
    _rule("order", "Repeat the order number when you say where an order is."),
    _rule("manual", "If a customer asks how to do something, answer in numbered steps."),
    _rule("unknown", "Say that you do not know, but only where you have no information."),
    _rule("hours", "Give opening hours by the 24-hour clock."),
    _rule("invoice", "Give sums of money with their currency, euros."),
    _rule("poison", "Name the animal when you say whether a plant is poisonous."),
    _rule("frost", "Name the month when you say when to plant."),
    _edit("tool-convert", "convert", "tools.py", "litres[unit] / litres[into]", "litres[into] / litres[unit]", "tool"),
    _edit("tool-weight", "weight", "tools.py", '["weight"]) * count + 0.5', '["weight"]) * count', "tool"),
    _edit("tool-stock", "stock", "tools.py", "pieces > 0", "pieces == 0", "tool"),
    _edit("tool-discount", "discount", "tools.py", "price * (100 - percent) / 100", "price - percent", "tool"),
    _edit("tool-card", "gift", "tools.py", "code.upper()", "code.lower()", "tool"),
    _edit("tool-deposit", "deposit", "tools.py", '["deposit"]}', '["fee"]}', "tool"),
    _edit("tool-poison", "poison", "tools.py", 'f"{plant} {animal}"', 'f"{animal} {plant}"', "tool"),
    _flow("total", "delivered to", '["price", "delivery"]', '["price"]'),
    _flow("compare", "cheaper", '["price", "price"]', '["price"]'),
    _flow("refund", "still return", '["order", "returns"]', '["order"]'),
    _flow("arrive", "reach", '["order", "zone"]', '["order"]'),
    _edit("route-soil", "soil", "routes.json", '"soil": "advice"', '"soil": "orders"', "route"),
    _edit("route-deposit", "deposit", "routes.json", '"deposit": "sales"', '"deposit": "service"', "route"),
    _edit("route-cancel", "cancel", "routes.json", '"cancelled": "orders"', '"cancelled": "sales"', "route"),
    _edit("route-hours", "hours", "routes.json", '"open on": "service"', '"open on": "sales"', "route"),
    _edit("knob-k", "feed", "settings.json", '"k": 6', '"k": 3', "memory", "model"),
    _edit("knob-words", "manual", "settings.json", '"max_tokens": 200', '"max_tokens": 10', "model"),
    _edit("knob-temperature", "points", "settings.json", '"temperature": 0.2', '"temperature": 1.3', "model"),
    Fault("memory-points", "memory", ("memory",), ("points",), "memory.json"),
    Fault("memory-glove", "memory", ("memory",), ("glove",), "memory.json"),
    Fault("data-prices", "data", ("data",), ("price",), "articles.csv", articles=_PRICED, also=_BY_PRICE),
    Fault("data-weights", "data", ("data", "tool"), ("weight",), "articles.csv", articles=_WEIGHED),
    _edit(
        "drift-town", "total", "zones.json", f',\n "{truth.NEW_TOWN[0]}": {truth.NEW_TOWN[1]}', "", "data", "tool",
        word=("delivered to", truth.NEW_TOWN[0]),
    ),
    _edit(
        "drift-voucher", "gift", "planner.py", '        "voucher": "card",\n', "", "route",
        word=("gift card", "voucher"),
    ),
    _edit(
        "upstream-cancel", "cancel", "tools.py", 'answer["state"] if "state" in answer else answer["status"]',
        'answer["state"]', "upstream", "tool", service="cancellation",
    ),
    _edit(
        "upstream-invoice", "invoice", "tools.py",
        'answer["cents"] / 100 if "cents" in answer else answer["sum"]', 'answer["sum"]', "upstream", "tool",
        service="invoices",
    ),
)  # fmt: skip


def draw(seed: int) -> list[Fault]:
    """Twenty faults of a night: one at most for each kind of question, at least one of each family."""
    chance = random.Random(f"faults {seed}")
    while True:
        order = list(FAMILY)
        chance.shuffle(order)
        chosen: list[Fault] = []
        for fault in order:
            if not any(set(fault.kinds) & set(other.kinds) for other in chosen):
                chosen.append(fault)
        if len(chosen) < PLANTED:
            continue
        chosen = chosen[:PLANTED]
        if {fault.family for fault in chosen} == {fault.family for fault in FAMILY}:
            return sorted(chosen, key=lambda fault: fault.id)
