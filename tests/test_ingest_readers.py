"""Processes that read for the server: what they give back is the same, and one that is killed costs nothing."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
from otlp_spans import one, request
from processes import until
from server_world import World, bearer, world

from whet.serve import Role
from whet.serve.ingest import OTLP
from whet.types import Trajectory

NEVER = 3600.0
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
SECRET = "sk-ant-" + "a1b2c3d4" * 4


def trace(number: int, note: str = "x" * 6_000) -> list[dict[str, Any]]:
    """A whole trace in a request that is too long to be read in the loop."""
    id = bytes([number]) * 16
    return [
        one("invoke_agent a", AGENT, trace=id, lasts=9),
        one(
            "chat",
            {"gen_ai.operation.name": "chat", "note": note, "gen_ai.input.messages": json.dumps([])},
            trace=id,
            parent="invoke_agent a",
        ),
    ]


def send(here: World, body: bytes, **headers: str) -> httpx2.Response:
    return here.http.post(
        "/v1/traces",
        content=body,
        headers={**bearer(Role.WRITE), "content-type": "application/json", **headers},
    )


def readers_of(here: World) -> Any:
    (otlp,) = (part for part in here.server.parts if isinstance(part, OTLP))
    return otlp._readers


def pids(here: World) -> list[int]:
    return list(readers_of(here).pids)


def test_a_process_reads_what_the_server_would_and_its_death_loses_nothing(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER, readers=1) as here:
        secret = {"note": SECRET}
        first = [*trace(1), one("tool", secret, trace=bytes([1]) * 16, parent="chat")]
        assert send(here, request(*first)).status_code == 200, "while the process starts, the server reads"
        until(lambda: pids(here))
        (pid,) = pids(here)
        again = [span | {"traceId": (bytes([2]) * 16).hex()} for span in first]
        packed = gzip.compress(request(*again))
        assert send(here, packed, **{"content-encoding": "gzip"}).status_code == 200
        assert send(here, b"[" + b" " * 9_000).status_code == 400, "the process says what is wrong with it"

        def read(number: int) -> Trajectory:
            return here.store.trajectory((bytes([number]) * 16).hex())

        assert [step.name for step in read(1).steps] == [step.name for step in read(2).steps]
        assert read(1).meta["redacted"] == read(2).meta["redacted"] == {"anthropic-key": 1}
        assert pids(here) == [pid]
        os.kill(pid, signal.SIGKILL)
        answers = [send(here, request(*trace(number))).status_code for number in range(3, 8)]
        assert answers == [200] * 5
        until(lambda: pids(here) not in ([], [pid]))
        assert {each.id for each in here.store.trajectories()} == {
            (bytes([number]) * 16).hex() for number in range(1, 8)
        }
        (pid,) = pids(here)
    until(lambda: not running(pid))


def test_a_secret_that_the_server_alone_knows_is_redacted_too(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER, readers=1) as here:
        readers = readers_of(here)
        send(here, request(*trace(1)))
        until(lambda: pids(here))
        readers._redactor.know("correct horse battery staple")
        for number, note in enumerate(
            ("correct horse battery staple", "correct horse \\u0062attery staple"), 2
        ):
            body = request(*trace(number, "x" * 6_000 + " NOTE")).replace(b"NOTE", note.encode())
            assert send(here, body).status_code == 200
            spans = here.store.spans.trace(bytes([number]) * 16)
            assert not any(b"staple" in span.body for span in spans)


def running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_server_that_is_killed_leaves_no_reader_and_loses_no_trace_it_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    words = ["serve", "--store", str(store), "--port", "0", "--token", "t" * 20, "--readers", "1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "whet", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stderr is not None
    url = server.stdout.readline().split(" on ")[1].split(";")[0]
    headers = {"authorization": f"Bearer {'t' * 20}", "content-type": "application/json"}

    def export(number: int) -> None:
        # The root in one request, the rest in the next: such a run is open when the server is killed.
        for spans in ([span] for span in trace(number)) if number % 2 else [trace(number)]:
            answered = httpx2.post(f"{url}/v1/traces", content=request(*spans), headers=headers, timeout=90)
            assert answered.status_code == 200

    try:
        number = 0
        until(lambda: export(20) or readers(server.pid))
        for number in range(1, 9):
            export(number)
        reading = readers(server.pid)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    until(lambda: not any(running(pid) for pid in reading))
    with server.stderr as said:
        assert said.read() == "", "nothing was left behind that would have to be cleared away"
    with world(store, grace=0.05) as here:
        until(lambda: here.store.count("trajectories") == number + 1, "the eight, and the first")
        until(lambda: here.get("/api/health")["open"] == 0)
        assert all(len(each.steps) == 2 for each in here.store.trajectories())


def readers(pid: int) -> list[int]:
    """The processes that a server has started and that read, by their command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"read_exports" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    time.sleep(0.05)
    return found


def test_a_process_that_dies_with_requests_waiting_for_it_loses_none_of_them(tmp_path: Path) -> None:
    with world(tmp_path / "runs.db", grace=NEVER, readers=1) as here:
        send(here, request(*trace(1)))
        until(lambda: pids(here))
        (pid,) = pids(here)
        os.kill(pid, signal.SIGSTOP)  # it takes what it is sent and answers nothing
        with ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(send, here, request(*trace(number))) for number in range(2, 14)]
            until(lambda: readers_of(here)._pool.waiting)
            os.kill(pid, signal.SIGKILL)
            assert [answer.result().status_code for answer in answers] == [200] * 12
        assert here.store.count("trajectories") == 13
