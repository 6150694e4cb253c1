"""What a reader needs, which only the test knows: neither the agent nor whet is shown this file."""

from __future__ import annotations

import re

BOOKS = {
    "The Ferryman's Ledger": ("Harbour", "F 212"),
    "Bread from Seven Valleys": ("Mill Lane", "K 41"),
    "A Short History of Salt": ("Central", "G 930"),
    "The Owl in the Observatory": ("Harbour", "J 77"),
    "Knots and Splices": ("Central", "T 608"),
    "Winter Light": ("Mill Lane", "F 350"),
    "The Beekeeper's Year": ("Central", "N 512"),
    "Maps of the Low Country": ("Harbour", "G 118"),
    "Twelve Clockmakers": ("Mill Lane", "T 681"),
    "Under the Rowan": ("Central", "F 87"),
    "Rivers and Their Mills": ("Harbour", "T 532"),
    "The Winter Garden": ("Mill Lane", "N 305"),
}
RENEWED = {
    "3 March": "24 March",
    "6 March": "27 March",
    "9 March": "30 March",
    "2 June": "23 June",
    "5 June": "26 June",
    "8 June": "29 June",
    "1 October": "22 October",
    "7 October": "28 October",
    "4 July": "25 July",
    "9 July": "30 July",
    "2 April": "23 April",
    "8 April": "29 April",
}
"""Due date → that after a renewal of three weeks."""
FINES = {days: f"{days * 0.35:.2f}" for days in (2, 3, 4, 5, 7, 8, 11, 12, 14, 16, 19, 23)}
"""Days late → euros."""
ELSEWHERE = (
    "how I contest a parking ticket",
    "which visa I need for Peru",
    "whether this mole should be seen by a doctor",
    "how to divide 84 by 0.7 for my homework",
    "who owned the old brewery in 1910",
    "which pension scheme suits a nurse",
)
LONGEST = 50
"""Words of a right answer, at most."""


def right(question: str, answer: str) -> bool:
    """True if this answer is what the reader needs."""
    if len(answer.split()) > LONGEST:
        return False
    if due := re.search(r"due (?:back )?on (\d+ \w+)", question):
        return re.search(rf"(?<!\d){RENEWED[due[1]]}\b", answer) is not None
    if late := re.search(r"(\d+) days", question):
        return re.search(rf"(?<![\d.]){re.escape(FINES[int(late[1])])}(?!\d)", answer) is not None
    if any(topic in question for topic in ELSEWHERE):
        return "reference desk" in answer.lower()
    branch, shelf = next(place for title, place in BOOKS.items() if title in question)
    return branch in answer and shelf in answer and "reference desk" not in answer.lower()
