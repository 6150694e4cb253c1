"""What is right, which only the test knows: neither the agent nor whet is shown this file.

It holds the tables of the shop, reads a question into its kind and arguments, and says what an answer must contain.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Any

_draw = random.Random("the shop")
_NAMES = [
    "mower",
    "hose",
    "trimmer",
    "pump",
    "lamp",
    "barrow",
    "shredder",
    "sprayer",
    "rake",
    "spade",
    "fork",
    "hoe",
    "saw",
    "ladder",
    "bench",
    "parasol",
    "grill",
    "heater",
    "trellis",
    "pot",
    "bucket",
    "sieve",
    "roller",
    "spreader",
    "scarifier",
    "chipper",
    "auger",
    "wheel",
    "fence",
    "gate",
]
BRANDS = ("Alder", "Birke", "Cedro", "Dorn", "Erle")
ARTICLES: dict[str, dict[str, Any]] = {
    name: {
        "brand": BRANDS[number % len(BRANDS)],
        "price": _draw.randrange(8, 240) + 0.5,
        "weight": _draw.randrange(1, 30) / 2,
        "warranty": _draw.randrange(1, 9),
    }
    for number, name in enumerate(_NAMES)
}
TOWNS = {"Arnau": 4.5, "Belm": 4.5, "Corva": 7.5, "Dahlen": 7.5, "Elsing": 9.0}
"""Town → what delivery costs."""
NEW_TOWN = ("Lindau", 6.5)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
PLANTS = ["roses", "tulips", "lavender", "sage", "ivy", "ferns", "lilies", "peonies", "asters", "dahlias"]
ANIMALS = ("cat", "dog", "rabbit", "hen")
UNITS = {"litres": 1.0, "gallons": 3.785, "buckets": 10.0}
STOCK = {name: _draw.choice([0, 0, 2, 4, 9, 30]) for name in ARTICLES}
RENTAL = {name: _draw.randrange(2, 20) * 10 for name in ARTICLES}
ORDERS = {
    str(4100 + 37 * number): {
        "state": _draw.choice(["packed", "sent", "delayed"]),
        "days": _draw.randrange(3, 60),
    }
    for number in range(90)
}
INVOICES = {str(70_100 + 13 * number): _draw.randrange(20, 400) + 0.25 for number in range(90)}
CARDS = {f"K{900 + 7 * number}X": _draw.randrange(5, 120) for number in range(60)}
MANUAL = {
    "wind up the hose": ["drain the hose", "turn the crank", "lock the reel"],
    "change the blade": ["pull the plug", "loosen the bolt", "fit the blade"],
    "store the pump": ["empty the pump", "dry the pump", "keep it above freezing"],
    "clean the shredder": ["pull the plug", "open the lid", "brush the knives"],
    "charge the trimmer": ["remove the battery", "place it on the charger", "wait for the green light"],
}
HOURS = {f"{town} {day}": _draw.choice([8, 9, 10, 13, 14, 15]) for town in TOWNS for day in DAYS}
FROST = {plant: _draw.choice(["March", "April", "May", "September"]) for plant in PLANTS}
SOIL = {plant: _draw.choice(["sandy", "loamy", "chalky", "peaty"]) for plant in PLANTS}
POISON = {f"{plant} {animal}": _draw.random() < 0.5 for plant in PLANTS for animal in ANIMALS}
PEOPLE = tuple(f"customer-{number:02}" for number in range(60))
POINTS = {person: _draw.randrange(3, 90) * 10 for person in PEOPLE}
GLOVES = {person: _draw.choice(["small", "medium", "large"]) for person in PEOPLE}
GARDEN = {
    person: _draw.choice(["clay bed", "north wall", "balcony", "slope", "pond edge"]) for person in PEOPLE
}
FEED = {
    "clay bed": "bone meal",
    "north wall": "leaf mould",
    "balcony": "liquid feed",
    "slope": "pellets",
    "pond edge": "seaweed",
}
STREETS = dict(zip(TOWNS, ("Mill Lane", "Quay", "Station Road", "Church Street", "North Gate"), strict=True))
PARKING = dict(zip(TOWNS, (40, 25, 60, 12, 80), strict=True))
UNKNOWN = ("bulbs", "compost", "bark", "gravel", "pond foil", "turf")

_A = r"(?P<article>[a-z]+)"
PATTERNS = {
    "total": rf"What do (?P<count>\d+) {_A}s cost delivered to (?P<town>\w+)\?",
    "discount": rf"What does the {_A} cost with a (?P<percent>\d+) percent coupon\?",
    "price": rf"What does the {_A} cost\?",
    "stock": rf"Is the {_A} in stock\?",
    "compare": rf"Which is cheaper, the {_A} or the (?P<other>[a-z]+)\?",
    "warranty": rf"How long is the warranty on the {_A}\?",
    "manual": r"How do I (?P<task>[a-z ]+)\?",
    "hours": r"When does the (?P<town>\w+) shop open on (?P<day>\w+)\?",
    "order": r"Where is my order (?P<number>\d+)\?",
    "refund": r"Can I still return order (?P<number>\d+)\?",
    "cancel": r"Can order (?P<number>\d+) still be cancelled\?",
    "arrive": r"How soon will order (?P<number>\d+) reach (?P<town>\w+)\?",
    "invoice": r"What was the sum on invoice (?P<number>\d+)\?",
    "convert": r"How many (?P<into>[a-z]+) are (?P<amount>\d+) (?P<unit>[a-z]+)\?",
    "weight": rf"How heavy is a parcel with (?P<count>\d+) {_A}s\?",
    "gift": r"What is left on (?:gift card|voucher) (?P<code>\w+)\?",
    "deposit": rf"What is the deposit for renting the {_A}\?",
    "points": r"How many points do I have\?",
    "glove": r"Which glove size should I take\?",
    "feed": r"What should I feed (?P<plant>\w+) where my garden is\?",
    "frost": r"When can I plant (?P<plant>\w+)\?",
    "soil": r"Which soil does (?P<plant>\w+) like\?",
    "poison": r"Is (?P<plant>\w+) poisonous for my (?P<animal>\w+)\?",
    "address": r"In which street is the (?P<town>\w+) shop\?",
    "parking": r"Is there room to park at the (?P<town>\w+) shop\?",
    "brand": rf"Who makes the {_A}\?",
    "unknown": r"Do you know the price of (?P<thing>[a-z ]+) next spring\?",
}
"""Kind → how it is asked; a customer who comes back begins with "Once more: "."""
_COMPILED = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}


def read(question: str) -> tuple[str, dict[str, str]]:
    """Kind and arguments of a question; ("", {}) for one that nobody can answer."""
    for kind, pattern in _COMPILED.items():
        if match := pattern.search(question):
            return kind, match.groupdict()
    return "", {}


def _money(value: float) -> str:
    return rf"{value:.2f} euros"


_WANTED: Mapping[str, Callable[[Mapping[str, str], str], list[str]]] = {
    "price": lambda a, p: [f"{ARTICLES[a['article']]['price']:.2f}"],
    "stock": lambda a, p: ["yes" if STOCK[a["article"]] else "not in stock"],
    "total": lambda a, p: [
        f"{ARTICLES[a['article']]['price'] * int(a['count']) + (TOWNS | dict([NEW_TOWN]))[a['town']]:.2f}"
    ],
    "discount": lambda a, p: [
        f"{round(ARTICLES[a['article']]['price'] * (100 - int(a['percent'])) / 100, 2):.2f}"
    ],
    "compare": lambda a, p: [
        f"the {min((a['article'], a['other']), key=lambda name: ARTICLES[name]['price'])} is cheaper"
    ],
    "warranty": lambda a, p: [f"{ARTICLES[a['article']]['warranty']} years"],
    "manual": lambda a, p: [f"{number}. {step}" for number, step in enumerate(MANUAL[a["task"]], 1)],
    "hours": lambda a, p: [f"{HOURS[a['town'] + ' ' + a['day']]:02}:00"],
    "order": lambda a, p: [a["number"], ORDERS[a["number"]]["state"]],
    "refund": lambda a, p: ["can be returned" if ORDERS[a["number"]]["days"] <= 30 else "too late"],
    "cancel": lambda a, p: [
        "can be cancelled" if ORDERS[a["number"]]["state"] == "packed" else "already left"
    ],
    "arrive": lambda a, p: [f"in {2 if TOWNS[a['town']] < 6 else 4} days"],
    "invoice": lambda a, p: [_money(INVOICES[a["number"]])],
    "convert": lambda a, p: [
        f"{round(int(a['amount']) * UNITS[a['unit']] / UNITS[a['into']], 1)} {a['into']}"
    ],
    "weight": lambda a, p: [f"{round(ARTICLES[a['article']]['weight'] * int(a['count']) + 0.5, 1)} kg"],
    "gift": lambda a, p: [f"{CARDS[a['code'].upper()]} left"],
    "deposit": lambda a, p: [f"deposit is {RENTAL[a['article']]}"],
    "points": lambda a, p: [f"{POINTS[p]} points"],
    "glove": lambda a, p: [f"size {GLOVES[p]}"],
    "feed": lambda a, p: [FEED[GARDEN[p]]],
    "frost": lambda a, p: [f"in {FROST[a['plant']].lower()}"],
    "soil": lambda a, p: [SOIL[a["plant"]]],
    "poison": lambda a, p: [
        f"{'poisonous' if POISON[a['plant'] + ' ' + a['animal']] else 'harmless'} for your {a['animal']}"
    ],
    "address": lambda a, p: [STREETS[a["town"]]],
    "parking": lambda a, p: [f"{PARKING[a['town']]} places"],
    "brand": lambda a, p: [ARTICLES[a["article"]]["brand"]],
    "unknown": lambda a, p: ["do not know"],
}


def right(question: str, answer: str, person: str = "") -> bool:
    """True if this answer is what the customer needs; nothing is right for a question that nobody can answer."""
    kind, arguments = read(question)
    if not kind:
        return False
    text = answer.lower()
    try:
        return all(wanted.lower() in text for wanted in _WANTED[kind](arguments, person))
    except KeyError:
        return False
