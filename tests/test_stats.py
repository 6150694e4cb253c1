"""Intervals against scipy and by coverage; the e-process by its guarantee."""

from __future__ import annotations

import math
import operator
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import InputError
from whet.stats import (
    LIKENESS,
    BettingProcess,
    ClusterMean,
    cluster_interval,
    gain_for,
    pairs_for,
    pairs_needed,
    t_quantile,
    wilson,
)


@pytest.mark.parametrize("df", [1, 2, 3, 7, 29, 300, 10_000])
@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 0.9, 0.975, 0.9995])
def test_t_quantile_agrees_with_scipy(p: float, df: int) -> None:
    scipy_stats = pytest.importorskip(
        "scipy.stats", reason="scipy is the oracle here and no dependency of whet"
    )
    assert t_quantile(p, df) == pytest.approx(scipy_stats.t.ppf(p, df), rel=1e-8, abs=1e-10)


def test_t_quantile_reproduces_the_printed_table() -> None:
    table = {(0.975, 1): 12.7062, (0.975, 5): 2.5706, (0.95, 10): 1.8125, (0.995, 30): 2.7500}
    for (p, df), value in table.items():
        assert t_quantile(p, df) == pytest.approx(value, abs=5e-5)


def test_wilson_reproduces_published_values_and_stays_within_zero_and_one() -> None:
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(
    "call", [lambda: wilson(3, 2), lambda: t_quantile(1.0, 3), lambda: t_quantile(0.5, 0)]
)
def test_arguments_without_a_meaning_are_refused(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_values_that_stand_alone_give_the_t_interval() -> None:
    values = [0.1, 0.5, 0.9, 0.2, 0.4]
    mean = sum(values) / 5
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / 4 / 5)
    half = t_quantile(0.975, 4) * error
    assert cluster_interval(values) == pytest.approx((mean - half, mean + half))
    assert cluster_interval(values, ["", "", "", "", ""]) == pytest.approx(cluster_interval(values))


def test_copying_every_value_within_its_cluster_adds_no_certainty() -> None:
    values, groups = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], list("abcdef")
    once = cluster_interval(values, groups)
    assert cluster_interval(values * 50, groups * 50) == pytest.approx(once)
    low, high = cluster_interval(values * 50)
    assert high - low < (once[1] - once[0]) / 5


def test_one_cluster_says_nothing() -> None:
    assert cluster_interval([1.0, 1.0, 0.0], ["a", "a", "a"], bounds=(0.0, 1.0)) == (0.0, 1.0)
    assert cluster_interval([], bounds=(0.0, 1.0)) == (0.0, 1.0)


def test_the_clustered_interval_covers_and_the_plain_one_does_not() -> None:
    rng = random.Random(5)
    covered = plain = 0
    for _ in range(400):
        values, groups = [], []
        for group in range(8):
            effect = rng.gauss(0, 0.2)
            values += [effect + rng.gauss(0, 0.4) for _ in range(20)]
            groups += [group] * 20
        low, high = cluster_interval(values, groups)
        covered += low <= 0 <= high
        low, high = cluster_interval(values)
        plain += low <= 0 <= high
    assert 0.92 <= covered / 400 <= 0.98
    assert plain / 400 < 0.75


@pytest.mark.parametrize("sizes", [[60] * 4, [300, 40, 40, 40], [300, 5, 5, 5, 5, 5]])
def test_a_null_effect_that_differs_between_few_unequal_clusters_is_refused_at_most_at_the_level(
    sizes: list[int],
) -> None:
    rng = random.Random(11)
    missed = sandwich = 0
    for _ in range(1000):
        mean, sums = ClusterMean(), []
        for cluster, size in enumerate(sizes):
            inside = rng.gauss(0, 0.2) * size + rng.gauss(0, 0.5) * math.sqrt(size)
            for _ in range(size):
                mean.add(inside / size, cluster)
            sums.append(inside)
        low, high = mean.interval()
        missed += not low <= 0 <= high
        plain = sum(sums) / sum(sizes)
        squares = sum((one - size * plain) ** 2 for one, size in zip(sums, sizes, strict=True))
        error = math.sqrt(squares * len(sizes) / (len(sizes) - 1)) / sum(sizes)
        sandwich += abs(plain) > t_quantile(0.975, len(sizes) - 1) * error
    assert missed / 1000 <= 0.065  # 5 % and two standard errors
    if len(set(sizes)) > 1:  # the usual estimate, which is what this one is there to replace
        assert sandwich / 1000 > 0.1


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 5)), min_size=2, max_size=60))
@settings(max_examples=60)
def test_the_interval_is_the_group_t_test_inverted(rows: list[tuple[float, int]]) -> None:
    running = ClusterMean()
    for value, group in rows:
        running.add(value, group)
    inside: dict[int, list[float]] = {}
    for value, group in rows:
        inside.setdefault(group, []).append(value)
    low, high = running.interval()
    if len(inside) < 2:
        assert (low, high) == (-math.inf, math.inf)
        return
    weights = [len(one) / (1 + (len(one) - 1) * LIKENESS) for one in inside.values()]
    means = [sum(one) / len(one) for one in inside.values()]
    middle = sum(map(operator.mul, weights, means)) / sum(weights)
    assert running.mean == pytest.approx(middle, abs=1e-9)
    assert running.plain == pytest.approx(sum(value for value, _ in rows) / len(rows), abs=1e-9)
    assert low - 1e-6 <= middle <= high + 1e-6
    if math.isinf(low) or high - low < 1e-3:
        return
    for end in (low, high):
        each = [weight * (one - end) for weight, one in zip(weights, means, strict=True)]
        centre, count = sum(each) / len(each), len(each)
        error = math.sqrt(sum((one - centre) ** 2 for one in each) / (count - 1) / count)
        assert abs(centre) / error == pytest.approx(t_quantile(0.975, count - 1), rel=1e-3)


