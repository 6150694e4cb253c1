"""Everything that the server does, at once and for long: does it leak, slow down or fail?

    python benchmarks/soak.py [--minutes M] [--rate R] [--folder FOLDER] [--json]

A `whet serve` process over a file, in front of a scripted model.  Four workers report R rollouts a second, each with
five spans, and claim the next in the same request; beside them whole traces come in by OTLP, model calls go through the
gateway, people rate runs, prompts are released and rolled back, and the record is read.  Without --rate the workers
first go as fast as they can for some seconds, and R is half of that.

Printed are the server's memory at each tenth of the time, its slope with a 95 % interval, the errors, and the p99 of a
worker's request in each third.  The slope is that of a line through the means of sixteen equal parts of the last two
thirds: single readings follow each other too closely for an error of their own.  Exits with 1 for an error, and with 2
where the interval of the slope lies above zero.

Memory grows at first: by 32 MB of SQLite's page cache once the file is as large, by 8 MB once there is a second
segment of spans (`record/store/spans.py`), by the 10,000 runs whose revisions the assembler remembers and the 10,000
whose Versions the gateway does (18 minutes of calls), by 8 MB of messages, by the leases of the last minute, by the
states that RE2 keeps of the texts it has looked through (11 MB after 150,000 of them, half an hour), and by the
prepared statements of the connections that read, 24 of some 6 KB for each (`record/store/database.py`), which a few
segments of spans bring.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server import PROTOBUF, SPANS, Link, Whet, export, own, resident, serving

from whet.models.fakes import ScriptedServer
from whet.stats import t_quantile

WORKERS = 4
PEAK = 5.0
"""Seconds for which the peak is measured."""
EVERY = 1.0
"""Seconds between two looks at the memory."""
AHEAD = 2_000
"""Rollouts that wait at the least."""
PARTS = 16
"""Means through which the slope's line goes."""
Point = tuple[float, float]
"""When, in seconds, and what."""


class Soaked(Whet):
    """`whet serve` in front of a model.

    Args:
        upstream: URL of the model.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream

    def command(self, folder: Path, port: int) -> list[str]:
        return [*super().command(folder, port), "--upstream", self._upstream]


@dataclass
class Load:
    """What was asked of the server: (when it was answered, seconds that it took), counts, and what went wrong."""

    took: list[Point] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)


def work(url: str, name: str, load: Load, pause: float) -> None:
    """One worker; `pause` seconds from one request to the next, however long the first one took."""
    side, link = Whet(), Link(url)
    leases = side.claim(link, name, 1)
    due, trace = time.perf_counter(), random.getrandbits(60) << 64
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
        load.done["rollouts"] += 1


def fill(link: Link, number: int) -> None:
    """Keep rollouts waiting."""
    if json.loads(link.get("/api/rollouts/counts"))["counts"]["queued"] < AHEAD:
        Whet().fill(link, AHEAD)


def send_trace(link: Link, number: int) -> None:
    """A whole trace of its own."""
    link.post("/v1/traces", export(random.getrandbits(127) | 1, SPANS), PROTOBUF)


def call_model(link: Link, number: int) -> None:
    """Two model calls of one run; the second holds the first one's answer."""
    run = f"soak-{number}"
    asked: list[dict[str, Any]] = [{"role": "user", "content": f"question {number}"}]
    for _ in range(2):
        answered = link.json(f"/run/{run}/v1/chat/completions", {"model": "scripted", "messages": asked})
        asked += [answered["choices"][0]["message"], {"role": "user", "content": "and then?"}]


def rate_run(link: Link, number: int) -> None:
    """A thumb for a run of the gateway."""
    rated = {"run": f"soak-{max(0, number - 50)}", "kind": "thumb", "value": 1.0 if number % 2 else -1.0}
    link.json("/api/feedback", {"feedback": [rated]})


def release(link: Link, number: int) -> None:
    """A prompt goes live, and every other time back."""
    if number % 2:
        link.json("/api/releases/rollback", {"reason": "soak"})
        return
    version = {
        "resource": "gateway.system_prompt",
        "content": f"Answer in {number % 7} words.",
        "kind": "prompt",
    }
    link.json("/api/releases", {"versions": [version], "unproven": True, "reason": "soak"})


def read(link: Link, number: int) -> None:
    """What a person looks at."""
    pages = (
        "/api/trajectories?limit=20",
        "/api/rollouts/counts",
        "/api/feedback?limit=20",
        "/api/bundles/live",
    )
    link.get(pages[number % len(pages)])


