"""`whet serve --autopilot`: a child that works on the server's record, is started again, and ends with the server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from processes import alive, until, whet
from test_autopilot_journey import Shop
from test_server_serve import serving

from whet.autopilot.journal import read
from whet.autopilot.night import start, stop
from whet.record.store import Store
from whet.serve import Role, tokens_of


class Served:
    """A server with an autopilot of a shop, and its clients."""

    def __init__(self, path: Path, process: subprocess.Popen[str], url: str) -> None:
        self.path, self.process, self.url = path, process, url
        self.tokens = tokens_of(path)

    def get(self, path: str) -> Any:
        headers = {"authorization": f"Bearer {self.tokens[Role.READ]}"}
        answered = httpx2.get(f"{self.url}{path}", headers=headers, timeout=90)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def post(self, path: str, body: Any, role: Role = Role.ADMIN) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.tokens[role]}"}
        return httpx2.post(f"{self.url}{path}", json=body, headers=headers, timeout=90)

    def health(self) -> dict[str, Any]:
        return dict(httpx2.get(f"{self.url}/healthz", timeout=90).json())

    @property
    def pilot(self) -> int:
        """Id of the autopilot's process; 0 where none is there."""
        for threads in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for child in threads.read_text().split():
                with suppress(OSError):
                    if b"\0autopilot\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return int(child)
        return 0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    shop.ask(120, at=time.time() - 3_600)
    shop.store.close()
    return shop


@contextmanager
def served(shop: Shop, *options: str) -> Iterator[Served]:
    path = shop.folder.parent / "runs.db"
    words = ("--autopilot", str(shop.folder), "--pilot.entry", "desk:answer", "--pilot.wait", "0.2")
    with serving(path, *words, "--pilot.output", str(shop.output), *options) as (process, url, _):
        yield Served(path, process, url)


def test_a_server_runs_its_autopilot_and_people_steer_it_over_http_and_by_commands(shop: Shop) -> None:
    with served(shop, "--pilot.mode", "ask") as server:
        until(lambda: server.get("/api/autopilot")["waiting"] == ["trial-1"])
        for path in ("stop", "start", "answer"):
            assert server.post(f"/api/autopilot/{path}", {}, Role.WRITE).status_code == 403
        unknown = server.post("/api/autopilot/answer", {"subject": "trial-9", "allow": True})
        assert unknown.status_code == 400
        assert "trial-1" in unknown.text

        place, steps = "", []
        while (page := server.get(f"/api/autopilot/journal?limit=2&after={place}"))["rows"]:
            assert len(page["rows"]) <= 2
            steps += [row["step"] for row in page["rows"]]
            place = page["next"]
        assert steps[:3] == ["night", "find", "diagnose"]
        assert steps[-1] == "ask"

        assert "stopped" in whet("autopilot", "stop", "--store", server.path, "--reason", "lunch").stdout
        until(lambda: server.health()["autopilot"] == "stopped")
        assert server.get("/api/autopilot")["stopped"] == "lunch"
        approved = server.post("/api/autopilot/answer", {"subject": "trial-1", "allow": True})
        assert approved.json()["waiting"] == []
        assert server.get("/api/autopilot")["trial"] == "", "it is stopped"
        assert server.post("/api/autopilot/start", {}).json()["stopped"] == ""
        until(lambda: server.get("/api/autopilot")["trial"])
        assert server.health()["autopilot"] == "running"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(90) == 0
    with Store(server.path) as store:
        assert len(store.on_trial()) == 1
        assert [row.sentence for row in read(store)][
            -1
        ] == "its process was told to end; the same command goes on"


def test_an_autopilot_that_is_killed_is_started_again_and_none_outlives_its_server(shop: Shop) -> None:
    with served(shop) as server:
        until(lambda: server.pilot)
        first = server.pilot
        os.kill(first, signal.SIGKILL)
        until(
            lambda: server.health()["autopilot_restarts"] == 1 and server.health()["autopilot"] == "running"
        )
        until(lambda: server.pilot not in (0, first))
        second = server.pilot
        assert server.get("/api/autopilot")["exit_code"] == -signal.SIGKILL
        assert "another autopilot" not in str(server.get("/api/autopilot/journal"))
        server.process.kill()
        server.process.wait(90)
        until(lambda: not alive(second), "it outlived its server")


def test_a_server_does_not_start_it_while_the_switch_is_turned_and_begins_no_night_by_itself(
    shop: Shop,
) -> None:
    with Store(shop.folder.parent / "runs.db") as store:
        stop(store, "holidays")
    with served(shop, "--pilot.hours", "0") as server:
        until(lambda: server.health()["autopilot"] == "stopped")
        assert server.get("/api/autopilot")["night"] is None
        with Store(server.path) as beside:
            start(beside)
        until(lambda: server.health()["autopilot"] == "over")
        night = server.get("/api/autopilot")["night"]
        assert (night["number"], "hours" in night["ended"]) == (1, True)
        time.sleep(1.5)
        assert server.get("/api/autopilot")["night"]["number"] == 1
        server.post("/api/autopilot/start", {})
        until(lambda: server.get("/api/autopilot")["night"]["number"] == 2)


def test_what_cannot_run_is_refused_before_anything_is_served(shop: Shop) -> None:
    for words, sentence in (
        (("--autopilot", shop.folder), "as an entry module:function"),
        (("--autopilot", shop.folder / "none.py"), "there is no agent at"),
        (("--autopilot", shop.folder / "desk.py", "--pilot.model", "m"), "needs both --model and --base-url"),
    ):
        refused = whet("serve", "--store", shop.folder.parent / "fresh.db", *words)
        assert refused.returncode != 0
        assert sentence in refused.stderr
    assert not (shop.folder.parent / "fresh.db").exists()
