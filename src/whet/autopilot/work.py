"""The steps on one issue: what may repair it, and whether a reward may already judge that.

Each step reads where the work stands, does one thing, and says where it stands then; the caller writes both in one
transaction.  A step that is done again after a kill finds what it paid for in the record
(`learn/evolution/repair/repair.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ..judge.drift import is_traffic
from ..learn.evolution.repair.planning import RatedTraffic, RepairPlan, RepairSettings, plan_repair
from ..learn.evolution.repair.repair import Repair, opened, variant_id
from ..learn.evolution.repair.suspects import WeakPart
from ..learn.improvement import Improvement
from ..models.base import Model
from ..record.influence import InfluenceLimits, weighed
from ..record.store import Store
from ..record.store.findings import open_findings
from ..record.store.issues import AgentIssue, Component
from ..record.store.releases import Release, Stage
from ..ship.issues.finding import NEWEST
from ..ship.issues.marks import ENDED, ERROR
from ..ship.issues.weak_part import unreached
from ..types import Bundle, Json, Trajectory, Version, digest
from .evidence import liked_of
from .lasting import LiveRepair
from .night import Night
from .shown import by_replay, read_of
from .slices import PartOfTraffic

PEOPLE = InfluenceLimits(people=5)
"""Nobody looks on: fewer people who said something are too few to learn from, and none of them counts without bound."""
_MOST_SHARED = 0.5
"""Share of an issue's questions that may belong to another one's part."""
_FEWEST_ASKED = 500
"""Recorded questions from which an issue's are told."""
_MOST_KEPT = NEWEST + NEWEST // 10
"""Runs that are kept; then the newest alone."""
_TOGETHER = 200
"""Runs that are read again together, as something was said of them."""
_MOST_PARTS = 100
"""Parts of the traffic that are remembered."""
_SYMPTOM = 600
"""Characters of what an issue says that a model which proposes is told."""
_MOST_IDEAS = 8
"""Variants of a piece from other issues' searches that are tried for one: the newest."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step did."""

    sentence: str
    work: dict[str, Any]
    """Where the work on the issue stands now."""
    facts: dict[str, Json] = field(default_factory=dict)


