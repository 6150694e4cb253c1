"""The store shared by processes: one owner, nothing acknowledged is ever lost."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from whet.errors import StoreBusyError, StoreError
from whet.record.store import Store
from whet.record.store.client import ask_to_yield
from whet.types import Rollout, Span, Task, Trajectory

WRITER = """
import sys
from whet.record.store import Store
from whet.types import Task, Trajectory
with Store(sys.argv[1]) as store:
    store.put_state("warm", True)  # the first write makes the Redactor
    print("owner" if store.database.owner else "client", flush=True)
    for n in range(int(sys.argv[3])):
        made = [Trajectory(id=f"{sys.argv[2]}-{n}-{k}", task=Task(id="t")) for k in range(3)]
        store.put(*made)
        print(*(each.id for each in made), flush=True)
"""


def owns(store: Store) -> bool:
    return store.database.owner is not None


def start(path: Path, name: str, rounds: int = 1_000_000) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), name, str(rounds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kill -9; returns the ids that it acknowledged on complete lines."""
    process.send_signal(signal.SIGKILL)
    return finished(process)


def finished(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=300)
    return [id for each in out.split("\n")[:-1] for id in each.split() if "-" in id]


def simple(id: str) -> Trajectory:
    return Trajectory(id=id, task=Task(id="t"))


def held(path: Path) -> set[str]:
    with Store(path) as store:
        return {each.id for each in store.trajectories()}


