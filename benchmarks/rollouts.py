"""Rollouts that `whet serve` hands out and takes back, for minutes.  Run: python benchmarks/rollouts.py

    python benchmarks/rollouts.py [--seconds S] [--rounds R] [--workers N] [--batch N] [--traffic] [--folder FOLDER]

A pair is one claim and one report with its trajectory, both durable (SQLite, FULL), over HTTP on loopback.  `batches`
is a worker with room for `--batch` rollouts, which reports what is done and claims as many in one request, as
`whet work` does; `singles` is `--workers` processes with one rollout each: a request for every rollout.  Tasks,
answers and ids are random, trajectories have the shape of `whet work`'s.  The baseline is a bare sqlite3 loop that
makes the same two durable updates, in transactions of as many pairs, beside each round and in the same folder.
Rounds alternate; medians are printed, with the server's CPU for a pair.  With --traffic spans arrive meanwhile and
are assembled.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from server import Link, Whet, cpu, export, serving

AHEAD = 20_000
"""Rollouts that wait at least, at the start of a round."""
FILL = 1_000
TEXT = 600
"""Characters of an answer."""


class Queued(msgspec.Struct):
    """What a load needs to know of a rollout; decoding all of it would take longer than the server does."""

    id: str
    task: msgspec.Raw


class Held(msgspec.Struct):
    """A lease."""

    rollout: Queued
    attempt: int
    fence: int


class Answered(msgspec.Struct):
    """The answer to a turn."""

    leases: list[Held]
    results: list[dict[str, object]] = []


_answered = msgspec.json.Decoder(Answered)


def fill(url: str, count: int) -> None:
    """Queue rollouts with random ids and tasks of the usual length."""
    link = Link(url)
    for _ in range(0, count, FILL):
        rollouts = [
            {"id": os.urandom(12).hex(), "task": {"instruction": f"When does {os.urandom(60).hex()} move?"}}
            for _ in range(FILL)
        ]
        link.json("/api/rollouts", {"rollouts": rollouts})


def report(lease: Held, worker: str) -> bytes:
    """A trajectory of one step, as `whet work` reports it."""
    id, answer = lease.rollout.id, os.urandom(TEXT // 2).hex()
    run = f'"run":"{id}","rollout":"{id}","attempt":{lease.attempt},"mode":"train","worker":"{worker}"'
    head = (
        f'{{"id":"{id}","fence":{lease.fence},"trajectory":{{"id":"{id}.{lease.attempt}","output":"{answer}",'
        f'"steps":[{{"id":"0","kind":"action","observation":"When does it move?","action":"{answer}","reward":null,'
        '"done":true,"latency":1.25}],"versions":{},"scores":{},"outcome":"unknown","started":1700000000.5,'
        f'"seconds":1.25,"seed":123456789,"meta":{{{run}}},"task":'
    )
    return head.encode() + bytes(lease.rollout.task) + b"}}"


def work(url: str, worker: str, batch: int, seconds: float) -> int:
    """One worker: rollouts reported in `seconds`."""
    link, reported, deadline = Link(url), 0, time.perf_counter() + seconds
    claim = b'{"worker":"%b","n":%d}' % (worker.encode(), batch)
    leases = _answered.decode(link.post("/api/rollouts/claim", claim)).leases
    while time.perf_counter() < deadline:
        if not leases:
            raise RuntimeError("the queue ran dry: queue more for so many seconds")
        body = b'{"finished":[%b],"claim":%b}' % (
            b",".join([report(lease, worker) for lease in leases]),
            claim,
        )
        turned = _answered.decode(link.post("/api/rollouts/finish", body))
        if not all(result["taken"] for result in turned.results):
            raise RuntimeError(f"a report was refused: {turned.results}")
        reported, leases = reported + len(turned.results), turned.leases
    body = b'{"finished":[%b]}' % b",".join([report(lease, worker) for lease in leases])
    link.post("/api/rollouts/finish", body)
    return reported


def workers(url: str, count: int, batch: int, seconds: float) -> float:
    """Pairs a second of `count` worker processes."""
    command = [sys.executable, __file__, "--worker", url, str(batch), str(seconds)]
    processes = [
        subprocess.Popen([*command, f"w{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    return sum(int(process.communicate(timeout=seconds + 120)[0]) for process in processes) / seconds


def raw(folder: Path, batch: int, seconds: float) -> float:
    """Pairs a second of a bare sqlite3 loop: two durable transactions for `batch` pairs."""
    path = folder / f"raw{time.monotonic_ns()}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "PRAGMA wal_autocheckpoint = 4000;"
        "CREATE TABLE rollouts (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, status TEXT, fence INTEGER, body BLOB);"
        "CREATE TABLE trajectories (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL);"
    )
    count = AHEAD
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO rollouts (id, status, body) VALUES (?, 'queued', ?)",
        ((os.urandom(12).hex(), os.urandom(80)) for _ in range(count)),
    )
    connection.execute("COMMIT")
    body, done, began = os.urandom(2 * TEXT), 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        first = done % (count - batch) + 1
        claimed = range(first, first + batch)
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "UPDATE rollouts SET status = 'running', fence = ? WHERE seq = ?", ((seq, seq) for seq in claimed)
        )
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "UPDATE rollouts SET status = 'succeeded', fence = NULL WHERE seq = ?",
            ((seq,) for seq in claimed),
        )
        connection.executemany(
            "INSERT INTO trajectories (id, body) VALUES (?, ?)",
            ((os.urandom(12).hex(), body) for _ in claimed),
        )
        connection.execute("COMMIT")
        done += batch
    rate = done / (time.perf_counter() - began)
    connection.close()
    path.unlink()
    return rate


def traffic(url: str, stop: threading.Event) -> None:
    """Runs of five spans, some fifty a second, which the server assembles meanwhile."""
    link, trace = Link(url), int.from_bytes(os.urandom(8), "big") << 32
    while not stop.wait(0.02):
        trace += 1
        link.post("/v1/traces", export(trace, 5, {"service.name": "traffic"}), "application/x-protobuf")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Load → for each round: pairs a second, server CPU milliseconds for one, and the raw loop's pairs a second."""
    loads = {"batches": (1, options.batch), "singles": (options.workers, 1)}
    figures: dict[str, list[tuple[float, float, float]]] = {load: [] for load in loads}
    stop = threading.Event()
    with serving(Whet(), folder) as (process, url, _):
        if options.traffic:
            threading.Thread(target=traffic, args=(url, stop), daemon=True).start()
        # Until a round has shown how many there are: a queue that runs dry ends the round with an error.
        rate = dict.fromkeys(loads, max(5_000.0, AHEAD / options.seconds))
        for _ in range(options.rounds):
            for load, (count, batch) in loads.items():
                fill(url, int(rate[load] * 3.0 * options.seconds))
                baseline = raw(folder, batch * count, options.seconds / 4)
                spent = cpu(process)
                pairs = workers(url, count, batch, options.seconds)
                figures[load].append(
                    (pairs, (cpu(process) - spent) / (pairs * options.seconds) * 1000, baseline)
                )
                rate[load] = max(rate[load], pairs)
        stop.set()
    return figures


def show(figures: dict[str, list[tuple[float, float, float]]]) -> None:
    """Medians of the rounds."""
    print(f"{'':10}{'pairs/s':>10}{'CPU ms':>10}{'raw/s':>10}{'of raw':>10}{'lowest/s':>10}")
    for load, rounds in figures.items():
        pairs, spent, baseline = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(rate / bare for rate, _, bare in rounds)
        lowest = min(rate for rate, *_ in rounds)
        print(f"{load:10}{pairs:>10,.0f}{spent:>10.3f}{baseline:>10,.0f}{ratio:>10.2f}{lowest:>10,.0f}")


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--worker"]:
        url, batch, seconds, name = arguments[1:]
        print(work(url, name, int(batch), float(seconds)))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--traffic", action="store_true", help="spans arrive and are assembled meanwhile")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        show(measure(options, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
