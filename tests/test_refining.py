"""Examples looked at again: what is repeated, contradicted or wrong is found, and what is right is left alone."""

import csv
import json
import random

import pytest

from whet.cli import app
from whet.errors import InputError
from whet.learn.datasets.refining import refine
from whet.record.rows import row
from whet.record.store import Store
from whet.types import Outcome, Task, Trajectory, Version

PARTS = {
    "billing": ["invoice", "refund", "charged twice", "credit card", "payment", "receipt"],
    "shipping": ["parcel", "courier", "tracking number", "delivery date", "warehouse", "customs"],
    "account": ["password", "login", "two factor code", "username", "profile", "email address"],
}
FRAMES = [
    "I have a question about my {0} and the {1}.",
    "Could you check the {0}? The {1} looks odd.",
    "Since Monday the {0} is missing, and so is the {1}.",
    "Where do I find the {1} that belongs to this {0}?",
    "Please change the {0}, not the {1}.",
]


def questions(count, seed):
    rng = random.Random(seed)
    asked = {}
    while len(asked) < count:
        label = rng.choice(sorted(PARTS))
        first, second = rng.sample(PARTS[label], 2)
        asked[f"{rng.choice(FRAMES).format(first, second)} Order {rng.randrange(10_000)}."] = label
    return list(asked.items())


def spoiled(pairs, share, seed):
    rng = random.Random(seed)
    wrong = {place for place in range(len(pairs)) if rng.random() < share}
    rows = [
        row(
            text,
            expected=rng.choice([other for other in PARTS if other != label]) if place in wrong else label,
        )
        for place, (text, label) in enumerate(pairs)
    ]
    return rows, wrong


def found(refined, *kinds):
    return {doubt.row for doubt in refined.doubts if doubt.kind in kinds}


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_wrong_labels_is_found_and_repaired_and_no_right_one_where_all_are(seed):
    pairs = questions(180, seed)
    rows, wrong = spoiled(pairs, 0.2, seed)
    refined = refine(rows, repair=True, seed=seed)
    doubted = found(refined, "mislabelled")
    assert len(doubted & wrong) >= 0.9 * len(doubted)
    assert len(doubted & wrong) >= 0.8 * len(wrong)
    assert abs(refined.wrong_rate - len(wrong) / len(rows)) < 0.08
    right = dict(pairs)
    repaired = [task for task in refined.rows if "refined" in task.meta["provenance"]]
    assert len(repaired) > 0.5 * len(wrong)
    assert sum(task.answer == right[task.initial_state["input"]] for task in repaired) > 0.95 * len(repaired)
    untouched, none = spoiled(pairs, 0.0, seed)
    assert not none
    assert not found(refine(untouched, seed=seed), "mislabelled")


def test_the_form_of_a_text_tells_of_its_label_where_its_words_do_not():
    rng = random.Random(3)
    parts = [part for own in PARTS.values() for part in own]
    shapes = {
        "form": "Order: {0}\nAsked: {1}\n(No. {2})",
        "mail": "the {1} is odd, so is the {0}... ({2})",
        "chat": "{0}?? {1}!! {2}",
    }

    def table(shaped):
        rows, wrong = [], set()
        for place in range(240):
            label = rng.choice(sorted(shapes))
            words = (*rng.sample(parts, 2), rng.randrange(10_000))
            text = shapes[label if shaped else rng.choice(sorted(shapes))].format(*words)
            if rng.random() < 0.2:
                wrong.add(place)
                label = rng.choice([other for other in shapes if other != label])
            rows.append(row(text, expected=label))
        return rows, wrong

    rows, wrong = table(True)
    called = found(refine(rows), "mislabelled")
    assert len(called & wrong) >= 0.9 * len(wrong)
    assert len(called & wrong) >= 0.9 * len(called)
    rows, _ = table(False)
    assert not found(refine(rows), "mislabelled"), "forms that say nothing"


def test_labels_that_the_texts_say_nothing_of_are_not_called_wrong():
    rng = random.Random(0)
    rows = [row(text, expected=rng.choice(sorted(PARTS))) for text, _ in questions(180, 0)]
    refined = refine(rows, seed=0)
    assert not found(refined, "mislabelled")
    assert "too little of their labels" in refined.notes[0]


def test_equal_inputs_are_one_row_and_those_that_contradict_each_other_follow_the_majority():
    rows = [
        row("What is the capital of France?", expected="Paris"),
        row("what is the capital of France", expected="Paris."),
        row("What is the capital of France?", expected="Lyon"),
        row("Is tea hot?", expected="yes"),
        row("Is tea hot?", expected="no"),
        row("Is coffee hot?", expected="yes"),
        row("Translate: good morning. Answer: bonjour", expected="bonjour"),
        row("Who wrote it?", expected="Answerson"),
    ]
    refined = refine(rows)
    assert found(refined, "duplicate") == {1}
    assert next(doubt.of for doubt in refined.doubts if doubt.kind == "duplicate") == 0
    assert found(refined, "contradiction") == {2, 3, 4}
    assert found(refined, "leak") == {6}
    assert [task.initial_state["input"] for task in refined.rows] == [
        "What is the capital of France?",
        "Is coffee hot?",
        "Who wrote it?",
    ]
    assert refined.wrong_rate is None
    assert "8 of each label" in refined.notes[0]


