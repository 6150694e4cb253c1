"""What a change of one thing alone shows of the part that an issue is put down to.

A trace suggests a part (`ship/issues/weak_part.py`).  Answering recorded questions again with one piece changed says
more, and people who like what it answers then say most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..learn.evolution.repair.suspects import FITTING, PARTS, PieceKind
from ..learn.evolution.repair.variants import AnsweredAgain
from ..record.store.issues import AgentIssue, Component

PROVEN = 0.95
"""Certainty of a part whose change people were shown to like."""
REPLAYED = 0.6
"""Of one whose change alone gives the disliked answers another text: so may a change of what is behind it."""
_AGAIN = "answered again with"


def read_of(issue: AgentIssue) -> dict[str, Any]:
    """What the record suggests, as the work on the issue keeps it."""
    return {"component": issue.component.value, "resource": issue.resource, "certainty": issue.certainty}


def by_replay(issue: AgentIssue, work: Mapping[str, Any], told: AnsweredAgain) -> AgentIssue:
    """The issue with the part that recorded questions were answered again with a change of.

    One that the record is surer of than that stays what it is.
    """
    certainty = max(issue.certainty, REPLAYED)
    if not told.moved or (certainty > REPLAYED and not _fits(issue, work)):
        return issue
    sentence = (
        f"{_AGAIN} {work['pieces'][0][0]} alone changed, {told.moved} of {told.disliked} disliked answers are others, "
        f"and {told.kept} of {told.liked} liked ones are the same"
    )
    return _put_down(issue, work, sentence, certainty)


def by_people(issue: AgentIssue, work: Mapping[str, Any]) -> AgentIssue:
    """The issue with the part that it was: of all that was tried, this one alone was changed, and people like it."""
    points = 100 * float(work.get("effect", 0.0))
    sentence = (
        f"with {work['pieces'][0][0]} alone changed, {points:.0f} points more of the answers were liked"
    )
    return _put_down(issue, work, sentence, PROVEN)


def as_read(issue: AgentIssue, work: Mapping[str, Any]) -> AgentIssue:
    """The issue as the record alone suggests it, where what was tried has come to nothing."""
    if not issue.shown.startswith(_AGAIN) or "read" not in work:
        return issue
    read = work["read"]
    return replace(
        issue,
        component=Component(read["component"]),
        resource=read["resource"],
        certainty=read["certainty"],
        because=tuple(each for each in issue.because if each != issue.shown),
        shown="",
    )


def _fits(issue: AgentIssue, work: Mapping[str, Any]) -> bool:
    return PieceKind(work["learner"]) in FITTING.get(issue.component.value, ())


def _put_down(issue: AgentIssue, work: Mapping[str, Any], sentence: str, certainty: float) -> AgentIssue:
    component = issue.component if _fits(issue, work) else Component(PARTS[PieceKind(work["learner"])])
    because = (sentence, *(each for each in issue.because if each != issue.shown))
    resource = str(work["pieces"][0][0])
    return replace(
        issue, component=component, resource=resource, certainty=certainty, because=because, shown=sentence
    )
