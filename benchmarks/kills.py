"""Does anything that the server acknowledged get lost, or come twice?  Run: python benchmarks/kills.py --kills 1000

`whet serve` is killed with -9 at a random moment, again and again, while over HTTP on loopback spans and trajectories
arrive, rollouts are queued, claimed and reported, model calls go through the gateway, and two clients release.  A
client whose request got no answer sends the same again to the next life of the server.  In the end the record is held
against what was acknowledged:

    lost       acknowledged, and not in the record (or a rollout whose end is not the acknowledged one)
    doubled    in the record more than once

A model call is answered before it is recorded; it counts as acknowledged once the gateway's status says that nothing
waits any more, and `answered` beside it says how many answers an agent had in hand.  The exit code is 1 if anything was
lost or doubled.  With --minutes no other life begins after so many, and what there is is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from rollouts import Answered, report
from server import PROTOBUF, TOKEN, Link, export

from whet.models.fakes import ScriptedServer
from whet.record.store import Store

SPANS = 5
NAMES = 12
"""Resources that are released, by turns."""
WAITING = 200
"""Rollouts that wait, at least."""
LEASE = 3.0
KINDS = ("spans", "trajectories", "queued", "finished", "calls", "releases")
_answered = msgspec.json.Decoder(Answered)


class Server:
    """`whet serve` on one port and one file, killed and started again.

    A process that has imported everything forks each life, so that a start takes a tenth of a second.
    """

    def __init__(self, store: Path, upstream: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["serve", "--store", str(store), "--port", str(self.port), "--token", TOKEN]
        self._parent = subprocess.Popen(
            [sys.executable, __file__, "--parent", *words, "--upstream", upstream],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._life = 0

    def _ask(self, word: str) -> str:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{word}\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline().strip()

    def start(self) -> None:
        """Begin a life; returns once it answers."""
        self._life = int(self._ask("start"))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                Link(self.url).get("/healthz")
                return
            except (OSError, IndexError):
                time.sleep(0.005)
        raise SystemExit("the server does not answer")

    def end(self, number: int = signal.SIGKILL) -> None:
        """End the life."""
        os.kill(self._life, number)
        self._ask("wait")

    def close(self) -> None:
        """End the process that forks."""
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(20)


def parent(words: Sequence[str]) -> None:
    """Fork a server for each `start`, and wait for the last one at each `wait`."""
    import whet.cli.server
    import whet.record.tracing.assemble
    import whet.serve.app  # noqa: F401 - so that no life has to import them
    from whet.cli import main

    child = 0
    for line in sys.stdin:
        if line.strip() == "wait":
            os.waitpid(child, 0)
            print("over", flush=True)
            continue
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            main(list(words))
            os._exit(0)
        print(child, flush=True)


class Load:
    """The clients, and what was acknowledged to them."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed = url, seed
        self.acknowledged: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self.answered = 0
        self.stopped = threading.Event()
        self.problems: list[str] = []
        jobs: list[Callable[[Client], None]] = [
            self.spans,
            self.trajectories,
            self.queued,
            *[self.work] * 4,
            self.calls,
            *[self.releases] * 2,
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(job, place), daemon=True)
            for place, job in enumerate(jobs)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each client end its request; the server must be there."""
        self.stopped.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, job: Callable[[Client], None], place: int) -> None:
        client = Client(self.url, f"{job.__name__}{place}", random.Random(f"{self.seed} {place}"))
        try:
            while not self.stopped.is_set():
                job(client)
        except Exception as problem:  # a client that ends unseen would leave less to be judged
            self.problems.append(f"{job.__name__}: {type(problem).__name__}: {problem}")

    def spans(self, client: Client) -> None:
        trace = client.random.getrandbits(120)
        body = export(trace, SPANS)
        for _ in range(client.random.choice((1, 1, 2))):  # an exporter that was in doubt sends again
            client.post("/v1/traces", body, PROTOBUF)
        self.acknowledged["spans"].add(f"{trace:032x}")

    def trajectories(self, client: Client) -> None:
        id = f"t{client.random.getrandbits(64):x}"
        body = {
            "trajectories": [{"id": id, "task": {"instruction": "x"}, "output": "y" * 300, "started": 1.0}]
        }
        client.json("/api/trajectories", body)
        self.acknowledged["trajectories"].add(id)

    def queued(self, client: Client) -> None:
        ids = [f"r{client.random.getrandbits(64):x}" for _ in range(20)]
        rollouts = [{"id": id, "task": {"instruction": f"do {id}"}, "max_attempts": 100} for id in ids]
        client.json("/api/rollouts", {"rollouts": rollouts})
        self.acknowledged["queued"].update(ids)
        while not self.stopped.is_set() and client.waiting() > WAITING:
            time.sleep(0.02)

    def work(self, client: Client) -> None:
        """A worker's turn: report what is done and claim more in one request."""
        claim = {"worker": client.name, "n": client.random.randint(1, 8), "lease": LEASE}
        finished = msgspec.Raw(b"[%b]" % b",".join(report(lease, client.name) for lease in client.held))
        turned = _answered.decode(client.json("/api/rollouts/finish", {"finished": finished, "claim": claim}))
        for result in turned.results:
            if result["taken"]:
                self.acknowledged["finished"].add(str(result["id"]))
            elif not result["stale"]:
                raise RuntimeError(f"a report was refused: {result}")
        client.held = turned.leases
        if not client.held:
            time.sleep(0.02)

    def calls(self, client: Client) -> None:
        recorded = client.gateway()["recorded"]
        marks = [f"call-{client.random.getrandbits(64):x}" for _ in range(3)]
        for mark in marks:
            body = {"model": "scripted", "messages": [{"role": "user", "content": mark}]}
            try:
                client.once(f"/run/{mark}/{TOKEN}/v1/chat/completions", body)
            except (OSError, IndexError, RuntimeError, ValueError):
                return  # not answered, and an agent that asks again makes another call
            self.answered += 1
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            status = client.gateway()
            if status["recorded"] < recorded:
                return  # another life, which knows nothing of what waited in the one before
            if status["recorded"] >= recorded + len(marks) and not status["waiting"]:
                self.acknowledged["calls"].update(marks)
                return
            time.sleep(0.005)

    def releases(self, client: Client) -> None:
        name = f"{client.name}-{client.random.randrange(NAMES // 2)}"
        text = f"{client.random.getrandbits(64):x}"
        client.json(
            "/api/releases", {"resources": {name: text}, "unproven": True, "new_names": True, "reason": text}
        )
        self.acknowledged["releases"].add(text)
        time.sleep(0.02)


