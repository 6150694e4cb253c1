"""A prompt and a CSV of 200 rows, in two commands, with GEPA 0.1.4 on the same scripted model beside it.

The model is the scripted clerk (`whet.models.fakes.clerk`), which answers and proposes: it is noisy, its rules
interact, long prompts lose rules, and half of what it proposes is useless or harmful.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from newcomers_shell import REPOSITORY, Noted, Shell
from page import percent

from whet.models.fakes import ScriptedServer
from whet.models.fakes.clerk import Clerk

sys.path.append(str(REPOSITORY / "benchmarks"))
from prompt_table import ROWS, by_gepa, truth

CALLS, GAIN = 200, 0.3
HELD = 20
"""Rows that GEPA validates on: of 20 and 40 those with which it does better."""


def _improved(folder: Path, python: Path | None, seed: int, *, shuffled: bool) -> tuple[Noted, float]:
    clerk, shell = Clerk(seed), Shell(folder, python)
    rows = clerk.rows(ROWS, seed=seed)
    if shuffled:
        answers = [row["answer"] for row in rows]
        random.Random(seed).shuffle(answers)
        rows = [{**row, "answer": answer} for row, answer in zip(rows, answers, strict=True)]
    with (folder / "examples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    prompt = folder / "prompt.txt"
    prompt.write_text(Clerk.prompt, encoding="utf-8")
    with ScriptedServer(clerk) as server:
        columns = ("--data", "examples.csv", "--input", "question", "--expected", "answer")
        model = ("--model", "scripted", "--base-url", server.base_url)
        spent = ("--calls", str(CALLS), "--seed", str(seed))
        done = shell.type("whet", "improve", "prompt.txt", *columns, *model, *spent, "--write")
        calls = len(server.requests)
    before, after = (truth(Clerk(seed), text) for text in (Clerk.prompt, prompt.read_text(encoding="utf-8")))
    noted = Noted(f"{'shuffled' if shuffled else 'whet'}, seed {seed}", said=done.stdout + done.stderr)
    noted.figures = {
        "verdict": "promoted" if done.returncode == 0 else "not promoted",
        "truth before %": percent(before),
        "after %": percent(after),
        "model calls": str(calls),
        "commands": str(shell.commands),
        "minutes": shell.minutes,
    }
    noted.lines = {f"{CALLS} calls": calls <= CALLS, "2 commands": shell.commands <= 2}
    if shuffled:
        noted.lines["nothing is promoted"] = done.returncode == 1
    else:
        noted.lines |= {"promoted": done.returncode == 0, "+30 points": after - before >= GAIN}
    return noted, after


def prompt_table(folder: Path, python: Path | None, seeds: Sequence[int]) -> list[Noted]:
    """Each seed by whet, by GEPA, and with the answers dealt out to other rows."""
    noted, ours, theirs = [], [], []
    for seed in seeds:
        one, after = _improved(folder / f"whet-{seed}", python, seed, shuffled=False)
        calls, beside = by_gepa(seed, CALLS, HELD)
        other = Noted(
            f"GEPA, {CALLS} metric calls, seed {seed}",
            {
                "truth before %": one.figures["truth before %"],
                "after %": percent(beside),
                "model calls": str(calls),
            },
        )
        control, _ = _improved(folder / f"shuffled-{seed}", python, seed, shuffled=True)
        noted += [one, other, control]
        ours.append(after)
        theirs.append(beside)
    mean = [sum(values) / len(values) for values in (ours, theirs)]
    whole = Noted("mean of whet; of GEPA", {"after %": f"{percent(mean[0])}; {percent(mean[1])}"})
    whole.lines = {"no less right than GEPA's": mean[0] >= mean[1]}
    return [*noted, whole]
