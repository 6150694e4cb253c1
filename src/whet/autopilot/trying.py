"""The trial that stands: begun, looked at as people speak, and ended once each repair on it is decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import Any

from ..errors import BudgetExceeded, ConflictError
from ..learn.evolution.repair.repair import variant_id
from ..prove.canary import RAMP, CanaryAction, CanaryDecision, CanaryPlan
from ..prove.watch import TrafficPart, look_at_parts
from ..record.reviewing import clear
from ..record.store import Store
from ..record.store.bundles import EMPTY
from ..record.store.findings import open_findings
from ..record.store.issues import AgentIssue
from ..record.store.releases import Release, Stage
from ..ship.canaries import BY_EVIDENCE, carry_out
from ..types import Json, digest
from .alone import LeaveOneOut, OwnShare
from .evidence import MOST_OF_ONE, LiveArms, TrialSpan, liked_of
from .night import TRIAL
from .trial import board
from .work import Stepped, Workshop, bundle_of

_MOST_PAIRS = 150
"""Pairs after which a repair that is not proven is taken off."""
_PATIENCE = 1.5
"""Times the traffic by which half of the decided repairs of a trial were that the others have, where more wait."""
_ROOM = 1 / 3
"""Repairs that wait for each one that is undecided, from which on a trial that has its full share makes room."""
_TOUCHED = 0.1
"""Share of a repair's questions that other repairs of its trial may have for theirs, where nothing else can be told."""
_LEAST_EXPECTED = 1.0
"""E-value that half of those pairs must have reached."""


