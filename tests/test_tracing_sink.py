"""From the caller to the store: nothing is lost silently, whatever the store or process does."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.record.store import Store
from whet.record.store.redaction.redact import EMAIL, Redactor
from whet.record.tracing import feedback, flush, redact_with, run, step, trace
from whet.types import Tokens, Trajectory

AGENT = """
import multiprocessing, os, sys
from whet.record.tracing import flush, run, feedback, trace
@trace(sys.argv[1])
def agent(question):
    return question
def work(name):
    for n in range(50):
        agent(f"{name}-{n}")
"""


def program(body: str, *arguments: object, wait: bool = True) -> subprocess.Popen[str]:
    given = [sys.executable, "-c", AGENT + body, *map(str, arguments)]
    process = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if wait:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        process.said = out + err  # type: ignore[attr-defined]
    return process


def questions(path: Path) -> list[str]:
    with Store(path) as store:
        return sorted(each.task.instruction for each in store.trajectories())


def spools(path: Path) -> list[Path]:
    return sorted(path.parent.glob(path.name + ".spool-*"))


def test_a_program_that_just_ends_has_everything_recorded(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    program("work('a')", path)
    assert questions(path) == sorted(f"a-{n}" for n in range(50))
    assert spools(path) == []


def test_many_programs_record_to_one_store_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path):
        running = [program(f"work('p{n}')", path, wait=False) for n in range(4)]
        for each in running:
            _, err = each.communicate(timeout=300)
            assert each.returncode == 0, err
    assert questions(path) == sorted(f"p{n}-{k}" for n in range(4) for k in range(50))


def test_forked_children_and_multiprocessing_workers_record_with_a_writer_of_their_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    program(
        """
work("parent")
child = os.fork()
if not child:
    work("forked")
    sys.exit(0)
os.waitpid(child, 0)
context = multiprocessing.get_context("fork")
workers = [context.Process(target=work, args=(f"worker{n}",)) for n in range(2)]
for each in workers: each.start()
for each in workers: each.join()
work("after")
""",
        path,
    )
    names = ("parent", "forked", "worker0", "worker1", "after")
    assert questions(path) == sorted(f"{name}-{n}" for name in names for n in range(50))


def test_without_a_store_it_spools_and_the_next_owner_takes_the_spool_in(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.mkdir()  # nothing can be opened there
    body = 'with run() as now: agent("hello")\nfeedback(now.id, -1.0, "wrong")\nwork("a")'
    program(body, path)
    program(body, path)
    assert len(spools(path)) == 2
    path.rmdir()
    with Store(path) as store:
        found = [each for each in store.trajectories() if each.task.instruction == "hello"]
        assert [each.feedback[0].comment for each in found] == ["wrong", "wrong"]
        assert store.counts()["trajectories"] == 102
    assert spools(path) == []


def test_a_spool_is_taken_in_up_to_where_its_process_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.mkdir()
    program("work('a')", path)
    (spool,) = spools(path)
    with spool.open("ab") as file:
        file.write(struct.pack(">I", 1_000) + b"half")
    path.rmdir()
    assert len(questions(path)) == 50
    assert spools(path) == []


def test_a_spool_that_makes_no_sense_is_set_aside_and_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    bad = tmp_path / "runs.db.spool-1"
    bad.write_bytes(struct.pack(">I", 4) + b"junk")
    assert questions(path) == []
    assert [each.name for each in spools(path)] == ["runs.db.spool-1.bad"]
    assert questions(path) == []


def test_calls_after_the_store_was_closed_are_spooled_not_lost(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")

    @trace(store)
    def agent(question: str) -> str:
        return question

    agent("before")
    store.close()
    assert agent("after") == "after"
    assert flush()
    assert questions(tmp_path / "runs.db") == ["after", "before"]


def test_closing_the_store_records_what_was_traced_until_then(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        agent = trace(store)(str.upper)
        for n in range(500):
            agent(str(n))
    assert len(questions(tmp_path / "runs.db")) == 500
    assert spools(tmp_path / "runs.db") == []


def test_a_full_queue_drops_and_counts_and_never_blocks(tmp_path: Path) -> None:
    body = """
from whet.record.tracing import dropped, sink
sink.LIMIT = 10
for _ in range(2_000):
    agent("q")
flush()
print(dropped())
"""
    done = program(body, tmp_path / "runs.db")
    count, _, goodbye = done.said.partition("\n")  # type: ignore[attr-defined]
    assert int(count) > 0
    assert len(questions(tmp_path / "runs.db")) + int(count) == 2_000
    assert f"{count} traced records were dropped" in goodbye


def test_what_was_dropped_is_said_at_the_end_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "runs.db"  # neither store nor spool can be written
    done = program("work('a')", path)
    assert "50 traced records were dropped" in done.said  # type: ignore[attr-defined]


def test_a_caller_touches_no_file_and_waits_for_nothing_even_when_the_store_cannot_be_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "runs.db"
    path.mkdir()
    body = """
