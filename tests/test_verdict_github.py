"""The answer in one line, and as a check of GitHub: annotation, summary, outputs and exit code."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from whet.cli import app
from whet.prove import answers
from whet.prove.gate import TaskResult, compare
from whet.prove.verdict import verdict


def side(path: Path, wins: int, n: int = 100) -> Path:
    path.write_text(
        "".join(json.dumps({"task": f"t{i}", "success": i * 37 % n < wins}) + "\n" for i in range(n))
    )
    return path


def ran(*words: object) -> int:
    code = app(["verdict", *map(str, words)], result_action="return_value")
    assert isinstance(code, int)
    return code


@pytest.mark.parametrize(
    ("wins", "word", "level", "code"),
    [
        (80, "keep", "notice", 0),
        (57, "more", "warning", 10),
        (40, "drop", "error", 1),
        (50, "drop", "error", 1),
    ],
)
def test_keep_drop_and_more_are_the_first_line_the_annotation_the_summary_and_the_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wins: int,
    word: str,
    level: str,
    code: int,
) -> None:
    a, b = side(tmp_path / "a.jsonl", 50), side(tmp_path / "b.jsonl", wins)
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert ran(a, b, "--github") == code
    *_, annotation = said = capsys.readouterr().out.splitlines()
    assert word in said[0].lower()
    assert annotation.startswith(f"::{level} title=whet verdict::{said[0].replace('%', '%25')}%0A")
    assert summary.read_text().startswith(f"before\n<h3>{said[0]}")
    more = answers.answer(verdict(a, b), candidate="b").more
    assert output.read_text() == f"answer={word}\nmore={more if word == 'more' else ''}\n"
    assert ran(a, b) == 0  # without --github as ever
    assert ran(a, b, "--json") == 0
    answered = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (answered["answer"], answered["more"]) == (word, more)


def test_more_says_how_many_and_an_effect_too_small_to_tell_is_dropped(tmp_path: Path) -> None:
    a = side(tmp_path / "a.jsonl", 500, 1000)
    some = answers.answer(verdict(a, side(tmp_path / "b.jsonl", 530, 1000)), candidate="b")
    assert (some.word, some.more) == ("keep", None)  # 30 wins and no loss
    rows = [{"task": f"t{i}", "success": i % 2 == 0} for i in range(1000)]
    other = [{"task": f"t{i}", "success": (i // 2) % 2 == 0 or i < 4} for i in range(1000)]
    tiny = answers.answer(verdict(rows, other), candidate="b")
    assert tiny.word == "drop"
    assert "is not told from no effect" in tiny.sentence


def test_most_nulls_are_dropped_and_hardly_a_gain_is() -> None:
    chance = random.Random(1)

    def words(gain: float) -> Counter[str]:
        counts: Counter[str] = Counter()
        for _ in range(150):
            sides = [
                [
                    TaskResult(task=str(number), scores={"success": float(chance.random() < share)})
                    for number in range(120)
                ]
                for share in (0.5, 0.5 + gain)
            ]
            counts[answers.answer(compare(*sides), candidate="b").word] += 1
        return counts

    null, better = words(0.0), words(0.2)
    assert (null["keep"] <= 7, null["drop"] > 100) == (True, True), null
    assert (better["drop"] <= 7, better["keep"] > 75) == (True, True), better


def test_a_guard_suite_that_drops_is_named(tmp_path: Path) -> None:
    a, b = side(tmp_path / "a.jsonl", 50), side(tmp_path / "b.jsonl", 80)
    answer = answers.answer(verdict(a, b, suite=(b, a)), candidate="b.jsonl")
    assert (answer.word, answer.sentence.startswith("DROP: b.jsonl fails guard suite")) == ("drop", True)


def test_nothing_of_a_file_is_markup_or_a_command_in_a_check(tmp_path: Path) -> None:
    a = side(tmp_path / "a.jsonl", 50)
    hostile = "b\n::error::<script>alert(1)</script>\n\n# heading"
    decided = verdict(a, side(tmp_path / "b.jsonl", 80))
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path / "s.md")}
    printed = answers.github(decided, answers.answer(decided, candidate=hostile), environ)
    assert "\n" not in printed
    written = (tmp_path / "s.md").read_text()
    assert "<script>" not in written
    assert "\n\n" not in written.rstrip()
