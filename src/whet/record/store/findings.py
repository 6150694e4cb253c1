"""Findings on a Bundle: what looks as if its score rose and it did not get better, with the runs that show it.

A finding keeps its Bundle from being released until a person clears it, saying why, or a stricter reward does: the same
candidate judged again, by another version of the reward, without it.  A person may also confirm it; then its runs are
kept as exploits, which `whet audit --store` holds evaluators to.  Reading is here; `record/reviewing.py` writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...errors import GateError
from ...types import digest
from .database import DatabaseReader

PREFIX = "findings/"
"""Of the states that findings stand under, the Bundle's id after it."""
SUSPICIONS = frozenset(("length", "turns", "answer rate", "inconsistent content", "format"))
"""Kinds of findings that honest learning may give, too, and that gold which confirms the gain clears."""
UNTAUGHT = "not by this reward"
"""Kind of the finding that trained weights got better while their reward did not rise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardFinding:
    """One reason not to believe a gain."""

    kind: str
    """`proxy against gold`, `one answer`, `loops`, `tampering`, `length`, `turns`, `answer rate` and so on."""
    sentence: str
    """What was seen, with its numbers."""
    runs: Sequence[str] = ()
    """Ids of trajectories that show it; twenty at most."""
    bundle: str = ""
    """Id of the Bundle that it is on."""
    rewards: Mapping[str, str] = field(default_factory=dict)
    """Reward → its version when this was found."""
    at: float = 0.0
    """Unix time in seconds."""
    cleared_by: str = ""
    """The person, `reward NAME VERSION`, or the people whose word on real traffic confirmed the gain; "" while it
    blocks."""
    cleared_why: str = ""
    confirmed_by: str = ""
    """The person who confirmed it; "" while nobody has."""

    @property
    def id(self) -> str:
        """The same for the same kind on the same Bundle by the same rewards."""
        return digest([self.kind, self.bundle, dict(self.rewards)], 12)

    @property
    def reason(self) -> str:
        """Kind and sentence."""
        return f"{self.kind}: {self.sentence}"

    @property
    def open(self) -> bool:
        """True while it keeps its Bundle from being released."""
        return not self.cleared_by

    @property
    def suspicion(self) -> bool:
        """True if it doubts the score alone: people's word on what the candidate answers them settles it."""
        return self.kind in SUSPICIONS

    @property
    def remedy(self) -> str:
        """What would clear it."""
        shown = (
            f"see {', '.join(self.runs[:3])} (whet show trajectories --whole --run ID)"
            if self.runs
            else "look at its runs"
        )
        by_person = f"{shown}; then whet findings --clear {self.id} --by NAME --why TEXT"
        if self.kind == UNTAUGHT:
            return f"{by_person} if it is wanted whatever made it better, or train by a reward that rises with the gain"
        return f"{by_person}, or judge it again by a stricter reward (whet gate)"


def findings_on(reader: DatabaseReader, *bundles: str) -> list[RewardFinding]:
    """All findings on these Bundles, cleared ones too."""
    rows = reader.rows(
        f"SELECT body FROM states WHERE key IN ({', '.join('?' * len(bundles))})",
        [f"{PREFIX}{bundle}" for bundle in bundles],
    )
    return [finding for (body,) in rows for finding in _read(body)]


def all_findings(reader: DatabaseReader) -> list[RewardFinding]:
    """All findings of a record, the oldest first."""
    # "0" follows "/": the range of the keys with the prefix.
    rows = reader.rows("SELECT body FROM states WHERE key >= ? AND key < ?", [PREFIX, PREFIX[:-1] + "0"])
    return sorted((finding for (body,) in rows for finding in _read(body)), key=lambda each: each.at)


def _read(body: bytes) -> list[RewardFinding]:
    return msgspec.json.decode(body, type=list[RewardFinding])


def open_findings(reader: DatabaseReader, *bundles: str) -> list[RewardFinding]:
    """The findings on these Bundles that nobody has cleared."""
    return [finding for finding in findings_on(reader, *bundles) if finding.open]


def withheld(findings: Sequence[RewardFinding]) -> str:
    """Why a result whose score is proven does not ship, and what would let it; "" without an open finding."""
    if not findings:
        return ""
    return (
        f"its score is higher beyond chance, and what rises may be the score alone: {findings[0].reason}. To clear it, "
        f"{findings[0].remedy}; the same command then goes on, and asks for no answer again"
    )


def refuse_open(reader: DatabaseReader, bundles: Collection[str]) -> None:
    """Refuse to release what has a finding that nobody has cleared.

    Raises:
        GateError: the sentence says what was found and what would clear it.
    """
    blocking = open_findings(reader, *bundles)
    if blocking:
        first, others = blocking[0], len(blocking) - 1
        more = f" ({others} more: whet findings)" if others else ""
        # The learner's own record, as a rule, which the commands below do not look in by themselves.
        where = "" if reader.path == ":memory:" else f" in {reader.path} (--store)"
        raise GateError(f"not released: {first.reason}{more}. To clear it{where}, {first.remedy}")
