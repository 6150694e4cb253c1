"""The issues of an agent: where it fails more than elsewhere, which part is weak, and where it stands.

`issue_log.py` writes and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MOST_RUNS = 20
"""Ids of runs that an issue keeps as its evidence."""


class Component(StrEnum):
    """The part of an agent that an issue is put down to."""

    PROMPT = "prompt"
    TOOL = "tool"
    ROUTE = "route"
    MEMORY = "memory"
    MODEL = "model"
    """The model itself or how it is asked: its name, its temperature and its other parameters."""
    DATA = "data"
    UPSTREAM = "upstream"
    """A machine or service that the agent stands on, which no change of the agent repairs."""
    NONE = "none"
    """No part: it looked like a defect and is none, as the reason says."""


class IssueStatus(StrEnum):
    """Where an issue stands."""

    OPEN = "open"
    DIAGNOSED = "diagnosed"
    PROPOSED = "proposed"
    """A change is there that may repair it."""
    PROVING = "proving"
    SHIPPED = "shipped"
    """A proven change is live; it is watched."""
    CLOSED = "closed"
    REOPENED = "reopened"
    """It came back after it was shipped or closed."""


NEXT: dict[IssueStatus, tuple[IssueStatus, ...]] = {
    IssueStatus.OPEN: (IssueStatus.DIAGNOSED, IssueStatus.PROPOSED, IssueStatus.CLOSED),
    IssueStatus.DIAGNOSED: (IssueStatus.PROPOSED, IssueStatus.CLOSED),
    IssueStatus.PROPOSED: (IssueStatus.PROVING, IssueStatus.DIAGNOSED, IssueStatus.CLOSED),
    IssueStatus.PROVING: (
        IssueStatus.SHIPPED,
        IssueStatus.PROPOSED,
        IssueStatus.DIAGNOSED,
        IssueStatus.CLOSED,
    ),
    IssueStatus.SHIPPED: (IssueStatus.CLOSED, IssueStatus.REOPENED),
    IssueStatus.CLOSED: (IssueStatus.REOPENED,),
    IssueStatus.REOPENED: (
        IssueStatus.DIAGNOSED,
        IssueStatus.PROPOSED,
        IssueStatus.SHIPPED,  # its repair lasts, and what came back is another fault of the same issue
        IssueStatus.CLOSED,
    ),
}
"""Status → those that may follow it."""
START = (IssueStatus.OPEN, IssueStatus.CLOSED)
"""How an issue may begin: closed where it was over, or no defect, by the time it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentIssue:
    """A part of the traffic in which the agent fails more than in the rest, beyond chance."""

    id: str
    """The same for the same part of the traffic and the same kind of failure, whenever it is looked for."""
    name: str
    """A sentence."""
    component: Component
    resource: str = ""
    """Name of the weak resource, tool, model, route or field, as the record calls it; "" where none can be named."""
    runs: Sequence[str] = ()
    """Ids of trajectories that show it, the newest first; `MOST_RUNS` at most."""
    affected: int = 0
    """Runs that failed in this part of the traffic, of those where one knows."""
    traffic: float = 0.0
    """Share of all runs looked at that belong to this part."""
    first_seen: float = 0.0
    """Unix time in seconds of the first failure."""
    last_seen: float = 0.0
    certainty: float = 0.0
    """In [0, 1]: of the issue being one and of the component, the lesser; how it comes about stands in `because`."""
    status: IssueStatus = IssueStatus.OPEN
    reason: str = ""
    """Of the last move."""
    measure: str = ""
    """What failed: `people`, `returns`, `judged`, `error`, `tool error`, `blocked`, `loop`, `seconds` or `tokens`."""
    where: Mapping[str, str] = field(default_factory=dict)
    """What marks out this part of the traffic: the kind of mark → its value, as {"tool": "stock"}."""
    marks: Sequence[str] = ()
    """Other ways to mark out nearly the same part, its own first; another one may be the closest tomorrow."""
    rate: float = 0.0
    """Share of failures in this part."""
    usual: float = 0.0
    """What it would be if the same people met no more of them here than elsewhere."""
    people: int = 0
    """Distinct people, or sessions where nobody is named, who met it."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Resource → id of the Version under which all of these runs ran."""
    because: Sequence[str] = ()
    """What speaks for the component, each a sentence."""
    shown: str = ""
    """How a change of one thing alone has shown the component; "" where none was tried or none did."""

    @property
    def over(self) -> bool:
        """True where nothing is to be repaired now: it was closed."""
        return self.status is IssueStatus.CLOSED


@dataclass(frozen=True, slots=True)
class IssueMove:
    """One entry of an issue's log."""

    issue: str
    number: int
    """1 for the first."""
    status: IssueStatus
    at: float
    """Unix time in seconds."""
    reason: str
