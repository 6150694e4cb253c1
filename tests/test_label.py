"""`whet label` in a terminal: keys are recorded at once, undone, and gone on with."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import python

from whet.record.store import Store
from whet.types import Task, Trajectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Four runs, of which the last repeats the first."""
    said = [
        ("Is it red?", "Yes."),
        ("Is it blue?", "No."),
        ("How big is it?", "Big."),
        ("Is it red?", "Yes."),
    ]
    with Store(tmp_path / "runs.db") as store:
        for number, (question, answer) in enumerate(said):
            store.put(Trajectory(id=f"run-{number}", task=Task(instruction=question), output=answer))
    return tmp_path / "runs.db"


class Terminal:
    """A `whet label` in a terminal of its own."""

    def __init__(self, path: Path) -> None:
        self.ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "whet", "label", "--store", str(path)]
        self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
        os.close(theirs)
        self.shown = ""

    def until(self, text: str) -> str:
        """What it shows from now on, up to a text."""
        deadline, start = time.monotonic() + 90, len(self.shown)
        while text not in self.shown[start:]:
            assert time.monotonic() < deadline, self.shown
            try:
                self.shown += os.read(self.ours, 4096).decode()
            except OSError:  # Linux: the other side is closed
                break
        assert text in self.shown[start:], self.shown
        return self.shown[start:]

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        code = self.process.wait(timeout=90)
        os.close(self.ours)
        return code


def thumbs(path: Path) -> dict[str, list[object]]:
    with Store(path) as store:
        return {
            run.id: [
                note.value if note.kind == "thumb" else note.correction or note.comment
                for note in run.feedback
            ]
            for run in store.trajectories()
        }


def test_keys_in_a_terminal_are_recorded_undone_and_resumed(path: Path) -> None:
    first = Terminal(path)
    shown = first.until("[q] quit")
    assert "1 of 4 runs" in shown
    assert "user: Is it red?" in shown
    first.press("u")
    assert "Is it blue?" in first.until("[q] quit")
    first.press("x")
    first.until("'x' is none of")
    first.press("d")
    first.until("[q] quit")
    first.press("z")
    assert "user: Is it blue?" in first.until("[q] quit")
    assert thumbs(path)["run-1"] == [-1.0, 0.0]
    first.press("s")
    assert "How big is it?" in first.until("[q] quit")
    first.press("q")
    assert "1 up, 0 down, 0 corrected, 1 skipped; 2 runs left" in first.until("to go on")
    assert first.end() == 0
    second = Terminal(path)
    shown = second.until("[q] quit")
    assert "1 of 2 runs" in shown
    assert "How big is it?" in shown
    second.press("c")
    second.until("right answer: ")
    second.press("40 cm\n")
    assert "Is it red?" in second.until("[q] quit")
    second.press("d")
    second.until("0 runs left")
    assert second.end() == 0
    assert thumbs(path) == {"run-0": [1.0], "run-1": [-1.0, 0.0], "run-2": ["40 cm", -1.0], "run-3": [-1.0]}


def test_without_a_terminal_each_line_is_a_key(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "label", "--store", str(path), "--limit", "3"],
        input="t\ntoo short\nu\nd\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert thumbs(path) == {"run-0": ["too short", 1.0], "run-1": [-1.0], "run-2": [], "run-3": []}
    rest = python("-m", "whet", "label", "--store", path, "--contains", "blue")
    assert "every run that fits is rated or was skipped" in rest.stdout
