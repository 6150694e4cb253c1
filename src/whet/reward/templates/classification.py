"""Judges one label out of a few."""

from typing import Any

LABELS: list[str] = []


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """1 if the answer is the expected label and no other, whatever its case and the space around it."""
    if not isinstance(output, str):
        return {"score": 0.0, "reason": f"the answer is a {type(output).__name__}, not a label"}
    said = output.strip().strip(".").casefold()
    if said not in {label.casefold() for label in LABELS}:
        return {"score": 0.0, "reason": "the answer is none of the labels, or more than one"}
    right = said == str(expected).strip().casefold()
    return {"score": float(right), "reason": "the right label" if right else "another label"}
