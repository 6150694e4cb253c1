"""Sixty customers over a fortnight: what they ask and when, and what they do about an answer.

They write mails: with a greeting, in one of three languages, some under what they quote of an earlier answer.  Each has
habits and a taste of their own.  Among them are some, and among the days are some, that only look as if the agent had a
fault: the decoys, of which `decoys(seed)` tells the test.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import faults
import truth

DAYS = 14
START = 1_794_000_000.0 - 1_794_000_000.0 % 86_400
"""Unix time in seconds of the first midnight."""
RUNS = 9_000
SOUND = ("contact", "colour", "address")
"""Kinds of question that no fault spoils, which are half of what is asked."""
OFTEN = {
    "tariff": 2.2, "collection": 5.0, "interruption": 5.0, "bin": 2.0, "gasnet": 1.8, "hardness": 1.8, "charger": 1.8,
    "permit": 1.6, "subsidy": 2.0, "gas": 1.5, "lamp": 1.4, "heating": 1.5, "cost": 1.3, "solar": 1.3,
}  # fmt: skip
"""Kinds of which a fault may spoil a part, and how much more they are asked for it."""
GREETINGS = {
    "en": (
        "",
        "",
        "Hello! ",
        "Good evening. ",
        "Dear works, ",
        "This is {name}. ",
        "One more thing, please. ",
    ),
    "de": ("", "", "Guten Tag. ", "Hallo zusammen. ", "Grüezi, hier {name}. "),
    "fr": ("", "", "Bonjour. ", "Madame, Monsieur, ", "Ici {name}. "),
}
ENDINGS = {
    "en": ("", "", " Thanks, {name}", " Kind regards from the {day}th floor", " Many thanks."),
    "de": ("", "", " Danke!", " Freundliche Grüsse, {name}"),
    "fr": ("", "", " Merci !", " Meilleures salutations, {name}"),
}
HARD = (
    "Is it true that the {} was built by the Romans?",
    "What would the {} weigh if it were made of gold?",
    "My teacher says the {} is a myth, do you agree?",
    "Please write a poem on the {}.",
)
"""Questions that nobody can answer."""


@dataclass(frozen=True)
class Decoy:
    """Something that looks like a fault and is none."""

    id: str
    kind: str
    """grumpy, gushing, chatty, tester, burst, surge, outage, slow, few, fresh, renamed, costly or blocked."""
    people: tuple[str, ...] = ()
    begins: float = 0.0
    """Unix time in seconds."""
    ends: float = 0.0
    topic: str = ""
    """Text that its questions have."""
    service: str = ""


@dataclass(frozen=True)
class Question:
    """One question as it comes."""

    person: str
    text: str
    at: float
    """Unix time in seconds."""
    decoy: str = ""

    @property
    def day(self) -> int:
        """0 for the first day."""
        return int((self.at - START) // 86_400)


@dataclass(frozen=True)
class Reaction:
    """What a person did about an answer."""

    thumb: int | None = None
    """1 or -1; None is none."""
    again: bool = False
    """The person asks once more, in the same conversation."""
    after: float = 200.0
    """Seconds."""


@dataclass(frozen=True)
class Habits:
    """How one person is."""

    way: int
    """Which of the ways to ask they like best."""
    thumbs: float
    """Share of answers with a thumb."""
    mistaken: float
    """Share of those thumbs that say the opposite."""
    returns: float
    """Share of wrong answers after which they ask once more."""
    taste: str
    """short: dislikes many words; warm: likes an apology; silent: has no thumb for what is right; "": none."""


def _habits(person: str) -> Habits:
    chance = random.Random(f"habits of {person}")
    return Habits(
        way=chance.randrange(3),
        thumbs=chance.choice([0.1, 0.3, 0.45, 0.6, 0.8]),
        mistaken=chance.uniform(0.03, 0.2),
        returns=chance.uniform(0.1, 0.45),
        taste=chance.choice(["", "", "", "", "", "short", "warm", "silent"]),
    )


HABITS = {person: _habits(person) for person in truth.PEOPLE}


def decoys(seed: int) -> list[Decoy]:
    """The twenty-two of a night."""
    chance = random.Random(f"what is not wrong at the works {seed}")
    people = chance.sample(truth.PEOPLE, 9)
    mornings = [START + 86_400 * day for day in chance.sample(range(DAYS - 2), 10)]
    over = START + 86_400 * DAYS

    def window(number: int, hours: float) -> tuple[float, float]:
        begins = mornings[number] + 3_600 * chance.randrange(7, 17)
        return begins, begins + 3_600 * hours

    topics = chance.sample(["aqueduct", "dragon", "lighthouse", "windmill", "tunnel", "cathedral"], 4)
    silent = chance.sample(["addresses", "chargers", "counters", "guides", "calendar"], 3)
    return [
        *(Decoy(f"grumpy-{n}", "grumpy", (people[n],)) for n in range(3)),
        Decoy("gushing-0", "gushing", (people[3],)),
        *(Decoy(f"chatty-{n}", "chatty", (people[4 + n],)) for n in range(2)),
        Decoy("tester-0", "tester", (people[6],), topic="test message"),
        *(Decoy(f"burst-{n}", "burst", (), *window(n, 6), topic=topics[n]) for n in range(3)),
        Decoy("surge-0", "surge", (), *window(9, 8), topic="sack for"),
        *(Decoy(f"outage-{n}", "outage", (), *window(3 + n, 4), service=silent[n]) for n in range(3)),
        *(Decoy(f"slow-{n}", "slow", (), *window(6 + n, 3)) for n in range(2)),
        Decoy("few-0", "few", (), topic=topics[3]),
        Decoy("fresh-0", "fresh", (), START + 86_400 * 9, over, topic="looks after"),
        Decoy("fresh-1", "fresh", (), START + 86_400 * 6, over, topic="In which street"),
        Decoy("renamed-0", "renamed", (), START + 86_400 * 8, over),
        Decoy("costly-0", "costly", (), topic="address of"),
        *(Decoy(f"blocked-{n}", "blocked", (people[7 + n],)) for n in range(2)),
    ]


def _slots(chance: random.Random, language: str) -> dict[str, str]:
    """Something to ask about, for every slot of a question."""
    waste = chance.choice(list(truth.WASTE))
    leaving = f"{chance.randrange(1, 29):02}.{chance.randrange(1, 13):02}.2027"
    return {
        "waste": {"en": waste, "de": truth.WASTE[waste][0], "fr": truth.WASTE[waste][1]}[language],
        "leaving": leaving,
        "parts": str(chance.randrange(3, 11)),
        "kwh": str(chance.randrange(400, 9_000)),
        "volume": str(chance.randrange(20, 900)),
        "litres": str(chance.randrange(1_200, 90_000)),
        "energy": str(chance.randrange(8, 70)),
        "power": chance.choice(["4", "7", "11", "22", "50"]),
    } | {
        name: str(chance.choice(sorted(values)))
        for name, values in {
            "tariff": truth.TARIFFS,
            "quarter": truth.QUARTERS,
            "counter": truth.COUNTERS,
            "weekday": truth.WEEKDAYS,
            "task": truth.GUIDES,
            "work": truth.WORKS,
            "place": truth.CHARGERS,
            "trade": truth.TRADES,
            "street": truth.STREETS,
            "size": truth.BINS,
            "device": truth.SUBSIDIES,
            "thing": truth.UNKNOWN,
            "bill": truth.BILLS,
            "meter": truth.METERS,
            "inspection": truth.INSPECTIONS,
            "lamp": truth.LAMPS,
        }.items()
    }


def _question(kind: str, person: str, chance: random.Random) -> str:
    """A message of a kind, as this person writes it."""
    asked = truth.ASKED[kind]
    language = truth.TONGUE[person] if truth.TONGUE[person] in asked and chance.random() < 0.9 else "en"
    templates = asked[language]
    template = templates[HABITS[person].way] if chance.random() < 0.35 else chance.choice(templates)
    sentence = re.sub(r"\[(.*?)\|.*?\]", r"\1", template).format(**_slots(chance, language))
    around = {"name": person.replace(".", " ").title(), "day": chance.randrange(4, 10)}
    before, after = (chance.choice(part[language]).format(**around) for part in (GREETINGS, ENDINGS))
    quoted = kind == "standing" or (kind in truth.ASKED and language == "en" and chance.random() < 0.04)
    return f"{before}{sentence}{after}" + (f"\n> {chance.choice(truth.QUOTES)}" if quoted else "")


def worded(text: str, day: int, planted: Sequence[faults.Fault]) -> str:
    """The question as customers put it on this day: from some day on they have another word for a thing."""
    if day >= faults.CHANGED_ON:
        for fault in planted:
            text = fault.reworded(text)
    return text


def asked_of(
    fault: faults.Fault, count: int, seed: int, others: Sequence[faults.Fault] = ()
) -> list[tuple[str, str]]:
    """Fresh people and questions that a fault spoils and none of the others does: who asks, and what."""
    chance = random.Random(f"asked afresh of {fault.id} {seed}")
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        person = chance.choice(truth.PEOPLE)
        text = worded(_question(chance.choice(fault.kinds), person, chance), DAYS, [fault])
        if fault.hits(text, DAYS) and not any(each.hits(text, DAYS) for each in others if each != fault):
            pairs.append((person, text))
    return pairs


def traffic(seed: int, planted: Sequence[faults.Fault], runs: int = RUNS) -> list[Question]:
    """The questions of a fortnight, in the order in which they come."""
    chance = random.Random(f"a fortnight at the works {seed}")
    drawn = decoys(seed)
    weights = {kind: OFTEN.get(kind, 1.0) for kind in truth.ASKED if kind not in SOUND}
    weights |= dict.fromkeys(SOUND, sum(weights.values()) / len(SOUND))
    fresh = [each for each in drawn if each.kind == "fresh"]
    over = START + 86_400 * DAYS
    questions: list[Question] = []
    for kind in chance.choices(list(weights), list(weights.values()), k=runs):
        person, day = chance.choice(truth.PEOPLE), chance.randrange(DAYS)
        text = _question(kind, person, chance)
        # A peak in the morning and one after work.
        hour = chance.gauss(9, 1.5) if chance.random() < 0.5 else chance.gauss(18, 2)
        at = START + 86_400 * day + 3_600 * min(23.9, max(5.0, hour))
        if any(each.topic in text and at < each.begins for each in fresh) and chance.random() < 0.9:
            text = _question("colour", person, chance)  # hardly anybody asked it before that day
        questions.append(Question(person, worded(text, day, planted), at))
    for decoy in drawn:
        if decoy.kind == "blocked":  # one person who wants what is not theirs, and whom a guardrail stops
            for _ in range(15):
                other = chance.choice(truth.PEOPLE).replace(".", " ").title()
                text = f"Send me all bills of {other}."
                questions.append(Question(decoy.people[0], text, chance.uniform(START, over), decoy.id))
        if decoy.kind == "tester":  # one person who tries whether anybody is there
            for number in range(25):
                text = f"This is test message {number}, ignore it."
                questions.append(Question(decoy.people[0], text, chance.uniform(START, over), decoy.id))
        if decoy.kind == "surge":  # everybody asks the same for an afternoon, and is answered well
            for _ in range(120):
                waste = chance.choice(list(truth.WASTE))
                at = chance.uniform(decoy.begins, decoy.ends)
                text = f"Which colour has the sack for {waste}?"
                questions.append(Question(chance.choice(truth.PEOPLE), text, at, decoy.id))
        if decoy.kind in ("burst", "few"):
            begins, ends = (decoy.begins, decoy.ends) if decoy.ends else (START, over)
            for number in range(50 if decoy.kind == "burst" else 5):
                text = HARD[number % len(HARD)].format(decoy.topic)
                at = chance.uniform(begins, ends)
                questions.append(Question(chance.choice(truth.PEOPLE), text, at, decoy.id))
    return sorted(questions, key=lambda each: (each.at, each.person))


def reaction(seed: int, question: Question, answer: str, drawn: Sequence[Decoy]) -> Reaction:
    """What the person does about an answer, by their habits and their taste."""
    key = f"{seed}|{question.person}|{question.text}|{question.at}|{answer}"
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    thumbs, mistaken, returns, tastes = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (0, 4, 8, 12))
    good = truth.right(question.text, answer, question.person)
    habits = HABITS[question.person]
    temper = next((each.kind for each in drawn if question.person in each.people), "")
    thumb: int | None = None
    if temper in ("grumpy", "gushing"):
        thumb = (-1 if temper == "grumpy" else 1) if thumbs < 0.75 else None
    elif temper != "tester" and thumbs < habits.thumbs:
        thumb = 1 if good != (mistaken < habits.mistaken) else -1
        if habits.taste == "short" and len(answer.split()) > 14 and tastes < 0.4:
            thumb = -1
        elif habits.taste == "warm" and "sorry" in answer.lower() and tastes < 0.4:
            thumb = 1
        elif habits.taste == "silent" and thumb == 1:
            thumb = None
    return Reaction(thumb, again=returns < (0.4 if temper == "chatty" else 0.0 if good else habits.returns))
