"""What is small on the wire and large in memory is refused at every door, by the number of its parts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
from commands import command
from processes import python

from whet.escapes import MOST_VALUES, TooManyValues, read_json

MOST = 128
"""MB for any of them; one body of 600,000 keys took 509 MB when only bytes were counted."""


@pytest.mark.skipif(sys.platform != "linux", reason="the highest memory of a process is read from /proc")
def test_no_body_takes_the_memory_of_the_server() -> None:
    from hostile_bodies import bodies  # megabytes, which each worker would hold from its start

    done = python(Path(__file__).with_name("hostile_bodies.py"))
    assert done.returncode == 0, done.stderr
    sent = json.loads(done.stdout)
    assert sent.keys() == bodies().keys()
    assert {name: one["took"] for name, one in sent.items() if one["took"] > MOST} == {}
    assert {name: one for name, one in sent.items() if one["status"] not in (200, 400, 413)} == {}
    # Accepted is what was left out of the request and counted, or is one long text to us.
    taken = {name for name, one in sent.items() if one["status"] == 200 and "more than" not in one["said"]}
    texts = {"an attribute of JSON", "a result of a tool", "fields of another protocol", "zipped attributes"}
    assert taken <= texts


def test_a_line_of_too_many_values_is_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, store = tmp_path / "many.jsonl", tmp_path / "runs.db"
    numbers = ",".join("1" * (MOST_VALUES + 1))
    file.write_text(f'{{"task":{{"id":"a"}},"instruction":"a","output":[{numbers}]}}\n')
    for words in (["import", file, "--store", store], ["tasks", "add", file, "--store", store]):
        done = command(capsys, *words)
        assert done.returncode == 2
        assert f"more than {MOST_VALUES:,} values" in done.stderr


def test_commas_in_texts_are_no_values() -> None:
    body = b'{"a":"%b"}' % (b"well, " * 50)
    assert read_json(msgspec.json.decode, body, 2)
    with pytest.raises(TooManyValues, match="more than 2 values"):
        read_json(msgspec.json.decode, b"[1,2,3]", 2)
