"""Recorded text does not steer the terminal that it is printed on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from whet.cli.terminal import neutral
from whet.record.store import Store
from whet.serve.asgi import VALUES, Refused, parse
from whet.types import Failure, Fault, Step, Task, Trajectory

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


def test_lines_tabs_and_letters_stay() -> None:
    assert neutral("a\tb\r\nc\néא😀") == "a\tb\r\nc\néא😀"
    assert neutral("\x1b[1m") == "\\u001b[1m"
    assert neutral("\x1b[1m\x1b]0;x", styled=True) == "\x1b[1m\\u001b]0;x"


def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    many = b'{"a":[' + b",".join([b"1"] * (VALUES + 1)) + b"]}"
    with pytest.raises(Refused, match=f"more than {VALUES:,}") as refused:
        parse(many, dict)
    assert refused.value.status == 413
    prose = b'{"a":"' + b"well, " * VALUES + b'\\", x"}'
    assert len(parse(prose, dict)["a"]) > VALUES
