"""Judges one label out of a few."""

from typing import Any

LABELS: list[str] = []


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """1 if the answer is the expected label and no other, whatever its case and the space around it."""
    if expected is None:
        return {
            "score": float(output is None),
            "reason": "nothing" if output is None else "an answer where none is right",
        }
    if not isinstance(output, str):
        return {"score": 0.0, "reason": f"the answer is a {type(output).__name__}, not a label"}
    said = output.strip().strip(".").casefold()
    # First, for a label that nobody had seen when this file was written is right where it is expected.
    if said == str(expected).strip().strip(".").casefold():
        return {"score": 1.0, "reason": "the right label"}
    known = said in {label.casefold() for label in LABELS}
    reason = "another label" if known else "the answer is none of the labels, or more than one"
    return {"score": 0.0, "reason": reason}
