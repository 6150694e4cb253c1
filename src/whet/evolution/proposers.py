"""What a language model is asked, and how its answer becomes a program.

The request shows the program, its score, what its evaluator said of it (the artifacts: that is what a
model reflects on), what else scored well, and what is wanted back: SEARCH/REPLACE blocks, or the
whole program in a fence.  The prompt is text of ours; a config may replace the system message.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..models.base import Model
from ..models.recorded import Recorded
from ..types import Json
from .population import Draw, Judged
from .program import Program, apply_diff, apply_rewrite

SYSTEM = (
    "You improve a program step by step. Each program is judged by an evaluator and the score is to be "
    "maximised. Only what stands between EVOLVE-BLOCK-START and EVOLVE-BLOCK-END may change, where a "
    "program has these marks. Keep the names and arguments of functions that are called from outside."
)
_DIFF = """Say in a sentence what limits the score, then change the program with blocks of this form:

<<<<<<< SEARCH
lines of the program, exactly as they stand
=======
what replaces them
>>>>>>> REPLACE

Several blocks may be given. Do not repeat the rest of the program."""
_REWRITE = "Say in a sentence what limits the score, then give the whole program anew in one ``` fence."


class Proposes(Protocol):
    """What a search asks for children, as an arm of its bandit: a model, a command, a rule of ours."""

    @property
    def name(self) -> str:
        """What the bandit calls it."""
        ...

    @property
    def price(self) -> float:
        """Of one proposal, in evaluations: what the bandit sets its gains against."""
        ...

    @property
    def identity(self) -> Json:
        """All that decides what it proposes: a search is resumed under the same only."""
        ...

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child; the same draw and number give the same one.

        Raises:
            InputError: there is no change that it can make.
            ModelError: no answer.
            BudgetExceeded: the call would overshoot.
        """
        ...


class Move(Protocol):
    """A rule of ours that looks at how a parent fared: an arm of the bandit that costs nothing to ask."""

    @property
    def identity(self) -> Json:
        """All that decides what it proposes."""
        ...

    def __call__(self, draw: Draw, rng: random.Random) -> Program | None:
        """One child; None if there is no change that it can make."""
        ...


@dataclass(frozen=True, slots=True)
class Proposer:
    """A model, and how it is asked."""

    model: Model
    system: str = SYSTEM
    diff: bool = True
    """SEARCH/REPLACE blocks, or a rewrite."""
    price: float = 1.0
    """Of a call, in evaluations: what the bandit sets its gains against."""
    feedback: bool = True
    """Show what the evaluator said of the parent."""
    feedback_characters: int = 20_000
    settings: Mapping[str, Json] | None = None
    """Keyword arguments of every call: temperature, max_tokens, ..."""

    @property
    def name(self) -> str:
        """What the bandit calls it."""
        return f"model {self.model.name}"

    @property
    def identity(self) -> Json:
        """Model, prompt and settings."""
        return [self.name, self.system, self.diff, self.feedback, dict(self.settings or {})]

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child.

        `number` is the sample number for a `Recorded` model: a resumed search gets the same answers.

        Raises:
            InputError: the answer is no change of the program.
            ModelError: no answer.
            BudgetExceeded: the call would overshoot.
        """
        settings: dict[str, Any] = dict(self.settings or {})
        if isinstance(self.model, Recorded):
            settings["sample"] = number
        answer = await self.model.complete(self.messages(draw), **settings)
        change = apply_diff if self.diff else apply_rewrite
        return change(draw.parent.program, answer.text)

    def messages(self, draw: Draw) -> list[dict[str, Json]]:
        """The chat that is sent."""
        parts = [f"# The program\n{_shown(draw.parent)}"]
        if self.feedback and draw.parent.artifacts:
            said = "\n\n".join(f"## {name}\n{text}" for name, text in draw.parent.artifacts.items())
            parts.append(f"# What its evaluator said\n{said[: self.feedback_characters]}")
        if draw.inspirations:
            others = "\n\n".join(_shown(each) for each in draw.inspirations)
            parts.append(f"# Other programs, for ideas\n{others}")
        parts.append(f"# Task\n{_DIFF if self.diff else _REWRITE}")
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": "\n\n".join(parts)},
        ]


def _shown(judged: Judged) -> str:
    numbers = ", ".join(f"{name} = {value:g}" for name, value in judged.metrics.items())
    files = "\n".join(f"{name}:\n```\n{text.rstrip()}\n```" for name, text in judged.program.parts.items())
    return f"Score {judged.score:g} ({numbers})\n{files}"
