"""The command line where the other end is gone, full, or speaks another alphabet; and Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import press_ctrl_c

from whet.record.store import Store
from whet.types import Task, Trajectory

WHET = (sys.executable, "-m", "whet")
TEXT = "où? ☃ 😀"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A record whose listing is longer than any pipe holds."""
    path = tmp_path / "runs.db"
    with Store(path) as opened:
        opened.put(*(Trajectory(task=Task(instruction=f"{TEXT} {number}")) for number in range(2000)))
    return path


def test_a_bug_ends_with_its_traceback() -> None:
    """Python writes it itself, after the last frame is gone."""
    code = "from whet.cli import terminal; terminal.prepare(); print('where it was'); raise RuntimeError('a bug')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "where it was\n")
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.endswith("RuntimeError: a bug\n")


def test_a_reader_that_has_gone_ends_a_command_quietly(store: Path) -> None:
    for words in (["show", "trajectories"], ["show", "trajectories", "--json"], ["show"]):
        command = subprocess.Popen(
            [*WHET, *words, "--store", str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert command.stdout is not None
        command.stdout.close()
        assert command.stderr is not None
        with command.stderr as said:
            assert said.read() == b""
        assert command.wait(90) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line_and_no_success(store: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*WHET, "show", "--store", str(store)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write: No space left on device\n"


def test_a_folder_that_may_not_be_written_is_one_line(tmp_path: Path) -> None:
    # a file in the way of a folder refuses root as well as anybody
    (tmp_path / "agent.py").write_text("import openai\n")
    (tmp_path / ".whet").write_text("in the way")
    done = subprocess.run([*WHET, "init", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert str(tmp_path / ".whet") in done.stderr


def test_output_that_is_closed_changes_nothing(store: Path) -> None:
    words = shlex.join([*WHET, "show", "trajectories", "--json", "--store", str(store)])
    done = subprocess.run(["sh", "-c", f"{words} >&-"], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_the_letters_gets_them_escaped(tmp_path: Path, encoding: str) -> None:
    task = tmp_path / "tasks.jsonl"
    task.write_text(json.dumps({"instruction": TEXT}))
    named = tmp_path / f"{TEXT[0]}☃😀.db"
    added = [*WHET, "tasks", "add", str(task), "--store", str(named)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    plain = subprocess.run(added, capture_output=True, env=environment, check=True)
    said = plain.stdout.decode(encoding)
    assert "1 run queued" in said or "0 runs queued" in said
    released = [
        *WHET,
        "release",
        "☃é😀",
        str(task),
        "--store",
        str(named),
        "--json",
        "--unproven",
        "--new-name",
    ]
    found = subprocess.run(released, capture_output=True, env=environment, check=True)
    assert list(json.loads(found.stdout.decode(encoding))) == ["☃é😀"]


def test_ctrl_c_does_not_speak_of_resume_where_there_is_none(tmp_path: Path) -> None:
    pipe = tmp_path / "outcomes"
    os.mkfifo(pipe)
    start = [sys.executable, "-c", "from whet.cli import main; main()"]
    reading = subprocess.Popen([*start, "verdict", str(pipe), str(pipe)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while True:  # until the command has opened it to read
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            assert time.monotonic() < deadline
            assert reading.poll() is None
            time.sleep(0.05)
    said = press_ctrl_c(reading)
    os.close(writer)
    assert (reading.returncode, said) == (130, "stopped; acknowledged work is kept.\n")


@pytest.mark.parametrize("when", ["import", "exit"])
def test_ctrl_c_before_and_after_a_command_is_no_traceback(tmp_path: Path, when: str) -> None:
    interrupt = (
        "import atexit, os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
        "class Early:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'whet.cli.show': interrupt()\n"
    )
    arranged = {"import": "sys.meta_path.insert(0, Early())\n", "exit": "atexit.register(interrupt)\n"}[when]
    start = f"{interrupt}{arranged}from whet.__main__ import main; main()"
    command = [sys.executable, "-c", start, "show", "--store", str(tmp_path / "none.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -signal.SIGINT
    assert done.stderr == (
        "" if when == "import" else f"error: there is no store at {tmp_path / 'none.db'}\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["erase"],
        ["show", "trajectories", "--subject"],
        ["release", "p", "FILE", "--unproven", "--new-name", "--reason"],
    ],
)
def test_a_word_that_is_no_text_in_this_locale_is_said_and_nothing_is_recorded(
    tmp_path: Path, words: list[str]
) -> None:
    record, file = tmp_path / "runs.db", tmp_path / "p.txt"
    Store(record).close()
    file.write_text("prompt")
    given = [str(file) if word == "FILE" else word for word in words]
    command = [*map(os.fsencode, [*WHET, *given]), b"caf\xe9", b"--store", os.fsencode(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    with Store(record) as kept:
        assert not any(kept.counts().values())