def test_what_was_acknowledged_survives_kill_9_at_random_moments(tmp_path: Path) -> None:
    path, rng, acknowledged = tmp_path / "runs.db", random.Random(7), set[str]()
    for life in range(5):
        process = start(path, f"life{life}")
        assert line(process) == "owner"
        time.sleep(rng.uniform(0.01, 0.2))
        acknowledged |= set(kill(process))
    assert acknowledged
    assert acknowledged <= held(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = connection.execute("SELECT count(*) FROM trajectories").fetchone()[0]
    connection.close()
    assert found % 3 == 0  # a put is recorded whole or not at all


def test_a_second_process_writes_through_the_owner_and_reads_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        other = start(path, "other", rounds=5)
        assert line(other) == "client"
        acknowledged = set(finished(other))
        assert len(acknowledged) == 15
        assert acknowledged == {each.id for each in store.trajectories()}


def test_many_processes_write_one_store_and_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    owner = start(path, "owner")
    assert line(owner) == "owner"
    others = [start(path, f"other{n}", rounds=60) for n in range(3)]
    assert [line(each) for each in others] == ["client"] * 3
    for each in others:
        line(each)  # all are in the middle of writing
    acknowledged = set(kill(owner))
    for number, each in enumerate(others):
        finished(each)
        assert each.returncode == 0
        acknowledged |= {f"other{number}-{n}-{k}" for n in range(60) for k in range(3)}
    assert acknowledged <= held(path)


def test_a_client_takes_over_when_the_owner_closes(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    owner, client = Store(path), Store(path)
    assert (owns(owner), owns(client)) == (True, False)
    client.put(simple("before"))
    owner.close()
    assert [each.id for each in client.trajectories()] == ["before"]
    client.put(simple("after"))
    assert owns(client)
    client.close()
    assert held(path) == {"before", "after"}


def test_an_error_at_the_owner_reaches_the_client(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as owner, Store(tmp_path / "runs.db") as client:
        with pytest.raises(StoreError, match="NOT NULL"):
            client.database.write([("task", [(None, None, "", b"{}")])]).result()
        with pytest.raises(StoreError, match="refused"):
            client.database.write([("DROP TABLE tasks", [()])]).result()
        client.put(simple("fine"))
        assert owner.counts()["trajectories"] == 1


def test_a_second_server_is_refused_but_other_processes_are_not(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as plain, Store(path, serve=True) as server:
        assert (owns(server), owns(plain)) == (True, False), "what is served is owned"
        with pytest.raises(StoreBusyError, match="another server"):
            Store(path, serve=True)
        plain.close()
        server.put(simple("a"))
        assert owns(server)
        with Store(path) as client:
            client.put(simple("b"))
    with Store(path, serve=True) as server:
        assert server.counts()["trajectories"] == 2


def test_a_server_takes_the_file_over_from_a_process_that_writes_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    agent = start(path, "agent")
    assert line(agent) == "owner"
    line(agent)
    with Store(path, serve=True) as server:
        assert owns(server), "the agent's process kept the file"
        before = server.counts()["trajectories"]
        deadline = time.monotonic() + 90
        while server.counts()["trajectories"] < before + 30 and time.monotonic() < deadline:
            line(agent)  # it goes on, through the server
        assert server.counts()["trajectories"] >= before + 30
        server.add_rollouts(Rollout(id="r", task=Task(id="t")))
        (lease,) = server.queue.claim("w", lease=5).result()
        assert lease.rollout.id == "r"
        acknowledged = set(kill(agent))
        assert acknowledged <= held(path)


def test_a_process_that_hands_out_work_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as worker:
        assert worker.queue is not None
        with Store(path, serve=True) as server:
            assert (owns(server), owns(worker)) == (False, True)
            server.put(simple("through the other"))
    with Store(path) as last:
        assert owns(last)


def test_who_gave_the_file_up_takes_it_again_when_nobody_comes_for_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Store(path) as store:
        assert ask_to_yield(str(path))
        store.put(simple("a"))
        assert owns(store)
    assert held(path) == {"a"}


def test_malformed_frames_are_answered_with_an_error_and_harm_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    def ask(raw: bytes) -> dict[str, object]:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(10)
            peer.connect(f"{path}.sock")
            peer.sendall(raw)
            (length,) = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))
            reply: dict[str, object] = msgspec.msgpack.decode(peer.recv(length, socket.MSG_WAITALL))
            return reply

    def framed(value: object) -> bytes:
        body = msgspec.msgpack.encode(value)
        return struct.pack(">I", len(body)) + body

    with Store(path) as store:
        assert ask(struct.pack(">I", 3) + b"\xc1\xc1\xc1")["refused"]
        assert ask(framed({"not": "a request"}))["refused"]
        assert "called" in str(ask(framed([[["DELETE FROM tasks", []]]]))["refused"])
        assert "values" in str(ask(framed([[["task", [["only one"]]]]]))["refused"])
        assert "list" in str(ask(framed([[["task", [[[], None, "", b""]]]]]))["refused"])
        assert "bytes" in str(ask(struct.pack(">I", 2**32 - 1) + b"x")["refused"])
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(f"{path}.sock")
            peer.sendall(struct.pack(">I", 100) + b"half")
        assert ask(framed([[["state", [["k", 0.0, b"1"]]]]])) == {"errors": [None], "refused": ""}
        assert store.state("k") == 1


def test_a_path_too_long_for_a_socket_still_has_one_owner(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / ("deeper" * 10)
    folder.mkdir(parents=True)
    with Store(folder / "runs.db") as owner, Store(folder / "runs.db") as client:
        client.put(simple("a"))
        assert not owns(client)
        assert owner.counts()["trajectories"] == 1
        assert not (folder / "runs.db.sock").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_through_its_parent_and_outlives_it_as_owner(tmp_path: Path) -> None:
    program = """
import os, sys, time
from whet.record.store import Store
from whet.types import Task, Trajectory
store = Store(sys.argv[1])
store.put(Trajectory(id="parent", task=Task(id="t")))
assert len(list(store.trajectories())) == 1
parent = os.getpid()
said, saying = os.pipe()
if os.fork():
    os.close(saying)
    os.wait() if sys.argv[2] == "wait" else os.read(said, 1)
    os._exit(0)
store.put(Trajectory(id="child", task=Task(id="t")))
assert not store.database.owner
os.write(saying, b".")
if sys.argv[2] != "wait":
    while os.getppid() == parent:
        time.sleep(0.01)
    store.put(Trajectory(id="orphan", task=Task(id="t")))
    assert store.database.owner
store.close()
print(sorted(each.id for each in Store(sys.argv[1]).trajectories()), flush=True)
os._exit(0)
"""
    for mode, expected in (("wait", ["child", "parent"]), ("leave", ["child", "orphan", "parent"])):
        given = [sys.executable, "-c", program, str(tmp_path / mode), mode]
        done = subprocess.run(given, capture_output=True, text=True, timeout=300)
        assert done.stdout.strip() == str(expected), done.stderr


def test_threads_share_a_store_and_every_put_is_there(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:

        def work(name: int) -> None:
            for n in range(20):
                store.put(simple(f"{name}-{n}"))
                assert len(list(store.trajectories(ids=[f"{name}-{n}"]))) == 1

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.counts()["trajectories"] == 160


@pytest.fixture
def small_disk() -> Iterator[Path]:
    if os.getuid() != 0 or sys.platform != "linux":
        pytest.skip("mounting a small tmpfs needs root on Linux")
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.decode().strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_acknowledges_nothing_and_service_resumes_with_space(small_disk: Path) -> None:
    path, acknowledged = small_disk / "runs.db", set[str]()
    filler = small_disk / "filler"
    with Store(path) as store:
        filler.write_bytes(b"x" * 500_000)

        def fill() -> None:
            for number in range(10_000):
                store.put(Trajectory(id=str(number), task=Task(id="t"), output="x" * 20_000))
                acknowledged.add(str(number))

        with pytest.raises(StoreError, match="full"):
            fill()
        assert acknowledged
        assert {each.id for each in store.trajectories()} == acknowledged
        with pytest.raises(StoreError, match="full"):
            store.put(Trajectory(id="still full", task=Task(id="t"), output="x" * 200_000))
        filler.unlink()
        store.put(simple("again"))
        assert {each.id for each in store.trajectories()} == acknowledged | {"again"}
    assert held(path) == acknowledged | {"again"}


def test_a_full_disk_takes_no_spans_and_no_results_and_both_go_on_with_space(small_disk: Path) -> None:
    filler = small_disk / "filler"
    trajectory = Trajectory(id="run", task=Task(id="t"), output="x" * 200_000)

    def spans(number: int) -> list[Span]:
        id = number.to_bytes(8, "big")
        return [Span(id * 2, id, b"", n, n, "chat", b"x" * 20_000, "span", b"c%d" % n) for n in (1, 2)]

    with Store(small_disk / "runs.db", segment=3) as store:
        queue = store.queue
        queue.add([Rollout(id="a", task=Task(id="t"))]).result()
        (lease,) = queue.claim("w").result()
        filler.write_bytes(b"x" * 500_000)
        put: list[int] = []

        def fill() -> None:
            for number in range(1_000):
                store.spans.put(spans(number)).result()
                put.append(number)

        with pytest.raises(StoreError, match="full"):
            fill()
        assert put
        filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096 + 500_000 - 8192))
        with pytest.raises(StoreError, match="full"):
            queue.finish("a", lease.fence, trajectory=trajectory).result()
        assert store.count("spans") == len(put)  # of each pair one, as both have the same id
        filler.unlink()
        store.spans.put(spans(5_000)).result()
        queue.finish("a", lease.fence, trajectory=trajectory).result()
        assert store.count("spans") == len(put) + 1
        assert all(len(store.spans.trace(spans(n)[0].trace)) == 1 for n in [*put, 5_000])
        assert queue.get("a").result == "a.1"
        assert store.database.rows("PRAGMA integrity_check") == [("ok",)]


def test_kill_9_under_mixed_load_loses_and_repeats_nothing(repository: Path) -> None:
    words = [sys.executable, str(repository / "benchmarks/durability.py"), "--kills", "3", "--seconds", "0.4"]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert found["lives"] == 3
    assert found["finished"] > 0
    assert found["spans"] > 0


def test_the_record_is_json_that_other_tools_can_read(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        store.put(simple("a"))
    connection = sqlite3.connect(tmp_path / "runs.db")
    (body,) = connection.execute("SELECT body FROM trajectories").fetchone()
    connection.close()
    assert json.loads(body)["task"]["id"] == "t"
