"""Recorded text does not steer the terminal that it is printed on."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from whet.escapes import BOLD, OURS, neutral
from whet.record.store import Store
from whet.serve.http import VALUES, Refused, parse
from whet.types import Bundle, Failure, Fault, Step, Task, Trajectory, Version

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\rg\x08\tt\nh"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("words", [["show", "trajectories"], ["show", "trajectories", "--json"], ["show"]])
def test_a_hostile_record_does_not_steer_the_terminal(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        store.put(
            Trajectory(
                task=Task(instruction=HOSTILE),
                steps=(Step(action=HOSTILE, error=Failure(Fault.AGENT, HOSTILE, HOSTILE)),),
                output=HOSTILE,
                error=Failure(Fault.AGENT, "E", HOSTILE),
            )
        )
    done = subprocess.run(
        [sys.executable, "-m", "whet", words[0], *words[1:], "--store", path], capture_output=True
    )
    printed = (done.stdout + done.stderr).decode()
    assert printed
    assert not STEERING.search(printed), printed


def test_an_error_that_holds_an_argument_does_not_steer_either(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "show", "--store", f"{tmp_path}/\x1b[2J"], capture_output=True
    )
    assert done.returncode
    assert not STEERING.search(done.stderr.decode())


STORED = "a\x1b[31mred\x1b[5A\x1b[2K\x1b]8;;http://x\x1b\\\\link\x1b]52;c;ZXZpbA==\x07\x9b2J\u202e\r\u2066z"
"""What a real terminal obeys: colours, the cursor, a link, the clipboard, C1 codes, directions, an overwritten line."""


def on_a_terminal(*words: object, folder: Path) -> str:
    """What a command writes to a terminal, both streams."""
    ours, its = pty.openpty()
    try:
        # Or the terminal itself would end each line with a carriage return.
        attributes = termios.tcgetattr(its)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(its, termios.TCSANOW, attributes)
        process = subprocess.Popen(
            [sys.executable, "-m", "whet", *map(str, words)],
            stdin=its, stdout=its, stderr=its, cwd=folder, env={**os.environ, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # how Linux says that nobody has the other end any more
            while part := os.read(ours, 65_536):
                said += part
        process.wait(90)
    finally:
        os.close(ours)
    return said.decode()


def hostile_run(folder: Path) -> list[object]:
    with Store(folder / "runs.db") as store:
        failure = Failure(Fault.AGENT, STORED, STORED)
        step = Step(action=STORED, observation=STORED, name=STORED, error=failure)
        store.put(Trajectory(task=Task(instruction=STORED), steps=(step,), output=STORED, error=failure))
        store.set_live(Bundle([Version(resource=STORED, content=STORED, kind="prompt")]), reason=STORED)
    return ["show", "trajectories", "--store", "runs.db"]


def hostile_log(folder: Path) -> list[object]:
    hostile_run(folder)
    return ["show", "--store", "runs.db"]


def hostile_outcomes(folder: Path) -> list[object]:
    rows = [{"task": f"{number} {STORED}", "success": number % 2, "group": STORED} for number in range(8)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["verdict", "a.jsonl", "a.jsonl"]


def hostile_line(folder: Path) -> list[object]:
    (folder / "a.jsonl").write_text(json.dumps({STORED: STORED}))
    return ["verdict", "a.jsonl", "a.jsonl"]


def hostile_evaluator(folder: Path) -> list[object]:
    (folder / "p.py").write_text("# EVOLVE-BLOCK-START\ndef f(x):\n    return x\n# EVOLVE-BLOCK-END\n")
    (folder / "e.py").write_text(f"def evaluate(path):\n    raise ValueError({STORED!r})\n")
    return ["evolve", "p.py", "e.py", "--unsafe-local", "--offline", "--iterations", "2"]


def hostile_word(folder: Path) -> list[object]:
    return ["show", STORED]


def hostile_program(folder: Path) -> list[object]:
    (folder / "p.py").write_text(f"import sys\nprint({STORED!r})\nprint({STORED!r}, file=sys.stderr)\n")
    return ["sandbox", "run", "--unsafe-local", "p.py"]


@pytest.mark.parametrize(
    "arrange",
    [
        hostile_run,
        hostile_log,
        hostile_outcomes,
        hostile_line,
        hostile_evaluator,
        hostile_word,
        hostile_program,
    ],
    ids=lambda arrange: arrange.__name__,
)
def test_text_from_outside_does_not_steer_a_real_terminal(
    arrange: Callable[[Path], list[object]], tmp_path: Path
) -> None:
    said = on_a_terminal(*arrange(tmp_path), folder=tmp_path)
    assert said.strip()
    assert "Traceback" not in said
    # A bold heading, and the colours of a message about the command's own words, are ours.
    own = re.compile(r"\x1b\[[01]m" if arrange is not hostile_word else r"\x1b\[[0-9;]*m")
    assert not STEERING.search(own.sub("", said)), said
    if arrange in (hostile_run, hostile_log, hostile_evaluator, hostile_program):
        assert "\\u001b" in said, "the text was not printed at all"


def test_lines_tabs_and_letters_stay() -> None:
    assert neutral("a\tb\r\nc\néא😀") == "a\tb\r\nc\néא😀"
    assert neutral("\x1b[1m") == "\\u001b[1m"
    assert neutral("\x1b[1m\x1b]0;x\x1b[31m\r", but=BOLD) == "\x1b[1m\\u001b]0;x\\u001b[31m\\u000d"
    assert neutral("\x1b[1;31m\x1b[2K\x1b[5B\r", but=OURS) == "\x1b[1;31m\x1b[2K\\u001b[5B\r"


def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    many = b'{"a":[' + b",".join([b"1"] * (VALUES + 1)) + b"]}"
    with pytest.raises(Refused, match=f"more than {VALUES:,}") as refused:
        parse(many, dict)
    assert refused.value.status == 413
    prose = b'{"a":"' + b"well, " * VALUES + b'\\", x"}'
    assert len(parse(prose, dict)["a"]) > VALUES
