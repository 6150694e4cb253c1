"""Verdicts that other products' judges gave, out of their exports: which judge to trust, and which has drifted."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import whet

SKILL = {"sound": 0.92, "coin": 0.5, "easy": 1.0}
"""Judge → share of right verdicts; the easy one calls everything good."""
ITEMS = 120


def verdicts(seed: int, skill: Mapping[str, float] = SKILL) -> list[tuple[str, str, bool]]:
    """Judge, item and verdict; every second item is good, and so labelled."""
    said = []
    for judge, share in skill.items():
        drawn = random.Random(f"{seed}/{judge}")
        for number in range(ITEMS):
            good = number % 2 == 0
            right = good if judge == "easy" else drawn.random() < share
            said.append((judge, f"t{number:03}", good if right else not good))
    return said


def langfuse(judge: str, item: str, good: bool) -> dict[str, Any]:
    """A score as the API of Langfuse 4 gives it."""
    return {
        "id": f"s-{judge}-{item}",
        "name": judge,
        "source": "EVAL",
        "dataType": "BOOLEAN",
        "value": good,
        "subject": {"kind": "trace", "id": item},
    }


def older_langfuse(judge: str, item: str, good: bool) -> dict[str, Any]:
    """One of Langfuse 3."""
    line = {"id": f"s-{judge}-{item}", "name": judge, "source": "EVAL", "dataType": "BOOLEAN"}
    return {**line, "value": int(good), "stringValue": str(good), "traceId": item, "observationId": None}


def phoenix(judge: str, item: str, good: bool) -> dict[str, Any]:
    """An annotation of Phoenix's API."""
    result = {"label": "correct" if good else "incorrect", "score": None, "explanation": "so"}
    return {"id": f"a-{item}", "name": judge, "annotator_kind": "LLM", "span_id": item, "result": result}


def phoenix_table(judge: str, item: str, good: bool) -> dict[str, Any]:
    """A row of `get_span_annotations_dataframe`."""
    line = {"span_id": item, "annotation_name": judge, "annotator_kind": "LLM"}
    return {**line, "result.label": "", "result.score": float(good)}


def mlflow(judge: str, item: str, good: bool) -> dict[str, Any]:
    """A trace of MLflow with one assessment."""
    assessment = {
        "assessment_name": judge,
        "source": {"source_type": "LLM_JUDGE", "source_id": "gpt-4o"},
        "feedback": {"value": "yes" if good else "no"},
        "valid": True,
    }
    return {"info": {"trace_id": item, "assessments": [assessment]}, "data": {"spans": []}}


def openai(judge: str, item: str, good: bool) -> dict[str, Any]:
    """An output item of a run of OpenAI Evals, whose results have names of their own in each run."""
    result = {"name": f"{judge}-5f1c{len(item)}ab0-77aa-4000", "passed": good, "score": float(good)}
    line = {"object": "eval.run.output_item", "datasource_item_id": item, "datasource_item": {}}
    return {**line, "results": [result]}


def own(judge: str, item: str, good: bool) -> dict[str, Any]:
    """A row of whet's own."""
    return {"judge": judge, "id": item, "mark": float(good)}


FORMS = {
    "scores.jsonl": langfuse,
    "scores_page.json": langfuse,
    "scores_3.jsonl": older_langfuse,
    "annotations.jsonl": phoenix,
    "annotations.csv": phoenix_table,
    "traces.jsonl": mlflow,
    "traces.json": mlflow,
    "verdicts.csv": own,
}


def written(path: Path, form: Callable[[str, str, bool], dict[str, Any]], said: list[Any], *more: Any) -> str:
    """The verdicts as a file of that form, by its suffix."""
    rows = [*(form(*one) for one in said), *more]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps({"data": rows, "meta": {"page": 1}}))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def labelled(folder: Path, **more: str) -> tuple[str, str]:
    rows = [
        {"id": f"t{number:03}", "label": "good" if number % 2 == 0 else "bad", **more}
        for number in range(ITEMS)
    ]
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "--labels", "labels.jsonl"


