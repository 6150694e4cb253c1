"""A command of whet in this process, for what would spend its time on starting one."""

from __future__ import annotations

import subprocess
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


def answered(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    """The JSON that it printed; it must have done what it was asked, and exit 1 where the gate refused the result."""
    done = command(capsys, *words)
    assert done.stdout, done.stderr
    answer = msgspec.json.decode(done.stdout)
    refused = words[0] == "evolve" and bool(answer.get("verdict")) and not answer["promote"]
    assert done.returncode == int(refused), done.stderr
    return answer
