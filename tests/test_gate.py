"""The gate: what it lets through by chance, what it takes to convince it, what it refuses."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from whet.errors import GateError
from whet.judge.base import reward
from whet.judge.rules import latency
from whet.prove.gate import Comparison, PairedResults, TaskResult, compare, pairs
from whet.prove.guardrails import Guardrail, directed
from whet.types import Group, Outcome, Score, Task, Trajectory

N = 600


def side(
    values: Sequence[float | None], groups: Sequence[str] | None = None, **scores: object
) -> list[TaskResult]:
    return [
        TaskResult(
            task=f"t{index}",
            group=groups[index] if groups else "",
            scores={"success": value, **{name: column[index] for name, column in scores.items()}},  # type: ignore[index]
        )
        for index, value in enumerate(values)
    ]


def table(groups: Sequence[int] = ()) -> list[dict[tuple[bool, bool], PairedResults]]:
    """Every pair that could come up, made once: 600 tasks × 4 results.

    `groups` is each task's group; with none given each task stands alone.
    """
    made = []
    for index in range(N):
        group = f"g{groups[index]}" if groups else ""
        one = {
            value: TaskResult(task=f"t{index}", group=group, scores={"success": float(value)})
            for value in (False, True)
        }
        made.append({(old, new): PairedResults(one[old], one[new]) for old in one for new in one})
    return made


def watch(
    made: list[dict[tuple[bool, bool], PairedResults]], draw: Callable[[int], tuple[bool, bool]]
) -> Comparison:
    comparison = Comparison()
    for index, possible in enumerate(made):
        if comparison.add(possible[draw(index)]):
            break
    return comparison


def paired(rng: random.Random, old: float, new: float, same: float) -> tuple[bool, bool]:
    """Two successes that share their luck with probability `same`."""
    luck = rng.random()
    return luck < old, (luck if rng.random() < same else rng.random()) < new


def test_without_effect_watching_every_pair_promotes_at_most_5_percent_and_the_naive_test_far_more() -> None:
    rng, made, runs = random.Random(1), table(), 1000
    promoted = naive = 0
    for _ in range(runs):
        drawn = [paired(rng, 0.7, 0.7, 0.5) for _ in range(N)]
        promoted += watch(made, drawn.__getitem__).promoted
        total = squares = 0
        for n, (old, new) in enumerate(drawn, 1):
            total, squares = total + new - old, squares + (new != old)
            spread = squares - total * total / n
            # One-sided z at 5 %, looked at after every pair from the 30th on.
            if n >= 30 and spread > 0 and total / (spread * n / (n - 1)) ** 0.5 > 1.645:
                naive += 1
                break
    assert promoted / runs <= 0.05
    assert naive / runs > 0.15


@pytest.mark.parametrize(
    ("sizes", "deviation"),
    [([75] * 8, 0.2), ([20] * 30, 0.1), ([300, 150, 100, 50], 0.2), ([550, *[10] * 5], 0.2)],
)
def test_an_effect_that_only_differs_between_groups_is_promoted_at_most_5_percent(
    sizes: list[int], deviation: float
) -> None:
    # The candidate helps some groups and harms others, by nothing on average over all groups there are.
    rng, runs = random.Random(len(sizes)), 600
    groups = [group for group, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(groups)
    made = table(groups)
    promoted = by_pairs_alone = 0
    for _ in range(runs):
        effects = [max(-0.4, min(0.4, rng.gauss(0, deviation))) for _ in sizes]
        comparison = watch(made, lambda index: paired(rng, 0.6, 0.6 + effects[groups[index]], 0.6))  # noqa: B023
        promoted += comparison.promoted
        by_pairs_alone += comparison.e_value >= 20
    assert promoted / runs <= 0.05
    assert by_pairs_alone > promoted, "without the clustered interval more would have passed"


def test_a_large_gain_in_each_of_four_unequal_groups_is_promoted() -> None:
    rng = random.Random(2)
    old, new, groups = [], [], []
    for group, (size, gain) in enumerate([(320, 0.36), (190, 0.29), (120, 0.21), (60, 0.15)]):
        for _ in range(size):
            before, after = paired(rng, 0.5, 0.5 + gain, 0.6)
            old, new, groups = [*old, float(before)], [*new, float(after)], [*groups, f"owner{group}"]
    verdict = compare(side(old, groups=groups), side(new, groups=groups))
    assert verdict.promote
    assert 0.15 < verdict.effect < 0.4


def test_ten_points_take_a_median_of_about_130_pairs() -> None:
    rng, made = random.Random(3), table()
    found = [watch(made, lambda _: paired(rng, 0.7, 0.8, 0.6)) for _ in range(200)]
    assert 90 <= statistics.median(one.n for one in found) <= 160
    assert sum(one.promoted for one in found) >= 190


def test_the_best_of_20_null_candidates_picked_on_validation_is_no_better_at_the_gate() -> None:
    rng, made, promoted = random.Random(4), table(), 0
    for _ in range(200):
        # Validation picks by 100 tasks; all 20 are as good as the baseline, so the best is merely lucky.
        validation = [sum(rng.random() < 0.7 for _ in range(100)) for _ in range(20)]
        assert max(validation) > 72
        promoted += watch(made, lambda _: paired(rng, 0.7, 0.7, 0.3)).promoted
    assert promoted / 200 <= 0.05


def test_re_pairing_recorded_episodes_of_one_bundle_promotes_at_most_5_percent() -> None:
    rng, made = random.Random(6), table()
    difficulty = [rng.betavariate(2, 1) for _ in range(N)]
    recorded = [[rng.random() < hard for _ in range(8)] for hard in difficulty]
    promoted = 0
    for _ in range(1000):
        order = rng.sample(range(N), N)
        drawn = [tuple(rng.sample(recorded[task], 2)) for task in order]
        promoted += watch(made, drawn.__getitem__).promoted  # type: ignore[arg-type]
    assert promoted / 1000 <= 0.05


def test_a_clear_gain_is_promoted_with_its_evidence() -> None:
    old = [1.0] * 60 + [0.0] * 60
    new = [1.0] * 90 + [0.0] * 30
    groups = [f"g{index % 12}" for index in range(120)]
    verdict = compare(side(old, groups), side(new, groups), against="the old agent")
    assert verdict.promote
    assert verdict.effect == pytest.approx(0.25)
    assert 0 < verdict.interval[0] < 0.25 < verdict.interval[1]
    assert verdict.e_value >= 20
    assert verdict.n == 120
    assert verdict.needed is not None
    assert verdict.needed < 120
    assert "better than the old agent" in verdict.reasons[0]


def test_equal_sides_are_refused_and_no_number_of_pairs_is_promised() -> None:
    same = side([1.0, 0.0] * 100)
    verdict = compare(same, same)
    assert not verdict.promote
    assert verdict.needed is None
    assert verdict.e_value == 1.0


def test_too_few_pairs_say_how_many_would_do() -> None:
    verdict = compare(side([0.0, 1.0] * 10), side([1.0, 1.0, 0.0, 1.0] * 5))
    assert not verdict.promote
    assert verdict.needed is not None
    few = compare(side([0.0] * 5), side([1.0, 1.0, 0.0, 1.0, 0.0]))
    assert not few.promote
    assert any(f"about {few.needed} pairs" in reason for reason in few.reasons)


def test_a_gain_in_one_group_alone_is_not_promoted() -> None:
    groups = ["a"] * 100 + ["b"] * 100
    verdict = compare(side([0.0] * 200, groups), side([1.0] * 100 + [0.0] * 100, groups))
    assert verdict.e_value > 1e6
    assert not verdict.promote
    assert any("clustered by group" in reason for reason in verdict.reasons)
    one = compare(side([0.0] * 100, groups), side([1.0] * 100, groups))
    assert not one.promote
    assert one.interval == (-1.0, 1.0)


def test_not_worse_by_a_margin_is_shown_for_equals_and_not_for_a_loss() -> None:
    rng = random.Random(9)
    old = [float(rng.random() < 0.8) for _ in range(400)]
    worse = [value if rng.random() < 0.85 else 0.0 for value in old]
    assert compare(side(old), side(old), margin=0.05).promote
    assert not compare(side(old), side(old), margin=0.0).promote
    assert not compare(side(old), side(worse), margin=0.05).promote


def test_a_machine_failure_is_left_out_and_counted_and_is_no_failure() -> None:
    old, new = side([0.0] * 100), side([1.0] * 100)
    broken = [
        *new[:95],
        *(TaskResult(task=f"t{i}", outcome=Outcome.INFRASTRUCTURE_ERROR) for i in range(95, 100)),
    ]
    verdict = compare(old, broken)
    assert verdict.promote
    assert verdict.n == 95
    assert verdict.effect == 1.0
    assert any(reason.startswith("5 pairs left out: an infrastructure error") for reason in verdict.reasons)


def test_a_missing_score_counts_at_its_worst_for_the_candidate() -> None:
    few = compare(side([0.0] * 100), side([None] * 4 + [1.0] * 96))
    assert (few.n, few.effect, few.promote) == (100, pytest.approx(0.96), True)
    assert any(
        "4 of the candidate's answers and 0 of the baseline's without" in reason for reason in few.reasons
    )
    # As good as the baseline where it is scored, and without a score where that is right.
    hidden = compare(side([1.0] * 40 + [0.0] * 60), side([None] * 40 + [1.0] * 30 + [0.0] * 30))
    assert hidden.effect == pytest.approx(-0.1)
    assert not hidden.promote
    # What the baseline lacks might have been right, too; the candidate's own cannot make up for it.
    assert compare(side([None] * 30 + [0.0] * 70), side([1.0] * 100)).effect == pytest.approx(0.7)
    assert compare(side([None] * 30 + [1.0] * 70), side([None] * 30 + [1.0] * 70)).effect == pytest.approx(
        -0.3
    )
    with pytest.raises(GateError, match="nothing to compare"):
        compare(side([None] * 3), side([1.0] * 3))


def broken(results: Sequence[TaskResult], metric: str, *numbers: int) -> list[TaskResult]:
    """The results, of which those with these numbers broke the metric's evaluator."""
    return [
        replace(result, scores={**result.scores, metric: None}, broke=(metric,))
        if number in numbers
        else result
        for number, result in enumerate(results)
    ]


