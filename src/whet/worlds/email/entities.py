"""The checkable values in a mail: phone numbers, dollar amounts and full dates, and who, when and what.

`extract` normalises, so that equal values are equal strings; `same` compares
what an agent answered, in whatever common form, with a normalised value.
Numbers are read as they are written in North America (month before day,
ten-digit phones).  Nothing is inferred: "next Tuesday" is not a date, "a few
thousand" not an amount.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from ...errors import InputError
from .parse import Mail

Kind = Literal["phone", "amount", "date", "date_sent", "sender", "subject"]

BODY_KINDS: tuple[Kind, ...] = ("phone", "amount", "date")
"""Kinds whose value stands in the text that the sender wrote."""
KINDS: tuple[Kind, ...] = (*BODY_KINDS, "date_sent", "sender", "subject")

MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?" \
         r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"  # fmt: skip
_PHONE = re.compile(
    r"(?<![\w$#./-])(?:"
    r"(?:\+?1[-. ]?)?(?:\(\d{3}\)[-. ]{0,2}|\d{3}[-./ ])\d{3}[-. ]\d{4}"
    r"|\+(?!1\D?\d{3}\D)\d{1,3}(?:[-. ]?\(?\d{1,4}\)?){2,5}"
    r"|\d{3}-\d{4}"
    r")(?![-/.]?\d|\w)"
)
_AMOUNT = re.compile(
    r"(?<![\w$])(?:US)?\$[ ]?(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[ -]?(million|billion|thousand|mm|bn|m|b|k)\b)?(?!,?\d)",
    re.IGNORECASE,
)
_WORDED_AMOUNT = re.compile(
    r"(?<![\w$.,])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"(?:[ -]?(million|billion|thousand|mm|bn|m|b|k))?(?:[ ](?:US[ ])?(?:dollars|usd))?(?![\w]|[.,]\d)",
    re.IGNORECASE,
)
_TIMES = {"k": 3, "thousand": 3, "m": 6, "mm": 6, "million": 6, "b": 9, "bn": 9, "billion": 9}
_DATES = re.compile(
    rf"(?<![\w/.-])(?:(?P<m1>{_MONTH})\s?,?\s{{1,3}}(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s?,?\s{{1,3}}(?P<y1>(?:19|20)\d\d)"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?:\s{{1,3}}of)?[\s-]{{1,3}}(?P<m2>{_MONTH})[\s,-]{{1,3}}(?P<y2>(?:19|20)\d\d)"
    r"|(?P<y3>(?:19|20)\d\d)-(?P<m3>\d\d)-(?P<d3>\d\d)"
    r"|(?P<m4>\d{1,2})(?P<s4>[/.-])(?P<d4>\d{1,2})(?P=s4)(?P<y4>(?:19|20)\d\d|\d\d)"
    r")(?![\w/-]|\.\d)",
    re.IGNORECASE,
)
_ATTACHED = re.compile(r"<<[^<>\n]{1,120}(?:\n[^<>\n]{0,120})?>>|^ - \S[^\n]{0,90}\.\w{2,4} *$", re.MULTILINE)
_DIGITS = re.compile(r"\d(?:[-. ()/]{0,2}\d){6,14}")
_REPLY = re.compile(r"^\s*(?:(?:re|fw|fwd|aw|wg|sv)\s*(?:\[\d+\])?\s*:\s*)+", re.IGNORECASE)


def extract(kind: Kind, mail: Mail) -> list[str]:
    """The normalised distinct values of a kind in a mail, in the order in which they stand.

    Phone, amount and date are sought in the text that the sender wrote (`mail.own`).
    Forms: phone `7138531234`, amount `1500000` or `5.17`, dates `2001-03-05`, sender
    `Full Name <address>`, subject without Re:/Fw:. `date_sent` is the day in the sender's zone.

    Raises:
        InputError: no such kind.
    """
    if kind in BODY_KINDS:
        return find(kind, mail.own)
    if kind == "date_sent":
        return [mail.date.date().isoformat()] if mail.date else []
    if kind == "sender":
        if not mail.sender:
            return []
        return [f"{mail.sender_name} <{mail.sender}>" if mail.sender_name else mail.sender]
    if kind == "subject":
        plain = plain_subject(mail.subject)
        return [plain] if plain else []
    raise InputError(f"kind is {kind!r}; it can be one of {', '.join(KINDS)}")


def find(kind: Kind, text: str) -> list[str]:
    """The normalised distinct phones, amounts or dates of a text."""
    return [value for value, _ in _located(kind, text)]


def located(kind: Kind, text: str) -> list[tuple[str, int]]:
    """As `find`, each with the offset at which it first stands."""
    return list(_located(kind, text))


@lru_cache(maxsize=32_768)  # the same mails are read again and again, by every rollout
def _located(kind: Kind, text: str) -> tuple[tuple[str, int], ...]:
    offsets: dict[str, int] = {}
    if "<<" in text or "\n - " in text:
        # File names hold numbers and dates that nobody wrote to be read; blanks keep the offsets.
        text = _ATTACHED.sub(lambda match: " " * len(match[0]), text)
    if kind == "phone":
        # Most texts hold no digit group that could be one; these tests cost less than the patterns.
        if "-" in text or "." in text or "(" in text or "+" in text or "/" in text:
            for match in _PHONE.finditer(text):
                offsets.setdefault(_digits(match[0]), match.start())
    elif kind == "amount":
        if "$" in text:
            for match in _AMOUNT.finditer(text):
                offsets.setdefault(_money(match[1], match[2]), match.start())
    elif kind == "date":
        for match in _DATES.finditer(text):
            day = _day(match)
            if day:
                offsets.setdefault(day.isoformat(), match.start())
    else:
        raise InputError(f"{kind!r} is not sought in text; {', '.join(BODY_KINDS)} are")
    return tuple(offsets.items())


def same(kind: Kind, answer: str, expected: str) -> bool:
    """True if an answer, in any common form and perhaps in a sentence, is the expected value.

    An answer that names several different values is not the same as any of them.

    Args:
        answer: as the agent wrote it: `(713) 853-1234`, `$1.5 million`, `5 March 2001`, `It was Jane Doe.`
        expected: as `extract` gives it.

    Raises:
        InputError: no such kind.
    """
    if kind == "phone":
        # A bare run of digits is no phone number in a mail, but it is one in an answer.
        values = find("phone", answer) or list(dict.fromkeys(map(_digits, _DIGITS.findall(answer))))
        return values == [expected]
    if kind == "amount":
        values = find("amount", answer) or _worded(answer)
        return len(values) == 1 and Decimal(values[0]) == Decimal(expected)
    if kind in ("date", "date_sent"):
        return find("date", answer) == [expected]
    if kind == "sender":
        return _same_person(answer, expected)
    if kind == "subject":
        quoted = re.findall(r"[\"“]([^\"“”]+)[\"”]", answer)
        return _folded(expected) in {_folded(form) for form in (answer, answer.strip(" '\"“”."), *quoted)}
    raise InputError(f"kind is {kind!r}; it can be one of {', '.join(KINDS)}")


def plain_subject(subject: str) -> str:
    """The subject without Re:, Fw: and the like."""
    return _REPLY.sub("", subject).strip()


def _digits(text: str) -> str:
    digits = re.sub(r"\D", "", text)
    return digits[1:] if len(digits) == 11 and digits[0] == "1" else digits


def _money(number: str, unit: str | None) -> str:
    value = Decimal(number.replace(",", "")).scaleb(_TIMES.get((unit or "").lower(), 0))
    return f"{value.normalize():f}"


def _worded(text: str) -> list[str]:
    return list(dict.fromkeys(_money(match[1], match[2]) for match in _WORDED_AMOUNT.finditer(text)))


def _day(match: re.Match[str]) -> date | None:
    for form in "1234":
        year, month, day = match[f"y{form}"], match[f"m{form}"], match[f"d{form}"]
        if year is None:
            continue
        months = (
            int(month) if month.isdecimal() else 1 + [name[:3] for name in MONTHS].index(month[:3].lower())
        )
        days, years = int(day), int(year)
        if years < 100:
            years += 1900 if years >= 70 else 2000
        if form == "4" and months > 12:
            months, days = days, months
        try:
            return date(years, months, days)
        except ValueError:
            return None
    return None


def _folded(subject: str) -> str:
    return " ".join(plain_subject(subject).casefold().split())


def _names(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _same_person(answer: str, expected: str) -> bool:
    name, _, address = expected.rpartition("<")
    address = address.rstrip(">").casefold()
    addresses = set(re.findall(r"[\w.+'&/=-]{1,64}@[\w.-]{0,250}\w", answer.casefold()))
    if addresses:
        return addresses == {address}
    name_words = _names(name)
    return len(name_words) > 1 and (
        _holds(_names(answer), name_words) or _holds(_names(answer), [name_words[-1], *name_words[:-1]])
    )


def _holds(words: Sequence[str], run: Sequence[str]) -> bool:
    return any(
        list(words[start : start + len(run)]) == list(run) for start in range(len(words) - len(run) + 1)
    )
