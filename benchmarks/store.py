"""What the record costs, and whether it costs more as it grows.  Run: python benchmarks/store.py [PART ...]

Every figure is of acknowledged, fsynced writes by one process.  Rates are per second of the wall
and per second of CPU: on a machine that does other things too only the second can be compared.

    trajectories   four small steps each: put and read
    spans          1.4 KB each in batches of 100, --spans in all: rate, disk, and a large store against a fresh
                   one of 100,000: ingest, claims, restart after kill -9, the commands that read, integrity. Ten
                   million take 16 GB of disk (--folder says where) and about 10 minutes of a quiet core; with
                   --copied, which lets SQLite multiply the first million, and --body 900: 11 GB and 3 minutes
    queue          claim and finish in batches, with --rollouts waiting
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from whet.record.store import Finish, Store
from whet.record.store.codec import decode, encode
from whet.record.tracing.assemble import CURSOR
from whet.types import Outcome, Rollout, Span, Step, Task, Trajectory

BODY = 1_400
"""Bytes of a span's body, unless given: the usual LLM span with one prompt and one answer."""
MILLION = 1_000_000
RUNS = 50_000
"""Trajectories that are put; copies make them a tenth of the spans."""


def small(number: int) -> Trajectory:
    """A trajectory of four steps."""
    steps = tuple(
        Step(observation="r1 hit 3 sender month", action="search any w2 w5", reward=-0.02, id=str(index))
        for index in range(4)
    )
    task = Task(id=f"t{number}", instruction="When is the move?")
    return Trajectory(task=task, steps=steps, outcome=Outcome.SUCCESS)


@contextmanager
def rate(name: str, count: int) -> Iterator[None]:
    """Print what `count` of something cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name:48} {count / wall:10,.0f} /s {count / cpu:10,.0f} /CPU-s", flush=True)


def trajectories(path: Path, count: int) -> None:
    made = [small(number) for number in range(count)]
    with rate("encode", count):
        bodies = [encode(each) for each in made]
    with rate("decode", count):
        for body in bodies:
            decode(body, Trajectory)
    with Store(path) as store:
        with rate("put, 1,000 at a time", count):
            for start in range(0, count, 1_000):
                store.put(*made[start : start + 1_000])
        with rate("read back", count):
            for _ in store.trajectories():
                pass
        with rate("put, one at a time", 200):
            for number in range(200):
                store.put(small(number))

        def worker() -> None:
            for number in range(100):
                store.put(small(number))

        threads = [threading.Thread(target=worker) for _ in range(32)]
        with rate("put, one at a time from 32 threads", 3_200):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with Store(path) as other:
            fresh = [small(number) for number in range(count)]
            with rate("put through the owner's socket, 1,000 at a time", count):
                for start in range(0, count, 1_000):
                    other.put(*fresh[start : start + 1_000])


def batches(number: int, count: int, body: int = BODY) -> list[list[Span]]:
    """Batches of 100 spans: 20 traces of 5, random ids, two contexts, bodies that do not compress away."""
    noise = os.urandom(body * 40)
    made = []
    for batch in range(count):
        spans = []
        for k in range(100):
            trace = hashlib.md5(b"%d-%d-%d" % (number, batch, k // 5)).digest()
            at = (batch * 131 + k * 17) % (body * 39)
            spans.append(
                Span(
                    trace=trace,
                    id=os.urandom(8),
                    parent=b"",
                    started=time.time_ns(),
                    ended=time.time_ns(),
                    name="chat model",
                    body=noise[at : at + body],
                    encoding="span",
                    context=b"service and scope" * 20 + b"%d" % (k % 2),
                )
            )
        made.append(spans)
    return made


def keep(store: Store, made: list[list[Span]], window: int = 40) -> None:
    """Put the batches with some under way at once, as a server with several clients does."""
    waiting: list[Future[None]] = []
    for batch in made:
        waiting.append(store.spans.put(batch))
        if len(waiting) >= window:
            waiting.pop(0).result()
    for future in waiting:
        future.result()


def fill(store: Store, count: int, body: int) -> None:
    """Put `count` spans, and say how fast by tenths of the way."""
    done = 0
    for part in range(1, 11):
        cpu, wall, before = 0.0, 0.0, done
        while done < count * part // 10:
            made = batches(done, 200, body)
            start = time.process_time(), time.perf_counter()
            keep(store, made)
            cpu, wall = cpu + time.process_time() - start[0], wall + time.perf_counter() - start[1]
            done += 20_000
        if done > before:
            put = done - before
            print(
                f"{f'spans up to {done:,}':48} {put / wall:10,.0f} /s {put / cpu:10,.0f} /CPU-s", flush=True
            )


FRESH = 100_000
"""Spans in the store that a large one is compared with."""


def copy_spans(path: Path, count: int) -> None:
    """Copy a full segment, each time with other trace ids, until there are `count` spans."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        (made,) = connection.execute("SELECT sum(rows) FROM segments").fetchone()
        statements = connection.execute(
            "SELECT replace(sql, 'spans_2', 'spans_{0}') FROM sqlite_master WHERE tbl_name = 'spans_2' "
            "AND sql IS NOT NULL ORDER BY type DESC"
        ).fetchall()
        columns = "trace, id, parent, started, ended, name, encoding, context, run, arrived, body"
        kept = columns.replace("trace", "substr(trace, 1, 12) || ?", 1)
        while made < count:
            number, last = connection.execute("SELECT max(number) + 1, max(last) FROM segments").fetchone()
            with connection:
                connection.execute(statements[0][0].format(number))
                found = connection.execute(
                    f"INSERT INTO spans_{number} (seq, {columns}) SELECT seq - (SELECT min(seq) FROM spans_2) + ?, "
                    f"{kept} FROM spans_2",
                    (last + 1, number.to_bytes(4, "big")),
                ).rowcount
                for (statement,) in statements[1:]:
                    connection.execute(statement.format(number))
                connection.execute(
                    "INSERT INTO segments SELECT ?, opened, newest, ?, ? FROM segments WHERE number = 2",
                    (number, last + found, found),
                )
            made += found


