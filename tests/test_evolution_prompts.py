"""Prompts get better without a model: examples from rated runs, and rules that failures share."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from commands import answered

from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.demonstrations import Demonstrate, failing, pool_of, rated, set_aside
from whet.learn.evolution.search.mining import Mined, WrittenLine, contrasts, rules
from whet.learn.evolution.search.population import Draw, Judged
from whet.models import ScriptedModel
from whet.record.rows import row as asked
from whet.types import Json, Split, Task

DESK = Path(__file__).resolve().parents[1] / "examples" / "evolve" / "sorting_desk"


def _traffic() -> Any:
    spec = importlib.util.spec_from_file_location("sorting_traffic", DESK / "traffic.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


traffic = _traffic()
messages, TOPICS = traffic.messages, traffic.TOPICS


def evolve(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> dict[str, Any]:
    command = ["evolve", "--target", "prompt", "--entry", "desk:sort", "--data", folder / "rows.jsonl"]
    command += ["--repository", folder, "--iterations", 40, "--seed", 3, "--json", *words]
    return dict(answered(capsys, *command))


def arms(output: Path) -> dict[str, dict[str, Any]]:
    history = json.loads((output / "history.json").read_text(encoding="utf-8"))["sort"]
    return {row["name"]: row for row in history["operators"]}


def row(text: Json, team: str, **more: Any) -> Task:
    return asked(input=text, expected=team, **more)


def drawn(text: str, instances: Mapping[str, float]) -> Draw:
    return Draw(Judged(0, Program({"prompt.txt": text}, "prompt.txt"), 0.5, instances=instances), None)


def test_rules_and_examples_repair_a_prompt_offline_and_are_seen_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "desk"
    shutil.copytree(DESK, folder)
    traffic.write_rows(folder / "rows.jsonl", 1, 140)
    store = traffic.record(tmp_path / "runs.db", 2)
    found = evolve(capsys, folder, "--store", store, "--output", tmp_path / "out")
    gate = found["scores"]["sort"]["gate"]
    assert gate["after"] > gate["before"] + 0.2
    assert found["pieces"][0]["taken"] is True
    earned = arms(tmp_path / "out")
    assert earned["rule"]["records"] + earned["demonstrate"]["records"] >= 3
    assert earned["demonstrate"]["tried"] > 0
    patch = Path(found["patch"]).read_text(encoding="utf-8")
    assert '+- When the input mentions "' in patch or "+Input: " in patch
    assert "-PROMPT" not in patch


def test_demonstrations_come_from_well_rated_runs_outside_of_the_gate() -> None:
    gate = row("where is my parcel from last week please", "delivery", group="ann", split=Split.GATE)
    runs = [
        asked(input="refund my invoice", output="billing", label=1.0, group="bo"),
        asked(input="login is broken", output="general", label=-1.0, group="bo"),
        asked(input="a courier came", output="general", expected="delivery", label=-1.0, group="cy"),
        asked(input="tracking says nothing", output="delivery", label=1.0, group="ann"),
        asked(input="where is my parcel from last week, please?", output="delivery", label=1.0, group="di"),
        asked(input="nobody spoke of this", output="general", group="ed"),
        asked(input=gate.initial_state["input"], output="delivery", label=1.0, group="fay"),
    ]
    shown = sorted(each.text for each in pool_of(runs, [gate]))
    assert shown == [
        "Example:\nInput: a courier came\nAnswer: delivery\n",
        "Example:\nInput: refund my invoice\nAnswer: billing\n",
    ]


def test_a_row_that_is_shown_is_not_searched_on() -> None:
    rows = [row(text, team, provenance={"how": "file"}) for text, team in messages(40, 5)]
    searched, shown = set_aside(rows)
    assert len(shown) == 8
    assert {each.id for each in shown}.isdisjoint(each.id for each in searched)
    assert len(searched) + len(shown) == 40
    guessed = [row(text, team, provenance={"how": "model"}) for text, team in messages(40, 5)]
    assert set_aside(guessed) == (guessed, [])


def test_a_demonstration_is_chosen_for_what_goes_wrong() -> None:
    wrong = row("the refund of my invoice", "billing")
    fine = row("parcel and courier", "delivery")
    pool = rated(
        asked(input=text, output=team, label=1.0)
        for text, team in [("refund for an invoice", "billing"), ("courier lost it", "delivery")]
    )
    move = Demonstrate(pool, {each.id: each for each in (wrong, fine)})
    draw = drawn("You sort.\n", {wrong.id: 0.0, fine.id: 1.0})
    texts = [child.text for seed in range(60) if (child := move(draw, random.Random(seed)))]
    aimed = sum("refund for an invoice" in text for text in texts)
    assert len(texts) == 60
    assert aimed > 30  # six in ten, then the next
    assert texts[0].startswith("You sort.\n\nExample:\nInput: ")


def test_few_demonstrations_stand_in_one_prompt() -> None:
    pool = rated(asked(input=f"case {n}", output="general", label=1.0) for n in range(20))
    text = "You sort.\n"
    for seed in range(40):
        child = Demonstrate(pool, {}, most=3)(drawn(text, {}), random.Random(seed))
        assert child is not None
        text = child.text
    assert text.count("Example:") == 3


def test_rules_say_what_failing_rows_share() -> None:
    rows = [row(text, team) for text, team in messages(120, 4)]
    wrong = {each.id for each in rows if "refund" in each.instruction.split()}
    assert rules(rows, wrong)[0] == 'When the input mentions "refund", the answer is "billing".'
    assert contrasts(rows, wrong)[0].failing == len(wrong)


def test_rules_name_fields_limits_and_forms() -> None:
    rng = random.Random(0)
    rows = []
    for number in range(80):
        waited = rng.randint(0, 48)
        given = {"waited": waited, "channel": "mail" if number % 3 else "phone"}
        rows.append(asked(input=given, expected={"urgent": waited > 24, "by": f"clerk {number}"}))
    late = {each.id for each in rows if each.initial_state["input"]["waited"] > 24}
    found = rules(rows, late)
    assert any(line.startswith('When "waited" is above 2') and '"urgent" is true' in line for line in found)
    dates = [asked(input=f"when {n}", expected=f"2026-01-{n:02d}") for n in range(1, 20)]
    assert rules(dates, {each.id for each in dates}) == ["Answer with a date as YYYY-MM-DD."]


def test_shuffled_failures_share_nothing() -> None:
    rows = [row(text, team) for text, team in messages(120, 4)]
    wrong = [each.id for each in rows if each.answer == "billing"]
    assert all(any(word in line for word in TOPICS["billing"]) for line in rules(rows, wrong)[:3])
    rng = random.Random(7)
    mined = [rules(rows, rng.sample([each.id for each in rows], len(wrong))) for _ in range(20)]
    assert sum(bool(each) for each in mined) <= 4


def test_a_rule_follows_the_list_in_its_style_and_before_the_examples() -> None:
    rows = {each.id: each for each in (row(text, team) for text, team in messages(120, 4))}
    instances = {id: float(each.answer != "billing") for id, each in rows.items()}
    start = "You sort.\n\n1. Be short.\n2. Be kind.\n\nExample:\nInput: x\nAnswer: y\n"
    child = Mined(rows)(drawn(start, instances), random.Random(1))
    assert child is not None
    before, rule, after = child.text.partition('3. When the input mentions "')
    assert before == "You sort.\n\n1. Be short.\n2. Be kind.\n"
    assert rule
    assert after.endswith('the answer is "billing".\n\nExample:\nInput: x\nAnswer: y\n')
    assert Mined(rows)(drawn(start, dict.fromkeys(rows, 1.0)), random.Random(1)) is None


def test_a_model_is_shown_what_failures_share_and_writes_the_line() -> None:
    rows = {each.id: each for each in (row(text, team) for text, team in messages(120, 4))}
    instances = {id: float(each.answer != "billing") for id, each in rows.items()}
    requests: list[str] = []

    def answer(request: Any) -> str:
        requests.append(request.text)
        return "Here it is:\n- Money matters go to billing."

    draw = drawn("You sort.\n", instances)
    child = asyncio.run(WrittenLine(ScriptedModel(answer), rows).propose(draw, 1))
    assert child.text == "You sort.\n\nMoney matters go to billing.\n"
    assert 'When the input mentions "refund": ' in requests[0]
    assert 'wanted "billing"' in requests[0]
    blind = WrittenLine(ScriptedModel(answer), rows, feedback=False)
    asyncio.run(blind.propose(draw, 1))
    assert "refund" not in requests[1]


def test_what_fails_is_told_by_the_scores() -> None:
    assert failing({"a": 1.0, "b": 0.4, "c": 0.2}) == ["b", "c"]
    assert failing({"a": 0.4, "b": 0.4}) == ["a", "b"]
    assert failing({"a": 1.0}) == []
