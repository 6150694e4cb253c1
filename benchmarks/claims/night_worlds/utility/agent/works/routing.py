"""What a message is about, and in which language it is."""

from __future__ import annotations

import csv
import re
from collections import Counter

from works.settings import ROOT


def _rows(name: str) -> list[dict[str, str]]:
    with (ROOT / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


KEYWORDS = [(row["phrase"], row["topic"], int(row["weight"])) for row in _rows("keywords.csv")]
LANGUAGES = {row["word"]: row["language"] for row in _rows("languages.csv")}


def own_words(message: str) -> str:
    """A message without what it quotes from an earlier one."""
    return "\n".join(line for line in message.splitlines() if not line.startswith(">"))


def topic_of(message: str) -> str:
    """The topic whose phrases weigh most; "other" where there are none."""
    said = own_words(message).lower()
    weights: Counter[str] = Counter()
    for phrase, topic, weight in KEYWORDS:
        if phrase in said:
            weights[topic] += weight
    topic, weight = max(weights.items(), key=lambda each: each[1], default=("other", 0))
    return topic if weight > 0 else "other"


def language_of(message: str) -> str:
    """en, de or fr, by the first word that only one of them has."""
    words = re.findall(r"\w+", own_words(message).lower())
    return next((LANGUAGES[word] for word in words if word in LANGUAGES), "en")
