"""Conditions on the value of an argument: equal to it, or `{"at_most": n}`, `{"at_least": n}`, `{"one_of": [...]}`,
`{"not": value}`."""

from __future__ import annotations

from collections.abc import Mapping

from ..types import Json

_WORDS = frozenset({"at_most", "at_least", "one_of", "not"})


def fulfils(value: Json, condition: Json) -> bool | None:
    """Whether a value is as wanted; None where a bound is set and the value is no number."""
    if not (isinstance(condition, Mapping) and condition and condition.keys() <= _WORDS):
        return bool(value == condition)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None and condition.keys() & {"at_most", "at_least"}:
        return None
    return (
        ("at_most" not in condition or number <= condition["at_most"])
        and ("at_least" not in condition or number >= condition["at_least"])
        and ("one_of" not in condition or value in condition["one_of"])
        and ("not" not in condition or value != condition["not"])
    )
