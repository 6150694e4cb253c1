"""What is right, which only the test knows: neither the agent nor whet is shown this file.

It holds the clinic's tables, the ways in which patients ask, and says what an answer must contain.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

_draw = random.Random("the clinic")
_BY_CATEGORY = {
    "dental": ["tooth cleaning", "root canal", "crown", "filling", "tooth extraction", "bridge"],
    "skin": ["mole check", "wart removal", "skin biopsy", "patch test", "acne treatment", "light therapy"],
    "movement": ["back massage", "joint check", "lymph drainage", "gait analysis", "taping", "traction"],
    "general": ["check-up", "blood count", "hearing test", "eye test", "travel consultation", "dressing"],
}
TREATMENTS: dict[str, dict[str, Any]] = {
    name: {"category": category, "fee": _draw.randrange(30, 620) + 0.0}
    for category, names in _BY_CATEGORY.items()
    for name in names
}
_EXAMINATIONS = (
    "gastroscopy", "colonoscopy", "MRI scan", "CT scan", "liver ultrasound", "stress test", "bone scan",
    "breath test", "glucose test", "sleep study",
)  # fmt: skip
EXAMINATIONS = {
    name: {
        "minutes": _draw.randrange(3, 19) * 5,
        "fasting": _draw.choice([2, 4, 6, 8, 12]),
        "lead": _draw.choice([15, 20, 25, 40, 45]),
    }
    for name in _EXAMINATIONS
}
_FIRST_STEPS = ("drink only clear water from noon on", "stop taking iron a week before", "wear loose clothes")
_LAST_STEPS = ("bring the consent form", "leave jewellery at home", "have somebody take you home")
GUIDES = {
    name: [
        _draw.choice(_FIRST_STEPS),
        f"read the leaflet about the {name}",
        _draw.choice(_LAST_STEPS),
        _draw.choice(["do not smoke on that day", "do not drink any coffee on that day"]),
    ]
    for name in EXAMINATIONS
}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
SPECIALTIES = (
    "cardiology", "dermatology", "neurology", "orthopaedics", "urology", "pneumology", "allergology",
    "rheumatology",
)  # fmt: skip
LANGUAGES = ("German", "French", "Italian", "Polish", "Turkish", "Portuguese")
_DOCTORS = (
    "Amsler", "Bieri", "Cavelti", "Dubois", "Egli", "Frick", "Gasser", "Huwyler", "Imhof", "Jost",
    "Keel", "Lanz", "Monti", "Nüesch", "Oehri", "Pfister",
)  # fmt: skip
DOCTORS: dict[str, dict[str, Any]] = {
    f"Dr {name}": {
        "specialty": SPECIALTIES[number % len(SPECIALTIES)],
        "languages": _draw.sample(LANGUAGES, 2 + number % 3),
    }
    for number, name in enumerate(_DOCTORS)
}
ROTA = {
    doctor: {
        day: _draw.choice(["08:00-11:30", "09:15-12:00", "13:30-17:00", "14:00-18:45"]) for day in WEEKDAYS
    }
    for doctor in DOCTORS
}
SLOTS = {
    doctor: f"{_draw.randrange(5, 30)} October at {_draw.randrange(8, 17):02}:{_draw.choice(['00', '20', '40'])}"
    for doctor in DOCTORS
}
SITES = ("Altstadt", "Bruggen", "Castel", "Dorfmatt", "Enge")
NEW_SITE = ("Seefeld", 31)
"""A branch that opens, and the minutes that the shuttle takes to it."""
SHUTTLE = dict(zip(SITES, (6, 14, 9, 22, 18), strict=True))
OPENING = {
    f"{site}/{day}": (_draw.choice(["07:30", "08:15", "09:30", "13:15"]), _draw.choice(["17:00", "18:30"]))
    for site in SITES
    for day in WEEKDAYS
}
STOPS = dict(zip(SITES, ("Rathaus", "Lindenplatz", "Schlossberg", "Mühle", "Seebad"), strict=True))
SPACES = dict(zip(SITES, (35, 80, 24, 60, 110), strict=True))
WARDS = {
    ward: _draw.choice(["16:45", "18:15", "19:30", "20:00"])
    for ward in ("children's", "surgical", "maternity", "heart", "eye", "stroke", "burns", "fever")
}
APPOINTMENTS: dict[str, dict[str, Any]] = {
    f"A{2000 + 31 * number}": {
        "doctor": _draw.choice(sorted(DOCTORS)),
        "day": f"{_draw.randrange(3, 28)} November",
        "time": f"{_draw.randrange(8, 17):02}:{_draw.choice(['10', '30', '50'])}",
        "hours_ahead": _draw.choice([2, 6, 10, 16, 20, 30, 48, 72]),
    }
    for number in range(90)
}
PRESCRIPTIONS = {f"P{500 + 17 * number}": _draw.random() < 0.4 for number in range(80)}
SAMPLES = {f"S{8000 + 19 * number}": _draw.random() < 0.5 for number in range(80)}
BILLS = {f"{30_400 + 23 * number}": _draw.randrange(60, 900) + 0.4 for number in range(90)}
_INSURERS = (
    "Alvia", "Concora", "Fidessa", "Helvion", "Kolping", "Medior", "Sanatas", "Solida", "Vivanto",
)  # fmt: skip
INSURERS: dict[str, dict[str, Any]] = {
    name: {"contract": _draw.random() < 0.6, "covers": _draw.choice([60, 70, 80, 90])} for name in _INSURERS
}
VACCINES = ("measles", "influenza", "hepatitis", "polio", "rabies", "meningitis")
LOWEST_AGE = dict(zip(VACCINES, (9, 6, 12, 2, 15, 24), strict=True))
DOSES = {f"{vaccine}@{site}": _draw.choice([0, 0, 3, 12]) for vaccine in VACCINES for site in SITES}
REFERRAL = {specialty: _draw.random() < 0.5 for specialty in SPECIALTIES}
SICK_NOTE = {"base": 15, "a day": 4}
EXERCISES = {
    "stiff neck": "slow head turn",
    "lower back pain": "cat stretch",
    "weak knee": "wall sit",
    "frozen shoulder": "pendulum swing",
    "flat foot": "towel curl",
}
_FIRST = (
    "lea", "noah", "mia", "luca", "ines", "jan", "rosa", "emil", "nora", "theo", "vera", "marc",
    "lina", "paul", "ella", "hugo", "zoe", "karl", "ida", "otto",
)  # fmt: skip
_LAST = ("moser", "kunz", "steiner")
PEOPLE = tuple(f"{first}.{last}" for last in _LAST for first in _FIRST)
ALLERGY = {
    person: _draw.choice(["penicillin", "ibuprofen", "latex", "codeine", "iodine"]) for person in PEOPLE
}
TETANUS = {person: str(_draw.randrange(2008, 2025)) for person in PEOPLE}
_PHARMACIES = ("Adler", "Bahnhof", "Central", "Drachen", "Engel", "Falken")
PHARMACY = {person: _draw.sample(_PHARMACIES, 2) for person in PEOPLE}
"""Where the medicines of a person go, and where they went before."""
COMPLAINT = {person: _draw.choice(sorted(EXERCISES)) for person in PEOPLE}
NUMBER = {
    person: f"{4 + place % 5}{_draw.randrange(100, 999)}{place % 4}" for place, person in enumerate(PEOPLE)
}
UNKNOWN = (
    "the yoga class", "the new canteen", "the walking group", "the course for carers", "the sauna",
    "the cooking class",
)  # fmt: skip

ASKED: dict[str, tuple[str, ...]] = {
    "fee": (
        "How much does {treatment} cost at your clinic?",
        "What is the price of {treatment}, please?",
        "Could you tell me what you charge for {treatment}?",
    ),
    "copay": (
        "How much does {treatment} cost me if I am insured with {insurer}?",
        "What is my own share of the price of {treatment} with {insurer}?",
        "Could you tell me what you charge for {treatment} after {insurer} has paid its part?",
    ),
    "opening": (
        "When do you open at {site} on {weekday}?",
        "From what time is the {site} branch open on {weekday}?",
        "I would like to know your opening hours at {site} for {weekday}.",
    ),
    "consulting": (
        "When does {doctor} see patients on {weekday}?",
        "From what time does {doctor} have consulting hours on {weekday}?",
        "I would like to know the hours of {doctor} for {weekday}.",
    ),
    "ward": (
        "Until what time may I come to see somebody on the {ward} ward?",
        "I would like to know the visiting hours of the {ward} ward.",
        "When do visits end on the {ward} ward?",
    ),
    "slots": (
        "When is the next free appointment with {doctor}?",
        "How soon can {doctor} see me?",
        "What is the earliest appointment that {doctor} can give me?",
    ),
    "visit": (
        "When is my appointment {reference}?",
        "I have lost the card for my appointment {reference}, when do I have to come?",
        "Could you confirm my appointment {reference}?",
    ),
    "move": (
        "Can I still move my appointment {reference}?",
        "Is it too late to put off my appointment {reference}?",
        "I cannot come to my appointment {reference}, may I change it?",
    ),
    "prescription": (
        "Is my prescription {prescription} ready?",
        "Can I pick up prescription {prescription} today?",
        "Has the pharmacy finished prescription {prescription}?",
    ),
    "supply": (
        "How many days do {tablets} tablets last if I take {per_day} a day?",
        "I take {per_day} tablets a day, how long will a pack of {tablets} last?",
        "For how long is a pack of {tablets} tablets enough at {per_day} a day?",
    ),
    "fever": (
        "My thermometer shows {fahrenheit} degrees Fahrenheit, what is that in Celsius?",
        "How many degrees Celsius are {fahrenheit} Fahrenheit?",
        "How high is a fever of {fahrenheit} Fahrenheit on your scale?",
    ),
    "prepare": (
        "How do I prepare for the {examination}?",
        "What do I have to do before the {examination}?",
        "Which preparations does the {examination} need?",
    ),
    "fasting": (
        "How many hours before the {examination} must I stop eating?",
        "For how long do I have to come on an empty stomach before the {examination}?",
        "How long before the {examination} may I have my last meal?",
    ),
    "duration": (
        "How long does the {examination} take?",
        "How many minutes should I set aside for the {examination}?",
        "How much time does the {examination} need in all?",
    ),
    "arrival": (
        "The {examination} is booked for {clock}, when do I have to be at the desk?",
        "When do I have to be there if the {examination} starts at {clock}?",
        "By what time should I arrive for the {examination} at {clock}?",
    ),
    "sample": (
        "Are the results of sample {sample} there yet?",
        "Has the laboratory finished sample {sample}?",
        "Can you tell me whether sample {sample} has been examined?",
    ),
    "referral": (
        "Do I need a referral for {specialty}?",
        "Can I come to {specialty} without a referral?",
        "Is a referral needed to be seen in {specialty}?",
    ),
    "insurer": (
        "Do you take patients of {insurer}?",
        "Are you contracted with {insurer}?",
        "I am insured with {insurer}, can I come to you?",
    ),
    "bill": (
        "What is the sum on bill {bill}?",
        "How much do I owe you for bill {bill}?",
        "I have mislaid bill {bill}, how much is it?",
    ),
    "instalment": (
        "Can I pay bill {bill} in {months} parts, and how much is each?",
        "How much is each part if I pay bill {bill} in {months} months?",
        "What would I pay a month for bill {bill} over {months} months?",
    ),
    "speaks": (
        "Does {doctor} speak {language}?",
        "My mother knows only {language}, can she talk to {doctor}?",
        "Is {language} one of the languages of {doctor}?",
    ),
    "age": (
        "From what age can my child have the {vaccine} [vaccination|jab]?",
        "How old must my daughter be for the {vaccine} [vaccination|jab]?",
        "Is there a lowest age for the {vaccine} [vaccination|jab]?",
    ),
    "vaccine": (
        "Do you have the {vaccine} vaccine at {site}?",
        "Is there any {vaccine} vaccine left in {site}?",
        "Has the {site} branch got {vaccine} vaccine?",
    ),
    "sicknote": (
        "What does [a sick note|an absence letter] for {days} days cost?",
        "I need [a sick note|an absence letter] for {days} days, what do I have to pay?",
        "How much do you take for [a sick note|an absence letter] over {days} days?",
    ),
    "shuttle": (
        "How long does the shuttle to {site} take?",
        "How many minutes is the shuttle bus on its way to {site}?",
        "If I take the shuttle, how soon am I in {site}?",
    ),
    "urgent": (
        "Whom do I call at night if it gets worse?",
        "It is late and I am in pain, which number do I ring?",
        "Which telephone number is there for emergencies?",
    ),
    "unknown": (
        "Will {thing} be cheaper next year?",
        "Do you know when {thing} will be offered again?",
        "Has anybody decided yet what becomes of {thing}?",
    ),
    "allergy": (
        "Which medicine am I allergic to, according to your file?",
        "What allergy is noted for me?",
        "I have forgotten what I must not take, which allergy have you written down?",
    ),
    "tetanus": (
        "When was my last tetanus shot?",
        "In which year did I get my tetanus shot?",
        "Do you still have the year of my tetanus shot?",
    ),
    "pharmacy": (
        "Which pharmacy do my prescriptions go to?",
        "To which pharmacy do you send my medicines?",
        "Could you remind me which pharmacy I chose?",
    ),
    "exercise": (
        "Which exercise should I do for my complaint?",
        "What exercise did you recommend for my trouble?",
        "Can you tell me again which exercise fits my condition?",
    ),
    "number": (
        "What is my patient number?",
        "I need my patient number for a form, which is it?",
        "Could you read my patient number to me?",
    ),
    "specialty": (
        "Which field does {doctor} work in?",
        "What is {doctor} a specialist in?",
        "What kind of doctor is {doctor}?",
    ),
    "tram": (
        "Which tram stop is nearest to the {site} branch?",
        "How do I get to the {site} branch by tram?",
        "Where do I get off the tram for {site}?",
    ),
    "parking": (
        "Where can I park at the {site} branch?",
        "Is there a car park near {site}?",
        "How many spaces does the car park in {site} have?",
    ),
}
"""Kind → how it is asked; of [words|other words] patients say the first, and after a change the second."""


def _one_of(*values: str) -> str:
    return "|".join(map(re.escape, sorted(values, key=len, reverse=True)))


_SLOTS = {
    "treatment": f"an? (?P<treatment>{_one_of(*TREATMENTS)})",
    "examination": f"(?P<examination>{_one_of(*EXAMINATIONS)})",
    "insurer": f"(?P<insurer>{_one_of(*INSURERS)})",
    "site": f"(?P<site>{_one_of(*SITES, NEW_SITE[0])})",
    "weekday": f"(?P<weekday>{_one_of(*WEEKDAYS)})",
    "doctor": f"(?P<doctor>{_one_of(*DOCTORS)})",
    "language": f"(?P<language>{_one_of(*LANGUAGES)})",
    "specialty": f"(?P<specialty>{_one_of(*SPECIALTIES)})",
    "ward": f"(?P<ward>{_one_of(*WARDS)})",
    "vaccine": f"(?P<vaccine>{_one_of(*VACCINES)})",
    "thing": f"(?P<thing>{_one_of(*UNKNOWN)})",
    "clock": r"(?P<clock>\d\d:\d\d)",
    "reference": r"(?P<reference>A\d+)",
    "prescription": r"(?P<prescription>P\d+)",
    "sample": r"(?P<sample>S\d+)",
} | {name: rf"(?P<{name}>\d+)" for name in ("bill", "months", "days", "tablets", "per_day", "fahrenheit")}


def _pattern(template: str) -> re.Pattern[str]:
    text = re.escape(template).replace(r"\{", "{").replace(r"\}", "}")
    text = re.sub(r"\\\[(.*?)\\\|(.*?)\\\]", r"(?:\1|\2)", text)
    return re.compile(re.sub(r"\{(\w+)\}", lambda found: _SLOTS[found[1]], text))


PATTERNS = {kind: tuple(map(_pattern, templates)) for kind, templates in ASKED.items()}


def asks(kind: str, text: str) -> bool:
    """True if a text has a question of this kind in it."""
    return any(pattern.search(text) for pattern in PATTERNS[kind])


@cache
def read(question: str) -> tuple[str, Mapping[str, str]]:
    """Kind and arguments of a question; ("", {}) for one that nobody can answer."""
    for kind, patterns in PATTERNS.items():
        for pattern in patterns:
            if match := pattern.search(question):
                return kind, match.groupdict()
    return "", {}


_HEDGED = ("cannot tell", "cannot look", "do not know", "not sure")
_Arguments = Mapping[str, str]
_WANTED: Mapping[str, Callable[[_Arguments, str], list[str]]] = {
    "fee": lambda a, p: [f"costs {TREATMENTS[a['treatment']]['fee']:.2f} francs"],
    "copay": lambda a, p: [f"pay {own_share(a['treatment'], a['insurer']):.2f} francs"],
    "opening": lambda a, p: [f"opens at {OPENING[a['site'] + '/' + a['weekday']][0]}"],
    "consulting": lambda a, p: ["from {} to {}".format(*ROTA[a["doctor"]][a["weekday"]].split("-"))],
    "ward": lambda a, p: [f"until {WARDS[a['ward']]}"],
    "slots": lambda a, p: [f"on {SLOTS[a['doctor']]}"],
    "visit": lambda a, p: [APPOINTMENTS[a["reference"]][part] for part in ("doctor", "day", "time")],
    "move": lambda a, p: [
        "can still move" if APPOINTMENTS[a["reference"]]["hours_ahead"] >= 24 else "too late to move"
    ],
    "prescription": lambda a, p: ["is ready" if PRESCRIPTIONS[a["prescription"]] else "is not ready"],
    "supply": lambda a, p: [f"{int(a['tablets']) // int(a['per_day'])} days"],
    "fever": lambda a, p: [f"{round((int(a['fahrenheit']) - 32) * 5 / 9, 1)} degrees Celsius"],
    "prepare": lambda a, p: [f"- {step}" for step in GUIDES[a["examination"]]],
    "fasting": lambda a, p: [f"{EXAMINATIONS[a['examination']]['fasting']} hours"],
    "duration": lambda a, p: [f"{EXAMINATIONS[a['examination']]['minutes'] + 10} minutes"],
    "arrival": lambda a, p: [f"at {_before(a['clock'], EXAMINATIONS[a['examination']]['lead'])}"],
    "sample": lambda a, p: [a["sample"], "are there" if SAMPLES[a["sample"]] else "are not there"],
    "referral": lambda a, p: [
        f"{'You need a referral' if REFERRAL[a['specialty']] else 'No referral is needed'} for {a['specialty']}"
    ],
    "insurer": lambda a, p: [
        "we take patients" if INSURERS[a["insurer"]]["contract"] else "we have no contract"
    ],
    "bill": lambda a, p: [f"CHF {BILLS[a['bill']]:.2f}"],
    "instalment": lambda a, p: [f"is {round(BILLS[a['bill']] / int(a['months']), 2):.2f} francs"],
    "speaks": lambda a, p: [
        "speaks" if a["language"] in DOCTORS[a["doctor"]]["languages"] else "does not speak"
    ],
    "age": lambda a, p: [f"{LOWEST_AGE[a['vaccine']]} months"],
    "vaccine": lambda a, p: ["is in stock" if DOSES[a["vaccine"] + "@" + a["site"]] else "no .* vaccine"],
    "sicknote": lambda a, p: [f"{SICK_NOTE['base'] + SICK_NOTE['a day'] * int(a['days'])} francs"],
    "shuttle": lambda a, p: [f"{(SHUTTLE | dict([NEW_SITE]))[a['site']]} minutes"],
    "urgent": lambda a, p: ["0844 117 011"],
    "unknown": lambda a, p: ["cannot tell"],
    "allergy": lambda a, p: [f"allergic to {ALLERGY[p]}"],
    "tetanus": lambda a, p: [f"in {TETANUS[p]}"],
    "pharmacy": lambda a, p: [f"{PHARMACY[p][0]} pharmacy"],
    "exercise": lambda a, p: [EXERCISES[COMPLAINT[p]]],
    "number": lambda a, p: [f"number is {NUMBER[p]}"],
    "specialty": lambda a, p: [DOCTORS[a["doctor"]]["specialty"]],
    "tram": lambda a, p: [STOPS[a["site"]]],
    "parking": lambda a, p: [f"{SPACES[a['site']]} spaces"],
}


def own_share(treatment: str, insurer: str) -> float:
    """What a patient pays of a treatment, in francs."""
    return round(float(TREATMENTS[treatment]["fee"]) * (100 - int(INSURERS[insurer]["covers"])) / 100, 2)


def _before(clock: str, minutes: int) -> str:
    total = int(clock[:2]) * 60 + int(clock[3:]) - minutes
    return f"{total // 60:02}:{total % 60:02}"


def right(question: str, answer: str, person: str = "") -> bool:
    """True if this answer is what the patient needs; nothing is right for a question that nobody can answer."""
    kind, arguments = read(question)
    if not kind or (kind != "unknown" and any(words in answer for words in _HEDGED)):
        return False
    try:
        wanted = _WANTED[kind](arguments, person)
    except KeyError:
        return False
    return all(re.search(rf"(?<![\w.:]){each}(?![\w:]|\.\d)", answer, re.IGNORECASE) for each in wanted)
