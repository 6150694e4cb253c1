"""The scripts are sound before anybody runs them, and CI runs what a person runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"]


def test_the_promised_scripts_exist() -> None:
    assert {"install", "demo", "test", "check", "reference", "run"} <= {script.name for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_executable_stops_at_the_first_error_and_parses(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "\nset -euo pipefail\n" in text
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=300)


def test_ci_checks_tries_the_real_clients_and_ends_with_the_tests() -> None:
    commands = [
        line.split()[0]
        for line in SCRIPTS[-1].read_text().splitlines()
        if line.strip().startswith("scripts/")
    ]
    assert commands == ["scripts/check", "scripts/test-integrations", "scripts/test"]


def test_an_interpreter_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    """A version manager's command that is there and fails must not be chosen."""
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "python3.11"
    broken.write_text("#!/bin/sh\necho 'python3.11: command not found' >&2\nexit 127\n")
    broken.chmod(0o755)
    text = (ROOT / "scripts" / "install").read_text(encoding="utf-8")
    functions = "\n".join(
        text[text.index(start) : text.index(end, text.index(start)) + len(end)]
        for start, end in (("say() {", "}\n"), ("usable() {", "}\n"), ("find_python() {", "\n}\n"))
    )
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{functions}\nfind_python"],
        env={**os.environ, "PATH": path, "PYTHON": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() != "python3.11"
    if done.returncode:  # a machine whose only interpreter is the one that runs this test
        assert "needs Python 3.11 or newer" in done.stderr


def test_the_files_that_begin_a_run_are_there() -> None:
    from conftest import LONG

    assert not [name for name in LONG if not (ROOT / "tests" / f"{name}.py").is_file()]
