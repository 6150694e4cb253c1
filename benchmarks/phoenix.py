"""How many traces a second come to be seen, beside Arize Phoenix over OTLP.  Run: python benchmarks/phoenix.py

    python benchmarks/phoenix.py [--traces N] [--repeat N] [--python PYTHON] [--folder FOLDER] [--json]

Both servers get the requests of `ingest.py`, OTLP/HTTP protobuf with ten traces of ten spans in the GenAI conventions,
from four connections; the clock stops when the last trace can be read from the server's own database: as a trajectory
in ours, as a trace with all of its spans in Phoenix's.  Both keep SQLite on the same disk, start anew with an empty one
for each repetition, and take turns.  Phoenix gets a tenth of the traces: few enough that its list of waiting spans does
not fill, for a full one slows it down.  Without --python its environment is made once, in the temporary folder.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from ingest import SPANS, TRACES, fresh, templates
from server import PROTOBUF, Link, Whet, serving

VERSION = "20.26.1"
PATIENCE = 300.0
"""Seconds after which traces that cannot be seen are not waited for."""


class Ours(Whet):
    """`whet serve`."""

    def seen(self, folder: Path) -> int:
        """Traces that can be read now."""
        return _count(folder / "runs.db", "SELECT count(*) FROM trajectories")


class Phoenix(Whet):
    """`phoenix serve`, which needs no token.

    Args:
        python: of its environment.
    """

    def __init__(self, python: str) -> None:
        self._python = python

    def command(self, folder: Path, port: int) -> list[str]:
        settings = {
            "PHOENIX_WORKING_DIR": str(folder),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(port + 1),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *words, self._python, "-m", "phoenix.server.main", "serve"]

    def seen(self, folder: Path) -> int:
        """As `Ours.seen`."""
        whole = f"SELECT trace_rowid FROM spans GROUP BY trace_rowid HAVING count(*) = {SPANS}"
        return _count(folder / "phoenix.db", f"SELECT count(*) FROM ({whole})")


def _count(path: Path, query: str) -> int:
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return int(connection.execute(query).fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0  # no table yet


def install() -> str:
    """A Python with Phoenix, made once."""
    place = Path(tempfile.gettempdir()) / "whet-bench-phoenix"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        words = [str(python), "-m", "pip", "install", "-q", f"arize-phoenix=={VERSION}"]
        subprocess.run(words, check=True)
    return str(python)


def post(url: str, bodies: Iterator[bytes], lock: threading.Lock, failed: list[str]) -> None:
    """Send what there is; a server that asks to be spared is asked again."""
    link = Link(url)
    while True:
        with lock:
            body = next(bodies, None)
        if body is None:
            return
        for wait in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 0.0):
            try:
                link.post("/v1/traces", body, PROTOBUF)
                break
            except (OSError, RuntimeError, ValueError, IndexError) as exception:
                if not wait:
                    failed.append(str(exception))
                link = Link(url)
                time.sleep(wait)


def measure(side: Ours | Phoenix, folder: Path, traces: int) -> dict[str, float]:
    """Traces a second until they are acknowledged, and until they are seen."""
    pool = [template for template, _ in templates(0.0)]
    bodies = [
        pool[number % len(pool)].filled(fresh(pool[number % len(pool)])) for number in range(traces // TRACES)
    ]
    with serving(side, folder) as (_, url, start):
        waiting, lock, failed = iter(bodies), threading.Lock(), list[str]()
        threads = [threading.Thread(target=post, args=(url, waiting, lock, failed)) for _ in range(4)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter()
        while (seen := side.seen(folder)) < traces and time.perf_counter() - taken < PATIENCE:
            time.sleep(0.02)
        ended = time.perf_counter()
    if failed:
        raise SystemExit(f"{len(failed)} requests were refused: {failed[0]}")
    return {
        "start": start,
        "traces": seen,
        "missing": traces - seen,
        "acknowledged": traces / (taken - began),
        "visible": seen / (ended - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, default=5_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--python", help="an interpreter that has arize-phoenix")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sides = {"whet": Ours(), "phoenix": Phoenix(given.python or install())}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(given.repeat):
        for name, side in sides.items():
            with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as folder:
                traces = given.traces if name == "whet" else given.traces // 10
                found[name].append(measure(side, Path(folder), traces // TRACES * TRACES))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    ratio = medians["whet"]["visible"] / medians["phoenix"]["visible"]
    if given.json:
        print(json.dumps({**found, "times as many visible": ratio}))
        return
    version = importlib.metadata.version("whet")
    print(
        f"whet {version}, arize-phoenix {VERSION}; medians of {given.repeat}; load {os.getloadavg()[0]:.1f}"
    )
    for key in ("start", "traces", "missing", "acknowledged", "visible"):
        print(f"{key:14} {medians['whet'][key]:>12,.1f} {medians['phoenix'][key]:>12,.1f}")
    print(f"times as many visible traces/s: {ratio:.1f}")


if __name__ == "__main__":
    sys.exit(main())
