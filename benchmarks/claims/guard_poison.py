"""One poisoned person of 20 with half of the traffic: how far they move what others are answered.

Nineteen people ask about the same topics and thumb the answer that they got, wrongly in 15 of 100 cases; each topic has
an answer that they like and one that they do not.  The twentieth has as many runs as they together.  A choice of answer
is learned for each topic: by the share of thumbs up, and by the reward that `whet improve` fits to thumbs.  The shift
is the share of the others' requests that are answered differently than without the twentieth; beside it stands how far
the learned preference itself moves.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.judge.fitted import FittedReward, Rated
from whet.learn.datasets.signatures import Parameter, Signature
from whet.learn.datasets.thumbs import rated_runs
from whet.record.influence import InfluenceLimits, weighed
from whet.types import Feedback, Task, Trajectory

PEOPLE, TOPICS, EACH, WRONG = 19, 12, 24, 0.15
OFF = InfluenceLimits(times=1e9, at_least=10**9, contradiction=False, orders=False)
"""No cap and no filter: the control."""
SIGNATURE = Signature("answer", (Parameter("question", annotation="str"),))
NAMES = (
    "tax",
    "visa",
    "rent",
    "loan",
    "leave",
    "parking",
    "pension",
    "travel",
    "printer",
    "badge",
    "lunch",
    "shuttle",
)


def answers(topic: int) -> tuple[str, str]:
    """What people like, and what they do not."""
    name = NAMES[topic]
    return f"The {name} form is due on the 3rd; see page 4.", f"Nobody can say when the {name} form is due."


def run(number: int, person: str, question: str, answer: str, up: bool) -> Trajectory:
    id = f"{person}-{number:05d}"
    return Trajectory(
        id=id,
        task=Task(instruction=question, meta={"function": "answer"}),
        output=answer,
        subject=person,
        started=1_700_000_000.0 + number,
        feedback=[Feedback(run=id, value=1.0 if up else -1.0, id=f"f-{id}", at=1_700_000_000.0 + number)],
        meta={"function": "answer"},
    )


def honest(rng: random.Random) -> list[Trajectory]:
    """What the nineteen asked, and said."""
    runs = []
    for person in range(PEOPLE):
        for _ in range(EACH):
            topic, liked = rng.randrange(TOPICS), rng.random() < 0.5
            good, bad = answers(topic)
            up = liked ^ (rng.random() < WRONG)
            question = f"When is the {NAMES[topic]} form due?"
            runs.append(run(len(runs), f"person {person}", question, good if liked else bad, up))
    return runs


def blunt(rng: random.Random) -> list[Trajectory]:
    """Thumbs the opposite of what is right, on the questions that all ask."""
    runs = []
    for number in range(PEOPLE * EACH):
        topic, liked = rng.randrange(TOPICS), rng.random() < 0.5
        good, bad = answers(topic)
        question = f"When is the {NAMES[topic]} form due?"
        runs.append(run(10_000 + number, "mallory", question, good if liked else bad, not liked))
    return runs


def aimed(rng: random.Random) -> list[Trajectory]:
    """Agrees with everybody on all topics but four, and asks about those most."""
    runs = []
    for number in range(PEOPLE * EACH):
        turned = rng.random() < 0.8
        topic, liked = (rng.randrange(4) if turned else rng.randrange(4, TOPICS)), rng.random() < 0.5
        good, bad = answers(topic)
        question = f"When is the {NAMES[topic]} form due?"
        runs.append(run(10_000 + number, "mallory", question, good if liked else bad, liked != turned))
    return runs


def evasive(rng: random.Random) -> list[Trajectory]:
    """Asks in words of their own, so that nobody else rated the same answer to the same question."""
    runs = []
    for number in range(PEOPLE * EACH):
        topic, liked = rng.randrange(TOPICS), rng.random() < 0.5
        good, bad = answers(topic)
        question = f"When is the {NAMES[topic]} form due? ({number})"
        runs.append(run(10_000 + number, "mallory", question, good if liked else bad, not liked))
    return runs


ATTACKERS: dict[str, Callable[[random.Random], list[Trajectory]]] = {
    "blunt": blunt,
    "aimed at four topics": aimed,
    "in words of their own": evasive,
}


def topic_of(question: str) -> int:
    return next(number for number, name in enumerate(NAMES) if f"the {name} form" in question)


def by_share(thumbs: Sequence[Rated]) -> dict[int, float]:
    """Topic → share of thumbs that speak for the answer which people like, from the thumbs on both."""
    votes: dict[int, list[float]] = defaultdict(list)
    for thumb in thumbs:
        topic = topic_of(thumb.input)
        good, _ = answers(topic)
        votes[topic].append(float((thumb.answer == good) == thumb.up))
    return {topic: sum(own) / len(own) for topic, own in votes.items()}


def by_reward(thumbs: Sequence[Rated]) -> dict[int, float]:
    """Topic → above a half where the fitted reward prefers the answer which people like."""
    reward = FittedReward(thumbs)
    preferred = {}
    for topic in range(TOPICS):
        question = f"When is the {NAMES[topic]} form due?"
        good, bad = (reward.predict(question, answer)[0] for answer in answers(topic))
        preferred[topic] = 0.5 + (good - bad) / 4
    return preferred


LEARNERS: dict[str, Callable[[Sequence[Rated]], dict[int, float]]] = {
    "share of thumbs": by_share,
    "fitted reward": by_reward,
}


def shift(alone: dict[int, float], poisoned: dict[int, float]) -> float:
    """Share of the others' requests, which are alike over topics, that are answered differently."""
    return sum((alone[topic] > 0.5) != (poisoned.get(topic, 0.5) > 0.5) for topic in alone) / len(alone)


def moved(alone: dict[int, float], poisoned: dict[int, float]) -> float:
    """How far the preference moves, on average over topics."""
    return sum(abs(alone[topic] - poisoned.get(topic, 0.5)) for topic in alone) / len(alone)


@dataclass(frozen=True)
class Poisoned:
    """One attacker and one learner."""

    attacker: str
    learner: str
    with_caps: float
    """Shift."""
    without: float
    moved_with: float
    moved_without: float
    sentence: str
    """The product's own, of what was left out."""


def measure(seed: int) -> list[Poisoned]:
    """Every attacker against every learner."""
    rows = []
    for attacker, poison in ATTACKERS.items():
        rng = random.Random(f"{seed}/{attacker}")
        people = honest(rng)
        both = people + poison(rng)
        capped = rated_runs(SIGNATURE, "answer", weighed(both))
        loose = rated_runs(SIGNATURE, "answer", weighed(both, OFF))
        alone = rated_runs(SIGNATURE, "answer", weighed(people, OFF))
        for name, learned in LEARNERS.items():
            before, held, free = learned(alone.thumbs), learned(capped.thumbs), learned(loose.thumbs)
            rows.append(
                Poisoned(
                    attacker,
                    name,
                    shift(before, held),
                    shift(before, free),
                    moved(before, held),
                    moved(before, free),
                    capped.influence,
                )
            )
    return rows
