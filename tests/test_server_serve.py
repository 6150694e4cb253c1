"""`whet serve` as a process: its tokens, its start, its end."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from processes import until, whet

from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.tracing import flush, trace
from whet.serve import Role, token_file, tokens_of
from whet.types import Rollout, Task, Trajectory

GIVEN = {"authorization": "Bearer t"}


@contextmanager
def serving(
    path: Path, *options: str, before: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """`whet serve` on a free port: the process, its URL, and what it printed before it was ready.

    Args:
        before: words of a command that starts it.
    """
    command = [*before, sys.executable, "-m", "whet", "serve", "--store", str(path), "--port", "0", *options]
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
        process.wait(90)
        process.stdout.close()


def test_it_starts_keeps_its_tokens_and_ends_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path) as (process, url, said):
        tokens = tokens_of(path)
        assert tokens[Role.ADMIN] in said
        assert httpx2.get(f"{url}/healthz", timeout=90).status_code == 200
        one = {"id": "t1", "task": {"instruction": "say hello"}, "output": "hello"}
        headers = {"authorization": f"Bearer {tokens[Role.WRITE]}"}
        put = httpx2.post(
            f"{url}/api/trajectories", json={"trajectories": [one]}, headers=headers, timeout=90
        )
        assert put.json() == {"ids": ["t1"]}
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
    with Store(path) as store:
        assert store.trajectory("t1").output == "hello"
    with serving(path) as (_, url, said):
        assert "whet-admin" not in said, "printed once, at the first start"
        assert tokens_of(path) == tokens
        found = httpx2.get(
            f"{url}/api/trajectories/t1", headers={"x-whet-token": tokens[Role.READ]}, timeout=90
        )
        assert found.json()["task"]["instruction"] == "say hello"


def test_what_it_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    acknowledged = []
    with serving(path, "--token", "t-given") as (process, url, _said):
        assert not token_file(path).exists()
        with httpx2.Client(headers={"authorization": "Bearer t-given"}, timeout=90) as http:
            for number in range(30):
                one = {"id": f"t{number}", "task": {"instruction": "x"}}
                acknowledged += http.post(f"{url}/api/trajectories", json={"trajectories": [one]}).json()[
                    "ids"
                ]
        process.kill()
        process.wait(90)
    with Store(path) as store:
        assert {one.id for one in store.trajectories()} == set(acknowledged)
    assert len(acknowledged) == 30


def test_another_process_records_while_it_serves_and_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path, "--token", "t") as (_, url, _said):
        with Store(path) as beside:
            beside.put(Trajectory(task=Task(instruction="x"), id="beside"))
        assert (
            httpx2.get(f"{url}/api/trajectories/beside", headers={"x-api-key": "t"}, timeout=90).status_code
            == 200
        )
        port = url.rpartition(":")[2]
        second = whet("serve", "--store", tmp_path / "b.db", "--port", port)
        assert second.returncode == 2
        assert port in second.stderr
        assert "Traceback" not in second.stderr


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_clients_that_only_hold_connections_keep_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path / "runs.db", before=("bash", "-c", 'ulimit -n 192 && exec "$@"', "bash")) as served:
        url = served[1]
        host = (url.partition("//")[2].partition(":")[0], int(url.rpartition(":")[2]))
        with ExitStack() as held, httpx2.Client(timeout=90) as http:
            for number in range(300):
                silent = held.enter_context(socket.create_connection(host, timeout=90))
                if number % 2:
                    silent.sendall(b"GET /healthz HTTP/1.1\r\nhost: ")
            # It comes behind them, and then all others come once more.
            assert http.get(f"{url}/healthz").status_code == 200
            for _ in range(50):
                held.enter_context(socket.create_connection(host, timeout=90))
                assert http.get(f"{url}/healthz").status_code == 200
        assert served[0].poll() is None


def test_it_starts_in_little_memory(tmp_path: Path) -> None:
    with serving(tmp_path / "runs.db", "--token", "t") as (process, url, _):
        assert httpx2.get(f"{url}/healthz", timeout=90).status_code == 200
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
        assert resident < 150, f"{resident:.0f} MB"


def test_work_that_another_process_adds_wakes_a_worker_that_waits(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with serving(path, "--token", "t") as (_, url, _said), httpx2.Client(headers=GIVEN, timeout=90) as http:
        found: list[Any] = []

        def wait() -> None:
            with httpx2.Client(headers=GIVEN, timeout=90) as own:
                answered = own.post(f"{url}/api/rollouts/claim", json={"worker": "w", "wait": 20})
                found.extend(answered.json()["leases"])

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: http.get(f"{url}/api/rollouts/counts").json()["waiting"] == 1)
        with Store(path) as beside:
            assert not beside.database.owner
            with beside.batch() as batch:
                batch.add_rollouts(Rollout(id="from-beside", task=Task(instruction="x")))
        waiting.join(90)
        assert [lease["rollout"]["id"] for lease in found] == ["from-beside"]


def test_a_server_that_starts_second_takes_the_record_over_and_the_commands_work(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    (tmp_path / "worker.py").write_text(
        "import whet\nprompt = whet.resource('prompt', default='none')\n"
        "def agent(question):\n    return f'{prompt.get()}: {question}'\n"
    )
    (tmp_path / "tasks.jsonl").write_text('{"instruction": "one"}\n{"instruction": "two"}\n')
    (tmp_path / "prompt.txt").write_text("Be brief")

    def shell(*words: str) -> str:
        done = whet(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @trace(path)
    def agent(question: str) -> str:
        return question

    agent("before")
    assert flush()
    opened = Store(path)
    with serving(path, "--token", "t") as (_, url, _said), httpx2.Client(headers=GIVEN, timeout=90) as http:
        shell("release", "prompt", "prompt.txt", "--store", "runs.db", "--unproven", "--new-name")
        assert "2 runs queued" in shell("tasks", "add", "tasks.jsonl", "--store", "runs.db")
        shell("work", "worker:agent", "--url", url, "--token", "t", "--limit", "2", "--concurrency", "1")
        agent("after")  # the process that had the file goes on recording, through the server
        assert flush()
        assert http.get(f"{url}/api/rollouts/counts").json()["counts"]["succeeded"] == 2
    outputs = sorted(str(each.output) for each in opened.trajectories())
    opened.close()
    assert outputs == ["Be brief: one", "Be brief: two", "after", "before"]


def test_a_process_that_hands_out_work_itself_keeps_the_record_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    agent = Store(path)
    assert agent.queue is not None
    with serving(path, "--token", "t") as (_, url, _said), httpx2.Client(headers=GIVEN, timeout=90) as http:
        one = {"rollouts": [{"id": "a", "task": {"instruction": "x"}}]}
        assert http.post(f"{url}/api/rollouts", json=one).status_code == 200
        assert http.post(f"{url}/api/rollouts/claim", json={"worker": "w"}).status_code == 503
        agent.close()
        until(lambda: http.post(f"{url}/api/rollouts/claim", json={"worker": "w"}).status_code == 200)
        assert http.get(f"{url}/api/rollouts/a").json()["status"] == "running"


def test_leases_and_fences_outlive_a_kill_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with (
        serving(path, "--token", "t") as (process, url, _said),
        httpx2.Client(headers=GIVEN, timeout=90) as http,
    ):
        http.post(f"{url}/api/rollouts", json={"rollouts": [{"id": "a", "task": {"instruction": "x"}}]})
        claim = {"worker": "w", "lease": 60}
        (lease,) = http.post(f"{url}/api/rollouts/claim", json=claim).json()["leases"]
        process.kill()
        process.wait(90)
    with serving(path, "--token", "t") as (_, url, _said), httpx2.Client(headers=GIVEN, timeout=90) as http:
        assert http.post(f"{url}/api/rollouts/claim", json={"worker": "other"}).json()["leases"] == []
        finish = {"fence": lease["fence"], "trajectory": {"id": "t", "task": {"instruction": "x"}}}
        assert http.post(f"{url}/api/rollouts/a/finish", json=finish).status_code == 200
        assert http.get(f"{url}/api/rollouts/a").json()["result"] == "a.1"


NODE = """
const [url, token] = process.argv.slice(2);
const span = {traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331", name: "from node",
              startTimeUnixNano: "1700000000000000000", endTimeUnixNano: 1700000001000000000};
