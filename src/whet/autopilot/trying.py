"""The trial that stands: begun, looked at as people speak, and ended once each repair on it is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..learn.evolution.repair import variant_id
from ..record.store.issues import AgentIssue
from ..record.store.releases import Stage
from ..types import Json
from .evidence import LiveArms
from .night import TRIAL
from .trial import board
from .work import Stepped, Workshop, bundle_of

_HARM = 100.0
"""E-value for being worse at which a repair is taken off a trial."""
_BROKEN = 0.5
"""Share of runs with an error, of at least ten, at which it is, too."""
_MOST_PAIRS = 150
"""Pairs after which a repair that is not proven is taken off."""
_LEAST_EXPECTED = 1.0
"""E-value that half of those pairs must have reached."""


@dataclass
class LiveTrials:
    """The trials of an autopilot, one at a time."""

    workshop: Workshop
    root: Path
    """The agent's folder."""

    def standing(self) -> dict[str, Any] | None:
        """The trial that stands now."""
        trial = self.workshop.store.state(TRIAL)
        return None if not trial or trial["ended"] else dict(trial)

    @property
    def number(self) -> int:
        """Of the newest trial."""
        trial = self.workshop.store.state(TRIAL)
        return int(trial["number"]) if trial else 0

    def begin(
        self, works: dict[str, dict[str, Any]], share: float
    ) -> tuple[str, dict[str, Stepped], dict[str, Json]]:
        """Put repairs on trial; what becomes of each, and the trial's own facts."""
        bench, store = self.workshop, self.workshop.store
        number = self.number + 1
        boarded = board(store, self.root, bench.settings.output / f"trial-{number}", works)
        stepped = {id: _left(works[id], number, alone=not boarded.issues) for id in boarded.left}
        if not boarded.issues:
            return "no repair fits the source any more", stepped, {}
        release = store.release(
            boarded.bundle,
            stage=Stage.CANARY,
            share=share,
            unproven=True,
            new_names=True,
            reason=f"autopilot: trial {number} of {len(boarded.issues)} repairs",
        )
        store.put_state(
            TRIAL,
            {
                "number": number,
                "began": bench.night.now,
                "bundle": boarded.bundle.id,
                "release": release.id,
                "folder": str(boarded.folder),
                "issues": list(boarded.issues),
                "share": share,
                "ended": False,
            },
        )
        for id in boarded.issues:
            sentence = f"on trial {number} with {share:.0%} of the traffic: people judge it by their thumbs"
            stepped[id] = Stepped(sentence, {**works[id], "stage": "on trial", "trial": number})
        count = len(boarded.issues)
        sentence = (
            f"trial {number}: {count} repairs are served to {share:.0%} of the traffic, from {boarded.folder}"
        )
        facts: dict[str, Json] = {
            "release": release.id,
            "bundle": boarded.bundle.id,
            "folder": str(boarded.folder),
        }
        return sentence, stepped, facts

    def arms(self, work: dict[str, Any], trial: dict[str, Any]) -> LiveArms:
        """What people said on both sides in an issue's part of the traffic, since the trial began."""
        bench = self.workshop
        # The part is that of the diagnosis: what was served since may not say which questions count.
        part = bench.slice(work, bench.runs(work["as_of"]))
        since = [run for run in bench.runs(bench.night.now) if run.started >= trial["began"]]
        versions = {version.id for version in bench.store.bundle(trial["bundle"]).values()}
        return LiveArms.of(part.runs(since), versions=versions)

    def look(
        self, issues: dict[str, AgentIssue], work_of: Callable[[str], dict[str, Any]]
    ) -> dict[str, Stepped]:
        """What is decided by what people have said so far."""
        trial, night = self.standing(), self.workshop.night
        if trial is None:
            return {}
        decided = {}
        for id in trial["issues"]:
            work = work_of(id)
            if id not in issues or work.get("stage") != "on trial":
                continue
            arms = self.arms(work, trial)
            alpha = night.alpha(f"trial/{id}/{trial['number']}")
            verdict = arms.verdict(work["bundle"], alpha, baseline=work["start"])
            if verdict is not None and verdict.promote:
                folder = self.workshop.settings.output / id[:12]
                arms.write(folder)
                low, high = verdict.interval
                effect = f"{100 * verdict.effect:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}]"
                sentence = f"proven on real traffic: {effect}, e-value {verdict.e_value:.3g}, n = {verdict.n}"
                self.workshop.store.put_verdict(verdict, experiment=f"autopilot/trial-{trial['number']}")
                decided[id] = Stepped(
                    sentence, {**work, "stage": "proven", "pairs": verdict.n}, {"e_value": verdict.e_value}
                )
            elif why := _lost(arms):
                decided[id] = Stepped(
                    f"taken off the trial: {why}",
                    {
                        **work,
                        **again(work),
                        "reason": why,
                        "tried": [
                            *work.get("tried", ()),
                            *map(variant_id, bundle_of(self.workshop.store, work).values()),
                        ],
                    },
                    {"pairs": arms.pairs},
                )
        return decided

    def close(self, work_of: Callable[[str], dict[str, Any]]) -> bool:
        """End the trial once everything on it is decided."""
        trial = self.standing()
        if trial is None or any(work_of(id).get("stage") == "on trial" for id in trial["issues"]):
            return False
        self.workshop.store.retire(trial["release"], reason="autopilot: every repair of the trial is decided")
        self.workshop.store.put_state(TRIAL, {**trial, "ended": True})
        return True


def _left(work: dict[str, Any], number: int, *, alone: bool) -> Stepped:
    """What becomes of a repair that did not fit on a trial."""
    if alone or work.get("waits_since"):
        # Also without the others, or a second time: what it changes has been changed by another repair.
        why = "what it changes was changed by another repair"
        return Stepped(why, {**work, **again(work), "waits_since": 0, "reason": why})
    return Stepped(
        "it does not fit beside the others: it waits for the next trial", {**work, "waits_since": number}
    )


def again(work: dict[str, Any]) -> dict[str, Any]:
    """Where the work on an issue goes on whose repair people did not like: at the next variant, or from the start."""
    if work.get("others"):
        return {"stage": "diagnosed"}
    return {"stage": "found", "attempt": work["attempt"] + 1}


def _lost(arms: LiveArms) -> str:
    """Why a repair goes no further; "" as long as it may."""
    if arms.runs >= 10 and arms.failed > _BROKEN * arms.runs:
        return f"{arms.failed} of {arms.runs} runs under it ended in an error"
    if (against := arms.harm()) >= _HARM:
        return f"people like it less: e-value {against:.3g} over {arms.pairs} pairs"
    if arms.pairs >= _MOST_PAIRS:
        return f"{arms.pairs} pairs of thumbs do not prove it better"
    if arms.pairs >= 30 and arms.again().e_value < _LEAST_EXPECTED:
        return f"{arms.pairs} pairs of thumbs speak for nothing"
    return ""
