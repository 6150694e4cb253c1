"""whet evolve beside OpenEvolve 0.4.0: `python benchmarks/evolution.py [--python VENV/bin/python]`.

Both get the same program, the same evaluator, the same config.yaml and answers of the same scripted server over
HTTP, which takes --latency seconds for each; both leave everything to the model. Measured, of whole processes from
their start to their end: wall-clock and CPU time for each of --proposals and of --workers, the two sides in turn,
--repeat times, a fresh folder and server each time; and by the requests that the server got, the proposals a second
from the 20th on, in which starting up does not count. Medians, and ratios of them: both sides run on this machine.

Beside that: evaluations a second without a model, where the search alone is measured: candidates that had a process
of their own, and the versions that the evaluator ran on side by side in a screen; the memory of all
processes together; what a proposal costs us among many candidates; and what a first candidate that hangs costs
those after it. OpenEvolve is installed into a virtual environment of its own below the temporary folder, unless
--python names one that has it. All of it takes an hour and a half; `--proposals 20 100 --repeat 1` two minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import re
import resource
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

from whet.models.fakes import Reply, ScriptedServer

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
from whet.learn.evolution.search.openevolve import read_config
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.search.settings import Settings

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


OFFLINE_PROGRAM = """\
# EVOLVE-BLOCK-START
def f(x):
    a = x * 2 + 1
    b = a - 3 if x > 7 else a + 4
    for i in range(5):
        b = b + i * 2 - 1
    c = max(a, b) + min(x, 9) * 3
    return c + abs(a - b) * 2
# EVOLVE-BLOCK-END
"""
OFFLINE = """\
import asyncio, json, sys, time
from pathlib import Path
from whet.learn.evolution.search.openevolve import read_config
from whet.learn.evolution.programs import evolve_program
from whet.learn.evolution.search.settings import Settings

*files, iterations = sys.argv[1:]
program, evaluator, config, output = map(Path, files)
ends = []


def told(record):
    # A candidate that was run is one that had a process: the duplicates of a text, and what is no Python, had none.
    if record.number > 20:
        ends.append((time.monotonic(), record.rollouts > 0, record.tried))
    elif record.number == 20:
        ends.append((time.monotonic(), False, 0))


settings = Settings(config=read_config(config), output=output, offline=True, iterations=int(iterations))
asyncio.run(evolve_program(program, evaluator, settings, progress=told))
seconds = ends[-1][0] - ends[0][0]
print("RESULT", json.dumps([sum(ran for _, ran, _ in ends) / seconds, sum(tried for _, _, tried in ends) / seconds]))
"""
COMMANDS = {
    "whet": ["-m", "whet", "evolve", "--models-only"],
    "openevolve": ["-c", "from openevolve.cli import main; raise SystemExit(main())"],
}
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


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


@dataclass(frozen=True)
class Whole:
    """One run of one side's command, from its start to the end of all its processes."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, of all its processes."""
    rate: float
    """Proposals a second from the 20th request that the model got to the last: starting up does not count."""


def answers(hang_first: bool = False, latency: float = 0.0, asked: list[float] | None = None) -> Any:
    """A script of answers: each turns the returned number into another one, the first may hang.

    Args:
        asked: the moment of each request is appended.
    """
    numbers = itertools.count(3)
    moments = [] if asked is None else asked

    def answer(request: Any) -> Reply:
        moments.append(time.monotonic())
        text = request.text
        # The current program is what both sides quote first that has the marks.
        line = re.search(r"^    return x \* .*$", text[_current(text) :], re.MULTILINE)
        number = next(numbers)
        new = f"    return x * {number} + {number % 7}"
        if hang_first and number == 3:
            new = "    while True:\n        pass"
        text = f"<<<<<<< SEARCH\n{line[0] if line else '?'}\n=======\n{new}\n>>>>>>> REPLACE"
        return Reply(answer=text, delay=latency)

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


def whole(side: str, python: str, proposals: int, workers: int, latency: float) -> Whole:
    """One run of one side's own command against a fresh server."""
    asked: list[float] = []
    script = answers(latency=latency, asked=asked)
    with tempfile.TemporaryDirectory() as name, ScriptedServer(script) as server:
        files = written(Path(name), CONFIG.format(url=server.base_url, workers=workers, timeout=60))
        program, evaluator, config, output = files
        command = [sys.executable if side == "whet" else python, *COMMANDS[side], program, evaluator]
        command += ["--config", config, "--output", output, "--iterations", str(proposals)]
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(side)
        )
        _, errors = process.communicate(timeout=7200)
        wall = time.monotonic() - began
        # What a sandbox forked is nobody's child once its parent is killed, and comes here (PR_SET_CHILD_SUBREAPER).
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode or len(asked) < proposals:
        raise RuntimeError(
            f"{side} ended with {process.returncode} after {len(asked)} of {proposals}: {errors[-2000:]!r}"
        )
    rate = (len(asked) - 20) / (asked[-1] - asked[19]) if len(asked) > 20 else 0.0
    return Whole(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, rate)


