"""What people hand to `whet evolve PROGRAM EVALUATOR`: files that are none, and evaluators that do not work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import command as run_command
from evolution_toys import CURVE, LINE, write

from whet.cli import main
from whet.repository.text import as_written

OFFLINE = ("--offline", "--iterations", "12", "--seed", "1", "--timeout", "20")


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str, str]:
    done = run_command(capsys, "evolve", *words)
    return done.returncode, done.stdout, done.stderr


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"def f(x):\n    return '\xe9'\n", "is not UTF-8"),
        (b"def f(x:\n", "is not valid Python"),
        (b"x = 1\n\0", "is not valid Python"),
    ],
)
@pytest.mark.parametrize("which", ["program", "evaluator"])
def test_a_file_that_is_no_python_is_refused_by_its_name(
    which: str, raw: bytes, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = dict(zip(("program", "evaluator"), write(tmp_path), strict=True))
    files[which].write_bytes(raw)
    err = refused(capsys, files["program"], files["evaluator"], *OFFLINE, "--output", tmp_path / "out")
    assert f"the {which} {files[which]} {expected}" in err


def test_a_folder_and_bytes_are_no_program_and_no_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    assert "it is a folder" in refused(capsys, tmp_path, evaluator)
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8" in refused(capsys, program, evaluator, "--config", tmp_path / "config.yaml")


def test_a_byte_order_mark_is_no_part_of_the_program_and_stays_in_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    program.write_bytes(b"\xef\xbb\xbf" + LINE.encode())
    words = (*OFFLINE, "--unsafe-local", "--json", "--output", tmp_path / "out")
    code, out, _ = said(capsys, program, evaluator, *words)
    assert code == 0
    assert Path(json.loads(out)["best_program"]).read_bytes().startswith(b"\xef\xbb\xbfimport math")
    assert as_written("\ufeffa\r\nb", "a\nc\n") == "\ufeffa\r\nc"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, "holds no program"),
        ("{", "a.json is not a program"),
        ('{"code": 5}', "a.json is not a program"),
        ("[1]", "a.json is not a program"),
        ('{"code": "x", "metadata": {"parts": {"../y": "z"}}}', "a.json is not a program"),
    ],
)
def test_a_checkpoint_that_is_damaged_is_refused_by_the_file(
    stored: str | None, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    (tmp_path / "kept" / "programs").mkdir(parents=True)
    (tmp_path / "kept" / "metadata.json").write_text("{}")
    if stored is not None:
        (tmp_path / "kept" / "programs" / "a.json").write_text(stored)
    words = ("--checkpoint", tmp_path / "kept", "--unsafe-local", "--output", tmp_path / "out")
    assert expected in refused(capsys, program, evaluator, *OFFLINE, *words)


def test_no_workers_and_no_time_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, evaluator = write(tmp_path)
    words = ("--offline", "--iterations", "2", "--unsafe-local", "--output", tmp_path / "out")
    assert "workers=0" in refused(capsys, program, evaluator, *words, "--workers", "0")
    assert "wall_seconds=0" in refused(capsys, program, evaluator, *words, "--timeout", "0")


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        ("import not_there\ndef evaluate(path): ...\n", f"the modules of {sys.executable}"),
        ("import sys\nN = sys.argv[1]\ndef evaluate(path): ...\n", "IndexError"),
        ("def evaluate(path):\n    return 0.5\n", "float, not a dict of numbers"),
        ("def evaluate(path):\n    return {'error': 'no such table'}\n", "no such table"),
        ("def evaluate(path):\n    return bytearray(1 << 40)\n", "more than 2,147,483,648 bytes"),
    ],
)
def test_what_is_wrong_with_an_evaluator_is_said(
    evaluator: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*write(tmp_path, evaluator=evaluator), *OFFLINE, "--output", tmp_path / "out")
    assert expected in refused(capsys, *words)


def test_an_evaluator_that_rolls_dice_is_told_how_far_it_differs_from_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = CURVE.replace("import importlib.util", "import importlib.util, random").replace(
        "1 / (1 + wrong)", "10 ** random.uniform(-60, 0) / (1 + wrong)"
    )
    program, evaluator = write(tmp_path, evaluator=dice)
    words = (*OFFLINE, "--unsafe-local", "--output", tmp_path / "out")
    code, out, _ = said(capsys, program, evaluator, *words)
    assert code == 0
    assert "a smaller gain is luck" in out
    _, out, _ = said(capsys, program, evaluator, *words, "--json")
    first, again = json.loads(out)["start_repeated"]
    assert first != again
    evaluator.write_text(CURVE, encoding="utf-8")
    _, out, _ = said(capsys, program, evaluator, *words)
    assert "luck" not in out


def ended(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as done:
        main(list(map(str, words)))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return done.value.code, out, err


def test_a_target_is_named_alike_wherever_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.py").write_text("def Slug(text: str) -> str:\n    return text.strip().lower()\n")
    code, _, err = ended(capsys, "evolve", "rules:Slug", "--offline")
    assert (code, "generate-training-data --target rules:Slug" in err) == (2, True)
    assert ended(capsys, "generate-training-data", "--target", "rules:Slug")[0] == 0
    code, _, err = ended(capsys, "generate-evaluators", "--target", "rules:Slug", "--kind", "extraction")
    assert (code, err) == (0, "")
    assert (tmp_path / "evaluators" / "slug" / "slug_extraction.py").is_file()


@pytest.mark.parametrize("name", [":", "rules:", ".py:f", "./:f"])
def test_a_name_without_a_file_or_a_function_names_no_target(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = ended(capsys, "evolve", name, "--repository", tmp_path, "--offline")
    assert code == 2
    assert f"{name!r} names no target" in err or "has no module" in err


def test_a_repository_that_is_none_is_said_to_be_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("evolve", "generate-training-data"):
        words = (command, "--target", "rules:f", "--repository", tmp_path / "gone")
        code, _, err = ended(capsys, *words)
        assert code == 2
        assert "gone is not a folder: give the root of the repository" in err


def test_an_audit_takes_a_program_with_a_byte_order_mark_and_refuses_one_that_is_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, evaluator = write(tmp_path)
    program.write_bytes(b"\xef\xbb\xbf" + LINE.replace("x * 2 + 1", "x * x + 3 * x + 7").encode())
    assert ended(capsys, "audit", evaluator, "--target", program)[0] == 0
    program.write_bytes(b"s = '\xe9'\n")
    code, _, err = ended(capsys, "audit", evaluator, "--target", program)
    assert (code, "is no Python source" in err) == (2, True)
