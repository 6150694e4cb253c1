"""Values in mails: what is found, what is not, and what counts as the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import InputError
from whet.worlds.email import Mail, extract, find, plain_subject, same


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("call 713-853-1234.", ["7138531234"]),
        ("(713) 853-1234 or 713.853.1234", ["7138531234"]),
        ("dial 1-800-223-2274", ["8002232274"]),
        ("213 244-3832", ["2132443832"]),
        ("my extension is 853-1234", ["8531234"]),
        ("+44 20 7783 1234", ["442077831234"]),
        ("San Diego 92101-3391", []),
        ("contract 1234-5678-9012-3456, deal 564019, 10-25-2000", []),
        ("paid $713-853", []),
        (" <<Phone 713-853-1234.doc>> ", []),
    ],
)
def test_phone_numbers(text: str, values: list[str]) -> None:
    assert find("phone", text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("$1,500,000 or $1.5 million", ["1500000"]),
        ("$0.03 per Dth", ["0.03"]),
        ("$.50 a day", ["0.5"]),
        ("$25k and $2 billion", ["25000", "2000000000"]),
        ("a $100 fee", ["100"]),
        ("$320 million,", ["320000000"]),
        ("15 million people, 100 dollars", []),
        ("US$40", ["40"]),
    ],
)
def test_amounts(text: str, values: list[str]) -> None:
    assert find("amount", text) == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("on March 5, 2001", ["2001-03-05"]),
        ("due May\n19, 2000.", ["2000-05-19"]),
        ("5th of March 2001; Mar. 5th, 2001", ["2001-03-05"]),
        ("3/5/01, 03/05/2001, 2001-03-05", ["2001-03-05"]),
        ("25/12/2000", ["2000-12-25"]),
        ("31 December 1999", ["1999-12-31"]),
        ("November, 30 2000", ["2000-11-30"]),
        ("February 30, 2001 and 13/13/01", []),
        ("March 5", []),
        ("I.99-07-003 and 12/2001 and 1/2", []),
    ],
)
def test_full_dates(text: str, values: list[str]) -> None:
    assert find("date", text) == values


MAIL = Mail(
    id="1",
    sender="jane.doe@x.org",
    sender_name="Jane Doe",
    date=datetime(2001, 3, 5, 23, tzinfo=UTC),
    subject="Re: FW: Plans",
    body="ours: 713-853-1234\n> theirs: 713-853-9999",
    own="ours: 713-853-1234",
)


def test_extraction_from_a_mail_takes_only_what_the_sender_wrote() -> None:
    assert extract("phone", MAIL) == ["7138531234"]
    assert extract("date_sent", MAIL) == ["2001-03-05"]
    assert extract("sender", MAIL) == ["Jane Doe <jane.doe@x.org>"]
    assert extract("subject", MAIL) == ["Plans"]
    with pytest.raises(InputError, match="it can be one of"):
        extract("colour", MAIL)  # type: ignore[arg-type]


SAME = [
    ("phone", "It is (713) 853-1234.", "7138531234", True),
    ("phone", "+1 713 853 1234", "7138531234", True),
    ("phone", "713 853 1235", "7138531234", False),
    ("phone", "713-853-1234 or 713-853-9999", "7138531234", False),
    ("phone", "no number", "7138531234", False),
    ("amount", "1.5 million dollars", "1500000", True),
    ("amount", "$1,500,000.00", "1500000", True),
    ("amount", "1500000", "1500000", True),
    ("amount", "1.5", "1500000", False),
    ("amount", "$1 or $2", "1", False),
    ("date", "March 5, 2001", "2001-03-05", True),
    ("date", "It is on 5 March 2001.", "2001-03-05", True),
    ("date", "3/5/01", "2001-03-05", True),
    ("date", "March 5", "2001-03-05", False),
    ("date_sent", "March 5, 2001 or March 6, 2001", "2001-03-05", False),
    ("sender", "jane.doe@x.org", "Jane Doe <jane.doe@x.org>", True),
    ("sender", "It was Jane Doe.", "Jane Doe <jane.doe@x.org>", True),
    ("sender", "Doe, Jane", "Jane Doe <jane.doe@x.org>", True),
    ("sender", "Jane", "Jane Doe <jane.doe@x.org>", False),
    ("sender", "john.doe@x.org", "Jane Doe <jane.doe@x.org>", False),
    ("sender", "", "jane.doe@x.org", False),
    ("subject", "RE: plans", "Plans", True),
    ("subject", 'The subject was "Plans".', "Plans", True),
    ("subject", "Planes", "Plans", False),
]


@pytest.mark.parametrize(("kind", "given", "expected", "is_same"), SAME)
def test_answers_in_any_common_form_are_compared_with_the_value(
    kind: Any, given: str, expected: str, is_same: bool
) -> None:
    assert same(kind, given, expected) is is_same


@given(
    st.integers(0, 10**12),
    st.sampled_from(["phone", "amount", "date", "sender", "subject"]),
    st.text(max_size=40),
)
def test_a_value_is_the_same_as_itself_and_no_text_crashes(number: int, kind: Any, text: str) -> None:
    amount = f"{number}"
    assert same("amount", f"${number:,}", amount)
    assert same(kind, text, "2001-03-05" if kind == "date" else "123") in (True, False)


def test_plain_subject_drops_every_reply_mark() -> None:
    assert plain_subject("Re: FW: re[2]: Reports") == "Reports"
    assert plain_subject("Regarding: x") == "Regarding: x"
