"""The worked example: from recorded runs to a patch that the gate promotes, with no model and no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import answered


def run(capsys: pytest.CaptureFixture[str], words: str) -> Any:
    return answered(capsys, *words.split(), "--json")


def test_a_support_desk_gets_better_by_what_people_said_of_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "desk"
    shutil.copytree(repository / "examples/evolve/support_desk", folder)
    monkeypatch.chdir(folder)
    environment = {**os.environ, "PYTHONPATH": str(repository / "src")}
    subprocess.run([sys.executable, "traffic.py"], cwd=folder, env=environment, check=True, timeout=300)

    found = run(capsys, "extract-targets")
    assert [each["name"] for each in found["targets"]] == ["weights", "urgent"]

    (account,) = run(
        capsys, "generate-training-data --target support.agent:handle --num-samples 200 --store runs.db"
    )["targets"].values()
    assert account["sources"] == {"trace": 200}
    assert account["leakage"].startswith("0 shared ids, 0 shared groups")
    assert min(account["splits"].values()) >= 30

    (evaluator,) = run(capsys, "generate-evaluators --target handle")["evaluators"]
    assert evaluator["admitted"]

    done = run(
        capsys,
        "evolve --target weights --target urgent --entry support.agent:handle --iterations 70 --seed 1",
    )
    gate = done["scores"]["handle"]["gate"]
    assert gate["after"] > gate["before"] + 0.05
    assert done["evaluators"]["handle"].startswith("handle_extraction")
    assert done["verdict"]["effect"] == pytest.approx(gate["after"] - gate["before"], abs=0.05)
    # Reviewed and applied, the source is what was judged: nobody who waits for a day is forgotten any more.
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True, timeout=300)
    subprocess.run(["git", "apply", done["patch"]], cwd=folder, check=True, timeout=300)
    text = (folder / "support/urgency.py").read_text(encoding="utf-8")
    assert text.startswith('"""Whether somebody must look at once."""\n\nimport whet\n')
    assert '@whet.evolve(kind="tool", metric="accuracy")' in text
