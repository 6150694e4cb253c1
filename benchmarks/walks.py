"""Seven trips through the code, by the files whose functions really ran.  Run: python benchmarks/walks.py

Each trip is made with the command line and over HTTP, as a user makes it; every process of whet notes which
functions of its own it enters.  Those that a server enters at rest do not count: it runs once without the trip and
once with it.  Imports do not count either.  Printed per trip: rooms (entries of the package's folder), folders at any
depth, files, and functions.
"""

from __future__ import annotations

import argparse
import atexit
import inspect
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Functions = set[tuple[str, str]]
"""(file below the package, qualified name) of functions that ran."""

READER = """
import asyncio, itertools, os, sys
import whet
from whet.learn.training.local import LocalModels, adopted

base = adopted("policy", "base", "base")
policy = whet.resource("policy", default=base.content, kind=base.kind)
seeds = itertools.count()

@whet.trace("runs.db")
async def answer(question: str) -> str:
    sampler = LocalModels.shared().sampler(policy.version, greedy="SAMPLE" not in os.environ)
    with whet.step("reader", kind="llm", observation=question) as step:
        sampled = await sampler.session(next(seeds)).generate([3 + int(question) % 8], stop_id=0, max_new_tokens=1)
        step.action, step.tokens = list(sampled.output_ids), sampled.tokens
    return "yes" if sampled.output_ids[0] % 2 else "no"

def right(trajectory):
    return trajectory.output == ("yes" if int(trajectory.task.instruction) % 2 else "no")

if __name__ == "__main__":
    async def use(count):
        for number in range(count):
            await answer(str(number % 8))
    asyncio.run(use(int(sys.argv[1])))
"""
BASE = """
from whet.learn.training.local import fresh
from whet.learn.training.model import ModelOptions

size = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=16)
fresh("policy", "base", options=size, vocab_size=11, seed=1)
"""
PRICE = """
import whet

@whet.evolve
def price(weight, distance):
    if weight > 10:
        return 3.0 + 0.2 * distance + 5.0
    return 3.0 + 0.2 * distance
"""
DESK = '''
import random, sys
import whet

@whet.evolve
def decide(read: list[dict[str, float]]) -> int | str:
    """Accept the last candidate, ask for more, or say that none is right."""
    last = read[-1]
    if last["values"] >= 1 and last["missing"] <= 2:
        return len(read) - 1
    return "more" if last["remaining"] else "unknown"

def pile(question):
    chance = random.Random(question)
    return [
        {"values": chance.randint(0, 3), "missing": chance.randint(0, 4), "remaining": 2 - place}
        for place in range(3)
    ]

def correct(question):
    fits = [place for place, one in enumerate(pile(question)) if one["values"] >= 2 and one["missing"] <= 1]
    return str(fits[0]) if fits else "unknown"

@whet.trace("runs.db")
def desk(question: str) -> str:
    candidates = pile(question)
    for place in range(len(candidates)):
        choice = decide(candidates[: place + 1])
        if choice != "more":
            return str(choice)
    return "unknown"

def right(trajectory):
    return trajectory.output == correct(trajectory.task.instruction)

if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        with whet.run() as run:
            answer = desk(f"claim {number}")
        print(run.id, int(answer == correct(f"claim {number}")))
'''
RIGHT = (
    "def right(output, expected):\n    return float(type(output) is type(expected) and output == expected)\n"
)
ECHO = "def answer(task):\n    return task.instruction\n"


def note(path: Path, words: list[str]) -> None:
    """Run a whet command in this process and write down the functions of the package that it enters."""
    import whet

    package = str(Path(whet.__file__).parent) + os.sep
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    def write() -> None:
        sys.setprofile(None)
        functions = sorted(
            (code.co_filename.removeprefix(package), code.co_qualname)
            for code in list(seen)
            if code.co_filename.startswith(package)
            and code.co_flags & inspect.CO_OPTIMIZED  # no module or class body
        )
        path.write_text(json.dumps(functions))

    from whet.__main__ import main

    atexit.register(write)
    threading.setprofile(profile)
    sys.setprofile(profile)
    sys.argv = ["whet", *words]
    raise SystemExit(main())


