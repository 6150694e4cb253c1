"""Which of many: what was chosen is judged where it was not chosen, and a race spends no gate task."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from statistics import fmean, median

import pytest
from test_experiment import Sums, success

from whet.cli import app
from whet.errors import GateError, InputError
from whet.learn.experiment import Experiment
from whet.prove.gate import compare
from whet.prove.results import TaskResult
from whet.prove.selection import DEV, best_of
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.stats import discoveries
from whet.types import Bundle, Split, Task, Version

TASKS = 300


def side(successes: list[bool], groups: int = 0) -> list[TaskResult]:
    return [
        TaskResult(
            task=f"t{place}", group=f"g{place % groups}" if groups else "", scores={"success": float(success)}
        )
        for place, success in enumerate(successes)
    ]


def drawn(rng: random.Random, rates: list[float], gain: float = 0.0) -> list[bool]:
    return [rng.random() < rate + gain for rate in rates]


def test_the_best_of_20_nulls_is_not_promoted_and_its_effect_is_without_its_luck() -> None:
    rng, promoted, naive, shown, dev = random.Random(5), 0, 0, [], []
    for _ in range(30):
        rates = [rng.choice((0.3, 0.8)) for _ in range(TASKS)]
        baseline = drawn(rng, rates)
        candidates = {f"c{number}": drawn(rng, rates) for number in range(20)}
        verdict = best_of(side(baseline), {name: side(one) for name, one in candidates.items()}).verdict
        promoted += verdict.promote
        shown.append(verdict.effect)
        dev.append(verdict.dev_effect or 0.0)
        luckiest = max(candidates.values(), key=sum)
        naive += (
            sum(luckiest) - sum(baseline)
            > 1.645 * sum(a != b for a, b in zip(luckiest, baseline, strict=True)) ** 0.5
        )
    assert promoted <= 3
    assert naive > 6, "the same-data test must be fooled, or this shows nothing"
    # The baseline's own luck is in both, so the mean of 30 is within three points of nothing.
    assert abs(fmean(shown)) < 0.03
    assert fmean(dev) > fmean(shown) + 0.05


def test_a_better_one_among_many_is_chosen_proven_and_told_beside_its_effect_on_dev() -> None:
    rng = random.Random(6)
    rates = [rng.choice((0.3, 0.7)) for _ in range(TASKS)]
    sides = {f"c{number}": side(drawn(rng, rates), 30) for number in range(6)}
    sides["better"] = side(drawn(rng, rates, 0.25), 30)
    selection = best_of(side(drawn(rng, rates), 30), sides)
    verdict = selection.verdict
    assert selection.chosen == "better"
    assert verdict.promote
    assert verdict.tried == 7
    # Whole groups choose: no task of a group that judges did.
    assert verdict.n == TASKS - round(DEV * 30) * 10
    assert verdict.regimes["new-group"].units == 20
    assert [one.name for one in selection.tried if one.holds] == ["better"]
    assert selection.any_better > 20
    text = " ".join(verdict.reasons)
    assert "better was chosen among 7 on 100 pairs that are not judged here" in text
    assert f"{verdict.dev_effect:+.3f}" in text
    assert f"{verdict.effect:+.3f}" in text


def test_what_cannot_be_divided_is_refused() -> None:
    few = side([True] * 60, 2)
    with pytest.raises(GateError, match="2 groups are too few"):
        best_of(few, {"a": few, "b": few})
    assert not best_of(few, {"a": few, "b": few}, regime="exchangeable").verdict.promote
    with pytest.raises(GateError, match="no candidate"):
        best_of(few, {})


def test_evidence_is_corrected_for_the_number_of_candidates() -> None:
    assert discoveries([30.0]) == [0]
    assert discoveries([30.0, 1.0, 1.0]) == [], "30 is enough for one and not for the best of three"
    assert discoveries([70.0, 1.0, 35.0]) == [0, 2], "two of three stand each other by"
    assert discoveries([]) == []


def test_the_command_chooses_among_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(7)
    rates = [rng.choice((0.3, 0.7)) for _ in range(TASKS)]
    for name, gain in (("a", 0.0), ("b", 0.0), ("c", 0.25)):
        rows = [{"task": place, "success": success} for place, success in enumerate(drawn(rng, rates, gain))]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    a, b, c = (str(tmp_path / f"{name}.jsonl") for name in "abc")
    app(["verdict", a, b, "--also", c, "--json"], result_action="return_value")
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["promote"], verdict["tried"]) == (True, 2)
    assert any(f"{c} was chosen among 2" in reason for reason in verdict["reasons"])


QUESTIONS = [
    Task(instruction=str(number), answer=number, group=f"g{number}", split=split)
    for split, numbers in (
        (Split.TRAIN, range(100)),
        (Split.VALIDATION, range(100, 140)),
        (Split.GATE, range(140, 260)),
    )
    for number in numbers
]


def knows(bundle: Bundle, seed: int) -> FunctionPolicy:
    """Knows a share of the numbers, by their last digit."""
    share = bundle["digits"].content if "digits" in bundle else 3
    return FunctionPolicy(lambda question: int(question) if int(question) % 10 < share else -1)


def bundle(digits: int) -> Bundle:
    return Bundle([Version(resource="digits", content=digits)])


def test_a_race_spends_most_on_the_best_and_touches_no_gate_task() -> None:
    store = Store(":memory:")
    work = Experiment(env=Sums, tasks=QUESTIONS, rewards=[success], policy=knows, seed=1, store=store)
    bundles = {str(digits): bundle(digits) for digits in (2, 3, 6, 4, 1, 5, 0, 9)}
    improvement = asyncio.run(work.choose(bundles, rollouts=300))
    assert improvement.bundle == bundles["9"]
    assert improvement.rollouts <= 300
    assert work.rollouts == improvement.rollouts
    runs = {one.name: one.rollouts for one in improvement.candidates}
    assert runs["9"] > 2 * runs["0"], "the worst drops out first"
    assert {run.task.split for run in store.trajectories()} <= {Split.TRAIN, Split.VALIDATION}
    verdict = asyncio.run(work.gate(improvement))
    assert verdict.promote
    assert (verdict.tried, verdict.n) == (8, 120)
    assert verdict.dev_effect == pytest.approx(0.6, abs=0.15)
    with pytest.raises(InputError, match="too few"):
        asyncio.run(work.choose(bundles, rollouts=5))
    with pytest.raises(InputError, match="two at the least"):
        asyncio.run(work.choose({"same": bundle(4), "again": bundle(4)}))


def test_a_race_between_equals_proves_nothing() -> None:
    work = Experiment(env=Sums, tasks=QUESTIONS, rewards=[success], policy=knows, seed=1)
    # Bundles that differ in what nothing reads.
    same = {str(number): Bundle([Version(resource="unread", content=number)]) for number in range(4)}
    improvement = asyncio.run(work.choose(same, rollouts=200))
    assert not asyncio.run(work.gate(improvement)).promote


def test_the_effect_of_what_passed_is_told_without_the_luck_of_having_passed() -> None:
    rng, raw, corrected = random.Random(11), [], []
    for _ in range(400):
        # Ten points, found in about half of all tries: those where luck helped.
        differences = rng.choices((1, -1, 0), (0.2, 0.1, 0.7), k=150)
        old = side([value < 0 for value in differences])
        verdict = compare(old, side([value > 0 for value in differences]))
        assert (verdict.after_passing is None) is not verdict.promote
        if verdict.after_passing is not None:
            raw.append(verdict.effect - 0.1)
            corrected.append(verdict.after_passing - 0.1)
    assert 80 < len(raw) < 320
    assert fmean(raw) > 0.03
    assert abs(fmean(corrected)) < fmean(raw) / 2
    assert abs(median(corrected)) < 0.02
    clear = compare(side([False] * 200), side([True] * 150 + [False] * 50))
    assert clear.after_passing == pytest.approx(clear.effect, abs=0.001)