def environment(side: str) -> dict[str, str]:
    """Of a side's process; our own Python's settings are not the peer's."""
    return {
        name: text for name, text in os.environ.items() if side == "whet" or not name.startswith("PYTHON")
    }


def written(folder: Path, config: str, program: str = PROGRAM) -> list[str]:
    """Write what a side is given; paths of the program, the evaluator, the config and the output."""
    texts = {"program.py": program, "evaluator.py": EVALUATOR, "config.yaml": config}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [str(folder / name) for name in (*texts, "out")]


def offline(proposals: int, workers: int) -> tuple[float, float]:
    """Proposals a second that ran, and versions that they tried, of a search that asks no model."""
    with tempfile.TemporaryDirectory() as name:
        config = CONFIG.format(url="http://127.0.0.1:1/v1", workers=workers, timeout=60)
        command = [sys.executable, "-c", OFFLINE, *written(Path(name), config, OFFLINE_PROGRAM)]
        done = subprocess.run([*command, str(proposals)], capture_output=True, text=True, check=True)
    rate = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    ran, tried = json.loads(rate.removeprefix("RESULT"))
    return ran, tried


def compare(options: argparse.Namespace, python: str, figures: _Table) -> None:
    """Whole processes, the sides in turn."""
    runs: dict[tuple[str, float, int, int], list[Whole]] = {}
    cases = [
        (latency, workers, proposals)
        for latency in options.latency
        for workers in options.workers
        for proposals in options.proposals
    ]
    for _ in range(options.repeat):
        for case in cases:
            for side in COMMANDS:
                latency, workers, proposals = case
                run_of_side = whole(side, python, proposals, workers, latency)
                runs.setdefault((side, *case), []).append(run_of_side)
                print(f"{side}, {case}: {run_of_side}", file=sys.stderr, flush=True)
    wall = {key: median(run.wall for run in of_key) for key, of_key in runs.items()}
    cpu = {key: median(run.cpu for run in of_key) for key, of_key in runs.items()}
    for latency, workers, proposals in cases:
        case = f"{proposals} proposals, {workers} workers, a model of {latency:g} s"
        for side in COMMANDS:
            figures[f"{side}: wall s, {case}"] = wall[side, latency, workers, proposals]
            figures[f"{side}: CPU s, {case}"] = cpu[side, latency, workers, proposals]
        ours, theirs = (wall[side, latency, workers, proposals] for side in COMMANDS)
        figures[f"times as fast in all, {case}"] = theirs / ours
        if proposals > 20:
            ours, theirs = (
                median(run.rate for run in runs[side, latency, workers, proposals]) for side in COMMANDS
            )
            figures[f"whet: proposals/s beyond 20, {case}"] = ours
            figures[f"times as many proposals/s beyond 20, {case}"] = ours / theirs
        ours, theirs = (cpu[side, latency, workers, proposals] for side in COMMANDS)
        figures[f"share of the CPU, {case}"] = ours / theirs


def run(
    side: str, python: str, iterations: int, workers: int, *, hang: bool = False, timeout: int = 60
) -> Run:
    """One run of `whet` or `openevolve` against a fresh server."""
    with tempfile.TemporaryDirectory() as name, ScriptedServer(answers(hang)) as server:
        config = CONFIG.format(url=server.base_url, workers=workers, timeout=timeout)
        files = written(Path(name), config)
        driver = WHET if side == "whet" else OPENEVOLVE
        command = [sys.executable if side == "whet" else python, "-c", driver, *files, str(iterations)]
        out, held = watch(command, environment(side))
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
    parser.add_argument("--proposals", type=int, nargs="+", default=[20, 100, 300, 1000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument(
        "--latency", type=float, nargs="+", default=[0.0, 0.5], help="seconds that a model takes"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--offline", type=int, default=1000, help="proposals of the runs without a model")
    parser.add_argument("--many", type=int, default=2000, help="candidates of the run that shows a flat cost")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    python = options.python or install()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    figures = _Table()
    for workers in options.workers:
        ran, tried = zip(*[offline(options.offline, workers) for _ in range(options.repeat)], strict=True)
        figures[f"candidates with a process of their own/s without a model, {workers} workers"] = median(ran)
        figures[f"versions evaluated side by side/s, {workers} workers"] = median(tried)
    compare(options, python, figures)
    if options.many > 220:
        for side in COMMANDS:
            figures[f"{side}: MB, 4 workers"] = run(side, python, 200, 4).megabytes
        many = run("whet", python, options.many, 1)
        beginning, end = many.rate(20, 120), many.rate(options.many - 100, options.many)
        figures[f"cost of a proposal at {options.many} candidates, in those at 20"] = beginning / end
        for side in COMMANDS:
            hung = run(side, python, 5, 1, hang=True, timeout=3)
            figures[f"{side}: seconds of 5 proposals of which the first hangs for 3 s"] = hung.seconds
            figures[f"{side}: scored of the 4 others"] = hung.scored
    if options.json:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
