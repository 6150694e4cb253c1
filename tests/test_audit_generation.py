"""Evaluators that are generated count for something only once they are proven, and again when edited."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from whet.errors import InputError
from whet.judge.generation import Folder, Generated, generate
from whet.judge.templates import TASKS, classification, extraction, likely, ranking, routing, source
from whet.models import ScriptedModel
from whet.record.rows import row
from whet.types import Task

ADD = "def add(a, b):\n    return a + b\n"
KNOWN: dict[str, list[Task]] = {
    "classification": [
        row(f"mail {n}", None, label)
        for n, label in enumerate(["urgent", "spam", "urgent", "later", "spam", "later"])
    ],
    "extraction": [
        row("mail", None, {"name": name, "age": age})
        for name, age in (("Ada", 36), ("Alan", 41), ("Grace", 85))
    ],
    "text": [
        row("What happened?", None, text)
        for text in (
            "The meeting was moved to the second week of March.",
            "Nobody has answered the landlord about the broken heating.",
            "All three invoices were paid before the end of the year.",
        )
    ],
    "code": [
        row("Add two numbers.", ADD, {"function": "add", "cases": [[[1, 2], 3], [[5, 5], 10]]}),
        row("Double it.", "def two(x): return 2 * x", {"function": "two", "cases": [[[4], 8], [[-1], -2]]}),
    ],
    "ranking": [row("Order.", None, one) for one in (["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a", "d"])],
    "routing": [
        row("What is the weather?", None, {"tool": "get_weather", "arguments": {"city": "Graz"}}),
        row("Mail Ada.", None, {"tool": "send_mail", "arguments": {"to": "ada", "text": "hello"}}),
        row("Weather in Linz?", None, {"tool": "get_weather", "arguments": {"city": "Linz"}}),
    ],
}


@pytest.mark.parametrize("task", TASKS)
def test_the_template_of_each_kind_is_chosen_and_admitted(task: str) -> None:
    rows = KNOWN[task]
    assert likely(rows)[0] == task
    made = asyncio.run(generate(rows, task=likely(rows)[0]))
    assert [one.reasons for one in made] == [[]]
    assert made[0].admitted
    assert made[0].name == f"answers_{task}"


def test_what_is_expected_is_right_even_where_no_row_had_it_when_the_evaluator_was_made() -> None:
    assert "rare" not in classification.LABELS
    assert classification.evaluate("Rare.", "rare")["score"] == 1.0
    assert classification.evaluate("rare or common", "rare")["score"] == 0.0
    call = {"tool": "new_tool", "arguments": {"a": 1}}
    assert routing.evaluate(call, call)["score"] == 1.0
    assert ranking.evaluate([], [])["score"] == ranking.evaluate([1, 2, 1], [1, 2, 1])["score"] == 1.0
    assert ranking.evaluate([], [1])["score"] == ranking.evaluate([1, 1], [1])["score"] == 0.0


def test_fields_without_names_have_their_places_and_members_of_a_list_have_none() -> None:
    record = [854, "fast", 1]
    assert likely([row("a", record), row("b", [1, "slow", 2])]) == ["extraction"]
    assert extraction.evaluate(record, record)["score"] == 1.0
    assert extraction.evaluate(record[::-1], record)["score"] < 1.0
    assert extraction.evaluate(["b", "a"], ["a", "b"])["score"] == 1.0


def test_a_model_writes_until_one_is_admitted_and_is_told_why_not() -> None:
    bad = (
        "```python\ndef evaluate(output, expected, input=None):\n    return {'score': 1.0, 'reason': ''}\n```"
    )
    good = (
        "Here it is:\n```python\ndef evaluate(output, expected, input=None):\n"
        "    return {'score': float(output == expected), 'reason': 'compared'}\n```"
    )
    model = ScriptedModel(["no code at all", bad, good])
    made = asyncio.run(generate(KNOWN["classification"], task="classification", model=model))
    assert [one.name for one in made if one.admitted] == ["answers_classification", "answers_model"]
    assert len(model.calls) == 3
    assert "constant:" in model.calls[2].text


def test_a_model_that_only_writes_bad_ones_gets_none_admitted() -> None:
    bad = "```python\ndef evaluate(output, expected, input=None):\n    return 1.0\n```"
    made = asyncio.run(generate(KNOWN["text"], task="text", model=ScriptedModel([bad] * 2), attempts=2))
    refused = next(one for one in made if one.origin != "template")
    assert not refused.admitted


def test_an_edit_counts_for_nothing_until_it_is_proven_again(tmp_path: Path) -> None:
    folder, rows = Folder(tmp_path / "evaluators"), KNOWN["classification"]
    folder.add(asyncio.run(generate(rows, task="classification")))
    (first,) = folder.admitted()
    path = folder.path / "answers_classification.py"

    path.write_text(path.read_text().replace('"score": 0.0', '"score": 1.0'))
    assert folder.admitted() == []
    (refused,) = asyncio.run(folder.prove_edited(rows))
    assert not refused.admitted
    assert folder.admitted() == []

    path.write_text(source("classification", rows).replace('"another label"', '"not this one"'))
    (proven,) = asyncio.run(folder.prove_edited(rows))
    assert (proven.admitted, proven.origin) == (True, "edited")
    assert [one.version for one in folder.admitted()] != [first.version]
    assert folder.edited() == []


def test_a_proof_on_file_is_of_that_very_text(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add(asyncio.run(generate(KNOWN["ranking"], task="ranking")))
    (tmp_path / "mine.py").write_text("def evaluate(output, expected):\n    return 1.0\n")
    assert [one.name for one in folder.admitted()] == ["answers_ranking"]
    (tmp_path / "proofs.json").write_text("[]")
    with pytest.raises(InputError, match="remove it to prove everything again"):
        folder.admitted()


def test_people_who_disagree_with_a_template_get_it_refused() -> None:
    rows = [row(str(n), "spam" if n % 2 else "later", "spam", 1.0 if n % 4 < 2 else -1.0) for n in range(16)]
    made = asyncio.run(generate(rows, task="classification"))
    assert not made[0].admitted
    assert any(reason.startswith("agreement:") for reason in made[0].reasons)


def test_the_command_writes_the_admitted_ones_and_says_what_became_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.cli import app

    rows, folder = tmp_path / "rows.jsonl", tmp_path / "evaluators"
    rows.write_bytes(
        b"\n".join(
            msgspec.json.encode({"input": r.instruction, "expected": r.answer})
            for r in KNOWN["classification"]
        )
    )

    def run(*words: object) -> int:
        return int(app(["generate-evaluators", *map(str, words)], result_action="return_value"))

    assert run("--data", rows, "--output", folder, "--name", "mail", "--json") == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert {one["name"] for one in said["evaluators"] if one["admitted"]} == {
        "mail_classification",
        "mail_text",
    }
    assert (folder / "mail_classification.py").is_file()
    (folder / "mail_classification.py").write_text("def evaluate(output, expected):\n    return 1.0\n")
    assert run("--data", rows, "--output", folder, "--name", "mail", "--kind", "text") == 0
    out = capsys.readouterr().out
    assert "mail_classification" in out
    assert "refused" in out
    assert isinstance(Folder(folder).admitted(), list)


def test_no_rows_and_an_unknown_kind_are_named() -> None:
    with pytest.raises(InputError, match="no known answers"):
        asyncio.run(generate([]))
    with pytest.raises(InputError, match="known: classification"):
        asyncio.run(generate(KNOWN["text"], task="poetry"))  # type: ignore[arg-type]
    assert Generated("x", "", "template", None, refusal="why").reasons == ["why"]


def test_rows_are_taken_from_the_folder_that_generate_training_data_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from commands import command

    (tmp_path / "desk.py").write_text(
        "def label(text: str) -> str:\n"
        + "".join(f"    # label('{word} please') == '{word}'\n" for word in ("refund", "return"))
        + "    return text.split()[0]\n"
    )
    calls = [
        f"assert label('{word} case {n}') == '{word}'"
        for n in range(8)
        for word in ("refund", "return", "order")
    ]
    (tmp_path / "test_desk.py").write_text(
        "from desk import label\n\ndef test_label():\n" + "".join(f"    {call}\n" for call in calls)
    )
    monkeypatch.chdir(tmp_path)
    made = command(capsys, "generate-training-data", "--target", "desk:label", "--num-samples", 12)
    assert made.returncode == 0, made.stdout + made.stderr
    for data in ("whet_data", "whet_data/label"):
        done = command(capsys, "generate-evaluators", "--data", data, "--kind", "classification")
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "evaluators/label/label_classification.py").is_file()
        assert not list((tmp_path / "evaluators").glob("*.py"))
    (tmp_path / "whet_data/other").mkdir()
    (tmp_path / "whet_data/other/account.json").write_text("{}")
    assert "one of label, other" in command(capsys, "generate-evaluators", "--data", "whet_data").stderr