def test_an_answer_that_breaks_the_evaluator_counts_0_on_either_side() -> None:
    # The candidate is right wherever it is judged, and breaks the evaluator where it is wrong: .625 against .625.
    old, new = side([1.0] * 50 + [0.0] * 30), broken(side([1.0] * 80), "success", *range(20, 50))
    verdict = compare(old, new)
    assert (verdict.n, verdict.effect, verdict.promote) == (80, 0.0, False)
    assert any(reason.startswith("30 of the candidate's answers and 0 of") for reason in verdict.reasons)
    # Of the baseline, too; and both count the same.
    assert compare(
        broken(side([1.0] * 100), "success", *range(60)), side([1.0] * 100)
    ).effect == pytest.approx(0.6)
    assert compare(broken(new, "success", *range(20)), broken(new, "success", *range(20))).effect == 0.0
    with pytest.raises(GateError, match=r"broke the evaluator 100 times"):
        compare(broken(side([1.0] * 100), "success", *range(100)), side([1.0] * 100))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 9.0)])
def test_a_guardrail_is_not_escaped_by_breaking_its_evaluator(low: float, high: float) -> None:
    rail = Guardrail("cost", 0.05 * (high - low), higher_is_better=False)
    rates = [low, high] * 100
    old, same = side([0.0] * 200, cost=rates), side([1.0] * 200, cost=rates)
    assert compare(old, same, guardrails=[rail]).promote
    # It is dear at every second task, and of eighteen of these nobody learns.
    assert not compare(old, broken(same, "cost", *range(0, 36, 2)), guardrails=[rail]).promote
    both = broken(same, "cost", 0), broken(old, "cost", 0)
    assert compare(both[1], both[0], guardrails=[rail]).promote


