"""Values in a request that could be arguments: numbers, quoted texts, names, lists, dates, yes and no."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["int", "float", "text", "name", "date", "bool", "ints", "floats", "texts"]
KINDS: tuple[Kind, ...] = ("int", "float", "text", "name", "date", "bool", "ints", "floats", "texts")

_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?"
_QUOTED = r"(?<!\w)'[^']+'(?!\w)|\"[^\"]+\""
_NAME = r"[A-Z][\w&.-]*\w(?:,? (?:of |de |la )?[A-Z][\w&.-]*\w)*|[A-Z]{2,}"
_MANY = r"(?:{0})(?:, (?:{0}))*,? and (?:{0})|\[(?:{0})(?:, ?(?:{0}))*\]"
# The first alternative that fits wins: a date before the numbers in it, a list before its first member.
_PATTERN = re.compile(
    "|".join(
        (
            r"(?P<date>\d{4}-\d\d-\d\d)",
            rf"(?P<numbers>{_MANY.format(_NUMBER)})",
            rf"(?P<texts>{_MANY.format(_QUOTED)})",
            rf"(?P<text>{_QUOTED})",
            rf"(?P<number>(?<![\w.]){_NUMBER})",
            r"(?P<bool>\b(?:true|false|yes|no)\b)",
            rf"(?P<name>{_NAME})",
        )
    )
)
_OPENING = frozenset(
    re.findall(
        r"\w+",
        "please can could what how i find get calculate compute book tell show give which who when where is are the "
        "for in of if help determine convert a an my me also and then play order make",
    )
)


@dataclass(frozen=True, slots=True)
class Value:
    """Something that a request names."""

    kind: Kind
    value: Any
    start: int
    end: int


def values_of(text: str) -> list[Value]:
    """The values in a text, in its order."""
    values = []
    for match in _PATTERN.finditer(text):
        kind, named, start = match.lastgroup or "", match.group(), match.start()
        if kind == "name":
            words = named.split()
            while words and words[0].lower().strip(",") in _OPENING:  # a sentence begins, no name
                start += len(words[0]) + 1
                words = words[1:]
            if not words or (start == 0 and len(words) == 1):  # a verb begins the request
                continue
            named = " ".join(words)
        values.append(_value(kind, named, start, match.end()))
    return values


def _value(kind: str, text: str, start: int, end: int) -> Value:
    if kind == "numbers":
        numbers = [_number(number_text) for number_text in re.findall(_NUMBER, text)]
        integral = all(isinstance(number, int) for number in numbers)
        return Value("ints" if integral else "floats", numbers, start, end)
    if kind == "texts":
        return Value("texts", [quoted[1:-1] for quoted in re.findall(_QUOTED, text)], start, end)
    if kind == "number":
        number = _number(text)
        return Value("int" if isinstance(number, int) else "float", number, start, end)
    if kind == "bool":
        return Value("bool", text in ("true", "yes"), start, end)
    if kind == "text":
        return Value("text", text[1:-1], start, end)
    return Value("date" if kind == "date" else "name", text, start, end)


def _number(text: str) -> int | float:
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)
