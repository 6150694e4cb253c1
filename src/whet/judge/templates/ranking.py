"""Judges an order of items."""

from typing import Any


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """Share of pairs in the expected order, 0 if reversed and 1 if right; missing and foreign items cost."""
    if expected is None:
        return {
            "score": float(output is None),
            "reason": "nothing" if output is None else "an answer where none is right",
        }
    if not isinstance(output, list) or not isinstance(expected, list):
        return {"score": 0.0, "reason": f"the answer is a {type(output).__name__}, not an order"}
    wanted, said = [repr(one) for one in expected], [repr(one) for one in output]
    if said == wanted:  # an empty order may be the right one, and one that holds an item twice
        return {"score": 1.0, "reason": "the very order"}
    if not said or len(set(said)) != len(said):
        return {"score": 0.0, "reason": "nothing, or the same item twice"}
    place = {one: at for at, one in enumerate(said)}
    pairs = [(a, b) for at, a in enumerate(wanted) for b in wanted[at + 1 :]]
    right = sum(a in place and b in place and place[a] < place[b] for a, b in pairs)
    order = right / len(pairs) if pairs else float(said == wanted)
    foreign = len(set(said) - set(wanted))
    score = order * len(wanted) / (len(wanted) + foreign)
    return {"score": score, "reason": f"{right} of {len(pairs)} pairs in order, {foreign} foreign items"}
