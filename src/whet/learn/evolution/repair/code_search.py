"""The search of one piece of an agent's Python, or of a file of values beside it, for a repair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....models import RecordedModel
from ....models.base import Model
from ....types import Bundle, Group, digest
from ...loop import Context, Update
from ..editing.edits import EDITS
from ..prompts.thumbed import LIKED
from ..search.engine import SearchOptions
from ..search.proposers import Proposer
from ..search.texts import Texts

SEARCHED = 16
"""Rows of the issue that the learners see."""


@dataclass
class CodeSearch:
    """Optimizer of one piece of Python: edits that cost nothing, and a model's changes by turns."""

    resource: str
    model: Model | None
    proposals: int
    seed: int
    code: bool = True
    """It is Python; else a file of values."""
    edits: bool = True
    """Edits that cost nothing take turns with the model."""
    symptom: str = ""
    """What fails, in words: a tool that ends in an error has its rows say nothing of that."""

    name = "evolve"
    group_size = 0
    takes_groups = False
    on_policy = False
    ordered = False

    @property
    def identity(self) -> str:
        """Digest of what decides its results."""
        name = getattr(self.model, "name", "")
        return digest([self.resource, name, self.proposals, self.seed, self.edits, self.symptom])

    async def step(self, bundle: Bundle, groups: Sequence[Group], context: Context) -> Update:
        """One search."""
        edits = tuple(EDITS) if self.edits or self.model is None else ()
        options = SearchOptions(
            iterations=self.proposals, edits=edits, seed=self.seed, in_flight=2, target=1.0
        )
        code = [self.resource] if self.code else []
        # An endpoint that answers a request always alike would else answer all of them alike.
        proposers = (
            [Proposer(RecordedModel(self.model, context.log), symptom=self.symptom, sampled=3)]
            if self.model
            else []
        )
        texts = Texts([self.resource], LIKED, None, proposers, options, tasks=SEARCHED, code=code)
        return await texts.improve(bundle, context)
