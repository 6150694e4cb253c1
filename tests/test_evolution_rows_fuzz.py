"""Rows as people have them: whatever the file, `whet evolve` ends with a report or with one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rows_fuzzer

from whet.cli import main
from whet.errors import GateError, InputError, TrainingRefused
from whet.learn.datasets.examples import load
from whet.types import Split

EXPECTED = {error.exit_code for error in (InputError, GateError, TrainingRefused)}


def rows_file(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_whatever_the_rows_a_search_ends_with_a_report_or_one_sentence(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "size.py").write_text(rows_fuzzer.SOURCE)
    monkeypatch.chdir(tmp_path)
    ended = set()
    for number in range(seed, seed + 3):
        (tmp_path / "rows.jsonl").write_bytes(rows_fuzzer.file(number))
        words = ("--target", "limit", "--entry", "size:sized", "--data", "rows.jsonl", "--unsafe-local")
        with pytest.raises(SystemExit) as done:
            main(["evolve", *words, "--iterations", "3", "--offline", "--json", "--output", f"out{number}"])
        out, err = capsys.readouterr()
        ended.add(done.value.code)
        if done.value.code in (0, 1):
            report = json.loads(out)
            assert report["rows"]["sized"]["rows"] == sum(
                part["n"] for part in report["scores"]["sized"].values()
            )
        else:
            assert done.value.code in EXPECTED, (number, err)
            assert out == ""
            assert err.splitlines()[-1].startswith("error: "), (number, err)
    assert ended


def test_the_fuzzer_makes_files_that_can_be_searched_and_files_that_cannot(tmp_path: Path) -> None:
    path, read = tmp_path / "rows.jsonl", []
    for seed in range(60):
        path.write_bytes(rows_fuzzer.file(seed))
        try:
            load(path)
        except (InputError, GateError):
            read.append(False)
        else:
            read.append(True)
    assert 15 < sum(read) < 55


def test_people_numbered_from_zero_are_people(tmp_path: Path) -> None:
    rows = [{"input": number, "expected": 1, "group": number % 10} for number in range(60)]
    found = load(rows_file(tmp_path / "rows.jsonl", *rows))
    assert len({row.group for row in found}) == 10
    assert len({row.split for row in found if row.group == "0"}) == 1, "nobody is on two sides"


def test_a_column_of_whole_numbers_in_which_one_is_missing_names_the_same_groups(tmp_path: Path) -> None:
    rows = [{"input": 1, "expected": 1, "group": 3.0, "id": 7}, {"input": 2, "expected": 1, "group": None}]
    first, second = load(
        rows_file(tmp_path / "rows.jsonl", *rows, {"input": 3, "expected": 1, "group": "3"})
    )[:2]
    assert (first.group, first.id, second.group) == ("3", "7", "")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("group", ["a"], 'group is ["a"]; it must be text or a whole number'),
        ("group", True, "group is true; it must be"),
        ("id", 1.5, "id is 1.5; it must be"),
        ("provenance", 7, "provenance is 7; it must be text or an object"),
        ("label", 10**400, "label is out of the range"),
        ("split", "test", "it must be train, validation or gate"),
    ],
)
def test_a_column_of_another_kind_is_refused_by_its_line(
    column: str, value: Any, expected: str, tmp_path: Path
) -> None:
    path = rows_file(
        tmp_path / "rows.jsonl", {"input": 1, "expected": 1}, {"input": 2, "expected": 1, column: value}
    )
    with pytest.raises(InputError) as refused:
        load(path)
    assert f"{path}, line 2: " in str(refused.value)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"input": "caf\xe9", "expected": 1}'.encode("latin-1"), "not UTF-8"),
        (b'{"input": 1, "expected": NaN}', "NaN and Infinity are not JSON: write null"),
        (b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b', "expected": 1}', "nested too deeply"),
    ],
)
def test_a_line_that_is_not_json_is_refused_with_the_reason(
    line: bytes, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\r\n{"input": 0, "expected": 1, "provenance": "by hand"}\r\n' + line)
    with pytest.raises(InputError) as refused:
        load(path)
    assert f"{path}, line 3: " in str(refused.value)
    assert expected in str(refused.value)
    path.write_bytes(path.read_bytes().replace(line, b'{"input": 1, "expected": null, "split": "gate"}'))
    first, second = load(path)
    assert first.meta["provenance"] == {"how": "by hand", "line": 2}
    assert (second.answer, second.split) == (None, Split.GATE)
