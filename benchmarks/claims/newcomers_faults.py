"""What goes wrong: too little behind the gate, columns, a metric that cannot tell, a key, nonsense, Ctrl-C.

Each must end with the exit code that is due and say in one sentence what to do.  What was paid for stays: the same
command goes on, and asks for nothing twice.
"""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from newcomers_shell import Noted, Shell

from whet.models.base import ModelRequest
from whet.models.fakes import Reply, ScriptedServer
from whet.models.fakes.clerk import Clerk

_Script = Callable[[ModelRequest], "str | Reply"]
_TWICE = 8
"""Requests under way when a command was stopped may have been answered to nobody."""


class Desk:
    """A folder with a prompt and a table, and a model that can be made to go wrong."""

    def __init__(self, folder: Path, python: Path | None, seed: int) -> None:
        self.clerk, self.shell = Clerk(seed), Shell(folder, python)
        self.letters = self.clerk.rows(200, seed=seed)
        (folder / "prompt.txt").write_text(Clerk.prompt, encoding="utf-8")
        self.table(self.letters)

    def table(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write the examples."""
        with (self.shell.folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    def words(self, server: ScriptedServer, *more: str) -> list[str]:
        """The command."""
        model = ("--model", "scripted", "--base-url", server.base_url)
        return ["whet", "improve", "prompt.txt", "--data", "examples.csv", *model, *more]

    def until(self, count: int) -> _Script:
        """Answers so many requests; of all others the key is refused."""
        answered = 0

        def script(request: ModelRequest) -> str | Reply:
            nonlocal answered
            answered += 1
            return self.clerk(request) if answered <= count else Reply(status=401)

        return script

    def nonsense(self, request: ModelRequest) -> str:
        """Answers, and proposes nothing that is a prompt."""
        return "lorem ipsum dolor " * 200 if "```" in request.text else self.clerk(request)


def _noted(
    name: str,
    done: subprocess.CompletedProcess[str],
    asked: int,
    shell: Shell,
    *,
    code: int,
    says: str,
    most: int,
) -> Noted:
    """The sentence that says what to do: the last line of the errors, or one of the result."""
    said = done.stderr.strip().splitlines()[-1:] if code > 1 else done.stdout.splitlines()
    sentences = [line for line in said if says in line]
    noted = Noted(name, said=done.stdout + done.stderr)
    noted.figures = {
        "exit code": str(done.returncode),
        "requests": str(asked),
        "minutes": shell.minutes,
        "said": sentences[0].removeprefix("error: ").replace("|", "/")[:160] if sentences else "–",
    }
    noted.lines = {
        f"exit code {code}": done.returncode == code,
        f"one sentence with {says!r}": len(sentences) == 1,
        f"at most {most} requests": asked <= most,
        "no traceback": "Traceback" not in done.stderr,
    }
    return noted


def _refused(folder: Path, python: Path | None, seed: int) -> list[Noted]:
    """What is refused before anything is spent."""
    desk = Desk(folder, python, seed)
    rows = desk.letters
    cases: list[tuple[str, Sequence[Mapping[str, object]], tuple[str, ...], str]] = [
        (
            "one customer",
            [{**row, "customer": "all"} for row in rows],
            ("--group", "customer"),
            "Give more groups",
        ),
        (
            "three customers",
            [{**row, "customer": str(number % 3)} for number, row in enumerate(rows)],
            ("--group", "customer"),
            "Give rows of more groups",
        ),
        ("ten rows", rows[:10], (), "Nothing was spent"),
        (
            "unnamed columns",
            [dict(zip("abc", row.values(), strict=True)) for row in rows],
            (),
            "name --input and --expected",
        ),
        ("no such column", rows, ("--input", "letter"), "it has question, answer, customer"),
        ("one right answer", [{**row, "answer": "yes"} for row in rows], (), "give rows with others"),
        (
            "no right answer",
            [{**row, "answer": ""} for row in rows],
            (),
            "name another column with --expected",
        ),
    ]
    noted = []
    with ScriptedServer(desk.clerk) as server:
        for name, table, options, says in cases:
            desk.table(table)
            asked = len(server.requests)
            done = desk.shell.type(*desk.words(server, *options))
            asked = len(server.requests) - asked
            noted.append(_noted(name, done, asked, desk.shell, code=2, says=says, most=0))
        (folder / "examples.csv").write_bytes(b'question,answer\n"never closed,1\n' * 3)
        done = desk.shell.type(*desk.words(server))
        says = "must be closed"
        noted.append(
            _noted("broken quotation", done, len(server.requests), desk.shell, code=2, says=says, most=0)
        )
    return noted


def _scripted(
    folder: Path, python: Path | None, seed: int, name: str, *, code: int, says: str, most: int
) -> tuple[Noted, Desk]:
    """One command whose model goes wrong."""
    desk = Desk(folder, python, seed)
    scripts: dict[str, _Script] = {
        "a metric that cannot tell": lambda request: "I am a teapot.",
        "nonsense": desk.nonsense,
        "the key is refused": desk.until(0),
    }
    with ScriptedServer(scripts[name]) as server:
        done = desk.shell.type(*desk.words(server))
        return _noted(name, done, len(server.requests), desk.shell, code=code, says=says, most=most), desk


def _resumed(folder: Path, python: Path | None, seed: int) -> list[Noted]:
    """A key that is refused in the middle, and Ctrl-C: the same command goes on."""
    noted = []
    desk = Desk(folder / "key", python, seed)
    refusing = desk.until(60)
    with ScriptedServer(lambda request: refusing(request)) as server:
        done = desk.shell.type(*desk.words(server))
        asked = len(server.requests)
        says = "run the same command again"
        one = _noted("the key is refused in the middle", done, asked, desk.shell, code=7, says=says, most=120)
        refusing = desk.until(10_000)
        one.lines |= _again(desk, server, paid=60)
        noted.append(one)
    desk = Desk(folder / "interrupted", python, seed)
    with ScriptedServer(lambda request: Reply(answer=desk.clerk(request), delay=0.03)) as server:
        done = _interrupted(desk, server, after=60)
        asked = len(server.requests)
        one = _noted("Ctrl-C", done, asked, desk.shell, code=130, says="run the same command", most=200)
        one.lines |= _again(desk, server, paid=asked)
        noted.append(one)
    return noted


def _interrupted(desk: Desk, server: ScriptedServer, *, after: int) -> subprocess.CompletedProcess[str]:
    """The command, stopped as a person would once so many requests were made: again, where nothing comes of it."""
    words = desk.words(server)
    desk.shell.commands += 1
    # A job in the background ignores the interrupt, and its children would.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        desk.shell.program(words),
        cwd=desk.shell.folder,
        env=desk.shell.environ({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.requests) < after and process.poll() is None:
        time.sleep(0.01)
    for _ in range(9):
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=10)
            break
        except subprocess.TimeoutExpired:
            continue
    else:
        process.kill()
        out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _again(desk: Desk, server: ScriptedServer, *, paid: int) -> dict[str, bool]:
    """The same command to its end, and what it asked that had been answered."""
    before = {json.dumps(received.body, sort_keys=True) for received in server.requests[:paid]}
    made = len(server.requests)
    done = desk.shell.type(*desk.words(server))
    after = [json.dumps(received.body, sort_keys=True) for received in server.requests[made:]]
    return {
        "the same command ends": done.returncode in (0, 1),
        "no answer is asked for twice": sum(body in before for body in after) <= _TWICE,
    }


def faults(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """Everything that goes wrong, for every seed."""
    noted = []
    endings = (
        ("a metric that cannot tell", 1, "name another metric (--metric)", 40),
        ("nonsense", 1, "another model may propose better", 40),
        ("the key is refused", 7, "Check the api_key (OPENAI_API_KEY)", 20),
    )
    for seed in seeds:
        own = _refused(folder / f"refused-{seed}", python, seed)
        for name, code, says, most in endings:
            place = folder / f"{name.replace(' ', '-')}-{seed}"
            own.append(_scripted(place, python, seed, name, code=code, says=says, most=most)[0])
        own += _resumed(folder / f"resumed-{seed}", python, seed)
        for one in own:
            one.name += f", seed {seed}"
        noted += own
    return noted
