"""`whet serve` as a process: its tokens, its start, its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from whet.server import Role, token_file, tokens_of
from whet.store import Store
from whet.types import Task, Trajectory


@contextmanager
def serving(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """`whet serve` on a free port: the process, its URL, and what it printed before it was ready."""
    command = [sys.executable, "-m", "whet.cli", "serve", "--store", str(path), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        url = re.search(r"http://\S+?(?=;)", said)
        assert url, said + process.stdout.read()
        said += process.stdout.readline()
        yield process, url[0], said
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_it_starts_keeps_its_tokens_and_ends_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path) as (process, url, said):
        tokens = tokens_of(path)
        assert tokens[Role.ADMIN] in said
        assert httpx2.get(f"{url}/healthz").status_code == 200
        one = {"id": "t1", "task": {"instruction": "say hello"}, "output": "hello"}
        headers = {"authorization": f"Bearer {tokens[Role.WRITE]}"}
        put = httpx2.post(f"{url}/api/trajectories", json={"trajectories": [one]}, headers=headers)
        assert put.json() == {"ids": ["t1"]}
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    with Store(path) as store:
        assert store.trajectory("t1").output == "hello"
    with serving(path) as (_, url, said):
        assert "whet-admin" not in said, "printed once, at the first start"
        assert tokens_of(path) == tokens
        found = httpx2.get(f"{url}/api/trajectories/t1", headers={"x-whet-token": tokens[Role.READ]})
        assert found.json()["task"]["instruction"] == "say hello"


def test_what_it_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    acknowledged = []
    with serving(path, "--token", "t-given") as (process, url, _said):
        assert not token_file(path).exists()
        with httpx2.Client(headers={"authorization": "Bearer t-given"}) as http:
            for number in range(30):
                one = {"id": f"t{number}", "task": {"instruction": "x"}}
                acknowledged += http.post(f"{url}/api/trajectories", json={"trajectories": [one]}).json()[
                    "ids"
                ]
        process.kill()
        process.wait(10)
    with Store(path) as store:
        assert {one.id for one in store.trajectories()} == set(acknowledged)
    assert len(acknowledged) == 30


def test_another_process_records_while_it_serves_and_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path, "--token", "t") as (_, url, _said):
        with Store(path) as beside:
            beside.put(Trajectory(task=Task(instruction="x"), id="beside"))
        assert httpx2.get(f"{url}/api/trajectories/beside", headers={"x-api-key": "t"}).status_code == 200
        port = url.rpartition(":")[2]
        command = [
            sys.executable,
            "-m",
            "whet.cli",
            "serve",
            "--store",
            str(tmp_path / "b.db"),
            "--port",
            port,
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert second.returncode == 2
        assert port in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_it_starts_in_little_memory(tmp_path: Path) -> None:
    with serving(tmp_path / "runs.db", "--token", "t") as (process, url, _):
        assert httpx2.get(f"{url}/healthz").status_code == 200
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
        assert resident < 150, f"{resident:.0f} MB"