def copy_runs(path: Path, count: int) -> None:
    """Copy the trajectories under other ids until there are `count`."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        columns = "task_id, experiment, bundle, outcome, session, subject"
        for number in range(1, count // RUNS):
            with connection:
                connection.execute(
                    f"INSERT INTO trajectories (id, run, started, body, {columns}) SELECT id || ?1, run || ?1, "
                    "started + ?2, CAST(replace(CAST(body AS TEXT), id, id || ?1) AS BLOB), "
                    f"{columns} FROM trajectories WHERE seq <= {RUNS}",
                    (f"-{number}", number * RUNS),
                )


def spans(path: Path, count: int, body: int, copied: bool) -> None:
    fresh = path.with_name("fresh.db")
    with Store(path) as store:
        print("a large store")
        fill(store, min(count, MILLION) if copied else count, body)
        began = time.time() - count / 10
        for start in range(0, RUNS, 1_000):
            store.put(*(recorded(number, began) for number in range(start, start + 1_000)))
    if copied:
        copy_spans(path, count)
    copy_runs(path, count // 10)
    with Store(path) as store, Store(fresh) as other:
        print("a fresh one")
        fill(other, FRESH, body)
        compare("ingest", store, other, lambda each, turn: keep(each, batches(10**9 + turn, 100, body)))
        compare("claim + finish", store, other, worked)
        kept = store.count("spans")
        before = time.perf_counter()
        for number in range(100):
            assert len(store.spans.trace(hashlib.md5(b"0-0-%d" % (number % 20)).digest())) == 5
        print(f"find a trace among {kept:,} spans: {10 * (time.perf_counter() - before):.2f} ms")
    size = path.stat().st_size
    print(f"disk to raw bodies: {size / kept / body:.2f} ({size / 1e9:.2f} GB)")
    for each, name in ((path, "large"), (fresh, "fresh")):
        restart(each, name)
    reads(path)
    print(f"memory, highest: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def recorded(number: int, began: float) -> Trajectory:
    """A run of a second, in a session of ten, of a person with a hundred."""
    return replace(
        small(number),
        id=f"run{number:08}",
        outcome=(Outcome.SUCCESS, Outcome.SUCCESS, Outcome.FAILURE)[number % 3],
        started=began + number,
        session=f"s{number // 10}",
        subject=f"p{number // 100}",
    )


def reads(path: Path) -> None:
    """Each command that reads the store, as a user types it."""
    store = ["--store", str(path)]
    recent = str(time.time() - 100)
    for words in (
        ["show", *store],
        ["show", "trajectories", *store, "--limit", "10"],
        ["show", "trajectories", *store, "--run", "run00000007"],
        ["show", "trajectories", *store, "--since", recent],
        ["show", "trajectories", *store, "--since", recent, "--json"],
        ["doctor"],
    ):
        wall, cpu = time.perf_counter(), children()
        ran = subprocess.run([sys.executable, "-m", "whet", *words], capture_output=True, check=False)
        wall, cpu = time.perf_counter() - wall, children() - cpu
        name = " ".join(word for word in words if word not in store)
        lines = len(ran.stdout.splitlines())
        print(f"whet {name:50} {wall:6.2f} s, {cpu:.2f} of CPU, {lines} lines, exit {ran.returncode}")


def children() -> float:
    """CPU seconds of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(what: str, large: Store, fresh: Store, work: Callable[[Store, int], object]) -> None:
    """Do the same to both by turns, so that what else the machine does meets both alike, and print the ratios."""
    spent: dict[Store, list[tuple[float, float]]] = {large: [], fresh: []}
    for turn in range(10):
        for each, times in spent.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work(each, turn)
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = (
        [statistics.median(times[place] for times in spent[each]) for each in (large, fresh)]
        for place in (0, 1)
    )
    print(
        f"{what}, time of the large store to the fresh one: {walls[0] / walls[1]:.2f} of the wall, "
        f"{cpus[0] / cpus[1]:.2f} of CPU",
        flush=True,
    )


