"""A command of whet in this process, for what would spend its time on starting one."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from whet.cli import main


def command(capsys: pytest.CaptureFixture[str], *words: object) -> subprocess.CompletedProcess[str]:
    """Its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, words)])
    said = capsys.readouterr()
    code = ended.value.code
    return subprocess.CompletedProcess(words, code if isinstance(code, int) else 0, said.out, said.err)


def whet(*words: object, folder: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """A command in a folder, as `processes.whet` runs it, where no code of the folder is imported by it."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder or Path.cwd()):
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(sys, "path", [*sys.path])
        printed = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with printed[0], printed[1], pytest.raises(SystemExit) as ended:
            main([*map(str, words)])
    code = ended.value.code
    own = [
        name
        for name, module in sys.modules.items()
        if folder is not None and str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}")
    ]
    assert not own, f"a process of its own is for commands that import {own}"
    return subprocess.CompletedProcess(
        words, code if isinstance(code, int) else 0, out.getvalue(), err.getvalue()
    )


def answered(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """The JSON that it printed; it must have done what it was asked, and exit 1 where the gate refused the result."""
    done = command(capsys, *words)
    assert done.stdout, done.stderr
    answer = msgspec.json.decode(done.stdout)
    refused = words[0] == "evolve" and bool(answer.get("verdict")) and not answer["promote"]
    assert done.returncode == int(refused), done.stderr
    return answer
