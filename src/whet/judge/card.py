"""Reliability card: what a judge was measured to be on labelled items, and whether its word may promote anything.

Every judge gets one, ours or imported, asked now or recorded: accuracy and kappa with intervals beside the simple rules
that it has to beat, and how far position, length, padding, its own model, an injection and time move it.
`calibration.py` measures; the gate reads `clears`.
"""

from __future__ import annotations

import math
from html import escape

import msgspec

from ..record.store import Store
from ..stats import Interval, wilson
from ..types import digest

PAIRS, MARKS = "pairs", "marks"
FEWEST = 30
"""Labelled items below which no judge is admitted."""
MOST_MISSING = 0.1
"""Share of the items that a judge may leave without a verdict."""
MOST_MOVED = {"injection": 0.05, "padding": 0.1, "drift": 0.1}
"""Bias → share of verdicts that may be moved by it; refused where even the lower bound is above."""


class Bias(msgspec.Struct, frozen=True):
    """How far one thing that should not matter moves a judge."""

    value: float
    interval: Interval
    items: int
    about: str
    """What the value is, in words."""

    @classmethod
    def share(cls, count: float, items: int, about: str) -> Bias:
        """A share of items."""
        return cls(count / items if items else math.nan, wilson(count, items), items, about)


class ReliabilityCard(msgspec.Struct, frozen=True, kw_only=True):
    """What one judge was measured to be, as JSON (`msgspec.json.encode`) and as a badge."""

    judge: str
    evaluator: str
    """The version that was measured; another rubric or model has another."""
    model: str = ""
    settings: dict[str, str | int | bool | list[str]] = {}
    """What the judge was made of, so that a gate can ask the same again."""
    form: str
    """`pairs`: which of two answers is better; `marks`: whether one answer is good."""
    kinds: dict[str, float]
    """Kind of task → accuracy: what it was calibrated on."""
    items: int
    missing: int = 0
    """Items without a verdict: the judge failed, or gave none that could be read."""
    accuracy: float
    accuracy_interval: Interval
    kappa: float
    kappa_interval: Interval
    threshold: float | None = None
    """Of marks: the value from which on an answer counts as good."""
    rules: dict[str, float]
    """Simple rule → its accuracy on the same items."""
    margins: dict[str, Interval]
    """Simple rule → 95 % interval of the share of items by which the judge beats it."""
    biases: dict[str, Bias]
    """position, length, padding, self-preference, injection, drift: as far as the items allow."""
    verdicts: dict[str, float]
    """Item → verdict: what a later card tells drift by."""
    tokens: int = 0
    dollars: float = 0.0
    """What measuring it cost."""

    @property
    def admitted(self) -> bool:
        """True if its verdicts may promote at a gate."""
        return not self.reasons

    @property
    def reasons(self) -> list[str]:
        """Why it may not; empty if it may."""
        reasons = []
        if self.items < FEWEST:
            reasons.append(f"it was measured on {self.items} labelled items, and {FEWEST} are needed")
        if self.missing > MOST_MISSING * (self.items + self.missing):
            reasons.append(f"{self.missing} of {self.items + self.missing} items got no verdict")
        for rule, (low, high) in self.margins.items():
            if low <= 0:
                reasons.append(
                    f"it is not right more often, beyond chance, than {rule}: {(low + high) / 2:+.0%} of the items "
                    f"[{low:+.0%}, {high:+.0%}]"
                )
        position = self.biases.get("position")
        if position is not None and position.interval[1] < 0.5:
            reasons.append(f"it contradicts itself on most pairs when they swap places: {position.about}")
        return [*reasons, *self.moved]

    @property
    def moved(self) -> list[str]:
        """What should not move its verdicts, and does."""
        return [
            f"{name} moves it: {bias.value:.0%} of {bias.items} verdicts ({bias.about})"
            for name, most in MOST_MOVED.items()
            if (bias := self.biases.get(name)) is not None and bias.interval[0] > most
        ]

    @property
    def refusal(self) -> str:
        """Why it may not promote, and what would clear it; "" if it may."""
        if self.admitted:
            return ""
        return f"{self.judge} may steer and not promote: {'; '.join(self.reasons)}. {self._cure}"

    @property
    def _cure(self) -> str:
        if self.items < FEWEST:
            return f"Label {FEWEST - self.items} more items and audit it again."
        return "Change its rubric or its model and audit it again, or decide by another reward."

    def clears(self, evaluator: str, form: str) -> bool:
        """True if this card is of that version, measured it in that form, and admits it."""
        return (self.evaluator, self.form) == (evaluator, form) and self.admitted

    def lines(self) -> list[str]:
        """The card as text."""
        low, high = self.accuracy_interval
        lines = [
            f"{self.judge}{f' ({self.model})' if self.model else ''} {self.evaluator}, {self.form}",
            f"  accuracy        {self.accuracy:.3f} [{low:.3f}, {high:.3f}] on {self.items} labelled items, "
            f"{self.missing} without a verdict",
            f"  kappa           {self.kappa:.3f} [{self.kappa_interval[0]:.3f}, {self.kappa_interval[1]:.3f}]",
        ]
        lines += [f"  beside          {accuracy:.3f} by {rule}" for rule, accuracy in self.rules.items()]
        if len(self.kinds) > 1:
            lines += [f"  kind            {accuracy:.3f} of {kind}" for kind, accuracy in self.kinds.items()]
        for name, bias in self.biases.items():
            around = f"[{bias.interval[0]:.3f}, {bias.interval[1]:.3f}]"
            lines.append(f"  {name:15} {bias.value:.3f} {around} {bias.about}, n={bias.items}")
        if self.tokens:
            lines.append(f"  cost            {self.tokens} tokens, ${self.dollars:.4f}")
        lines.append("  admitted: it may decide at a gate" if self.admitted else f"  refused: {self.refusal}")
        return lines

    def badge(self) -> str:
        """The card as a small SVG picture, for a page or a README."""
        low, high = self.accuracy_interval
        right = f"{self.accuracy:.0%} [{low:.0%}, {high:.0%}] n={self.items}" + (
            "" if self.admitted else " refused"
        )
        left = f"judge {self.judge}"[:40]
        widths = [10 + round(6.6 * len(text)) for text in (left, right)]
        whole, colour = sum(widths), "#2e7d32" if self.admitted else "#b71c1c"
        texts = "".join(
            f'<text x="{middle}" y="14">{escape(text)}</text>'
            for middle, text in ((widths[0] // 2, left), (widths[0] + widths[1] // 2, right))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img">'
            f"<title>{escape(f'{left}: {right}')}</title>"
            f'<rect width="{whole}" height="20" rx="3" fill="#444"/>'
            f'<rect x="{widths[0]}" width="{widths[1]}" height="20" rx="3" fill="{colour}"/>'
            f'<g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11">{texts}</g></svg>\n'
        )


def card_key(rubric: str) -> str:
    """The key in a record under which the card of a rubric's judge stands."""
    return f"judge/card/{digest(['card', rubric.strip()])}"


def save_card(store: Store, rubric: str, card: ReliabilityCard) -> None:
    """Put a card into a record, in the place of the one before it."""
    store.put_state(card_key(rubric), msgspec.to_builtins(card))


def recorded_card(store: Store, rubric: str) -> ReliabilityCard | None:
    """The card of a rubric's judge, admitted or not; None if the record has none."""
    content = store.state(card_key(rubric))
    return None if content is None else msgspec.convert(content, ReliabilityCard)