def worked(store: Store, turn: int) -> None:
    """Queue 300 rollouts, and claim and finish them 100 at a time."""
    made = [Rollout(id=f"{turn}-{n}", task=Task(id=f"t{n}", instruction="When is it?")) for n in range(300)]
    store.queue.add(made).result()
    for _ in range(3):
        leases = store.queue.claim("w", n=100).result()
        reports = [Finish(each.rollout.id, each.fence, small(n)) for n, each in enumerate(leases)]
        assert store.queue.finish_many(reports).result() == [None] * 100


def restart(path: Path, name: str) -> None:
    """Kill a process that writes to the store, and say how long the next one takes until it works."""
    writer = subprocess.Popen([sys.executable, __file__, "--write", str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    for _ in range(50):
        assert writer.stdout.readline()  # a batch is acknowledged
    writer.kill()
    writer.communicate()
    before = time.perf_counter()
    with Store(path) as store:
        opened = time.perf_counter() - before
        store.spans.put(batches(10**9, 1)[0]).result()
        store.queue.claim("w").result()
        ready = time.perf_counter() - before
        kept = store.count("spans")
        # As if what was put here had been read into trajectories, as a server that ran would have done.
        store.put_state(CURSOR, store.database.rows("SELECT max(last) FROM segments")[0][0] - 1)
    print(
        f"{name}: opened {opened:.3f} s after kill -9, took spans and claims after {ready:.3f} s", flush=True
    )
    command = [sys.executable, "-m", "whet", "serve", "--store", str(path), "--port", "0"]
    before = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert b"serving" in server.stdout.readline()
    print(f"{name}: whet serve was ready after {time.perf_counter() - before:.2f} s", end=" ")
    cpu = children()
    server.kill()
    server.communicate()
    print(f"({children() - cpu:.2f} of CPU)", flush=True)
    before = time.perf_counter()
    with closing(sqlite3.connect(path)) as connection:
        ((sound,),) = connection.execute("PRAGMA quick_check").fetchall()
    print(f"{name}: quick_check of {kept:,} spans: {sound}, {time.perf_counter() - before:.1f} s", flush=True)


def write(path: Path) -> None:
    """Put batches and say so, until killed."""
    with Store(path) as store:
        for number in itertools.count(2 * 10**9):
            store.spans.put(batches(number, 1)[0]).result()
            print(number, flush=True)


def queue(path: Path, count: int) -> None:
    with Store(path) as store:
        work = store.queue
        made = [
            Rollout(id=f"r{n}", task=Task(id=f"t{n}", instruction="When is the move?")) for n in range(count)
        ]
        with rate("add, 1,000 at a time", count):
            for start in range(0, count, 1_000):
                work.add(made[start : start + 1_000]).result()
        for size in (1, 10, 100):
            turns = min(count // 4, 100 * size) // size

            results = iter([small(number) for number in range(turns // 4 * 4 * size)])

            def worker(turns: int = turns, size: int = size, results: Iterator[Trajectory] = results) -> None:
                for _ in range(turns // 4):
                    leases = work.claim("w", n=size).result()
                    reports = [Finish(each.rollout.id, each.fence, next(results)) for each in leases]
                    problems = work.finish_many(reports).result()
                    assert problems == [None] * size

            threads = [threading.Thread(target=worker) for _ in range(4)]
            done = turns // 4 * 4 * size
            with rate(f"claim + finish, {size} at a time, 4 threads", done):
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        print(work.counts())


PARTS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "trajectories": lambda path, given: trajectories(path, given.count),
    "spans": lambda path, given: spans(path, given.spans, given.body, given.copied),
    "queue": lambda path, given: queue(path, given.rollouts),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--body", type=int, default=BODY, help="bytes of a span's body")
    parser.add_argument("--copied", action="store_true", help="copy all spans but the first million")
    parser.add_argument("--rollouts", type=int, default=40_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.write)
        return
    if unknown := set(given.part) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    for part in given.part or PARTS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            PARTS[part](Path(folder) / "runs.db", given)


if __name__ == "__main__":
    main()
