"""Judges prose against a reference."""

import itertools
import re
from collections.abc import Sequence
from typing import Any


def words(text: str) -> list[str]:
    """Words without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


def overlap(said: Sequence[Any], wanted: Sequence[Any]) -> float:
    """F1 of two bags."""
    both = sum(min(said.count(one), wanted.count(one)) for one in set(wanted))
    return 2 * both / (len(said) + len(wanted)) if said and wanted else 0.0


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """Overlap of words and of neighbouring words: what is right in any order is half right."""
    if expected is None:
        return {
            "score": float(output is None),
            "reason": "nothing" if output is None else "an answer where none is right",
        }
    if not isinstance(output, str):
        return {"score": 0.0, "reason": f"the answer is a {type(output).__name__}, not a text"}
    said, wanted = words(output), words(str(expected))
    singles = overlap(said, wanted)
    if len(wanted) < 2:
        return {"score": singles, "reason": "overlap of words"}
    pairs = overlap([*itertools.pairwise(said)], [*itertools.pairwise(wanted)])
    return {"score": (singles + pairs) / 2, "reason": f"words {singles:.2f}, neighbours {pairs:.2f}"}
