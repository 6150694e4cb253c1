"""What `whet issues` finds in a night's record, held against the faults and decoys that were planted in it.

An issue is right where half of its failures or more are of one planted fault; a fault is found where an issue that is
not closed is right about it.  Issues that were closed at once, as over or as no defect, are no false alarms.  The
controls: the same night with the thumbs shuffled, and a night with all decoys and no fault.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from night_setting import Night, night
from page import publish, table

from whet.ship.issues import AgentIssue, Component, find_issues

PRECISION, RECALL = 0.9, 0.75
"""What must be reached over the seeds."""
HELD_BY = 0.5
"""Share of an issue's failures that one fault must have caused."""


@dataclass
class Scored:
    """The issues of one night."""

    name: str
    standing: int = 0
    right: int = 0
    faults: int = 0
    found: set[str] = field(default_factory=set)
    placed: int = 0
    """Right issues that are put down to the part that the fault was planted in."""
    closed: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    rate: float = 0.0
    """Runs scanned in a CPU second."""

    @property
    def precision(self) -> float:
        """Share of the standing issues that are right."""
        return self.right / self.standing if self.standing else 1.0


def cause_of(made: Night, issue: AgentIssue) -> str:
    """What caused most of the runs that an issue shows; "" where no fault or decoy did."""
    asked = {each.trajectory.id: each for each in made.runs}
    causes: Counter[str] = Counter()
    for run in issue.runs:
        causes.update(asked[run].faults or ([asked[run].decoy] if asked[run].decoy else []))
    top = causes.most_common(1)
    return top[0][0] if top and top[0][1] >= HELD_BY * len(issue.runs) else ""


def scored(made: Night, name: str) -> Scored:
    """Look for the issues of a night, and count."""
    began = time.process_time()
    issues = find_issues(made.store, now=made.ends + 86_400)
    score = Scored(name, faults=len(made.faults), rate=len(made.runs) / (time.process_time() - began))
    planted = {fault.id: fault for fault in made.faults}
    for issue in issues:
        cause = cause_of(made, issue)
        if issue.over or issue.component is Component.NONE:
            score.closed += 1
            continue
        score.standing += 1
        if cause not in planted:
            score.wrong.append(f"{issue.name} [{cause or 'nothing planted'}]")
            continue
        score.right += 1
        score.found.add(cause)
        if issue.component.value in planted[cause].components:
            score.placed += 1
        else:
            score.misplaced.append(f"{cause} as {issue.component} ({issue.certainty:.1f})")
    score.lost = sorted(set(planted) - score.found)
    return score


def night_issues(seeds: Sequence[int], *, world: Path | None = None, page: bool = False) -> bool:
    """Print precision and recall over seeds, with the controls; True if no line was missed."""
    rows, nights, passed = [], list[Scored](), True
    for seed in seeds:
        for name, planted, shuffled in (
            ("faults and decoys", True, False),
            ("thumbs shuffled", True, True),
            ("decoys alone", False, False),
        ):
            with tempfile.TemporaryDirectory() as folder:
                made = night(seed, Path(folder), world=world, planted=planted, shuffled=shuffled)
                score = scored(made, name)
                if shuffled:
                    spoken = [
                        each for each in made.store.issues.read() if each.measure in ("people", "returns")
                    ]
                    passed &= not spoken
                    score.wrong = [each.name for each in spoken]
                made.store.close()
            nights.append(score)
            rows.append(_row(seed, score))
            print(" | ".join(rows[-1]), flush=True)
            for label, lines in (
                ("wrong", score.wrong),
                ("lost", score.lost),
                ("misplaced", score.misplaced),
            ):
                if lines and not (shuffled and label != "wrong"):
                    print(f"  {label}: {'; '.join(lines)}", flush=True)
    whole = [score for score in nights if score.name == "faults and decoys"]
    alone = [score for score in nights if score.name == "decoys alone"]
    standing, right = sum(score.standing for score in whole), sum(score.right for score in whole)
    recall = sum(len(score.found) for score in whole) / sum(score.faults for score in whole)
    precision = right / standing if standing else 0.0
    placed = sum(score.placed for score in whole) / max(1, right)
    false_alarms = sum(score.standing for score in alone)
    line = (
        f"precision {precision:.3f} ({right} of {standing}), recall {recall:.3f}, right part {placed:.2f}, "
        f"{false_alarms} false alarms in {len(alone)} nights with decoys alone"
    )
    print(line, flush=True)
    passed &= precision >= PRECISION and recall >= RECALL and false_alarms <= len(alone) * 0.1 + 1
    if page:
        heads = [
            "seed",
            "night",
            "issues that stand",
            "right",
            "faults found",
            "right part",
            "closed at once",
            "runs/CPU s",
        ]
        publish("Issues of an agent", [line + ".", "", *table(heads, rows)])
    return passed


def _row(seed: int, score: Scored) -> list[str]:
    found = f"{len(score.found)} of {score.faults}"
    cells = [str(seed), score.name, str(score.standing), str(score.right), found, str(score.placed)]
    return [*cells, str(score.closed), f"{score.rate:,.0f}"]
