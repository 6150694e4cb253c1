"""The autopilot: finds issues, repairs them, tries the repairs on real traffic, ships what is proven, and watches it.

It does one step at a time.  Which one is next follows from the record alone, so a process that is killed anywhere goes
on where it stood; a step that spends is safe to do again, for what it paid for is in the record.  Before every step,
and before every call within one, it looks at the switch, the clock and the budget (`night.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..errors import BudgetExceeded, WhetError
from ..learn.evolution.repair.planning import LEAST_VARIANTS, RepairSettings
from ..models.base import Model
from ..record.store import Stage, Store
from ..record.store.issues import AgentIssue, IssueStatus
from ..types import Json
from .alone import MOST_CALLS, LeaveOneOut
from .asking import answer_of, asked, settled
from .journal import Journal, JournalRow, NewRow
from .night import Night, NightBudget, alone
from .shadowing import RepairShadows, shadow_calls
from .shipping import RepairDelivery, ship, take_back
from .shown import as_read
from .trial import AgentSource
from .trying import LiveTrials, TogetherStepped
from .weights import WeightJob, WeightOptions
from .work import Stepped, Workshop

_LOOK = 0.2
"""Seconds between two looks at the switch while a step is under way."""
_BACKOFF = 60.0
"""Seconds after a step that failed, doubled with each further failure."""
_FAILURES = 4
"""Of one issue in a row, after which it is given up for the night."""
_ASKING = frozenset(("diagnose", "propose", "prove"))
"""Steps that lead to nothing once no call of the agent is left."""
_LEAST_CALLS = 2 * LEAST_VARIANTS
"""Of the agent, without which nothing is searched for."""
_LIVE = (IssueStatus.SHIPPED, IssueStatus.CLOSED, IssueStatus.REOPENED)
"""Of an issue whose repair is live, as far as nobody has taken it back."""
_UNDER_WAY = frozenset(("diagnosed", "proposed", "to try", "on trial", "proven"))
"""Stages of work that another issue of the same questions waits for."""
_NOTHING = frozenset(("found", "diagnosed", "waiting", "given up"))
"""Stages behind a proposal that has come to nothing."""
_FRESH = 1.25
"""Times as many runs as when an issue was last tried, before it is tried again."""
_MOST_UNSEEN = 5_000
"""Runs and thumbs since issues were last looked for: in a large record a new fault would go on for days."""
_ELSE = "what came back of the issue is something else"
_WATCHED = 1.05
"""Times as many runs and thumbs as when live repairs were last looked at."""


class Mode(StrEnum):
    """How far it goes by itself."""

    SUGGEST = "suggest"
    """Proposals and verdicts are written; nothing touches the live traffic."""
    ASK = "ask"
    """What touches the live traffic waits for `whet autopilot approve`."""
    ACT = "act"
    """It does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOptions:
    """How an autopilot works."""

    repair: RepairSettings
    mode: Mode = Mode.SUGGEST
    attempts: int = 3
    """Most proposals for one issue in a night."""
    leave_one_out: bool = True
    """See what a repair does by itself before it ships, where people have proven it on a trial with others."""
    weights: WeightOptions | None = None
    """How weights are trained, where the record has some; None leaves them alone."""


Finder = Callable[[Store], Sequence[AgentIssue]]
"""Looks at the record, keeps what it finds there, and returns it."""