class RecordedTraffic:
    """The recorded runs that somebody asked for, those that `whet issues` looks at; a rollout is nobody's request.

    What was read is kept, for decoding the record costs more than most steps, and each search adds to it; where people
    have said something since, that run alone is read again.  Of the steps nothing is kept that was said: the messages
    of a run are nine tenths of what it takes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest, self._spoken, self._counts = 0, 0, (0, 0)
        """Numbers of the last run and of the last feedback that were read, and how many there were up to them."""
        self._runs: dict[str, Trajectory] = {}
        self._latest = 0.0
        """When the last of it began or was said."""
        self._stood: tuple[float, list[Trajectory]] | None = None
        """A time, and the runs as they stood then."""
        self._rated: tuple[list[Trajectory], RatedTraffic] | None = None

    def read(self) -> Mapping[str, Trajectory]:
        """Id → run, in the order of recording."""
        newest, rows = self._store.newest(), self._store.database.rows
        if self._counted() != self._counts:  # somebody was erased
            self._runs, self._newest, self._spoken, self._stood = {}, 0, 0, None
        fresh = rows("SELECT seq, run FROM feedback WHERE seq > ? ORDER BY seq", [self._spoken])
        spoken_of = [*dict.fromkeys(run for _, run in fresh if run)] if self._runs else []
        for begin in range(0, len(spoken_of), _TOGETHER):
            ids = spoken_of[begin : begin + _TOGETHER]
            again = self._store.trajectories(served=True, ids=ids, upto=self._newest)
            self._keep(run for run in again if run.id in self._runs)
        after = self._newest or max(0, newest - NEWEST)
        if newest > after:
            self._keep(self._store.trajectories(served=True, after=after, upto=newest))
        if newest > self._newest or fresh:
            self._newest, self._spoken = newest, fresh[-1][0] if fresh else self._spoken
            self._counts = self._counted()
        return self._runs

    def _counted(self) -> tuple[int, int]:
        """Runs and feedback in the record as far as it was read."""
        # Those beyond it are few: up to it, each row would be read with its body.
        query = "SELECT (SELECT count(*) FROM {0}) - (SELECT count(*) FROM {0} WHERE seq > ?)"
        rows = self._store.database.rows
        ((runs,),) = rows(query.format("trajectories"), [self._newest])
        ((notes,),) = rows(query.format("feedback"), [self._spoken])
        return runs, notes

    def _keep(self, runs: Iterable[Trajectory]) -> None:
        """Keep runs as they are now: new ones, and those of which something was said."""
        fresh = {run.id: _lean(run) for run in runs if is_traffic(run)}
        if fresh:
            self._runs |= fresh
            if len(self._runs) > _MOST_KEPT:
                self._runs = dict(islice(self._runs.items(), len(self._runs) - NEWEST, None))
            self._stood = None
            said = (note.at for run in fresh.values() for note in run.feedback)
            self._latest = max(self._latest, *(run.started for run in fresh.values()), *said)

    def latest(self, at: float) -> float:
        """The time up to which the record is the same at a time: that, or when its last run began or was spoken of."""
        self.read()
        return min(at, self._latest)

    def as_of(self, at: float) -> list[Trajectory]:
        """The runs as they stood at a time, not to be changed: what people said later is not there yet."""
        at = self.latest(at)
        if self._stood is None or self._stood[0] != at:
            stood = [
                run
                if all(note.at <= at for note in run.feedback)
                else replace(run, feedback=[note for note in run.feedback if note.at <= at])
                for run in self._runs.values()
                if run.started <= at
            ]
            self._stood = at, stood
        return self._stood[1]

    def rated(self, at: float) -> RatedTraffic:
        """What of them may be learned from."""
        runs = self.as_of(at)
        if self._rated is None or self._rated[0] is not runs:
            self._rated = runs, RatedTraffic(weighed(runs, PEOPLE))
        return self._rated[1]


def _lean(run: Trajectory) -> Trajectory:
    return replace(run, steps=[replace(step, observation=None, action=None, info={}) for step in run.steps])


@dataclass(frozen=True, slots=True)
class Workshop:
    """What the steps on every issue share."""

    store: Store
    night: Night
    settings: RepairSettings
    model: Model | None
    _traffic: RecordedTraffic = field(init=False)
    _parts: dict[tuple[str, float], PartOfTraffic] = field(default_factory=dict)
    """The runs that show an issue, and when → its part of the traffic."""
    _held: dict[tuple[str, ...], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_traffic", RecordedTraffic(self.store))

    def runs(self, as_of: float) -> list[Trajectory]:
        """The agent's recorded runs as they stood at a time: what people said later is not there yet.

        A step that is done again sees the same record, whatever came in between.  Of their steps what was done is
        left, and not what was said (`RecordedTraffic`).
        """
        return self._traffic.as_of(as_of)

    def part_of(self, work: dict[str, Any]) -> PartOfTraffic:
        """The questions of the issue that the work is on, as it stood when it was diagnosed.

        Of a repair that has been live for long its runs have left what is read: then the issue's own are looked up, and
        told from what is asked today.
        """
        key = digest(work["shown"], 16), self._traffic.latest(work["as_of"])
        if key not in self._parts:
            while len(self._parts) >= _MOST_PARTS:
                self._parts.pop(next(iter(self._parts)))
            self._parts[key] = self._told(work)
        return self._parts[key]

    def _told(self, work: dict[str, Any]) -> PartOfTraffic:
        shown, runs = set(work["shown"]), self.runs(work["as_of"])
        own = [run.task.instruction for run in runs if run.id in shown]
        if len(own) < len(shown):
            own = [run.task.instruction for run in self.store.trajectories(ids=sorted(shown))]
            runs = runs if len(runs) >= _FEWEST_ASKED else self.runs(self.night.now)
        return PartOfTraffic.of(own, [run.task.instruction for run in runs], share=work["traffic"])

    def covered(self, issue: AgentIssue, works: Iterable[tuple[str, dict[str, Any]]]) -> bool:
        """True if another issue that is being worked on is about the same questions.

        One fault often shows as several issues, by its words, its tool, its answers; what repairs one repairs all.  One
        that is about many more questions is another: it may have other faults, and this one beside them.
        """
        own = {"shown": list(issue.runs), "traffic": issue.traffic, "as_of": self.night.now}
        return any(
            self._holds(id, work, own) and self._holds(issue.id, own, work)
            for id, work in works
            if id != issue.id and "shown" in work
        )

    def _holds(self, id: str, work: dict[str, Any], other: dict[str, Any]) -> bool:
        """True if most questions of the other belong to the part of this one."""
        key = id, digest(work["shown"], 16), digest(other["shown"], 16)
        if key not in self._held:
            part, runs_by_id = self.part_of(work), self._traffic.read()
            shown = [runs_by_id[id] for id in dict.fromkeys(other["shown"]) if id in runs_by_id]
            questions = [run.task.instruction for run in shown]
            self._held[key] = sum(map(part.holds, questions)) > _MOST_SHARED * len(questions)
        return self._held[key]

    def named_at(self, work: dict[str, Any]) -> float | None:
        """When the first run since a repair went live named it: the record served it. None if no run did."""
        log = self.store.release_log()
        live = next((each for each in log if each.id == work["release"]), None)
        if live is None:
            return None
        tried, ids = self._tried(log), live.bundle.ids
        versions = {ids[resource] for resource, *_ in work["pieces"] if resource in ids}
        named = (
            run.started
            for run in self.runs(self.night.now)
            if run.started > live.at
            and not versions.isdisjoint(run.versions.values())
            and tried.isdisjoint(run.versions.values())
        )
        return min(named, default=None)

    def since_live(self, work: dict[str, Any]) -> LiveRepair | None:
        """What people say of a repair's part of the traffic since it serves them.

        Of what is live alone: the copy of a later trial has the repair also where the source has lost it.

        Returns:
            None where no trial proved it, or it is live in the record and serves nobody yet.
        """
        # Of the trial, and not counted again: the runs of then may have left what is read.
        if not work.get("serves") or "effect" not in work or "before" not in work:
            return None
        liked = [liked for run in self._served_by(work) if (liked := liked_of(run)) is not None]
        return LiveRepair(work["before"], work["effect"], liked)

    def disliked_since_live(self, work: dict[str, Any]) -> list[Trajectory]:
        """Runs of a live repair's part of the traffic whose answers people dislike, the newest first."""
        if not work.get("serves"):
            return []
        return [run for run in reversed(self._served_by(work)) if liked_of(run) is False]

    def _served_by(self, work: dict[str, Any]) -> list[Trajectory]:
        """Runs of a live repair's part since it serves them, the oldest first."""
        part, tried = self.part_of(work), self._tried(self.store.release_log())
        since = part.runs(
            run
            for run in self.runs(self.night.now)
            if run.started >= work["serves"] and tried.isdisjoint(run.versions.values())
        )
        return sorted(since, key=lambda run: run.started)

    def _tried(self, log: Sequence[Release]) -> set[str]:
        """Ids of Versions that were on trial and never live."""
        candidates = {entry.candidate for entry in log if entry.stage is Stage.CANARY}
        tried = {id for candidate in candidates for id in self.store.bundle(candidate).ids.values()}
        return tried.difference(*(entry.bundle.ids.values() for entry in log if entry.stage is Stage.LIVE))

    def shipped(self, *, but: str = "") -> list[dict[str, Any]]:
        """The work on repairs that are live, in the order in which they went live.

        Args:
            but: id of an issue that is left out.
        """
        issues = (issue.id for issue in self.store.issues.read() if issue.id != but)
        works = [self.store.state(f"autopilot/work/{id}") for id in issues]
        standing = [
            dict(work) for work in works if work and work["stage"] == "shipped" and work.get("release")
        ]
        order = {release.id: number for number, release in enumerate(self.store.release_log())}
        return sorted(standing, key=lambda work: order.get(work["release"], -1))

    def _searched(self, work: dict[str, Any]) -> tuple[str, ...]:
        """Pieces that come last; every second attempt, for those that were searched may still be it."""
        if work.get("others"):
            return tuple(work.get("avoided", ()))  # as they were when the variants were made
        return tuple(work.get("searched", ())) if work["attempt"] % 2 else ()

    def plan(self, issue: AgentIssue, work: dict[str, Any]) -> RepairPlan:
        """What may be done for an issue, by the record and the source as they stood when it was diagnosed."""
        traffic = self._traffic.rated(work["as_of"])
        influence = traffic.influence
        runs = influence.runs
        # As it was diagnosed, whatever was shown of it meanwhile.
        read = {**read_of(issue), **work.get("read", {})}
        weak = WeakPart(
            issue=issue.id,
            # A service that answers in another form is met by the tool that asks it.
            component=Component.TOOL.value if read["component"] == Component.UPSTREAM else read["component"],
            resource=read["resource"],
            tried=(*work.get("tried", ()), *(self.store.state(self._harmful_key) or ())),
            searched=self._searched(work),
            runs=frozenset(run.id for run in self.part_of(work).runs(runs)),
            failing=issue.where.get(ERROR, "").partition(": ")[0],
            symptom=work.get("symptom", ""),
        )
        people = {run.subject or run.session or run.id for run in runs}
        unseen = {person for person in people if self.night.unseen(person)}
        settings = replace(
            self.settings,
            calls=work.get("calls", self.settings.calls),
            seed=self.settings.seed + int(work["attempt"]),
            output=self.settings.output / issue.id[:12],
        )
        plan = plan_repair(weak, settings, traffic, unseen=unseen, fitted=work.get("fitted"))
        return replace(plan, refused=influence.refused, waits=True) if influence.refused else plan

    def diagnose(self, issue: AgentIssue, work: dict[str, Any]) -> Stepped:
        """Choose what may change and who judges it."""
        if beyond_repair(issue):
            why = f"{issue.component.value}: no change of the agent repairs it"
            given_up = {**work, "stage": "given up", "reason": why, "beyond": issue.component.value}
            return Stepped(f"left alone, {why}", given_up)
        work = {
            **work,
            "as_of": self.night.now,
            "attempt": int(work.get("attempt", 0)),
            # What later looks see of the issue may be other runs: its part stays what it is.
            "shown": list(issue.runs),
            "traffic": issue.traffic,
            "fitted": None,
            "read": read_of(issue),
            "symptom": "; ".join([issue.name, *issue.because])[:_SYMPTOM],
        }
        plan = self.plan(issue, work)
        if plan.refused:
            stage = "waiting" if plan.waits else "given up"
            return Stepped(
                f"nothing to do yet: {plan.refused}" if plan.waits else f"given up: {plan.refused}",
                {**work, "stage": stage, "reason": plan.refused},
            )
        return Stepped(
            "; ".join(plan.sentences),
            {**work, "stage": "diagnosed", "source": plan.source, "fitted": plan.fitted},
            {"suspects": [f"{each.name} ({each.kind})" for each in plan.suspects]},
        )

    async def propose(self, issue: AgentIssue, work: dict[str, Any]) -> Stepped:
        """Make variants, the best of which may repair it."""
        plan = self.plan(issue, work)
        if plan.source != work["source"] and not work.get("others"):
            again = {**work, "stage": "found"}
            return Stepped("the source has changed since it was diagnosed, so it is diagnosed anew", again)
        if plan.refused:  # what it was diagnosed by has left the newest runs meanwhile
            return Stepped(
                f"nothing to do yet: {plan.refused}", {**work, "stage": "waiting", "reason": plan.refused}
            )
        async with opened(plan, self.store, model=self.model, meter=self.night.meter) as repair:
            if work.get("others"):
                stepped = await self._next(issue, work, repair)
                self._keep_harmful(repair)
                return stepped
            proposed = await repair.propose(self._ideas(repair))
            self._keep_ideas(repair)
            self._keep_harmful(repair)
            work = {
                **work,
                "avoided": list(self._searched(work)),
                "searched": [*dict.fromkeys([*work.get("searched", ()), *proposed.searched])],
            }
            failed = [f"; {sentence}" for sentence in proposed.failed]
            if proposed.improvement.bundle == repair.start:
                why = f"none of {proposed.variants} variants was better" + "".join(failed)
                return Stepped(
                    why, {**work, "stage": "waiting", "attempt": work["attempt"] + 1, "reason": why}
                )
            with self.store.batch() as batch:
                batch.put_bundle(repair.start)
                for bundle in (proposed.improvement.bundle, *proposed.others):
                    batch.put_bundle(bundle)
            work = {**work, "others": [bundle.id for bundle in proposed.others], "origin": repair.start.id}
            which = f"the best of {proposed.variants} variants"
            return self._proposed(issue, work, repair, proposed.improvement.bundle, which, failed)

    def _ideas(self, repair: Repair) -> list[Version]:
        """What searches for other issues made of pieces that stand as they stood then."""
        known = {variant_id(version) for version in repair.start.values()}
        known |= {*(self.store.state(self._harmful_key) or ())}
        ideas, count = list[Version](), Counter[str]()
        for idea, origin in reversed(self.store.state(self._ideas_key) or []):
            version = self.store.version(idea)
            piece = repair.start.get(version.resource)
            stands = piece is not None and digest(piece.content, 16) == origin
            if piece is None or not stands or variant_id(version) in known:
                continue
            known.add(variant_id(version))
            count[version.resource] += 1
            if count[version.resource] <= _MOST_IDEAS:
                ideas.append(replace(version, id="", parent=piece.id))
        return ideas

    def _keep_ideas(self, repair: Repair) -> None:
        if not repair.ideas:
            return
        kept = list(self.store.state(self._ideas_key) or [])
        new = [[idea.id, digest(repair.start[idea.resource].content, 16)] for idea in repair.ideas]
        with self.store.batch() as batch:
            batch.put_versions(*repair.ideas)
            batch.put_state(self._ideas_key, [*kept, *(each for each in new if each not in kept)])

    def _keep_harmful(self, repair: Repair) -> None:
        """What does harm elsewhere does so whichever issue it was made for."""
        kept = list(self.store.state(self._harmful_key) or [])
        if new := sorted(repair.harmful.difference(kept)):
            self.store.put_state(self._harmful_key, [*kept, *new])

    @property
    def _ideas_key(self) -> str:
        return f"{self.night.prefix}/ideas"

    @property
    def _harmful_key(self) -> str:
        return f"{self.night.prefix}/harmful"

    async def _next(self, issue: AgentIssue, work: dict[str, Any], repair: Repair) -> Stepped:
        """The next of the variants that the search left, made of the source as it stands now."""
        candidates = []
        for id in work["others"]:
            versions = list(bundle_of(self.store, {**work, "bundle": id, "start": work["origin"]}).values())
            # What it was made from may have been changed by another repair since.
            origin = self.store.bundle(work["origin"])
            pieces = [(repair.start.get(each.resource), origin[each.resource]) for each in versions]
            if all(piece is not None and piece.content == old.content for piece, old in pieces):
                candidates.append((id, repair.start.put(*versions)))
        fresh = [(id, bundle) for id, bundle in candidates if repair.fresh(bundle)]
        chosen, behind, harms = await repair.first_harmless([bundle for _, bundle in fresh])
        failed = [f"; {sentence}" for sentence in harms]
        work = {**work, "others": [id for id, bundle in fresh if bundle in behind]}
        if chosen == repair.start:
            why = "none of the variants that were left fits" + "".join(failed)
            again = {**work, "stage": "waiting", "attempt": work["attempt"] + 1, "reason": why}
            return Stepped(why, again)
        with self.store.batch() as batch:
            batch.put_bundle(repair.start)
            batch.put_bundle(chosen)
        left = len(work["others"])
        which = f"the next of the variants, with {left} behind it,"
        return self._proposed(issue, work, repair, chosen, which, failed)

    def _proposed(
        self,
        issue: AgentIssue,
        work: dict[str, Any],
        repair: Repair,
        bundle: Bundle,
        which: str,
        failed: list[str],
    ) -> Stepped:
        patch, changed = repair.patch(bundle), repair.changed(bundle)
        learners = {repair.names[suspect.name]: suspect.kind.value for suspect in repair.plan.suspects}
        learner = learners[changed[0].resource]
        folder = repair.plan.settings.output
        (folder / "proposal.patch").write_text(patch, encoding="utf-8")
        stage = "proposed" if repair.plan.fitted else "to try"
        where = "" if repair.plan.fitted else "; people have to judge it, on real traffic"
        work = {
            **work,
            "stage": stage,
            "earlier": [],
            "bundle": bundle.id,
            "start": repair.start.id,
            "patch": patch,
            "learner": learner,
            "pieces": [
                [repair.codec.names[piece.part], piece.mark.path, piece.mark.qualname, piece.mark.how]
                for piece in repair.plan.agent.pieces
                if repair.codec.names[piece.part] == changed[0].resource
            ],
        }
        self.store.issues.put(by_replay(issue, work, repair.pool.replayed(bundle)))
        sentence = f"{which} changes {changed[0].resource} ({learner}){where}{''.join(failed)}"
        return Stepped(sentence, work, {"bundle": bundle.id, "learner": learner})

    async def prove(self, issue: AgentIssue, work: dict[str, Any]) -> Stepped:
        """Let the gate judge on people whom nothing saw, at this proof's part of the night's chance of an error."""
        plan = self.plan(issue, work)
        alpha = self.night.alpha(f"gate/{issue.id}/{work['attempt']}")
        async with opened(plan, self.store, model=self.model, meter=self.night.meter) as repair:
            improvement = Improvement(
                bundle=self.store.bundle(work["bundle"]),
                parent=self.store.bundle(work["start"]),
                optimizer=str(work["learner"]),
            )
            verdict = await repair.prove(improvement, alpha=alpha)
        low, high = verdict.interval
        effect = f"{100 * verdict.effect:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
        figures = f"{effect}, e-value {verdict.e_value:.3g}, n = {verdict.n}"
        facts: dict[str, Json] = {"promote": verdict.promote, "e_value": verdict.e_value, "alpha": alpha}
        if verdict.releasable:
            return Stepped(f"proven on unseen people: {figures}", {**work, "stage": "to try"}, facts)
        suspected = self._suspected(work)
        if low > 0 and (suspected or not (verdict.promote or verdict.findings)):
            # A trial proves it or does not, as where no reward may judge: they are too few for a night's alpha, or a
            # repaired tool gives all answers a word that they lacked, as a hack would.
            doubt = (
                f"by a reward that it may only please ({suspected})" if suspected else "too few to prove it"
            )
            why = f"better on unseen people, {doubt}: {figures}; people have to judge it, on real traffic"
            return Stepped(why, {**work, "stage": "to try"}, facts)
        held = "better on unseen people, and held back by a finding (whet findings)"
        why = f"{held if verdict.promote else 'not proven on unseen people'}: {figures}"
        # Its people have looked at a candidate of this issue: another one needs others, who come with the traffic.
        return Stepped(
            why, {**work, "stage": "waiting", "attempt": work["attempt"] + 1, "reason": why}, facts
        )

    def _suspected(self, work: dict[str, Any]) -> str:
        """What is suspicious of a repair's gain and may be tried on people; "" where nothing is, or more speaks against
        it than a suspicion."""
        findings = open_findings(self.store.database, work["bundle"])
        # On trial goes what it changes: a finding on that itself forbids it.
        if not all(each.suspicion for each in findings) or bundle_of(self.store, work).id == work["bundle"]:
            return ""
        return "; ".join(each.reason for each in findings)


def beyond_repair(issue: AgentIssue) -> bool:
    """True if no change of the agent repairs it: it is no defect, or what it stands on is slow or cannot be reached.

    A service that answers, and in a form that the agent's tool cannot read any more, is not beyond it.
    """
    errors = [issue.where[kind] for kind in (ERROR, ENDED) if kind in issue.where]
    answers = bool(errors) and not any(map(unreached, errors))
    return issue.component is Component.NONE or (issue.component is Component.UPSTREAM and not answers)


def bundle_of(store: Store, work: dict[str, Any]) -> Bundle:
    """The Versions that a proposal changes, alone."""
    start = store.bundle(work["start"]).ids
    changed = store.bundle(work["bundle"])
    return Bundle([version for name, version in changed.items() if start.get(name) != version.id])
