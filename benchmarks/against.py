"""The figures of a benchmark here beside those of an earlier commit.  Run: python benchmarks/against.py COMMIT

    python benchmarks/against.py COMMIT [--repeat N] [--own] [--only rows tracing ...]

The benchmarks as they are here run on the source of both, in turn, and each figure is a median.  Printed is
here / COMMIT for every figure that both print; the figure's label says whether more is better.  With --own each
source is measured by the benchmarks of its own commit: across a commit that moved modules nothing else runs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
RUNS = {
    "store": ["store.py", "trajectories", "queue"],
    "tracing": ["tracing.py", "--calls", "5000"],
    "rollouts": ["rollouts.py", "--seconds", "3", "--rounds", "1"],
    "gateway": ["gateway.py", "--count", "1000", "--requests", "2000"],
    "rows": ["rows.py"],
    "training": ["training", "--no-trl", "--repeat", "3"],
}
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.])")


def figures(command: list[str], source: Path, benchmarks: Path) -> dict[str, float]:
    """Figures that a benchmark prints: line without its numbers and place in it → number.

    Raises:
        subprocess.CalledProcessError: it does not run on this source.
    """
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, str(benchmarks / command[0]), *command[1:]],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    printed: dict[str, float] = {}
    for line in ran.stdout.splitlines():
        label = " ".join(NUMBER.sub("#", line).split())
        for place, number in enumerate(NUMBER.findall(line)):
            printed[f"{label} [{place}]"] = float(number.replace(",", ""))
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", options.commit, "src", "benchmarks"],
            cwd=HERE.parent,
            check=True,
            capture_output=True,
        )
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        sources = {"here": HERE.parent / "src", "before": Path(folder) / "src"}
        benchmarks = {"here": HERE, "before": Path(folder) / "benchmarks" if options.own else HERE}
        for name in options.only:
            measured = {side: defaultdict[str, list[float]](list) for side in sources}
            for turn in range(options.repeat):
                for side in sorted(sources, reverse=bool(turn % 2)):
                    for label, number in figures(RUNS[name], sources[side], benchmarks[side]).items():
                        measured[side][label].append(number)
            print(f"== {name}")
            for label, numbers in measured["here"].items():
                before = median(measured["before"].get(label, [0.0]))
                settings = len({*numbers, *measured["before"].get(label, ())}) == 1
                if before and not settings:
                    here = median(numbers)
                    print(f"{here / before:7.3f}  {here:12,.2f} {before:12,.2f}  {label}", flush=True)


if __name__ == "__main__":
    main()
