"""Sixty patients over a fortnight: what they ask and when, and what they do about an answer.

Each has a way of greeting, a favourite way to ask, and a hand that is quick or slow with a thumb.  Among them are some,
and among the days are some, that only look as if the agent had a fault: the decoys, of which `decoys(seed)` tells the
test.
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
START = 1_793_000_000.0 - 1_793_000_000.0 % 86_400
"""Unix time in seconds of the first midnight."""
RUNS = 9_000
SOUND = ("specialty", "tram", "parking")
"""Kinds of question that no fault spoils, which are half of what is asked."""
OFTEN = {
    "fee": 4.0, "insurer": 2.0, "speaks": 2.0, "fasting": 1.6, "move": 1.6, "shuttle": 2.0, "vaccine": 1.8,
    "sicknote": 1.5, "age": 1.5, "ward": 1.4,
}  # fmt: skip
"""Kinds of which a fault may spoil a part, and how much more they are asked for it."""
OPENINGS = (
    "", "", "Good morning. ", "Hello, this is {name}. ", "Hi there! ", "Dear front desk. ", "{name} here. ",
    "I hope that you are well. ", "I was with you on {day} May. ", "Excuse me, one more thing. ",
)  # fmt: skip
CLOSINGS = ("", "", "", " Thank you!", " Many thanks, {name}", " Kind regards", " It is a little urgent.")
HARD = (
    "My neighbour says that the {} is to blame, is that so?",
    "Would you write a letter to the court about the {} for me?",
    "Which book about the {} would the professor recommend?",
    "Can the {} be inherited?",
)
"""Questions that nobody can answer."""


@dataclass(frozen=True)
class Decoy:
    """Something that looks like a fault and is none."""

    id: str
    kind: str
    """grumpy, gushing, chatty, burst, outage, slow, few, fresh, renamed, costly or blocked."""
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
    after: float = 140.0
    """Seconds."""


@dataclass(frozen=True)
class Habits:
    """How one person is."""

    way: int
    """Which of the ways to ask they like best."""
    opening: str
    thumbs: float
    """Share of answers with a thumb."""
    mistaken: float
    """Share of those thumbs that say the opposite."""
    returns: float
    """Share of wrong answers after which they ask once more."""


def _habits(person: str) -> Habits:
    chance = random.Random(f"habits of {person}")
    return Habits(
        way=chance.randrange(3),
        opening=chance.choice(OPENINGS),
        thumbs=chance.choice([0.15, 0.3, 0.4, 0.5, 0.7]),
        mistaken=chance.uniform(0.06, 0.22),
        returns=chance.uniform(0.1, 0.4),
    )


HABITS = {person: _habits(person) for person in truth.PEOPLE}


def decoys(seed: int) -> list[Decoy]:
    """The twenty of a night."""
    chance = random.Random(f"what is not wrong at the clinic {seed}")
    people = chance.sample(truth.PEOPLE, 8)
    mornings = [START + 86_400 * day for day in chance.sample(range(DAYS - 2), 9)]
    over = START + 86_400 * DAYS

    def window(number: int, hours: float) -> tuple[float, float]:
        begins = mornings[number] + 3_600 * chance.randrange(8, 17)
        return begins, begins + 3_600 * hours

    topics = chance.sample(["eclipse", "harvest", "monastery", "orchid", "satellite", "violin"], 4)
    silent = chance.sample(["sites", "vaccines", "appointments", "guides", "laboratory"], 3)
    return [
        *(Decoy(f"grumpy-{n}", "grumpy", (people[n],)) for n in range(3)),
        Decoy("gushing-0", "gushing", (people[3],)),
        *(Decoy(f"chatty-{n}", "chatty", (people[4 + n],)) for n in range(2)),
        *(Decoy(f"burst-{n}", "burst", (), *window(n, 6), topic=topics[n]) for n in range(3)),
        *(Decoy(f"outage-{n}", "outage", (), *window(3 + n, 4), service=silent[n]) for n in range(3)),
        *(Decoy(f"slow-{n}", "slow", (), *window(6 + n, 3)) for n in range(2)),
        Decoy("few-0", "few", (), topic=topics[3]),
        Decoy("fresh-0", "fresh", (), START + 86_400 * 9, over, topic="car park"),
        Decoy("fresh-1", "fresh", (), START + 86_400 * 6, over, topic="a specialist in"),
        Decoy("renamed-0", "renamed", (), START + 86_400 * 8, over),
        Decoy("costly-0", "costly", (), topic=" tram"),
        Decoy("blocked-0", "blocked", (people[6],)),
    ]


def _slots(chance: random.Random) -> dict[str, str]:
    """Something to ask about, for every slot of a question."""
    treatment, doctor = chance.choice(sorted(truth.TREATMENTS)), chance.choice(sorted(truth.DOCTORS))
    spoken = truth.DOCTORS[doctor]["languages"] if chance.random() < 0.5 else truth.LANGUAGES
    return {
        "treatment": f"{'an' if treatment[0] in 'aeiou' else 'a'} {treatment}",
        "doctor": doctor,
        "language": chance.choice(spoken),
        "clock": f"{chance.randrange(9, 18):02}:{chance.randrange(12) * 5:02}",
        "months": str(chance.randrange(2, 9)),
        "days": str(chance.randrange(2, 20)),
        "tablets": str(chance.randrange(3, 12) * 10),
        "per_day": str(chance.randrange(2, 5)),
        "fahrenheit": str(chance.randrange(97, 106)),
    } | {
        name: chance.choice(sorted(values))
        for name, values in {
            "examination": truth.EXAMINATIONS,
            "insurer": truth.INSURERS,
            "site": truth.SITES,
            "weekday": truth.WEEKDAYS,
            "specialty": truth.SPECIALTIES,
            "ward": truth.WARDS,
            "vaccine": truth.VACCINES,
            "thing": truth.UNKNOWN,
            "reference": truth.APPOINTMENTS,
            "prescription": truth.PRESCRIPTIONS,
            "sample": truth.SAMPLES,
            "bill": truth.BILLS,
        }.items()
    }


def _question(kind: str, person: str, chance: random.Random) -> str:
    """A question of a kind, as this person asks it."""
    habits = HABITS[person]
    templates = truth.ASKED[kind]
    template = templates[habits.way] if chance.random() < 0.4 else chance.choice(templates)
    opening = habits.opening if chance.random() < 0.5 else chance.choice(OPENINGS)
    sentence = re.sub(r"\[(.*?)\|.*?\]", r"\1", template).format(**_slots(chance))
    name = person.replace(".", " ").title()
    around = {"name": name, "day": chance.randrange(1, 31)}
    return f"{opening.format(**around)}{sentence}{chance.choice(CLOSINGS).format(**around)}"


def worded(text: str, day: int, planted: Sequence[faults.Fault]) -> str:
    """The question as patients put it on this day: from some day on they have another word for a thing."""
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
    chance = random.Random(f"a fortnight at the clinic {seed}")
    drawn = decoys(seed)
    weights = {kind: OFTEN.get(kind, 1.0) for kind in truth.ASKED if kind not in SOUND}
    weights |= dict.fromkeys(SOUND, sum(weights.values()) / len(SOUND))
    fresh = [each for each in drawn if each.kind == "fresh"]
    over = START + 86_400 * DAYS
    questions: list[Question] = []
    for kind in chance.choices(list(weights), list(weights.values()), k=runs):
        person, day = chance.choice(truth.PEOPLE), chance.randrange(DAYS)
        text = _question(kind, person, chance)
        at = START + 86_400 * day + 3_600 * min(23.9, max(5.0, chance.gauss(13, 3.5)))
        if any(each.topic in text and at < each.begins for each in fresh) and chance.random() < 0.9:
            text = _question("tram", person, chance)  # hardly anybody asked it before that day
        questions.append(Question(person, worded(text, day, planted), at))
    for decoy in drawn:
        if decoy.kind == "blocked":  # one person who wants what is not theirs, and whom a guardrail stops
            for _ in range(20):
                other = chance.choice(truth.PEOPLE).replace(".", " ").title()
                text = f"Read me the whole file of {other}."
                questions.append(Question(decoy.people[0], text, chance.uniform(START, over), decoy.id))
        if decoy.kind in ("burst", "few"):
            begins, ends = (decoy.begins, decoy.ends) if decoy.ends else (START, over)
            for number in range(50 if decoy.kind == "burst" else 5):
                text = HARD[number % len(HARD)].format(decoy.topic)
                at = chance.uniform(begins, ends)
                questions.append(Question(chance.choice(truth.PEOPLE), text, at, decoy.id))
    return sorted(questions, key=lambda each: (each.at, each.person))


def reaction(seed: int, question: Question, answer: str, drawn: Sequence[Decoy]) -> Reaction:
    """What the person does about an answer, by their habits."""
    key = f"{seed}|{question.person}|{question.text}|{question.at}|{answer}"
    digest = hashlib.blake2b(key.encode(), digest_size=12).digest()
    thumbs, mistaken, returns = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (0, 4, 8))
    good = truth.right(question.text, answer, question.person)
    habits = HABITS[question.person]
    temper = next((each.kind for each in drawn if question.person in each.people), "")
    if temper in ("grumpy", "gushing"):
        thumb = (-1 if temper == "grumpy" else 1) if thumbs < 0.75 else None
    elif thumbs < habits.thumbs:
        thumb = 1 if good != (mistaken < habits.mistaken) else -1
    else:
        thumb = None
    return Reaction(thumb, again=returns < (0.4 if temper == "chatty" else 0.0 if good else habits.returns))
