"""From thumbs down to a repair that is live, one step after the other and over restarts; and with thumbs by chance."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from whet.autopilot.asking import decide, waiting
from whet.autopilot.journal import read
from whet.autopilot.night import NightBudget, start, stop
from whet.autopilot.pilot import Autopilot, Mode, PilotOptions, settings_of
from whet.autopilot.shipping import delivery_of
from whet.learn.evolution.repair.repair import opened
from whet.record.reviewing import put_findings
from whet.record.store import Stage, Store
from whet.record.store.findings import open_findings
from whet.record.store.issues import AgentIssue, Component, IssueStatus
from whet.serve.trials import TrialWatcher
from whet.types import Bundle, Feedback, Task, Trajectory, Version

AGENT = '''"""The desk of a shop."""

UNITS = {"warranty": "months", "age": "years"}


def answer(question):
    subject = "warranty" if "warranty" in question else "delivery"
    return f"The {subject} is 3 {UNITS.get(subject, 'days')}."
'''
THINGS = ("pump", "hose", "lamp")


def _answers(folder: Path) -> Callable[[str], str]:
    spec = importlib.util.spec_from_file_location(f"desk_{folder.name}", folder / "desk.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer: Callable[[str], str] = module.answer
    return answer


def git(folder: Path, *words: str) -> str:
    named = ("-c", "user.name=team", "-c", "user.email=team@localhost")
    done = subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


class Shop:
    """The agent's folder, its record, and people who like a warranty in years."""

    agent, subjects, entry = AGENT, ("warranty", "delivery"), "desk:answer"

    def __init__(self, folder: Path, *, by_chance: bool = False) -> None:
        self.folder, self.by_chance = folder / "agent", by_chance
        self.folder.mkdir()
        (self.folder / "desk.py").write_text(self.agent, encoding="utf-8")
        self.store = Store(folder / "runs.db")
        self.output = folder / "out"
        self.asked = 0
        self.chance = random.Random(0)
        self.in_git = False
        self.spiteful = False
        """Everybody likes what is live on a warranty, and nobody what the trial answers."""

    def ask(self, count: int, *, at: float, trial: tuple[Bundle, Path] | None = None) -> None:
        """People ask, and say what they think; half of them are served the trial, where there is one."""
        answers = {None: _answers(self.folder)} | ({trial[1]: _answers(trial[1])} if trial else {})
        runs, notes = list[Trajectory](), list[Feedback]()
        for number in range(count):
            self.asked += 1
            arm = trial if trial and (number + number // 4) % 2 else None
            subject = self.subjects[number % 4 == 0]
            question = f"How long is the {subject} of the {THINGS[number % 3]}, order {self.asked}?"
            text = answers[arm[1] if arm else None](question)
            id = f"run-{self.asked:05}"
            run = Trajectory(
                id=id,
                task=Task(instruction=question, meta={"source": "gateway"}),
                output=text,
                versions=arm[0].ids if arm else {},
                subject=f"p{number % 23}",
                started=at + number * 1e-3,
                meta={"source": "gateway", "run": id},
            )
            runs.append(run)
            liked = self.right(subject, text)
            if self.by_chance:
                liked = self.chance.random() < 0.4
            if self.spiteful and subject == "warranty":
                liked = arm is None
            notes.append(Feedback(run=id, value=1.0 if liked else -1.0, id=f"thumb-{id}", at=run.started))
        self.store.put(*runs)
        self.store.add_feedback(*notes)

    def right(self, subject: str, text: str) -> bool:
        return ("years" in text) if subject == "warranty" else ("days" in text)

    def find(self, store: Store) -> Sequence[AgentIssue]:
        runs = [run.id for run in store.trajectories() if self.subjects[0] in run.task.instruction][-20:]
        issue = AgentIssue(
            id="issue-warranty",
            name="answers on a warranty are disliked",
            component=Component.ROUTE,
            runs=runs,
            affected=40,
            traffic=0.75,
        )
        store.issues.put(issue)
        return [issue]

    def pilot(self, *, clock: Any, mode: Mode = Mode.ACT, **budget: Any) -> Autopilot:
        """A fresh autopilot, as a restarted process has it."""
        repair = settings_of(
            self.folder / "desk.py", entry=self.entry, output=self.output, regime="exchangeable"
        )
        options = PilotOptions(repair=repair, mode=mode)
        deliver = delivery_of(self.store, self.folder, offline=True) if self.in_git else None
        night = NightBudget(**{"share": 0.5, "first_share": 0.5, **budget})
        return Autopilot(self.store, options, night, self.find, deliver=deliver, clock=clock)

    def under_git(self) -> None:
        """Put the agent into a repository, so that repairs are delivered as branches."""
        self.in_git = True
        git(self.folder, "init", "-q", "-b", "main")
        git(self.folder, "add", "desk.py")
        git(self.folder, "commit", "-q", "-m", "the desk")

    def stage(self) -> str:
        return str((self.store.state("autopilot/work/issue-warranty") or {}).get("stage"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


class Clock:
    """Unix time that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


def _steps(shop: Shop, clock: Clock, *, mode: Mode = Mode.ACT, most: int = 12) -> None:
    """One step for each process, until there is nothing to do."""

    async def one() -> bool:
        return await shop.pilot(clock=clock, mode=mode).step()

    for _ in range(most):
        if not asyncio.run(one()):
            return
        clock.now += 1


def _trial(shop: Shop) -> tuple[Bundle, Path]:
    trial = shop.store.state("autopilot/trial")
    return shop.store.bundle(trial["bundle"]), Path(trial["folder"])


def test_a_repair_is_found_tried_and_made_live_by_processes_that_do_one_step_each(shop: Shop) -> None:
    clock = Clock()
    shop.under_git()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock, most=3)
    assert shop.stage() == "to try"
    replayed = shop.store.issues.get("issue-warranty")
    assert re.fullmatch(
        r"answered again with desk.UNITS alone changed, (\d+) of \1 disliked answers are others, and (\d+) of \2 liked "
        r"ones are the same",
        replayed.shown,
    ), replayed.shown
    assert (replayed.resource, replayed.certainty, replayed.because[0]) == ("desk.UNITS", 0.6, replayed.shown)
    _steps(shop, clock)
    assert shop.stage() == "on trial"
    (canary,) = shop.store.on_trial()
    assert canary.stage is Stage.CANARY
    assert canary.share == 0.5
    bundle, folder = _trial(shop)
    assert "'years', \"age\"" in (folder / "desk.py").read_text(encoding="utf-8")
    assert '"warranty": "months"' in (shop.folder / "desk.py").read_text(encoding="utf-8")
    spent = shop.pilot(clock=clock).night.recorded["rollouts"]
    repair = shop.store.bundle(shop.store.state("autopilot/work/issue-warranty")["bundle"])
    assert bundle.ids.items() <= repair.ids.items(), "a part of it that goes live is the same Version"
    shop.ask(96, at=clock.now, trial=(bundle, folder))
    clock.now += 100
    _steps(shop, clock)
    assert shop.stage() == "shipped"
    assert not shop.store.on_trial()
    (released,) = shop.store.history()
    assert not released.unproven
    assert "years" in str(released.bundle["desk.UNITS"].content)
    issue = shop.store.issues.get("issue-warranty")
    assert issue.status is IssueStatus.SHIPPED
    assert (issue.component, issue.resource, issue.certainty) == (Component.ROUTE, "desk.UNITS", 0.95)
    assert "with desk.UNITS alone changed, 100 points more of the answers were liked" in issue.because
    branch = shop.store.state("autopilot/work/issue-warranty")["branch"]
    assert "years" in git(shop.folder, "show", f"{branch}:desk.py")
    assert "verdict.json" in git(shop.folder, "ls-tree", "-r", "--name-only", branch)
    assert git(shop.folder, "status", "--porcelain", "desk.py") == ""
    night = shop.pilot(clock=clock).night
    assert night.recorded["rollouts"] == spent  # people judged: the agent was not asked for it
    assert 0 < night.alpha_spent <= 0.05
    steps = [row.step for row in read(shop.store)]
    assert [
        step for step in ("find", "diagnose", "propose", "trial", "look", "ship") if step not in steps
    ] == []


def _repaired(shop: Shop, clock: Clock) -> str:
    """Have a repair shipped; the agent's file with it."""
    clock.now = time.time()  # as the release log has it
    shop.ask(72, at=clock.now - 1_000)
    _steps(shop, clock)
    shop.ask(96, at=clock.now, trial=_trial(shop))
    clock.now += 100
    _steps(shop, clock)
    assert shop.stage() == "shipped"
    merged = str(shop.store.history()[0].bundle["desk.UNITS"].content)
    return AGENT.replace('UNITS = {"warranty": "months", "age": "years"}', merged)


def _served(shop: Shop, clock: Clock, *texts: str) -> None:
    """Have people ask each of these agents, and issues looked for."""
    for text, asked in zip(texts, (40, 24), strict=True):
        # Each of another length, so that it is compiled anew.
        (shop.folder / "desk.py").write_text(text, encoding="utf-8")
        shop.ask(asked, at=clock.now)
        clock.now += 100
        # Whoever looks for issues finds the one that stands.
        _steps(shop, clock, most=1)


def test_a_repair_that_somebody_undoes_is_missed_by_the_people_of_its_part_and_taken_back(shop: Shop) -> None:
    clock = Clock()
    repaired = _repaired(shop, clock)
    _served(shop, clock, repaired, f"{AGENT}# Tidied up.\n")
    issue = "issue-warranty"
    assert IssueStatus.REOPENED in [move.status for move in shop.store.issues.history(issue)]
    (back,) = [row for row in read(shop.store) if row.step == "take back"]
    assert "disliked in its own part of the traffic" in back.sentence
    assert not shop.store.live()


def test_a_repair_of_an_agent_that_cannot_be_asked_any_more_is_taken_back(shop: Shop) -> None:
    clock = Clock()
    repaired = _repaired(shop, clock)
    shop.entry = "desk:answers"  # as its owners have named it since
    _served(shop, clock, repaired, repaired.replace('"warranty" in question', '"guarantee" in question'))
    assert [row for row in read(shop.store) if row.step == "take back"]
    assert not shop.store.live()


def test_a_repair_stays_where_another_fault_of_the_same_questions_begins(shop: Shop) -> None:
    clock = Clock()
    repaired = _repaired(shop, clock)
    # What the repair changed is asked for no more: without it all answers would be the same.
    _served(shop, clock, repaired, repaired.replace('"warranty" in question', '"guarantee" in question'))
    assert IssueStatus.REOPENED in [move.status for move in shop.store.issues.history("issue-warranty")]
    (stays,) = [row for row in read(shop.store) if "stays live" in row.sentence]
    assert "16 of 16 answers that people dislike there are the same without it" in stays.sentence
    assert not [row for row in read(shop.store) if row.step == "take back"]
    assert shop.stage() == "shipped"
    assert shop.store.live()


def test_a_repair_that_nobody_has_merged_yet_is_not_judged_by_what_is_said_meanwhile(shop: Shop) -> None:
    clock = Clock()
    # The release log has this machine's time: the trial comes before it, and what is asked then behind it.
    clock.now = time.time() - 50
    shop.ask(72, at=clock.now - 1_000)
    _steps(shop, clock)
    shop.ask(96, at=clock.now, trial=_trial(shop))
    clock.now += 100
    _steps(shop, clock)
    assert shop.stage() == "shipped"
    code, issue = shop.folder / "desk.py", "issue-warranty"
    repaired = AGENT.replace(
        'UNITS = {"warranty": "months", "age": "years"}',
        str(shop.store.history()[0].bundle["desk.UNITS"].content),
    )
    clock.now = time.time() + 1
    shop.ask(60, at=clock.now)
    clock.now += 100
    _steps(shop, clock, most=2)
    assert IssueStatus.REOPENED not in [move.status for move in shop.store.issues.history(issue)]
    # As `whet issues` sees it, which knows no repairs.
    shop.store.issues.move(issue, IssueStatus.REOPENED, reason="it is back")
    shop.ask(160, at=clock.now)
    clock.now += 100
    _steps(shop, clock, most=2)
    assert shop.store.issues.get(issue).status is IssueStatus.SHIPPED
    assert shop.stage() == "shipped"
    assert [row for row in read(shop.store) if "serves nobody yet" in row.sentence]
    assert shop.store.live()
    code.write_text(repaired, encoding="utf-8")
    shop.ask(100, at=clock.now)
    clock.now += 200
    _steps(shop, clock, most=2)
    shop.ask(60, at=clock.now)
    clock.now += 100
    _steps(shop, clock, most=2)
    told = shop.pilot(clock=clock)._workshop.since_live(
        dict(shop.store.state(f"autopilot/work/{issue}") or {})
    )
    assert told is not None
    assert told.lasts
    assert not [row for row in read(shop.store) if row.step == "take back"]


def test_where_no_proof_is_left_a_trial_ends_and_the_night_goes_on(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    assert shop.stage() == "on trial"
    night = shop.pilot(clock=clock).night
    shop.store.put_state(f"{night.prefix}/alpha", {f"gate/{n}": 0.0 for n in range(night.budget.gates)})
    shop.ask(96, at=clock.now, trial=_trial(shop))
    clock.now += 100
    pilot, rows = shop.pilot(clock=clock), len(list(read(shop.store)))
    assert "nothing is left to do" in asyncio.run(asyncio.wait_for(pilot.run(), 60))
    assert shop.stage() == "given up"
    assert not shop.store.on_trial()
    said = [row.sentence for row in read(shop.store)][rows:]
    assert len([each for each in said if "proofs of the night are made" in each]) == 1
    assert len(said) < 12


def test_a_look_that_fails_is_not_taken_again_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    shop.ask(96, at=clock.now, trial=_trial(shop))
    clock.now += 100
    pilot = shop.pilot(clock=clock)

    def broken(*_: object) -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as away:
        away.setattr(pilot._trials, "look", broken)
        assert "nothing is left to do" in asyncio.run(asyncio.wait_for(pilot.run(), 60))
    assert len([row for row in read(shop.store) if "the disk is away" in row.sentence]) == 1
    clock.now += 60
    asyncio.run(pilot.run())
    assert shop.stage() == "shipped"


HELP = '''"""What the desk says of itself, with a function and a table that are called as its own are."""

UNITS = {"warranty": "pages", "age": "pages"}


def answer(warranty):
    return f"The warranty has 3 {UNITS.get(warranty, 'pages')}."
'''


def test_pieces_of_one_name_in_several_modules_are_told_apart(shop: Shop) -> None:
    clock = Clock()
    (shop.folder / "help.py").write_text(HELP, encoding="utf-8")
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    assert not [row.sentence for row in read(shop.store) if "failed" in row.sentence and row.step != "shadow"]
    (diagnosed,) = [row.facts["suspects"] for row in read(shop.store) if row.step == "diagnose"]
    assert {"desk:UNITS (table)", "help:UNITS (table)", "help:answer (code)"} <= {*diagnosed}
    assert shop.stage() == "on trial"
    _, folder = _trial(shop)
    assert "'years', \"age\"" in (folder / "desk.py").read_text(encoding="utf-8")
    assert (folder / "help.py").read_text(encoding="utf-8") == HELP


class Bills(Shop):
    """A desk that reads a field which two of three invoices do not have."""

    agent = '''"""The desk of a shop."""
import re

FIELDS = {"invoice": "sum", "total": "cents"}
DAYS = {"delivery": 3, "return": 14}


def answer(question):
    if "invoice" not in question:
        return f"It takes {DAYS['delivery']} days."
    number = int(re.search("order (.*)[?]", question)[1])
    bill = {"cents": 5 + number % 7} | ({} if number % 3 else {"sum": 5 + number % 7})
    sum = bill.get(FIELDS["invoice"])
    return "I am sorry." if sum is None else f"It is {sum} euros."
'''
    subjects = ("invoice", "delivery")

    def right(self, subject: str, text: str) -> bool:
        return ("euros" in text) if subject == "invoice" else ("days" in text)


@pytest.mark.parametrize("kind", ["format", "tampering"])
def test_what_is_only_suspicious_of_a_score_is_tried_on_people_and_cleared_by_them(
    tmp_path: Path, kind: str
) -> None:
    """A repaired tool gives every answer a word that few had, as a score that is hacked does."""
    shop, clock = Bills(tmp_path), Clock()
    shop.ask(160, at=1_000.0)
    while (stage := shop.stage()) != "to try":
        assert stage in ("None", "found", "diagnosed", "proposed"), [row.sentence for row in read(shop.store)]
        _steps(shop, clock, most=1)
    work = shop.pilot(clock=clock).journal.work("issue-warranty")
    (finding,) = open_findings(shop.store.database, work["bundle"])
    assert finding.kind == "format"
    assert "euros" in finding.sentence
    if kind == "tampering":  # the control: a person has to see it, whatever people on trial say
        put_findings(shop.store, work["bundle"], [replace(finding, kind=kind)], rewards=finding.rewards)
    _steps(shop, clock)
    bundle, folder = _trial(shop)
    shop.ask(120, at=clock.now, trial=(bundle, folder))
    clock.now += 100
    _steps(shop, clock)
    assert shop.stage() == "shipped"
    still = {each.kind for each in open_findings(shop.store.database, work["bundle"])}
    assert still == {kind} - {"format"}


def test_thumbs_by_chance_ship_nothing(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path, by_chance=True), Clock()
    shop.ask(72, at=1_000.0)
    for _ in range(3):
        _steps(shop, clock)
        if shop.store.on_trial():
            shop.ask(96, at=clock.now, trial=_trial(shop))
        clock.now += 100
    _steps(shop, clock)
    assert shop.store.history() == []
    assert "ship" not in {row.step for row in read(shop.store)}


def test_a_trial_that_the_server_takes_back_ends_and_the_next_repair_is_worked_on(shop: Shop) -> None:
    clock = Clock()
    clock.now = time.time() - 100
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    shop.spiteful = True
    shop.ask(140, at=time.time(), trial=_trial(shop))
    TrialWatcher(shop.store).step(time.time() + 10)
    assert "does harm" in shop.store.release_log(last=1)[0].reason
    # Nobody has come since: that the server has ended the trial is reason enough to look.
    shop.store.put_state("autopilot/000001/seen", {"look": _evidence(shop), "find": _evidence(shop)})
    _steps(shop, clock, most=1)
    assert shop.store.state("autopilot/trial")["ended"]
    rows = list(read(shop.store))
    assert any("trial 1" in row.sentence and "was taken back: canary" in row.sentence for row in rows)
    assert "taken off the trial: " in rows[-1].sentence
    work = shop.store.state("autopilot/work/issue-warranty")
    assert (work["stage"], work["attempt"], len(work["tried"])) == ("found", 1, 1)
    assert sum("e_value" in row.facts for row in rows) == 0, (
        "nothing is judged on people who are not served it"
    )
    _steps(shop, clock, most=1)
    assert [row.step for row in read(shop.store)][-1] == "diagnose"


def test_a_trial_that_somebody_makes_live_or_replaces_is_not_judged_on(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    (canary,) = shop.store.on_trial()
    other = Bundle([Version(resource="greeting", content="Good morning.")])
    shop.store.release(other, unproven=True, new_names=True)
    _steps(shop, clock)
    rows = [row.sentence for row in read(shop.store)]
    assert any("something else went live: it goes on the next one" in sentence for sentence in rows)
    assert shop.stage() == "on trial", "on the next one"
    (again,) = shop.store.on_trial()
    assert again.trial != canary.trial
    shop.store.release(shop.store.bundle(again.candidate), unproven=True, reason="the owner likes it")
    _steps(shop, clock)
    assert shop.stage() == "shipped"
    assert shop.store.issues.get("issue-warranty").status is IssueStatus.SHIPPED
    assert shop.store.state("autopilot/trial")["ended"]


def test_a_repair_beside_one_that_does_harm_goes_on_the_next_trial(shop: Shop) -> None:
    clock, store = Clock(), shop.store
    clock.now = time.time() - 100
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    trial, work = store.state("autopilot/trial"), store.state("autopilot/work/issue-warranty")
    other = AgentIssue(
        id="issue-delivery", name="answers on a delivery", component=Component.ROUTE, affected=1
    )
    store.issues.put(other)
    shown = [run.id for run in store.trajectories() if "delivery" in run.task.instruction]
    store.put_state("autopilot/work/issue-delivery", {**work, "shown": shown, "traffic": 0.25})
    store.put_state("autopilot/trial", {**trial, "issues": ["issue-warranty", "issue-delivery"]})
    shop.spiteful = True
    shop.ask(140, at=time.time(), trial=_trial(shop))
    clock.now = time.time() + 10
    _steps(shop, clock, most=1)
    assert shop.stage() == "found"
    assert store.state("autopilot/work/issue-delivery")["stage"] == "to try"
    assert store.on_trial() == [], "though no server watches"
    told = {row.issue: row.sentence for row in read(store)}
    assert "taken off the trial: it does harm, by its success" in told["issue-warranty"]
    assert "another repair did harm: it goes on the next one" in told["issue-delivery"]


def _evidence(shop: Shop) -> int:
    return shop.store.count("trajectories") + shop.store.count("feedback")


def test_ask_waits_for_approval_and_suggest_leaves_the_traffic_alone(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock, mode=Mode.SUGGEST)
    assert shop.stage() == "to try"
    assert shop.store.release_log() == []
    _steps(shop, clock, mode=Mode.ASK)
    assert [entry.stage for entry in shop.store.release_log()] == [Stage.SHADOW], "nobody is served it"
    assert any("approve trial-1" in row.sentence for row in read(shop.store))
    decide(shop.store, "trial-1", allow=True)
    _steps(shop, clock, mode=Mode.ASK)
    assert len(shop.store.on_trial()) == 1
    shop.ask(140, at=clock.now, trial=_trial(shop))
    clock.now += 200
    _steps(shop, clock, mode=Mode.ASK)
    assert shop.stage() == "proven"
    assert shop.store.live() is None, "proven, and asked once more"
    (asked,) = waiting(shop.store)
    decide(shop.store, asked, allow=True)
    _steps(shop, clock, mode=Mode.ASK)
    assert shop.stage() == "shipped"
    assert waiting(shop.store) == []


def test_what_a_person_refuses_is_left_for_the_night_and_asked_for_no_more(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    _steps(shop, clock, mode=Mode.ASK)
    assert waiting(shop.store) == ["trial-1"]
    decide(shop.store, "trial-1", allow=False)
    _steps(shop, clock, mode=Mode.ASK)
    assert shop.stage() == "given up"
    assert any("trial-1 was refused" in row.sentence for row in read(shop.store))
    assert waiting(shop.store) == []
    assert [entry.stage for entry in shop.store.release_log()] == [Stage.SHADOW, Stage.RETIRED]


def test_a_step_that_fails_is_a_row_and_is_done_later(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    source = shop.folder / "desk.py"
    source.write_text("def answer(question:\n", encoding="utf-8")
    _steps(shop, clock, most=4)
    assert any("failed" in row.sentence for row in read(shop.store))
    source.write_text(AGENT, encoding="utf-8")
    clock.now += 100
    _steps(shop, clock)
    assert shop.stage() == "on trial"


def test_the_switch_ends_it_before_the_next_step(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    stop(shop.store, "enough")
    why = asyncio.run(shop.pilot(clock=clock).run())
    assert "enough" in why
    assert shop.stage() == "None"
    start(shop.store)
    asyncio.run(shop.pilot(clock=clock).run())
    assert shop.stage() == "on trial"


def test_no_more_than_the_budget_is_asked_of_the_agent(shop: Shop) -> None:
    clock = Clock()
    shop.ask(72, at=1_000.0)
    over = asyncio.run(shop.pilot(clock=clock, rollouts=20).run())
    assert "1 issues are left, for the 20 calls of the agent are kept back for trials" in over
    assert not shop.pilot(clock=clock).night.recorded
    shop.pilot(clock=clock).night.end("twenty are too few")
    asyncio.run(shop.pilot(clock=clock, rollouts=180).run())
    assert shop.stage() == "on trial"
    assert 0 < shop.pilot(clock=clock).night.recorded["rollouts"] <= 180


def test_a_night_without_calls_left_looks_and_searches_nothing(shop: Shop) -> None:
    shop.ask(72, at=1_000.0)
    pilot = shop.pilot(clock=Clock(), rollouts=20)
    pilot.night.meter.reserve(rollouts=20)
    asyncio.run(pilot.run())
    assert {row.step for row in read(shop.store)} == {"night", "find"}


def test_an_issue_of_the_same_questions_waits_and_one_of_others_does_not(shop: Shop) -> None:
    clock, store = Clock(), shop.store
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    assert shop.stage() == "on trial"
    runs = list(store.trajectories(served=True))
    of = {
        subject: [run.id for run in runs if subject in run.task.instruction]
        for subject in ("warranty", "delivery")
    }
    same, other = (
        AgentIssue(id=f"issue-{name}", name=name, component=Component.ROUTE, runs=ids, traffic=share)
        for name, ids, share in (("same", of["warranty"][:18], 0.75), ("other", of["delivery"], 0.25))
    )
    store.issues.put(same, other)
    _steps(shop, clock)
    assert store.state("autopilot/work/issue-same") is None
    assert store.state("autopilot/work/issue-other") is not None


def test_what_was_made_for_one_issue_is_tried_for_another_while_its_piece_stands(shop: Shop) -> None:
    clock, store = Clock(), shop.store
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    bench = shop.pilot(clock=clock)._workshop

    async def ideas(made: Sequence[str] = ()) -> list[Version]:
        plan = bench.plan(store.issues.get("issue-warranty"), store.state("autopilot/work/issue-warranty"))
        async with opened(plan, store, model=None, meter=bench.night.meter) as repair:
            piece = repair.start[repair.names[plan.suspects[0].name]]
            repair.ideas = [
                Version(resource=piece.resource, content=f"{piece.content}{more}", kind=piece.kind)
                for more in made
            ]
            bench._keep_ideas(repair)
            return bench._ideas(repair)

    (tried,) = asyncio.run(ideas(["# mended\n", ""]))
    assert str(tried.content).endswith("# mended\n"), "and not the piece as it is"
    source = shop.folder / "desk.py"
    text, before = source.read_text(encoding="utf-8"), str(tried.content).removesuffix("# mended\n")
    assert text.count(before.strip()) == 1
    source.write_text(text.replace(before.strip(), f"{before.strip()}  # another one now"), encoding="utf-8")
    assert asyncio.run(ideas()) == []
