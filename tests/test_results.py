"""Results as other programs write them → a verdict; what is broken, missing or out of range is said, never guessed."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from results_read import FILES, METRICS, RESULTS, side

from whet.errors import GateError, InputError
from whet.prove.answers import answer
from whet.prove.formats import inspect_log
from whet.prove.formats.outcomes import ReadAs, read_sides
from whet.prove.guardrails import Guardrail
from whet.prove.verdict import verdict


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rated(path: Path, rating: int, count: int = 60) -> Path:
    rows = "".join(f"q{number},{rating + (number % 3 == 0)}\n" for number in range(count))
    path.write_text("id,quality\n" + rows, encoding="utf-8")
    return path


@pytest.mark.parametrize("file", FILES)
def test_every_format_gives_the_same_verdict_on_the_same_runs(file: str) -> None:
    a, b, metric = side(file, "baseline"), side(file, "candidate"), METRICS.get(file, "")
    better, worse, null = (verdict(*pair, metric=metric) for pair in ((a, b), (b, a), (a, a)))
    assert better.promote, better.reasons
    assert better.effect == pytest.approx(0.5, abs=0.14)  # DSPy words the prompt its own way
    assert (worse.promote, null.promote, null.effect) == (False, False, 0.0)
    assert [answer(each, candidate="B").word for each in (better, worse, null)] == ["keep", "drop", "drop"]
    assert better.n >= 28


def test_products_that_ran_the_same_prompts_agree_task_by_task() -> None:
    named = ("inspect/{}.eval", "langfuse/{}_items.json", "opik/{}.json", "strands/{}.json")
    values = []
    for file in named:
        (read,) = read_sides([side(file, "candidate")], ReadAs())
        values.append({result.task: (result.group, result.scores[read.metric]) for result in read.results})
    assert len(values[0]) == 30
    assert all(value == values[0] for value in values[1:])


def test_of_several_metrics_one_has_to_be_named() -> None:
    a, b = (side("mlflow/{}_traces.jsonl", name) for name in ("baseline", "candidate"))
    with pytest.raises(InputError, match=r"2 metrics: exact \(30 rows\), length .*--metric exact"):
        verdict(a, b)
    with pytest.raises(InputError, match=r"no metric 'worth': it has exact"):
        verdict(a, b, metric="worth")
    assert "exact" in verdict(a, b, metric="exact").reasons[0]


def test_scores_outside_0_to_1_are_refused_with_the_way_to_scale_them(tmp_path: Path) -> None:
    a, b = rated(tmp_path / "a.csv", 1), rated(tmp_path / "b.csv", 4)
    with pytest.raises(InputError, match=r"line 2: quality 2 lies outside.*--range 1 2"):
        verdict(a, b)
    with pytest.raises(InputError, match="--range 1 4 does not hold it"):
        verdict(a, b, range=(1, 4))
    assert verdict(a, b, range=(1, 5)).effect == pytest.approx(0.75)
    assert verdict(b, a, range=(5, 1)).effect == pytest.approx(0.75)  # as of an error rate: less is better
    with pytest.raises(InputError, match="two different numbers"):
        verdict(a, b, range=(1, 1))


def test_broken_rows_are_told_by_line_and_count_and_count_against_the_candidate(tmp_path: Path) -> None:
    rows = [{"task": f"t{number}", "success": False} for number in range(812)]
    a = lines(tmp_path / "a.jsonl", rows)
    b = lines(tmp_path / "b.jsonl", [{**row, "success": True} for row in rows])
    broken = b.read_text().splitlines()
    for number in range(3, 20):
        broken[number] = broken[number][:-3]
    b.write_text("\n".join(broken))
    result = verdict(a, b)
    (told,) = (reason for reason in result.reasons if "could not be read" in reason and "rows" in reason)
    assert "17 of 812 rows could not be read: line 4: not JSON" in told
    assert "and 14 more" in told
    assert result.n == 812
    assert result.effect == pytest.approx((812 - 17) / 812)  # what is missing of the candidate counts 0
    assert any("17 of the candidate's answers" in reason for reason in result.reasons)


def test_a_file_most_of_which_is_broken_is_refused(tmp_path: Path) -> None:
    good = '{"task": "a", "success": 1}\n'
    path = tmp_path / "a.jsonl"
    path.write_text(good + "{]\n{]\n")
    with pytest.raises(
        InputError, match=r"2 of 3 rows could not be read: line 2: .* most of which is broken"
    ):
        verdict(path, path)


def test_tasks_that_only_one_side_ran_are_refused_and_not_left_out(tmp_path: Path) -> None:
    rows = [{"task": f"t{number}", "success": True} for number in range(40)]
    a, b = lines(tmp_path / "a.jsonl", rows), lines(tmp_path / "b.jsonl", rows[:38])
    b.write_text(b.read_text() + "{]\n")
    with pytest.raises(
        GateError, match=r"2 tasks only on the baseline's side.*1 of 39 rows could not be read"
    ):
        verdict(a, b)


def test_repeated_runs_are_averaged_and_their_count_said(tmp_path: Path) -> None:
    a = lines(tmp_path / "a.jsonl", [{"task": "x", "success": value} for value in (1, 0, 0, 1)])
    (read,) = read_sides([a], ReadAs())
    assert [result.scores["success"] for result in read.results] == [0.5]
    assert "1 of 1 tasks were run 4 times" in read.notes[-1]
    unscored = lines(tmp_path / "b.jsonl", [{"task": "x", "success": value} for value in (1, None)])
    (read,) = read_sides([unscored], ReadAs())
    assert read.results[0].scores["success"] is None  # the rest might be the lucky ones
    machine = [{"task": "x", "outcome": "infrastructure_error"}, {"task": "x", "success": 1}]
    (read,) = read_sides([lines(tmp_path / "c.jsonl", machine)], ReadAs())
    assert read.results[0].scores["success"] == 1.0


def test_a_skipped_test_is_no_failure_and_an_error_depends_on_the_runner(tmp_path: Path) -> None:
    (read,) = read_sides([side("junit/{}_pytest.xml", "baseline")], ReadAs())
    assert (len(read.results), read.absent) == (29, 1)
    assert [result.task for result in read.results if result.outcome.value == "infrastructure_error"] == [
        "test_sums::test_sum[sum-29]"
    ]
    of_java = tmp_path / "java.xml"
    of_java.write_text(
        '<testsuite name="Sums"><testcase classname="A" name="b"><error/></testcase></testsuite>'
    )
    (read,) = read_sides([of_java], ReadAs())
    assert read.results[0].scores == {"passed": 0.0}


def test_a_test_that_only_the_candidate_skips_counts_against_it(tmp_path: Path) -> None:
    def report(name: str, skipped: bool) -> Path:
        cases = "".join(
            f'<testcase name="t{number}">{"<skipped/>" if skipped and number < 5 else ""}</testcase>'
            for number in range(20)
        )
        path = tmp_path / name
        path.write_text(f"<testsuite>{cases}</testsuite>")
        return path

    result = verdict(report("a.xml", False), report("b.xml", True))
    assert result.effect == pytest.approx(-0.25)
    assert any("5 pairs without a result in B" in reason for reason in result.reasons)


def test_variants_side_by_side_in_one_file_are_never_averaged(tmp_path: Path) -> None:
    packed = side("promptfoo/{}.json.gz", "baseline").read_bytes()
    content = json.loads(gzip.decompress(packed))
    other = json.loads(gzip.decompress(side("promptfoo/{}.json.gz", "candidate").read_bytes()))
    for result in other["results"]["results"]:
        result["prompt"]["label"] = "checked"
    content["results"]["results"] += other["results"]["results"]
    both = tmp_path / "both.json"
    both.write_text(json.dumps(content))
    with pytest.raises(
        InputError, match=r"2 variants side by side: add / openai:chat:clerk \(60 rows\), checked"
    ):
        verdict(both, both)
    assert verdict(both, both, variants=("add", "checked")).promote
    with pytest.raises(InputError, match="'nothing' names 0 of its variants"):
        verdict(both, both, variants=("add", "nothing"))


def test_answers_under_several_filters_are_metrics_of_their_own(tmp_path: Path) -> None:
    rows = []
    for row in map(json.loads, side("lm_eval/{}.jsonl", "baseline").read_text().splitlines()):
        rows += [row | {"filter": "strict-match"}, row | {"filter": "flexible-extract", "exact_match": 1.0}]
    path = lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match="2 metrics: exact_match,strict-match"):
        verdict(path, path)
    (read,) = read_sides([path], ReadAs(metric="exact_match,flexible-extract"))
    assert [result.scores[read.metric] for result in read.results] == [1.0] * 30


def test_the_columns_of_a_table_are_guessed_said_and_can_be_given(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text(
        "question;verdict;mailbox\n"
        + "".join(f"q{n};{'pass' if n % 2 else 'fail'};m{n // 4}\n" for n in range(20))
    )
    (read,) = read_sides([table], ReadAs(group="mailbox"))
    assert "the task stands in 'question', the score in 'verdict'" in read.notes[-1]
    assert (read.results[5].group, read.results[5].scores) == ("m1", {"verdict": 1.0})
    with pytest.raises(InputError, match="no column 'name'; it has question, verdict, mailbox"):
        read_sides([table], ReadAs(id="name"))
    with pytest.raises(InputError, match="no 'shop' to group by; it has question"):
        read_sides([table], ReadAs(group="shop"))
    nameless = tmp_path / "b.csv"
    nameless.write_text("x,y\n1,1\n")
    with pytest.raises(InputError, match="name it with --id"):
        read_sides([nameless], ReadAs())


def test_a_row_of_a_table_with_too_many_cells_is_told_and_the_rest_read(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("id,score\n" + "".join(f"q{n},1\n" for n in range(9)) + "q9,1,2\n")
    (read,) = read_sides([table], ReadAs())
    assert len(read.results) == 9
    assert any("1 of 10 rows could not be read: line 11: 3 cells" in note for note in read.notes)


def test_a_number_that_is_not_one_is_a_missing_score(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"task": 1, "score": NaN}\n{"task": 2, "score": 1}\n')
    (read,) = read_sides([path], ReadAs())
    assert [result.scores["success"] for result in read.results] == [None, 1.0]


def test_a_guardrail_without_a_number_is_said_beside_the_columns_that_there_are(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"task": f"t{n}", "success": n % 2, "seconds": None} for n in range(40)]
    unknown = lines(tmp_path / "unknown.jsonl", rows)
    known = lines(tmp_path / "known.jsonl", [{**row, "seconds": 1.5} for row in rows])
    rail = [Guardrail("seconds", 0.1, higher_is_better=False, relative=True)]
    with pytest.raises(
        InputError, match=r"unknown\.jsonl has no number in 'seconds' of any of its 40 results"
    ):
        verdict(known, unknown, guardrails=rail)
    with pytest.raises(InputError, match=r"says nothing of 'secs', .* it has success, task, seconds$"):
        verdict(known, known, guardrails=[Guardrail("secs", 0.1, higher_is_better=False)])
    assert verdict(known, known, guardrails=rail, margin=0.3).guardrails == {"seconds": True}


def test_rows_in_memory_are_compared_like_files() -> None:
    a = [{"task": str(number), "success": number % 4 == 0} for number in range(60)]
    b = [{"task": str(number), "success": number % 4 != 3} for number in range(60)]
    assert verdict(a, b).promote
    assert not verdict(a, a).promote
    with pytest.raises(InputError, match="one of each"):
        verdict(a, "b.jsonl")


def test_a_format_can_be_named_and_one_that_is_unknown_is_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [{"id": "x", "score": 1, "grade": 0}])
    (read,) = read_sides([path], ReadAs(format="table", metric="grade"))
    assert read.results[0].scores == {"grade": 0.0}
    with pytest.raises(InputError, match="no format 'excel'; read are inspect"):
        read_sides([path], ReadAs(format="excel"))
    with pytest.raises(InputError, match="has no list under 'results"):
        read_sides([path], ReadAs(format="promptfoo"))


HOSTILE = {
    "entities.xml": b'<!DOCTYPE a [<!ENTITY b "ccc"><!ENTITY d "&b;&b;">]><testsuite name="&d;"/>',
    "outside.xml": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuite name="&x;"/>',
    "deep.xml": b"<testsuite>" * 5000 + b"</testsuite>" * 5000,
    "other.xml": b"<html><body/></html>",
    "cut.xml": b'<testsuite><testcase name="a"',
    "latin.xml": b'<testsuite><testcase name="\xff"/></testsuite>',
    "strange.xml": b'<?xml version="1.0" encoding="nonsense"?><testsuite/>',
    "deep.jsonl": b'{"task": "a", "success": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "deep.json": b"[" * 100_000 + b"]" * 100_000,
    "latin.jsonl": b'{"task": "\xff", "success": 1}\n',
    "huge.jsonl": b'{"task": "a", "success": 1e999}\n',
    "digits.jsonl": b'{"task": ' + b"9" * 5000 + b', "success": ' + b"9" * 5000 + b"}\n",
    "array.json": b"[1, 2, 3]",
    "nothing.json": b"null",
    "blank.csv": b"\n\n",
    "zip.eval": b"PK\x03\x04" + b"\0" * 100,
    "text.csv": b"hello, there\n",
    "packed.gz": gzip.compress(b"{}")[:-6],
    "table.json": b'{"columns": ["inputs", "a/score"], "data": {"a": 1}}',
    "binary.csv": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    with pytest.raises(InputError, match=name):
        verdict(path, path)


def test_a_zip_that_unpacks_without_end_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect_log, "LARGEST_ENTRY", 1 << 20)
    bomb = tmp_path / "bomb.eval"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("summaries.json", b" " * (1 << 22))
    with pytest.raises(InputError, match="unpacks to more than 1 MiB"):
        verdict(bomb, bomb)
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(b" " * (1 << 22))
    assert len(inspect_log._zstandard(packed)) == (1 << 20) + 1


def test_the_fixtures_carry_no_path_of_the_machine_that_made_them() -> None:
    for path in RESULTS.rglob("*.*"):
        body = path.read_bytes()
        text = gzip.decompress(body) if path.suffix == ".gz" else body
        assert b"/home/" not in text, path
        assert b"/work/" not in text, path


ODD = [True, False, True, True]


def odd(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def scored_by(path: Path, metric: str = "") -> dict[str, float | None]:
    """Task → its value by the metric that decides."""
    (read,) = read_sides([path], ReadAs(metric=metric))
    return {result.task: result.scores[read.metric] for result in read.results}


@pytest.mark.parametrize(
    "write", [bool, int, float, str, lambda right: "yes" if right else "No", "{:.0%}".format]
)
def test_a_truth_value_may_be_a_number_or_a_word_wherever_it_stands(write: Any, tmp_path: Path) -> None:
    values = [write(right) for right in ODD]
    case = {"promptIdx": 0, "testIdx": 0, "prompt": {"label": "p"}, "provider": {"id": "m"}}
    rows = {
        "promptfoo": [{**case, "vars": {"n": f"{n}"}, "success": v} for n, v in enumerate(values)],
        "langfuse": [
            {"item": {"id": n}, "output": "", "evaluations": [{"name": "exact", "value": v}]}
            for n, v in enumerate(values)
        ],
        "opik": [
            {"dataset_item_id": f"{n}", "feedback_scores": [{"name": "exact", "value": v}]}
            for n, v in enumerate(values)
        ],
        "mlflow": [
            {"info": {"trace_id": f"{n}", "request_preview": f"{n}"}
             | {"assessments": [{"assessment_name": "exact", "feedback": {"value": v}}]}}
            for n, v in enumerate(values)
        ],
        "lm-eval": [
            {"doc_id": n, "doc": {}, "arguments": [], "metrics": ["exact"], "exact": v}
            for n, v in enumerate(values)
        ],
        "own": [{"task": n, "success": v} for n, v in enumerate(values)],
        "nested": [{"task": n, "score": {"value": v, "reason": "so"}} for n, v in enumerate(values)],
        "table": [{"id": n, "scores": {"exact": v}} for n, v in enumerate(values)],
    }  # fmt: skip
    for name, listed in rows.items():
        told = scored_by(lines(tmp_path / f"{name}.jsonl", listed))
        assert list(told.values()) == [1.0, 0.0, 1.0, 1.0], name


def test_rows_may_be_wrapped_in_an_array_in_one_object_or_stand_one_a_line(tmp_path: Path) -> None:
    rows = [{"task": f"t{number}", "success": right} for number, right in enumerate(ODD)]
    wanted = scored_by(lines(tmp_path / "lines.jsonl", rows))
    one_a_line = "\r\n".join(map(json.dumps, rows))
    for name, text in {
        "array.json": json.dumps(rows),
        "results.json": json.dumps({"results": rows, "when": "today"}),
        "data.json": json.dumps({"data": rows}, indent=1),
        "marked.jsonl": "\ufeff" + one_a_line,
        "packed.jsonl.gz": gzip.compress(one_a_line.encode()),
    }.items():
        assert scored_by(odd(tmp_path / name, text)) == wanted, name
    (whole,) = [json.loads(gzip.decompress((RESULTS / "promptfoo" / "candidate.json.gz").read_bytes()))]
    listed = whole["results"]["results"]
    listed[0]["score"] = float("nan")
    told = scored_by(odd(tmp_path / "promptfoo.json", json.dumps(whole)))
    assert len(told) == 30
    for name, text in {
        "flat.json": json.dumps({"results": listed}),
        "array.json": json.dumps(listed),
        "lines.jsonl": "\n".join(map(json.dumps, listed)),
    }.items():
        assert scored_by(odd(tmp_path / name, text)) == told, name
    of_mlflow = (RESULTS / "mlflow" / "candidate_traces.jsonl").read_text()
    traces = [json.loads(line) for line in of_mlflow.splitlines()]
    told = scored_by(RESULTS / "mlflow" / "candidate_traces.jsonl", "exact")
    assert scored_by(odd(tmp_path / "traces.json", json.dumps({"traces": traces})), "exact") == told
    table = json.loads((RESULTS / "mlflow" / "candidate_results_table.json").read_text())
    objects = [dict(zip(table["columns"], cells, strict=True)) for cells in table["data"]]
    assert scored_by(odd(tmp_path / "table.json", json.dumps(objects))) == scored_by(
        RESULTS / "mlflow" / "candidate_results_table.json"
    )


def test_a_missing_score_in_any_spelling_is_missing_and_no_row_is_lost(tmp_path: Path) -> None:
    for empty in ("", "N/A", "None", "null", "NaN", "-"):
        path = odd(tmp_path / "a.csv", f"id;score\nq1;{empty}\nq2;0,5\nq3;1,0\n")
        assert scored_by(path) == {"q1": None, "q2": 0.5, "q3": 1.0}, empty
    # The first row may be the one without scores.
    rows = [{"item": {"id": n}, "output": "", "trace_id": f"{n}"} for n in range(3)]
    for row in rows[1:]:
        row["evaluations"] = [{"name": "exact", "value": None, "stringValue": "True"}]
    assert scored_by(lines(tmp_path / "b.jsonl", rows)) == {"0": None, "1": 1.0, "2": 1.0}
    items: list[dict[str, Any]] = [
        {"dataset_item_id": f"{n}", "evaluation_task_output": {}, "feedback_scores": None} for n in range(3)
    ]
    del items[0]["feedback_scores"]
    items[2]["feedback_scores"] = [{"name": "exact", "value": 1}]
    assert scored_by(lines(tmp_path / "c.jsonl", items)) == {"0": None, "1": None, "2": 1.0}


def test_files_of_other_versions_are_read_by_what_they_say(tmp_path: Path) -> None:
    older = {"eval": {}, "status": "success", "samples": [
        {"id": n, "score": {"value": "c" if right else "I"}} for n, right in enumerate(ODD)
    ]}  # fmt: skip
    assert list(scored_by(odd(tmp_path / "inspect.json", json.dumps(older))).values()) == [1, 0, 1, 1]
    samples = [{"doc_id": n, "doc": {}, "resps": [], "acc": int(right)} for n, right in enumerate(ODD)]
    assert list(scored_by(lines(tmp_path / "lm.jsonl", samples)).values()) == [1, 0, 1, 1]
    gaps = [
        {"id": float(n), "success": right} for n, right in enumerate(ODD)
    ]  # as pandas writes a column with gaps
    assert scored_by(lines(tmp_path / "own.jsonl", gaps)) == {"0": 1, "1": 0, "2": 1, "3": 1}
    loud = [{"id": n, "outcome": "SUCCESS" if right else "FAILURE"} for n, right in enumerate(ODD)]
    (read,) = read_sides([lines(tmp_path / "loud.jsonl", loud)], ReadAs())
    assert [result.scores["success"] for result in read.results] == [1, 0, 1, 1]
    said = "".join(
        f'<j:testcase name="t{n}" status="{"passed" if right else "failed"}"/>' for n, right in enumerate(ODD)
    )
    said += '<j:testcase name="t9" status="notrun"/>'
    prefixed = odd(tmp_path / "a.xml", f'<j:testsuite xmlns:j="urn:x">{said}</j:testsuite>')
    assert list(scored_by(prefixed).values()) == [1, 0, 1, 1], "what stands in an attribute alone is no pass"
