"""Words of a message."""

import re

ENDINGS = ("ing", "ed", "s")


def words(message: str) -> list[str]:
    """Lower-case words, plain endings cut off."""
    return [stem(word) for word in re.findall(r"[a-z']+", message.lower())]


def stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word[: -len(ending)]
    return word
