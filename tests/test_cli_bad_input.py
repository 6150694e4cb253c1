"""Bad input from the command line: one clear line on standard error, an exit code of its own, nothing lost."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import command
from processes import press_ctrl_c, whet

from whet.record.store import Store


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`whet` in this process, for what would spend its time on importing torch."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return command(capsys, *words)

    return run


Run = Callable[..., subprocess.CompletedProcess[str]]


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr
    for word in words:
        assert word in done.stderr


def test_no_such_mailbox(tmp_path: Path) -> None:
    refused(
        whet("demo", "--mail", tmp_path / "none", "--output", tmp_path / "out"), 2, "does not exist", "--mail"
    )


def test_an_empty_mailbox(tmp_path: Path, here: Run) -> None:
    (tmp_path / "empty").mkdir()
    refused(here("demo", "--mail", tmp_path / "empty", "--output", tmp_path / "out"), 2, "empty")


def test_a_file_that_is_no_mail(tmp_path: Path, here: Run) -> None:
    picture = tmp_path / "picture.jpg"
    picture.write_bytes(bytes(range(256)) * 40)
    refused(here("demo", "--mail", picture, "--output", tmp_path / "out"), 2, "picture.jpg")


def test_too_few_mailboxes_to_hold_any_out(tmp_path: Path, here: Run) -> None:
    folder = tmp_path / "mail" / "alice"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"{number}.eml").write_text(
            f"Message-ID: <{number}@x>\nFrom: a@x.example\nSubject: hello {number}\n"
            f"Date: Mon, 5 Mar 2001 10:0{number}:00 +0000\n\nThe move is on March 9, 2001, number {number}.\n"
        )
    done = here("demo", "--mail", tmp_path / "mail", "--output", tmp_path / "out")
    refused(done, 2, "mailbox", "--held-out")


def test_a_store_from_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 9999")
    database.close()
    refused(whet("show", "--store", path), 4, "newer")


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_text("dear diary " * 500)
    refused(whet("show", "--store", path), 4, "runs.db")


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mount"), reason="mounting a small tmpfs needs root"
)
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        refused(whet("demo", "--output", disk / "out"), 4, "out")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_no_permission_to_write(tmp_path: Path) -> None:
    # A folder that cannot be made, for root as for anybody: its parent is a file.
    (tmp_path / "file").write_text("x")
    refused(whet("demo", "--output", tmp_path / "file" / "out"), 4, "file")


def test_a_second_server_on_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = subprocess.Popen(
        [sys.executable, "-m", "whet", "serve", "--port", "0", "--store", str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout is not None
        assert "serving" in first.stdout.readline()
        refused(whet("serve", "--port", "0", "--store", path), 4, "runs.db")
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait(90) == 0
        assert first.stdout is not None
        first.stdout.close()


def test_what_the_demo_lacks_is_named_at_once_in_one_line(tmp_path: Path) -> None:
    blocker = tmp_path / "site"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'lightgbm'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    paths = os.pathsep.join([str(blocker), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = whet("demo", "--output", tmp_path / "out", PYTHONPATH=paths)
    refused(done, 3, "torch and lightgbm are not installed. Run: pip install 'whet[train,head]'")
    about = " ".join(whet("--help").stdout.split())
    assert "pip install 'whet[train,head]', then whet demo" in about


def test_resume_without_a_job_and_ask_without_a_release(tmp_path: Path, here: Run) -> None:
    refused(here("demo", "--resume", "--output", tmp_path / "out"), 2, "resume")
    refused(here("demo", "--ask", "When?", "--output", tmp_path / "none"), 2, "whet demo")


def test_outcome_files_that_cannot_be_compared(tmp_path: Path, here: Run) -> None:
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    good.write_text('{"task": "1", "success": true}\n')
    bad.write_text('{"task": "1", "success": true}\n{"task": \n')
    refused(here("verdict", good, bad), 2, "b.jsonl", "2")
    bad.write_text('{"task": "2", "success": true}\n')
    refused(here("verdict", good, bad), 8)
    refused(here("verdict", good, tmp_path / "none.jsonl"), 2, "none.jsonl")


def test_ctrl_c_stops_without_a_traceback_and_says_how_to_go_on(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            # What the demo imports later comes first: numpy cannot be imported again where its import is interrupted.
            "import lightgbm; from whet.cli import main; main()",
            "demo",
            "--output",
            str(tmp_path / "out"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "out" / "whet.db").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        said = press_ctrl_c(running)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, said
    assert "Traceback" not in said
    assert "--resume" in said


def test_a_file_without_a_line_is_no_success(tmp_path: Path, here: Run) -> None:
    empty, store = tmp_path / "empty.jsonl", tmp_path / "runs.db"
    empty.write_text("\n")
    refused(here("import", empty, "--store", store), 2, "empty.jsonl", "no trajectory")
    refused(here("tasks", "add", empty, "--store", store), 2, "empty.jsonl", "no task")
    assert not store.exists()


def test_fewer_than_one_is_refused_by_name(tmp_path: Path, here: Run) -> None:
    store = tmp_path / "runs.db"
    Store(store).close()
    for words in (
        ["show", "trajectories", "--store", store, "--limit", "-1"],
        ["replay", "a:b", "--store", store, "--limit", "0"],
        ["work", "a:b", "--url", "http://127.0.0.1:9", "--token", "x", "--limit", "-1"],
        ["tasks", "add", "a.jsonl", "--store", store, "--times", "0"],
    ):
        done = here(*words)
        assert done.returncode == 2
        assert f"{words[-2]}. Must be >= 1" in done.stderr


@pytest.mark.parametrize("target", ["price.py", "price.py:price"])
def test_a_program_is_no_answer_to_audit_by(target: str, tmp_path: Path, here: Run) -> None:
    (tmp_path / "price.py").write_text("def price(x):\n    return x\n")
    judge = tmp_path / "judge.py"
    judge.write_text("def evaluate(output, expected, input):\n    return float(output == expected)\n")
    done = here("audit", judge, "--target", tmp_path / target)
    refused(done, 2, "is a program", "judges answers")
