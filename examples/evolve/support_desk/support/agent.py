"""The agent: it decides, and what it decided is recorded."""

import whet

from .routing import team_for
from .urgency import urgent


@whet.trace("runs.db")
def handle(message: str, waited: float) -> dict[str, object]:
    """Which team a message goes to, and whether somebody must look at once.

    Args:
        waited: hours since the customer first wrote.
    """
    return {"team": team_for(message), "urgent": urgent(message, waited)}
