"""What an answer's numbers show: read as people write them, and as JSON has them."""

from __future__ import annotations

import pytest

from whet.judge.numbers import LARGE, MADE, WRITTEN, named_numbers, number_marks, values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,200 at 2.50, or -3", (1200.0, 2.5, -3.0)),
        ("[1,200]", (1.0, 200.0)),
        ("80,75,77", (80.0, 75.0, 77.0)),
        ("1,5 kg", (1.5,)),
        ("2024-05-01", (2024.0, 5.0, 1.0)),
        ("order P100, from 192.168.0.1", (100.0,)),
        ("between 10-20", (10.0, 20.0)),
        ("none", ()),
        ('{"net":12.00,"all":[3,4]}', (12.0, 3.0, 4.0)),
    ],
)
def test_numbers_are_read(text: str, found: tuple[float, ...]) -> None:
    assert values(text) == found


def test_marks_tell_where_numbers_come_from_and_how_they_are_written() -> None:
    shared = number_marks("Share 90 hours among 3.", "[30, 30, 30]")
    assert "a quotient" in shared[MADE]
    assert {"numbers 3", "one twice"} <= {*shared[WRITTEN]}
    price = number_marks("What do 3 lamps at 4.50 come to?", "13.50 EUR")
    assert price[MADE][0] == "a product"
    assert "decimals 2" in price[WRITTEN]
    rounded = number_marks("How many metres are 7 parts of 22?", "3.1")
    assert rounded[MADE][0] == "a quotient, rounded"
    assert "round 100" in number_marks("How far?", "400 km")[LARGE]
    assert "rising" in number_marks("Which?", "2, 5 and 9")[WRITTEN]
    assert "in no order" in number_marks("Which?", "5, 2 and 9")[WRITTEN]
    assert number_marks("Why?", "I do not know.") == {WRITTEN: [], MADE: [], LARGE: []}


def test_what_a_tool_gave_is_told_by_the_name_that_it_stands_under() -> None:
    found = named_numbers("look_up", {"net": 12.5, "stock": 8, "sold": True, "sizes": ["3 cm", 4]})
    assert found == [
        ("look_up net", 12.5),
        ("look_up stock", 8.0),
        ("look_up sizes", 3.0),
        ("look_up sizes", 4.0),
    ]
    assert number_marks("How many bearings?", "We have 8.", found)[MADE] == ["look_up stock"]
    assert number_marks("What do 3 of them cost?", "37.50 euros", found)[MADE][0] == "look_up net times"
    assert number_marks("What do 3 of them cost?", "50 euros", found)[MADE][0] == "from elsewhere"
