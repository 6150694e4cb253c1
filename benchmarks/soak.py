"""Half of what the server can carry, for long: does it leak, slow down or fail?

    python benchmarks/soak.py [--minutes M] [--folder FOLDER] [--json]

First the peak: workers that report a rollout with five spans and claim the next as fast as they can.
Then the same at half of that rate, for M minutes.  Printed are the server's memory at each tenth of the
time, its slope over the last half, errors, and the p99 of a request in each third.  Exits with 1 for an error.

Memory grows at first: by 32 MB of SQLite's page cache once the file is as large, by 8 MB once there is a
second segment of spans (`record/store/spans.py`), by the 10,000 runs whose revisions the assembler remembers, by the
leases of the last minute, and by up to `STATEMENTS_KEPT` prepared statements of some 40 KB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from server import Link, Whet, own, resident, serving

WORKERS = 4
PEAK = 5.0
"""Seconds for which the peak is measured."""
EVERY = 1.0
"""Seconds between two looks at the memory."""
AHEAD = 2_000
"""Rollouts that wait at the least."""


@dataclass
class Load:
    """What the workers did: (when it was answered, seconds that it took), and what went wrong."""

    took: list[tuple[float, float]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


def work(url: str, name: str, load: Load, pause: float) -> None:
    """One worker; `pause` seconds from one request to the next, however long the first one took."""
    side, link = Whet(), Link(url)
    leases = side.claim(link, name, 1)
    due, trace = time.perf_counter(), hash(name) << 64 & (1 << 127) - 1
    while not load.stop.is_set():
        due = max(due + pause, time.perf_counter() - 1.0)
        load.stop.wait(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        try:
            trace += 1
            leases = side.turn(link, leases[0], name, trace) if leases else side.claim(link, name, 1)
        except (OSError, RuntimeError, ValueError, IndexError) as exception:
            load.errors.append(f"{type(exception).__name__}: {exception}")
            link, leases = Link(url), []
        load.took.append((time.perf_counter(), time.perf_counter() - began))


def fill(url: str, load: Load) -> None:
    """Keep rollouts waiting."""
    side, link = Whet(), Link(url)
    while not load.stop.wait(0.2):
        waiting = json.loads(link.get("/api/rollouts/counts"))["counts"]["queued"]
        if waiting < AHEAD:
            side.fill(link, AHEAD)


def run(url: str, process: int, seconds: float, rate: float | None) -> tuple[Load, list[tuple[float, float]]]:
    """Load for some seconds at a rate, None for as much as goes; and the memory over time."""
    load = Load()
    pause = 0.0 if rate is None else WORKERS / rate
    threads = [threading.Thread(target=work, args=(url, f"w{n}", load, pause)) for n in range(WORKERS)]
    threads.append(threading.Thread(target=fill, args=(url, load)))
    for thread in threads:
        thread.start()
    memory = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        load.stop.wait(EVERY)
        memory.append((time.perf_counter(), resident(process)))
    load.stop.set()
    for thread in threads:
        thread.join()
    return load, memory


def slope(points: list[tuple[float, float]]) -> float:
    """Of a line through them, by least squares, a minute."""
    count = len(points)
    x_mean, y_mean = (sum(each[place] for each in points) / count for place in (0, 1))
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    return 60 * sum((x - x_mean) * (y - y_mean) for x, y in points) / spread if spread else 0.0


def p99(took: list[float]) -> float:
    """In milliseconds."""
    return 1e3 * sorted(took)[int(len(took) * 0.99)] if took else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        with serving(Whet(), Path(folder)) as (process, url, _):
            Whet().fill(Link(url), 2 * AHEAD)
            peak = len(run(url, process, PEAK, None)[0].took) / PEAK
            load, memory = run(url, process, 60 * given.minutes, peak / 2)
            private = own(process)
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
    began, third = memory[0][0], (memory[-1][0] - memory[0][0]) / 3
    parts = [
        [seconds for at, seconds in load.took if begin <= at < begin + third]
        for begin in (began, began + third, began + 2 * third)
    ]
    found = {
        "minutes": given.minutes,
        "peak, rollouts/s": peak,
        "carried, rollouts/s": len(load.took) / (60 * given.minutes),
        "errors": len(load.errors),
        "memory, first, MB": memory[0][1],
        "memory, last, MB": memory[-1][1],
        "memory, last, without pages of files, MB": private,
        "memory slope of the last half, MB a minute": slope(
            [each for each in memory if each[0] > began + 1.5 * third]
        ),
        "p99 of the first third, ms": p99(parts[0]),
        "p99 of the second third, ms": p99(parts[1]),
        "p99 of the last third, ms": p99(parts[2]),
        "disk, MB": size / 1e6,
    }
    tenths = [memory[len(memory) * part // 10][1] for part in range(10)]
    if given.json:
        print(json.dumps({**found, "memory at each tenth, MB": tenths}))
    else:
        for name, value in found.items():
            print(f"{name:42} {value:>12,.2f}")
        print(f"memory at each tenth, MB: {' '.join(f'{each:.0f}' for each in tenths)}")
    for each in sorted(set(load.errors))[:5]:
        print(each, file=sys.stderr)
    return int(bool(load.errors))


if __name__ == "__main__":
    sys.exit(main())
