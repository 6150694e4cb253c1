"""`whet work`: many rollouts at once, failures as data, stopping, processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import until as until_so
from server_world import TOKENS, World, world

import whet
from whet.errors import InputError, ModelError
from whet.record.store import Store, bundle_of
from whet.serve import Access, Role, Server, running, standard
from whet.serve.worker import LitAgent, PromptTemplate, Triplet
from whet.serve.worker.agent import attempt, load
from whet.serve.worker.client import QueueClient
from whet.serve.worker.run import Tally, Worker
from whet.types import Rollout, Task


def add(here: World, count: int, **given: Any) -> list[str]:
    rollouts = [{"id": f"r{n}", "task": {"instruction": str(n)}, **given} for n in range(count)]
    return list(here.post("/api/rollouts", {"rollouts": rollouts})["ids"])


def work(
    here: World,
    agent: Any,
    *,
    limit: int | None = None,
    until: Callable[[], bool] | None = None,
    **given: Any,
) -> Tally:
    """Run a worker in this thread until it has done `limit` rollouts, or `until` says so."""

    async def main() -> Tally:
        client = QueueClient(here.url, TOKENS[Role.WRITE])
        stopping = asyncio.Event()

        async def watch() -> None:
            while until is not None and not until():
                await asyncio.sleep(0.02)
            if until is not None:
                stopping.set()

        watching = asyncio.create_task(watch())
        try:
            worker = Worker(attempt(agent), client, name="tester", **given)
            return await worker.run(stopping, limit=limit)
        finally:
            watching.cancel()
            await client.close()

    return asyncio.run(main())


def counts(here: World) -> dict[str, int]:
    return dict(here.get("/api/rollouts/counts")["counts"])


def test_a_function_is_called_with_the_task_and_its_answer_is_recorded() -> None:
    with world() as here:
        add(here, 5)
        tally = work(here, lambda text: f"did {text}", limit=5)
        assert (tally.succeeded, tally.failed, tally.lost) == (5, 0, 0)
        found = here.get("/api/trajectories/r3")
        assert found["output"] == "did 3"
        assert found["meta"]["rollout"] == "r3"
        assert counts(here)["succeeded"] == 5


def test_many_rollouts_run_at_once_whether_the_agent_awaits_or_blocks() -> None:
    for blocking in (False, True):
        barrier = threading.Barrier(8)
        together = {"now": 0, "most": 0}

        async def awaits(text: str, together: dict[str, int] = together) -> str:
            together["now"] += 1
            together["most"] = max(together["most"], together["now"])
            while together["most"] < 8:
                await asyncio.sleep(0.005)
            together["now"] -= 1
            return text

        def blocks(text: str, barrier: threading.Barrier = barrier) -> str:
            barrier.wait(90)  # breaks unless eight are here at the same time
            return text

        with world() as here:
            add(here, 8)
            tally = work(here, blocks if blocking else awaits, limit=8, concurrency=8)
            assert (tally.succeeded, tally.failed) == (8, 0)


def test_an_agent_that_raises_is_a_recorded_failure_and_not_run_again() -> None:
    def agent(text: str) -> str:
        if text == "1":
            raise KeyError("nothing under this name")
        return text

    with world() as here:
        add(here, 3)
        tally = work(here, agent, limit=3)
        assert (tally.succeeded, tally.failed) == (3, 1)
        found = here.get("/api/trajectories/r1")
        assert found["outcome"] == "failure"
        assert found["error"]["fault"] == "agent"
        assert "nothing under this name" in found["error"]["message"]
        assert counts(here).get("queued", 0) == 0


def test_a_model_that_is_down_is_tried_again_and_is_no_failure_of_the_agent() -> None:
    calls: list[str] = []

    def agent(text: str) -> str:
        calls.append(text)
        if len(calls) < 3:
            raise ModelError("the endpoint is down", retryable=True)
        return "done"

    with world() as here:
        add(here, 1, max_attempts=5)
        tally = work(here, agent, until=lambda: counts(here).get("succeeded", 0) == 1)
        assert (tally.succeeded, tally.retried, tally.failed) == (1, 2, 0)
        assert here.get("/api/rollouts/r0")["attempts"] == 3


def test_an_answer_that_json_cannot_carry_is_the_agents_failure() -> None:
    with world() as here:
        add(here, 1)
        assert work(here, lambda text: object(), limit=1).failed == 1
        assert "JSON" in here.get("/api/trajectories/r0")["error"]["message"]


def test_the_agent_reads_the_resources_of_its_rollout() -> None:
    prompt = whet.resource("worker_prompt", default="the default")

    def agent(text: str) -> str:
        return f"{prompt.value} {text}"

    with world() as here:
        first = here.post("/api/bundles", {"resources": {"worker_prompt": "old"}})["id"]
        here.store.release(bundle_of({"worker_prompt": "new"}), unproven=True)
        task = {"instruction": "x"}
        here.post("/api/rollouts", {"rollouts": [{"id": "pinned", "task": task, "resources": first}]})
        here.post("/api/rollouts", {"rollouts": [{"id": "free", "task": task}]})
        work(here, agent, limit=2)
        assert here.get("/api/trajectories/pinned")["output"] == "old x"
        assert here.get("/api/trajectories/free")["output"] == "new x"
        assert set(here.get("/api/trajectories/free")["versions"]) == {"worker_prompt"}


def test_a_long_rollout_keeps_its_lease_though_it_blocks_the_loop() -> None:
    now = [100.0]

    async def agent(text: str) -> str:
        for _ in range(2):  # no await: the worker's loop stands still for longer than the lease
            now[0] += 2.5
            until_so(lambda: held["r0"].until > now[0] + 2.0, "nobody kept it")
        return "slow"

    with world() as here:
        here.store.queue._clock = lambda: now[0]
        held = here.store.queue._index.entries
        add(here, 1)
        tally = work(here, agent, limit=1, lease=3.0)
        assert (tally.succeeded, tally.failed, tally.stale) == (1, 0, 0)
        assert here.get("/api/rollouts/r0")["attempts"] == 1


def test_a_rollout_that_was_cancelled_is_stopped_and_the_others_go_on() -> None:
    started = threading.Event()

    async def agent(text: str) -> str:
        if text == "0":
            started.set()
            await asyncio.sleep(60)
        return text

    with world() as here:
        add(here, 2)

        def cancel() -> None:
            started.wait(90)
            here.http.post("/api/rollouts/r0/cancel", headers={"x-whet-token": TOKENS[Role.WRITE]})

        canceller = threading.Thread(target=cancel)
        canceller.start()
        tally = work(here, agent, limit=2, lease=6.0)
        canceller.join(90)
        assert (tally.succeeded, tally.stale) == (1, 1)


class Lit(LitAgent):
    """Returns each kind of result that the interface allows."""

    def training_rollout(self, task: Any, rollout_id: str, resources: Any) -> Any:
        template: PromptTemplate = resources["prompt"]
        if task == "0":
            return 0.5
        if task == "1":
            return [Triplet(template.template, "an answer", 0.25, {"turn": 1})]
        if task == "2":
            return [{"name": "span"}]
        if task == "3":
            return None
        return object()

    def validation_rollout(self, task: Any, rollout_id: str, resources: Any) -> float:
        return -1.0


class AsyncLit(LitAgent):
    async def training_rollout_async(self, task: Any, rollout_id: str, resources: Any) -> float:
        await asyncio.sleep(0)
        return float(task)


def test_an_agent_of_the_lit_interface_runs_unchanged() -> None:
    with world() as here:
        template = {"resource_type": "prompt_template", "template": "T", "engine": "jinja"}
        here.store.release(bundle_of({"prompt": template}), unproven=True, new_names=True)
        add(here, 5)
        here.post("/api/rollouts", {"rollouts": [{"id": "v", "task": {"instruction": "0"}, "mode": "val"}]})
        tally = work(here, Lit, limit=6)
        assert (tally.succeeded, tally.failed) == (6, 1)

        def reward(id: str) -> Any:
            return here.get(f"/api/trajectories/{id}")["scores"].get("reward", {}).get("value")

        assert reward("r0") == 0.5
        assert reward("r1") == 0.25
        assert here.get("/api/trajectories/r1")["steps"][0]["observation"] == "T"
        assert here.get("/api/trajectories/r2")["meta"]["trace"] == [{"name": "span"}]
        assert reward("r3") is None, "a reward that is missing is not 0"
        assert here.get("/api/trajectories/r4")["outcome"] == "failure"
        assert reward("v") == -1.0


def test_the_asynchronous_half_of_the_lit_interface_is_awaited() -> None:
    with world() as here:
        add(here, 3)
        assert work(here, AsyncLit(), limit=3).succeeded == 3
        assert here.get("/api/trajectories/r2")["scores"]["reward"]["value"] == 2.0


def test_a_wrong_token_ends_the_worker_and_says_so() -> None:
    async def main(url: str) -> None:
        client = QueueClient(url, "wrong")
        try:
            await Worker(attempt(lambda text: text), client, name="w").run(asyncio.Event(), limit=1)
        finally:
            await client.close()

    with world() as here, pytest.raises(InputError, match=r"refused \(401\): [^{]*$"):
        asyncio.run(main(here.url))


@pytest.mark.parametrize("spec", ["nothing", "no_such_module_here:agent", "os:no_such_name", ":x"])
def test_an_agent_that_cannot_be_loaded_is_named(spec: str) -> None:
    with pytest.raises(InputError, match=spec.split(":")[0] or spec):
        load(spec)


AGENT = """
import os, pathlib, time
def pair(text):
    pathlib.Path(f"pid-{os.getpid()}").touch()
    deadline = time.monotonic() + 90
    while len(list(pathlib.Path().glob("pid-*"))) < 2:
        assert time.monotonic() < deadline, "the other process did not come"
        time.sleep(0.01)
    return str(os.getpid())
