"""Two regimes, declared and both told; repeated looks, missing sides, merged experiments, power before the spend."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from commands import whet

from whet.cli import app
from whet.errors import GateError
from whet.prove.gate import compare
from whet.prove.guardrails import Guardrail
from whet.prove.merging import merged
from whet.prove.power import power, power_in_words, provable
from whet.prove.results import TaskResult
from whet.record.store import Store
from whet.types import Regime, Verdict


def result(task: str, group: str, scores: dict[str, float]) -> TaskResult:
    return TaskResult(task=task, group=group, scores=scores)


def paired(
    differences: list[int], groups: int = 0, start: int = 0
) -> tuple[list[TaskResult], list[TaskResult]]:
    old, new = [], []
    for place, difference in enumerate(differences):
        group = f"g{start + place * groups // len(differences)}" if groups else ""
        old.append(result(f"t{start + place}", group, {"success": float(difference < 0)}))
        new.append(result(f"t{start + place}", group, {"success": float(difference > 0)}))
    return old, new


UNEVEN = [1] * 40 + [-1] * 10 + [0] * 150 + [1] * 4 + [-1] * 4 + [0] * 192
"""A gain of 15 points in one half of the tasks and none in the other."""


def test_a_gain_in_one_of_two_groups_is_proven_of_such_tasks_and_not_of_a_new_group() -> None:
    old, new = paired(UNEVEN, 2)
    declared = {name: compare(old, new, regime=name) for name in ("exchangeable", "new-group")}  # type: ignore[arg-type]
    assert (declared["exchangeable"].promote, declared["new-group"].promote) == (True, False)
    for name, verdict in declared.items():
        assert {regime: evidence.promote for regime, evidence in verdict.regimes.items()} == {
            "exchangeable": True,
            "new-group": False,
        }
        assert {regime: evidence.units for regime, evidence in verdict.regimes.items()} == {
            "exchangeable": 400,
            "new-group": 2,
        }
        assert verdict.interval == verdict.regimes[name].interval  # type: ignore[index]
        assert any(
            f"{name} decides" in reason and "exchangeable" in reason and "new-group" in reason
            for reason in verdict.reasons
        )
    assert compare(old, new) == declared["new-group"], "who declares nothing is asked for the harder proof"
    with pytest.raises(GateError, match="none of exchangeable, new-group"):
        compare(old, new, regime="grouped")  # type: ignore[arg-type]


def test_tasks_without_groups_have_one_regime_under_two_names() -> None:
    verdict = compare(*paired([1] * 30 + [-1] * 5 + [0] * 65))
    assert verdict.regimes["exchangeable"] == verdict.regimes["new-group"]
    assert any("both regimes are one" in reason for reason in verdict.reasons)


def test_a_guardrail_is_asked_for_in_the_declared_regime() -> None:
    rng = random.Random(4)
    old, new = paired([1] * 200 + [0] * 200, 4)
    # It breaks more in one of four groups: too little for all tasks to be told, too much to say so of a new group.
    faults = [float(rng.random() < (0.12 if place < 100 else 0.02)) for place in range(400)]
    old = [replace(one, scores={**one.scores, "errors": float(rng.random() < 0.04)}) for one in old]
    new = [
        replace(one, scores={**one.scores, "errors": fault}) for one, fault in zip(new, faults, strict=True)
    ]
    rail = Guardrail("errors", 0.06)
    assert compare(old, new, guardrails=[rail], regime="exchangeable").guardrails == {"errors": True}
    assert compare(old, new, guardrails=[rail], regime="new-group").guardrails == {"errors": False}


def test_a_verdict_from_before_the_regimes_is_read_and_keeps_its_id(tmp_path: Path) -> None:
    recorded = (
        b'{"promote":true,"effect":0.1,"interval":[0.0,1.0],"e_value":20.0,"n":5,"against":"baseline","margin":0.0,'
        b'"needed":null,"guardrails":{"a":false,"b":true},"reasons":["x"],"candidate":"","baseline":""}'
    )
    old = msgspec.json.decode(recorded, type=Verdict)
    assert (old.id, old.regime, old.regimes) == ("4142584470a55e9e", "new-group", {})
    new = replace(compare(*paired(UNEVEN, 2), regime="exchangeable"), candidate="bundle")
    assert new.id != replace(new, regime="new-group").id
    with Store(tmp_path / "runs.db") as store:
        store.put_verdict(new)
        (read,) = store.verdicts()
    assert read == new
    assert isinstance(read.regimes["exchangeable"], Regime)


def test_of_several_looks_at_growing_groups_more_is_asked() -> None:
    differences = ([1] * 14 + [-1] * 2 + [0] * 24) * 4 + ([1] * 6 + [-1] * 5 + [0] * 29) * 4
    once, again = (compare(*paired(differences, 8), watched=watched) for watched in (False, True))
    assert once.promote
    assert not again.promote
    assert any("99%" in reason for reason in again.reasons)


def test_a_task_that_one_side_lacks_counts_at_its_worst_and_never_helps() -> None:
    old, new = paired([1] * 12 + [-1] * 12 + [0] * 76)
    with pytest.raises(GateError, match="--unpaired"):
        compare(old, new[:12] + new[24:])
    # Those that it fails are left out: without them it would look as if it were better.
    hidden = compare(old, new[:12] + new[24:], unpaired=True)
    assert (hidden.n, hidden.promote) == (100, False)
    assert hidden.effect == pytest.approx(0.0)
    more = compare(old[:50], new, unpaired=True)
    assert more.effect == pytest.approx((12 - 12 - 50) / 100), "the baseline might have been right"
    assert compare(old, paired([1] * 60 + [0] * 40)[1][:95], unpaired=True).promote


def test_halves_merge_to_what_the_whole_would_have_been() -> None:
    differences = ([1] * 46 + [-1] * 24 + [0] * 230) * 2
    halves = [compare(*paired(differences[at : at + 300], start=at)) for at in (0, 300)]
    whole, both = compare(*paired(differences)), merged(halves)
    assert whole.promote
    assert both.promote
    assert not any(half.promote for half in halves)
    assert both.n == 600
    assert both.effect == pytest.approx(whole.effect)
    assert both.interval == pytest.approx(whole.interval, abs=0.003)
    assert both.e_value == pytest.approx(halves[0].e_value * halves[1].e_value)
    # Where both looked at the same tasks nothing was added.
    assert merged([halves[0], halves[0]], same_tasks=True).e_value == pytest.approx(halves[0].e_value)


def test_what_cannot_be_merged_is_refused_and_what_is_unsound_stays_so() -> None:
    good = compare(*paired([1] * 40 + [0] * 60))
    with pytest.raises(GateError, match="different candidates"):
        merged([replace(good, candidate="a"), replace(good, candidate="b")])
    with pytest.raises(GateError, match="different regimes"):
        merged([good, compare(*paired([1] * 40), regime="exchangeable")])
    with pytest.raises(GateError, match="before there were regimes"):
        merged([good, replace(good, regimes={})])
    old, new = paired([1] * 4 + [0] * 96, start=100)
    unsandboxed = compare(old, [replace(one, tainted="without the sandbox") for one in new])
    assert not unsandboxed.sound
    assert not merged([good, unsandboxed]).promote
    # Groups of one half may be those of the other: twice as many tasks of four mailboxes are four mailboxes.
    grouped = compare(
        *paired([value for wins in (8, 10, 12, 9) for value in [1] * wins + [0] * (25 - wins)], 4)
    )
    width = grouped.interval[1] - grouped.interval[0]
    again = merged([grouped, grouped])
    assert again.interval[1] - again.interval[0] == pytest.approx(width)
    assert again.regimes["new-group"].units == 4


def test_more_groups_prove_more_and_one_proves_nothing() -> None:
    gains = [provable(1700, groups=groups) for groups in (3, 6, 12, 48)]
    exchangeable = provable(1700)
    assert exchangeable is not None
    known = [gain for gain in gains if gain is not None]
    assert known == sorted(known, reverse=True)
    assert known[-2] > exchangeable
    assert provable(1700, groups=1) is None
    assert power(0.05, 400) < power(0.05, 1600) < power(0.1, 1600)
    words = power_in_words(1700, 12)
    assert "12 groups prove" in words
    assert "24 such groups" in words
    assert "Regime new-group decides" in words
    assert "both regimes" in power_in_words(40, 40)


@pytest.mark.parametrize(("gain", "groups", "spread"), [(0.08, None, 0.0), (0.15, 8, 0.12)])
def test_the_power_that_is_told_is_the_one_that_comes(gain: float, groups: int | None, spread: float) -> None:
    rng, pairs, found, runs = random.Random(1), 240, 0, 200
    for _run in range(runs):
        differences = []
        for _ in range(groups or 1):
            here = rng.gauss(gain, spread) if groups else gain
            here = max(-0.25, min(0.25, here))
            odds = ((0.25 + here) / 2, (0.25 - here) / 2, 0.75)
            differences += rng.choices((1, -1, 0), odds, k=pairs // (groups or 1))
        found += compare(*paired(differences, groups or 0)).promote
    told = power(gain, pairs, groups=groups, differing=0.25, spread=spread)
    assert abs(found / runs - told) < 0.12, (found / runs, told)


def test_the_command_declares_the_regime_and_prints_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, side in zip("ab", paired(UNEVEN, 2), strict=True):
        lines = (
            msgspec.json.encode({"task": one.task, "group": one.group, "success": one.scores["success"]})
            for one in side
        )
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    words = ["verdict", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    for options, first in (([], "DROP"), (["--regime", "exchangeable"], "KEEP")):
        app([*words, *options], result_action="return_value")
        printed = capsys.readouterr().out
        assert printed.startswith(first)
        assert "exchangeable" in printed
        assert "new-group" in printed


def test_a_recorded_verdict_counts_where_other_tasks_are_judged_and_never_twice(tmp_path: Path) -> None:
    rng = random.Random(7)
    rows = [
        {"task": f"t{number}", "success": [rng.random() < 0.5, rng.random() < 0.6]} for number in range(400)
    ]

    def judged(name: str, tasks: range, *more: str) -> tuple[int, str]:
        for side, file in enumerate(("a", "b")):
            own = [{**rows[number], "success": rows[number]["success"][side]} for number in tasks]
            (tmp_path / f"{file}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(own))
        done = whet("verdict", "a.jsonl", "b.jsonl", "--json", *more, folder=tmp_path)
        (tmp_path / name).write_text(done.stdout)
        return done.returncode, done.stdout + done.stderr

    first, _ = judged("first.json", range(150))
    second, told = judged("second.json", range(150, 300), "--earlier", "first.json")
    assert (first, second) == (0, 0), told
    assert "Merged of 2 Verdicts" in told
    # The same tasks again, whole or in part, behind the first or behind what was merged, prove nothing more.
    for name, tasks in (("first.json", range(150)), ("second.json", range(100, 260))):
        code, told = judged("again.json", tasks, "--earlier", name)
        assert code == 2, told
        assert "no task counts twice: give the new tasks alone" in told
    code, told = judged("third.json", range(300, 400), "--earlier", "second.json", "--earlier", "first.json")
    assert (code, "150 of 300 tasks of" in told or "150 of 150 tasks of" in told) == (2, True), told
    # One from before verdicts said which tasks they judged is believed, and that is said.
    old = msgspec.json.decode((tmp_path / "first.json").read_bytes())
    del old["tasks"]
    (tmp_path / "old.json").write_bytes(msgspec.json.encode(old))
    code, told = judged("again.json", range(150), "--earlier", "old.json")
    assert (code, "old.json does not say which tasks it judged" in told) == (0, True), told
