"""A few weeks of customers: what they wrote, and what the people at the desk said of the decisions.

Run it here: it writes runs.db beside it.  The customers are made up, from a seed; what the desk
wanted follows a rule that the agent does not know.
"""

import random

from support.agent import handle

import whet

ASKED = {
    "billing": [
        "I was charged {n} euros {twice} for invoice {n}",
        "Please refund invoice {n}, {name} was charged for a card that is not mine",
        "I want a refund for order {n}, it was charged {twice}",
        "Why is there a charge of {n} on my account? Please refund it",
    ],
    "delivery": [
        "My parcel {n} is late, where is it",
        "Tracking says parcel {n} went to an old address {now}",
        "Order {n} for {name} is late and nobody tells me why",
        "Can you change the address for order {n}",
    ],
    "account": [
        "I cannot log in, my password {n} does not work {now}",
        "Change the email of my account to {name}{n} please",
        "My card was {stolen} and I cannot log in to my account",
        "{name} logged in to my account from an email I do not know {now}",
    ],
    "general": ["Do you have opening hours on day {n}", "Is {name} still working with you in office {n}"],
}
BEFORE = [
    "Hello from {name} in Porto.",
    "Third message about this.",
    "Hi, a quick one before lunch.",
    "To whom it may concern at your desk:",
    "I hope that you can help, {name} could not.",
    "Good evening, writing from the train.",
    "Sorry to bother you again so soon.",
    "My sister told me to ask here first.",
    "",
]
AFTER = [
    "Greetings from the north, {name}",
    "I am abroad until the {n}th, so write rather than call.",
    "The chat robot was no use at all.",
    "I attach a picture of it.",
    "Otherwise I am quite happy with you.",
    "Please answer in Spanish if you can.",
    "You have my number, it ends in {n}.",
    "",
]
NAMES = ["Anna", "Bo", "Chen", "Dana", "Emre", "Fay", "Gus", "Hana"]


def message(rng: random.Random) -> tuple[str, str, float, bool]:
    """A message, the team that it is for, the hours waited, and whether it is urgent."""
    team = rng.choice(list(ASKED))
    alarm = rng.random() < 0.4
    parts = rng.choice(BEFORE), rng.choice(ASKED[team]), rng.choice(AFTER)
    text = " ".join(part for part in parts if part).format(
        n=rng.randint(2, 9999),
        name=rng.choice(NAMES),
        twice="twice" if alarm else "once",
        now="immediately" if alarm else "since today",
        stolen="stolen" if alarm else "lost",
    )
    waited = round(rng.choice([rng.uniform(0, 20), rng.uniform(20, 60)]), 1)
    alarmed = any(word in text for word in ("twice", "immediately", "stolen"))
    return text, team, waited, alarmed or waited > 24


def main(customers: int = 150, seed: int = 7) -> None:
    """Let every customer write twice, and the desk speak of most of what was decided."""
    rng = random.Random(seed)
    for customer in range(customers):
        for _ in range(2):
            text, team, waited, is_urgent = message(rng)
            with whet.run(subject=f"customer-{customer}") as run:
                decided = handle(text, waited)
            right = {"team": team, "urgent": is_urgent}
            if rng.random() < 0.8:
                if decided == right:
                    whet.feedback(run.id, 1.0)
                else:
                    whet.feedback(run.id, -1.0, "wrong", correction=right)


if __name__ == "__main__":
    main()
