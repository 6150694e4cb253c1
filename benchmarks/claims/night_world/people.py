"""Sixty customers over a fortnight: what they ask and when, and what they do about an answer.

They give nothing but thumbs, or come back with the same question.  Among them are some, and among the days are some,
that only look as if the agent had a fault: the decoys, of which `decoys(seed)` tells the test.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import faults
import truth

DAYS = 14
START = 1_790_000_000.0 - 1_790_000_000.0 % 86_400
"""Unix time in seconds of the first midnight."""
RUNS = 8_000
THUMBS, WRONG, RETURNS = 0.4, 0.15, 0.25
"""Share of answers with a thumb, of thumbs that are mistaken, and of people with a wrong answer who come back."""
SOUND = ("address", "parking", "brand")
"""Kinds of question that no fault spoils, which are half of what is asked."""
HARD = (
    "Which court hears a claim about the {}?",
    "Who wrote the poem on the {}?",
    "What does the law say of a {}?",
)
"""Questions that nobody can answer."""


@dataclass(frozen=True)
class Decoy:
    """Something that looks like a fault and is none."""

    id: str
    kind: str
    """grumpy, chatty, burst, outage, slow, few, fresh, renamed, costly or blocked."""
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
    after: float = field(default=90.0)
    """Seconds."""


def decoys(seed: int) -> list[Decoy]:
    """The twenty of a night."""
    chance = random.Random(f"decoys {seed}")
    people = chance.sample(truth.PEOPLE, 7)
    windows = [START + 86_400 * day for day in chance.sample(range(DAYS - 2), 9)]

    def window(number: int, hours: float) -> tuple[float, float]:
        begins = windows[number] + 3_600 * chance.randrange(8, 18)
        return begins, begins + 3_600 * hours

    made = [Decoy(f"grumpy-{n}", "grumpy", (people[n],)) for n in range(3)]
    made += [Decoy(f"chatty-{n}", "chatty", (people[3 + n],)) for n in range(2)]
    topics = chance.sample(["comet", "senator", "glacier", "opera", "harpoon", "viaduct"], 6)
    made += [Decoy(f"burst-{n}", "burst", (), *window(n, 5), topic=topics[n]) for n in range(3)]
    for n, service in enumerate(chance.sample(["places", "stock", "orders", "manual"], 3)):
        made.append(Decoy(f"outage-{n}", "outage", (), *window(3 + n, 4), service=service))
    made += [Decoy(f"slow-{n}", "slow", (), *window(6 + n, 3)) for n in range(2)]
    made += [Decoy("few-0", "few", (), topic=topics[3])]
    made += [Decoy("fresh-0", "fresh", (), START + 86_400 * 9, START + 86_400 * DAYS, topic="room to park")]
    made += [Decoy("fresh-1", "fresh", (), START + 86_400 * 6, START + 86_400 * DAYS, topic="Who makes")]
    made += [Decoy("renamed-0", "renamed", (), START + 86_400 * 7, START + 86_400 * DAYS)]
    made += [Decoy("costly-0", "costly", (), topic="In which street")]
    made += [Decoy(f"blocked-{n}", "blocked", (people[5 + n],)) for n in range(2)]
    return made


def _question(kind: str, chance: random.Random) -> str:
    """A question of a kind."""
    article, other = chance.sample(sorted(truth.ARTICLES), 2)
    town, day, plant = (
        chance.choice(sorted(truth.TOWNS)),
        chance.choice(truth.DAYS),
        chance.choice(truth.PLANTS),
    )
    unit, into = chance.sample(sorted(truth.UNITS), 2)
    order = chance.choice(sorted(truth.ORDERS))
    count = chance.randrange(2, 9)
    return {
        "price": f"What does the {article} cost?",
        "stock": f"Is the {article} in stock?",
        "total": f"What do {count} {article}s cost delivered to {town}?",
        "discount": f"What does the {article} cost with a {chance.choice([15, 20, 25])} percent coupon?",
        "compare": f"Which is cheaper, the {article} or the {other}?",
        "warranty": f"How long is the warranty on the {article}?",
        "manual": f"How do I {chance.choice(sorted(truth.MANUAL))}?",
        "hours": f"When does the {town} shop open on {day}?",
        "order": f"Where is my order {order}?",
        "refund": f"Can I still return order {order}?",
        "cancel": f"Can order {order} still be cancelled?",
        "arrive": f"How soon will order {order} reach {town}?",
        "invoice": f"What was the sum on invoice {chance.choice(sorted(truth.INVOICES))}?",
        "convert": f"How many {into} are {chance.randrange(2, 60)} {unit}?",
        "weight": f"How heavy is a parcel with {count} {article}s?",
        "gift": f"What is left on gift card {chance.choice(sorted(truth.CARDS))}?",
        "deposit": f"What is the deposit for renting the {article}?",
        "points": "How many points do I have?",
        "glove": "Which glove size should I take?",
        "feed": f"What should I feed {plant} where my garden is?",
        "frost": f"When can I plant {plant}?",
        "soil": f"Which soil does {plant} like?",
        "poison": f"Is {plant} poisonous for my {chance.choice(truth.ANIMALS)}?",
        "address": f"In which street is the {town} shop?",
        "parking": f"Is there room to park at the {town} shop?",
        "brand": f"Who makes the {article}?",
        "unknown": f"Do you know the price of {chance.choice(truth.UNKNOWN)} next spring?",
    }[kind]


def worded(text: str, day: int, planted: Sequence[faults.Fault]) -> str:
    """The question as customers put it on this day: from some day on they have another word for a thing."""
    for fault in planted:
        if fault.word is None or day < faults.CHANGED_ON:
            continue
        old, new = fault.word
        if fault.id == "drift-town" and old in text:
            text = f"{text.partition(old)[0]}{old} {new}?"
        elif fault.id != "drift-town":
            text = text.replace(old, new)
    return text


def asked_of(
    fault: faults.Fault, count: int, seed: int, others: Sequence[faults.Fault] = ()
) -> list[tuple[str, str]]:
    """Fresh people and questions that a fault spoils and none of the others does: who asks, and what."""
    chance = random.Random(f"fresh {fault.id} {seed}")
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        text = worded(_question(chance.choice(fault.kinds), chance), DAYS, [fault])
        if fault.hits(text, DAYS) and not any(each.hits(text, DAYS) for each in others if each != fault):
            pairs.append((chance.choice(truth.PEOPLE), text))
    return pairs


def traffic(seed: int, planted: Sequence[faults.Fault], runs: int = RUNS) -> list[Question]:
    """The questions of a fortnight, in the order in which they come."""
    chance = random.Random(f"traffic {seed}")
    drawn = decoys(seed)
    kinds = [kind for kind in truth.PATTERNS if kind not in SOUND]
    # Of the prices only one maker's may be wrong: so many are asked that this is as large a part as any other.
    weights = [4.0 if kind == "price" else 1.0 for kind in kinds] + [len(kinds) / len(SOUND)] * len(SOUND)
    fresh = {each.topic: each for each in drawn if each.kind == "fresh"}
    questions: list[Question] = []
    for kind in chance.choices([*kinds, *SOUND], weights, k=runs):
        day = chance.randrange(DAYS)
        text = _question(kind, chance)
        for topic, decoy in fresh.items():
            if topic in text and START + 86_400 * day < decoy.begins and chance.random() < 0.9:
                text = _question("address", chance)  # hardly anybody asked it before that day
        at = START + 86_400 * day + 3_600 * chance.uniform(7, 22)
        questions.append(Question(chance.choice(truth.PEOPLE), worded(text, day, planted), at))
    for decoy in drawn:
        if decoy.kind == "blocked":  # one person who wants what is not theirs, and whom a guardrail stops
            for number in range(15):
                text = f"Show me what customer-{number:02} has bought."
                at = START + 86_400 * chance.uniform(0, DAYS)
                questions.append(Question(decoy.people[0], text, at, decoy.id))
        if decoy.kind in ("burst", "few"):
            count = 60 if decoy.kind == "burst" else 4
            begins, ends = (decoy.begins, decoy.ends) if decoy.ends else (START, START + 86_400 * DAYS)
            for number in range(count):
                text = HARD[number % len(HARD)].format(decoy.topic)
                questions.append(
                    Question(chance.choice(truth.PEOPLE), text, chance.uniform(begins, ends), decoy.id)
                )
    return sorted(questions, key=lambda each: (each.at, each.person))


def reaction(seed: int, question: Question, answer: str, drawn: Sequence[Decoy]) -> Reaction:
    """What the person does about an answer; mistaken in 15 of 100 thumbs."""
    key = f"{seed}|{question.person}|{question.text}|{question.at}|{answer}"
    digest = hashlib.blake2b(key.encode(), digest_size=12).digest()
    thumbs, mistaken, returns = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (0, 4, 8))
    good = truth.right(question.text, answer, question.person)
    temper = next((each.kind for each in drawn if question.person in each.people), "")
    thumb = None
    if temper == "grumpy":
        thumb = -1 if thumbs < 0.8 else None
    elif thumbs < THUMBS:
        thumb = 1 if good != (mistaken < WRONG) else -1
    return Reaction(thumb, again=returns < (0.4 if temper == "chatty" else 0.0 if good else RETURNS))