def answered(seed, accuracies, count=120, wrong=0.2):
    """Tasks with a given answer, a fifth of them wrong, and agents' answers; a third of the tasks is hard for all."""
    rng = random.Random(seed)
    truth = {f"t{n}": f"answer {rng.randrange(10_000)}" for n in range(count)}
    hard = {task for task in truth if rng.random() < 1 / 3}
    mistaken = {task for task in truth if rng.random() < wrong}
    given = {task: f"wrong {rng.randrange(10_000)}" if task in mistaken else truth[task] for task in truth}
    answers = {
        task: [
            (
                f"agent {number}",
                truth[task]
                if rng.random() < accuracy * (0.3 if task in hard else 1.0)
                else f"guess {rng.randrange(10_000)}",
            )
            for number, accuracy in enumerate(accuracies)
        ]
        for task in truth
    }
    return truth, given, answers, mistaken


@pytest.mark.parametrize("seed", range(3))
def test_agents_that_agree_on_another_answer_find_a_wrong_one_and_hard_tasks_are_left_alone(seed):
    truth, given, answers, mistaken = answered(seed, [0.95, 0.8, 0.7, 0.6])
    rows = [Task(id=task, initial_state={"input": task}, answer=given[task]) for task in given]
    refined = refine(rows, answers=answers)
    doubted = {rows[row].id for row in found(refined, "mislabelled")}
    assert len(doubted & mistaken) >= 0.9 * len(doubted)
    assert len(doubted & mistaken) >= 0.5 * len(mistaken)
    instead = {rows[doubt.row].id: doubt.instead for doubt in refined.doubts if doubt.kind == "mislabelled"}
    assert all(instead[task] == truth[task] for task in doubted & mistaken)


def test_the_command_writes_what_is_left_and_a_reason_for_each_row_that_is_not(tmp_path, capsys):
    rows, wrong = spoiled(questions(160, 4), 0.2, 4)
    table = tmp_path / "examples.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "question", "team"])
        writer.writerows(
            [number, task.initial_state["input"], task.answer] for number, task in enumerate(rows)
        )
        writer.writerow([160, rows[0].initial_state["input"], rows[0].answer])
    output = tmp_path / "refined.csv"
    words = [
        "refine",
        str(table),
        "--input",
        "question",
        "--expected",
        "team",
        "--output",
        str(output),
        "--repair",
    ]
    app(words, result_action="return_value")
    said = capsys.readouterr().out
    assert "of the labels are wrong, by the rows together" in said
    with output.open(newline="") as file:
        left = list(csv.DictReader(file))
    findings = [json.loads(line) for line in (tmp_path / "refined.csv.report.jsonl").read_text().splitlines()]
    assert {"id", "question", "team"} == set(left[0])
    gone = [finding for finding in findings if not finding.get("repaired")]
    assert len(left) == 161 - len(gone)
    (repeated,) = [finding for finding in findings if finding["kind"] == "duplicate"]
    assert (repeated["line"], repeated["of_line"]) == (162, 2)
    repaired = {finding["line"] - 2: finding["instead"] for finding in findings if finding.get("repaired")}
    assert len(set(repaired) & wrong) > 0.8 * len(repaired)
    by_id = {int(cells["id"]): cells["team"] for cells in left}
    assert all(by_id[place] == instead for place, instead in repaired.items())
    with pytest.raises(InputError, match="the table itself"):
        app(["refine", str(table), "--output", str(table)], result_action="return_value")


def test_runs_of_several_versions_in_a_record_say_which_answer_is_wrong(tmp_path, capsys):
    table, store = tmp_path / "sums.jsonl", tmp_path / "runs.db"
    lines = [{"input": f"{n} + {n}", "expected": str(2 * n + (n % 10 == 0))} for n in range(1, 41)]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    versions = [Version(resource="prompt", content=text, kind="prompt") for text in ("a", "b", "c")]
    with Store(store) as opened:
        for version in versions:
            opened.put_versions(version)
            runs = [
                Trajectory(
                    task=Task(instruction=line["input"]),
                    output=str(2 * int(line["input"].split()[0])),
                    versions={"prompt": version.id},
                    outcome=Outcome.UNKNOWN,
                )
                for line in lines
            ]
            opened.put(*runs)
    output = tmp_path / "left.jsonl"
    words = ["refine", str(table), "--store", str(store), "--output", str(output), "--repair", "--json"]
    app(words, result_action="return_value")
    told = json.loads(capsys.readouterr().out)
    assert told["found"] == {"mislabelled": 4, "trivial": 36}
    assert {line["input"]: line["expected"] for line in map(json.loads, output.read_text().splitlines())} == {
        f"{n} + {n}": str(2 * n) for n in range(1, 41)
    }
