"""Small and nothing: a gain of 8 points in 200 rows, no gain at all, and thumbs on 2 of 100 answers.

The model is the scripted clerk (`whet.models.fakes.clerk`), which answers and proposes: half of its proposals are
useless or harmful.  Its prompt states all rules of the house but one, which 8 of 100 letters need.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from newcomers_shell import Noted, Shell
from page import percent

from whet.learn.evolution.prompts.prompted import messages_of
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.models.fakes.clerk import RULES, Clerk

START = "\n".join(
    [
        f"{Clerk.prompt.strip()} Answer with the department only.",
        "",
        *(f"- {rule.text}" for rule in RULES[:4]),
        "",
    ]
)
ROWS, CALLS, SEEDS = 200, 1_000, 10
SMALL_GAIN, SHARE = 0.08, 0.6
"""Share of the letters that need the missing rule, and of the seeds that must prove it."""
_MORE = re.compile(r"likely better, and not proven: about \d+ more rows")
_NOTHING = re.compile(r"brought nothing|brings nothing|nothing better was found|right already")


def _truth(clerk: Clerk, prompt: str, threats: float) -> float:
    letters = clerk.rows(1_000, seed=7_000 + clerk.seed, threats=threats)
    asked = [ModelRequest.of(messages_of(prompt, letter["question"]), {}) for letter in letters]
    right = [letter["answer"] in clerk(ask) for letter, ask in zip(letters, asked, strict=True)]
    return sum(right) / len(right)


def _improved(folder: Path, python: Path | None, seed: int, threats: float) -> tuple[Noted, bool]:
    """One prompt, one table, one command."""
    clerk, shell = Clerk(seed), Shell(folder, python)
    rows = clerk.rows(ROWS, seed=seed, threats=threats)
    with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    prompt = folder / "prompt.txt"
    prompt.write_text(START, encoding="utf-8")
    with ScriptedServer(clerk) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        options = ("--calls", str(CALLS), "--seed", str(seed), "--write")
        done = shell.type("whet", "improve", "prompt.txt", "--data", "examples.csv", *model, *options)
        calls = len(server.requests)
    promoted = done.returncode == 0
    before, after = (
        _truth(Clerk(seed), text, threats) for text in (START, prompt.read_text(encoding="utf-8"))
    )
    noted = Noted(
        f"{'gain of 8' if threats else 'nothing to gain'}, seed {seed}", said=done.stdout + done.stderr
    )
    noted.figures = {
        "verdict": "promoted"
        if promoted
        else "likely better"
        if _MORE.search(done.stdout)
        else "nothing found",
        "truth before %": percent(before),
        "after %": percent(after),
        "model calls": str(calls),
        "commands": str(shell.commands),
        "minutes": shell.minutes,
    }
    noted.lines = {
        "ends with 0 or 1, and no traceback": done.returncode in (0, 1) and "Traceback" not in done.stderr,
        f"{CALLS} calls": calls <= CALLS,
        "what is not promoted says what would tell, or that nothing was found": promoted
        or bool(_MORE.search(done.stdout) or _NOTHING.search(done.stdout)),
        "what is not promoted is not written": promoted or prompt.read_text(encoding="utf-8") == START,
    }
    return noted, promoted


def small(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """The gain that is small, for ten seeds at the least, and the gain that is not there."""
    noted, promoted = [], 0
    tried = seeds if len(seeds) != 3 else range(seeds[0], seeds[0] + SEEDS)
    for seed in tried:
        one, was = _improved(folder / f"gain-{seed}", python, seed, SMALL_GAIN)
        noted.append(one)
        promoted += was
    if len(tried) > 1:
        whole = Noted("gain of 8, all seeds", {"verdict": f"promoted {promoted} of {len(tried)}"})
        whole.lines = {f"promoted in {percent(SHARE)} % of seeds": promoted >= SHARE * len(tried)}
        noted.append(whole)
    for seed in seeds:
        one, was = _improved(folder / f"nothing-{seed}", python, seed, 0.0)
        one.lines |= {
            "nothing is promoted": not was,
            "it stops before the calls are spent": int(one.figures["model calls"]) < 0.9 * CALLS,
            "it says that nothing was found": bool(_NOTHING.search(one.said)),
        }
        noted.append(one)
    return noted
