"""Spans in a real store become trajectories when they are complete, and late ones make revisions."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import command
from otlp_spans import TRACE, call, decoded, one
from processes import until

from whet.record.store import Store
from whet.record.tracing.assemble import NO_ROOT, TOGETHER, Assembler
from whet.record.tracing.dialects import trajectory_id
from whet.record.tracing.otlp import decode
from whet.types import Outcome, Score, Span, Trajectory

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
ROOT = one("invoke_agent a", AGENT, lasts=9)
FIRST = one("chat 1", CHAT, parent="invoke_agent a", at=1)
SECOND = one("chat 2", CHAT, parent="invoke_agent a", at=3)
ID = trajectory_id(TRACE, None)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "record.db") as opened:
        yield opened


def arrive(store: Store, *spans: Span) -> float:
    """Put spans; the time at which they arrived."""
    store.spans.put(spans).result()
    return time.time()


def names(trajectory: Trajectory) -> list[str]:
    return [step.name for step in trajectory.steps]


def test_a_run_is_written_once_its_root_has_ended_and_it_is_quiet(store: Store) -> None:
    assembler = Assembler(store, grace=2.0)
    now = arrive(store, *decoded(FIRST, SECOND))
    assert assembler.step(now + 50) == 0, "children came and their root did not"
    now = arrive(store, *decoded(ROOT))
    assert assembler.step(now) == 0, "it is not quiet yet"
    assert assembler.step(now + 2.1) == 1
    assert names(store.trajectory(ID)) == ["a", "chat 1", "chat 2"]
    assert assembler.step(now + 60) == 0, "nothing has arrived since"


def test_a_late_span_makes_a_revision_and_what_was_judged_stays(store: Store) -> None:
    assembler = Assembler(store, grace=2.0)
    now = arrive(store, *decoded(ROOT, FIRST))
    assert assembler.step(now + 3) == 1
    before = store.trajectory(ID)
    score = Score("exact", 1.0)
    store.put(replace(before.scored(score), outcome=Outcome.SUCCESS), replace=True)
    now = arrive(store, *decoded(SECOND))
    assert assembler.step(now + 3) == 0, "each revision waits twice as long"
    assert assembler.step(now + 5) == 1
    after = store.trajectory(ID)
    assert names(after) == ["a", "chat 1", "chat 2"]
    assert (after.scores, after.outcome) == ({"exact": score}, Outcome.SUCCESS)
    assert [names(each) for each in store.revisions(ID)][-1] == ["a", "chat 1"]
    assert store.counts()["trajectories"] == 1


def test_a_span_that_came_before_changes_nothing(store: Store) -> None:
    assembler = Assembler(store)
    spans = decoded(ROOT, FIRST)
    now = arrive(store, *spans)
    assert assembler.step(now + 3) == 1
    assert Assembler(store).step(math.inf) == 0
    again = Assembler(store)
    store.put_state("assembler", 0)  # as after a crash between the write and the next look
    assert again.step(now + 60) == 0
    assert list(store.revisions(ID)) == []


def test_a_run_whose_root_never_comes_is_written_and_says_so(store: Store) -> None:
    assembler = Assembler(store, grace=2.0, patience=30.0)
    now = arrive(store, *decoded(one("chat 1", CHAT, parent="elsewhere")))
    assert assembler.step(now + 10) == 0
    assert assembler.step(now + 31) == 1
    assert NO_ROOT in store.trajectory(ID).meta["notes"]


def test_calls_whose_agent_sends_its_spans_elsewhere_are_not_waited_for_long(store: Store) -> None:
    assembler = Assembler(store)
    now = arrive(store, call(parent="elsewhere", run=None))
    assert assembler.step(now + 5) == 0
    assert assembler.step(now + 16) == 1


def test_several_traces_of_one_run_are_one_trajectory(store: Store) -> None:
    assembler = Assembler(store)
    other = bytes(range(16, 32))
    run = {"resource": {"whet.run": "mine"}}
    now = arrive(store, *decoded(ROOT, FIRST, **run))
    assert assembler.step(now + 3) == 1
    now = arrive(
        store, *decoded(one("chat 2", CHAT, trace=other, at=20), **run), call("loose", run="mine", at=30)
    )
    assert assembler.step(now + 5) == 1
    (whole,) = store.trajectories()
    assert whole.trace_ids == (TRACE.hex(), other.hex())
    assert len(whole.steps) == 4
    assert whole.meta["run"] == "mine"
    assert [each.id for each in store.trajectories(ids=["mine"])] == [whole.id]


def test_spans_of_a_trace_that_do_not_name_its_run_belong_to_it(store: Store) -> None:
    named = decoded(one("invoke_agent a", AGENT | {"whet.run": "mine"}, lasts=9))
    now = arrive(store, *decoded(FIRST))
    assembler = Assembler(store)
    assembler.step(now)
    now = arrive(store, *named)
    assert assembler.step(now + 60) == 1
    (whole,) = store.trajectories()
    assert names(whole) == ["a", "chat 1"]
    assert whole.meta["run"] == "mine"
    now = arrive(store, *decoded(SECOND))
    assert assembler.step(now + 60) == 1, "late, and it does not name the run either"
    (whole,) = store.trajectories()
    assert names(whole) == ["a", "chat 1", "chat 2"]


def test_traces_that_hold_no_step_make_no_trajectory(store: Store) -> None:
    now = arrive(store, *decoded(one("create_agent x", {"gen_ai.operation.name": "create_agent"})))
    assembler = Assembler(store)
    assert assembler.step(now + 60) == 0
    assert list(store.trajectories()) == []
    assert assembler.step(now + 61) == 0


def test_what_was_open_is_found_again_after_a_restart(tmp_path: Path) -> None:
    with Store(tmp_path / "record.db") as store:
        assembler = Assembler(store)
        now = arrive(store, *decoded(FIRST))
        other = bytes(range(16, 32))
        arrive(store, *decoded(one("whole", AGENT, trace=other)))
        assert assembler.step(now + 3) == 1, "the other one is complete"
    with Store(tmp_path / "record.db") as store:
        now = arrive(store, *decoded(ROOT))
        assert Assembler(store).step(now + 3) == 1
        assert names(store.trajectory(ID)) == ["a", "chat 1"]
        assert store.counts()["trajectories"] == 2


def test_many_runs_interleaved_are_each_whole(store: Store, data: Path) -> None:
    spans = []
    for path in sorted((data / "otel").glob("*.pb")):
        spans += decode(path.read_bytes(), json=False, logs="logs" in path.name).spans
    assembler = Assembler(store)
    for place in range(0, len(spans), 7):
        now = arrive(store, *spans[place::7][:15])
        assembler.step(now)
    now = arrive(store, *spans)
    written = assembler.step(now + 60) + assembler.step(math.inf)
    found = list(store.trajectories())
    assert written == len(found)
    wanted = [json.loads(path.read_text()) for path in (data / "otel").glob("*.expected.json")]
    assert len(found) == sum(len(each["runs"]) for each in wanted)
    assert sum(len(each.steps) for each in found) == sum(len(each["steps"]) for each in wanted)
    assert not any(each.meta.get("unread") for each in found)


def test_a_run_that_cannot_be_stored_as_json_is_noted_and_stops_nothing(store: Store) -> None:
    body = json.dumps({"n": 2**70})
    other = bytes(range(16, 32))
    huge = one("get", {"openinference.span.kind": "TOOL", "input.value": body})
    now = arrive(store, *decoded(huge, one("chat 1", CHAT, trace=other)))
    assert Assembler(store).step(now + 3) == 2
    assert names(store.trajectory(trajectory_id(other, None))) == ["chat 1"]
    assert store.trajectory(ID) is not None


def test_many_runs_are_written_in_several_commits(store: Store) -> None:
    spans = [
        span._replace(trace=place.to_bytes(16, "big"))
        for place in range(1, TOGETHER + 11)
        for span in decoded(ROOT)
    ]
    arrive(store, *spans)
    assembler = Assembler(store)
    assert assembler.step(math.inf) == TOGETHER
    assert assembler.flush() == 10
    assert store.counts()["trajectories"] == TOGETHER + 10


def test_a_backlog_waits_in_the_record_and_not_in_memory(store: Store) -> None:
    traces = [bytes([number]) * 16 for number in range(1, 13)]
    for trace in traces:
        now = arrive(store, *decoded(one("invoke_agent a", AGENT, trace=trace)))
    assembler = Assembler(store, most=5)
    written = [assembler.step(now), *(assembler.step(now + 3) for _ in range(4))]
    assert (max(written), sum(written)) == (5, 12)
    assert {each.id for each in store.trajectories()} == {trace.hex() for trace in traces}
    arrive(store, *(call(str(number), run=f"run-{number}") for number in range(12)))
    assert Assembler(store, most=5).flush() == 12


def test_what_a_stop_had_no_time_for_is_gone_on_with_at_the_next_start(store: Store) -> None:
    runs = TOGETHER + 10
    arrive(store, *(call(str(number), run=f"run-{number}") for number in range(runs)))
    assert Assembler(store).flush(seconds=0.0) == TOGETHER, "one step is taken, and no other begun"
    assert Assembler(store).flush() == 10
    assert store.count("trajectories") == runs


def test_the_loop_runs_until_it_is_told_to_stop(store: Store) -> None:
    assembler = Assembler(store, grace=0.0)
    stop = threading.Event()
    thread = threading.Thread(target=assembler.run, args=(stop,), kwargs={"every": 0.01})
    thread.start()
    try:
        arrive(store, *decoded(ROOT, FIRST))
        until(lambda: store.counts()["trajectories"])
        arrive(store, call(run="last", parent="elsewhere", trace=bytes(range(16, 32))))
    finally:
        stop.set()
        thread.join(90)
    assert not thread.is_alive()
    assert assembler.failure is None
    assert store.trajectory("last").meta["notes"] == [NO_ROOT], (
        "nothing more will come: it is written as it is"
    )


# -- whet show trajectories -------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    done = command(capsys, "show", "trajectories", *words, "--json")
    assert done.returncode == 0
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_show_prints_what_was_captured_line_by_line(
    store: Store, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = data / "otel"
    expected = json.loads((folder / "pydantic_ai__builtin__concurrent.expected.json").read_text())
    for name in expected["files"]:
        arrive(store, *decode((folder / name).read_bytes(), json=False, logs=False).spans)
    Assembler(store).flush()
    found = shown(capsys, "--store", store.path)
    assert len(found) == len(expected["runs"]) == 3
    for run, each in enumerate(found):
        wanted = [step for step in expected["steps"] if step["run"] == run]
        first = wanted[0]["index"]
        for step, other in zip(each["steps"], wanted, strict=True):
            assert step["parent"] == (None if other["parent"] is None else other["parent"] - first)
            for name in (
                "kind",
                "span_ids",
                "name",
                "model",
                "input_messages",
                "output",
                "arguments",
                "usage",
            ):
                assert step[name] == other[name]
        assert {"id", "outcome", "error", "steps"} <= set(each)
    one_run = found[1]
    assert shown(capsys, "--store", store.path, "--run", one_run["id"]) == [one_run]
    last = max(each["started"] for each in found)
    assert len(shown(capsys, "--store", store.path, "--since", str(last))) == 1
    assert len(shown(capsys, "--store", store.path, "--since", "2020-01-01")) == 3
    assert len(shown(capsys, "--store", store.path, "--limit", "2")) == 2


def test_show_gives_token_ids_and_reads_beside_a_process_that_writes(store: Store) -> None:
    told = [{"prompt_ids": [1, 2], "output_ids": [3], "logprobs": [-0.5]}]
    arrive(store, call(choices=told, policy_version="7"))
    Assembler(store).flush()
    words = [sys.executable, "-m", "whet", "show", "trajectories", "--store", store.path, "--json"]
    ran = subprocess.run([*words, "--run", "run-1"], capture_output=True, text=True, check=True, timeout=300)
    (line,) = ran.stdout.splitlines()
    tokens = json.loads(line)["steps"][0]["tokens"]
    assert tokens == {
        "prompt_ids": [1, 2],
        "output_ids": [3],
        "logprobs": [-0.5],
        "mask": None,
        "policy_version": "7",
    }


def test_show_without_json_is_a_line_for_people(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    arrive(store, call(run="mine"))
    Assembler(store).flush()
    out = command(capsys, "show", "trajectories", "--store", store.path).stdout
    assert "1 step " in out
    assert "weather?" in out
    assert "trajectories" in command(capsys, "show", "--store", store.path).stdout


@pytest.mark.parametrize("words", [["--run", "nobody"], ["--since", "yesterday"]])
def test_show_says_what_it_cannot_find(
    store: Store, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    done = command(capsys, "show", "trajectories", "--store", store.path, *words)
    assert done.returncode == 2
    assert words[1] in done.stderr
