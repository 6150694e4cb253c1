"""kill -9 of a search at random moments: it ends with the same archive, and no recorded answer is asked again.

`whet evolve` runs as a process of its own against a scripted endpoint that counts what it answers. The same
search runs once undisturbed; then once more, killed `--times` times and started again each time. Compared
are the records of all proposals, to the byte. An answer that was on its way when the process died cannot have
been recorded, and is asked for again; there are at most as many of those as proposals in flight.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer

_PROGRAM = """\
# EVOLVE-BLOCK-START
def f(x):
    # grows here
    return x * 2 + 1
# EVOLVE-BLOCK-END
"""
_EVALUATOR = """\
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": 1.0 / (1.0 + sum(abs(program.f(x) - x * x) for x in range(50)))}
"""
_CONFIG = """\
llm:
  primary_model: scripted
  api_base: {url}
  api_key: none
evaluator:
  timeout: 30
  parallel_evaluations: 2
"""
_IN_FLIGHT = 16
"""Of a search that asks a model, at most."""


def _answer(request: ModelRequest) -> str:
    """Another line for another request, the same for the same: what a scripted model must be here."""
    mark = "    # grows here\n"
    number = zlib.crc32(request.text.encode()) % 1000
    return f"<<<<<<< SEARCH\n{mark}=======\n    x = x + {number}\n{mark}>>>>>>> REPLACE"


def _command(folder: Path, url: str, options: argparse.Namespace) -> list[str]:
    folder.mkdir(exist_ok=True)
    for name, text in (("program.py", _PROGRAM), ("evaluator.py", _EVALUATOR)):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "config.yaml").write_text(_CONFIG.format(url=url), encoding="utf-8")
    command = [sys.executable, "-m", "whet", "evolve", "program.py", "evaluator.py", "--json"]
    command += ["--config", "config.yaml", "--iterations", str(options.proposals), "--output", "out"]
    return [*command, *(["--unsafe-local"] if options.unsafe_local else [])]


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []  # it was killed before there was a table


def _archive(folder: Path) -> dict[str, Any]:
    """Every record of every proposal, whatever the search is called."""
    kept = {key.split("/")[-1]: body for key, body in _logged(folder) if "/answer/" not in key}
    return {number: json.loads(body) for number, body in kept.items() if number.lstrip("-").isdigit()}


def _logged(folder: Path) -> list[tuple[Any, ...]]:
    """Entries of the log of the search."""
    return _rows(folder / "out/runs.db", "SELECT key, body FROM states WHERE key GLOB 'log/evolve/*'")


def _answers(folder: Path) -> Counter[str]:
    """Recorded answers by request, whichever sample they are."""
    keys = [key.partition("/answer/")[2] for key, _ in _logged(folder) if "/answer/" in key]
    return Counter(key.rpartition(":")[0] for key in keys)


def _asked(server: ScriptedServer, since: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for received in server.requests[since:]:
        # A request without a body was cut off by the kill before all of it was there: nobody was paid for it.
        if received.method != "POST" or not isinstance(received.body, dict):
            continue
        body = {name: value for name, value in received.body.items() if name not in ("model", "messages")}
        found[ModelRequest.of(received.body["messages"], body).key("scripted")] += 1
    return found


def killed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """One row: how often it was killed, what was asked again, and whether the archive is the same."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="whet-killed-") as name, ScriptedServer(_answer) as server:
        whole, broken = Path(name) / "whole", Path(name) / "broken"
        began = time.monotonic()
        command = _command(whole, server.base_url, options)
        subprocess.run(command, cwd=whole, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        command = _command(broken, server.base_url, options)
        kills, again, lost, progress = 0, 0, 0, []
        # Starting takes a while each time, so the moments are counted from where new records may come.
        while True:
            before, since = _answers(broken), len(server.requests)
            process = subprocess.Popen(command, cwd=broken, stdout=subprocess.DEVNULL)
            last = kills >= options.times
            _wait(process, broken, options, rng, last=last)
            if not last:
                process.kill()
                kills += process.wait() == -9
            elif process.wait():
                raise RuntimeError(f"the search that was started again ended with code {process.returncode}")
            new = _answers(broken) - before
            excess = (_asked(server, since) - new).total()
            lost += 0 if last else min(excess, _IN_FLIGHT)
            again += excess if last else max(0, excess - _IN_FLIGHT)
            progress.append(len(_archive(broken)))
            if last:
                break
        same = _archive(whole) == _archive(broken)
    print(f"records after each start: {progress}", file=sys.stderr)
    row = {"problem": "killed", "unseen": float(same), "kills": kills, "proposals": options.proposals}
    return [row | {"asked_again": again, "lost_on_their_way": lost, "seconds": round(seconds, 1)}]


def _wait(
    process: subprocess.Popen[bytes],
    folder: Path,
    options: argparse.Namespace,
    rng: random.Random,
    *,
    last: bool,
) -> None:
    """Until it is time to kill: a few records further on than it was, or at a moment before that."""
    if last:
        process.wait(timeout=600)
        return
    known = len(_archive(folder))
    wanted = known + rng.randrange(max(3, options.proposals // (options.times + 1)))
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(_archive(folder)) > min(wanted, options.proposals - 1):
            break
        time.sleep(0.005)
    time.sleep(rng.random() * 0.05)