const body = JSON.stringify({resourceSpans: [{scopeSpans: [{spans: [span]}]}]});
const headers = {"content-type": "application/json", authorization: `Bearer ${token}`};
const answered = await fetch(`${url}/v1/traces`, {method: "POST", headers, body});
console.log(answered.status, await answered.text());
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
def test_nodes_fetch_posts_otlp_json(tmp_path: Path) -> None:
    path, script = tmp_path / "runs.db", tmp_path / "post.mjs"
    script.write_text(NODE)
    with serving(path, "--token", "t") as (process, url, _said):
        posted = subprocess.run(["node", str(script), url, "t"], capture_output=True, text=True, timeout=300)
        assert posted.stdout.strip() == "200 {}", posted.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0
    with Store(path) as store:
        (span,) = store.spans.trace(bytes.fromhex("0af7651916cd43dd8448eb211c80319c"))
        assert span.name == "from node"


def test_a_copy_of_the_record_made_while_it_is_served_holds_runs_that_are_not_assembled(
    tmp_path: Path,
) -> None:
    ask = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}]}
    with ScriptedServer("fine", speaks=("chat",)) as model:
        path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
        # Durable: the answer is the sign that the call is committed, and two seconds pass until the run is read.
        options = ("--upstream", model.base_url, "--durable-calls", "--token", "t")
        with serving(path, *options) as (_, url, _):
            answered = httpx2.post(f"{url}/run/r/v1/chat/completions", json=ask, headers=GIVEN)
            assert answered.status_code == 200
            with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(copy)) as target:
                live.backup(target)
        with serving(copy, "--token", "t") as (_, url, _):
            until(lambda: httpx2.get(f"{url}/api/trajectories", headers=GIVEN).json()["trajectories"])
            (run,) = httpx2.get(f"{url}/api/trajectories", headers=GIVEN).json()["trajectories"]
        assert run["task"]["instruction"] == "hello"
