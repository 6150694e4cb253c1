"""Clerk, a scripted model that is as good as its prompt, and that proposes prompts as a model would: often badly.

It sorts letters of customers into departments.  Under a prompt that says nothing it guesses; each rule of the house
that the prompt states is followed.  The rules interact (one goes before the others, and only if the prompt says so),
a long prompt loses its last rules, some answers are noise, and an answer is wordy until the prompt asks for the
department alone.  Asked for a better prompt, by whoever's request, it knows only the letters in that request, and
proposes something useless or harmful as often as `useless` says.

For tests and benchmarks of whatever improves prompts; `ScriptedModel(Clerk())` and `ScriptedServer(Clerk())` play it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ...types import Json, digest
from ..base import ModelRequest, text_of

DEPARTMENTS = ("billing", "shipping", "returns", "technical", "legal")
_LETTER = re.compile(r"Letter \d+: [^\n]*?\(end\)")
_FENCE = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_COUNT = re.compile(r"write (\d+) new versions")
_USELESS = (
    "Be friendly, and read the letter with care.",
    "Think step by step before you answer.",
    "Take the point of view of an experienced colleague.",
)
_HARMFUL = (
    "If a letter is not clear, answer technical.",
    "Prefer billing, for most letters are about money.",
    "Answer with a full sentence that quotes the letter.",
)


@dataclass(frozen=True, slots=True)
class HouseRule:
    """One rule of the house."""

    department: str
    phrases: tuple[str, ...]
    """Of letters that it is about."""
    word: str
    """That a prompt must hold, in one line with the department, to state it."""
    text: str
    """As the proposer states it."""


RULES = (
    HouseRule(
        "billing",
        ("was charged twice", "the invoice is too high"),
        "charge",
        "Charges and invoices go to billing.",
    ),
    HouseRule(
        "shipping",
        ("has not arrived", "the parcel is late"),
        "parcel",
        "A parcel that is late or lost goes to shipping.",
    ),
    HouseRule(
        "returns",
        ("want to send it back", "it does not fit"),
        "send back",
        "Who wants to send back: returns.",
    ),
    HouseRule(
        "technical",
        ("does not switch on", "shows an error"),
        "error",
        "An error or a defect goes to technical.",
    ),
    HouseRule(
        "legal",
        ("my lawyer", "see you in court"),
        "lawyer",
        "A lawyer or a court goes to legal, before every other rule.",
    ),
)
_THINGS = (
    "kettle",
    "lamp",
    "phone",
    "jacket",
    "camera",
    "drill",
    "radio",
    "bicycle",
    "printer",
    "tent",
    "clock",
)
_OPENINGS = ("Good morning", "To whom it may concern", "Hello", "Dear all", "I write again", "Please help")
_CLOSINGS = (
    "Thank you",
    "I wait for your answer",
    "Kind regards",
    "This is urgent",
    "Many greetings",
    "Yours",
)
_PLACES = (
    "Bern",
    "Lyon",
    "Turin",
    "Graz",
    "Ghent",
    "Porto",
    "Malmö",
    "Leeds",
    "Split",
    "Cork",
    "Brno",
    "Riga",
)


class Clerk:
    """A script for `ScriptedModel` and `ScriptedServer`.

    Args:
        seed: of its noise and of what it proposes.
        noise: share of answers that are wrong whatever the prompt says.
        useless: share of its proposals that help nothing or do harm.
        longest: characters of a prompt from which on its last rules are lost.
    """

    prompt = "You sort letters of customers. Name the department that answers the letter.\n"
    """The prompt to begin with."""

    def __init__(
        self, seed: int = 0, *, noise: float = 0.03, useless: float = 0.5, longest: int = 1500
    ) -> None:
        self.seed, self.noise, self.useless, self.longest = seed, noise, useless, longest
        self.answered = self.proposed = 0

    def rows(
        self, count: int, *, people: int | None = None, seed: int = 0, threats: float = 0.2
    ) -> list[dict[str, Json]]:
        """Letters with their departments: `question`, `answer` and `customer`.

        Args:
            threats: share of the letters that also threaten, and then the department is another.
        """
        rng = random.Random(f"letters:{seed}")
        rows: list[dict[str, Json]] = []
        for number in range(count):
            rule = RULES[number % 4]
            parts = [
                f"{rng.choice(_OPENINGS)} from {rng.choice(_PLACES)}",
                f"my {rng.choice(_THINGS)} number {rng.randrange(10_000)}",
                rng.choice(rule.phrases),
            ]
            legal = rng.random() < threats
            parts += [rng.choice(RULES[4].phrases)] * legal + [rng.choice(_CLOSINGS)]
            rows.append(
                {
                    "question": f"Letter {number}: {'; '.join(parts)} (end)",
                    "answer": "legal" if legal else rule.department,
                    "customer": f"person {rng.randrange(people or count)}",
                }
            )
        return rows

    def __call__(self, request: ModelRequest) -> str:
        """A better prompt if the request has one in a fence, else the department of the last letter."""
        text = "\n".join(text_of(message) for message in request.messages)
        letters = _LETTER.findall(text)
        if "```" in text:
            self.proposed += 1
            return self._proposal(text, letters)
        self.answered += 1
        letter = letters[-1] if letters else text
        prompt = text.replace(letter, "")
        label = self._label(prompt, letter)
        return label if "only" in prompt.casefold() else f"I would say that {label} answers this."

    def stated(self, prompt: str) -> list[HouseRule]:
        """The rules of the house that a prompt states and this clerk still knows at its end."""
        stated = [
            rule
            for rule in RULES
            if any(rule.word in line and rule.department in line for line in prompt.casefold().splitlines())
        ]
        lost = max(0, len(prompt) - self.longest) // 300
        return stated[: max(0, len(stated) - lost)]

    def _label(self, prompt: str, letter: str) -> str:
        chance = self._drawn("answer", prompt, letter)
        if chance.random() < self.noise:
            return chance.choice(DEPARTMENTS)
        rules = [rule for rule in self.stated(prompt) if any(phrase in letter for phrase in rule.phrases)]
        first = [rule for rule in rules if rule.department == "legal" and "before" in prompt]
        for harm, label in zip(_HARMFUL[:2], ("technical", "billing"), strict=True):
            if harm in prompt and self._drawn(harm, letter).random() < 0.5:
                return label
        if rules:
            return (first or rules)[0].department
        # Without a rule it guesses, the same for the same letter.
        return self._drawn("guess", letter).choice(DEPARTMENTS)

    def _proposal(self, text: str, letters: list[str]) -> str:
        fences = _FENCE.findall(text)
        prompt = fences[0] if fences else self.prompt
        known = set(self.stated(prompt))
        # From the request alone: a rule that no letter in it shows cannot be thought of.
        new = [
            rule for rule in RULES if rule not in known and any(p in "\n".join(letters) for p in rule.phrases)
        ]
        wanted = _COUNT.search(text)
        chance = self._drawn("proposal", text)
        answers = []
        for _ in range(int(wanted[1]) if wanted else 1):
            bad = chance.random() < self.useless or not new
            added = chance.choice(_USELESS + _HARMFUL) if bad else new.pop(chance.randrange(len(new))).text
            answers.append(f"```\n{prompt.rstrip()}\n- {added}\n```")
        return "CAUSE: the prompt does not say which department answers what.\n\n" + "\n\n".join(answers)

    def _drawn(self, *parts: str) -> random.Random:
        return random.Random(digest([self.seed, *parts]))
