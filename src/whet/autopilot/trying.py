"""The trial that stands: begun, looked at as people speak, and ended once each repair on it is decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..learn.evolution.repair import variant_id
from ..prove.canary import CanaryAction
from ..prove.watch import TrafficPart, look_at_parts
from ..record.store.bundles import EMPTY
from ..record.store.issues import AgentIssue
from ..record.store.releases import Release, Stage
from ..types import Json
from .evidence import MOST_OF_ONE, LiveArms
from .night import TRIAL
from .trial import board
from .work import Stepped, Workshop, bundle_of

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
        folder = bench.settings.output / f"trial-{number}"
        boarded = board(store, self.root, folder, works, bench.shipped())
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
                # Of the trial and not of the entry, which moves with its share.
                "release": release.trial,
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
        # What went live of it meanwhile is on both sides.
        live = (bench.store.live() or EMPTY).ids
        bundle = bench.store.bundle(trial["bundle"]).ids
        versions = {version for name, version in bundle.items() if live.get(name) != version}
        return LiveArms.of(part.runs(since), versions=versions)

    def look(
        self, issues: dict[str, AgentIssue], work_of: Callable[[str], dict[str, Any]]
    ) -> dict[str, Stepped]:
        """What is decided by what people have said so far."""
        trial, night = self.standing(), self.workshop.night
        if trial is None:
            return {}
        undecided = {
            id: work
            for id in trial["issues"]
            if (work := work_of(id)).get("stage") == "on trial" and id in issues
        }
        harmed, decided = self._harmed(trial, undecided), {}
        for id, work in undecided.items():
            if id in harmed:
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
            elif why := _in_vain(arms):
                decided[id] = self._off(work, why, pairs=arms.pairs)
        if harmed:
            # First who is to blame, then the end: a process that is killed between them goes on by what it finds.
            self.workshop.store.put_state(TRIAL, {**trial, "harmed": harmed})
            why = f"autopilot: {len(harmed)} of its repairs may not go on in their parts of the traffic"
            self.workshop.store.retire(trial["release"], reason=why)
        return decided

    def _harmed(self, trial: dict[str, Any], undecided: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Repairs that do harm in their own part, and how: each is looked at as the server looks at the whole."""
        bench = self.workshop
        parts = {
            id: TrafficPart(bench.slice(work, bench.runs(work["as_of"])).holds, most_of_one=2 * MOST_OF_ONE)
            for id, work in undecided.items()
        }
        standing = (release for release in bench.store.on_trial() if release.trial == trial["release"])
        return {
            id: seen.decision.reason
            for release in standing
            for id, seen in look_at_parts(bench.store, release, parts, now=bench.night.now).items()
            if seen.decision.action is CanaryAction.TAKE_BACK
        }

    def ended_by(self) -> Release | None:
        """The entry of the release log by which the trial ended, whoever made it; None while it stands."""
        trial, store = self.standing(), self.workshop.store
        if trial is None or trial["release"] in {release.trial for release in store.on_trial()}:
            return None
        return [entry for entry in store.release_log() if entry.trial == trial["release"]][-1]

    def fallen(
        self, end: Release, work_of: Callable[[str], dict[str, Any]]
    ) -> tuple[str, dict[str, Stepped], dict[str, Json]]:
        """What becomes of the repairs that were undecided when somebody else ended their trial; and the trial's facts.

        Args:
            end: the entry that ended it.
        """
        trial, store = self.standing(), self.workshop.store
        assert trial is not None
        undecided = {id: work for id in trial["issues"] if (work := work_of(id)).get("stage") == "on trial"}
        facts: dict[str, Json] = {"release": end.id, "bundle": end.bundle.id}
        whole = f"trial {trial['number']}, {len(undecided)} repairs undecided,"
        stepped = {}
        if end.stage is Stage.LIVE:
            for id, work in undecided.items():
                sentence = f"live with the whole of its trial: {end.reason}"
                stepped[id] = Stepped(sentence, {**work, "stage": "shipped", "release": end.id})
            return f"{whole} was made live: {end.reason}", stepped, facts
        log = store.release_log()
        before = log[: [entry.id for entry in log].index(end.id)]
        live = [entry.bundle.id for entry in before if entry.stage is Stage.LIVE]
        if (live[-1] if live else EMPTY.id) != end.base:
            for id, work in undecided.items():
                sentence = "its trial ended undecided, for something else went live: it goes on the next one"
                stepped[id] = Stepped(sentence, {**work, "stage": "to try"})
            return f"{whole} ended: {end.reason}", stepped, facts
        harmed = trial.get("harmed", {})
        for id, work in undecided.items():
            if harmed and id not in harmed:
                sentence = "its trial ended undecided, for another repair did harm: it goes on the next one"
                stepped[id] = Stepped(sentence, {**work, "stage": "to try"})
            else:
                stepped[id] = self._off(work, harmed.get(id) or f"its trial was taken back: {end.reason}")
        return f"{whole} was taken back: {end.reason}", stepped, facts

    def _off(self, work: dict[str, Any], why: str, **facts: Json) -> Stepped:
        """A repair that people were served and that goes no further."""
        variants = map(variant_id, bundle_of(self.workshop.store, work).values())
        return Stepped(
            f"taken off the trial: {why}",
            {
                **work,
                **again(work),
                "reason": why,
                "tried": [*work.get("tried", ()), *variants],
            },
            facts,
        )

    def close(self, work_of: Callable[[str], dict[str, Any]]) -> bool:
        """End the trial once everything on it is decided."""
        trial = self.standing()
        if trial is None or any(work_of(id).get("stage") == "on trial" for id in trial["issues"]):
            return False
        if self.ended_by() is None:
            why = "autopilot: every repair of the trial is decided"
            self.workshop.store.retire(trial["release"], reason=why)
        self.workshop.store.put_state(TRIAL, {**trial, "ended": True})
        return True


def _left(work: dict[str, Any], number: int, *, alone: bool) -> Stepped:
    """What becomes of a repair that did not fit on a trial."""
    if alone or work.get("unfit"):
        # Also without the others, or a second time: what it changes has been changed by another repair.
        why = "what it changes was changed by another repair"
        return Stepped(why, {**work, **again(work), "unfit": 0, "reason": why})
    return Stepped(
        "it does not fit beside the others: it waits for the next trial", {**work, "unfit": number}
    )


def again(work: dict[str, Any]) -> dict[str, Any]:
    """Where the work on an issue goes on whose repair people did not like: at the next variant, or from the start."""
    if work.get("others"):
        return {"stage": "diagnosed"}
    return {"stage": "found", "attempt": work["attempt"] + 1}


def _in_vain(arms: LiveArms) -> str:
    """Why the proof of a repair is given up; "" as long as it may come."""
    if arms.pairs >= _MOST_PAIRS:
        return f"{arms.pairs} pairs of thumbs do not prove it better"
    if arms.pairs >= 30 and arms.again().e_value < _LEAST_EXPECTED:
        return f"{arms.pairs} pairs of thumbs speak for nothing"
    return ""
