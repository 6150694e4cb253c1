"""A setting of one or a few knobs comes to its best, from far away and to the last digit; luck moves it nowhere."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import whet
from whet.errors import InputError
from whet.learn.evolution.editing.operators import knobs, stepped
from whet.learn.evolution.editing.targets import Domain


def improved(
    start: Any, score: Any, domain: Domain | None = None, seed: int = 0
) -> tuple[Any, whet.Improvement]:
    """What `whet.Evolve` makes of a setting, by a score of its value."""
    setting = whet.resource("lone setting", default=start)

    def agent(question: str) -> Any:
        return setting.get()

    def close(trajectory: whet.Trajectory) -> float:
        return float(score(trajectory.output))

    experiment = whet.Experiment(
        env=whet.calls(agent),
        tasks=[whet.Task(instruction=f"task {n}", group=f"group {n}") for n in range(9)],
        rewards=[close],
        seed=seed,
    )
    evolve = whet.Evolve(
        ["lone setting"], "close", domains={} if domain is None else {"lone setting": {(): domain}}
    )
    better = asyncio.run(experiment.improve(evolve, bundle=whet.Bundle([setting.default_version])))
    return better.bundle["lone setting"].content, better


def nearness(best: float) -> Any:
    return lambda value: 1.0 / (1.0 + abs(value - best))


@pytest.mark.parametrize(
    ("start", "best", "domain"),
    [
        (3, 4, None),
        (3, 17, None),
        (0, 5, None),
        (1, 1000, None),
        (-3, -8, None),
        (3, 42, Domain("int", 0, 50)),
        (3, 9, Domain("int", 0, 10)),
    ],
)
def test_a_whole_number_comes_to_its_best(start: int, best: int, domain: Domain | None) -> None:
    value, better = improved(start, nearness(best), domain)
    assert value == best, better.reason


@pytest.mark.parametrize(
    ("start", "best", "domain"),
    [(0.5, 0.25, None), (0.5, 3.0, None), (0.0, 0.7, None), (0.2, 0.73, Domain("float", 0.0, 1.0))],
)
def test_a_number_with_a_fraction_comes_within_a_hundredth_of_its_best(
    start: float, best: float, domain: Domain | None
) -> None:
    value, better = improved(start, nearness(best), domain)
    assert value == pytest.approx(best, rel=0.01), better.reason


@pytest.mark.parametrize("start", [False, True])
def test_a_switch_is_turned(start: bool) -> None:
    assert improved(start, lambda value: value != start)[0] is not start


def test_switches_whose_settings_have_all_been_tried_are_left_at_the_best() -> None:
    """More than are climbed: the search ends in the second generation, before any was to run on all tasks."""
    best = {"a": True, "b": False, "c": True, "d": True}
    start = dict.fromkeys(best, False)
    value, better = improved(start, lambda value: sum(value[key] == best[key] for key in best) / 4)
    assert value == best, better.reason
    assert "every candidate within reach has been tried" in better.reason


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_coin_flips_move_a_lone_number_the_gate_does_not_promote_it(seed: int) -> None:
    setting, luck = whet.resource("lucky setting", default=8), random.Random(seed)

    def heads(trajectory: whet.Trajectory) -> bool:
        return luck.random() < 0.5

    experiment = whet.Experiment(
        env=whet.calls(lambda question: setting.get()),
        tasks=[whet.Task(instruction=f"task {n}", group=f"group {n}") for n in range(120)],
        rewards=[heads],
        seed=seed,
    )

    async def job() -> whet.Verdict:
        start = whet.Bundle([setting.default_version])
        better = await experiment.improve(whet.Evolve(["lucky setting"], "heads"), bundle=start)
        another = whet.Bundle([whet.Version(resource="lucky setting", content=9)])
        other = another if better.bundle == start else better.bundle
        return await experiment.gate(other, against=start, metric="heads")

    assert not asyncio.run(job()).promote


def test_a_setting_that_is_best_stays() -> None:
    value, better = improved(7, nearness(7))
    assert (value, better.bundle) == (7, better.parent)


def test_a_step_stays_in_the_domain_and_always_moves() -> None:
    rng = random.Random(0)
    share = Domain("float", 0.0, 1.0)
    for now, domain in [(5, Domain("int", 4, 6)), (0, Domain("int", 0)), (0.0, share), (1e-4, None)]:
        places = knobs(now, {} if domain is None else {(): domain})
        for _ in range(200):
            after = stepped(now, places, rng)
            assert after != now
            assert places[0].domain.holds(after)
    with pytest.raises(InputError):
        knobs(7, {(): Domain("int", 0, 5)})
    assert stepped("text", [], rng) == "text"
