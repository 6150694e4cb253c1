"""Is anything acknowledged ever lost?  Run: python benchmarks/durability.py --kills 100 --seconds 1

A process takes spans (some twice), queues rollouts and lets 16 workers claim and finish them, while its
wall clock is set back and forth by up to a day and some workers fall silent or come back late.  It is
killed with -9 at a random moment, and the next one goes on with the same file.  What was acknowledged
was written to a log first; in the end the record must agree with the log:

    lost          acknowledged and not in the record
    duplicates    in the record twice
    held twice    a rollout given out while another worker's lease on it ran
    stale taken   a result accepted under a lease that had been given to someone else

With --claims N it goes on, killing once in a while, until so many claims were answered; a worker then
takes up to 100 at a time: python benchmarks/durability.py --claims 1000000 --seconds 60

With --minutes it begins no other life after so many, whatever is still wanted, and judges what there is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from whet.errors import StaleLeaseError
from whet.record.store import Finish, Queue, Store
from whet.record.store.rollouts import Claim
from whet.types import Lease, Outcome, Rollout, Span, Task, Trajectory

WORKERS = 16
BATCH = 20
DAY = 86_400.0
_WELL = Outcome.SUCCESS


def trace_of(name: str) -> bytes:
    return hashlib.md5(name.encode()).digest()


class Life:
    """One process under load, until it is killed."""

    def __init__(self, path: Path, log: Path, number: int, most: int) -> None:
        self.number, self.most = number, most
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.store = Store(path, segment=2_000)
        self.queue: Queue = self.store.queue
        self.random = random.Random(number)

    def say(self, *words: object) -> None:
        """One line of the log, whole or not at all: it outlives this process."""
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def run(self) -> None:
        jobs = [self.send_spans, self.add, self.set_clock, *[self.work] * WORKERS]
        threads = [threading.Thread(target=job, args=(place,), daemon=True) for place, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
        self.say("life", self.number)
        for thread in threads:
            thread.join()

    def send_spans(self, _: int) -> None:
        before: list[Span] = []
        for turn in range(1_000_000):
            name = f"{self.number}-{turn}"
            spans = [
                Span(
                    trace_of(name),
                    k.to_bytes(8, "big"),
                    b"",
                    turn,
                    turn + 1,
                    "chat",
                    b"x" * 1_000,
                    "span",
                    b"c",
                )
                for k in range(BATCH)
            ]
            again = before if turn % 3 == 0 else []
            self.store.spans.put([*again, *spans]).result()
            self.say("span", name)
            before = spans
            time.sleep(0.01)

    def add(self, _: int) -> None:
        for turn in range(1_000_000):
            made = [
                Rollout(id=f"{self.number}-{turn}-{k}", task=Task(id=f"t{k % 10}"), max_attempts=50)
                for k in range(10 * self.most)
            ]
            self.queue.add(made).result()
            self.queue.add(made[:2]).result()
            self.say("add", *(each.id for each in made))
            while self.queue.counts()["queued"] > 2_000:
                time.sleep(0.01)

    def set_clock(self, _: int) -> None:
        real = time.time
        while True:
            offset = self.random.uniform(-DAY, DAY)
            time.time = lambda offset=offset: real() + offset  # what setting the machine's clock does
            time.sleep(0.05)

    def work(self, place: int) -> None:
        """What `whet work` does: report what was held and claim more in one request, many at a time."""
        chance, worker = random.Random(f"{self.number} {place}"), f"w{place}"
        reports: list[Finish] = []
        while True:
            lease = chance.choice([0.1, 0.5, 30.0])
            asked = time.monotonic()
            turned = self.queue.turn(reports, Claim(worker, chance.randint(1, self.most), lease)).result()
            given = time.monotonic()
            said = []
            for report, problem in zip(reports, turned.problems, strict=True):
                if problem is not None and not isinstance(problem, StaleLeaseError):
                    raise problem
                said.append(f"{'finish' if problem is None else 'stale'} {report.id} {report.fence}")
            for each in turned.leases:
                said.append(f"claim {each.rollout.id} {each.fence} {asked} {lease} {given}")
            if said:
                self.say("\n".join(said))
            if not turned.leases:
                time.sleep(0.005)
            reports = [
                self.report(each) for each in turned.leases if chance.random() > 0.03
            ]  # or fell silent
            if chance.random() < 0.05:
                time.sleep(0.2)  # and is late, if the lease was short

    def report(self, lease: Lease) -> Finish:
        id = lease.rollout.id
        return Finish(
            id, lease.fence, Trajectory(task=Task(id="t"), id=f"run-{id}", started=1.0, outcome=_WELL)
        )


def judge(path: Path, log: Path) -> dict[str, float]:
    """Hold the record against the log."""
    lines = [line.split() for line in log.read_text().splitlines()]
    found: Counter[str] = Counter(dict.fromkeys(("lost", "duplicates", "held twice", "stale taken"), 0))
    began = time.perf_counter()
    with Store(path) as store:
        opened = time.perf_counter() - began
        spans = Counter(
            dict(
                store.database.rows(
                    "SELECT lower(hex(trace)), count(*) FROM (" + _all_spans(store) + ") GROUP BY 1"
                )
            )
        )
        known = {
            row[0]: row for row in store.database.rows("SELECT id, status, trajectory, done FROM rollouts")
        }
        kept = {id for (id,) in store.database.rows("SELECT id FROM trajectories")}
        fences = dict(store.database.rows("SELECT fence, outcome FROM attempts"))
        check = store.database.rows("PRAGMA integrity_check")
    for words in lines:
        if words[0] == "span":
            count = spans[trace_of(words[1]).hex()]
            found["lost"] += count < BATCH
        elif words[0] == "add":
            found["lost"] += sum(id not in known for id in words[1:])
        elif words[0] == "finish":
            row = known.get(words[1])
            found["lost"] += row is None or row[1] != "succeeded" or row[2] not in kept
            found["stale taken"] += fences.get(int(words[2])) != "succeeded"
        elif words[0] == "claim":
            found["lost"] += int(words[2]) not in fences
    found["duplicates"] += sum(count > BATCH for count in spans.values())
    found["held twice"] += overlaps(lines)
    said = Counter(words[0] for words in lines)
    return {
        **found,
        "integrity": 0 if check == [("ok",)] else 1,
        "lives": said["life"],
        "claims": said["claim"],
        "finished": said["finish"],
        "stale refused": said["stale"],
        "spans": said["span"] * BATCH,
        "open seconds": round(opened, 3),
    }


def _all_spans(store: Store) -> str:
    numbers = [number for (number,) in store.database.rows("SELECT number FROM segments")]
    return " UNION ALL ".join(f"SELECT trace FROM spans_{number}" for number in numbers)


def overlaps(lines: list[list[str]]) -> int:
    """How often a rollout was given out before the lease before it had run out, or ended.

    A lease is taken to begin when it was asked for and the next one when it was answered, so only what
    is certainly an overlap counts.
    """
    ended = {int(words[2]) for words in lines if words[0] == "finish"}
    claims: dict[str, list[tuple[int, float, float]]] = {}
    for words in lines:
        if words[0] == "claim":
            asked, lease, given = map(float, words[3:])
            claims.setdefault(words[1], []).append((int(words[2]), asked + lease, given))
    found = 0
    for each in claims.values():
        for (fence, until, _), (_, _, next_given) in pairwise(sorted(each)):
            found += next_given < until or fence in ended  # still held, or done and given out again
    return found


class Claims:
    """Counts the claims in the log, reading each line once."""

    def __init__(self, log: Path) -> None:
        self._log, self._read, self._found = log, 0, 0

    def count(self) -> int:
        with self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read += whole
        self._found += sum(line.startswith(b"claim ") for line in data[:whole].splitlines())
        return self._found


def live(path: Path, log: Path, number: int, seconds: float, most: int) -> None:
    """One process, from its start until it is killed, `seconds` after it began to work."""
    words = [sys.executable, __file__, "--life", str(path), str(log), str(number), str(most)]
    at = log.stat().st_size
    process = subprocess.Popen(words)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with log.open("rb") as file:
            file.seek(at)
            if b"life %d\n" % number in file.read():
                break
        if process.poll() is not None:
            raise SystemExit(f"life {number} ended by itself with {process.returncode}")
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="at least")
    parser.add_argument("--claims", type=int, default=0, help="go on until so many were answered")
    parser.add_argument("--seconds", type=float, default=1.0, help="longest life after its start")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--life", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life:
        path, log, number, most = given.life
        Life(Path(path), Path(log), int(number), int(most)).run()
        return 0
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, log = Path(folder) / "runs.db", Path(folder) / "log"
        log.touch()
        number, claims = 0, Claims(log)
        deadline = time.monotonic() + 60 * given.minutes
        while time.monotonic() < deadline and (number < given.kills or claims.count() < given.claims):
            live(path, log, number, chance.uniform(0.0, given.seconds), 100 if given.claims else 8)
            number += 1
            if given.claims:
                print(f"{claims.count():,} claims after {number} kills", file=sys.stderr, flush=True)
        found = judge(path, log)
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:16} {value:>12,}")
    return int(any(found[name] for name in ("lost", "duplicates", "held twice", "stale taken", "integrity")))


if __name__ == "__main__":
    sys.exit(main())
