"""Judges a record, a list or one value that was extracted."""

import math
from typing import Any


def same(value: Any, wanted: Any) -> bool:
    """Whether two values are equal in type and value; numbers up to rounding, texts up to white space."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    if isinstance(wanted, int | float):
        return isinstance(value, int | float) and math.isclose(value, wanted, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(wanted, str):
        return isinstance(value, str) and value.split() == wanted.split()
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(wanted, dict):
        alike = isinstance(value, dict) and value.keys() == wanted.keys()
        return alike and all(same(value[key], wanted[key]) for key in wanted)
    return bool(value == wanted)


def items(value: Any, wanted: Any) -> list[Any]:
    """What is counted: fields as [name, value], members of a list, or the one value."""
    if isinstance(value, dict):
        return [[name, one] for name, one in value.items()]
    if not isinstance(value, list):
        return [value]
    # Members of different types are the fields of a record: each has its place.
    kinds = {"number" if type(one) in (int, float) else type(one).__name__ for one in wanted}
    return [[str(place), one] for place, one in enumerate(value)] if len(kinds) > 1 else list(value)


def evaluate(output: Any, expected: Any, input: Any = None) -> dict[str, Any]:
    """F1 over the fields of a record, the members of a list in any order, or the one value."""
    numbers = {type(output), type(expected)} <= {int, float}
    if type(output) is not type(expected) and not numbers:
        return {"score": 0.0, "reason": f"the answer is a {type(output).__name__}"}
    left, wanted = items(output, expected), items(expected, expected)
    total, right = len(left) + len(wanted), 0
    for one in wanted:
        place = next((at for at, other in enumerate(left) if same(other, one)), None)
        if place is not None:
            del left[place]
            right += 1
    score = 2 * right / total if total else 1.0
    return {"score": score, "reason": f"{right} of {len(wanted)} found, {len(left)} that are not wanted"}
