"""What a change of a prompt may reword, and what it may not change."""

from __future__ import annotations

import pytest

from whet.learn.evolution.repair.same_answer import says_the_same

LIKED = "Order X-104 is on its way and will arrive in 2 days."


@pytest.mark.parametrize(
    ("answer", "liked", "same"),
    [
        (LIKED, LIKED, True),
        (f"Thank you for asking! {LIKED.lower()}", LIKED, True),
        ("Your order X-104 is on its way: it will arrive within 2 days.", LIKED, True),
        ("Your order X-104 is on its way: it will arrive within 4 days.", LIKED, False),
        ("Your order is on its way and will arrive soon.", LIKED, False),
        ("Certainly.", LIKED, False),
        ("", LIKED, False),
        ("I am sorry, order X-104 will arrive in 2 days.", LIKED, False),
        ("It isn't in stock.", "It is in stock.", False),
        ("We have 1,250.50 litres of it here.", "There are 1250.5 litres of it here.", True),
        ("billing", "shipping", False),
        ("Billing", "billing", True),
    ],
)
def test_what_people_would_miss_decides(answer: str, liked: str, same: bool) -> None:
    assert says_the_same(answer, liked) is same
