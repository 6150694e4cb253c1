"""Judges how an answer is written by what people preferred, and where a reference is known, how near it is."""

import itertools
import math
import re
from typing import Any

WEIGHTS: dict[str, float] = {}
"""Fitted to preferences; nothing counts until it is."""


def words(text: str) -> list[str]:
    """Words without case and punctuation."""
    return re.findall(r"\w+", text.casefold())


def features(output: str, input: Any) -> dict[str, float]:
    """What can be seen of an answer, each between 0 and about 1."""
    said, asked = words(output), set(words(str(input or "")))
    lines = [line for line in output.splitlines() if line.strip()]
    return {
        "length": math.log1p(len(said)) / 5,
        "one line": float(len(lines) <= 1),
        "list": sum(bool(re.match(r"\s*(?:[-*\u2022]|\d+[.)])\s", line)) for line in lines)
        / max(1, len(lines)),
        "numbers": min(1.0, 4 * sum(word.isdigit() for word in said) / max(1, len(said))),
        "question back": float(output.rstrip().endswith("?")),
        "apology": float(bool({"sorry", "unfortunately", "apologise", "apologize", "cannot"} & set(said))),
        "exclamation": min(1.0, output.count("!") / 2),
        "greeting": float(said[:1] in (["hello"], ["hi"], ["dear"], ["hey"])),
        "thanks": float("thank" in said or "thanks" in said),
        "code": float("```" in output or "`" in output),
        "names the question": len(asked & set(said)) / max(1, len(asked)),
        "long words": sum(len(word) > 9 for word in said) / max(1, len(said)),
        "you": min(1.0, 5 * sum(word in ("you", "your") for word in said) / max(1, len(said))),
    }


def taste(output: str, input: Any) -> float:
    """How likely people are to prefer it to an answer of the same kind; a half where nothing is known."""
    seen = features(output, input)
    total = sum(weight * seen.get(name, 0.0) for name, weight in WEIGHTS.items())
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def nearness(said: list[str], wanted: list[str]) -> float:
    """F1 of words and of neighbouring words."""

    def overlap(one: list[Any], other: list[Any]) -> float:
        both = sum(min(one.count(each), other.count(each)) for each in set(other))
        return 2 * both / (len(one) + len(other)) if one and other else 0.0

    singles = overlap(said, wanted)
    if len(wanted) < 2:
        return singles
    return (singles + overlap([*itertools.pairwise(said)], [*itertools.pairwise(wanted)])) / 2


def evaluate(output: Any, expected: Any = None, input: Any = None) -> dict[str, Any]:
    """Nearness to the reference, a fifth of it by taste; taste alone where there is no reference."""
    if not isinstance(output, str) or not output.strip():
        return {"score": 0.0, "reason": "no text"}
    liked = taste(output, input)
    if expected is None:
        return {"score": liked, "reason": f"taste {liked:.2f}"}
    near = nearness(words(output), words(str(expected)))
    return {"score": near * (0.8 + 0.2 * liked), "reason": f"nearness {near:.2f}, taste {liked:.2f}"}
