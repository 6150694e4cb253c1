"""On macOS and Windows: what cannot be done there is one sentence that says what to do, and the rest is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from exports_read import FOLDER
from processes import python

AS_IF = """
import asyncio, os, socket, subprocess, sys, sysconfig, tempfile

sysconfig.get_config_vars()  # made of the name of the real system
sys.platform = {platform!r}
for module in {modules!r}:
    sys.modules[module] = None  # importing it raises ImportError
for name in ("sched_getaffinity", "memfd_create", "setresuid", "setresgid", "pidfd_open"):
    vars(os).pop(name, None)
vars(socket).pop("SO_PEERCRED", None)
"""
COMMAND = """
from whet.__main__ import main

main()
"""


IMPORT = """
import whet

try:
    whet.Store
except ImportError as error:
    sys.exit(str(error))
"""


def run(platform: str, program: str, *words: object, folder: Path) -> tuple[int, str]:
    modules = ["fcntl", "resource", "pwd", "grp", "termios", "tty"] if platform == "win32" else []
    script = folder / "as_if.py"
    script.write_text(AS_IF.format(platform=platform, modules=modules) + program)
    done = python(script, *words, folder=folder, WHET_SANDBOX_IMAGE="")
    return done.returncode, done.stdout + done.stderr


def test_the_sandbox_says_on_macos_that_it_takes_a_container(tmp_path: Path) -> None:
    code, out = run("darwin", COMMAND, "sandbox", "check", folder=tmp_path)
    assert code != 0
    (line,) = out.strip().splitlines()
    assert line.startswith(
        "error: the sandbox is made of Linux's namespaces, which macOS does not have: install Docker"
    )
    assert "WHET_SANDBOX_IMAGE" in line


def test_recording_and_reading_need_nothing_of_linux(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    code, out = run(
        "darwin", COMMAND, "import", "langfuse", FOLDER / "langfuse", "--store", store, folder=tmp_path
    )
    assert code == 0, out
    code, out = run("darwin", COMMAND, "report", "--store", store, folder=tmp_path)
    assert code == 0, out
    assert "1 up, 1 down" in out


@pytest.mark.parametrize("program", [COMMAND, IMPORT])
def test_windows_is_told_where_whet_runs(program: str, tmp_path: Path) -> None:
    code, out = run("win32", program, "doctor", folder=tmp_path)
    assert code == 1
    (line,) = out.strip().splitlines()
    assert line.endswith(
        "whet runs on Linux and macOS; on Windows, use it in WSL 2 (wsl --install) or in a Linux container"
    )
