"""The few metrics: what each makes of right, wrong and oddly shaped answers, which one is chosen, and what is shown."""

from __future__ import annotations

import asyncio

import pytest

import whet
from whet.errors import InputError
from whet.judge.metrics import METRICS, RUBRIC, Metric, label_of, metric_named, shown, suited
from whet.models import ScriptedModel
from whet.record.rows import row
from whet.types import Json

DEPARTMENTS = ("billing", "shipping", "not urgent", "urgent")


def rows(*answers: Json) -> list[whet.Task]:
    return [row(f"question {number}", expected=answer) for number, answer in enumerate(answers)]


def value(name: str, expected: Json, answer: Json) -> float:
    metric = metric_named(name, rows(*DEPARTMENTS, expected))
    assert isinstance(metric, Metric)
    score = metric(whet.Trajectory(task=rows(expected)[0], output=answer))
    assert score is not None
    assert score.value is not None
    assert score.value == 1.0 or score.reason
    return score.value


@pytest.mark.parametrize(
    ("name", "expected", "answer", "right"),
    [
        ("exact", "Lima", "Lima", 1),
        ("exact", "Lima", "lima", 0),
        ("exact", "7", " 7\n", 1),
        ("exact", 7, "7", 1),
        ("exact", None, "", 0),
        ("exact", None, None, 1),
        ("normalised", "Lima", " LIMA.", 1),
        ("normalised", "Lima", "It is Lima.", 0),
        ("numeric", "1'234.50", "x", 0),
        ("numeric", 1234.5, "The total of 3 items is 1,234.50 CHF", 1),
        ("numeric", "12", "12.0", 1),
        ("numeric", "12", "13", 0),
        ("numeric", None, "there is none", 1),
        ("numeric", None, "13", 0),
        ("contains", "Lima", "I think it is lima, in Peru", 1),
        ("contains", "Lima", "Quito", 0),
        ("contains", "", "anything", 0),
        ("json", '{"a": 1, "b": [2]}', '{"b": [2], "a": 1.0}', 1),
        ("json", {"a": 1}, 'Here it is:\n```json\n{"a": 1}\n```', 1),
        ("json", {"a": 1}, 'Sure: {"a": 1}', 1),
        ("json", {"a": True}, '{"a": 1}', 0),
        ("json", {"a": 1}, "no JSON", 0),
        ("label", "billing", "The department is Billing.", 1),
        ("label", "billing", "billing or shipping", 0),
        ("label", "not urgent", "It is not urgent", 1),
        ("label", "urgent", "It is not urgent", 0),
    ],
)
def test_a_metric_judges_by_its_rule(name: str, expected: Json, answer: Json, right: float) -> None:
    assert value(name, expected, answer) == right


def test_f1_is_the_share_of_words_in_common() -> None:
    assert value("f1", "a late parcel", "parcel, late: a") == 1.0
    assert value("f1", "a late parcel", "a parcel") == pytest.approx(0.8)
    assert value("f1", "a late parcel", "") == 0.0


def test_an_answer_nobody_knows_is_not_judged() -> None:
    metric = metric_named("exact", rows("x"))
    assert isinstance(metric, Metric)
    assert metric(whet.Trajectory(task=row("question", output="y"), output="x")) is None


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        (["1", "2.5", "1,000"], "numeric"),
        ([3, 4.5], "numeric"),
        ([{"a": 1}, {"a": 2}], "json"),
        (['{"a": 1}', "[2]"], "json"),
        (["yes", "no"] * 4, "label"),
        (["yes", "no", "Lima", "Quito"], "normalised"),
        (["it has been sent to you today", "we shall call you back"], "f1"),
        (["because " + "many words " * 9, "so " + "other words " * 9], "judge"),
    ],
)
def test_the_metric_is_chosen_by_the_look_of_the_answers(answers: list[Json], name: str) -> None:
    chosen, why = suited(rows(*answers))
    assert (chosen, bool(why)) == (name, True)


def test_three_examples_show_what_a_metric_accepts() -> None:
    tasks = rows(*["yes", "no"] * 4)
    lines = shown(metric_named("label", tasks), tasks).lines
    assert lines[0] == "expected 'yes': 'yes' → 1; 'The answer is yes.' → 1; 'no' → 0"
    assert len(lines) == 3
    assert "'The answer is yes.' → 0" in shown(metric_named("exact", tasks), tasks).lines[0]


def test_a_metric_that_cannot_tell_and_an_unknown_one_say_what_to_do() -> None:
    texts = rows("alpha", "beta", "gamma")
    with pytest.raises(InputError, match=r"cannot tell right answers .* choose another with --metric"):
        shown(metric_named("numeric", texts), texts)
    with pytest.raises(InputError, match="all rows have the same expected answer"):
        shown(metric_named("exact", texts), rows("a", "a"))
    with pytest.raises(InputError, match=r"no metric 'exat' \(is exact meant\?\)"):
        metric_named("exat", texts)
    with pytest.raises(InputError, match="judge asks a model"):
        metric_named("judge", texts)
    assert {"exact", "normalised", "numeric", "contains", "f1", "json", "label", "judge"} == set(METRICS)


def test_a_judge_gives_its_mark_under_the_same_name() -> None:
    model = ScriptedModel(
        lambda request: "fine\nSCORE: 8" if '"right_answer":"blue"' in request.text else "SCORE: 0"
    )
    metric = metric_named("judge", [], model=model)
    score = asyncio.run(metric(whet.Trajectory(task=rows("blue")[0], output="azure")))  # type: ignore[arg-type]
    assert (score.name, score.value) == ("score", 0.8)
    assert RUBRIC in model.calls[0].text


def test_a_label_is_read_from_a_sentence_only_if_it_is_the_only_one() -> None:
    assert label_of("Billing!", DEPARTMENTS) == "billing"
    assert label_of("this is billing, I am sure", DEPARTMENTS) == "billing"
    assert label_of("rebilling", DEPARTMENTS) is None
    assert label_of(None, DEPARTMENTS) is None
