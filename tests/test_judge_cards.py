"""Reliability cards of judges, `whet audit` of judges, and the gate that refuses a judge without one."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from processes import whet

from whet.errors import InputError
from whet.judge import Judge, ascore
from whet.judge.calibration import ask_all, card_of
from whet.judge.card import ReliabilityCard
from whet.judge.labelled import LabelledItem, answering, read_labelled
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.prove.gate import compare
from whet.record.rows import row
from whet.record.store import Store
from whet.types import Bundle, Outcome, Version

RUBRIC = "A good answer gives the warranty in years."


def shown(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in re.findall(r"<data-[0-9a-f]+>\s*(\{.*\})\s*</data", text)]


def judging(
    good: Callable[[str], bool], prefers: Callable[[str, str], bool] | None = None
) -> Callable[[ModelRequest], str]:
    """A model that marks by `good`, and prefers the first of two answers where `prefers` says so."""

    def answer(request: ModelRequest) -> str:
        answers = [str(run["answer"]) for run in shown(request.text)]
        if len(answers) == 1:
            return f"SCORE: {9 if good(answers[0]) else 2}"
        first = prefers(*answers) if prefers else good(answers[0])
        return f"BETTER: {1 if first else 2}"

    return answer


def years(answer: str) -> bool:
    return "years" in answer


def pairs(count: int = 60, *, wrong: float = 0.05) -> list[LabelledItem]:
    drawn = random.Random(0)
    items = []
    for number in range(count):
        task = row(f"How long is the warranty of rake {number}?")
        tail = " of care" * drawn.randint(0, 3)
        good, bad = (
            answering(task, f"{number} years{tail}"),
            answering(task, f"{number} so long{' or so' * drawn.randint(0, 3)}"),
        )
        first = drawn.random() < 0.5
        label = first if drawn.random() >= wrong else not first
        items.append(LabelledItem(str(number), *((good, bad) if first else (bad, good)), label))
    return items


def card(script: Callable[[ModelRequest], str], items: list[LabelledItem], **more: object) -> ReliabilityCard:
    judge = Judge(ScriptedModel(script, name="scripted"), RUBRIC)
    return card_of("warranty", asyncio.run(ask_all(judge, items)), evaluator=judge.key, **more)  # type: ignore[arg-type]


def test_a_sound_judge_is_admitted_and_its_card_says_how_sound() -> None:
    sound = card(judging(years), pairs())
    assert sound.admitted, sound.reasons
    assert sound.accuracy_interval[0] < sound.accuracy < 1
    assert sound.kappa > 0.7
    assert sound.biases["position"].value == 1
    assert sound.biases["injection"].value == 0
    assert sound.tokens > 0
    assert {"position", "length", "injection", "padding"} <= set(sound.biases)


@pytest.mark.parametrize(
    ("prefers", "reason"),
    [
        (lambda one, two: True, "contradicts itself"),
        (lambda one, two: len(one) > len(two), "not right more often, beyond chance, than the longer answer"),
        (
            lambda one, two: (
                "presents it in a clear" in one or ("presents it in a clear" not in two and years(one))
            ),
            "padding moves it: 100%",
        ),
    ],
)
def test_a_judge_of_places_lengths_or_padding_is_refused(
    prefers: Callable[[str, str], bool], reason: str
) -> None:
    refused = card(judging(years, prefers), pairs())
    assert not refused.admitted
    assert reason in refused.refusal


def test_shuffled_labels_admit_nobody() -> None:
    drawn = random.Random(1)
    shuffled = [replace(item, label=drawn.random() < 0.5) for item in pairs(200)]
    refused = card(judging(years), shuffled)
    assert "not right more often, beyond chance" in refused.refusal


def test_a_failed_verdict_is_missing_and_too_many_of_them_refuse_the_judge() -> None:
    def silent(request: ModelRequest) -> str:
        number = int(re.findall(r"rake (\d+)", request.text)[0])
        return "no" if number % 3 == 0 else judging(years)(request)

    told = card(silent, pairs(90))
    assert (told.items, told.missing) == (60, 30)
    assert told.accuracy > 0.9
    assert told.reasons == ["30 of 90 items got no verdict"]


def test_a_judge_that_likes_its_own_model_and_one_that_drifted_are_told() -> None:
    items = [
        replace(
            item,
            authors=("scripted/a", "other/b") if years(item.first.output_text) else ("other/b", "scripted/a"),
        )
        for item in pairs(wrong=0.3)
    ]
    first = card(judging(years), items, model="scripted")
    assert first.biases["self-preference"].value > 0.1
    again = card(judging(years), items, earlier=first)
    assert again.biases["drift"].value == 0
    drifted = card(judging(lambda answer: not years(answer)), items, earlier=first)
    assert drifted.biases["drift"].value == 1
    assert "drift moves it: 100%" in drifted.refusal


def test_marks_of_single_answers_are_divided_by_the_other_half_of_the_labels() -> None:
    items = [
        LabelledItem(f"{item.id}/{side}", run, None, years(run.output_text))
        for item in pairs(40)
        for side, run in (("a", item.first), ("b", item.second))
        if run is not None
    ]
    sound = card(judging(years), items)
    assert (sound.form, sound.threshold) == ("marks", 0.55)
    assert sound.admitted, sound.reasons
    constant = card(lambda request: "SCORE: 5", items)
    assert not constant.admitted


def test_a_card_is_json_and_a_badge_that_shows_text_as_text() -> None:
    sound = replace_name(card(judging(years), pairs()), "<script>&")
    kept = msgspec.json.decode(msgspec.json.encode(sound), type=ReliabilityCard)
    assert kept == sound
    badge = ElementTree.fromstring(sound.badge())
    assert badge.tag.endswith("svg")
    assert not [node for node in badge.iter() if node.tag.endswith("script")]


def replace_name(whole: ReliabilityCard, name: str) -> ReliabilityCard:
    return msgspec.structs.replace(whole, judge=name)


def test_only_a_card_of_that_very_judge_takes_the_mark_of_the_uncalibrated_off_its_scores() -> None:
    items = [LabelledItem(item.id, item.first, None, years(item.first.output_text)) for item in pairs(80)]
    model = ScriptedModel(judging(years), name="scripted")
    judge = Judge(model, RUBRIC)
    own = card_of("warranty", asyncio.run(ask_all(judge, items)), evaluator=judge.key)

    def verdict(judge: Judge) -> tuple[bool, str]:
        sides = []
        for answer in ("so long", "2 years"):
            runs = [answering(row(f"{n}?"), answer) for n in range(150)]
            sides.append([run.scored(asyncio.run(ascore(judge, run))) for run in runs])
        told = compare(*sides, metric="judge")
        return told.promote, " ".join(told.reasons)

    promoted, why = verdict(judge)
    assert not promoted
    assert "a judge that no reliability card admits: it may steer, and promotes nothing" in why
    assert "whet audit RUBRIC" in why
    assert verdict(Judge(model, RUBRIC, card=own))[0]
    assert not verdict(Judge(model, RUBRIC + " In weeks.", card=own))[0]


# -- the command line ------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(judging(years)) as running:
        yield running


def labelled(path: Path, *, shuffled: bool = False) -> None:
    drawn = random.Random(5)
    rows = []
    for number in range(80):
        good = number % 2 == 0
        output = f"{number} years" if good else f"{number} so long"
        label = drawn.random() < 0.5 if shuffled else good
        rows.append({"input": f"rake {number}?", "output": output, "label": int(label) * 2 - 1})
    path.write_text("\n".join(map(json.dumps, rows)))


def test_a_gate_refuses_a_judge_without_a_card_and_decides_by_one_that_has_it(
    tmp_path: Path, server: ScriptedServer
) -> None:
    (tmp_path / "rubric.md").write_text(RUBRIC)
    (tmp_path / "shop.py").write_text(
        "import whet\n\nunit = whet.resource('unit', default=' so long')\n\n\n"
        "@whet.trace\ndef reply(question: str) -> str:\n    return f'3{unit.get()}.'\n"
    )
    tasks = [{"instruction": f"How long is the warranty of rake {n}?", "group": f"{n}"} for n in range(150)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    better = Bundle([Version(resource="unit", content=" years")])
    with Store(tmp_path / "runs.db") as store:
        store.put_bundle(better)
    gate = ["gate", "none", better.id, "--entry", "shop:reply", "--store", "runs.db", "--reward", "rubric.md"]
    gate += ["--data", "tasks.jsonl", "--base-url", server.base_url]
    audit = ["audit", "rubric.md", "--model", "scripted", "--base-url", server.base_url, "--store", "runs.db"]
    refused = whet(*gate, folder=tmp_path)
    assert refused.returncode != 0
    assert "without a reliability card: it may steer, and promotes nothing" in refused.stderr
    assert "whet audit rubric.md --model NAME" in refused.stderr
    labelled(tmp_path / "noise.jsonl", shuffled=True)
    assert whet(*audit, "--labels", "noise.jsonl", folder=tmp_path).returncode == 1
    assert "rubric may steer and not promote: " in whet(*gate, folder=tmp_path).stderr
    labelled(tmp_path / "labels.jsonl")
    audited = whet(*audit, "--labels", "labels.jsonl", "--output", "cards", folder=tmp_path)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "admitted: it may decide at a gate" in audited.stdout
    assert json.loads((tmp_path / "cards" / "rubric.card.json").read_text())["admitted"] is True
    assert (tmp_path / "cards" / "rubric.badge.svg").read_text().startswith("<svg")
    decided = whet(*gate, folder=tmp_path)
    assert "HELD BACK: shown to be better" in decided.stdout, decided.stdout + decided.stderr
    asked = len(server.requests)
    assert whet(*audit, "--labels", "labels.jsonl", folder=tmp_path).returncode == 0
    assert len(server.requests) == asked  # every answer is in the record
    # The model behind the name becomes another one: only what is asked anew shows it.
    with ScriptedServer(judging(lambda answer: answer < "4")) as changed:
        audit[audit.index("--base-url") + 1] = changed.base_url
        cached = whet(*audit, "--labels", "labels.jsonl", folder=tmp_path)
        assert cached.returncode == 0
        assert "drift" not in cached.stdout
        drifted = whet(*audit, "--labels", "labels.jsonl", "--again", folder=tmp_path)
        assert drifted.returncode == 1
        assert re.search(r"drift +0\.[2-9]", drifted.stdout), drifted.stdout
        asked = len(changed.requests)
        assert asked >= 80
    assert "drift" in whet("gate", *gate[1:], folder=tmp_path).stderr


def test_recorded_verdicts_of_many_judges_get_cards_and_a_panel(tmp_path: Path) -> None:
    drawn = random.Random(2)
    labels, verdicts = [], []
    skill = {"strong/a": 0.9, "middle/a": 0.8, "weak/a": 0.75, "coin/a": 0.5}
    for kind in ("plain", "easy", "hard"):
        rows = [
            {"id": f"{kind}{n}", "input": f"{n}?", "output_1": "x" * drawn.randint(1, 9), "output_2": "y" * 5}
            | {"label": drawn.choice((1, 2)), "kind": kind}
            for n in range(80)
        ]
        labels += rows
        for judge, share in skill.items():
            winners = [[r["label"] if drawn.random() < share else 3 - int(r["label"])] * 2 for r in rows]
            verdicts.append({"judge": judge, "set": kind, "winner": winners})
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    (tmp_path / "verdicts.jsonl").write_text("\n".join(map(json.dumps, verdicts)))
    words = ("audit", "verdicts.jsonl", "--labels", "labels.jsonl", "--output", "cards")
    told = whet(*words, folder=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.search(r"strong/a +0\.9.* admitted", told.stdout)
    assert re.search(r"coin/a .* refused", told.stdout)
    assert "3 kinds, each read without its labels" in told.stdout
    unlabelled = [{**line, "set": "new"} for line in verdicts if line["set"] == "hard"]
    strange = [
        {**line, "set": "strange", "winner": [[drawn.choice((1, 2))] * 2 for _ in range(80)]}
        for line in unlabelled
    ]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, unlabelled + strange)))
    read = whet("audit", "new.jsonl", "--panel", "cards/panel.json", "--output", "cards", folder=tmp_path)
    assert read.returncode == 0, read.stdout + read.stderr
    assert re.search(r"new +80 pairs decided by panel", read.stdout)
    assert re.search(
        r"strange +80 pairs decided by strong/a, 0 of them surely\n +the panel refused: the judges agree",
        read.stdout,
    )
    decided = [
        json.loads(line) for line in (tmp_path / "cards" / "panel_verdicts.jsonl").read_text().splitlines()
    ]
    right = {row["id"].removeprefix("hard"): row["label"] for row in labels if row["kind"] == "hard"}
    hits = [row["winner"] == right[row["id"].rpartition("_")[2]] for row in decided if row["kind"] == "new"]
    assert sum(hits) > 0.85 * len(hits)


def test_labels_that_are_none_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"input": "a", "output_1": "x", "output_2": "y", "label": 3}\n')
    with pytest.raises(InputError, match=r"labels\.jsonl, line 1.*1 or 2"):
        read_labelled(path)
    path.write_text('{"prompt": "a", "chosen": "x", "rejected": "y"}\n')
    (item,) = read_labelled(path)
    assert (item.first.output == "x") is item.label
    assert item.first.outcome is Outcome.UNKNOWN
