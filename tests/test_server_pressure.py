"""A queue under pressure: reports that the disk does not keep up with, and claims that come and go."""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
from pathlib import Path

import pytest
from processes import until
from server_world import bearer, world

from whet.serve import Role
from whet.serve.queue import Waiters
from whet.serve.worker.client import BusyError, QueueClient
from whet.serve.worker.wire import FinishRequest

MEGABYTES = 8


def test_reports_beyond_what_the_disk_takes_are_told_when_to_come_again(tmp_path: Path) -> None:
    """The writer stands still, as on a disk that hangs; the server's loop does not."""
    with world(tmp_path / "runs.db") as here:
        ids = [f"r{n}" for n in range(20)]
        here.post("/api/rollouts", {"rollouts": [{"id": id, "task": {"instruction": "x"}} for id in ids]})
        leases = here.post("/api/rollouts/claim", {"worker": "w", "n": len(ids)})["leases"]
        owner = here.store.database.owner
        assert owner is not None
        answers: dict[str, tuple[int, str | None]] = {}

        def report(lease: dict[str, object], id: str) -> None:
            body = {"fence": lease["fence"], "trajectory": {"output": "x" * MEGABYTES * 1024 * 1024}}
            answered = here.http.post(
                f"/api/rollouts/{id}/finish", json=body, headers=bearer(Role.WRITE), timeout=60
            )
            answers[id] = answered.status_code, answered.headers.get("retry-after")

        threads = []
        with owner.mutex:
            for lease, id in zip(leases, ids, strict=True):
                thread = threading.Thread(target=report, args=(lease, id))
                thread.start()
                threads.append(thread)
                until(lambda: bool(answers) or here.server.active >= len(threads), "it did not arrive")
                time.sleep(0.05)
                if answers:
                    break
            refused = [id for id, (status, _) in answers.items() if status == 503]
            assert refused, f"{len(threads) * MEGABYTES} MB wait, and none was refused"
            assert answers[refused[0]] == (503, "1")
            beat = {
                "leases": [{"id": id, "fence": lease["fence"]} for id, lease in zip(ids, leases, strict=True)]
            }
            began = time.monotonic()
            held = here.post("/api/rollouts/heartbeat", beat)["until"]
            assert time.monotonic() - began < 5, "the loop waits for the disk"
            assert all(held)
            claim = here.http.post("/api/rollouts/claim", json={"worker": "w"}, headers=bearer(Role.WRITE))
            assert claim.status_code == 503 or not claim.json()["leases"], "a claim that could not be written"
        for thread in threads:
            thread.join(90)
        taken = {id for id, (status, _) in answers.items() if status == 200}
        # On a busy machine more of them arrive while the disk still hangs.
        assert {id for id, (status, _) in answers.items() if status == 503} == set(answers) - taken
        assert {run.meta["rollout"] for run in here.store.trajectories()} == taken
        again = {"fence": leases[ids.index(refused[0])]["fence"], "trajectory": {"output": "less"}}
        here.post(f"/api/rollouts/{refused[0]}/finish", again)


class Busy(http.server.BaseHTTPRequestHandler):
    """Turns the first request away for a second."""

    asked: list[float]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.asked.append(time.monotonic())
        first = len(self.asked) == 1
        body = b"{}" if first else b'{"results":[{"id":"r","taken":true}]}'
        self.send_response(503 if first else 200)
        if first:
            self.send_header("retry-after", "1")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_worker_comes_again_when_the_server_said_and_not_before() -> None:
    Busy.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        async def main() -> bool:
            client = QueueClient(f"http://127.0.0.1:{server.server_port}", "t")
            try:
                told = await client.finish([FinishRequest("r", 1)], patience=30.0)
            finally:
                await client.close()
            return told.results[0].taken

        try:
            assert asyncio.run(main())
        finally:
            server.shutdown()
    first, second = Busy.asked
    assert second - first >= 1.0
    assert issubclass(BusyError, OSError)


@pytest.mark.parametrize("ended", ["woken", "timed out"])
def test_claims_that_have_gone_leave_nothing_behind(ended: str) -> None:
    async def main() -> int:
        waiters = Waiters(asyncio.get_running_loop())
        seconds = 0.001 if ended == "timed out" else 10.0
        waits = [asyncio.create_task(waiters.wait(["train"] * repeats, seconds)) for repeats in range(1, 200)]
        await asyncio.sleep(0)
        lines = waiters.lines
        while ended == "woken" and waiters.lines:
            waiters.wake()
            await asyncio.sleep(0)
        await asyncio.gather(*waits)
        assert lines == 1, "one for each set of modes, however a claim writes it"
        return waiters.lines

    assert asyncio.run(main()) == 0
