"""The evidence on the canaries that stand, read from the record: its runs by unit, and what is known of them.

`look` is a function of the record and the time alone: whoever calls it, a server that watches, a command that prints or
the autopilot, comes to the same decision. A unit is judged by the words of people on its runs, explicit before implicit
(`record.tracing.signals.telling`), and by runs that failed; a word counts for the run that it was given on and so for
the arm that this run was served, however late it comes, as long as the unit's time is not over (`CanaryPlan.settle`).
A run that was served otherwise than it was assigned is counted, said, and left out.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

import msgspec

from ..errors import StoreError
from ..record.store import Release, Stage, Store
from ..record.store.bundles import EMPTY
from ..record.store.releases import PROGRAM
from ..record.store.schema import LISTED, listed
from ..record.store.trials import SHADOW, Trials, changes, served_otherwise
from ..record.tracing.signals import IMPLICIT, telling
from ..types import Feedback, Outcome, Verdict, Version
from .canary import (
    CanaryAction,
    CanaryDecision,
    CanaryEvidence,
    CanaryPlan,
    CanaryUnit,
    decide,
    verdict_on,
)

PLAN = "canary/"
"""Prefix of the state that keeps the plan of a trial."""
PROVEN_MARGIN = 0.05
"""A canary that the gate has proven better need only be shown not to be worse by more than this."""
_RECENT = 2_000
"""Newest runs by which it is expected how many more there will be words on."""
_IDLE = {SHADOW, "replay_of", "rollout"}
"""Keys of `Trajectory.meta` of what served nobody."""
_FAILED = frozenset({Outcome.FAILURE, Outcome.TRUNCATED, Outcome.TIMEOUT, Outcome.BLOCKED, Outcome.INVALID})


# Read by SQLite, which lets other threads run meanwhile: this is looked at beside a gateway under load.
_QUERY = f"""
WITH recent AS (
    SELECT id, run, session, subject, started, outcome, CAST(body AS TEXT) AS body FROM trajectories
    WHERE seq >= (SELECT coalesce(min(seq), 0) FROM trajectories INDEXED BY trajectories_outcome
        WHERE outcome IN {LISTED} AND started >= ?) AND started >= ? AND (? AND experiment IS NULL OR instr(body, ?))
)
SELECT id, run, session, subject, started, outcome, json_extract(body, '$.error') IS NOT NULL,
    json_extract(body, '$.seconds'), json_extract(body, '$.versions'), json_extract(body, '$.meta'),
    json_extract(body, '$.task.instruction'),
    (SELECT sum(json_extract(value, '$.usage.dollars')) FROM json_each(body, '$.steps'))