class Walk:
    """A folder in which whet's commands run and are noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def _command(self, words: tuple[str, ...]) -> tuple[list[str], Path]:
        self._count += 1
        noted = self.folder / f"noted-{self._count}.json"
        return [sys.executable, __file__, "--note", str(noted), "--", *words], noted

    def whet(self, *words: str, check: bool = True) -> Functions:
        """The functions that one command entered."""
        command, noted = self._command(words)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if check and done.returncode:
            raise SystemExit(f"whet {' '.join(words)}: {done.stdout}{done.stderr}")
        return _read(noted)

    def python(self, *words: str, **environment: str) -> str:
        """Standard output of a program of the user's."""
        command = [sys.executable, *words]
        surroundings = {**os.environ, **environment}
        return subprocess.run(
            command, cwd=self.folder, env=surroundings, capture_output=True, text=True, check=True
        ).stdout

    @contextmanager
    def server(self, store: str, *options: str) -> Iterator[tuple[str, Functions]]:
        """A server's address, and a set that holds what it entered once it has ended."""
        words = ("serve", "--store", store, "--port", "0", "--token", "walk", *options)
        command, noted = self._command(words)
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        entered: Functions = set()
        try:
            assert process.stdout is not None
            address = next(
                word.rstrip(".,;/") for line in process.stdout for word in line.split() if "http://" in word
            )
            yield address, entered
            time.sleep(3)  # what is done after the answer: assembly, commits, the recorder
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        entered |= _read(noted)

    def served(self, trip: Callable[[str], None], *options: str) -> Functions:
        """What a server enters for a trip, beyond what it enters at rest."""
        with self.server("rest.db", *options) as (_, rest):
            pass
        with self.server("runs.db", *options) as (address, entered):
            trip(address)
        return entered - rest


def _read(noted: Path) -> Functions:
    return {(file, name) for file, name in json.loads(noted.read_text())}


def post(address: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        address + path,
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer walk"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error


def span(walk: Walk) -> Functions:
    """OTLP span → Trajectory."""

    def attribute(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "value": {"stringValue": value}}

    def send(address: str) -> None:
        now = time.time_ns()
        call = {
            "traceId": "1" * 32,
            "spanId": "2" * 16,
            "name": "chat m",
            "startTimeUnixNano": str(now - 10**9),
            "endTimeUnixNano": str(now),
            "attributes": [
                attribute("gen_ai.operation.name", "chat"),
                attribute("gen_ai.request.model", "m"),
                attribute(
                    "gen_ai.input.messages", '[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]'
                ),
                attribute(
                    "gen_ai.output.messages",
                    '[{"role":"assistant","parts":[{"type":"text","content":"Yes"}]}]',
                ),
            ],
        }
        post(address, "/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": [call]}]}]})

    return walk.served(send)


