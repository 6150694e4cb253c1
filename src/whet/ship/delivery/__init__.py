"""Delivery: a Bundle as a branch and a pull request, with the proof on the branch.

`deliver.py` does it: `git.py` makes the branch, `evidence.py` is the outcome files, `body.py` the text, `github.py`
opens the pull request, and `markdown.py` keeps what others wrote text.
"""

from .deliver import Delivery, DeliveryOptions, Reversal, deliver, deliver_reversal
from .evidence import DeliveredEvidence
from .github import GitHub, PullRequest

__all__ = [
    "DeliveredEvidence",
    "Delivery",
    "DeliveryOptions",
    "GitHub",
    "PullRequest",
    "Reversal",
    "deliver",
    "deliver_reversal",
]