FROM recent
"""
_FEEDBACK = f"SELECT run, session, body FROM feedback WHERE run IN {LISTED} OR session IN {LISTED}"


@dataclass(slots=True)
class _Run:
    """Of a Trajectory what a canary is judged by."""

    unit: str
    candidate: bool
    share: float
    others: dict[str, tuple[bool, float]]
    question: str
    person: str
    session: str | None
    started: float
    outcome: Outcome
    failed: bool
    """It ended in an error, whose ever."""
    seconds: float | None
    dollars: float | None
    words: list[Feedback] = field(default_factory=list)

    @property
    def ended(self) -> float:
        return self.started + (self.seconds or 0.0)

    def value(self, until: float) -> float | None:
        """The words on it up to a moment, else its outcome; None if neither says anything."""
        words = [word for word in self.words if word.at <= until]
        values = [float(word.value > 0) for word in telling(words) if word.value is not None]
        if values:
            return fmean(values)
        if any(word.kind == "correction" for word in words) or self.outcome in _FAILED:
            return 0.0
        return 1.0 if self.outcome is Outcome.SUCCESS else None


@dataclass(slots=True)
class _Unit:
    """A session or person with the runs that it was served in its first arm."""

    id: str
    candidate: bool
    share: float
    others: dict[str, tuple[bool, float]]
    runs: list[_Run] = field(default_factory=list)

    def over(self, plan: CanaryPlan) -> float:
        """Unix time at which its time is over."""
        return self.runs[0].started + plan.settle

    def spoke(self, plan: CanaryPlan) -> float | None:
        """Unix time of the first that is known of it."""
        over = self.over(plan)
        words = [word.at for run in self.runs for word in run.words]
        ends = [run.ended for run in self.runs if run.outcome in _FAILED or run.outcome is Outcome.SUCCESS]
        return min((at for at in (*words, *ends) if at <= over), default=None)

    def late(self, plan: CanaryPlan) -> int:
        """Words that came when its time was over."""
        return sum(word.at > self.over(plan) for run in self.runs for word in run.words)

    def at(self, until: float, older: set[str], *, first: bool = False) -> CanaryUnit:
        """The unit as it was known at a moment.

        Args:
            older: experiments whose interaction this one's canary answers for.
            first: as its first run alone shows it.
        """
        runs = self.runs[:1] if first else [run for run in self.runs if run.started <= until]
        values = [value for run in runs if (value := run.value(until)) is not None]
        amounts = {
            "seconds": [run.seconds for run in runs if run.seconds is not None],
            "dollars": [run.dollars for run in runs if run.dollars],
        }
        return CanaryUnit(
            id=self.id,
            candidate=self.candidate,
            share=self.share,
            value=fmean(values) if values else None,
            broken=fmean(run.failed for run in runs),
            amounts={name: fmean(values) for name, values in amounts.items() if values},
            others={trial: arm for trial, arm in self.others.items() if trial in older},
        )


@dataclass(frozen=True, slots=True)
class TrafficPart:
    """A part of the traffic that a canary is judged by alone.

    Args:
        holds: True of the questions that belong to it.
        most_of_one: units of one person that count, the first ones; None is all. By the units and not by what was
            said of them, so that who counts does not hang on the arm.
    """

    holds: Callable[[str], bool] = lambda question: True
    most_of_one: int | None = None


EVERYTHING = TrafficPart()


@dataclass(slots=True)
class _Gathered:
    """The runs of one trial in the order of their start, with the words on them."""

    runs: list[_Run] = field(default_factory=list)
    mismatched: int = 0

    def units(self, part: TrafficPart) -> tuple[dict[str, _Unit], int]:
        """The units of a part of them, and the runs of it that were left out of a unit of the other arm."""
        units, crossed, of_one = dict[str, _Unit](), 0, Counter[str]()
        for run in self.runs:
            if not part.holds(run.question):
                continue
            unit = units.get(run.unit)
            if unit is None:
                of_one[run.person] += 1
                if run.person and part.most_of_one is not None and of_one[run.person] > part.most_of_one:
                    continue
                unit = units[run.unit] = _Unit(run.unit, run.candidate, run.share, run.others)
            if unit.candidate is run.candidate:
                unit.runs.append(run)
            else:
                crossed += 1
        return units, crossed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLook:
    """One canary as it stands."""

    release: Release
    plan: CanaryPlan
    decision: CanaryDecision
    units: int
    """That were drawn, judged or not."""
    runs: int
    mismatched: int
    """Runs that were served otherwise than assigned, or drawn twice with two answers."""
    crossed: int
    """Runs that came to the candidate when the share rose, in a unit that had begun with what is live."""
    late: int
    """Words that came when their unit's time was over."""
    waits_for: str | None = None
    """The older canary of the same resource that serves now."""

    @property
    def verdict(self) -> Verdict | None:
        """That it goes live on; None where it does not."""
        if self.waits_for is not None or self.decision.share != 1.0:
            return None
        release = self.release
        return verdict_on(
            self.decision, self.plan, candidate=release.candidate, baseline=release.base or EMPTY.id
        )

    @property
    def moves(self) -> bool:
        """The decision is to do something now."""
        return self.waits_for is None and self.decision.action is not CanaryAction.HOLD

    @property
    def sentence(self) -> str:
        """Share, evidence, and what follows."""
        release, decision = self.release, self.decision
        if self.waits_for is not None:
            return (
                f"canary {release.trial} waits for {self.waits_for}, which is on trial for the same resource"
            )
        parts = [
            f"canary {release.trial} at {release.share:.0%} by {release.unit}: {self.units:,} drawn, {decision.n:,} "
            f"of them judged, {decision.candidate:,} of those the candidate's; {decision.action.value}, as "
            f"{decision.reason}"
        ]
        if decision.n < self.units:
            parts.append(f"a word counts once its {release.unit} is {self.plan.settle / 60:g} minutes old")
        if decision.next_look is not None:
            parts.append(f"next step at about {decision.next_look:,} judged units")
        if self.mismatched:
            parts.append(f"{self.mismatched:,} runs left out, served otherwise than assigned")
        if self.late:
            parts.append(f"{self.late:,} words came too late to count")
        return "; ".join(parts)


