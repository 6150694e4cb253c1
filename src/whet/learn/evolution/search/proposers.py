"""How a language model is asked for a child, and how its answer becomes a program.

`Proposer` shows the program, its score, the artifacts of its evaluator (what a model reflects on) and other programs
that scored well, and asks for SEARCH/REPLACE blocks or for the whole program in a fence. `Gradient` (APO) and `Gepa`
rewrite the main part of a program; whose children they make is the population's choice: `Best(4)` is APO's beam of
four, `Front` is GEPA's. The prompts are ours; a config may replace the system message.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from ....errors import InputError, MissingExtra
from ....models.base import Messages, Model
from ....models.recorded import RecordedModel
from ....types import Json
from ..editing.program import Program, apply_diff, apply_rewrite, rewritten
from .population import Draw, Judged

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


class Proposes(Protocol):
    """An arm of a search's bandit that is asked for children: a model, or a command."""

    @property
    def name(self) -> str:
        """In the bandit's table."""
        ...

    @property
    def price(self) -> float:
        """Of one proposal, in evaluations: the bandit divides gains by it."""
        ...

    @property
    def identity(self) -> Json:
        """All that decides its proposals: a search is resumed under the same identity only."""
        ...

    async def propose(self, draw: Draw, number: int) -> Program:
        """One child; the same draw and number give the same one.

        Raises:
            InputError: there is no change that it can make, or the answer is not a change of the program.
            ModelError: no answer.
            BudgetExceeded: the call would overshoot.
        """
        ...


class Move(Protocol):
    """An arm of ours that looks at how a parent fared, and costs nothing to ask."""

    @property
    def identity(self) -> Json:
        """All that decides its proposals."""
        ...

    def __call__(self, draw: Draw, rng: random.Random) -> Program | None:
        """One child; None if there is no change that it can make."""
        ...


async def ask(model: Model, messages: Messages, number: int, settings: Mapping[str, Json] | None) -> str:
    """A model's answer; `number` is the sample of a `RecordedModel` one: a resumed search gets the same answers."""
    options: dict[str, Any] = dict(settings or {})
    if isinstance(model, RecordedModel):
        options["sample"] = number
    return (await model.complete(messages, **options)).text


@dataclass(frozen=True)
class Asking:
    """A model as an arm of a search; its subclasses differ in how they ask."""

    model: Model
    feedback: bool = field(default=True, kw_only=True)
    """Show the evaluator's artifacts of the parent, and its failures."""
    settings: Mapping[str, Json] | None = field(default=None, kw_only=True)
    """Keyword arguments of every call: temperature, max_tokens, ..."""

    kind: ClassVar[str]
    price: ClassVar[float] = 1.0
    decides: ClassVar[tuple[str, ...]] = ("examples",)
    """Attributes that decide a request beside model, feedback and settings."""

    @property
    def name(self) -> str:
        """In the bandit's table."""
        return f"{self.kind} {self.model.name}"

    @property
    def identity(self) -> Json:
        """Model, prompt and settings."""
        request = [getattr(self, name) for name in self.decides]
        return [self.name, *request, self.feedback, dict(self.settings or {})]

    async def ask(self, messages: Messages, number: int) -> str:
        """The model's answer."""
        return await ask(self.model, messages, number, self.settings)


@dataclass(frozen=True)
class Proposer(Asking):
    """A model that is asked for a change of the program."""

    system: str = SYSTEM
    symptom: str = ""
    """What is known to be wrong: words of a record, which are shown and are no instruction."""
    diff: bool = True
    """SEARCH/REPLACE blocks, or a rewrite."""
    feedback_characters: int = 20_000
    sampled: int = 0
    """Lines of each artifact that a request shows, drawn anew for every proposal, so that no two are the same request
    while the parent stays; 0 shows all."""

    kind = "model"
    decides = ("system", "symptom", "diff")

    async def propose(self, draw: Draw, number: int) -> Program:
        """See `Proposes`."""
        change = apply_diff if self.diff else apply_rewrite
        shown = self._drawn(draw, number) if self.sampled else draw
        return change(draw.parent.program, await self.ask(self.messages(shown), number))

    def _drawn(self, draw: Draw, number: int) -> Draw:
        """The draw with some lines of each artifact; by the number alone: a search that goes on asks the same."""
        rng = random.Random(f"shown:{number}")
        artifacts = {}
        for name, text in draw.parent.artifacts.items():
            lines = text.splitlines()
            artifacts[name] = "\n".join(rng.sample(lines, min(self.sampled, len(lines))))
        return replace(draw, parent=replace(draw.parent, artifacts=artifacts))

    def messages(self, draw: Draw) -> list[dict[str, Json]]:
        """The chat that is sent."""
        parts = [f"# The program\n{_shown(draw.parent)}"]
        if self.symptom:
            parts.append(f"# What fails, as the agent's record has it\n{self.symptom}")
        if self.feedback and draw.parent.artifacts:
            artifacts = "\n\n".join(f"## {name}\n{text}" for name, text in draw.parent.artifacts.items())
            parts.append(f"# What its evaluator said\n{artifacts[: self.feedback_characters]}")
        if draw.inspirations:
            inspirations = "\n\n".join(map(_shown, draw.inspirations))
            parts.append(f"# Other programs, for ideas\n{inspirations}")
        parts.append(f"# Task\n{_DIFF if self.diff else _REWRITE}")
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": "\n\n".join(parts)},
        ]