def slow(text):
    pathlib.Path("begun").touch()
    time.sleep(1.0)
    return "finished"
def endless(text):
    pathlib.Path("begun").touch()
    time.sleep(600)
"""


@contextmanager
def started(here: World, folder: Path, agent: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`whet work` on one of the agents above, in its own process."""
    (folder / "some_agent.py").write_text(AGENT)
    command = [
        sys.executable,
        "-m",
        "whet",
        "work",
        f"some_agent:{agent}",
        "--url",
        here.url,
        "--json",
        *options,
    ]
    source = str(Path(whet.__file__).parent.parent)
    path = os.pathsep.join([source, *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "WHET_TOKEN": TOKENS[Role.WRITE], "PYTHONPATH": path}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_command_works_and_ctrl_c_finishes_what_is_under_way(tmp_path: Path) -> None:
    with world() as here:
        add(here, 1)
        with started(here, tmp_path, "slow") as process:
            until_so((tmp_path / "begun").exists)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            assert msgspec.json.decode(out)["succeeded"] == 1
            assert here.get("/api/trajectories/r0")["output"] == "finished"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_says_once_that_its_server_is_away_and_gives_up_when_told_to(
    tmp_path: Path, processes: str
) -> None:
    with world() as here:
        pass
    with socket.socket() as held:  # by nobody else meanwhile, and nobody listens
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", here.server.port))
        with started(here, tmp_path, "slow", "--patience", "1.2", "--processes", processes) as process:
            _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert err.count("trying again") == int(processes), err
    assert err.count("gave up after 1.2 seconds") == int(processes), err


def test_a_second_ctrl_c_gives_the_rollout_back(tmp_path: Path) -> None:
    with world() as here:
        add(here, 1)
        with started(here, tmp_path, "endless") as process:
            until_so((tmp_path / "begun").exists)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert "Ctrl-C again" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=300)
            assert process.returncode == 130
            assert counts(here)["queued"] == 1


