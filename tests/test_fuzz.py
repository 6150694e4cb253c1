"""A few seconds of what `scripts/fuzz` does for an hour, and what it has found."""

from __future__ import annotations

import json
from pathlib import Path

import files_fuzzer
import msgspec
import pytest
import server_fuzzer
from otlp_fuzzer import recorded
from server_world import bearer, world

from whet.cli.root import content_of
from whet.errors import InputError, ModelError
from whet.escapes import read_json
from whet.models import ToolCall
from whet.record.lineage import forget
from whet.record.store.bundles import read_bundle
from whet.serve import Role

HEAVY = {"evaluator", "evaluator and labels", "known answers", "rows", "trainable trajectories"}
"""What starts a sandbox or imports torch."""


def test_no_route_of_a_server_fails(data: Path) -> None:
    fuzzer, _ = server_fuzzer.fuzz(seed=0, rounds=400, samples=recorded(data / "otel"))
    assert len(fuzzer.asked) > 50, "nearly every route was asked"
    assert fuzzer.answers[200] > 100, "most of what is sent is valid"


def test_the_fuzzer_would_find_a_path_of_the_host_and_a_traceback() -> None:
    for said in (
        b"/home/ann/runs.db holds no Bundle",
        b'File \\"/x.py\\", line 3',
        b"Traceback (most recent",
    ):
        assert server_fuzzer.HOST.search(said)
    assert not server_fuzzer.HOST.search(b"there is nothing at /api/trajectories/../../etc")


def test_no_file_breaks_a_command() -> None:
    light = len(files_fuzzer.readers()) - len(HEAVY)
    done = files_fuzzer.fuzz(seed=0, rounds=4 * light, among=lambda reader: reader.name not in HEAVY)
    assert sum(count for (_, code), count in done.items() if code == 0) > light, "some are accepted"
    assert any(code == 2 for _, code in done), "and some refused"


def test_a_release_without_a_proof_is_refused_and_no_failure_of_the_server() -> None:
    with world() as here:
        body = {"versions": [{"resource": "p", "content": "x"}], "new_names": True, "reason": ""}
        refused = here.http.post("/api/releases", json=body, headers=bearer(Role.ADMIN))
    assert (refused.status_code, refused.json()["error"]["type"]) == (409, "not_proven")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"a": "\xff\xfe"}', id="at once"),
        # read a second time, once the half character is mended
        pytest.param(b'{"a": "\\ud83d", "b": "\xff"}', id="after a half character"),
        pytest.param(b'\xef\xbb\xbf{"b": "\xff"}', id="after the mark of Windows"),
    ],
)
def test_bytes_that_are_no_text_are_no_json(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match="not UTF-8"):
        read_json(msgspec.json.decode, body)


def test_rows_of_an_erased_person_are_found_beside_lines_that_cannot_be_read(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    hers = {"provenance": {"run": "r1"}, "input": "cut \ud83d"}
    rows.write_bytes(b'{"a": "\xff\xfe"}\n' + json.dumps(hers).encode() + b"\n" + b"[" * 3000 + b"\n")
    (done,) = forget([tmp_path], {"r1"})
    assert (done.rows, done.left) == (1, 2)
    assert b"cut" not in rows.read_bytes()


def test_a_resource_that_is_nested_too_deeply_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b"[" * 5000)
    with pytest.raises(InputError, match=r"r\.json is not JSON: it is nested too deeply"):
        content_of(tmp_path / "r.json")


def test_a_bundle_that_is_nested_too_deeply_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "bundle.json"
    file.write_bytes(b'{"bundle": ' + b"[" * 5000 + b"]" * 5000 + b"}")
    with pytest.raises(InputError, match=r"bundle\.json is not a saved Bundle"):
        read_bundle(file)


def test_arguments_that_a_model_nested_too_deeply_are_its_error() -> None:
    with pytest.raises(ModelError, match="not a JSON object"):
        ToolCall(name="look", arguments='{"a": ' + "[" * 5000 + "]" * 5000 + "}").parsed()


def test_arguments_that_a_model_cut_inside_a_character_are_read() -> None:
    assert ToolCall(name="look", arguments='{"a": "cut \\ud83d", "b": "and \ud83d"}').parsed() == {
        "a": "cut \ufffd",
        "b": "and \ufffd",
    }