class Client:
    """One client, whose requests outlive the server's lives."""

    def __init__(self, url: str, name: str, chance: random.Random) -> None:
        self._url, self.name, self.random = url, name, chance
        self._link: Link | None = None
        self.held: list[Any] = []

    def post(self, path: str, body: bytes, media: str = "application/json") -> bytes:
        """The answer, from whichever life gives one."""
        while True:
            try:
                return self._connected().post(path, body, media)
            except (OSError, IndexError, ValueError):
                pass  # killed meanwhile
            except RuntimeError as problem:
                if " 503 " not in str(problem):
                    raise
            self._link = None
            time.sleep(0.01)

    def json(self, path: str, body: Any) -> bytes:
        return self.post(path, msgspec.json.encode(body))

    def once(self, path: str, body: Any) -> bytes:
        """The answer; an error if the server is killed meanwhile."""
        link, self._link = self._connected(), None
        return link.post(path, msgspec.json.encode(body))

    def get(self, path: str) -> Any:
        while True:
            try:
                return msgspec.json.decode(self._connected().get(path))
            except (OSError, IndexError, ValueError):
                self._link = None
                time.sleep(0.01)

    def waiting(self) -> int:
        return int(self.get("/api/rollouts/counts")["counts"]["queued"])

    def gateway(self) -> dict[str, int]:
        return dict(self.get("/api/gateway"))

    def _connected(self) -> Link:
        if self._link is None:
            self._link = Link(self._url)
        return self._link


