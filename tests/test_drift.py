"""Drift between two windows of runs: found where it was planted, and seldom where it was not."""

from __future__ import annotations

import random

from whet.judge.drift import Drift, drift
from whet.types import Outcome, Step, Task, Trajectory, Usage

VOCABULARY = [f"w{number:03}" for number in range(300)]


def runs(
    seed: int,
    count: int,
    start: int = 0,
    *,
    success: float = 0.8,
    words: int = 0,
    books: float = 0.5,
    cost: float = 1.0,
    each: int = 1,
) -> list[Trajectory]:
    """Runs of a made-up agent; `each` of them to a session, all of a session alike."""
    chance = random.Random(seed)
    window: list[Trajectory] = []
    for number in range(start, start + count):
        places = [min(299, int(chance.expovariate(1 / 40)) + words) for _ in range(8)]
        steps = [Step(kind="llm", usage=Usage(100, 10, cost * chance.lognormvariate(0, 0.5), 1))]
        steps += [Step(kind="tool", name="book")] if chance.random() < books else []
        outcome = Outcome.SUCCESS if chance.random() < success else Outcome.FAILURE
        for twin in range(each):
            window.append(
                Trajectory(
                    task=Task(instruction=" ".join(VOCABULARY[place] for place in places)),
                    steps=steps,
                    outcome=outcome,
                    session=f"{seed} {number}",
                    started=float(number) + twin / 100,
                    seconds=1.0,
                )
            )
    return window


def named(drifts: list[Drift]) -> set[str]:
    return {feature.feature for feature in drifts if feature.drifted}


def test_what_changed_is_named_with_the_time_from_which_it_did() -> None:
    before = runs(0, 200)
    quiet = runs(1, 60, 200)
    for change, feature in (
        ({"success": 0.4}, "success"),
        ({"words": 40}, "input"),
        ({"books": 0.1}, "tool book"),
        ({"cost": 2.0}, "dollars"),
    ):
        drifts = drift(before, [*quiet, *runs(2, 200, 260, **change)])  # type: ignore[arg-type]
        assert feature in named(drifts)
        told = next(each for each in drifts if each.feature == feature)
        assert told.since is not None
        assert 220 <= told.since <= 320
        assert "drifted" in told.sentence


def test_without_a_change_an_alarm_is_rare() -> None:
    alarms = sum(
        bool(named(drift(runs(seed, 100), runs(seed + 900, 100, 100), alpha=0.05))) for seed in range(40)
    )
    assert alarms <= 5


def test_runs_of_one_session_are_one_piece_of_evidence() -> None:
    """A session of fifty runs that fail alike is one failure."""
    loud = runs(3, 4, 200, success=0.0, each=50)
    assert not named(drift(runs(0, 200), loud))
    alone = [run for window in range(50) for run in runs(100 + window, 4, 200 + 4 * window, success=0.0)]
    assert "success" in named(drift(runs(0, 200), alone))


def test_too_few_runs_say_nothing() -> None:
    assert drift(runs(0, 20), runs(1, 100, 20)) == []
    assert drift(runs(0, 200), []) == []
