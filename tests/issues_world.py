"""A record of an agent with planted faults, small enough for tests."""

from __future__ import annotations

import random
from collections.abc import Iterator

from whet.types import Feedback, Outcome, Step, Task, Trajectory

START = 1_790_000_000.0
PEOPLE = 30
QUESTIONS = {
    "stock": "Is the {} in stock?",
    "price": "What does the {} cost?",
    "order": "Where is my parcel number {}?",
    "manual": "How do I repair the {}?",
}
ARTICLES = ("hose", "mower", "lamp", "rake", "spade", "barrow")


def runs(
    seed: int,
    *,
    count: int = 900,
    broken: str = "stock",
    begins: float = 0.0,
    grumpy: int = 0,
    shuffled: bool = False,
    label: str = "a",
    start: float = START,
    days: float = 10.0,
) -> Iterator[Trajectory]:
    """Runs with thumbs on half of them, a tenth mistaken.

    Args:
        broken: the tool whose answers people find bad; "" for none.
        begins: day from which they are.
        grumpy: so many people like nothing.
        shuffled: thumbs stand on somebody else's run.
    """
    draw = random.Random(f"{seed} {label}")
    made = []
    for number in range(count):
        tool = draw.choice(sorted(QUESTIONS))
        article = draw.choice(ARTICLES)
        person = draw.randrange(PEOPLE)
        at = start + 86_400 * days * number / count
        bad = tool == broken and at >= start + 86_400 * begins
        down = draw.random() < (0.9 if bad or person < grumpy else 0.1)
        thumbed = draw.random() < 0.5
        made.append((number, tool, article, person, at, down if thumbed else None))
    downs = [each[-1] for each in made]
    if shuffled:
        draw.shuffle(downs)
    for (number, tool, article, person, at, _), down in zip(made, downs, strict=True):
        id = f"{label}-{seed}-{number}"
        yield Trajectory(
            id=id,
            task=Task(instruction=QUESTIONS[tool].format(article)),
            steps=[
                Step(kind="llm", name="chat", id="1", action={"tool_calls": []}, info={"model": "small"}),
                Step(
                    kind="tool", name=tool, id="2", observation={"article": article}, action='{"value": "7"}'
                ),
            ],
            output="It is 7.",
            subject=f"person-{person}",
            session=f"session-{person}-{number}",
            started=at,
            seconds=1.0,
            outcome=Outcome.UNKNOWN,
            feedback=()
            if down is None
            else (Feedback(run=id, value=-1.0 if down else 1.0, id=f"thumb-{id}", at=at + 1),),
        )
