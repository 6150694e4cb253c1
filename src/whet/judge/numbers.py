"""What the numbers of an answer show beside those of its question: how many, how written, how large, made from what.

A reward that learns from people's thumbs cannot know which number is right.  It can see that liked answers give a
number with two decimals, that they repeat one of the question or are the product of two, that a list of them rises, or
that they are what a tool gave under some name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise, permutations

from ..types import Json

_NUMBER = re.compile(r"(?:(?<![\w.,])[-−])?\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_COMBINED = 5
"""Numbers of a question beyond which nothing is computed from them: by chance something would fit."""
_LARGEST = 1e15
"""Beyond it a number is a name."""
_LOOKED_UP = 40
"""Numbers of what tools gave that are read."""

Named = Sequence[tuple[str, float]]
"""Numbers that tools gave, each under its name: the tool's and the last key, or its place in a text."""


@lru_cache(maxsize=4096)
def spaced(text: str) -> str:
    """A text; JSON with a space behind each comma, where [1,200] would read as 1,200."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


@lru_cache(maxsize=4096)
def numbers(text: str) -> Sequence[tuple[float, int]]:
    """Each number of a text and its decimals; 1,200 is one number, and 1,5 is 1.5.

    >>> numbers("1,200 at 2.50, or -3")
    ((1200.0, 0), (2.5, 2), (-3.0, 0))
    >>> numbers("[1,200]")
    ((1.0, 0), (200.0, 0))
    """
    found = []
    for match in _NUMBER.finditer(spaced(text)):
        sign = -1.0 if match[0][0] in "-−" else 1.0
        written = match[0].lstrip("-−")
        for plain in _plain(written):
            value = float(plain)
            if value < _LARGEST:
                decimals = plain.partition(".")[2]
                # Programs write 3 as 3.0.
                found.append((sign * value, 0 if decimals == "0" else len(decimals)))
            sign = 1.0
    return tuple(found)


def _plain(written: str) -> list[str]:
    """The numbers of digits, points and commas without a space, as Python reads them; none of an address or a date."""
    if _THOUSANDS.fullmatch(written):
        return [written.replace(",", "")]
    if written.count(",") == 1 and "." not in written:
        return [written.replace(",", ".")]
    return [part for part in written.split(",") if part.count(".") < 2]


def values(text: str) -> tuple[float, ...]:
    """The numbers of a text in their order, by which two answers say the same or not."""
    return tuple(value for value, _ in numbers(text))


WRITTEN, MADE, LARGE = "written", "made", "large"


def named_numbers(tool: str, result: Json) -> Named:
    """The numbers of a tool's result, by the keys that they stand under.

    >>> named_numbers("look_up", '{"net": 12.5, "sizes": [3, 4]}')
    [('look_up net', 12.5), ('look_up sizes', 3.0), ('look_up sizes', 4.0)]
    >>> named_numbers("count", "3 of 8")
    [('count 0', 3.0), ('count 1', 8.0)]
    """
    if isinstance(result, str):
        try:
            result = json.loads(result)
        except (ValueError, RecursionError):
            return [(f"{tool} {place}", value) for place, value in enumerate(values(str(result)))][
                :_LOOKED_UP
            ]
    named: list[tuple[str, float]] = []
    waiting: list[tuple[str, Json]] = [(tool, result)]
    while waiting and len(named) < _LOOKED_UP:
        name, value = waiting.pop(0)
        if isinstance(value, dict):
            waiting = [*((f"{tool} {key}", each) for key, each in value.items()), *waiting]
        elif isinstance(value, list | tuple):
            waiting = [*((name, each) for each in value), *waiting]
        elif isinstance(value, str):
            named += [(name, each) for each in values(value)]
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
            named.append((name, float(value)))
    return named[:_LOOKED_UP]


def number_marks(asked: str, answer: str, looked_up: Named = ()) -> dict[str, list[str]]:
    """What the answer's numbers show beside the question's, as words that can be counted, by what it is about.

    Args:
        looked_up: what tools gave for this question.

    Returns:
        WRITTEN: how many they are, their decimals and their order; MADE: from what numbers of the question; LARGE: how
        large and how round.  Nothing where the answer has no number.
    """
    given, own = numbers(asked), numbers(answer)
    if not own:
        return {WRITTEN: [], MADE: [], LARGE: []}
    question = [value for value, _ in given]
    made = list(_combinations(question)) if len(question) <= _COMBINED else []
    known = list(_of_tools(question, looked_up))
    marks: dict[str, list[str]] = {WRITTEN: [f"numbers {_few(len(own))}"], MADE: [], LARGE: []}
    for value, decimals in own:
        marks[WRITTEN].append(f"decimals {min(decimals, 3)}")
        marks[LARGE] += [f"size {_size(value)}", _roundness(value)]
        marks[MADE] += _origins(value, decimals, question, made, known)
        if question:
            low, high = min(question), max(question)
            marks[LARGE].append("below" if value < low else "above" if value > high else "between")
    marks[WRITTEN] += _in_order([value for value, _ in own])
    marks[MADE] += _among([value for value, _ in own], question)
    return marks


def _few(count: int) -> str:
    return str(count) if count < 6 else "many" if count < 12 else "very many"


def _size(value: float) -> str:
    return "0" if value == 0 else f"{'-' if value < 0 else ''}{math.floor(math.log10(abs(value)))}"


def _roundness(value: float) -> str:
    if value != round(value):
        return "broken"
    return next((f"round {step}" for step in (100, 10, 5, 2) if value % step == 0), "odd")


def _origins(value: float, decimals: int, question: Sequence[float], made: Named, known: Named) -> list[str]:
    """Where the number comes from: what tools gave, in as many ways as fit, else from the question alone."""
    half = 0.5 * 10**-decimals * (1 + 1e-9)
    fits = dict.fromkeys(name for name, each in known if abs(value - each) <= (half if decimals else 1e-9))
    return list(fits) or [_origin(value, decimals, question, made)]


def _of_tools(question: Sequence[float], looked_up: Named) -> Iterator[tuple[str, float]]:
    """What tools gave, and what comes of it with a number of the question."""
    for name, value in looked_up:
        yield name, value
        for number in question[:_COMBINED]:
            yield f"{name} times", value * number
            yield f"{name} and", value + number
            yield f"{name} less", abs(value - number)
            if number:
                yield f"{name} by", value / number


def _origin(value: float, decimals: int, question: Sequence[float], made: Sequence[tuple[str, float]]) -> str:
    """Where the number comes from."""
    if any(math.isclose(value, each) for each in question):
        return "asked"
    how = next((name for name, each in made if math.isclose(value, each, rel_tol=1e-9)), None)
    if how is not None:
        return how
    half = 0.5 * 10**-decimals
    return next((f"{name}, rounded" for name, each in made if abs(value - each) <= half), "from elsewhere")


def _combinations(question: Sequence[float]) -> Iterator[tuple[str, float]]:
    """What may be computed from the question's numbers, the simplest first."""
    if len(question) > 2:
        yield "the sum of all", math.fsum(question)
        yield "the mean of all", math.fsum(question) / len(question)
    for one, other in combinations(question, 2):
        yield "a sum", one + other
        yield "a difference", abs(one - other)
        yield "a product", one * other
        for up, down in ((one, other), (other, one)):
            if down:
                yield "a quotient", up / down
    for one, other, third in permutations(question, 3):
        if one < other and third:  # each pair of factors once
            yield "a rule of three", one * other / third
        yield "a product and a sum", one * other + third


def _in_order(own: Sequence[float]) -> list[str]:
    """What several numbers show as a list."""
    if len(own) < 2:
        return []
    steps = [later - earlier for earlier, later in pairwise(own)]
    rising, falling = all(step >= 0 for step in steps), all(step <= 0 for step in steps)
    marks = ["rising" if rising else "falling" if falling else "in no order"]
    marks.append("one twice" if len({*own}) < len(own) else "all different")
    if len({round(step, 9) for step in steps}) == 1 and len(steps) > 1:
        marks.append("even steps")
    if math.isclose(own[-1], math.fsum(own[:-1])) and len(own) > 2:
        marks.append("ends with the sum")
    return marks * 2


def _among(own: Sequence[float], question: Sequence[float]) -> list[str]:
    """How the numbers lie among the question's."""
    if len(own) < 2 and len(question) < 2:
        return []
    marks = ["more" if len(own) > len(question) else "fewer" if len(own) < len(question) else "as many"]
    if {*own} <= {*question}:
        marks.append("the asked ones" if {*own} == {*question} else "some of the asked ones")
    return marks * 2