@given(st.lists(st.floats(-1, 1), max_size=40), st.randoms(use_true_random=False), st.floats(0, 0.5))
@settings(max_examples=60)
def test_the_e_value_does_not_depend_on_order_and_is_never_negative(
    differences: list[float], rng: random.Random, margin: float
) -> None:
    first, second = BettingProcess(-margin), BettingProcess(-margin)
    for difference in differences:
        assert first.add(difference) >= 0
    rng.shuffle(differences)
    for difference in differences:
        second.add(difference)
    assert second.value == pytest.approx(first.value, rel=1e-9)


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.3])
def test_the_expected_e_value_at_the_edge_of_the_null_is_one(margin: float) -> None:
    # Exactly: over all 3^5 sequences of {-1, 0, 1} whose mean is -margin.
    up, down = 0.2, 0.2 + margin
    chances = {1.0: up, -1.0: down, 0.0: 1 - up - down}
    total = 0.0
    stack: list[tuple[float, list[float]]] = [(1.0, [])]
    while stack:
        chance, sequence = stack.pop()
        if len(sequence) < 5:
            stack += [(chance * one, [*sequence, value]) for value, one in chances.items()]
            continue
        process = BettingProcess(-margin)
        for value in sequence:
            process.add(value)
        total += chance * process.value
    assert total == pytest.approx(1.0)


def test_certain_gains_and_losses_leave_a_number() -> None:
    up, down = BettingProcess(), BettingProcess()
    for _ in range(5_000):
        up.add(1.0)
        down.add(-1.0)
    assert 1e98 < up.value <= 1e100
    assert 0 <= down.value < 1e-30


@pytest.mark.parametrize("difference", [1.01, -2.0, math.nan, math.inf])
def test_a_difference_that_cannot_be_one_of_rates_is_refused(difference: float) -> None:
    with pytest.raises(InputError, match="rescale"):
        BettingProcess().add(difference)


def test_pairs_needed_is_about_the_mean_stopping_time() -> None:
    rng = random.Random(2)

    def draw() -> float:
        return rng.choices((1.0, -1.0, 0.0), (0.15, 0.05, 0.8))[0]

    stops = []
    for _ in range(200):
        process = BettingProcess()
        while process.add(draw()) < 20:
            pass
        stops.append(process.n)
    mean = sum(stops) / len(stops)
    needed = pairs_needed([1.0] * 15 + [-1.0] * 5 + [0.0] * 80)
    assert needed is not None
    assert 0.8 < needed / mean < 1.25


def test_pairs_needed_grows_as_the_effect_shrinks_and_is_none_without_one() -> None:
    big = pairs_needed([1.0] * 30 + [-1.0] * 5 + [0.0] * 65)
    small = pairs_needed([1.0] * 12 + [-1.0] * 8 + [0.0] * 80)
    assert big is not None
    assert small is not None
    assert big < 60 < 300 < small
    assert pairs_needed([1.0, -1.0]) is None
    assert pairs_needed([]) is None
    within = pairs_needed([1.0] * 10 + [-1.0] * 10 + [0.0] * 80, null=-0.1)
    assert within is not None


def test_the_pairs_that_a_gain_takes_are_enough_and_fewer_clusters_take_more() -> None:
    assert pairs_for(0.1) == pairs_needed([1.0] + [0.0] * 9)
    needed = [pairs_for(gain) for gain in (0.05, 0.1, 0.3)]
    assert all(isinstance(count, int) for count in needed)
    assert needed == sorted(needed, key=lambda count: -(count or 0))
    few, many = pairs_for(0.1, clusters=3), pairs_for(0.1, clusters=40)
    assert few is not None
    assert many is not None
    assert few > 2 * many
    assert pairs_for(0.1, clusters=1) is None
    for pairs in (10, 48, 300):
        gain = gain_for(pairs, clusters=12)
        assert gain is not None
        enough, short = pairs_for(gain, clusters=12), pairs_for(gain - 0.01, clusters=12)
        assert enough is not None
        assert enough <= pairs
        assert short is None or short > pairs
    assert gain_for(0) is None
    assert gain_for(100, clusters=1) is None
    with pytest.raises(InputError, match="above 0"):
        pairs_for(0.0)


def test_the_gate_needs_no_numpy() -> None:
    modules = "whet.prove.verdict, whet.record.tasks, whet.learn.datasets.splits"
    code = f"import sys, {modules}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("null", [0.0, -0.05])
def test_composite_nulls_with_ties_drifts_and_early_looks_reach_20_in_at_most_5_percent(null: float) -> None:
    """What each pair is drawn from may depend on all before it, as long as its mean is not above the null."""
    rng, runs, crossed = random.Random(8), 600, {"ties": 0, "drift": 0, "fractions": 0}
    for _ in range(runs):
        for kind in crossed:
            process, last = BettingProcess(null), 0.0
            for count in range(300):
                if kind == "ties":
                    differing = 0.06 if count % 2 else 0.5
                elif kind == "drift":  # bolder after each win, to look like a trend
                    differing = 0.9 if last > 0 else 0.1
                else:
                    differing = 1.0
                size = rng.choice((0.25, 1.0)) if kind == "fractions" else 1.0
                # A mean of the null exactly.
                up = (differing + null / size) / 2
                draw = rng.random()
                last = size if draw < up else -size if draw < differing else 0.0
                if process.add(last) >= 20:
                    crossed[kind] += 1
                    break
    assert all(count <= 0.05 * runs for count in crossed.values()), crossed
    assert any(count > 0.005 * runs for count in crossed.values()), "a process that never gains shows nothing"
