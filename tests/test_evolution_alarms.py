"""A program that pleases its evaluator instead of being better is named before anybody applies it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import command

START = "# EVOLVE-BLOCK-START\ndef value():\n    return 1.0\n# EVOLVE-BLOCK-END\n"


@pytest.mark.parametrize(
    ("body", "evaluator", "alarm"),
    [
        ("return 2.0", "return {'combined_score': p.value()}", ""),
        ("return 5000.0", "return {'combined_score': p.value()}", "jumped from 1 to 5000"),
        (
            "return float(open('/evaluator/answers.txt').read())",
            "return {'combined_score': p.value()}",
            "names files of its evaluator (/evaluator/answers.txt)",
        ),
        (
            "import sys\n    return 1.0 + float(len(sys.modules) > 0)",
            "return {'combined_score': p.value()}",
            "now uses modules, sys",
        ),
        (
            "return 3.0",
            "return {'overall': 1.0 / p.value(), 'speed': p.value()}",
            "its own overall fell from 1 to 0.33",
        ),
        (
            "return 3.0",
            "return {'right': 0.1, 'speed': 1.0} if p.value() == 1 else {'speed': 1.0}",
            "right of the start are missing",
        ),
    ],
)
def test_what_gives_a_program_away_is_an_alarm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, evaluator: str, alarm: str
) -> None:
    (tmp_path / "program.py").write_text(START)
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "answers.txt").write_text("42")
    (folder / "evaluator.py").write_text(
        "import importlib.util\ndef evaluate(path):\n"
        "    spec = importlib.util.spec_from_file_location('p', path)\n"
        "    p = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(p)\n"
        f"    {evaluator}\n"
    )
    text = START.replace("return 1.0", body.replace("/evaluator/", f"{folder}/"))
    (tmp_path / "propose.py").write_text(
        f"import pathlib\n[path.write_text({text!r}) for path in pathlib.Path('program').rglob('*.py')]\n"
    )
    done = command(
        capsys, "evolve", tmp_path / "program.py", folder / "evaluator.py", "--models-only", "--iterations", 1,
        "--unsafe-local", "--json", "--command", f"'{sys.executable}' '{tmp_path / 'propose.py'}'",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["best_score"] > found["start_score"]
    if alarm:
        assert any(alarm in sentence.replace(f"{folder}/", "/evaluator/") for sentence in found["alarms"]), (
            found
        )
    else:
        assert found["alarms"] == []