class Upstream(BaseHTTPRequestHandler):
    """A model that streams one word."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        deltas = [({"role": "assistant", "content": "Yes"}, None), ({}, "stop")]
        lines = [
            json.dumps({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
            for delta, reason in deltas
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())

    def log_message(self, *_: Any) -> None: ...


def chat(walk: Walk) -> Functions:
    """Streamed chat call → upstream → record."""
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    try:
        options = ("--upstream", f"http://127.0.0.1:{upstream.server_port}/v1", "--speaks", "chat")
        return walk.served(lambda address: post(address, "/v1/chat/completions", body), *options)
    finally:
        upstream.shutdown()


def grpo(walk: Walk) -> Functions:
    """GRPO on recorded groups → gate → release."""
    (walk.folder / "base.py").write_text(BASE)
    (walk.folder / "reader.py").write_text(READER)
    walk.python("base.py")
    walk.python("reader.py", "64", SAMPLE="1")
    unseen = (json.dumps({"natural_language_instruction": str(number)}) for number in range(1000, 1040))
    (walk.folder / "unseen.jsonl").write_text("\n".join(unseen))
    rewarded = ("--store", "runs.db", "--reward-function", "reader:right")
    entered = walk.whet(
        "train", "grpo", *rewarded, "--model", "base", "--output", "out", "--steps", "3", "--floor", "0"
    )
    judged = ("--store", "runs.db", "--reward", "reader:right", "--data", "unseen.jsonl")
    entered |= walk.whet("gate", "out", "--entry", "reader:answer", *judged, check=False)
    return entered | walk.whet("release", "out", "--store", "runs.db", "--unproven")


def evolve(walk: Walk) -> Functions:
    """A candidate of a function: proposed, judged, a Version."""
    chance = random.Random(0)
    (walk.folder / "parcels.py").write_text(PRICE)
    parcels = {(chance.randint(1, 30), chance.randint(1, 100)) for _ in range(120)}
    rows = (
        json.dumps(
            {"input": [weight, distance], "expected": 3.0 + 0.2 * distance + (5.0 if weight > 17 else 0)}
        )
        for weight, distance in sorted(parcels)
    )
    (walk.folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    options = ("--iterations", "40", "--output", "out", "--offline", "--store", "runs.db")
    return walk.whet("evolve", "--target", "price", "--data", "rows.jsonl", *options)


def audit(walk: Walk) -> Functions:
    """An evaluator → audited in the sandbox."""
    (walk.folder / "parcels.py").write_text(PRICE)
    (walk.folder / "right.py").write_text(RIGHT)
    answers = (
        json.dumps({"input": {"weight": weight}, "expected": 3.0 + weight, "output": 3.0 + weight})
        for weight in range(40)
    )
    (walk.folder / "rows.jsonl").write_text("\n".join(answers) + "\n")
    return walk.whet("audit", "right.py:right", "--target", "rows.jsonl")


def task(walk: Walk) -> Functions:
    """Tasks added → claimed by a worker → finished."""
    (walk.folder / "echo.py").write_text(ECHO)
    (walk.folder / "tasks.jsonl").write_text(json.dumps({"natural_language_instruction": "1"}) + "\n")
    with walk.server("rest.db") as (_, rest):
        pass
    entered = walk.whet("tasks", "add", "tasks.jsonl", "--store", "runs.db")
    with walk.server("runs.db") as (address, served):
        entered |= walk.whet("work", "echo:answer", "--url", address, "--token", "walk", "--limit", "1")
    return entered | (served - rest)


def thumb(walk: Walk) -> Functions:
    """A thumb → the record → a head that decides."""
    (walk.folder / "desk.py").write_text(DESK)
    runs = [line.split() for line in walk.python("desk.py", "400").splitlines()]
    thumbs = [{"run": run, "value": 1.0 if right == "1" else -1.0} for run, right in runs]
    entered = walk.served(lambda address: post(address, "/api/feedback", {"feedback": thumbs}) and None)
    options = ("--store", "runs.db", "--reward", "desk:right", "--with", "head")
    return entered | walk.whet("improve", "desk:desk", *options, check=False)


WALKS: dict[str, Callable[[Walk], Functions]] = {
    "span → Trajectory": span,
    "chat call → record": chat,
    "improve(GRPO) → release": grpo,
    "evolve: candidate → Version": evolve,
    "evaluator → audited": audit,
    "task → finish": task,
    "thumb → head": thumb,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--files", action="store_true", help="list the files of each trip, too")
    files = parser.parse_args().files
    print(f"{'':30}{'rooms':>6}{'folders':>9}{'files':>7}{'functions':>11}")
    for name, walked in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            entered = walked(Walk(Path(folder)))
        visited = sorted({file for file, _ in entered})
        rooms = {Path(file).parts[0] for file in visited}
        folders = {str(Path(file).parent) for file in visited}
        print(f"{name:30}{len(rooms):6}{len(folders):9}{len(visited):7}{len(entered):11}", flush=True)
        if files:
            print(*(f"    {file}" for file in visited), sep="\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--note"]:
        sys.path.insert(0, os.getcwd())
        note(Path(sys.argv[2]), sys.argv[4:])
    main()
