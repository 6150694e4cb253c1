"""Whether somebody must look at once."""

import whet

from .text import words

ALARMS = {"urgent", "now", "immediately", "twice", "stolen"}


@whet.evolve(kind="tool", metric="accuracy")
def urgent(message: str, waited: float) -> bool:
    """True for an alarm, and for those who have waited too long.

    >>> urgent("My card was stolen", 0.5)
    True
    """
    alarms = sum(word in ALARMS for word in words(message))
    if alarms > 1:  # one word alone may be a figure of speech
        return True
    # Two days is what the contract says.
    return waited > 48
