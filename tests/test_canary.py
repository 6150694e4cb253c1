"""The canary's decision on drawn units: what it proves, what it takes back, and how seldom it is wrong."""

from __future__ import annotations

import random

import pytest

from whet.errors import GateError
from whet.prove.allocation import AllocationCheck
from whet.prove.canary import (
    CanaryAction,
    CanaryDecision,
    CanaryEvidence,
    CanaryPlan,
    CanaryUnit,
    decide,
)

EVEN = CanaryPlan(shares=(0.5,), harm=0.3, most=600)


def watched(
    seed: int,
    effect: float,
    plan: CanaryPlan = EVEN,
    *,
    units: int = 600,
    lost: float = 0.0,
    errors: float = 0.0,
    slower: float = 1.0,
    usual: float = 1.0,
    together: float = 0.0,
) -> list[CanaryDecision]:
    """The decisions of one canary that is looked at after every fourth unit; `lost` of its units leave no record."""
    chance, evidence, share = random.Random(seed), CanaryEvidence(plan), plan.shares[0]
    decisions: list[CanaryDecision] = []
    for number in range(units):
        candidate, other = chance.random() < share, chance.random() < 0.5
        if candidate and chance.random() < lost:
            continue
        rate = 0.6 + effect * candidate + together * (candidate == other)
        unit = CanaryUnit(
            id=f"{number}",
            candidate=candidate,
            share=share,
            value=float(chance.random() < rate),
            broken=float(chance.random() < errors * candidate),
            amounts={"seconds": usual * chance.expovariate(1) * (slower if candidate else 1)},
            others={"another": (other, 0.5)},
        )
        evidence.exposed(candidate, share)
        evidence.ran(unit)
        evidence.spoke(unit)
        evidence.settled(unit)
        if number % 4 == 0 or number + 1 == units:
            decisions.append(decide(evidence, share))
        share = decisions[-1].share if decisions else share
        if not 0 < share < 1:
            break
    return decisions


def ends(effect: float, plan: CanaryPlan = EVEN, seeds: int = 24, **world: float) -> list[CanaryDecision]:
    return [watched(seed, effect, plan, **world)[-1] for seed in range(seeds)]  # type: ignore[arg-type]


def test_a_gain_goes_live_and_no_effect_does_not() -> None:
    assert sum(end.share == 1.0 for end in ends(0.25)) >= 21
    assert sum(end.share == 1.0 for end in ends(0.0)) <= 3


def test_a_loss_is_taken_back_within_the_units_that_were_named() -> None:
    named = EVEN.units(rate=0.6)
    assert named is not None
    for end in ends(-0.3, units=named):
        assert end.action is CanaryAction.TAKE_BACK
        assert "harm" in end.reason
        assert end.n <= named


def test_what_has_no_effect_is_seldom_taken_back_for_harm() -> None:
    assert sum("harm, by" in end.reason for end in ends(0.0)) <= 2


@pytest.mark.parametrize(("world", "metric"), [({"errors": 0.3}, "errors"), ({"slower": 5.0}, "seconds")])
def test_harm_is_also_what_breaks_or_takes_much_longer(world: dict[str, float], metric: str) -> None:
    taken = [end for end in ends(0.0, seeds=10, **world) if "harm" in end.reason]
    assert len(taken) == 10
    assert all(f"by its {metric}" in end.reason for end in taken)


def test_what_nobody_notices_is_no_harm() -> None:
    # Ten times as slow, by ten milliseconds; and by ten seconds.
    assert not any("harm" in end.reason for end in ends(0.0, seeds=10, usual=0.001, slower=10.0))
    assert all("by its seconds" in end.reason for end in ends(0.0, seeds=10, usual=1.0, slower=10.0))


def test_a_plan_that_is_used_up_without_proof_takes_the_candidate_back() -> None:
    plan = CanaryPlan(shares=(0.5,), harm=0.3, most=300)
    last = [end for end in ends(0.0, plan, seeds=10) if end.n >= plan.most]
    assert len(last) >= 8
    assert all(end.action is CanaryAction.TAKE_BACK and "did not prove" in end.reason for end in last)


def test_a_split_that_loses_units_of_one_arm_stops_it() -> None:
    assert all("sample-ratio mismatch" in end.reason for end in ends(0.1, seeds=10, lost=0.5))


def test_a_right_split_of_any_share_is_seldom_called_wrong() -> None:
    alarms = 0
    for seed in range(100):
        chance, check, most = random.Random(seed), AllocationCheck(), 0.0
        for number in range(400):
            share = 0.05 if number < 200 else 0.5
            check.add(chance.random() < share, share)
            most = max(most, check.value)
        alarms += most >= 20  # at 5 %, watched all the time
    assert alarms <= 10


def test_an_effect_that_hangs_on_another_experiment_is_stopped() -> None:
    plan = CanaryPlan(shares=(0.5,), harm=0.5, most=5_000, alpha=1e-9, harm_alpha=1e-9)
    assert all("hangs on another" in end.reason for end in ends(-0.1, plan, 5, together=0.38, units=3_000))
    assert not any("hangs on another" in end.reason for end in ends(0.1, plan, 10, units=600))


def test_the_share_rises_only_as_harm_is_excluded_and_never_falls_but_to_nothing() -> None:
    plan = CanaryPlan(shares=(0.1, 0.25, 0.5), harm=0.3, most=3_000)
    shares = [decision.share for decision in watched(1, 0.0, plan, units=1_500)]
    assert shares[0] == 0.1
    assert 0.5 in shares
    rising = [share for share in shares if share]
    assert rising == sorted(rising)
    assert max(decision.share for decision in watched(2, -0.3, plan, units=1_500)) < 0.5


def test_traffic_that_swings_from_hour_to_hour_is_no_effect() -> None:
    live = 0
    for seed in range(40):
        chance, evidence, share = random.Random(seed), CanaryEvidence(EVEN), 0.5
        for number in range(600):
            candidate = chance.random() < share
            value = float(chance.random() < (0.9 if number // 100 % 2 else 0.2))
            evidence.settled(CanaryUnit(id=f"{number}", candidate=candidate, share=share, value=value))
            if evidence.e_value >= 20:
                live += 1
                break
    assert live <= 4


def test_a_plan_says_what_it_promises_and_a_larger_share_promises_it_sooner() -> None:
    assert "is taken back within" in CanaryPlan().sentence(judged=0.4, runs=2.0)
    assert "would not be found" in CanaryPlan(harm=0.001).sentence()
    small, large = CanaryPlan().units(0.05), CanaryPlan().units(0.5)
    assert small is not None
    assert large is not None
    assert large < small


@pytest.mark.parametrize("wrong", [{"shares": ()}, {"shares": (0.5, 0.2)}, {"shares": (1.0,)}, {"harm": 0.0}])
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(GateError):
        CanaryPlan(**wrong)  # type: ignore[arg-type]
