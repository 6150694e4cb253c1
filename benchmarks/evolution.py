"""whet evolve beside OpenEvolve 0.4.0, in one run: `python benchmarks/evolution.py [--python VENV/bin/python]`.

Both get the same program, the same evaluator, the same config.yaml and answers of the same scripted
server over HTTP; both leave everything to the model. Measured: proposals per second with one worker and
with four (the slope between a short and a long run, so that starting up does not count), the memory of
all processes together, and what a first candidate that hangs costs those after it.

Reported are ratios: both sides run on this machine, one after the other. OpenEvolve is installed into a
virtual environment of its own below the temporary folder, unless --python names one that has it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from whet.fakes import ScriptedServer

PROGRAM = """\
# EVOLVE-BLOCK-START
def f(x):
    return x * 2 + 1
    # grows here
# EVOLVE-BLOCK-END
"""
EVALUATOR = """\
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": 1.0 / (1.0 + sum(abs(program.f(x) - x * x) for x in range(50)))}
"""
CONFIG = """\
max_iterations: 10
checkpoint_interval: 100000
random_seed: 1
log_level: ERROR
max_code_length: 100000
diff_based_evolution: true
llm:
  primary_model: scripted
  api_base: {url}
  api_key: none
  temperature: 0.7
evaluator:
  timeout: {timeout}
  parallel_evaluations: {workers}
  cascade_evaluation: false
"""
DRIVER = """\
import asyncio, logging, sys, time
from openevolve import OpenEvolve
from openevolve.config import load_config

logging.disable(logging.CRITICAL)


async def main():
    found = OpenEvolve(sys.argv[1], sys.argv[2], load_config(sys.argv[3]), output_dir=sys.argv[4])
    started = time.monotonic()
    await found.run(iterations=int(sys.argv[5]))
    scores = [program.metrics.get("combined_score") for program in found.database.programs.values()]
    print("RESULT", time.monotonic() - started, sum(score is not None for score in scores) - 1)


asyncio.run(main())
"""


@dataclass(frozen=True)
class Run:
    """One run of one side."""

    seconds: float
    megabytes: float
    scored: int
    """Children that came to a score."""


def answers(hang_first: bool) -> Any:
    """A script of answers: each turns the returned number into another one, the first may hang."""
    numbers = itertools.count(3)

    def answer(request: Any) -> str:
        text = request.text
        # The current program is what both sides quote first that has the marks.
        line = re.search(r"^    return x \* .*$", text[_current(text) :], re.MULTILINE)
        number = next(numbers)
        new = f"    return x * {number} + {number % 7}"
        if hang_first and number == 3:
            new = "    while True:\n        pass"
        return f"<<<<<<< SEARCH\n{line[0] if line else '?'}\n=======\n{new}\n>>>>>>> REPLACE"

    return answer


def _current(text: str) -> int:
    for heading in ("# Current Program\n", "# The program\n"):
        if heading in text:
            return text.index(heading)
    return 0


def children(parent: int) -> list[int]:
    """Ids of a process and of all below it."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, queue = [], [parent]
    while queue:
        process = queue.pop()
        found.append(process)
        queue += below.get(process, [])
    return found


def memory(processes: Sequence[int]) -> float:
    """Megabytes that processes hold, pages that they share counted once (PSS)."""
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
        total += int(match[1]) if match else 0
    return total / 1024


def watch(command: Sequence[str], env: dict[str, str], limit: float = 600.0) -> tuple[str, float]:
    """Output of a command and the memory that it and its children held: the median while it ran.

    Not the most: the sandbox attacks itself when it starts, with memory among other things.
    """
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env)
        samples, deadline = [0.0], time.monotonic() + limit
        while process.poll() is None:
            samples.append(memory(children(process.pid)))
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(0.1)
        out.seek(0)
        return out.read(), median(samples)


def run(
    side: str, python: str, iterations: int, workers: int, *, hang: bool = False, timeout: int = 60
) -> Run:
    """One run of `whet` or `openevolve` against a fresh server."""
    with tempfile.TemporaryDirectory() as name, ScriptedServer(answers(hang)) as server:
        folder = Path(name)
        for file, text in (("program.py", PROGRAM), ("evaluator.py", EVALUATOR), ("driver.py", DRIVER)):
            (folder / file).write_text(text)
        config = CONFIG.format(url=server.base_url, workers=workers, timeout=timeout)
        (folder / "config.yaml").write_text(config)
        files = [str(folder / each) for each in ("program.py", "evaluator.py", "config.yaml")]
        if side == "whet":
            command = [
                sys.executable,
                "-m",
                "whet.cli",
                "evolve",
                *files[:2],
                "--config",
                files[2],
                "--models-only",
            ]
            command += ["--output", str(folder / "out"), "--iterations", str(iterations), "--json"]
            out, held = watch(command, dict(os.environ))
            result = json.loads(out.splitlines()[-1])
            return Run(result["seconds"], held, result["scored"])
        command = [python, str(folder / "driver.py"), *files, str(folder / "out"), str(iterations)]
        env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        out, held = watch(command, env)
        line = next((each for each in out.splitlines() if each.startswith("RESULT")), "RESULT nan -1")
        return Run(float(line.split()[1]), held, int(line.split()[2]))


def install() -> str:
    """A Python with openevolve 0.4.0, made once."""
    place = Path(tempfile.gettempdir()) / "whet-bench-openevolve"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "openevolve==0.4.0"], check=True)
    return str(python)


def main() -> None:
    """Measure both sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="an interpreter that has openevolve 0.4.0")
    parser.add_argument("--short", type=int, default=20)
    parser.add_argument("--long", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    python = options.python or install()
    found: dict[str, float] = {}
    for workers in (1, 4):
        rates = {}
        for side in ("whet", "openevolve"):
            short = run(side, python, options.short, workers)
            long = run(side, python, options.long, workers)
            rates[side] = (options.long - options.short) / max(1e-9, long.seconds - short.seconds)
            found[f"{side} proposals/s, {workers} workers"] = rates[side]
            found[f"{side} MB, {workers} workers"] = long.megabytes
            found[f"{side} scored of {options.long}, {workers} workers"] = long.scored
        found[f"times as many proposals/s, {workers} workers"] = rates["whet"] / rates["openevolve"]
        share = found[f"whet MB, {workers} workers"] / found[f"openevolve MB, {workers} workers"]
        found[f"share of the memory, {workers} workers"] = share
    for side in ("whet", "openevolve"):
        hung = run(side, python, 5, 1, hang=True, timeout=3)
        found[f"{side}: seconds of 5 proposals of which the first hangs for 3 s"] = hung.seconds
        found[f"{side}: scored of the 4 others"] = hung.scored
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for name, value in found.items():
            print(f"{name:60} {value:10.3g}")


if __name__ == "__main__":
    main()
