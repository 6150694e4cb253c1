"""A store where nothing can be written is read: on a read-only medium, in a folder of somebody else's."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from whet.record.store import Store
from whet.record.store.schema import MIGRATIONS
from whet.types import Outcome, Rollout, Span, Task, Trajectory

READ = """
import sys
from whet.cli import app
from whet.errors import StoreError
from whet.record.store import Store
from whet.types import Task, Trajectory
path = sys.argv[1]
with Store(path) as store:
    print(store.trajectory("t").output, store.count("spans"), len(store.spans.run("r")))
    for write in (
        lambda: store.put(Trajectory(task=Task(instruction="x"))),
        lambda: store.queue,
        lambda: store.put_state("key", 1),
    ):
        try:
            write()
        except StoreError as problem:
            print("refused:", "can only be read here" in str(problem) and "copy it to a folder" in str(problem))
try:
    Store(path, serve=True)
except StoreError as problem:
    print("not served:", "writ" in str(problem))
print("show", app(["show", "trajectories", "--store", path, "--json"], result_action="return_value"))
"""


def filled(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "runs.db"
    with Store(path) as store:
        store.put(Trajectory(id="t", task=Task(instruction="x"), output="done", outcome=Outcome.SUCCESS))
        store.spans.put([Span(b"t" * 16, b"s" * 8, b"", 1, 2, "chat", b"{}", "span+json", run="r")]).result()
        store.add_rollouts(Rollout(id="waits", task=Task(instruction="y")))
    return path


def read_only(folder: Path, script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a script where `folder` is mounted read-only, in a namespace of its own."""
    mounted = f'mount --bind -o ro "{folder}" "{folder}" && exec "$0" "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mounted]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("no read-only mount can be made here")
    return subprocess.run(
        [*command, sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_store_on_a_read_only_medium_is_read_and_a_write_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = filled(tmp_path / "medium")
    for name in ("runs.db.lock", "runs.db.sock"):
        (path.parent / name).unlink(missing_ok=True)
    before = sorted(file.name for file in path.parent.iterdir())
    done = read_only(path.parent, READ, path)
    *told, shown, code = done.stdout.splitlines()
    assert told == ["done 1 1", *["refused: True"] * 3, "not served: True"], done.stdout + done.stderr
    assert (json.loads(shown)["output"], code) == ("done", "show 0")
    assert sorted(file.name for file in path.parent.iterdir()) == before


def test_what_a_killed_process_committed_last_is_not_left_out(tmp_path: Path) -> None:
    """It stands in the log beside the file. Without what readers share that cannot be read, and is not passed over."""
    path = filled(tmp_path / "killed")
    script = (
        "import os, sys; from whet.record.store import Store; from whet.types import *\n"
        "store = Store(sys.argv[1]); store.put(Trajectory(id='late', task=Task(id='x'), output='last'))\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, path])
    assert (path.parent / "runs.db-wal").stat().st_size
    read = (
        "import sys; from whet.record.store import Store; print(Store(sys.argv[1]).trajectory('late').output)"
    )
    assert read_only(path.parent, read, path).stdout.strip() == "last"
    (path.parent / "runs.db-shm").unlink()
    refused = read_only(path.parent, read, path)
    assert "last" not in refused.stdout
    assert "Copy both to a folder where you may write" in refused.stderr
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
    with Store(copy / "runs.db") as store:
        assert store.trajectory("late").output == "last"


def test_a_reader_of_a_read_only_mount_sees_what_the_owner_elsewhere_commits(tmp_path: Path) -> None:
    """The same file by two paths: one that may be written, and a read-only mount that only the reader has."""
    path = filled(tmp_path / "shared")
    script = (
        "import sys, subprocess; from whet.record.store import Store\n"
        "store = Store(sys.argv[1]); print(store.count('trajectories'), flush=True)\n"
        "sys.stdin.readline(); print(store.count('trajectories'), flush=True)"
    )
    if read_only(path.parent, "", path).returncode:
        pytest.skip("no read-only mount can be made here")
    mounted = f'mount --bind -o ro "{path.parent}" "{path.parent}" && exec "$0" "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mounted, sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        with Store(path) as store:
            store.put(Trajectory(task=Task(instruction="x"), output="new"))
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == "2\n"


def test_a_store_of_an_older_schema_says_that_it_has_to_be_copied(tmp_path: Path) -> None:
    path = filled(tmp_path / "old")
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {len(MIGRATIONS) - 1}")
    file.close()
    done = read_only(path.parent, "import sys; from whet.record.store import Store; Store(sys.argv[1])", path)
    assert "an older whet wrote it" in done.stderr
    assert "open the copy" in done.stderr