def judge(path: Path, acknowledged: dict[str, set[str]]) -> tuple[Counter[str], Counter[str], bool]:
    """What was lost and what came twice, by kind; True if SQLite finds the file sound."""
    with Store(path) as store:
        rows = store.database.rows
        numbers = [number for (number,) in rows("SELECT number FROM segments")]
        spans: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for number in numbers:
            spans.update(
                dict(
                    rows(
                        f"SELECT lower(hex(trace)), count(*) FROM spans_{number} WHERE encoding = 'span' GROUP BY 1"
                    )
                )
            )
            calls.update(
                run for (run,) in rows(f"SELECT run FROM spans_{number} WHERE encoding = 'call+json'")
            )
        ids = Counter(id for (id,) in rows("SELECT id FROM trajectories"))
        rollouts = {row[0]: row[1:] for row in rows("SELECT id, status, trajectory FROM rollouts")}
        runs = Counter(
            run
            for (run,) in rows("SELECT run FROM trajectories WHERE instr(body, CAST('\"rollout\":' AS BLOB))")
        )
        # Behind the reason that was given stands what the release went ahead in spite of.
        released = Counter(reason.partition(";")[0] for (reason,) in rows("SELECT reason FROM releases"))
        bundle = store.live()
        live = set() if bundle is None else {version.content for version in bundle.values()}
        chain = rows("SELECT id, previous FROM releases ORDER BY seq")
        sound = rows("PRAGMA integrity_check") == [("ok",)]
    lost = Counter(
        spans=sum(spans[trace] < SPANS for trace in acknowledged["spans"]),
        trajectories=sum(not ids[id] for id in acknowledged["trajectories"]),
        queued=sum(id not in rollouts for id in acknowledged["queued"]),
        finished=sum(
            rollouts.get(id, ("", ""))[0] != "succeeded" or not ids[rollouts[id][1]]
            for id in acknowledged["finished"]
        ),
        calls=sum(not calls[mark] for mark in acknowledged["calls"]),
        releases=sum(not released[text] for text in acknowledged["releases"]),
    )
    # A release that goes back to another one than the one before it has dropped that one's names.
    lost["releases"] += sum(previous != before for (before, _), (_, previous) in pairwise(chain))
    lost["releases"] += sum(text not in released for text in live)
    doubled = Counter(
        spans=sum(count > SPANS for count in spans.values()),
        trajectories=sum(ids[id] > 1 for id in acknowledged["trajectories"]),
        finished=sum(count > 1 for count in runs.values()),
        calls=sum(count > 1 for count in calls.values()),
        releases=sum(count > 1 for count in released.values()),
    )
    return lost, doubled, sound


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--parent"]:
        parent(arguments[1:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.5, help="longest life after its start")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no other life after so many"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    chance, deadline, kills = random.Random(options.seed), time.monotonic() + 60 * options.minutes, 0
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        ScriptedServer("fine", speaks=("chat",)) as upstream,
    ):
        path = Path(folder) / "runs.db"
        server = Server(path, upstream.base_url)
        load = Load(server.url, options.seed)
        server.start()
        load.start()
        while kills < options.kills and time.monotonic() < deadline and not load.problems:
            time.sleep(chance.uniform(0.0, options.seconds))
            server.end()
            kills += 1
            server.start()
            if kills % 100 == 0:
                print(f"{kills:,} kills", file=sys.stderr, flush=True)
        load.stop()
        server.end(signal.SIGTERM)
        server.close()
        lost, doubled, sound = judge(path, load.acknowledged)
    figures = {
        kind: {"acknowledged": len(load.acknowledged[kind]), "lost": lost[kind], "doubled": doubled[kind]}
        for kind in KINDS
    }
    if options.json:
        print(json.dumps({"kills": kills, "sound": sound, "answered": load.answered, **figures}))
    else:
        print(
            f"{kills:,} kills; {load.answered:,} model calls answered; the file is {'' if sound else 'NOT '}sound"
        )
        print(f"{'':14}{'acknowledged':>14}{'lost':>10}{'doubled':>10}")
        for kind, counts in figures.items():
            print(f"{kind:14}{counts['acknowledged']:>14,}{counts['lost']:>10,}{counts['doubled']:>10,}")
    for problem in load.problems:
        print(f"a client ended: {problem}", file=sys.stderr)
    return int(bool(lost.total() or doubled.total() or load.problems or not sound))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
