"""A model that proposes says more than is needed: rules of a prompt that change nothing go before they are served."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from whet.autopilot.night import NightBudget
from whet.autopilot.pilot import Autopilot, PilotOptions, settings_of
from whet.learn.evolution.repair.repair import opened
from whet.learn.evolution.repair.rules import AddedRules
from whet.models import ScriptedModel
from whet.record.store import Store
from whet.record.store.issues import AgentIssue, Component
from whet.types import Feedback, Task, Trajectory

AGENT = '''"""The desk of a shop."""

PROMPT = """Be kind.
Use the tools."""


def answer(question):
    rules = PROMPT.lower()
    if "warranty" not in question:
        return "It will be there on Monday."
    order = question.rpartition(" ")[2] if "order number" in rules else "that"
    return f"The warranty of {order} is 3 {'years' if 'in years' in rules else 'of them'}."
'''
YEARS, ORDER = "State a warranty in years.", "Repeat the order number."
CHATTER = "Great question! Prompts matter a lot."


class Desk:
    """An agent whose prompt lacks two rules, its record, and people who miss them."""

    def __init__(self, folder: Path) -> None:
        self.root, self.store = folder / "agent", Store(folder / "runs.db")
        self.root.mkdir()
        (self.root / "desk.py").write_text(AGENT, encoding="utf-8")
        self.output = folder / "out"
        runs, notes = [], []
        for number in range(120):
            warranty = number % 2 == 0
            question = f"How long is the {'warranty' if warranty else 'way'} of pump {number}?"
            id = f"run-{number:03}"
            text = "The warranty of that is 3 of them." if warranty else "It will be there on Monday."
            # Some know what they want to read: their words say what a liked answer is like.
            liked = not warranty
            if warranty and number % 6 == 0:
                text, liked = f"The warranty of {number}? is 3 years.", True
            run = Trajectory(
                id=id, task=Task(instruction=question, meta={"source": "gateway"}), output=text,
                subject=f"p{number % 23}", started=1_000.0 + number, meta={"source": "gateway", "run": id},
            )  # fmt: skip
            runs.append(run)
            notes.append(Feedback(run=id, value=1.0 if liked else -1.0, id=f"thumb-{id}", at=run.started))
        self.store.put(*runs)
        self.store.add_feedback(*notes)

    def find(self, store: Store) -> Sequence[AgentIssue]:
        runs = [run.id for run in store.trajectories() if "warranty" in run.task.instruction]
        issue = AgentIssue(
            id="issue", name="warranties", component=Component.PROMPT, runs=runs, affected=40, traffic=0.5
        )
        store.issues.put(issue)
        return [issue]

    def pilot(self, model: ScriptedModel | None = None) -> Autopilot:
        repair = settings_of(
            self.root / "desk.py", entry="desk:answer", output=self.output, regime="exchangeable"
        )
        options = PilotOptions(repair=repair)
        return Autopilot(self.store, options, NightBudget(), self.find, model=model, clock=lambda: 10_000.0)

    def needed(self, *rules: str) -> tuple[str, list[str]]:
        """The prompt that is left of one with these rules, and what was struck out."""
        pilot = self.pilot()
        for _ in range(2):
            asyncio.run(pilot.step())
        bench, work = pilot._workshop, self.store.state("autopilot/work/issue")
        assert work["stage"] == "diagnosed", work

        async def run() -> tuple[str, list[str]]:
            plan = bench.plan(self.store.issues.get("issue"), work)
            async with opened(plan, self.store, model=None, meter=bench.night.meter) as repair:
                before = repair.start["desk.PROMPT"]
                text = "\n\n".join([str(before.content), "\n".join(f"- {rule}" for rule in rules)])
                bundle = repair.start.put(replace(before, content=text, id="", parent=before.id))
                left, struck = await repair.needed(bundle)
                return str(left["desk.PROMPT"].content), struck

        return asyncio.run(run())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    "rules", [(CHATTER, YEARS), (YEARS, CHATTER), (CHATTER, YEARS, "I need to know more.")]
)
def test_a_rule_that_changes_nothing_goes_and_the_one_that_mends_stays(
    desk: Desk, rules: tuple[str, ...]
) -> None:
    text, struck = desk.needed(*rules)
    assert text == f"Be kind.\nUse the tools.\n\n- {YEARS}"
    assert len(struck) == len(rules) - 1
    assert any(CHATTER in sentence for sentence in struck)


def test_rules_that_each_mend_something_all_stay(desk: Desk) -> None:
    text, struck = desk.needed(ORDER, YEARS)
    assert text == f"Be kind.\nUse the tools.\n\n- {ORDER}\n- {YEARS}"
    assert not struck


def test_what_goes_on_trial_has_no_chatter(desk: Desk) -> None:
    model = ScriptedModel(lambda request: f"- {CHATTER}\n- {YEARS}\n- {ORDER}")
    pilot = desk.pilot(model)
    for _ in range(3):
        asyncio.run(pilot.step())
    work = desk.store.state("autopilot/work/issue")
    assert work["stage"] in ("to try", "proposed"), work
    text = str(desk.store.bundle(work["bundle"])["desk.PROMPT"].content)
    assert YEARS in text
    assert CHATTER not in text
    assert CHATTER not in work["patch"]


@pytest.mark.parametrize(
    ("after", "rules"),
    [
        ("One.\nTwo.\n\n- Three.\n- Four.\n", ["- Three.", "- Four."]),
        ("One.\nThree.\nFour.\nTwo.\n", ["Three.", "Four."]),
        ("One.\nTwo.\n\n- Three, which\n  goes on.\n- Four\n", ["- Three, which goes on.", "- Four"]),
        ("Three.\n\nOne.\nTwo.\n", ["Three."]),
        ("One, again.\nTwo.\n", []),
        ("One.\nTwo.\n", []),
    ],
)
def test_the_added_rules_of_a_text(after: str, rules: list[str]) -> None:
    before = "One.\nTwo.\n"
    added = AddedRules.of(before, after)
    assert added.rules == rules
    assert added.text(range(len(rules))) == after
    if rules:
        assert added.text(()) == before
    if after == "One.\nTwo.\n\n- Three.\n- Four.\n":
        assert added.text({1}) == "One.\nTwo.\n\n- Four.\n"
        assert added.text({0}) == "One.\nTwo.\n\n- Three.\n"
