"""Two repairs on one trial whose people cannot tell which of them did it: what each does by itself is looked at."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from whet.autopilot.journal import read
from whet.autopilot.night import NightBudget
from whet.autopilot.pilot import Autopilot, Mode, PilotOptions, settings_of
from whet.autopilot.trial import AgentSource, board
from whet.record.store import Stage, Store
from whet.record.store.issues import AgentIssue, Component
from whet.record.store.releases import PROGRAM
from whet.types import Bundle, Feedback, Task, Trajectory, Version, digest

AGENT = '''"""The desk of a shop."""

PROMPT = """Be kind."""
UNITS = {"warranty": "months", "age": "years"}
COUNTS = {"warranty": 30, "age": 3}


def answer(question):
    subject = "warranty" if "warranty" in question else "delivery"
    return f"The {subject} is {COUNTS.get(subject, 2)} {UNITS.get(subject, 'days')}."
'''
PIECES = {
    "PROMPT": "Be kind.",
    "UNITS": 'UNITS = {"warranty": "months", "age": "years"}\n',
    "COUNTS": 'COUNTS = {"warranty": 30, "age": 3}\n',
}
CHATTER = "Be kind.\n\n- Great question! Prompts matter a lot."
YEARS = PIECES["UNITS"].replace("months", "years")
THREE = PIECES["COUNTS"].replace("30", "3")


class Trial:
    """A desk, repairs of it on one trial, and people who ask it for warranties and deliveries."""

    def __init__(self, folder: Path) -> None:
        self.root, self.store = folder / "agent", Store(folder / "runs.db")
        self.root.mkdir()
        (self.root / "desk.py").write_text(AGENT, encoding="utf-8")
        self.output, self.now, self.asked = folder / "out", 10_000.0, 0
        self.budget: dict[str, Any] = {"share": 0.5, "first_share": 0.5}

    def pilot(self, *, leave_one_out: bool = True, **budget: Any) -> Autopilot:
        budget = {**self.budget, **budget}
        repair = settings_of(
            self.root / "desk.py", entry="desk:answer", output=self.output, regime="exchangeable"
        )
        options = PilotOptions(repair=repair, mode=Mode.ACT, leave_one_out=leave_one_out)
        budgeted = NightBudget(**budget)
        return Autopilot(self.store, options, budgeted, lambda store: [], clock=lambda: self.now)

    def begin(self, **repairs: tuple[str, str]) -> None:
        """Put repairs on one trial, each of an issue about warranties.

        Args:
            repairs: name of the issue → the constant that it changes, and its text then.
        """
        self.ask(60, likes=lambda text: "3 years" in text)
        shown = [run.id for run in self.store.trajectories() if "warranty" in run.task.instruction][:20]
        pilot = self.pilot()
        for name, (constant, after) in repairs.items():
            old = Version(resource=f"desk.{constant}", content=PIECES[constant], kind=PROGRAM)
            new = Version(resource=f"desk.{constant}", content=after, kind=PROGRAM, parent=old.id)
            start, changed = Bundle([old]), Bundle([new])
            with self.store.batch() as batch:
                batch.put_bundle(start)
                batch.put_bundle(changed)
            self.store.issues.put(AgentIssue(id=name, name=name, component=Component.PROMPT, affected=9))
            work: dict[str, Any] = {
                "stage": "to try", "attempt": 0, "night": pilot.night.number, "start": start.id,
                "bundle": changed.id, "learner": "table", "shown": shown, "traffic": 0.5, "as_of": self.now,
                "pieces": [[f"desk.{constant}", "desk.py", constant, "comment"]],
            }  # fmt: skip
            self.store.put_state(f"autopilot/work/{name}", work)
        assert self.next_trial()

    def next_trial(self) -> bool:
        """Put on trial what waits for one; False where nothing does."""
        pilot = self.pilot()
        pilot._trials.close(self.work)
        works = pilot._to_try()
        if not works or pilot._trials.standing():
            return pilot._trials.standing() is not None
        boarded = board(self.store, self.root, self.output / "shadow", works, pilot._workshop.shipped())
        shadow = self.store.release(boarded.bundle, stage=Stage.SHADOW, new_names=True)
        self.now += 1
        share = pilot.night.budget.first_share
        pilot._decided("trial", pilot._trials.begin(works, share, shadow=shadow.trial))
        return True

    def settled(self, pilot: Autopilot) -> None:
        """Nothing is looked for: this is about what stands."""
        count = self.store.count("trajectories") + self.store.count("feedback")
        self.store.put_state(f"{pilot.night.prefix}/seen", {"find": 10 * count, "watch": 10 * count})

    def work(self, name: str) -> dict[str, Any]:
        return dict(self.store.state(f"autopilot/work/{name}") or {})

    def ask(self, count: int, *, likes: Callable[[str], bool]) -> None:
        """People ask; half of the sessions are served the trial, where one stands."""
        trial = self.store.state("autopilot/trial")
        standing = trial if trial and not trial["ended"] else None
        answers = {False: answer_of(self.root)}
        answers[True] = answer_of(Path(standing["folder"])) if standing else answers[False]
        runs, notes = [], []
        for number in range(count):
            self.asked += 1
            self.now += 1
            draw = int(digest(["arm", self.asked], 8), 16) / 16**8
            tried = standing is not None and draw < standing["share"]
            subject = ("warranty", "delivery")[number % 2]
            question = f"How long is the {subject} of the pump, order {self.asked}?"
            text = answers[tried](question)
            run = Trajectory(
                id=f"run-{self.asked:05}",
                task=Task(instruction=question, meta={"source": "gateway"}),
                output=text,
                versions=self.store.bundle(standing["bundle"]).ids if tried and standing else {},
                subject=f"p{number % 23}",
                started=self.now,
                meta={"source": "gateway", "run": f"run-{self.asked:05}"},
            )
            runs.append(run)
            liked = likes(text) if subject == "warranty" else True
            notes.append(
                Feedback(run=run.id, value=1.0 if liked else -1.0, id=f"thumb-{run.id}", at=run.started)
            )
        self.store.put(*runs)
        self.store.add_feedback(*notes)

    def look(self, *, most: int = 12, **options: Any) -> None:
        """Steps until the trial and what it proved are decided."""
        pilot = self.pilot(**options)
        self.settled(pilot)

        async def steps() -> None:
            for _ in range(most):
                chosen = pilot._next()
                if chosen is None or chosen[0] not in ("look", "alone", "ship"):
                    return
                await pilot.step()
                self.now += 1

        asyncio.run(steps())
        for name in self.shipped():
            # As a team merges what was shipped.
            source = AgentSource(self.root)
            if source.take(self.store, self.work(name)):
                (self.root / "desk.py").write_text(source.text("desk.py"), encoding="utf-8")

    def shipped(self) -> set[str]:
        works = {issue.id: self.work(issue.id) for issue in self.store.issues.read()}
        return {id for id, work in works.items() if work["stage"] == "shipped"}

    def told(self, name: str) -> Mapping[str, Any]:
        """The row of the journal on what a repair does by itself."""
        row = next(row for row in read(self.store) if row.step == "alone" and row.issue == name)
        return {"sentence": row.sentence, **row.facts}


def answer_of(folder: Path) -> Callable[[str], str]:
    sys.path.insert(0, str(folder))
    try:
        sys.modules.pop("desk", None)
        importlib.invalidate_caches()
        answer: Callable[[str], str] = importlib.import_module("desk").answer
        return answer
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("desk", None)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def in_years(text: str) -> bool:
    return "years" in text


def three_years(text: str) -> bool:
    return "3 years" in text and "30" not in text


@pytest.mark.parametrize("first", ["chatter", "years"])
def test_a_repair_that_another_one_was_proven_for_does_not_ship(trial: Trial, first: str) -> None:
    repairs = {"chatter": ("PROMPT", CHATTER), "years": ("UNITS", YEARS)}
    trial.begin(**{name: repairs[name] for name in sorted(repairs, key=lambda name: name != first)})
    trial.ask(160, likes=in_years)
    trial.look()
    assert trial.shipped() == {"years"}
    assert trial.told("chatter")["changed"] == 0
    assert "left out, for it adds nothing" in str(trial.told("chatter")["sentence"])
    assert trial.told("years")["changed"] == trial.told("years")["asked"] == 16
    assert trial.told("years")["own"] == 16
    live = trial.store.live()
    assert live is not None
    assert set(live.ids) == {"desk.UNITS"}


def test_it_ships_where_nobody_looks_at_what_each_does(trial: Trial) -> None:
    """The same night without the look: the people of both say the same."""
    trial.begin(chatter=("PROMPT", CHATTER), years=("UNITS", YEARS))
    trial.ask(160, likes=in_years)
    trial.look(leave_one_out=False)
    assert trial.shipped() == {"chatter", "years"}


def test_two_repairs_that_mend_only_together_both_ship(trial: Trial) -> None:
    trial.begin(years=("UNITS", YEARS), count=("COUNTS", THREE))
    trial.ask(160, likes=three_years)
    trial.look()
    assert trial.shipped() == {"years", "count"}
    assert trial.told("count")["own"] == 16, "without it another number of years is said"


def test_two_that_mend_only_together_and_by_words_alone_are_tried_one_by_one_and_then_as_one(
    trial: Trial,
) -> None:
    """Each alone words every answer otherwise, and nobody likes one of them."""
    words = PIECES["COUNTS"].replace("30", '"three"')
    trial.begin(years=("UNITS", YEARS), words=("COUNTS", words))
    for _ in range(8):
        trial.ask(640, likes=lambda text: "three years" in text)
        trial.look()
        if trial.shipped() or not trial.next_trial():
            break
    assert trial.shipped() == {"years", "words"}
    live = trial.store.live()
    assert live is not None
    assert set(live.ids) == {"desk.UNITS", "desk.COUNTS"}
    told = [row.sentence for row in read(trial.store)]
    assert any("on a trial with those that it was proven with" in sentence for sentence in told)


def test_what_rewords_every_answer_is_told_from_what_mends_them(trial: Trial) -> None:
    """Without it all answers are others, so it may do something; on a trial of its own it does not."""
    worded = PIECES["COUNTS"].replace("30", "'30'").replace("'30'", '"thirty"')
    trial.begin(words=("COUNTS", worded), years=("UNITS", YEARS))
    for _ in range(8):
        trial.ask(640, likes=in_years)
        trial.look()
        if not trial.next_trial():
            break
    assert trial.shipped() == {"years"}
    assert trial.told("words")["changed"] == 16
    assert "not shown to be its own doing" in str(trial.told("words")["sentence"])


def test_of_two_that_do_the_same_one_ships(trial: Trial) -> None:
    trial.begin(years=("UNITS", YEARS), again=("UNITS", YEARS.replace('"age": "years"', '"age": "Years"')))
    trial.ask(160, likes=in_years)
    trial.look()
    assert len(trial.shipped()) == 1


def test_without_calls_the_parts_of_the_others_tell_and_it_goes_on_the_next_trial(trial: Trial) -> None:
    trial.begin(chatter=("PROMPT", CHATTER), years=("UNITS", YEARS))
    trial.ask(160, likes=in_years)
    pilot = trial.pilot()
    trial.look(most=1)
    left = pilot.night.meter.left("rollouts")
    assert left is not None
    pilot.night.meter.reserve(rollouts=int(left))
    trial.look()
    assert trial.shipped() == set()
    assert {trial.work(name)["stage"] for name in ("chatter", "years")} == {"to try"}
    assert "goes on another trial" in str(trial.told("years")["sentence"])


def test_a_process_that_is_killed_in_it_pays_for_no_answer_twice(trial: Trial) -> None:
    trial.begin(chatter=("PROMPT", CHATTER), years=("UNITS", YEARS))
    trial.ask(160, likes=in_years)
    trial.look(most=1)
    before = trial.pilot().night.recorded.get("rollouts", 0.0)
    work = {name: trial.work(name) for name in ("chatter", "years")}
    trial.look()
    spent = trial.pilot().night.recorded["rollouts"]
    assert before < spent <= before + 2 * 4 * 16
    # As if its row had not been written.
    name = "chatter"
    trial.store.put_state(f"autopilot/work/{name}", work[name])
    stepped = asyncio.run(trial.pilot()._trials.alone(name, work[name], trial.work))
    assert stepped.facts["changed"] == 0