@dataclass
class Autopilot:
    """One autopilot on one record.

    Args:
        find: finds the issues of the record.
        model: proposes; without one only values are tried.
        deliver: writes a proven repair where people review changes.
        say: called with each row of the journal.
        clock: Unix time in seconds.
    """

    store: Store
    options: PilotOptions
    budget: NightBudget
    find: Finder
    model: Model | None = None
    deliver: RepairDelivery | None = None
    say: Callable[[JournalRow], None] = lambda row: None
    clock: Callable[[], float] = time.time
    night: Night = field(init=False)
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.night = Night(self.store, self.budget, clock=self.clock)
        self.journal = Journal(self.store, self.night)
        self._workshop = Workshop(self.store, self.night, self.options.repair, self.model)
        self._trials = LiveTrials(self._workshop, self.options.repair.agent.resolve().parent)
        self._shadows = RepairShadows(self._workshop, self._trials.root)
        self._failed = dict[str, float]()

    def propose_by(self, model: Model) -> None:
        """Have this model propose, which has the night's meter."""
        self._workshop = replace(self._workshop, model=model)
        self._trials = LiveTrials(self._workshop, self._trials.root)
        self._shadows = RepairShadows(self._workshop, self._trials.root)

    async def run(self, *, wait: float | None = None) -> str:
        """Work until the night is over or nothing is left to do; returns why it ended.

        Args:
            wait: seconds between two looks for new traffic where nothing is to be done; if None it ends there.
        """
        with alone(self.store):
            self._write("night", f"night {self.night.number}: {self._standing()}")
            try:
                over = await self._work(wait)
            except asyncio.CancelledError:
                self._write("night", "its process was told to end; the same command goes on")
                raise
            self._write("night", f"{over}; spent {self.night.spent_in_words}")
            if "hours of the night" in over:
                self.night.end(over)
            return over

    async def _work(self, wait: float | None) -> str:
        """Do one step after the other; why there is no further one."""
        while True:
            if over := self.night.over():
                return over
            if await self.step():
                continue
            if wait is None:
                return f"nothing is left to do until there is more traffic{self._held_back()}"
            await asyncio.sleep(wait)

    def _held_back(self) -> str:
        """That searches wait for no traffic but for calls of the agent; "" where they do not."""
        works = self._works()
        searchable, runs = self._searchable(works), self._evidence()
        if searchable is None or searchable >= _LEAST_CALLS:
            return ""
        held = sum(self._due(issue, work, runs) in _ASKING for issue, work in works)
        if not held:
            return ""
        left = self.night.meter.left("rollouts")
        return f"; {held} issues are left, for the {left:g} calls of the agent are kept back for trials"

    async def step(self) -> bool:
        """Do the next thing; False if there is none."""
        chosen = self._next()
        if chosen is None:
            return False
        name, issue, work = chosen
        task = asyncio.ensure_future(self._do(name, issue, work))
        try:
            while not (await asyncio.wait([task], timeout=_LOOK))[0]:
                if over := self.night.over():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                    self._write(name, f"broken off: {over}", issue=issue.id if issue else "")
                    return True
        except asyncio.CancelledError:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            raise
        await task
        return True

    def _next(self) -> tuple[str, AgentIssue | None, dict[str, Any]] | None:
        """The step that is due; the trial first, for people are served by it."""
        self._shadows.end_harmful()  # a process was killed behind the note of it
        runs = self._evidence()
        runs_at_last = dict(self.store.state(f"{self.night.prefix}/seen") or {})
        new = runs_at_last.get("look") != runs or self._trials.ended_by()
        if self._trials.standing() and new and self._may("look"):
            return "look", None, {"runs": runs}
        due = find_due(runs, runs_at_last.get("find", 0)) or self._relapsed(runs, runs_at_last)
        if due and self._may("find"):
            return "find", None, {"runs": runs}
        works = self._works()
        for issue, work in works:
            # A process was killed behind the row that says so.
            if work.get("stage") == "shipped" and issue.status is not IssueStatus.REOPENED:
                self._moved(issue, work, "its repair is live")
        # What people have proven first, for they wait for it.
        works.sort(key=lambda each: each[1].get("stage") != "proven")
        searchable = self._searchable(works)
        under_way = [(issue.id, work) for issue, work in works if work.get("stage") in _UNDER_WAY]
        for issue, work in works:
            step = self._due(issue, work, runs)
            if step in _ASKING and searchable is not None and searchable < _LEAST_CALLS:
                step = ""
            if step == "ship":
                permitted = self._permitted(_repair(issue))
                step = "" if permitted is None else "ship" if permitted else "refuse"
            if step and not (step == "diagnose" and self._workshop.covered(issue, under_way)):
                return step, issue, work
        if self.options.mode is not Mode.SUGGEST:
            trial = self._trial_due()
            if trial is not None and self._may(trial[0]):
                return trial
        return self._weights_due(runs)

    def _may(self, step: str) -> bool:
        """False for a while after a step failed, which would be due again at once."""
        return self.night.now >= self._failed.get(step, 0.0)

    def _relapsed(self, runs: int, at_last: dict[str, int]) -> bool:
        """True if the newest thumbs speak against a repair that is live, so that its issue is to be looked for now."""
        if runs < _WATCHED * max(at_last.get("watch", 0), at_last.get("find", 0)):
            return False
        self._note_serving()
        shipped = self._workshop.shipped()
        if any((live := self._workshop.since_live(work)) is not None and live.relapse for work in shipped):
            return True
        self._note("watch", runs)
        return False

    def _trial_due(self) -> tuple[str, None, dict[str, Any]] | None:
        """The step towards the next trial of repairs: first the shadow, then the trial, where it is permitted.

        Where one stands, its end for those that wait.
        """
        ready = self._to_try()
        if not ready or not self.night.proofs_left:
            return None
        if (trial := self._trials.standing()) is not None:
            why = self._trials.full(len(ready), self.journal.work, at_once=self._at_once(ready, trial))
            return ("room", None, {"why": why}) if why else None
        shadow = self._shadows.standing(ready)
        if shadow is None:
            return "shadow", None, {}
        subject = f"trial-{self._trials.number + 1}"
        permitted = self._permitted(subject, unsure=shadow["unsure"])
        if permitted is None:
            return None
        return ("trial" if permitted else "refuse"), None, {"subject": subject, "shadow": shadow}

    def _at_once(self, ready: dict[str, dict[str, Any]], trial: dict[str, Any]) -> bool:
        """True if the next trial begins as soon as this one ends, with all of its repairs and those that wait."""
        left, count = self.night.meter.left("rollouts"), len(ready) + len(trial["issues"])
        # One that nothing could shadow would wait for a person; what is to be tried apart goes on none with these.
        shadowed = left is None or left >= shadow_calls(count)
        return (
            self.options.mode is Mode.ACT
            and shadowed
            and not any(work.get("apart") for work in ready.values())
        )

    def _searchable(self, works: Sequence[tuple[AgentIssue, dict[str, Any]]]) -> int | None:
        """Calls of the agent that searches may still spend; None where nothing limits them.

        What is found is worth nothing without its trial, so that the calls for one are kept back: of all that waits for
        it or is on it, and of one more.
        """
        left = self.night.meter.left("rollouts")
        if left is None or self.options.mode is Mode.SUGGEST:
            return None if left is None else int(left)
        stages = [work.get("stage") for _, work in works]
        tried = 1 + sum(stage in ("proposed", "to try", "on trial", "proven") for stage in stages)
        alone = MOST_CALLS * tried if self.options.leave_one_out else 0
        return int(left) - shadow_calls(tried) - alone

    def _weights_due(self, runs: int) -> tuple[str, AgentIssue | None, dict[str, Any]] | None:
        """The step on weights that is due, behind the repairs, which cost less."""
        job = self._weights()
        subject = job.subject() if job is not None else ""
        if job is None or not subject:
            return None
        work = self.journal.work(subject)
        step = job.due(work, runs)
        facts: dict[str, Any] = {"runs": runs, "weights": subject}
        if step in ("shadow", "release"):
            # A canary that stands is decided first: two of them would judge each other's people.
            canaries = [trial for trial in self.store.on_trial() if trial.stage is Stage.CANARY]
            if self.options.mode is Mode.SUGGEST or canaries:
                return None
        if step == "release":
            facts["subject"] = f"weights-{work['number']}"
            permitted = self._permitted(facts["subject"], unsure=work.get("unsure", ""))
            if permitted is None:
                return None
            step = "release" if permitted else "refuse"
        return (step, None, facts) if step else None

    def _weights(self) -> WeightJob | None:
        """The job on weights, if it is one of this autopilot's."""
        options = self.options.weights
        return None if options is None else WeightJob(self.store, self.night, options, self._workshop.runs)

    def _open(self) -> list[AgentIssue]:
        """Issues that may be worked on, those of most traffic first."""
        statuses = [
            status for status in IssueStatus if status not in (IssueStatus.CLOSED, IssueStatus.SHIPPED)
        ]
        issues = self.store.issues.read(*statuses)
        return sorted(issues, key=lambda issue: (-issue.affected, issue.id))

    def _works(self) -> list[tuple[AgentIssue, dict[str, Any]]]:
        """Those issues, and where the work on each stands."""
        return [(issue, self.journal.work(issue.id)) for issue in self._open()]

    def _due(self, issue: AgentIssue, work: dict[str, Any], runs: int) -> str:
        """The step that is due for an issue; "" for none."""
        if work.get("night") != self.night.number:
            return "diagnose"  # another night has other people to prove on
        if self.night.now < float(work.get("not_before", 0.0)):
            return ""
        stage = work["stage"]
        if stage == "given up" and work.get("beyond", issue.component.value) != issue.component.value:
            return "diagnose"  # more traffic has shown that another part is weak
        if stage == "waiting":
            more = runs >= _FRESH * work["runs"] and work["attempt"] < self.options.attempts
            return "diagnose" if more else ""
        if stage == "found" and work["attempt"] >= self.options.attempts:
            return ""
        if stage == "proven" and work.get("beside") and self.options.leave_one_out:
            return "alone"
        return {"found": "diagnose", "diagnosed": "propose", "proposed": "prove", "proven": "ship"}.get(
            stage, ""
        )

    async def _do(self, name: str, issue: AgentIssue | None, work: dict[str, Any]) -> None:
        """One step, whose failure is a row of the journal."""
        try:
            if issue is None:
                await self._common(name, work)
            else:
                await self._on(issue, name, work)
        except BudgetExceeded as exceeded:
            self._failed[name] = self.night.now + _BACKOFF
            self._write(name, f"not done: {exceeded}", issue=issue, work=self._later(issue, work, stop=True))
        except (WhetError, OSError, ValueError, ArithmeticError, LookupError, TypeError) as error:
            self._failed[name] = self.night.now + _BACKOFF
            sentence = f"failed: {type(error).__name__}: {error}"
            self._write(name, sentence, issue=issue, work=self._later(issue, work))

    def _later(
        self, issue: AgentIssue | None, work: dict[str, Any], *, stop: bool = False
    ) -> dict[str, Any] | None:
        """The work on an issue after a failure: later again, or not tonight."""
        if issue is None:
            return None
        failures = int(work.get("failures", 0)) + 1
        if stop or failures >= _FAILURES:
            return {**work, "stage": "given up", "night": self.night.number, "reason": "failed"}
        wait = _BACKOFF * 2 ** (failures - 1)
        return {
            "stage": "found", "attempt": 0, **work, "night": self.night.number,
            "failures": failures, "not_before": self.night.now + wait,
        }  # fmt: skip

    async def _on(self, issue: AgentIssue, name: str, work: dict[str, Any]) -> None:
        """A step on one issue, and its row."""
        bench = self._workshop
        if name == "diagnose":
            fresh = work.get("night") == self.night.number
            start = work if fresh else {"attempt": 0}
            searchable = self._searchable(self._works())
            most = self.options.repair.calls
            start |= {"calls": most if searchable is None else min(most, searchable)}
            stepped = bench.diagnose(issue, {**start, "night": self.night.number, "runs": self._evidence()})
        elif name == "propose":
            stepped = await bench.propose(issue, work)
        elif name == "prove":
            stepped = await bench.prove(issue, work)
        elif name == "alone":
            stepped = await self._trials.alone(issue.id, work, self.journal.work)
        elif name == "refuse":
            why = f"{_repair(issue)} was refused"
            stepped = Stepped(f"given up: {why}", {**work, "stage": "given up", "reason": why})
        else:
            stepped = ship(bench, issue, work, self.deliver)
        if name in ("refuse", "ship"):
            settled(self.store, _repair(issue))
        if stepped.work.get("stage") == "waiting":
            stepped.work["runs"] = self._evidence()
        stepped.work["failures"] = 0
        self._row(name, stepped, issue.id)
        self._moved(issue, stepped.work, stepped.sentence)

    def _evidence(self) -> int:
        """Runs that people asked for, and what they said: what searches ran themselves is nothing new."""
        return self.store.served() + self.store.count("feedback")

    def _moved(self, issue: AgentIssue, work: dict[str, Any], sentence: str) -> None:
        """Where the issue itself stands: its own log says it, too."""
        if work["stage"] in _NOTHING and issue.shown:
            self.store.issues.put(as_read(issue, work))
        status = {
            "diagnosed": IssueStatus.DIAGNOSED,
            "proposed": IssueStatus.PROPOSED,
            "to try": IssueStatus.PROPOSED,
            "on trial": IssueStatus.PROVING,
            "shipped": IssueStatus.SHIPPED,
        }.get(str(work["stage"]))
        if status is None:
            return
        with suppress(WhetError):  # somebody has moved it meanwhile: that stands
            self.store.issues.move(issue.id, status, reason=sentence[:400])

    async def _common(self, name: str, facts: dict[str, Any]) -> None:
        """A step that is about no single issue."""
        if name == "find":
            await self._found(facts["runs"])
        elif name == "shadow" and "weights" not in facts:
            self._decided(name, await self._shadows.run(self._trials.number + 1, self._to_try()))
            self._shadows.end_harmful()
        elif name == "room":
            waiting = len(self._to_try())
            self._decided("look", self._trials.make_room(facts["why"], waiting, self.journal.work))
            self._trials.close(self.journal.work)
        elif name == "trial":
            works = {id: self.journal.work(id) for id in facts["shadow"]["works"]}
            budget = self.night.budget
            share = min(budget.first_share, budget.share, 0.5)
            self._decided(name, self._trials.begin(works, share, shadow=facts["shadow"]["trial"]))
            settled(self.store, facts["subject"])
        elif name == "refuse":
            self._refused(facts["subject"], facts.get("weights"))
        elif (job := self._weights()) is not None and name in ("train", "gate", "shadow", "release"):
            subject = facts["weights"]
            weighted = await job.do(name, self.journal.work(subject), facts["runs"])
            self._row(name, weighted, subject)
            if name == "release":
                settled(self.store, facts["subject"])
        else:
            standing = {issue.id: issue for issue in self._open()}
            stepped = {} if self._trials.ended_by() else self._trials.look(standing, self.journal.work)
            if end := self._trials.ended_by():
                sentence, fallen, ended = self._trials.fallen(end, self.journal.work)
                self._write("trial", sentence, **ended)
                stepped = {**fallen, **stepped}
            for id, step in stepped.items():
                self._row("look", step, id)
                self._moved(self.store.issues.get(id), step.work, step.sentence)
            if not self._trials.close(self.journal.work) and (sentence := self._trials.ramp()):
                self._write("ramp", sentence)
            self._note("look", facts["runs"])

    def _decided(self, name: str, together: TogetherStepped) -> None:
        """The rows of a step on several repairs together, in one transaction."""
        rows = [NewRow(step.sentence, step.facts, id, step.work) for id, step in together.stepped.items()]
        whole = NewRow(together.sentence, together.facts)
        for row in self.journal.write_together(name, [whole, *rows], together.states):
            self.say(row)
        for id, step in together.stepped.items():
            self._moved(self.store.issues.get(id), step.work, step.sentence)

    async def _found(self, runs: int) -> None:
        """Look for issues, and for those that have come back."""
        before = {issue.id: issue.status for issue in self.store.issues.read()}
        issues = await asyncio.to_thread(self.find, self.store)
        new = [issue for issue in issues if issue.id not in before and not issue.over]
        self._note_serving()
        for issue in self.store.issues.read(IssueStatus.SHIPPED, IssueStatus.CLOSED):
            work = self.journal.work(issue.id)
            live = self._workshop.since_live(work) if work.get("stage") == "shipped" else None
            if live is not None and live.relapse:
                self.store.issues.move(issue.id, IssueStatus.REOPENED, reason=f"it is back: {live.relapse}")
        back = [
            issue
            for issue in self.store.issues.read(IssueStatus.REOPENED)
            if self.journal.work(issue.id).get("stage") == "shipped"
        ]
        for issue in list(back):
            work = self.journal.work(issue.id)
            live = self._workshop.since_live(work)
            why = ""
            if not work.get("serves"):
                why = "its repair serves nobody yet: no run names it, and the source is to be merged"
            elif live is not None and live.lasts:
                why = f"its repair stays live: {live.lasts}; {_ELSE}"
            elif idle := await self._idle(issue, work):
                why = f"its repair stays live: {idle}; {_ELSE}"
                work = {**work, "serves": self.night.now}  # what was said until now is explained
            if why:
                back.remove(issue)
                self._row("look", Stepped(why, work), issue.id)
                self.store.issues.move(issue.id, IssueStatus.SHIPPED, reason=why)
            else:
                self._row("take back", take_back(self._workshop, issue, work, self.deliver), issue.id)
        names = "; ".join(issue.name for issue in new[:5])
        self._write("find", f"{len(new)} new issues, {len(back)} came back" + (f": {names}" if names else ""))
        self._note("find", runs)

    async def _idle(self, issue: AgentIssue, work: dict[str, Any]) -> str:
        """What shows that a live repair is not what people dislike now; "" if nothing does.

        Another fault of the same questions, that began since, brings their thumbs down as a relapse would.
        """
        bench = self._workshop
        try:
            rest = LeaveOneOut(bench, self._trials.root, bench.shipped(but=issue.id), {issue.id: work})
            idle = await rest.idle_on(bench.disliked_since_live(work))
        except (WhetError, OSError):
            return ""  # an agent that cannot be asked is no reason to leave live what relapsed
        return idle.sentence if idle else ""

    def _note_serving(self) -> None:
        """Note since when live repairs serve people: what was said before that says nothing about them.

        The gateway and what is marked are served from the record, and their runs name what answered. Anything else is
        served once its owners have merged it.
        """
        source = AgentSource(self._trials.root)
        for issue in self.store.issues.read(*_LIVE):
            work = self.journal.work(issue.id)
            if work.get("stage") != "shipped" or not work.get("release") or work.get("serves"):
                continue
            since = self._workshop.named_at(work)
            if since is None and (issue.status is IssueStatus.CLOSED or not source.lacks(self.store, work)):
                since = self.night.now
            if since is not None:
                self.store.put_state(f"autopilot/work/{issue.id}", {**work, "serves": since})

    def _note(self, subject: str, runs: int) -> None:
        key = f"{self.night.prefix}/seen"
        self.store.put_state(key, {**dict(self.store.state(key) or {}), subject: max(1, runs)})

    def _to_try(self) -> dict[str, dict[str, Any]]:
        """Where the work stands on each issue whose repair waits for a trial."""
        works = {issue.id: work for issue, work in self._works()}
        waiting = {id: work for id, work in works.items() if work.get("stage") == "to try"}
        # Those of whom one did harm come last, and in the parts into which they were put.
        apart = min((work.get("apart") or "" for work in waiting.values()), default="")
        return {id: work for id, work in waiting.items() if (work.get("apart") or "") == apart}

    def _permitted(self, subject: str, *, unsure: str = "") -> bool | None:
        """Whether a thing that touches the live traffic may be done; None as long as nobody has said.

        Args:
            unsure: why nobody knows what it does, so that a person has to say also where the autopilot acts by itself.
        """
        if self.options.mode is Mode.ACT and not unsure:
            return True
        answer = answer_of(self.store, subject)
        if answer is None and (states := asked(self.store, subject)):
            why = f", for nothing of it was seen in the shadow: {unsure}" if unsure else ""
            row = NewRow(f"waits for whet autopilot approve {subject}{why}", {"subject": subject})
            self.say(*self.journal.write_together("ask", [row], states))
        return answer

    def _refused(self, subject: str, weights: str | None) -> None:
        """A person has refused a trial, or weights: what was to be tried is left for the night."""
        # First: a process that is killed behind it asks once more, and refuses nothing that nobody saw.
        settled(self.store, subject)
        works = self._to_try() if weights is None else {weights: self.journal.work(weights)}
        if weights is None:
            self._shadows.end(f"{subject} was refused")
        for id, work in works.items():
            why = f"{subject} was refused"
            self._write(
                "ask", f"given up: {why}", issue=id, work={**work, "stage": "given up", "reason": why}
            )

    def _row(self, name: str, stepped: Stepped, issue: str) -> None:
        self._write(name, stepped.sentence, issue=issue, work=stepped.work, **stepped.facts)

    def _write(
        self,
        step: str,
        sentence: str,
        *,
        issue: AgentIssue | str | None = "",
        work: dict[str, Any] | None = None,
        **facts: Json,
    ) -> None:
        id = issue.id if isinstance(issue, AgentIssue) else issue or ""
        self.say(self.journal.write(step, sentence, issue=id, work=work, **facts))

    def _standing(self) -> str:
        limits = self.night.budget
        return f"{self.options.mode.value}; spent {self.night.spent_in_words}, at most {limits.gates} proofs"


def find_due(now: int, before: int) -> bool:
    """True if there are enough runs and thumbs since the last look for issues.

    Args:
        before: how many there were then; 0 where nobody has looked.
    """
    return not before or now >= min(_FRESH * before, before + _MOST_UNSEEN)


def _repair(issue: AgentIssue) -> str:
    """What a repair that is proven is asked for by."""
    return f"repair-{issue.id[:12]}"


def settings_of(agent: Path, **changes: Any) -> RepairSettings:
    """Settings of repairs of the agent in a file."""
    return replace(RepairSettings(agent=agent), **changes)
