"""How many spans a second come to be seen, beside Arize Phoenix over OTLP.  Run: python benchmarks/phoenix.py

    python benchmarks/phoenix.py [--spans N] [--python PYTHON] [--folder FOLDER] [--json]

Both servers get the same requests, OTLP/HTTP protobuf with 100 spans of 1.35 kB, from four connections;
the clock stops when the last span can be read from the server's own database.  Both keep SQLite on the
same disk.  Phoenix gets a tenth of the spans.  Without --python its environment is made once, in the
temporary folder.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path

from server import PROTOBUF, Link, Whet, export, serving

VERSION = "20.26.1"
BATCH = 100
PATIENCE = 300.0
"""Seconds after which spans that cannot be seen are not waited for."""


class Ours(Whet):
    """`whet serve`."""

    def seen(self, folder: Path) -> int:
        """Spans that can be read now."""
        return _count(folder / "runs.db", "SELECT coalesce(sum(rows), 0) FROM segments")


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
        return _count(folder / "phoenix.db", "SELECT count(*) FROM spans")


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


def request(number: int) -> bytes:
    """An OTLP request whose span ids no other has: Phoenix keeps one span of an id, whatever its trace."""
    body = export((1 << 64) + number, BATCH)
    for place in range(1, BATCH + 1):
        own = number * BATCH + place
        body = body.replace(b"\x12\x08" + place.to_bytes(8, "big"), b"\x12\x08\x01" + own.to_bytes(7, "big"))
    return body


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


def measure(side: Ours | Phoenix, folder: Path, spans: int) -> dict[str, float]:
    """Spans a second until they are acknowledged, and until they are seen."""
    bodies = [request(number) for number in range(spans // BATCH)]
    with serving(side, folder) as (_, url, start):
        waiting, lock, failed = iter(bodies), threading.Lock(), list[str]()
        threads = [threading.Thread(target=post, args=(url, waiting, lock, failed)) for _ in range(4)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter()
        while (seen := side.seen(folder)) < spans and time.perf_counter() - taken < PATIENCE:
            time.sleep(0.02)
        ended = time.perf_counter()
    if failed:
        raise SystemExit(f"{len(failed)} requests were refused: {failed[0]}")
    return {
        "start": start,
        "spans": seen,
        "missing": spans - seen,
        "acknowledged": spans / (taken - began),
        "visible": seen / (ended - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=50_000)
    parser.add_argument("--python", help="an interpreter that has arize-phoenix")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sides = {"whet": Ours(), "phoenix": Phoenix(given.python or install())}
    found: dict[str, dict[str, float]] = {}
    for name, side in sides.items():
        with tempfile.TemporaryDirectory(dir=given.folder, ignore_cleanup_errors=True) as folder:
            spans = given.spans if name == "whet" else given.spans // 10
            found[name] = measure(side, Path(folder), spans // BATCH * BATCH)
    ratio = found["whet"]["visible"] / found["phoenix"]["visible"]
    if given.json:
        print(json.dumps({**found, "times as many visible": ratio}))
        return
    print(
        f"whet {importlib.metadata.version('whet')}, arize-phoenix {VERSION}; load {os.getloadavg()[0]:.1f}"
    )
    for key in ("start", "spans", "missing", "acknowledged", "visible"):
        print(f"{key:14} {found['whet'][key]:>12,.1f} {found['phoenix'][key]:>12,.1f}")
    print(f"times as many visible spans/s: {ratio:.1f}")


if __name__ == "__main__":
    sys.exit(main())
