"""Answers that are wrong in one place: a letter, a digit, a word, a number, a member; and values of every type of JSON.

`variants` spoils answers as a whole, which also a careless evaluator notices.  These are for one that compares all
but the last element, takes a number beside the right one, or falls over a value that no known answer has.
Everything is deterministic.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence

from ..record.rows import as_text
from ..types import Json

PLACES = ("first", "middle", "last")
NEAR = frozenset(
    {
        "number",
        "off by one",
        "no number",
        "sign",
        "point",
        "type",
        "emptied",
        *(f"{place} {what}" for place in PLACES for what in ("letter", "digit", "word", "member")),
    }
)
"""Families of answers that are wrong in one place."""
SMALL = (2, 3, 5, 7, 8, 9)
"""Whole numbers whose neighbours no tolerance is meant to take in."""
_FOREIGN = "zebra"
_ARTICLES = ("a", "an", "the")
_NEARLY = 0.1
"""Share of a number by which its neighbours differ from it: a tolerance of 5 % is one, of 10 % is none."""
VALUES: tuple[Json, ...] = (
    *(None, True, False, 0, 1, -1, 2.5, 10**12, -(10**12), 1e-9),
    *("", " ", "x", "0", "-1", "nan", "inf", "\n", "é 漢 🦓", "[]", "{}"),
    *([], [None], [1], ["x"], [[]], [{}], {}, {"x": None}, {"x": 1}, {"x": {"y": []}}, {"": ""}),
)
"""A value of each type, and its boundaries: an agent may answer any of them."""


def _places(length: int) -> list[tuple[str, int]]:
    """First, middle and last place, each place once."""
    at = (
        {0: "first", length - 1: "last", length // 2: "middle"}
        if length > 2
        else {0: "first", length - 1: "last"}
    )
    return [(place, index) for index, place in sorted(at.items())] if length else []


def _other(letter: str) -> str:
    """Another letter or digit, whatever the case."""
    if letter.isdigit():
        return str((int(letter) + 3) % 10) if letter.isascii() else "7"
    return "q" if letter.lower() != "q" else "k"


def _spelt(text: str, what: str, belongs: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """The text with one letter or digit changed, one more, and one less, at each place."""
    held = [index for index, letter in enumerate(text) if belongs(letter)]
    for place, number in _places(len(held)):
        index = held[number]
        yield f"{place} {what}", text[:index] + _other(text[index]) + text[index + 1 :]
        if len(held) > 1:  # a single letter is a label, of which many read no more than the first
            more = index + (place == "last")
            yield f"{place} {what}", text[:more] + _other(text[index]) + text[more:]
            yield f"{place} {what}", text[:index] + text[index + 1 :]


def _of_text(text: str) -> Iterator[tuple[str, Json]]:
    number = as_number(text)
    if number is not None:
        # Without the other sign: a judge of words sees none, and is good enough for numbers that have none.
        yield from (("number", _written(value, text)) for value in _numbers(number)[:2])
        # One digit more, for who looks at the beginning or the end; behind a decimal point it would be a small change.
        digits = text.strip()
        yield "no number", "nan"
        if digits.startswith("-"):  # a number that has a sign is another one without
            yield "sign", digits.removeprefix("-")
        sign = digits[:1] if digits[:1] in ("+", "-") else ""
        yield "number", f"{sign}4{digits.removeprefix(sign)}"
        if digits[-1:].isdigit() and "." not in digits:
            yield "number", f"{digits}4"
        return
    yield from _spelt(text, "letter", str.isalpha)
    yield from _spelt(text, "digit", str.isdigit)
    # What is compared by a pattern takes any letter for a point.
    inner = [index for index in range(1, len(text) - 1) if text[index] == "." and text[index + 1].isalnum()]
    for _, number in _places(len(inner)):
        yield "point", f"{text[: inner[number]]}q{text[inner[number] + 1 :]}"
    words = text.split()
    for place, index in _places(len(words)) if len(words) > 1 else ():
        yield f"{place} word", " ".join([*words[:index], _FOREIGN, *words[index + 1 :]])
        more = index + (place == "last")
        yield f"{place} word", " ".join([*words[:more], _FOREIGN, *words[more:]])
        if words[index].lower() not in _ARTICLES:  # which many leave out before they compare
            yield f"{place} word", " ".join([*words[:index], *words[index + 1 :]])


def as_number(value: Json) -> float | None:
    """The finite number that a value is, or that a text is but for commas and spaces; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value.replace(",", "").strip() if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _written(value: float, like: str) -> str:
    digits = like.strip().partition(".")[2]
    return f"{value:.{len(digits)}f}"


