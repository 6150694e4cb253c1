"""Twelve kinds of questions, of which every seed draws some, with what is right; seen by the test alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

THINGS = (
    "passport", "parking permit", "dog licence", "market stall", "fishing card", "birth certificate", "house number",
    "street party", "bonfire", "allotment", "library card", "bus pass", "marriage", "scaffold", "shop sign",
)  # fmt: skip
LONGEST = 40
"""Words of a right answer, at most."""


@dataclass(frozen=True)
class Kind:
    """Questions of one kind."""

    asked: tuple[str, ...]
    good: Callable[[str], str]
    bad: Callable[[str], str]
    rules: tuple[str, ...]
    """Wordings of the rule that it needs."""
    obeyed: str
    """Pattern of a prompt that has the rule."""

    def sign(self) -> str:
        """What its questions have and no others have."""
        return self.asked[0].partition("{")[0].strip() or self.asked[0].partition("}")[2].strip(" ?")


def number(kind: str, thing: str, below: int) -> int:
    """The same one for the same thing."""
    return int.from_bytes(hashlib.sha256(f"{kind}|{thing}".encode()).digest()[:4]) % below


def _fee(thing: str) -> int:
    return 500 + number("fee", thing, 9000)


KINDS = {
    "fee": Kind(
        ("What is the fee of a {}?", "Fee of a {}, please?"),
        lambda thing: f"A {thing} costs {_fee(thing) / 100:.2f} euros.",
        lambda thing: f"A {thing} costs about {round(_fee(thing), -2) // 100}.",
        (
            "State fees in euros with two decimals.",
            "Give the exact fee, two decimals and the currency euros included.",
        ),
        r"two decimals",
    ),
    "hours": Kind(
        ("When is the counter open for a {}?",),
        lambda thing: f"The counter is open from {7 + number('hours', thing, 4)}:30 to 16:00.",
        lambda thing: "The counter is open in the mornings and sometimes later.",
        (
            "Give opening hours as times of day, from and to.",
            "Where opening is asked for, name both times of day.",
        ),
        r"times of day",
    ),
    "form": Kind(
        ("Which form is needed, if it is about a {}?",),
        lambda thing: f"Form {chr(65 + number('form', thing, 20))}-{100 + number('form', thing, 800)}.",
        lambda thing: "The usual form, which lies at the counter.",
        ("Name the number of the form.", "If a form is needed, say its letter and number of the form."),
        r"number of the form",
    ),
    "deadline": Kind(
        ("By when do I have to apply for a {}?", "By when must papers for a {} be here?"),
        lambda thing: f"By {1 + number('deadline', thing, 28)} March 2027.",
        lambda thing: "Some weeks before you need it.",
        ("State deadlines as an exact date with the year.", "Deadlines need the exact date."),
        r"exact date",
    ),
    "steps": Kind(
        ("How can I get a {}?",),
        lambda thing: (
            f"1. fill in the form for the {thing}. 2. pay {number('steps', thing, 50)} euros. "
            "3. wait for the letter."
        ),
        lambda thing: f"You fill in the form for the {thing}.",
        (
            "Where somebody asks how to get something, answer in numbered steps.",
            "How-to questions get numbered steps.",
        ),
        r"numbered steps",
    ),
    "phone": Kind(
        ("Who can be called about a {}?",),
        lambda thing: f"The {thing} office: 0800 {1000 + number('phone', thing, 9000)}.",
        lambda thing: f"The {thing} office will be glad to talk to you.",
        (
            "Give the telephone number of the office.",
            "If somebody wants to call, the telephone number must be there.",
        ),
        r"telephone number",
    ),
    "room": Kind(
        ("Where is the desk for a {}?",),
        lambda thing: f"Second floor, room {10 + number('room', thing, 80)}.",
        lambda thing: "On the second floor, just follow the signs.",
        (
            "Name the floor and the room.",
            "To questions where something is, answer with the floor and the room.",
        ),
        r"the room",
    ),
    "unknown": Kind(
        ("Will a {} be cheaper next year?",),
        lambda thing: "I do not know.",
        lambda thing: "It will surely be cheaper.",
        (
            "About the future, and only there, say that you do not know.",
            "Only where nothing is settled, admit: I do not know.",
        ),
        r"do not know",
    ),
    "allowed": Kind(
        ("Is a {} allowed on a Sunday?",),
        lambda thing: ("Yes.", "No.")[number("allowed", thing, 2)],
        lambda thing: (
            f"{('Yes', 'No')[number('allowed', thing, 2)]}, and thank you for asking, since many people "
            "ask us "
            "about this and we are always very happy to explain how the town came to have these rules, which go back "
            "to the days of our grandparents and were written down on a large sheet of paper in the old hall."
        ),
        (
            "Answer only yes or no where one asks whether a thing is allowed.",
            "Only to questions about what is allowed: yes or no, no more.",
        ),
        r"yes or no",
    ),
    "law": Kind(
        ("What does the by-law say of a {}?",),
        lambda thing: f"It needs the consent of the council (section {2 + number('law', thing, 60)}).",
        lambda thing: "It needs the consent of the council.",
        ("Quote by-laws with the section.", "When the by-law is asked for, add the section in brackets."),
        r"the section",
    ),
    "bring": Kind(
        ("What shall I bring along for a {}?",),
        lambda thing: f"- an identity card\n- a photo\n- {2 + number('bring', thing, 7)} copies",
        lambda thing: "Bring an identity card and the other things.",
        (
            "What people shall bring along is written as a list with dashes.",
            "Write a list with dashes, complete, of what to bring.",
        ),
        r"list with dashes",
    ),
    "state": Kind(
        ("How far is my request for a {}?",),
        lambda thing: (
            f"Your request for a {thing} is "
            f"{('granted', 'refused', 'with the mayor')[number('state', thing, 3)]}."
        ),
        lambda thing: "Somebody is looking at it.",
        (
            "Say the state of a request: granted, refused or with whom it is.",
            "For requests name their state.",
        ),
        r"state\b.*|their state",
    ),
}


def kind_of(question: str) -> tuple[str, str]:
    """The kind of a question, and what it is about."""
    for name, kind in KINDS.items():
        for asked in kind.asked:
            if match := re.fullmatch(re.escape(asked).replace(r"\{\}", "(.*)"), question):
                return name, match[1]
    return "", ""


def right(question: str, answer: str) -> bool:
    """True if the answer says what this kind of question needs, and is not too long."""
    name, thing = kind_of(question)
    return bool(name) and KINDS[name].good(thing) in answer and len(answer.split()) <= LONGEST
