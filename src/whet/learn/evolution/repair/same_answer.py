"""Whether an answer still says what a liked one said, though a model words it otherwise under another prompt.

A change of a prompt rewords most answers of a model, so equal texts would hold every change back.  What has to stay is
what a person would miss: each number, whether it says yes or no, and half of its words at the least.  It errs on both
sides, and only decides what may go on trial; people decide there.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_DENIAL = re.compile(
    r"\b(?:no|not|none|never|neither|nothing|cannot|without|unable|unfortunately|sorry)\b|n['’]t\b",
    re.IGNORECASE,
)
_SHARE = 0.5
"""Of a liked answer's words that have to come again."""


def says_the_same(answer: str, liked: str) -> bool:
    """True if `answer` may stand where people liked the other one.

    >>> says_the_same("It costs 12.50 euros in all.", "Together that costs 12.5 euros.")
    True
    >>> says_the_same("It costs 13 euros in all.", "Together that costs 12.5 euros.")
    False
    >>> says_the_same("No, it cannot be returned.", "Yes, it can be returned.")
    False
    """
    if " ".join(answer.casefold().split()) == " ".join(liked.casefold().split()):
        return True
    words, wanted = _words(answer), _words(liked)
    return (
        len(liked.split()) > 1  # a label is that one or another
        and _numbers(liked) <= _numbers(answer)
        and bool(_DENIAL.search(answer)) is bool(_DENIAL.search(liked))
        and len(words & wanted) >= _SHARE * len(wanted)
    )


def _words(text: str) -> set[str]:
    return {*_WORD.findall(text.casefold())}


def _numbers(text: str) -> set[str]:
    """Numbers as they are meant: 1,250.50 and 1250.5 are one."""
    found = set()
    for number in _NUMBER.findall(text):
        plain = re.sub(r",(?=\d{3}(?:\D|$))", "", number).replace(",", ".")
        found.add(plain.rstrip("0").rstrip(".") if plain.count(".") == 1 else plain)
    return found