CHORES: tuple[tuple[str, Callable[[Link, int], None], float], ...] = (
    ("queue filled", fill, 0.2),
    ("traces", send_trace, 0.05),
    ("runs through the gateway", call_model, 0.1),
    ("thumbs", rate_run, 0.1),
    ("releases and rollbacks", release, 2.0),
    ("reads", read, 0.2),
)
"""What is done beside the workers, and the seconds from one to the next."""


def repeat(url: str, name: str, chore: Callable[[Link, int], None], every: float, load: Load) -> None:
    """Do a chore until the load stops."""
    link, number = Link(url), 0
    while not load.stop.wait(every):
        try:
            chore(link, number)
        except (OSError, RuntimeError, ValueError, KeyError, IndexError) as exception:
            load.errors.append(f"{name}: {type(exception).__name__}: {exception}")
            link = Link(url)
        number += 1
        load.done[name] += 1


def run(url: str, process: int, seconds: float, rate: float | None) -> tuple[Load, list[Point]]:
    """Load for some seconds; without a rate, the workers alone as fast as they can. And the memory over time."""
    load = Load()
    pause = 0.0 if rate is None else WORKERS / rate
    threads = [threading.Thread(target=work, args=(url, f"w{n}", load, pause)) for n in range(WORKERS)]
    chores = CHORES[:1] if rate is None else CHORES
    threads += [
        threading.Thread(target=repeat, args=(url, name, chore, every, load)) for name, chore, every in chores
    ]
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


def slope(points: Sequence[Point]) -> tuple[float, float]:
    """Of a line through the means of `PARTS` equal parts, by least squares, and half of its 95 % interval; an hour."""
    size = len(points) // PARTS
    if size == 0:
        return math.nan, math.nan
    means = [
        tuple(sum(each[place] for each in points[n * size : (n + 1) * size]) / size for place in (0, 1))
        for n in range(PARTS)
    ]
    middle, level = (sum(each[place] for each in means) / PARTS for place in (0, 1))
    spread = sum((at - middle) ** 2 for at, _ in means)
    rise = sum((at - middle) * (held - level) for at, held in means) / spread
    left = sum((held - level - rise * (at - middle)) ** 2 for at, held in means)
    error = math.sqrt(left / (PARTS - 2) / spread)
    return 3600 * rise, 3600 * t_quantile(0.975, PARTS - 2) * error


def p99(took: list[float]) -> float:
    """In milliseconds."""
    return 1e3 * sorted(took)[int(len(took) * 0.99)] if took else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=float, help="rollouts a second; half of the peak if omitted")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        ScriptedServer("fine", speaks=("chat",)) as model,
    ):
        with serving(Soaked(model.base_url), Path(folder)) as (process, url, _):
            Whet().fill(Link(url), 2 * AHEAD)
            rate = given.rate or len(run(url, process, PEAK, None)[0].took) / PEAK / 2
            load, memory = run(url, process, 60 * given.minutes, rate)
            private = own(process)
        size = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
    began, third = memory[0][0], (memory[-1][0] - memory[0][0]) / 3
    parts = [
        [seconds for at, seconds in load.took if begin <= at < begin + third]
        for begin in (began, began + third, began + 2 * third)
    ]
    rise, error = slope([each for each in memory if each[0] > began + third])
    found = {
        "minutes": given.minutes,
        "rollouts/s, aimed at": rate,
        **{f"{name}/s": count / (60 * given.minutes) for name, count in sorted(load.done.items())},
        "errors": len(load.errors),
        "memory, first, MB": memory[0][1],
        "memory, last, MB": memory[-1][1],
        "memory, last, without pages of files, MB": private,
        "memory slope, MB an hour": rise,
        "  of that uncertain, plus or minus": error,
        "p99 of the first third, ms": p99(parts[0]),
        "p99 of the second third, ms": p99(parts[1]),
        "p99 of the last third, ms": p99(parts[2]),
        "disk, MB": size / 1e6,
    }
    tenths = [memory[len(memory) * part // 10][1] for part in range(10)]
    if given.json:
        print(json.dumps({**found, "memory at each tenth, MB": tenths}))
    else:
        for name, figure in found.items():
            print(f"{name:42} {figure:>12,.2f}")
        print(f"memory at each tenth, MB: {' '.join(f'{each:.0f}' for each in tenths)}")
    for each in sorted(set(load.errors))[:5]:
        print(each, file=sys.stderr)
    return 1 if load.errors else 2 if rise - error > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