def _shown(judged: Judged) -> str:
    numbers = ", ".join(f"{name} = {value:g}" for name, value in judged.metrics.items())
    files = "\n".join(f"{name}:\n```\n{text.rstrip()}\n```" for name, text in judged.program.parts.items())
    return f"Score {judged.score:g} ({numbers})\n{files}"


@dataclass(frozen=True)
class Gradient(Asking):
    """Automatic prompt optimisation: a criticism from failures first, then an edit that follows it.

    After Pryzant et al. 2023 (ProTeGi) and the APO of Agent Lightning.  It differs in that rounds overlap: a
    parent is one of the best so far when it is drawn, not of a round that has ended, and in that a
    child is judged by the search's evaluator, whose stages take the place of the bandit that picks candidates.
    A parent without any failure or feedback is not asked about.
    """

    kind = "gradient"
    price = 2.0
    examples = 4
    """Failures that one criticism is about, drawn anew each time: the batch of the gradient."""

    async def propose(self, draw: Draw, number: int) -> Program:
        """See `Proposes`; two calls."""
        # By the number alone: a search that goes on makes the same request, whose answer is in the log.
        rng = random.Random(f"gradient:{number}")
        failures = evidence(draw.parent, self.examples, rng) if self.feedback else []
        if not failures:
            raise InputError("there is no failure or feedback to take a gradient from")
        text = draw.parent.program.text
        shown = f"# The text\n```\n{text.rstrip()}\n```\n\n# What failed with it\n" + "\n".join(failures)
        # Both calls are sample `number`: the log tells them apart by their text.
        critique = await self.ask(f"{shown}\n\n# Task\n{rng.choice(_CRITIQUES)}", number)
        request = f"{shown}\n\n# Criticism\n{critique.strip()}\n\n# Task\n{rng.choice(_EDITS)} {_FENCE}"
        return apply_rewrite(draw.parent.program, await self.ask(request, number))


@dataclass(frozen=True)
class Gepa(Asking):
    """GEPA's reflective proposal (Agrawal et al. 2025): its own prompt and its own reading of the answer.

    It takes `gepa.strategies.instruction_proposal`, GEPA's own request, so its proposals are those that GEPA
    would make from the same evidence; selection, budget and record are the search's.

    Raises:
        MissingExtra: gepa is not installed.
    """

    kind = "gepa"
    examples = 3
    """Records of the minibatch that it reflects on."""

    def __post_init__(self) -> None:
        _signature()  # a missing extra is reported before anything is spent

    async def propose(self, draw: Draw, number: int) -> Program:
        """See `Proposes`."""
        parent = draw.parent
        rng = random.Random(f"gepa:{number}")
        failures = evidence(parent, self.examples, rng) if self.feedback else []
        records = [{"Feedback": line} for line in failures or [f"The score was {parent.score:g}."]]
        signature = _signature()
        request = signature.prompt_renderer(
            {"current_instruction_doc": parent.program.text, "dataset_with_feedback": records}
        )
        answer = await self.ask(str(request), number)
        new = str(signature.output_extractor(answer)["new_instruction"])
        if not new.strip():
            raise InputError("the answer holds no new instruction")
        return rewritten(parent.program, f"{new.rstrip()}\n")


def _signature() -> Any:
    try:
        return importlib.import_module("gepa.strategies.instruction_proposal").InstructionProposalSignature
    except ImportError:
        raise MissingExtra("gepa", "gepa") from None


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
