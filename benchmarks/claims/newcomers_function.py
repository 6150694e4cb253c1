"""A function and 200 rows, 37 of which have no right answer: offline, with a model, and with one that breaks the 37."""

from __future__ import annotations

import csv
import json
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from newcomers_shell import Noted, Shell
from page import percent

from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer

ROWS, EMPTY = 200, 37
SOURCE = '''\
import re


def amount(line: str):
    """The amount in a line of a bill, or None."""
    match = re.search(r"total (\\d+\\.\\d+)", line)
    return float(match.group(1)) if match else None
'''
_LINE = '    match = re.search(r"total (\\d+\\.\\d+)", line)'
USEFUL = (
    r'    match = re.search(r"(?:total|sum) (\d+\.\d+)", line)',
    r'    match = re.search(r"(?:total|due) (\d+\.\d+)", line)',
    r'    match = re.search(r"(?:total|sum|due) (\d+\.\d+)", line)',
)
GREEDY = r'    match = re.search(r"(\d+\.\d+)", line)'
"""Right for every amount, and an amount where there is none."""
USELESS = ("", "I would need to see more of your bills.", "import os\nos.remove('bills.py')", "{}")


def _rows(seed: int) -> list[tuple[str, str]]:
    rng, lines = random.Random(f"bills {seed}"), []
    for number in range(ROWS):
        shop, value = rng.choice(["Kiosk", "Market", "Baker", "Garage"]), f"{rng.uniform(1, 900):.2f}"
        if number < EMPTY:
            lines.append((f"{shop} {number} opens at {rng.randrange(7, 10)}.30", ""))
        else:
            word = rng.choices(["total", "sum", "due"], [3, 3, 1])[0]
            lines.append((f"{shop} {number} {word} {value}", value))
    rng.shuffle(lines)
    return lines


def _adviser(seed: int, greedy: float) -> Callable[[ModelRequest], str]:
    """Proposes: half of it useless, and of the rest so much that breaks what is empty."""
    rng = random.Random(f"adviser {seed}")

    def answer(request: ModelRequest) -> str:
        if rng.random() < 0.5:
            return rng.choice(USELESS)
        # That of the program that is to be changed, and not of others that are shown beside it.
        program = request.text.partition("# The program")[2].partition("\n# ")[0]
        line = next((old for old in (_LINE, *USEFUL, GREEDY) if old in program), _LINE)
        new = GREEDY if rng.random() < greedy else rng.choice(USEFUL)
        return f"<<<<<<< SEARCH\n{line}\n=======\n{new}\n>>>>>>> REPLACE"

    return answer


def _right(folder: Path, python: str, lines: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Share of the lines that the function in the folder has right, and how many of the empty ones it breaks."""
    program = (
        "import json, sys, bills\nprint(json.dumps([bills.amount(line) for line in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [python, "-c", program],
        input=json.dumps([line for line, _ in lines]),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout)
    wanted = [float(value) if value else None for _, value in lines]
    right = [answer == want for answer, want in zip(answers, wanted, strict=True)]
    broken = sum(answer is not None and want is None for answer, want in zip(answers, wanted, strict=True))
    return sum(right) / len(right), broken


def _tried(folder: Path, python: Path | None, seed: int, how: str) -> Noted:
    shell, lines = Shell(folder, python), _rows(seed)
    (folder / "bills.py").write_text(SOURCE, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("line", "amount"), *lines])
    fresh = _rows(seed + 1_000)
    before, _ = _right(folder, shell.python, fresh)
    words = ["whet", "improve", "bills:amount", "--data", "examples.csv", "--seed", str(seed + 1)]
    calls = 0
    if how == "offline":
        done = shell.type(*words)
    else:
        with ScriptedServer(_adviser(seed, 1.0 if how == "a greedy model" else 0.4)) as server:
            done = shell.type(*words, "--model", "scripted", "--base-url", server.base_url)
            calls = len(server.requests)
    if done.returncode == 0:
        shell.type("git", "apply", "whet_output/agent.patch")
    after, broken = _right(folder, shell.python, fresh)
    known_broken = _right(folder, shell.python, lines)[1]
    verdict = "promoted" if done.returncode == 0 else "not promoted"
    noted = Noted(f"{how}, seed {seed}", said=done.stdout + done.stderr)
    noted.figures = {
        "verdict": verdict,
        "truth before %": percent(before),
        "after %": percent(after),
        "empty rows broken": f"{known_broken} of {EMPTY}",
        "model calls": str(calls),
        "commands": str(shell.commands),
        "minutes": shell.minutes,
    }
    noted.lines = {
        "ends with 0 or 1, and no traceback": done.returncode in (0, 1) and "Traceback" not in done.stderr,
        "none of the empty rows is broken": known_broken == broken == 0,
        "the empty cells are said": f"{EMPTY} rows with an empty amount" in done.stdout,
        "not worse": after >= before,
    }
    if how == "offline":
        noted.lines["what is not found says that a model is the next step"] = done.returncode == 0 or bool(
            re.search("a model is the next step", done.stdout)
        )
    elif how == "a model":
        noted.lines |= {"promoted": done.returncode == 0, "+25 points": after - before >= 0.25}
    else:
        noted.lines["nothing is promoted"] = done.returncode == 1
    return noted


def function(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """Offline first, then with a model, and with one all of whose changes break what is empty."""
    return [
        _tried(folder / f"{how.replace(' ', '-')}-{seed}", python, seed, how)
        for how in ("offline", "a model", "a greedy model")
        for seed in seeds
    ]
