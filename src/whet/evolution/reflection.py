"""Two ways of asking a model for a better text: textual gradients (APO), and GEPA's own request.

Both rewrite the main part of a program and are arms of a search like any `Proposer`.  Whom they improve is
the population's choice: `Best(4)` is APO's beam of four, `Front` is GEPA's.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, MissingExtra
from ..models.base import Model
from ..models.recorded import Recorded
from ..types import Json
from .population import Draw, Judged
from .program import Program, apply_rewrite

_CRITIQUES = (
    "Say in one paragraph what in the text causes these failures.",
    "Name the most important change to the text that would have prevented these failures, and why.",
    "What does the text leave unsaid that these failures show it should say? Be specific.",
)
_EDITS = (
    "Rewrite the text so that the criticism no longer applies. Change nothing else.",
    "Improve the text by the criticism; you may also make it clearer and shorter.",
)
_FENCE = "Give the whole new text in one ``` fence."


@dataclass(frozen=True, slots=True)
class Gradient:
    """Automatic prompt optimisation: a criticism from failures first, then an edit that follows it.

    After Pryzant et al. 2023 (ProTeGi) and the APO of Agent Lightning.  It differs in that rounds overlap: a
    parent is one of the best so far when it is drawn, not of a round that has ended, and in that a
    child is judged by the search's evaluator, whose stages take the place of the bandit that picks candidates.
    A parent without any failure or feedback is not asked about.
    """

    model: Model
    examples: int = 4
    """Failures that one criticism is about, drawn anew each time: the batch of the gradient."""
    price: float = 2.0
    feedback: bool = True
    """Show the failures; without them there is no gradient, and nothing is proposed."""
    settings: Mapping[str, Json] | None = None

    @property
    def name(self) -> str:
        """What the bandit calls it."""
        return f"gradient {self.model.name}"

    @property
    def identity(self) -> Json:
        """Model and settings."""
        return [self.name, self.examples, self.feedback, dict(self.settings or {})]

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child, by two calls.

        Raises:
            InputError: there is no failure to learn from, or the answer is no text.
            ModelError: no answer.
        """
        rng = random.Random(f"gradient:{number}")
        failures = evidence(draw.parent, self.examples, rng) if self.feedback else []
        if not failures:
            raise InputError("there is no failure or feedback to take a gradient from")
        text = draw.parent.program.text
        shown = f"# The text\n```\n{text.rstrip()}\n```\n\n# What failed with it\n" + "\n".join(failures)
        critique = await self._ask(f"{shown}\n\n# Task\n{rng.choice(_CRITIQUES)}", number)
        asked = f"{shown}\n\n# Criticism\n{critique.strip()}\n\n# Task\n{rng.choice(_EDITS)} {_FENCE}"
        return apply_rewrite(draw.parent.program, await self._ask(asked, number))

    async def _ask(self, text: str, number: int) -> str:
        return await ask(self.model, text, number, self.settings)


@dataclass(frozen=True, slots=True)
class Gepa:
    """GEPA's reflective proposal (Agrawal et al. 2025): its own prompt and its own reading of the answer.

    It takes `gepa.strategies.instruction_proposal`, what GEPA itself asks with, so what is proposed here is what
    it would propose from the same evidence; selection, budget and record are the search's.

    Raises:
        MissingExtra: gepa is not installed.
    """

    model: Model
    examples: int = 3
    """Records of the minibatch that it reflects on."""
    price: float = 1.0
    feedback: bool = True
    settings: Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        _signature()

    @property
    def name(self) -> str:
        """What the bandit calls it."""
        return f"gepa {self.model.name}"

    @property
    def identity(self) -> Json:
        """Model and settings."""
        return [self.name, self.examples, self.feedback, dict(self.settings or {})]

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child.

        Raises:
            InputError: the answer is no text for the program.
            ModelError: no answer.
        """
        parent = draw.parent
        said = evidence(parent, self.examples, random.Random(f"gepa:{number}")) if self.feedback else []
        records = [{"Feedback": each} for each in said] or [{"Feedback": f"The score was {parent.score:g}."}]
        signature = _signature()
        asked = signature.prompt_renderer(
            {"current_instruction_doc": parent.program.text, "dataset_with_feedback": records}
        )
        answer = await ask(self.model, str(asked), number, self.settings)
        new = str(signature.output_extractor(answer)["new_instruction"])
        if not new.strip():
            raise InputError("the answer holds no new instruction")
        end = "\n" if parent.program.text.endswith("\n") else ""
        return apply_rewrite(parent.program, f"```\n{new.rstrip()}{end or chr(10)}```")


def _signature() -> Any:
    try:
        return importlib.import_module("gepa.strategies.instruction_proposal").InstructionProposalSignature
    except ImportError:
        raise MissingExtra("gepa", "gepa") from None


async def ask(model: Model, text: str, number: int, settings: Mapping[str, Json] | None) -> str:
    """A model's answer to one message; `number` is the sample of a `Recorded` one."""
    given: dict[str, Any] = dict(settings or {})
    if isinstance(model, Recorded):
        given["sample"] = number
    return (await model.complete(text, **given)).text


def evidence(parent: Judged, most: int, rng: random.Random) -> Sequence[str]:
    """Lines about what failed: of the evaluator's texts, and the instances that scored least.

    Args:
        most: lines, drawn evenly where there are more.
    """
    lines = [line.strip() for text in parent.artifacts.values() for line in text.splitlines() if line.strip()]
    if not lines and parent.instances:
        best = max(parent.instances.values())
        lines = [
            f"instance {name} scored {value:g}" for name, value in parent.instances.items() if value < best
        ]
    return lines if len(lines) <= most else rng.sample(lines, most)
