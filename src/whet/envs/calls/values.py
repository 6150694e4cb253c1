"""What a request names that could be an argument: numbers, quoted texts, names, lists, dates, yes and no."""

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
    found = []
    for one in _PATTERN.finditer(text):
        kind, said, start = one.lastgroup or "", one.group(), one.start()
        if kind == "name":
            words = said.split()
            while words and words[0].lower().strip(",") in _OPENING:  # a sentence begins, no name
                start += len(words[0]) + 1
                words = words[1:]
            if not words:
                continue
            said = " ".join(words)
        found.append(_value(kind, said, start, one.end()))
    return found


def _value(kind: str, said: str, start: int, end: int) -> Value:
    if kind == "numbers":
        numbers = [_number(one) for one in re.findall(_NUMBER, said)]
        whole = all(isinstance(one, int) for one in numbers)
        return Value("ints" if whole else "floats", numbers, start, end)
    if kind == "texts":
        return Value("texts", [one[1:-1] for one in re.findall(_QUOTED, said)], start, end)
    if kind == "number":
        number = _number(said)
        return Value("int" if isinstance(number, int) else "float", number, start, end)
    if kind == "bool":
        return Value("bool", said in ("true", "yes"), start, end)
    if kind == "text":
        return Value("text", said[1:-1], start, end)
    return Value("date" if kind == "date" else "name", said, start, end)


def _number(said: str) -> int | float:
    plain = said.replace(",", "")
    return float(plain) if "." in plain else int(plain)