def plan_of(store: Store, release: Release) -> CanaryPlan:
    """The plan that a canary was given, else one that fits its share and its proof."""
    written = store.state(PLAN + release.trial)
    if written is not None:
        return msgspec.convert(written, CanaryPlan)
    return fitting(release.share, proven=release.verdict is not None)


def fitting(share: float, *, proven: bool) -> CanaryPlan:
    """The plan of a canary that begins at this share.

    Args:
        proven: the gate promoted it: it must be shown not to be worse, else to be better.
    """
    higher = [step for step in CanaryPlan().shares if step > share]
    return CanaryPlan(shares=(share, *higher), margin=PROVEN_MARGIN if proven else 0.0)


def keep_plan(store: Store, release: Release, plan: CanaryPlan) -> None:
    """Give a canary its plan, for every look at it."""
    store.put_state(PLAN + release.trial, msgspec.to_builtins(plan))


def expectation(store: Store, unit: str) -> tuple[float, float]:
    """Share of the units of the newest traffic that anything is known of, and the runs of one; (1, 1) of no traffic."""
    units: dict[str, list[bool]] = defaultdict(list)
    for run in store.trajectories(after=max(0, store.newest() - _RECENT)):
        if SHADOW not in run.meta:
            named = {"session": run.session, "subject": run.subject}.get(unit) or run.id
            units[named].append(bool(telling(run.feedback)) or run.outcome.counts)
    if not units:
        return 1.0, 1.0
    return fmean(map(any, units.values())), fmean(map(len, units.values()))


def look(
    store: Store, release: Release, *, now: float | None = None, part: TrafficPart = EVERYTHING
) -> TrialLook:
    """The evidence on a canary in a part of the traffic, and the decision on it.

    Raises:
        StoreError: a recorded run cannot be read.
    """
    return look_at_parts(store, release, {"": part}, now=now)[""]


def look_at_parts(
    store: Store, release: Release, parts: Mapping[str, TrafficPart], *, now: float | None = None
) -> dict[str, TrialLook]:
    """The same, of several parts at once, each with evidence of its own.

    Raises:
        StoreError: a recorded run cannot be read.
    """
    at = time.time() if now is None else now
    plan = plan_of(store, release)
    live, standing = store.live(release.name) or EMPTY, store.on_trial(release.name)
    waits_for = Trials(standing, live).waiting.get(release.trial)
    entries = [entry for entry in store.release_log(release.name) if entry.trial == release.trial]
    older = {trial.trial for trial in standing if trial.stage is Stage.CANARY and trial.trial < release.trial}
    gathered = _gather(store, release, entries or [release], changes(release, live))
    seen = {}
    for name, part in parts.items():
        by_unit, crossed = gathered.units(part)
        units, evidence = by_unit.values(), CanaryEvidence(plan)
        events = _events(evidence, units, plan, at, older)
        for _, _, tell in sorted(events, key=lambda event: event[:2]):
            tell()
        seen[name] = TrialLook(
            release=release,
            plan=plan,
            decision=decide(evidence, release.share),
            units=len(units),
            runs=sum(len(unit.runs) for unit in units),
            mismatched=gathered.mismatched,
            crossed=crossed,
            late=sum(unit.late(plan) for unit in units),
            waits_for=waits_for,
        )
    return seen


def looks(store: Store, *, name: str = "live", now: float | None = None) -> list[TrialLook]:
    """A look at every canary that stands, the oldest first."""
    standing = sorted(store.on_trial(name), key=lambda release: release.trial)
    return [look(store, release, now=now) for release in standing if release.stage is Stage.CANARY]