def _numbers(value: float) -> list[float]:
    """Neighbours of a number, further away than a tolerance would be, and the number with the other sign."""
    whole = float(value).is_integer()
    step = max(1.0, math.ceil(_NEARLY * abs(value))) if whole else max(_NEARLY * abs(value), _NEARLY)
    return [value + step, value - step, *([-value] if value else [])]


def near(value: Json) -> Iterator[tuple[str, Json]]:
    """Family and wrong answer of the same type, wrong in one place."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        for number in _numbers(float(value)):
            yield "number", int(number) if isinstance(value, int) else number
        # As a text: every comparison with what it is read as is false.
        yield "no number", "nan"
    elif isinstance(value, str):
        yield from _of_text(value)
    else:
        yield from _members(value)


def _members(value: Json) -> Iterator[tuple[str, Json]]:
    """A list or an object with one leaf changed, or one member less, at each place; and with nothing in any."""
    keys: Sequence[Json] = sorted(value) if isinstance(value, dict) else range(len(value))
    for place, number in _places(len(keys)):
        less = copy.deepcopy(value)
        del less[keys[number]]
        yield f"{place} member", less
    leaves = list(_leaves(value))
    for place, number in _places(len(leaves)):
        yield f"{place} member", _with(value, leaves[number], _changed(_at(value, leaves[number])))
    named = [leaf for leaf in leaves if isinstance(_at(value, leaf), bool | None)]
    for leaf in named[:1]:
        # Not null and not a truth, but their names in Python: what compares texts takes them for each other.
        yield "type", _with(value, leaf, str(_at(value, leaf)))
    if len(keys):
        yield "emptied", dict.fromkeys(value) if isinstance(value, dict) else [None] * len(value)
        yield "emptied", {key: [] for key in value} if isinstance(value, dict) else [[] for _ in value]


def _leaves(value: Json, path: tuple[Json, ...] = ()) -> Iterator[tuple[Json, ...]]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _leaves(value[key], (*path, key))
    elif isinstance(value, list) and value:
        for index, member in enumerate(value):
            yield from _leaves(member, (*path, index))
    elif path:
        yield path


def _at(value: Json, path: Sequence[Json]) -> Json:
    """The leaf at a path."""
    for key in path:
        value = value[key]
    return value


def _changed(leaf: Json) -> Json:
    if isinstance(leaf, bool):
        return not leaf
    return next((wrong for _, wrong in near(leaf)), "something else")


def _with(value: Json, path: tuple[Json, ...], leaf: Json) -> Json:
    """The value with another leaf at this path."""
    changed = copy.deepcopy(value)
    _at(changed, path[:-1])[path[-1]] = leaf
    return changed


def deformed(value: Json) -> Iterator[Json]:
    """The right answer in another form, which an evaluator may take or not, but has to survive."""
    yield [value]
    yield {"answer": value}
    yield as_text(value)
    if isinstance(value, list):
        yield [None, *value]
        yield [*value, {}]
    elif isinstance(value, dict):
        yield {**value, "more": None}
        yield from ({**value, key: [value[key]]} for key in sorted(value)[:2])


def alike(a: Json, b: Json) -> bool:
    """True if a lenient evaluator may take one for the other: the same number, or text, or both empty."""
    if not a and not b and a is not False and b is not False:
        return True
    first, second = as_number(a), as_number(b)
    if first is not None and first == second:
        return True
    if (
        {type(a), type(b)} & {bool}
        and bool(a) == bool(b)
        and isinstance(a, bool | int | float)
        and isinstance(b, bool | int | float)
    ):
        return True
    return as_text(a).strip().casefold() == as_text(b).strip().casefold()
