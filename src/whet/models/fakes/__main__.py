"""A scripted model on loopback, for trying whet without a key or a network.

    eval "$(python -m whet.models.fakes)"

starts the clerk (`clerk.py`) in the background, sets MODEL and URL for it, and writes `prompt.txt` and
`examples.csv` with letters that it can answer.  It ends by itself after half an hour, or with `kill $MODEL_PID`.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path

from .clerk import Clerk
from .server import ScriptedServer


def main() -> int:
    """Serve in a child process; this one prints what a shell evaluates, and ends."""
    parser = argparse.ArgumentParser(prog="python -m whet.models.fakes", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="where prompt.txt and examples.csv are written"
    )
    parser.add_argument("--rows", type=int, default=200, help="letters in examples.csv")
    parser.add_argument("--minutes", type=float, default=30.0, help="after which the model ends")
    options = parser.parse_args()
    clerk = Clerk(seed=4)
    _write(clerk, options.folder, options.rows)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _serve(clerk, writing, options.minutes)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        url = pipe.readline().strip()
    if not url:
        print("the scripted model did not start", file=sys.stderr)
        return 1
    print(f"export MODEL=scripted URL={url} MODEL_PID={child}")
    return 0


def _write(clerk: Clerk, folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompt.txt").write_text(clerk.prompt, encoding="utf-8")
    rows = clerk.rows(count, people=max(1, count // 4))
    with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _serve(clerk: Clerk, ready: int, minutes: float) -> None:
    # The shell reads until nobody holds its pipe: neither may this process.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    with ScriptedServer(clerk) as server:
        os.write(ready, server.base_url.encode() + b"\n")
        os.close(ready)
        time.sleep(60 * minutes)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