def _gather(
    store: Store, release: Release, entries: Sequence[Release], changed: Sequence[Version]
) -> _Gathered:
    """The runs of a trial in the order of their start, and the words on them.

    Args:
        entries: of the trial, oldest first.
    """
    gathered, by_id, by_session = _Gathered(), {}, defaultdict(list)
    since = min(entry.at for entry in entries)
    program = bool(changed) and all(version.kind == PROGRAM for version in changed)
    deployed = _Deployed(entries, changed) if program else None
    rows = store.database.rows(_QUERY, [listed(Outcome), since, since, program, release.trial])
    for row in sorted(rows, key=lambda row: (row[4], row[0])):
        id, run, session, subject, started, outcome, failed, seconds, versions, meta, question, dollars = row
        arms = _arms(meta)
        served = msgspec.json.decode(versions or "{}", type=dict[str, str])
        arm = arms.get(release.trial)
        if arm is None and deployed is not None:
            named = {"session": session, "subject": subject}.get(release.unit) or id
            arm = deployed.arm(named, started, served, meta)
        if arm is None:
            continue
        if arm.arm == "mixed" or served_otherwise(served, changed, candidate=arm.arm == "candidate"):
            gathered.mismatched += 1
            continue
        others = {
            id: (other.arm == "candidate", other.share)
            for id, other in arms.items()
            if id != release.trial and other.arm != "mixed"
        }
        drawn = _Run(
            arm.unit,
            arm.arm == "candidate",
            arm.share,
            others,
            question or "",
            subject or session or "",
            session,
            started,
            Outcome(outcome),
            bool(failed),
            seconds,
            dollars,
        )
        gathered.runs.append(drawn)
        by_id[id] = drawn
        if run:
            by_id.setdefault(run, drawn)
        if session:
            by_session[session].append(drawn)
    _add_words(store, by_id, by_session)
    return gathered


class _Arm(msgspec.Struct):
    """As `Trajectory.meta` has it."""

    arm: str
    share: float
    unit: str


class _Meta(msgspec.Struct):
    trials: dict[str, _Arm] = {}


def _arms(body: str | None) -> dict[str, _Arm]:
    try:
        return msgspec.json.decode(body or "{}", type=_Meta).trials
    except msgspec.MsgspecError:  # meta that another program wrote under this name
        return {}


class _Deployed:
    """The arms of code that nothing reads from the record: whoever deploys it draws who is served it.

    Nobody is drawn before it is deployed, which the first run under it tells; the unit of that run is no draw either.
    """

    def __init__(self, entries: Sequence[Release], changed: Sequence[Version]) -> None:
        self._entries, self._changed = entries, changed
        self._before, self._began = set[str](), False

    def arm(self, unit: str, started: float, served: Mapping[str, str], meta: str | None) -> _Arm | None:
        """Of the next run in the order of their start; None where it is no evidence."""
        if _IDLE & msgspec.json.decode(meta or "{}", type=dict[str, Any]).keys():
            return None
        tried = any(served.get(version.resource) == version.id for version in self._changed)
        if not self._began:
            self._before.add(unit)
            self._began = tried
        if unit in self._before:
            return None
        share = [entry.share for entry in self._entries if entry.at <= started][-1]
        return _Arm("candidate" if tried else "live", share, unit)


def _add_words(store: Store, by_id: dict[str, _Run], by_session: dict[str, list[_Run]]) -> None:
    """Give each run the words on it; a word on a session is one on its last run before that."""
    rows = store.database.rows(_FEEDBACK, [listed(by_id), listed(by_session)])
    for run, session, body in rows:
        try:
            word = msgspec.json.decode(body, type=Feedback)
        except msgspec.MsgspecError as error:
            raise StoreError(f"recorded feedback cannot be read: {error}") from error
        if not (word.kind in ("thumb", "correction") or word.kind.startswith(IMPLICIT)):
            continue  # a rating has a scale that nobody told
        meant = by_id.get(run)
        if meant is None and session in by_session:
            own = by_session[session]
            meant = next((each for each in reversed(own) if each.started <= word.at), own[0])
        if meant is not None:
            meant.words.append(word)


_Event = tuple[float, str, Callable[[], None]]


def _events(
    evidence: CanaryEvidence, units: Iterable[_Unit], plan: CanaryPlan, now: float, older: set[str]
) -> Iterator[_Event]:
    """What is known of the units up to now, with its time: each is told to the evidence once, in this order."""
    for unit in units:
        first, spoke, over = unit.runs[0], unit.spoke(plan), unit.over(plan)
        if first.started <= now:
            yield first.started, unit.id, partial(evidence.exposed, unit.candidate, unit.share)
        if first.ended <= now:
            yield first.ended, unit.id, partial(evidence.ran, unit.at(first.ended, older, first=True))
        if spoke is not None and spoke <= now:
            yield spoke, unit.id, partial(evidence.spoke, unit.at(spoke, older))
        if over <= now:
            yield over, unit.id, partial(evidence.settled, unit.at(over, older))
