"""Which part an issue is put down to, by what the system prompt of its runs tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from issues_world import START, runs

import whet
from whet.record.store import Component
from whet.ship.issues import find_issues, standing
from whet.ship.issues.marks import RunMark
from whet.ship.issues.timing import Timing
from whet.ship.issues.weak_part import SliceEvidence, weak_part
from whet.types import Trajectory

NOW = START + 86_400 * 30
TARIFFS = ("night", "family", "studio", "farm")


def told(run: Trajectory, lines: Sequence[str], *, tool: bool) -> Trajectory:
    """A run with these lines in its system prompt; without its tool call if it has none."""
    system = {"role": "system", "text": "\n".join(["You work at a desk.", *lines])}
    model = replace(run.steps[0], observation=[system, {"role": "user", "text": run.task.instruction}])
    return replace(run, steps=[model, run.steps[1]] if tool else [model])


def facts(person: str) -> list[str]:
    """What a file tells of a person, in words of no particular kind."""
    number = int(person.rpartition("-")[2])
    return [
        f"- (2024-0{1 + number % 9}-11) tariff: {TARIFFS[number % 4]}",
        f"- (2023-0{1 + number % 8}-02) paying: {('card', 'order', 'debit')[number % 3]}",
        f"- (2022-0{1 + number % 7}-21) boiler: model {number % 5}",
    ]


def part(*, personal: bool, everywhere: bool = False) -> Component:
    with whet.Store(":memory:") as store:
        for run in runs(0):
            own = run.steps[1].name == "stock"
            lines = facts(str(run.subject)) if personal and (own or everywhere) else ["Be kind."]
            store.put(told(run, lines, tool=not own))
        return next(
            each.component for each in standing(find_issues(store, now=NOW)) if each.measure == "people"
        )


@pytest.mark.parametrize(
    ("personal", "everywhere", "component"),
    [
        (True, False, Component.MEMORY),
        (False, False, Component.ROUTE),
        # What every run is told of its person says nothing of these.
        (True, True, Component.ROUTE),
    ],
)
def test_what_is_remembered_is_told_by_lines_that_differ_from_person_to_person(
    personal: bool, everywhere: bool, component: Component
) -> None:
    assert part(personal=personal, everywhere=everywhere) is component


def test_a_desk_that_each_topic_has_its_own_of_does_not_make_a_tools_fault_one_of_the_route() -> None:
    failed = [run for run in runs(0) if run.steps[1].name == "stock"][:20]
    desk, tool = RunMark("system prompt", "Desk: stock"), RunMark("tool", "stock")
    evidence = SliceEvidence(
        mark=desk,
        alike=[desk, tool],
        measure="people",
        rate=0.9,
        timing=Timing(traffic_burst=False, failure_burst=False, over=False, began=None),
        counts={desk: (20, 0), tool: (19, 0)},
        failures=20,
        others=80,
        failed=[told(run, ["Desk: stock"], tool=True) for run in failed],
        fine=lambda mark: None,
    )
    guess = weak_part(evidence)
    assert (guess.component, guess.resource) == (Component.TOOL, "stock")
    assert weak_part(replace(evidence, counts={desk: (20, 0)})).component is Component.ROUTE