def test_several_processes_share_the_work(tmp_path: Path) -> None:
    with world() as here:
        add(here, 20)
        with started(here, tmp_path, "pair", "--processes", "2", "--concurrency", "2") as process:
            until_so(lambda: counts(here).get("succeeded", 0) == 20)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
            tallies = [msgspec.json.decode(line) for line in out.splitlines()]
            assert [one["failed"] for one in tallies] == [0, 0]
            assert sum(one["succeeded"] for one in tallies) == 20
        answers = {here.get(f"/api/trajectories/r{number}")["output"] for number in range(20)}
        assert len(answers) == 2


def test_no_worker_is_left_when_the_parent_of_several_is_killed(tmp_path: Path) -> None:
    with world() as here:
        add(here, 2)
        with started(here, tmp_path, "pair", "--processes", "2", "--concurrency", "1") as process:
            until_so(lambda: counts(here).get("succeeded", 0) == 2)
            process.kill()
            process.communicate(timeout=300)
        workers = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
        assert len(workers) == 2
        until_so(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_a_server_that_comes_back_gets_the_results_of_what_ran_meanwhile(tmp_path: Path) -> None:
    path, said = tmp_path / "runs.db", list[str]()
    begun, away = threading.Event(), threading.Event()

    def agent(text: str) -> str:
        begun.set()
        assert away.wait(90)
        return "done while the server was away"

    async def main(url: str) -> Tally:
        client = QueueClient(url, TOKENS[Role.WRITE])
        try:
            worker = Worker(attempt(agent), client, name="w", lease=60.0, report=said.append)
            return await worker.run(asyncio.Event(), limit=1)
        finally:
            await client.close()

    tallies: list[Tally] = []
    with Store(path) as store:
        first = Server(Access(TOKENS), standard(store))
        with running(first) as url:
            store.add_rollouts(Rollout(id="r0", task=Task(instruction="x")))
            thread = threading.Thread(target=lambda: tallies.append(asyncio.run(main(url))))
            thread.start()
            assert begun.wait(90)
        away.set()
        with running(Server(Access(TOKENS), standard(store), port=first.port)):
            thread.join(90)
        assert [tally.succeeded for tally in tallies] == [1]
        assert store.trajectory("r0").output == "done while the server was away"


def test_processes_that_cannot_start_end_with_their_code(tmp_path: Path) -> None:
    with world() as here, started(here, tmp_path, "no_such_agent", "--processes", "2") as process:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 2
        assert "no_such_agent" in err
