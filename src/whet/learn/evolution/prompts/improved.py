"""What became of a prompt: the part that is the same for one in a file and for one of an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....types import Verdict


def moved(before: float, after: float) -> str:
    """Two means and their difference."""
    return f"{before:.3f} → {after:.3f} ({after - before:+.3f})"


def of_hundred(before: float, after: float) -> str:
    """What two means say of a hundred answers, each of which is right or wrong."""
    return f"of 100 answers about {100 * after:.0f} instead of {100 * before:.0f} are right"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovedText(ABC):
    """The best text that a search found, and the proof."""

    after: str
    """The best text found, whether it is proven or not; equal to the one of before where none was better."""
    proven: bool
    """The gate promotes it, and nothing speaks for a hacked metric that nobody has cleared."""
    reason: str
    """How the search ended."""
    dev: tuple[float, float]
    """Mean score before and after, on the rows that it was searched on."""
    dev_rows: int
    gate: tuple[float, float] | None
    """The same on the gate's rows, which nothing was chosen on; None where nothing changed."""
    verdict: Verdict | None
    causes: Sequence[str]
    """Root causes that the model named."""
    spent: dict[str, float]
    """Calls, tokens and dollars of the models that whet itself asked."""
    written: Path | None = None
    """The file that holds the better text, or the refused patch."""
    patch: str = ""

    @property
    def promote(self) -> bool:
        """True if the gate proved the better text better."""
        return self.proven

    def diff(self) -> str:
        """The change as a patch for `git apply`."""
        return self.patch

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    @abstractmethod
    def sentences(self) -> list[str]:
        """The result in words."""

    def of_search(self, rows: str) -> list[str]:
        """Sentences on the search.

        Args:
            rows: what it was searched on.
        """
        return [
            f"search: {self.reason}",
            *(f"  cause: {cause}" for cause in list(dict.fromkeys(self.causes))[:5]),
            f"on the {self.dev_rows} {rows} that were searched: {moved(*self.dev)}",
        ]

    def plain(self) -> dict[str, Any]:
        """The part of `--json` that is the same for all."""
        return {
            "promote": self.proven,
            "after": self.after,
            "reason": self.reason,
            "causes": list(self.causes),
            "dev": {"before": self.dev[0], "after": self.dev[1], "rows": self.dev_rows},
            "gate": None if self.gate is None else {"before": self.gate[0], "after": self.gate[1]},
            "verdict": self.verdict,
            "spent": self.spent,
            "written": None if self.written is None else str(self.written),
            "diff": self.patch,
        }
