"""What a search over the contents of resources knows, and how it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..types import Json
from .archive import Archive, Member, decode_member, encode_member
from .effects import Trial


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
        plain = ("seed", "tasks", "validation", "start", "bundle", "generation", "improved")
        counts = ("rollouts", "repeats", "duplicates")
        return {
            **{name: getattr(self, name) for name in plain + counts},
            "archive": self.archive.encode(),
            "trials": [trial.encode() for trial in self.trials],
            "validated": [encode_member(member) for member in self.validated.values()],
        }

    @staticmethod
    def decode(data: Json) -> SearchState:
        rest = {key: value for key, value in data.items() if key not in ("archive", "trials", "validated")}
        validated = [decode_member(each) for each in data["validated"]]
        return SearchState(
            **rest,
            archive=Archive.decode(data["archive"]),
            trials=[Trial.decode(each) for each in data["trials"]],
            validated={each.id: each for each in validated},
        )