import sys, threading
from whet.record.tracing import flush, trace
OUTSIDE = ("open", "os.", "sqlite3.", "socket.", "time.sleep")
agent, caller, calling, done = trace(sys.argv[1])(str.upper), threading.get_ident(), False, []
def heard(event, _):
    if calling and threading.get_ident() == caller and event.startswith(OUTSIDE):
        done.append(event)
sys.addaudithook(heard)
agent("q")  # the first starts the thread that writes
calling = True
for _ in range(1_000):
    agent("q")
calling = False
assert flush()
open(sys.argv[1] + ".seen", "w").close()
calling = True
open(sys.argv[1] + ".seen").close()
assert done == ["open"], done  # what was heard, had there been anything
"""
    subprocess.run([sys.executable, "-c", body, str(path)], check=True, timeout=300)
    assert len(spools(path)) == 1
    path.rmdir()
    assert len(questions(path)) == 1_001


def test_the_default_store_is_named_by_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.db"
    body = "from whet.record.tracing import trace\n@trace\ndef f(q): return q\nf('x')"
    environment = {**os.environ, "WHET_STORE": str(path)}
    subprocess.run([sys.executable, "-c", body], env=environment, check=True, cwd=tmp_path, timeout=300)
    assert questions(path) == ["x"]


def test_no_id_comes_twice_from_threads_and_runs(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        agent = trace(store)(str.upper)
        for _ in range(3_000):
            agent("q")
        assert flush()
        found: list[Trajectory] = list(store.trajectories())
    assert len({each.id for each in found}) == 3_000


KEY = "sk-" + "a1B2" * 12


def agent_with_a_secret(path: Path) -> None:
    """A traced call that is given a key, passes it to a tool and a model, says it, and fails with it."""

    @step(kind="tool")
    def login(key: str) -> dict[str, str]:
        return {"used": key}

    @trace(path)
    def agent(question: str) -> str:
        login(KEY)
        with step("ask", kind="llm", observation=[{"role": "user", "text": KEY}]) as now:
            now.action, now.tokens = "fine", Tokens([1, 2], [3], [-0.5])
        with step("ask", kind="llm", observation="nothing secret") as now:
            now.tokens = Tokens([1], [4], [-0.5])
        raise ValueError(f"{question} did not work")

    with run() as handle, pytest.raises(ValueError, match="did not work"):
        agent(f"log in with {KEY}")
    feedback(handle, 1.0, f"you said {KEY}", correction={"key": KEY})
    assert flush()


def written(path: Path) -> bytes:
    """Every byte of a store's files, its WAL and spools among them."""
    return b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*") if each.is_file())


def test_a_secret_never_reaches_the_file_and_its_tokens_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        agent_with_a_secret(path)
        assert KEY.encode() not in written(path)
        (found,) = store.trajectories()
    assert found.task.instruction == "log in with [redacted:openai-key]"
    assert found.error is not None
    assert found.error.message == "log in with [redacted:openai-key] did not work"
    assert [each.tokens is None for each in found.steps] == [True, True, False]
    assert found.meta["untrainable"] == "text was redacted: openai-key"
    assert found.feedback[0].comment == "you said [redacted:openai-key]"
    assert KEY.encode() not in written(path)


def test_a_secret_never_reaches_the_spool_either(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "runs.db"
    path.parent.mkdir()
    path.mkdir()  # no store can be opened here
    agent_with_a_secret(path)
    (spool,) = spools(path)
    assert b"[redacted:openai-key]" in spool.read_bytes()
    assert KEY.encode() not in spool.read_bytes()


def test_what_counts_as_a_secret_can_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    @trace(path)
    def agent(question: str) -> str:
        return question

    try:
        redact_with(Redactor([EMAIL]))
        agent(f"{KEY} of ann@example.org")
        flush()
        redact_with(None)
        agent(f"{KEY} of ann@example.org")
        flush()
    finally:
        redact_with(Redactor())
    assert questions(path) == [f"{KEY} of [redacted:email]", f"{KEY} of ann@example.org"]


@pytest.mark.parametrize("pause", [0.0, 0.02, 1.0], ids=["busy", "listening", "asleep"])
def test_what_is_recorded_is_written_without_being_flushed(tmp_path: Path, pause: float) -> None:
    with Store(tmp_path / "runs.db") as store:
        traced = trace(store)(lambda number: number)
        for number in range(3):
            time.sleep(pause)
            traced(number)
            deadline = time.monotonic() + 90
            while pause and store.counts()["trajectories"] <= number:
                assert time.monotonic() < deadline, f"call {number} was not written"
                time.sleep(0.002)
        while store.counts()["trajectories"] < 3:
            assert time.monotonic() < deadline, "a call was not written"
            time.sleep(0.002)