def test_guardrails_must_be_shown_to_hold() -> None:
    old, new = [0.0] * 200, [1.0] * 120 + [0.0] * 80
    quiet = [0.0] * 200
    loud = [1.0] * 40 + [0.0] * 160
    rail = Guardrail("hallucination", 0.05)

    def judged(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[bool, bool]:
        verdict = compare(side(old, hallucination=before), side(new, hallucination=after), guardrails=[rail])
        return verdict.promote, verdict.guardrails["hallucination"]

    assert judged(quiet, quiet) == (True, True)
    assert judged(quiet, loud) == (False, False)
    assert judged([None] * 200, [None] * 200) == (False, False)
    assert judged(quiet, [None] * 100 + [0.0] * 100) == (False, False)
    # It applies to half of the tasks only: those decide.
    half: list[float | None] = [None] * 100 + [0.0] * 100
    assert judged(half, half) == (True, True)
    few = compare(
        side(old[:12], hallucination=quiet), side([1.0] * 12, hallucination=quiet), guardrails=[rail]
    )
    assert few.guardrails == {"hallucination": False}, "twelve equal pairs do not prove a margin of 5 points"


def test_a_relative_guardrail_bounds_cost_by_a_share_of_the_baselines() -> None:
    rng = random.Random(1)
    cost = [rng.uniform(1, 3) for _ in range(200)]
    old = side([0.0] * 200, cost=cost)
    rail = Guardrail("cost", 0.1, higher_is_better=False, relative=True)
    for factor, holds in ((1.0, True), (1.05, True), (1.2, False), (0.5, True)):
        new = side([1.0] * 200, cost=[one * factor for one in cost])
        assert compare(old, new, guardrails=[rail]).promote is holds, factor


def test_a_guardrail_on_an_amount_is_asked_for_its_direction() -> None:
    both = side([1.0] * 20, latency=[1.0] * 20)
    with pytest.raises(GateError, match="higher_is_better=False or True"):
        compare(both, both, guardrails=[Guardrail("latency", 0.1)])


def test_a_guardrail_takes_the_direction_of_its_reward() -> None:
    @reward(higher_is_better=False)
    def noise(trajectory: Trajectory) -> float:
        return 0.0

    rails = [
        Guardrail("noise", 0.1),
        Guardrail("latency", 0.1),
        Guardrail("fame", 0.1),
        Guardrail("errors", 0.1),
    ]
    assert [each.rises for each in directed(rails, [noise, latency()])] == [False, True, True, False]
    said = Guardrail("noise", 0.1, higher_is_better=True)
    assert directed([said], [noise]) == [said]


def test_a_fall_in_the_answer_rate_is_caught_by_a_guardrail_where_higher_is_better() -> None:
    old = side([0.0] * 100, answered=[1.0] * 100)
    new = side([1.0] * 100, answered=[0.0] * 30 + [1.0] * 70)
    assert compare(old, new).promote
    assert not compare(old, new, guardrails=[Guardrail("answered", 0.1)]).promote


def test_tasks_or_groups_that_were_trained_on_are_refused() -> None:
    both = side([1.0, 0.0], ["a", "b"])
    with pytest.raises(GateError, match="'b' was trained on"):
        compare(both, both, trained_groups={"b"})
    with pytest.raises(GateError, match="'t0' was trained on"):
        compare(both, both, trained_groups={"t0"})
    assert not compare(both, both, trained_groups={"", "c"}).promote


def test_unpaired_repeated_and_mismatched_tasks_are_refused() -> None:
    with pytest.raises(GateError, match=r"2 tasks only on the baseline's side, 0 only .* 3 on both"):
        compare(side([1.0] * 5), side([1.0] * 3))
    with pytest.raises(GateError, match="1 results on the candidate's side repeat"):
        compare(side([1.0] * 3), [*side([1.0] * 3), side([1.0])[0]])
    with pytest.raises(GateError, match="group"):
        compare(side([1.0], ["a"]), side([1.0], ["b"]))
    comparison = Comparison()
    pair = pairs(side([1.0]), side([1.0]))[0]
    comparison.add(pair)
    with pytest.raises(GateError, match="twice"):
        comparison.add(pair)


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan")])
def test_a_metric_outside_0_to_1_is_refused(value: float) -> None:
    with pytest.raises(GateError, match="rescale"):
        compare(side([0.5]), side([value]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Comparison(margin=1.0),
        lambda: Comparison(margin=-0.1),
        lambda: Comparison(alpha=0.0),
        lambda: Comparison(guardrails=[Guardrail("cost", 1), Guardrail("cost", 2)]),
        lambda: Guardrail("cost", 0.0),
        lambda: Guardrail("cost", float("nan")),
    ],
)
def test_settings_without_a_meaning_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(GateError):
        make()


def test_a_comparison_stops_early_and_takes_no_more() -> None:
    both = pairs(side([0.0] * 100), side([1.0] * 100))
    comparison = Comparison()
    taken = next(n for n, pair in enumerate(both, 1) if comparison.add(pair))
    assert taken == comparison.n < 20
    assert comparison.verdict().promote
    with pytest.raises(GateError, match="decided after"):
        comparison.add(both[taken])


def run(task: Task, success: float | None, outcome: Outcome = Outcome.UNKNOWN) -> Trajectory:
    return Trajectory(task=task, outcome=outcome, scores={"success": Score("success", success)})


def test_groups_of_trajectories_are_averaged_and_broken_runs_masked() -> None:
    tasks = [Task(id=f"t{index}", group=f"g{index % 10}") for index in range(100)]
    old = [Group(task, (run(task, 0.0), run(task, 0.0))) for task in tasks]
    new = [
        Group(task, (run(task, 1.0), run(task, 0.0), run(task, 0.0, Outcome.INFRASTRUCTURE_ERROR)))
        for task in tasks
    ]
    assert compare(old, new).effect == pytest.approx(0.5)
    unscored = [Group(tasks[0], (run(tasks[0], 1.0), run(tasks[0], None))), *new[1:]]
    assert compare(old, unscored).effect == pytest.approx(0.495)
    gone = [Group(tasks[0], (run(tasks[0], 0.0, Outcome.INFRASTRUCTURE_ERROR),)), *new[1:]]
    assert "infrastructure" in compare(old, gone).reasons[1]


def test_success_is_read_off_the_outcome_where_nothing_scored_it() -> None:
    tasks = [Task(id=f"t{index}") for index in range(40)]
    old = [Trajectory(task=task, outcome=Outcome.TIMEOUT) for task in tasks]
    new = [Trajectory(task=task, outcome=Outcome.SUCCESS) for task in tasks]
    assert compare(old, new).effect == 1.0
    with pytest.raises(GateError, match="nothing to compare"):
        compare(old, [Trajectory(task=task) for task in tasks])
