"""The plan: which tools a question needs, in order."""

import re

PERSONAL = re.compile(r"\b(i have|should i|for me|my)\b")
TOOLS = {
    "sales": [
        "price",
        "stock",
        "delivery",
        "discount",
        "convert",
        "weight",
        "card",
        "deposit",
        "place",
        "maker",
    ],
    "orders": ["order", "returns", "cancel", "invoice", "zone"],
    "service": ["warranty", "manual", "hours"],
    "advice": ["frost", "soil", "poison"],
}
"""Desk → the tools that it has."""


def needed(question):
    """The tools that the words of a question ask for."""
    words = question.lower()
    if "delivered to" in words:
        return ["price", "delivery"]
    if "cheaper" in words:
        return ["price", "price"]
    if "percent coupon" in words:
        return ["price", "discount"]
    if "still return" in words:
        return ["order", "returns"]
    if "reach" in words:
        return ["order", "zone"]
    signs = {
        "cancelled": "cancel",
        "order": "order",
        "invoice": "invoice",
        "warranty": "warranty",
        "how do i": "manual",
        "open on": "hours",
        "in stock": "stock",
        "how heavy": "weight",
        "how many": "convert",
        "gift card": "card",
        "voucher": "card",
        "deposit": "deposit",
        "when can i plant": "frost",
        "soil": "soil",
        "poisonous": "poison",
        "cost": "price",
        "which street": "place",
        "room to park": "place",
        "who makes": "maker",
    }
    if "points" in words:
        return []
    return (
        [next(tool for sign, tool in signs.items() if sign in words)]
        if any(s in words for s in signs)
        else []
    )


def plan(question, desk):
    """Those of the needed tools that the desk has."""
    return [tool for tool in needed(question) if tool in TOOLS.get(desk, [])]
