"""What is right, which only the test knows: neither the agent nor whet is shown this file.

It holds the tables of the works, the ways in which customers ask, and says what an answer must contain.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any

_draw = random.Random("the municipal works")
GROUPS = {
    "household": ("Home", "Family", "Studio", "Attic"),
    "business": ("Office", "Bakery", "Workshop"),
    "land": ("Farm", "Garden"),
}
TARIFFS: dict[str, dict[str, Any]] = {
    f"{name} {time}": {
        "group": group,
        "rappen": _draw.randrange(1_400, 3_400) / 100,
        "monthly": _draw.randrange(70, 290) / 10,
    }
    for group, names in GROUPS.items()
    for name in names
    for time in ("Day", "Night", "Green")
}
QUARTERS = (
    "Altstadt", "Bachfeld", "Chilefeld", "Dorfbach", "Erlen", "Felsenau", "Grund", "Halde", "Itten", "Kreuz",
)  # fmt: skip
WASTE = {
    "paper": ("Papier", "le papier"),
    "cardboard": ("Karton", "le carton"),
    "glass": ("Glas", "le verre"),
    "metal": ("Metall", "le métal"),
    "green waste": ("Grüngut", "le compost"),
}
"""Kind of waste → what it is called in German and French."""
WEEKDAYS = {
    "Monday": ("Montag", "lundi"),
    "Tuesday": ("Dienstag", "mardi"),
    "Wednesday": ("Mittwoch", "mercredi"),
    "Thursday": ("Donnerstag", "jeudi"),
    "Friday": ("Freitag", "vendredi"),
    "Saturday": ("Samstag", "samedi"),
}
CALENDAR = {f"{quarter}/{waste}": _draw.choice(list(WEEKDAYS)) for quarter in QUARTERS for waste in WASTE}
INTERRUPTIONS = {
    quarter: {
        "weekday": _draw.choice(list(WEEKDAYS)),
        "from": f"{_draw.randrange(6, 12):02}:{_draw.choice(['00', '15', '30'])}",
        "to": f"{_draw.randrange(13, 18)}:{_draw.choice(['00', '15', '45'])}",
    }
    for quarter in QUARTERS
}
BILLS = {
    str(number): {
        "issued": str(date(2026, 3, 1) + timedelta(days=_draw.randrange(200))),
        "amount": _draw.randrange(3_000, 90_000) / 100,
    }
    for number in _draw.sample(range(500_000, 600_000), 40)
}
METERS = {
    f"M{number}": {"kwh": 0, "before": _draw.randrange(2_000, 50_000)}
    for number in _draw.sample(range(1_000, 9_999), 40)
}
for _meter in METERS.values():
    _meter["kwh"] = _meter["before"] + _draw.randrange(150, 4_000)
INSPECTIONS = {
    f"I{number}": str(date(2026, 11, 1) + timedelta(days=_draw.randrange(150)))
    for number in _draw.sample(range(100, 999), 40)
}
LAMPS = {f"L{number}": _draw.random() < 0.5 for number in _draw.sample(range(1_000, 9_999), 40)}
COUNTERS = ("Rathaus", "Bahnhof", "Werkhof", "Schlossplatz", "Seehalle")
OPENING = {
    f"{counter}/{day}": f"{_draw.randrange(7, 15):02}:{_draw.choice(['00', '15', '30'])}"
    for counter in COUNTERS
    for day in WEEKDAYS
}
ADDRESSES = dict(
    zip(COUNTERS, ("Marktgasse", "Gleisweg", "Industriestrasse", "Burghalde", "Seepromenade"), strict=True)
)
_FIRST_STEPS = ("switch off the boiler", "put on gloves", "have a torch ready")
_LAST_STEPS = ("write down the time", "wait for ten minutes", "call us if anything drips")
_TASKS = (
    "read the meter", "bleed a radiator", "close the main tap", "reset the fuse", "empty the sludge trap",
    "drain the garden pipe", "test the earth switch",
)  # fmt: skip
GUIDES = {
    task: [_draw.choice(_FIRST_STEPS), f"{task} with care", _draw.choice(_LAST_STEPS), "tell your neighbours"]
    for task in _TASKS
}
WORKS = (
    "a garden pond",
    "a solar roof",
    "a wall box",
    "an oil tank",
    "a deep well",
    "a wood stove",
    "a chimney",
)
PERMITS = {work: number % 2 == 0 for number, work in enumerate(WORKS)}
HARDNESS = {quarter: _draw.randrange(12, 44) for quarter in QUARTERS}
CHARGERS = {
    place: _draw.choice([0, 0, 1, 2, 3, 4])
    for place in (
        "the town hall", "the harbour", "the ice rink", "the library", "the swimming pool", "the old mill",
        "the stadium", "the hospital", "the fire station", "the museum", "the brewery", "the depot",
    )
}  # fmt: skip
TRADES = ("heating", "water", "electricity", "telephone", "ventilation")
VISITS = dict(
    zip(TRADES, ("3 December", "30 November", "11 December", "7 December", "15 December"), strict=True)
)
CONTACTS = dict(zip(TRADES, ("Ms Abegg", "Mr Bolliger", "Ms Camenzind", "Mr Dubs", "Ms Eberle"), strict=True))
COLOURS = dict(zip(WASTE, ("white", "brown", "clear", "grey", "green"), strict=True))
STREETS = {
    f"{name}{end}": _draw.random() < 0.5
    for end in ("weg", "gasse")
    for name in ("Amsel", "Birken", "Dahlien", "Eschen", "Finken", "Ginster", "Hasel", "Iris")
}
BINS = {size: size // 2 + _draw.randrange(9, 60) + 0.0 for size in (35, 60, 110, 140, 180, 240, 360, 500)}
NEW_BIN = (770, 471.0)
SUBSIDIES = {
    "a heat pump": 4_500, "a pellet stove": 1_800, "a cargo bike": 350, "new windows": 900, "roof insulation": 2_600,
}  # fmt: skip
NEW_DEVICE = ("a balcony panel", 240)
FILTERS = {"Vesta 4": "F-11", "Vesta 7": "F-12", "Calor S": "K2", "Hydro 90": "H-30", "Thermax": "T8 fine"}
KWH_PER_CUBIC_METRE, FRANCS_PER_CUBIC_METRE, FEED_IN, HEAT_BASE, HEAT_RATE = 10.3, 2.15, 9.6, 180.0, 0.128
NOTICE_DAYS, PAYMENT_DAYS, PLUG_MINUTES, COIN = 14, 30, 5, 0.05
_FIRST = (
    "anna", "beat", "clara", "dario", "esther", "fabio", "greta", "hans", "irma", "jonas", "kim", "livia",
    "max", "nina", "oskar", "petra", "remo", "silvia", "tim", "ursina",
)  # fmt: skip
PEOPLE = tuple(f"{first}.{last}" for last in ("bucher", "favre", "odermatt") for first in _FIRST)
TONGUE = {person: _draw.choice(["en", "de", "fr"]) for person in PEOPLE}
MY_TARIFF = {person: _draw.sample(sorted(TARIFFS), 2) for person in PEOPLE}
"""The tariff of a person, and the one before."""
_PAYING = ("direct debit", "e-bill", "standing order", "card")
PAYMENT = {person: _draw.sample(_PAYING, 2) for person in PEOPLE}
CONTRACT = {
    person: f"{_draw.choice([30, 15])}.0{_draw.randrange(4, 10)}.20{_draw.randrange(27, 33)}"
    for person in PEOPLE
}
NUMBER = {
    person: f"{3 + place % 6}{_draw.randrange(1_000, 9_999)}{place % 3}"
    for place, person in enumerate(PEOPLE)
}
BOILER = {person: _draw.choice(sorted(FILTERS)) for person in PEOPLE}
UNKNOWN = (
    "the ice rink card", "the night bus", "the fibre line", "the district laundry", "the public sauna",
    "the boat permit",
)  # fmt: skip
QUOTES = (
    "You wrote: the next collection of green waste is on Friday.",
    "You wrote on Monday: the next collection of paper was moved, sorry.",
    "From your last mail: the next collection of glass is not known yet.",
)
"""What customers quote of an earlier answer, under a question on something else."""

_ASKED: dict[str, Mapping[str, tuple[str, ...]] | tuple[str, ...]] = {
    "tariff": (
        "What does a kilowatt hour cost in the tariff {tariff}?",
        "How many rappen per kWh is {tariff} at the moment?",
        "Please tell me the energy price of {tariff}.",
    ),
    "standing": (
        "And how high is the standing charge of {tariff}?",
        "Thanks, and what is the fixed monthly fee for {tariff}?",
        "Fine. What do I pay each month for {tariff} before I use anything?",
    ),
    "cost": (
        "What would {kwh} kWh a year cost me with {tariff}?",
        "I use {kwh} kWh a year, how much is that in the tariff {tariff}?",
        "How high is the yearly bill for {kwh} kWh under {tariff}?",
    ),
    "gas": (
        "How many kWh are {volume} cubic metres of gas?",
        "I burnt {volume} cubic metres of gas, what energy is that?",
        "My gas meter ran on by {volume} m3, how many kWh is that?",
    ),
    "water": (
        "What do {litres} litres of tap water cost?",
        "My hose lost {litres} litres, how much is that in francs?",
        "How much do you charge for {litres} litres of water?",
    ),
    "collection": {
        "en": (
            "When is the {waste} collected in {quarter}?",
            "On which day do you pick up {waste} in {quarter}?",
            "Which day is the {waste} collection in {quarter}?",
        ),
        "de": (
            "Wann wird {waste} in {quarter} abgeholt?",
            "An welchem Tag holen Sie {waste} in {quarter}?",
            "Welcher Tag ist für {waste} in {quarter} vorgesehen?",
        ),
        "fr": (
            "Quand ramassez-vous {waste} à {quarter} ?",
            "Quel jour passe la collecte pour {waste} à {quarter} ?",
            "À quelle date dois-je sortir {waste} à {quarter} ?",
        ),
    },
    "interruption": {
        "en": (
            "When will the power be off in {quarter}?",
            "Is there a planned interruption in {quarter}, and when?",
            "At what time do you cut the electricity in {quarter}?",
        ),
        "de": (
            "Wann ist der Strom in {quarter} weg?",
            "Von wann bis wann wird in {quarter} abgeschaltet?",
            "Wird es in {quarter} einen Unterbruch geben, und wann?",
        ),
        "fr": (
            "Quand y a-t-il une coupure à {quarter} ?",
            "De quand à quand le courant manque-t-il à {quarter} ?",
            "À quelle heure coupez-vous à {quarter} ?",
        ),
    },
    "due": (
        "By when do I have to pay bill {bill}?",
        "What is the due date of bill {bill}?",
        "How long may I wait with paying bill {bill}?",
    ),
    "bill": (
        "What is the sum of bill {bill}?",
        "How much do I owe you for bill {bill}?",
        "I have lost bill {bill}, what did it come to?",
    ),
    "instalment": (
        "Can I pay bill {bill} in {parts} parts, and what is each?",
        "How much is each of {parts} instalments of bill {bill}?",
        "I would like to split bill {bill} into {parts}, how much would each be?",
    ),
    "reading": (
        "What does meter {meter} show?",
        "Which reading do you have for meter {meter}?",
        "What was last read off meter {meter}?",
    ),
    "usage": (
        "How much has meter {meter} counted since the last visit?",
        "How many kWh went through meter {meter} this period?",
        "What did I use on meter {meter} since you last came?",
    ),
    "notice": (
        "I move out on {leaving}, by when do I have to give notice?",
        "We leave the flat on {leaving}, until when can we cancel?",
        "My lease ends on {leaving}, when must you hear from me?",
    ),
    "opening": (
        "When does the counter {counter} open on {weekday}?",
        "From what time is {counter} staffed on {weekday}?",
        "Please give me the opening hours of {counter} for {weekday}.",
    ),
    "guide": (
        "How do I {task}?",
        "Please explain how to {task}.",
        "What must I do to {task}?",
    ),
    "permit": (
        "Do I need a permit for {work}?",
        "May I have {work} without asking anybody?",
        "Is a permit necessary for {work}?",
    ),
    "hardness": (
        "How hard is the water in {quarter}?",
        "What is the water hardness in {quarter}?",
        "My dishwasher asks for the hardness in {quarter}, what is it?",
    ),
    "inspection": (
        "When is inspection {inspection}?",
        "On which date do you come for inspection {inspection}?",
        "I forgot when {inspection} is, can you look it up for me?",
    ),
    "charger": (
        "Is there a free charger at {place}?",
        "Can I charge my car at {place} right now?",
        "Are all plugs taken at {place}?",
    ),
    "charging": (
        "How many minutes does it take to load {energy} kWh at {power} kW?",
        "How long must my car stay for {energy} kWh at {power} kW?",
        "My battery needs {energy} kWh, how long is that at {power} kW?",
    ),
    "solar": (
        "What do you pay me for {kwh} kWh from my roof?",
        "How much do I get for feeding in {kwh} kWh?",
        "My panels delivered {kwh} kWh, what is that worth?",
    ),
    "lamp": (
        "Has the [street lamp|street light] {lamp} been repaired?",
        "Is [street lamp|street light] {lamp} working again?",
        "I reported [street lamp|street light] {lamp}, is it mended?",
    ),
    "technician": (
        "When can a technician for {trade} come?",
        "What is the first free visit of a technician for {trade}?",
        "How soon can somebody come about the {trade}?",
    ),
    "gasnet": (
        "Is there gas in {street}?",
        "Can a house in {street} be connected to the gas network?",
        "Do your gas pipes reach {street}?",
    ),
    "heating": (
        "What does district heating cost for {kwh} kWh?",
        "How much is {kwh} kWh of district heating?",
        "What is the price of {kwh} kWh from your heat network?",
    ),
    "bin": (
        "What is the yearly fee for a {size} litre [bin|container]?",
        "How much do you want for a {size} litre [bin|container]?",
        "I would like a {size} litre [bin|container], what does it cost?",
    ),
    "my_tariff": ("Which tariff do I have?", "What tariff am I on?", "Can you look up my tariff?"),
    "payment": (
        "How do I pay my bills?",
        "Which way of paying have I chosen?",
        "Am I on e-bill or something else?",
    ),
    "contract": (
        "When does my contract end?",
        "Until when is my contract valid?",
        "How long does my contract still run?",
    ),
    "number": (
        "What is my customer number?",
        "I need my customer number for a form, which is it?",
        "Could you read my customer number to me?",
    ),
    "filter": (
        "Which filter does my boiler need?",
        "What filter do I have to order for my boiler?",
        "I want to change the filter in my boiler, which one fits?",
    ),
    "subsidy": (
        "What do you pay towards {device}?",
        "How high is the subsidy for {device}?",
        "Do I get money for {device}, and how much?",
    ),
    "emergency": (
        "I smell gas, whom do I call?",
        "Water is running down the stairs and it is night, which number do I ring?",
        "What is your emergency number?",
    ),
    "unknown": (
        "Will {thing} become cheaper next year?",
        "Do you know when {thing} will be offered again?",
        "Has the council decided yet what becomes of {thing}?",
    ),
    "contact": (
        "Who is in charge of {trade} with you?",
        "Whom may I write to about {trade}?",
        "Which of your people looks after {trade}?",
    ),
    "colour": (
        "Which colour has the sack for {waste}?",
        "In what colour of sack does {waste} go?",
        "Which colour is right for {waste}?",
    ),
    "address": (
        "Where is the counter {counter}?",
        "In which street do I find {counter}?",
        "What is the address of {counter}?",
    ),
}
ASKED: dict[str, Mapping[str, tuple[str, ...]]] = {
    kind: {"en": asked} if isinstance(asked, tuple) else asked for kind, asked in _ASKED.items()
}
"""Kind → language → how it is asked; of [words|other words] customers say the first, and after a change the second."""


def _one_of(*values: str) -> str:
    return "|".join(map(re.escape, sorted(values, key=len, reverse=True)))


_SLOTS = {
    "tariff": f"(?P<tariff>{_one_of(*TARIFFS)})",
    "quarter": f"(?P<quarter>{_one_of(*QUARTERS)})",
    "waste": f"(?P<waste>{_one_of(*WASTE, *(name for names in WASTE.values() for name in names))})",
    "counter": f"(?P<counter>{_one_of(*COUNTERS)})",
    "weekday": f"(?P<weekday>{_one_of(*WEEKDAYS)})",
    "task": f"(?P<task>{_one_of(*GUIDES)})",
    "work": f"(?P<work>{_one_of(*WORKS)})",
    "place": f"(?P<place>{_one_of(*CHARGERS)})",
    "trade": f"(?P<trade>{_one_of(*TRADES)})",
    "street": f"(?P<street>{_one_of(*STREETS)})",
    "device": f"(?P<device>{_one_of(*SUBSIDIES, NEW_DEVICE[0])})",
    "thing": f"(?P<thing>{_one_of(*UNKNOWN)})",
    "leaving": r"(?P<leaving>\d\d\.\d\d\.\d{4})",
    "meter": r"(?P<meter>M\d+)",
    "inspection": r"(?P<inspection>I\d+)",
    "lamp": r"(?P<lamp>L\d+)",
} | {
    name: rf"(?P<{name}>\d+)"
    for name in ("bill", "parts", "kwh", "volume", "litres", "energy", "power", "size")
}


def _pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template).replace(r"\{", "{").replace(r"\}", "}")
    text = re.sub(r"\\\[(.*?)\\\|(.*?)\\\]", r"(?:\1|\2)", text)
    return re.compile(re.sub(r"\{(\w+)\}", lambda found: _SLOTS[found[1]], text))


PATTERNS = {
    kind: [(language, _pattern(template)) for language, templates in asked.items() for template in templates]
    for kind, asked in ASKED.items()
}
_ENGLISH = {name: waste for waste, names in WASTE.items() for name in names}


def asks(kind: str, text: str) -> bool:
    """True if a text has a question of this kind in it."""
    return any(pattern.search(text) for _, pattern in PATTERNS[kind])


@cache
def read(question: str) -> tuple[str, Mapping[str, str]]:
    """Kind and arguments of a question, with its language as `in`; ("", {}) for one that nobody can answer."""
    for kind, patterns in PATTERNS.items():
        for language, pattern in patterns:
            if match := pattern.search(question):
                arguments = {"in": language, **match.groupdict()}
                if "waste" in arguments:
                    arguments["waste"] = _ENGLISH.get(arguments["waste"], arguments["waste"])
                return kind, arguments
    return "", {}


def local(day: str) -> str:
    """An ISO date as people here write it."""
    return f"{date.fromisoformat(day):%d.%m.%Y}"


def coins(francs: float) -> float:
    """Francs, rounded to 5 rappen."""
    return round(round(francs / COIN) * COIN, 2)


def weekday(name: str, language: str) -> str:
    """A weekday, as a sentence says it in a language."""
    german, french = WEEKDAYS[name]
    return {"en": f"on {name}", "de": f"am {german}", "fr": f"le {french}"}[language]


def part(bill: str, parts: str) -> float:
    """One instalment of a bill, in francs."""
    return math.ceil(float(BILLS[bill]["amount"]) / int(parts) * 20) / 20


def _due(bill: str) -> str:
    return local(str(date.fromisoformat(str(BILLS[bill]["issued"])) + timedelta(days=PAYMENT_DAYS)))


def _notice(leaving: str) -> str:
    return local(str(datetime.strptime(leaving, "%d.%m.%Y").date() - timedelta(days=NOTICE_DAYS)))


def _interruption(a: _Arguments) -> list[str]:
    planned = INTERRUPTIONS[a["quarter"]]
    return [weekday(planned["weekday"], a["in"]), planned["from"], planned["to"]]


_HEDGED = ("do not know", "cannot look", "not sure")
_Arguments = Mapping[str, str]
_WANTED: Mapping[str, Callable[[_Arguments, str], list[str]]] = {
    "tariff": lambda a, p: [f"{TARIFFS[a['tariff']]['rappen']:.2f} rappen"],
    "standing": lambda a, p: [f"{TARIFFS[a['tariff']]['monthly']:.2f} francs"],
    "cost": lambda a, p: [f"{coins(int(a['kwh']) * TARIFFS[a['tariff']]['rappen'] / 100):.2f} francs"],
    "gas": lambda a, p: [f"{round(int(a['volume']) * KWH_PER_CUBIC_METRE, 1)} kWh"],
    "water": lambda a, p: [f"{coins(int(a['litres']) / 1000 * FRANCS_PER_CUBIC_METRE):.2f} francs"],
    "collection": lambda a, p: [weekday(CALENDAR[f"{a['quarter']}/{a['waste']}"], a["in"])],
    "interruption": lambda a, p: _interruption(a),
    "due": lambda a, p: [_due(a["bill"])],
    "bill": lambda a, p: [f"CHF {BILLS[a['bill']]['amount']:.2f}"],
    "instalment": lambda a, p: [f"{part(a['bill'], a['parts']):.2f} francs"],
    "reading": lambda a, p: [a["meter"], f"{METERS[a['meter']]['kwh']} kWh"],
    "usage": lambda a, p: [f"{METERS[a['meter']]['kwh'] - METERS[a['meter']]['before']} kWh"],
    "notice": lambda a, p: [_notice(a["leaving"])],
    "opening": lambda a, p: [OPENING[f"{a['counter']}/{a['weekday']}"]],
    "guide": lambda a, p: [f"{number}. {step}" for number, step in enumerate(GUIDES[a["task"]], 1)],
    "permit": lambda a, p: [a["work"], "needs a permit" if PERMITS[a["work"]] else "needs no permit"],
    "hardness": lambda a, p: [f"{HARDNESS[a['quarter']]} °fH"],
    "inspection": lambda a, p: [local(INSPECTIONS[a["inspection"]])],
    "charger": lambda a, p: ["is a free plug" if CHARGERS[a["place"]] else "no free plug"],
    "charging": lambda a, p: [f"{round(int(a['energy']) / int(a['power']) * 60) + PLUG_MINUTES} minutes"],
    "solar": lambda a, p: [f"{coins(int(a['kwh']) * FEED_IN / 100):.2f} francs"],
    "lamp": lambda a, p: ["has been repaired" if LAMPS[a["lamp"]] else "has not been repaired"],
    "technician": lambda a, p: [VISITS[a["trade"]]],
    "gasnet": lambda a, p: ["there is gas" if STREETS[a["street"]] else "there is no gas"],
    "heating": lambda a, p: [f"{coins(HEAT_BASE + int(a['kwh']) * HEAT_RATE):.2f} francs"],
    "bin": lambda a, p: [f"{(BINS | dict([NEW_BIN]))[int(a['size'])]:.2f} francs"],
    "my_tariff": lambda a, p: [MY_TARIFF[p][0]],
    "payment": lambda a, p: [f"by {PAYMENT[p][0]}"],
    "contract": lambda a, p: [CONTRACT[p]],
    "number": lambda a, p: [NUMBER[p]],
    "filter": lambda a, p: [FILTERS[BOILER[p]]],
    "subsidy": lambda a, p: [f"{(SUBSIDIES | dict([NEW_DEVICE]))[a['device']]} francs"],
    "emergency": lambda a, p: ["0848 24 24 24"],
    "unknown": lambda a, p: ["do not know"],
    "contact": lambda a, p: [CONTACTS[a["trade"]]],
    "colour": lambda a, p: [f"{COLOURS[a['waste']]} sack"],
    "address": lambda a, p: [ADDRESSES[a["counter"]]],
}


def right(question: str, answer: str, person: str = "") -> bool:
    """True if this answer is what the customer needs; nothing is right for a question that nobody can answer."""
    kind, arguments = read(question)
    if not kind or (kind != "unknown" and any(words in answer for words in _HEDGED)):
        return False
    try:
        wanted = _WANTED[kind](arguments, person)
    except KeyError:
        return False
    return all(
        re.search(rf"(?<![\w.:-]){re.escape(each)}(?!\w|[.:]\d)", answer, re.IGNORECASE) for each in wanted
    )
