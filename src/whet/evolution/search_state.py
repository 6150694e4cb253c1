"""What a search over the contents of resources is told and knows, and how that is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ..types import Json
from .archive import Archive, Member
from .effects import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveOptions:
    """Settings of the search; the defaults suit ten knobs and a few thousand rollouts."""

    generations: int = 20
    """Steps after which the search is done."""
    children: int = 16
    """Candidates proposed per generation; twice as many in the first."""
    drawn: float = 0.9
    """Share of the children that come from the estimated effects; the others are bred."""
    parents: int = 6
    """Candidates to breed from."""
    tasks: int = 240
    """At most so many training tasks are searched on, drawn once."""
    probe: int = 24
    """Tasks that every child of a generation is run on."""
    finish: int = 4
    """After every so many generations, and after the last, the most promising candidate runs on all tasks."""
    growth: int = 3
    """It runs on so many times the tasks each time before it is asked whether it is clearly worse."""
    n: int = 1
    """Rollouts per task and candidate; more only where the agent itself is random."""
    crossover: float = 0.4
    """Share of bred children with two parents: half of them merged, half crossed."""
    strength: float = 1.5
    """Mean number of knobs changed beyond the first."""
    finalists: int = 3
    """How many of the best are run on validation before the search ends."""
    validation_share: float = 0.3
    """At most this share of the rollouts left at the start is kept for validation."""
    proposals: int = 60
    """Of a search over texts and functions."""
    edits: bool = True
    """Edit texts without a model, too; otherwise everything is left to the proposers."""
    patience: int | None = None
    """Generations without a better candidate after which the search is done; None: never."""


@dataclass(slots=True)
class SearchState:
    """All that a search knows; its JSON form is the optimizer's state."""

    seed: int
    tasks: list[str]
    validation: list[str]
    start: str = ""
    """Id of the incumbent that the search began with."""
    bundle: str = ""
    """Id of the Bundle that the last step returned: another one means the world has changed."""
    archive: Archive = field(default_factory=Archive)
    trials: list[Trial] = field(default_factory=list)
    """What every child did on its probe."""
    validated: dict[str, Member] = field(default_factory=dict)
    """Member id → its record on the validation tasks."""
    generation: int = 0
    improved: int = 0
    """Generation of the last better candidate."""
    rollouts: int = 0
    repeats: int = 0
    """Children whose content had been tried: proposed again at no cost."""
    duplicates: int = 0
    """Children whose behaviour had been seen: skipped after the probe."""

    def encode(self) -> Json:
        """JSON that `decode` restores exactly."""
        data = msgspec.json.decode(msgspec.json.encode(self))  # tuples as lists, as they are read again
        data["archive"]["seen"].sort()  # a set has no order of its own
        return data

    @staticmethod
    def decode(data: Json) -> SearchState:
        """The search that `encode` wrote.

        Raises:
            msgspec.ValidationError: another form, as earlier versions wrote it.
        """
        return msgspec.convert(data, SearchState)
