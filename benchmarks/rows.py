"""What a search over a function costs, of which each call is cheap.  Run: python benchmarks/rows.py

A function of two numbers, 240 rows and exact equality: nearly all of the time is the engine's and the
sandbox's.  Nothing asks a model.  The CPU is that of the command and all its processes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = """\
import whet


@whet.evolve
def price(weight, distance):
    base = 3.0
    rate = 0.2
    if weight > 10:
        return base + rate * distance + 5.0
    return base + rate * distance
"""


def rows(count: int) -> list[str]:
    """Rows that the function as it stands gets right but for heavy parcels that are not quite so heavy."""
    chance, seen = random.Random(0), dict[tuple[int, int], float]()
    while len(seen) < count:
        weight, distance = chance.randint(1, 30), chance.randint(1, 100)
        seen[weight, distance] = 3.0 + 0.2 * distance + (5.0 if weight > 17 else 0)
    return [json.dumps({"input": list(key), "expected": right}) for key, right in seen.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--proposals", type=int, default=200)
    parser.add_argument("--rows", type=int, default=240)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "agent.py").write_text(SOURCE)
        (place / "rows.jsonl").write_text("\n".join(rows(options.rows)) + "\n")
        command = [sys.executable, "-m", "whet", "evolve", "--target", "price", "--data", "rows.jsonl"]
        began = time.perf_counter()
        subprocess.run(
            [*command, "--iterations", str(options.proposals), "--output", "out", "--offline"],
            cwd=place,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wall, spent = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{options.proposals} proposals, {options.rows} rows: {spent.ru_utime + spent.ru_stime:.2f} CPU-s")
    print(f"{options.proposals} proposals, {options.rows} rows: {wall:.2f} s")


if __name__ == "__main__":
    main()
