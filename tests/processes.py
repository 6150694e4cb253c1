"""What tests do with processes of their own: run a program or a command to its end, and wait for what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


def python(*words: object, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """This Python with these arguments, in a folder."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=600,
    )


def whet(*words: object, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command as a shell starts it."""
    return python("-m", "whet", *words, folder=folder, **environ)


def until(condition: Callable[[], object], missing: str = "it did not happen in time") -> None:
    """Wait until it is so; five minutes are more than any of it takes on a busy machine."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, missing
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def press_ctrl_c(process: subprocess.Popen[str], seconds: float = 300) -> str:
    """Interrupt a command until it ends, as a person would, and return its standard error.

    Python loses an interrupt that comes between its last look for one and a read that then blocks, and one that
    comes while it runs a destructor.
    """
    deadline = time.monotonic() + seconds
    while True:
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            assert time.monotonic() < deadline, "it does not stop at Ctrl-C"
