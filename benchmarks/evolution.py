"""whet evolve beside OpenEvolve 0.4.0, in one run: `python benchmarks/evolution.py [--python VENV/bin/python]`.

Both get the same program, the same evaluator, the same config.yaml and answers of the same scripted
server over HTTP; both leave everything to the model. Measured: proposals per second with one worker and
with four, from the 20th candidate to the --candidates'th of one run (so that starting up does not count)
and over the first 100 of these alone, the memory of all processes together, what a
proposal costs us among 2,000 candidates, and what a first candidate that hangs costs those after it.

Reported are ratios: both sides run on this machine, one after the other. OpenEvolve copies all candidates
to a worker for each proposal, so the ratio grows with their number; what it is at the beginning is
shown beside it. OpenEvolve is installed into a virtual environment of its own below the temporary
folder, unless --python names one that has it.
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

from whet.models.fakes import ScriptedServer

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
OPENEVOLVE = """\
import asyncio, json, logging, sys, time
from openevolve import OpenEvolve
from openevolve.config import load_config

logging.disable(logging.CRITICAL)
program, evaluator, config, output, iterations = sys.argv[1:]


async def main():
    found = OpenEvolve(program, evaluator, load_config(config), output_dir=output)
    times, add = [], found.database.add

    def stamped(*given, **named):
        times.append(time.monotonic())
        return add(*given, **named)

    found.database.add = stamped
    started = time.monotonic()
    await found.run(iterations=int(iterations))
    scores = [each.metrics.get("combined_score") for each in found.database.programs.values()]
    scored = sum(score is not None for score in scores) - 1
    print("RESULT", json.dumps([time.monotonic() - started, scored, times]))


asyncio.run(main())
"""
WHET = """\
import asyncio, json, sys, time
from pathlib import Path
from whet.learn.evolution.openevolve import read_config
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.settings import Settings

*files, iterations = sys.argv[1:]
program, evaluator, config, output = map(Path, files)
times = []
settings = Settings(
    config=read_config(config),
    output=output,
    models_only=True,
    iterations=int(iterations),
)
started = time.monotonic()
told = lambda record: times.append(time.monotonic())
found = asyncio.run(evolve_program(program, evaluator, settings, progress=told)).found
scored = sum(record.status == "scored" for record in found.records) - 1
print("RESULT", json.dumps([time.monotonic() - started, scored, times]))
"""


@dataclass(frozen=True)
class Run:
    """One run of one side."""

    seconds: float
    megabytes: float
    scored: int
    """Children that came to a score."""
    times: list[float]
    """When each candidate was entered, the start first."""

    def rate(self, first: int, last: int) -> float:
        """Candidates per second between two of them."""
        last = min(last, len(self.times) - 1)
        return (last - first) / max(1e-9, self.times[last] - self.times[first])


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
        driver = WHET if side == "whet" else OPENEVOLVE
        for file, text in (("program.py", PROGRAM), ("evaluator.py", EVALUATOR), ("driver.py", driver)):
            (folder / file).write_text(text)
        config = CONFIG.format(url=server.base_url, workers=workers, timeout=timeout)
        (folder / "config.yaml").write_text(config)
        names = ("driver.py", "program.py", "evaluator.py", "config.yaml", "out")
        command = [sys.executable if side == "whet" else python, *(str(folder / each) for each in names)]
        env = dict(os.environ)
        if side != "whet":
            env = {key: value for key, value in env.items() if not key.startswith("PYTHON")}
        out, held = watch([*command, str(iterations)], env)
    line = next((each for each in out.splitlines() if each.startswith("RESULT")), None)
    if line is None:
        raise RuntimeError(f"{side} came to no end: {out[-2000:]}")
    seconds, scored, times = json.loads(line.removeprefix("RESULT"))
    return Run(seconds, held, scored, times)


def install() -> str:
    """A Python with openevolve 0.4.0, made once."""
    place = Path(tempfile.gettempdir()) / "whet-bench-openevolve"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "openevolve==0.4.0"], check=True)
    return str(python)


class _Table(dict[str, float]):
    """Figures, shown as they come: a run takes minutes."""

    def __setitem__(self, name: str, value: float) -> None:
        print(f"{name:70} {value:10.3g}", file=sys.stderr, flush=True)
        super().__setitem__(name, value)


def main() -> None:
    """Measure both sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", help="an interpreter that has openevolve 0.4.0")
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--many", type=int, default=2000, help="candidates of the run that shows a flat cost")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    python = options.python or install()
    found = _Table()
    for workers in (1, 4):
        sides = {side: run(side, python, options.candidates, workers) for side in ("whet", "openevolve")}
        for first, last in ((20, options.candidates), (20, 120)):
            span = f"{first} to {last}, {workers} workers"
            for side, one in sides.items():
                found[f"{side} proposals/s, {span}"] = one.rate(first, last)
            times = sides["whet"].rate(first, last) / sides["openevolve"].rate(first, last)
            found[f"times as many proposals/s, {span}"] = times
        for side, one in sides.items():
            found[f"{side} scored of {options.candidates}, {workers} workers"] = one.scored
            found[f"{side} MB, {workers} workers"] = one.megabytes
        share = sides["whet"].megabytes / sides["openevolve"].megabytes
        found[f"share of the memory, {workers} workers"] = share
    if options.many > 220:
        many = run("whet", python, options.many, 1)
        beginning, end = many.rate(20, 120), many.rate(options.many - 100, options.many)
        found[f"cost of a proposal at {options.many} candidates, in those at 20"] = beginning / end
    for side in ("whet", "openevolve"):
        hung = run(side, python, 5, 1, hang=True, timeout=3)
        found[f"{side}: seconds of 5 proposals of which the first hangs for 3 s"] = hung.seconds
        found[f"{side}: scored of the 4 others"] = hung.scored
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
