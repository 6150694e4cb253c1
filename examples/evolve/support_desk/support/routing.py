"""Which team a message is for."""

import whet

from .text import words

# What a word says for a team.  Somebody wrote these down one afternoon.
# whet: evolve kind=router metric=accuracy
WEIGHTS = {
    "billing": {"invoice": 2.0, "charge": 1.0, "card": 2.0, "refund": 0.2, "account": 1.5},  # 0..3
    "delivery": {"parcel": 2.0, "track": 2.0, "late": 0.5, "address": 0.2, "order": 2.5},
    "account": {"password": 2.0, "log": 0.5, "email": 0.5, "account": 0.5, "card": 0.2},
}


@whet.step
def team_for(message: str) -> str:
    """The team whose words weigh most; "general" where none is named."""
    said = words(message)
    scores = {team: sum(weights.get(word, 0.0) for word in said) for team, weights in WEIGHTS.items()}
    best = max(scores, key=lambda team: scores[team])
    return best if scores[best] > 0 else "general"
