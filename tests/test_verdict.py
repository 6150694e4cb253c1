"""Two files of outcomes from anywhere → a verdict; every bad line is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.cli import app
from whet.errors import GateError, InputError
from whet.prove.formats.outcomes import ReadAs, read_sides
from whet.prove.results import TaskResult
from whet.prove.verdict import render, to_json, verdict
from whet.types import Verdict


def load_outcomes(path: Path) -> list[TaskResult]:
    (outcomes,) = read_sides([path], ReadAs())
    return list(outcomes.results)


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(wins: int, n: int = 100, **more: object) -> list[dict[str, object]]:
    return [{"task": f"t{i}", "group": f"g{i % 10}", "success": i < wins, **more} for i in range(n)]


def test_a_better_run_is_promoted_and_a_worse_one_is_not(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.jsonl", rows(50, cost=2.0)), write(tmp_path / "b.jsonl", rows(80, cost=1.5))
    better, worse = verdict(a, b), verdict(b, a)
    assert (better.promote, worse.promote) == (True, False)
    assert better.effect == pytest.approx(0.3)
    assert better.against == str(a)
    assert any(reason.startswith("Cost -0.5") for reason in better.reasons)
    assert verdict(a, a, margin=0.1).promote
    assert not verdict(a, a).promote


def test_a_suite_that_drops_takes_a_promotion_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def many(name: str, wins: int) -> Path:
        found = [{"task": f"t{i}", "group": f"g{i}", "success": i % 1000 < wins} for i in range(4000)]
        return write(tmp_path / f"{name}.jsonl", found)

    a, b = write(tmp_path / "a.jsonl", rows(50)), write(tmp_path / "b.jsonl", rows(80))
    before, same, dropped = many("before", 800), many("same", 800), many("dropped", 600)
    held = verdict(a, b, suite=(before, same), suite_margin=0.05)
    assert held.promote
    assert held.guardrails["guard suite"] is True
    words = ["verdict", str(a), str(b), "--suite", str(before), str(dropped), "--json"]
    app(words, result_action="return_value")
    found = json.loads(capsys.readouterr().out)
    assert found["promote"] is False
    assert found["guardrails"] == {"guard suite": False}
    assert "guard suite: success changed by -0.2" in found["reasons"][-1]


def test_a_column_that_must_not_get_worse_is_a_guardrail_and_one_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = [dict(row, seconds=1.0 + i % 3, answered=True) for i, row in enumerate(rows(50))]
    quick = [dict(row, seconds=1.0 + i % 3, answered=True) for i, row in enumerate(rows(85))]
    slow = [dict(row, seconds=3.0 + i % 3, answered=i % 4 > 0) for i, row in enumerate(rows(85))]
    a, b, c = (write(tmp_path / f"{name}.jsonl", of) for name, of in (("a", old), ("b", quick), ("c", slow)))

    def asked(candidate: Path, *words: str) -> dict[str, object]:
        app(["verdict", str(a), str(candidate), *words, "--json"], result_action="return_value")
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    kept = asked(b, "--not-higher", "seconds:20%", "--not-lower", "answered:0.1")
    assert (kept["answer"], kept["guardrails"]) == ("keep", {"seconds": True, "answered": True})
    dropped = asked(c, "--not-higher", "seconds:20%", "--not-lower", "answered:0.1")
    assert (dropped["answer"], dropped["guardrails"]) == ("drop", {"seconds": False, "answered": False})
    assert asked(c)["answer"] == "keep"
    best = asked(b, "--also", str(c), "--not-higher", "seconds:0.5")
    assert best["guardrails"] in ({"seconds": True}, {"seconds": False})
    for spec, said in (
        ("tokens:5", "says nothing of 'tokens'"),
        ("seconds", "NAME:MARGIN"),
        ("seconds:0", "above 0"),
    ):
        with pytest.raises(InputError, match=said):
            app(["verdict", str(a), str(b), "--not-higher", spec], result_action="return_value")


def test_ids_may_stand_under_three_names_and_results_under_two(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", [{"task_id": 1, "score": 0.25}, {"id": "2", "success": True}])
    b = write(tmp_path / "b.jsonl", [{"task": "2", "success": False}, {"task": "1", "outcome": "success"}])
    found = verdict(a, b)
    assert found.n == 2
    assert found.effect == pytest.approx((0.75 - 1) / 2)


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.jsonl", rows(50))
    marked = tmp_path / "b.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    assert load_outcomes(marked) == load_outcomes(plain)


def test_an_infrastructure_error_is_left_out_and_a_null_counts_against_the_candidate(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", rows(0, 40))
    changed = rows(40, 40)
    changed[3] = {"task": "t3", "group": "g3", "outcome": "infrastructure_error"}
    changed[4]["success"] = None
    found = verdict(a, write(tmp_path / "b.jsonl", changed))
    assert (found.n, found.effect) == (39, pytest.approx(38 / 39, abs=1e-3))
    assert found.promote
    assert sum("left out" in reason for reason in found.reasons) == 1
    assert any("1 of the candidate's answers" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("3", "line 2: an outcome is a JSON object"),
        ('{"success": 1}', "line 2: no task id"),
        ('{"task": true, "success": 1}', "line 2: task True"),
        ('{"task": "b"}', "line 2: neither"),
        ('{"task": "b", "success": 1.5}', "line 2: success 1.5"),
        ('{"task": "b", "success": "perhaps"}', "line 2: success 'perhaps'"),
        ('{"task": "b", "success": 1, "score": 1}', "line 2: both"),
        ('{"task": "b", "success": 1, "cost": -1}', "line 2: cost"),
        ('{"task": "b", "success": 1, "outcome": "great"}', "line 2: outcome 'great' is none of success"),
        ('{"task": "b", "success": 1, "group": [1]}', "line 2: group"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": "a", "success": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_outcomes(path)


def test_files_that_are_missing_empty_or_do_not_pair_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", rows(5, 10))
    with pytest.raises(InputError, match="cannot read"):
        load_outcomes(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="holds no outcomes"):
        load_outcomes(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(GateError, match="3 tasks only on the baseline's side"):
        verdict(a, write(tmp_path / "b.jsonl", rows(5, 7)))


def test_the_verdict_reads_as_text_and_as_json(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.jsonl", rows(50)), write(tmp_path / "b.jsonl", rows(55))
    found = verdict(a, b)
    text = render(found)
    assert text.startswith("DO NOT PROMOTE: not shown to be better than")
    assert f"about {found.needed} needed" in text
    assert "+0.050" in text
    fields = json.loads(to_json(found))
    assert set(fields) == set(Verdict.__dataclass_fields__)
    assert fields["interval"] == list(found.interval)
    assert render(verdict(a, a, margin=0.1)).startswith("PROMOTE: shown to be not worse by more than 0.1")


def test_one_pair_and_a_bar_of_nothing_are_written_as_people_do(tmp_path: Path) -> None:
    gone = {"task": "2", "outcome": "infrastructure_error"}
    a = write(tmp_path / "a.jsonl", [{"task": "1", "success": False}, gone])
    b = write(tmp_path / "b.jsonl", [{"task": "1", "success": True}, {"task": "2", "success": True}])
    said = render(verdict(a, b))
    assert "over 1 pair;" in said
    assert "1 pair left out: an infrastructure error" in said
    assert "not above +0.000" in said


def test_a_cost_that_no_number_holds_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"task": 1, "success": true}\n{"task": 2, "success": true, "cost": 1' + "0" * 400 + "}\n"
    )
    with pytest.raises(InputError, match=r"line 2: cost is a number of 400 digits or more"):
        load_outcomes(path)