@dataclass(frozen=True, slots=True)
class TogetherStepped:
    """What a step on several repairs did."""

    sentence: str
    stepped: Mapping[str, Stepped] = field(default_factory=dict)
    """Id of an issue → what became of its repair."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    states: Mapping[str, Json] = field(default_factory=dict)
    """Key → value, to be written in one transaction with the rows, so that no kill comes between them."""


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

    def begin(self, works: dict[str, dict[str, Any]], share: float, *, shadow: str) -> TogetherStepped:
        """Put repairs on trial.

        Args:
            shadow: the trial in whose shadow they ran, together, and which goes on.
        """
        bench, store = self.workshop, self.workshop.store
        number = self.number + 1
        folder = bench.settings.output / f"trial-{number}"
        boarded = board(store, self.root, folder, works, bench.shipped())
        on_trial = {trial.trial: trial for trial in store.on_trial()}
        if boarded.left or on_trial[shadow].candidate != boarded.bundle.id:
            why = "the source has changed since it ran in the shadow"
            store.retire(shadow, reason=f"autopilot: {why}")
            return TogetherStepped(f"{why}: it does so anew")
        stepped: dict[str, Stepped] = {}
        release = store.release(
            boarded.bundle,
            stage=Stage.CANARY,
            share=share,
            unproven=True,
            new_names=True,
            reason=f"autopilot: trial {number} of {len(boarded.issues)} repairs",
        )
        standing: dict[str, Json] = {
            "number": number,
            "began": bench.night.now,
            "bundle": boarded.bundle.id,
            # Of the trial and not of the entry, which moves with its share.
            "release": release.trial,
            "folder": str(boarded.folder),
            "issues": list(boarded.issues),
            "share": share,
            "pieces": [place for id in boarded.issues for place in works[id]["pieces"]],
            "ended": False,
        }
        for id in boarded.issues:
            sentence = f"on trial {number} with {share:.0%} of the traffic: people judge it by their thumbs"
            stepped[id] = Stepped(sentence, {**works[id], "stage": "on trial", "trial": number, "apart": ""})
        count = len(boarded.issues)
        sentence = (
            f"trial {number}: {count} repairs are served to {share:.0%} of the traffic, from {boarded.folder}, whose "
            f"model calls go to /deployed/{boarded.bundle.id}/v1 of the server"
        )
        facts: dict[str, Json] = {
            "release": release.id,
            "bundle": boarded.bundle.id,
            "folder": str(boarded.folder),
        }
        return TogetherStepped(sentence, stepped, facts, {TRIAL: standing})

    def arms(self, work: dict[str, Any], trial: dict[str, Any]) -> LiveArms:
        """What people said on both sides in an issue's part of the traffic, on all trials that its repair was on."""
        # The part is that of the diagnosis: what was served since may not say which questions count.
        part = self.workshop.part_of(work)
        spans = (self._span(each) for each in (*work.get("earlier", ()), trial))
        return LiveArms.of(*(replace(span, runs=part.runs(span.runs)) for span in spans))

    def _span(self, trial: dict[str, Any]) -> TrialSpan:
        """All traffic of a trial, the one that stands or an earlier one."""
        bench, ended = self.workshop, trial.get("until", math.inf)
        runs = [run for run in bench.runs(bench.night.now) if trial["began"] <= run.started < ended]
        # What went live of it meanwhile is on both sides.
        live = (bench.store.live() or EMPTY).ids
        bundle = bench.store.bundle(trial["bundle"]).ids
        versions = {version for name, version in bundle.items() if live.get(name) != version}
        return TrialSpan(runs, versions, self._shares(trial))

    def _shares(self, trial: Mapping[str, Any]) -> Callable[[float], float]:
        """The share that a trial had at a time, as the release log has it."""
        log = self.workshop.store.release_log()
        entries = [each for each in log if each.trial == trial["release"] and each.stage is Stage.CANARY]

        def at(time: float) -> float:
            return next((each.share for each in reversed(entries) if each.at <= time), trial["share"])

        return at

    def ramp(self) -> str:
        """Give a trial more of the traffic where harm by all of it together is excluded; what was done, "" for nothing.

        As for any canary: the larger the share that may be hurt, the surer (`prove/canary.py`).
        """
        trial, night, store = self.standing(), self.workshop.night, self.workshop.store
        canary = next((each for each in store.on_trial() if trial and each.trial == trial["release"]), None)
        if trial is None or canary is None:
            return ""
        most = min(night.budget.share, 0.5)
        steps = [step for step in (*CanaryPlan().shares, most) if canary.share < step <= most]
        if steps:
            arms = LiveArms.of(self._span(trial))
            evidence = arms.unharmed(CanaryPlan().harm)
            steps = [step for step in steps if evidence * RAMP >= step / min(night.budget.first_share, most)]
        if not steps:
            if canary.share != trial["share"]:  # a process was killed behind the entry of the log
                store.put_state(TRIAL, {**trial, "share": canary.share})
            return ""
        loss = f"a loss of {100 * CanaryPlan().harm:.0f} points (e-value {evidence:.3g})"
        reason = f"{arms.pairs} pairs of thumbs on all that it serves exclude {loss}"
        try:
            carry_out(store, canary, max(steps), reason=f"autopilot: {reason}")
        except ConflictError:
            return ""  # somebody has moved it: that stands
        store.put_state(TRIAL, {**trial, "share": max(steps)})
        return f"trial {trial['number']} has {max(steps):.0%} of the traffic, and had {canary.share:.0%}: {reason}"

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
            try:
                # One proof, on however many trials.
                first = (*work.get("earlier", ()), trial)[0]
                alpha = night.alpha(f"trial/{id}/{first['number']}")
            except BudgetExceeded as exceeded:
                given_up = {"stage": "given up", "reason": "no proof is left tonight"}
                decided[id] = Stepped(f"taken off the trial: {exceeded}", {**work, **given_up})
                continue
            verdict = arms.verdict(work["bundle"], alpha, baseline=work["start"])
            if verdict is not None and verdict.promote:
                folder = self.workshop.settings.output / id[:12]
                arms.write(folder)
                low, high = verdict.interval
                effect = f"{100 * verdict.effect:+.0f} points [{100 * low:+.0f}, {100 * high:+.0f}]"
                sentence = f"proven on real traffic: {effect}, e-value {verdict.e_value:.3g}, n = {verdict.n}"
                self.workshop.store.put_verdict(verdict, experiment=f"autopilot/trial-{trial['number']}")
                self._confirmed(work, sentence)
                decided[id] = Stepped(
                    sentence,
                    {
                        **work,
                        "stage": "proven",
                        "pairs": verdict.n,
                        "effect": verdict.effect,
                        "before": arms.disliked,
                        "liked": arms.liked,
                        # As long as it is not known what it does by itself.
                        "beside": len(trial["issues"]) - 1,
                        "proven": night.now,
                    },
                    {"e_value": verdict.e_value},
                )
            elif (why := _in_vain(arms)) and (stepped := self._together(id, work, work_of, why)):
                decided[id] = stepped
            elif why:
                decided[id] = off(self.workshop.store, work, f"taken off the trial: {why}", pairs=arms.pairs)
        if decided:
            trial["decided_after"] = [*trial.get("decided_after", ()), *[self._served(trial)] * len(decided)]
            self.workshop.store.put_state(TRIAL, trial)
        if harmed:
            # First who is to blame, then the end: a process that is killed between them goes on by what it finds.
            self.workshop.store.put_state(TRIAL, {**trial, "harmed": harmed})
            why = f"autopilot: {len(harmed)} of its repairs may not go on in their parts of the traffic"
            self.workshop.store.retire(trial["release"], reason=why)
        return decided

    def _confirmed(self, work: dict[str, Any], sentence: str) -> None:
        """Clear what was only suspicious of a repair's score: people like what it answers."""
        store = self.workshop.store
        for finding in open_findings(store.database, work["bundle"]):
            if finding.suspicion:
                clear(store, finding.id, by="people on trial, by their thumbs", why=sentence)

    async def alone(self, id: str, work: dict[str, Any], work_of: Callable[[str], dict[str, Any]]) -> Stepped:
        """What a repair that was proven beside others does by itself (`alone.py`), and what becomes of it."""
        bench, trial = self.workshop, dict(self.workshop.store.state(TRIAL) or {})
        part = bench.part_of(work)
        began = trial["began"] if trial.get("number") == work["trial"] else work["as_of"]
        asked = part.runs(run for run in bench.runs(work["proven"]) if run.started >= began)
        served = {*bench.store.bundle(trial["bundle"]).ids.values()}
        # What people liked of it first: nothing else speaks for it.
        unliked = {run.id: not liked_of(run) or served.isdisjoint(run.versions.values()) for run in asked}
        asked.sort(key=lambda run: (unliked[run.id], digest(["alone", run.id])))
        on_it = {
            other: each
            for other in trial.get("issues", ())
            if (each := work_of(other)).get("trial") == work["trial"] and other != id
        }
        standing = {other: each for other, each in on_it.items() if each["stage"] in ("on trial", "proven")}
        # Those that did it together, and none of them alone, are looked at as one.
        whole = {other for other, each in standing.items() if work.get("whole") and each.get("whole")}
        why = ""
        try:
            rest = LeaveOneOut(
                bench,
                self.root,
                bench.shipped(but=id),
                {**standing, id: work},
                bench.store.bundle(trial["bundle"]),
                trial.get("pieces", ()),
            )
            share = await rest.share_of({id, *whole}, asked)
        except BudgetExceeded as exceeded:
            share, why = OwnShare(0, 0, 0), f" ({exceeded})"
        does = share.does(work["effect"], work["liked"])
        sentence = f"{share.sentence}{why}"
        if not share.told:
            parts = [bench.part_of(each) for each in on_it.values()]
            held = sum(any(each.holds(run.task.instruction) for each in parts) for run in asked)
            does = True if held <= _TOUCHED * len(asked) else None
            sentence += f"; {held} of its {len(asked)} on the trial are of another repair's part, too"
        facts: dict[str, Json] = {"asked": share.asked, "changed": share.changed, "own": share.own}
        if does:
            return Stepped(f"proven by itself: {sentence}", {**work, "beside": 0}, facts)
        if does is False:
            left = off(bench.store, work, f"left out, for it adds nothing: {sentence}", **facts)
            # Whoever mends its part is not live yet; by then there is more traffic to go by.
            again = {"stage": "waiting", "attempt": work["attempt"] + 1}
            return Stepped(left.sentence, {**left.work, **again}, left.facts)
        # The others that are live by then are on both sides; those that wait as it does are tried one by one.
        waiting = [each for each in on_it.values() if each["stage"] == "to try" and each.get("shared")]
        apart = f"{work['trial']}.{len(waiting)}" if waiting or work.get("shared") else ""
        return Stepped(
            f"what was proven is not shown to be its own doing: {sentence}; it goes on another trial",
            {**work, "stage": "to try", "shared": work["trial"], "apart": apart, "earlier": []},
            facts,
        )

    def _together(
        self, id: str, work: dict[str, Any], work_of: Callable[[str], dict[str, Any]], why: str
    ) -> Stepped | None:
        """What becomes of a repair that does nothing alone, where it was proven with others; None where it was not.

        Two repairs may mend only together what neither does alone: if none of them is live, they are tried as one.
        """
        shared = work.get("shared")
        if not shared or work.get("whole"):
            return None
        known = {issue.id: work_of(issue.id) for issue in self.workshop.store.issues.read()}
        others = [each for other, each in known.items() if other != id and each.get("shared") == shared]
        if not others or any(each["stage"] == "shipped" for each in others):
            return None
        return Stepped(
            f"alone {why}: it goes on a trial with those that it was proven with",
            {**work, "stage": "to try", "whole": True, "apart": f"{shared}.whole", "earlier": []},
        )

    def _harmed(self, trial: dict[str, Any], undecided: dict[str, dict[str, Any]]) -> dict[str, str]:
        """Repairs that do harm in their own part, and how: each is looked at as the server looks at the whole."""
        standing = [each for each in self.workshop.store.on_trial() if each.trial == trial["release"]]
        looks = self._looks(standing[0], undecided, self.workshop.night.now) if standing else {}
        return {id: seen.reason for id, seen in looks.items() if seen.action is CanaryAction.TAKE_BACK}

    def _looks(
        self, canary: Release, works: dict[str, dict[str, Any]], now: float
    ) -> dict[str, CanaryDecision]:
        """What the evidence of each repair's own part says of a canary."""
        bench = self.workshop
        parts = {
            id: TrafficPart(bench.part_of(work).holds, most_of_one=2 * MOST_OF_ONE)
            for id, work in works.items()
        }
        return {id: seen.decision for id, seen in look_at_parts(bench.store, canary, parts, now=now).items()}

    def _blamed(
        self, trial: dict[str, Any], undecided: dict[str, dict[str, Any]], end: Release
    ) -> dict[str, str]:
        """Repairs that may be why the server took their trial back, and what speaks against each.

        Those whose own part shows harm; else those whose part went worse at all; else any of them.
        """
        why = f"its trial was taken back: {end.reason}"
        log = self.workshop.store.release_log()
        canaries = [each for each in log if each.trial == trial["release"] and each.stage is Stage.CANARY]
        # With what people have said since of what they were served then.
        looks = self._looks(canaries[-1], undecided, max(end.at, self.workshop.night.now))
        harmed = {id: seen.reason for id, seen in looks.items() if seen.action is CanaryAction.TAKE_BACK}
        worse = {id: why for id, seen in looks.items() if seen.n and seen.effect < 0}
        return harmed or worse or dict.fromkeys(undecided, why)

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
        undecided = self._undecided(work_of)
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
                stepped[id] = Stepped(sentence, _goes_on(work, trial, end.at))
            return f"{whole} ended: {end.reason}", stepped, facts
        harmed = {id: why for id, why in trial.get("harmed", {}).items() if id in undecided}
        for id, why in harmed.items():
            stepped[id] = off(store, undecided[id], f"taken off the trial: {why}")
        if not harmed and end.reason.startswith(BY_EVIDENCE):
            harmed = self._blamed(trial, undecided, end)
            stepped |= blame(store, {id: undecided[id] for id in harmed}, harmed, trial["number"])
        elif not harmed:
            # A person did it, and meant all of it.
            why = f"taken off the trial: its trial was taken back: {end.reason}"
            stepped |= {id: off(store, work, why) for id, work in undecided.items()}
        for id, work in undecided.items():
            if id not in stepped:
                sentence = "its trial ended undecided, for another repair did harm: it goes on the next one"
                stepped[id] = Stepped(sentence, _goes_on(work, trial, end.at))
        return f"{whole} was taken back: {end.reason}", stepped, facts

    def full(self, waiting: int, work_of: Callable[[str], dict[str, Any]], *, at_once: bool) -> str:
        """Why the trial that stands is to end for those that wait; "" where it is to go on.

        Args:
            waiting: repairs that wait for a trial.
            at_once: the next one begins at once.  Else a person has to allow it first, and meanwhile nobody judges.
        """
        trial, undecided = self.standing(), self._undecided(work_of)
        if trial is None or not waiting:
            return ""
        # By most of those decided: the last one of many is itself slow.
        usual = median_low(trial.get("decided_after", [math.inf]))
        if waiting > len(undecided) and self._served(trial) >= _PATIENCE * usual:
            return f"it has had {_PATIENCE:g} times the traffic that decided the others"
        most = min(self.workshop.night.budget.share, 0.5)
        if at_once and trial["share"] >= most and waiting >= _ROOM * len(undecided):
            return "what people have said goes with those that are undecided"
        return ""

    def _undecided(self, work_of: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Where the work stands on each issue whose repair is on the trial that stands."""
        issues = (self.standing() or {}).get("issues", ())
        return {id: work for id in issues if (work := work_of(id)).get("stage") == "on trial"}

    def make_room(self, why: str, waiting: int, work_of: Callable[[str], dict[str, Any]]) -> TogetherStepped:
        """Let those that are undecided go on the next trial, with those that wait.

        Args:
            why: as `full` has it.
            waiting: repairs that wait.
        """
        trial, undecided = self.standing(), self._undecided(work_of)
        assert trial is not None
        now = self.workshop.night.now
        sentence = f"it goes on the next trial: {waiting} repairs wait, and {why}"
        stepped = {id: Stepped(sentence, _goes_on(work, trial, now)) for id, work in undecided.items()}
        count = f"{waiting} repairs that wait, with {len(undecided)} undecided"
        return TogetherStepped(f"trial {trial['number']} ends for {count}: {why}", stepped)

    def _served(self, trial: dict[str, Any]) -> int:
        """Requests since a trial began, on both of its sides."""
        bench = self.workshop
        return sum(run.started >= trial["began"] for run in bench.runs(bench.night.now))

    def close(self, work_of: Callable[[str], dict[str, Any]]) -> bool:
        """End the trial once everything on it is decided."""
        trial = self.standing()
        if trial is None or self._undecided(work_of):
            return False
        if self.ended_by() is None:
            why = "autopilot: every repair of the trial is decided"
            self.workshop.store.retire(trial["release"], reason=why)
        self.workshop.store.put_state(TRIAL, {**trial, "ended": True})
        return True


def _goes_on(work: dict[str, Any], trial: dict[str, Any], until: float) -> dict[str, Any]:
    """The work on a repair that goes on the next trial, with what people said of it until this one ended."""
    span = {name: trial[name] for name in ("number", "began", "bundle", "release", "share")}
    return {**work, "stage": "to try", "earlier": [*work.get("earlier", ()), {**span, "until": until}]}


def off(store: Store, work: dict[str, Any], sentence: str, **facts: Json) -> Stepped:
    """A repair that goes no further; what it tried is not tried again."""
    variants = map(variant_id, bundle_of(store, work).values())
    reason = sentence.partition(": ")[2] or sentence
    tried = [*work.get("tried", ()), *variants]
    fresh: dict[str, Json] = {"apart": "", "shared": 0, "whole": False, "earlier": []}
    return Stepped(sentence, {**work, **again(work), "reason": reason, "tried": tried, **fresh}, facts)


def blame(
    store: Store, works: Mapping[str, dict[str, Any]], why: Mapping[str, str], number: int
) -> dict[str, Stepped]:
    """What becomes of the repairs one of which did harm on a trial.

    One alone is taken off.  Of several nobody knows which: each half of them is tried without the other, and so on, so
    that the one that does harm is found and no other loses its turn (as faulty commits of a merge queue are).

    Args:
        why: what speaks against each.
        number: of the trial.
    """
    if len(works) == 1:
        return {id: off(store, work, f"taken off the trial: {why[id]}") for id, work in works.items()}
    stepped = {}
    for place, (id, work) in enumerate(works.items()):
        half = 2 * place // len(works)
        stepped[id] = Stepped(
            f"one of {len(works)} repairs did harm ({why[id]}): they are tried in two halves",
            {**work, "stage": "to try", "apart": f"{number}.{half}", "earlier": []},
        )
    return stepped


def left_out(work: dict[str, Any], number: int, *, alone: bool) -> Stepped:
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