@pytest.mark.parametrize("name", FORMS)
def test_of_an_export_the_sound_judge_is_trusted_and_no_other(name: str, tmp_path: Path) -> None:
    more = {"output": "an answer"} if FORMS[name] is own else {}
    file = written(tmp_path / name, FORMS[name], verdicts(1))
    told = whet("audit", file, *labelled(tmp_path, **more), "--output", "cards", folder=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search(r"^sound +0\.[89]\d\d .* admitted$", told.stdout, re.MULTILINE), told.stdout
    assert re.search(r"^coin .* refused: it is not right more often", told.stdout, re.MULTILINE)
    assert re.search(r"^easy +0\.500 .* refused", told.stdout, re.MULTILINE)
    assert (tmp_path / "cards" / "sound.badge.svg").exists()


def test_what_people_said_is_no_judges_and_what_cannot_be_read_is_told_by_line(tmp_path: Path) -> None:
    said = [one for one in verdicts(1) if one[0] == "sound"]
    person = {**langfuse("rating", "t001", True), "source": "ANNOTATION"}
    text = {**langfuse("tone", "t002", True), "value": "a bit curt"}
    failed = {**langfuse("sound", "t900", True), "value": None}
    file = written(tmp_path / "scores.jsonl", langfuse, said, person, text, failed)
    told = whet("audit", file, *labelled(tmp_path), folder=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "1 verdicts are people's" in told.stdout
    assert re.search(r"1 of 123 rows are no verdicts: .*line 122: tone says 'a bit curt'", told.stdout)
    assert "1 of 121 verdicts are on items without a label" in told.stdout
    assert "on 120 labelled items, 0 without a verdict" in told.stdout
    nothing = whet("audit", written(tmp_path / "x.jsonl", langfuse, [], text), folder=tmp_path)
    assert nothing.returncode == 2
    assert "holds no verdict of a judge" in nothing.stderr


@pytest.mark.parametrize("forms", [("before.jsonl", "now.csv"), ("before.json", "now.json")])
def test_verdicts_at_two_dates_show_who_has_drifted_without_asking_anybody(
    forms: tuple[str, str], tmp_path: Path
) -> None:
    before = verdicts(1)
    now = [
        (judge, item, good != (judge == "easy" and int(item[1:]) % 4 == 0)) for judge, item, good in before
    ]
    of = {"before.jsonl": langfuse, "now.csv": phoenix_table, "before.json": openai, "now.json": openai}
    earlier = written(tmp_path / forms[0], of[forms[0]], before)
    audit = ["audit", written(tmp_path / forms[1], of[forms[1]], now), "--earlier", earlier]
    told = whet(*audit, folder=tmp_path)
    assert told.returncode == 1, told.stdout + told.stderr
    assert re.search(r"easy +25\.0% .* of 120 verdicts changed, mean 1\.00 -> 0\.75 +DRIFTED", told.stdout)
    assert re.search(r"sound +0\.0% .* as before", told.stdout)
    assert re.search(r"coin +0\.0% .* as before", told.stdout)
    same = whet("audit", earlier, "--earlier", earlier, folder=tmp_path)
    assert same.returncode == 0
    assert "DRIFTED" not in same.stdout
    # With labels it is a line of the card, and refuses a judge that was admitted.
    worse = [
        (judge, item, good != (judge == "sound" and int(item[1:]) % 5 == 0)) for judge, item, good in before
    ]
    audit[1] = written(tmp_path / "worse.jsonl", langfuse, worse)
    audit[3] = written(tmp_path / "first.jsonl", langfuse, before)
    cards = json.loads(whet(*audit, *labelled(tmp_path), "--json", folder=tmp_path).stdout)["cards"]
    drift = {card["judge"]: card["biases"]["drift"]["value"] for card in cards}
    assert drift == {"sound": pytest.approx(0.2), "coin": 0.0, "easy": 0.0}
    (refused,) = (card for card in cards if card["judge"] == "sound")
    assert any(reason.startswith("drift moves it: 20%") for reason in refused["reasons"])


def test_few_labels_give_cards_and_no_panel_and_labels_of_other_items_say_so(tmp_path: Path) -> None:
    file = written(tmp_path / "scores.jsonl", langfuse, verdicts(1))
    labels = labelled(tmp_path)
    lines = (tmp_path / "labels.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "labels.jsonl").write_text("".join(lines[:36]))
    told = whet("audit", file, *labels, folder=tmp_path)
    assert re.search(r"^sound .* admitted$", told.stdout, re.MULTILINE), told.stdout + told.stderr
    assert "no panel: it takes 40 labelled items, and there are 36" in told.stdout
    (tmp_path / "labels.jsonl").write_text('{"id": "q1", "label": "good"}')
    strange = whet("audit", file, *labels, folder=tmp_path)
    assert strange.returncode == 2
    assert "they are on t000 and the like, labels on q1" in strange.stderr


def test_files_without_a_common_item_are_said_and_not_compared(tmp_path: Path) -> None:
    said = verdicts(1, {"sound": 0.9})
    moved = [(judge, f"u{item}", good) for judge, item, good in said]
    earlier = written(tmp_path / "before.jsonl", langfuse, said)
    told = whet(
        "audit", written(tmp_path / "now.jsonl", langfuse, moved), "--earlier", earlier, folder=tmp_path
    )
    assert told.returncode == 2
    assert "sound: no item has a verdict at both times (120 before, 120 now)" in told.stdout
    assert "have no item in common" in told.stderr
