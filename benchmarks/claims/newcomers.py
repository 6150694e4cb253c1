"""What a newcomer types, trial by trial: thumbs that become a proven prompt, a table, a function, an environment."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from newcomers_faults import faults
from newcomers_frameworks import frameworks
from newcomers_function import function
from newcomers_gym import gym
from newcomers_shell import NEEDS, Noted, bare, report
from newcomers_small import small
from newcomers_table import prompt_table
from newcomers_thumbs import WORLD, World, thumbs
from newcomers_wiring import wiring


def newcomers(
    folder: Path, *, world: Path | None, seeds: Sequence[int], trials: Sequence[str], page: bool, here: bool
) -> bool:
    """Run the trials; True if no line was missed.

    Args:
        world: replaces the built-in one, in the trial that has one.
        here: run the commands in this environment, not in a bare one.
    """
    unknown = [trial for trial in trials if trial not in ("thumbs", *TRIALS)]
    if unknown or not trials:
        raise RuntimeError(f"no such trial: {', '.join(unknown)}; there are thumbs, {', '.join(TRIALS)}")
    opened = World.read((world or WORLD).resolve())
    folder.mkdir(parents=True, exist_ok=True)
    python = None if here else bare(folder.resolve(), [*NEEDS, *opened.requires])
    if python is None:
        opened.check()
    passed = True
    for trial in trials:
        place = (folder / trial).resolve()
        shutil.rmtree(place, ignore_errors=True)
        print(f"\n{trial}", flush=True)
        if trial == "thumbs":
            passed &= thumbs(place, opened, seeds, python, page=page)
            continue
        heading, about, run = TRIALS[trial]
        passed &= report(f"Newcomers: {heading}", about, run(place, python, seeds), page=page)
    return passed


TRIALS: dict[str, tuple[str, str, Callable[[Path, Path | None, Sequence[int]], list[Noted]]]] = {
    "table": (
        "a prompt and a table",
        "A prompt and a CSV of 200 rows, and GEPA 0.1.4 on the same scripted model, which proves nothing of what it "
        "finds; and with the answers dealt out to other rows. The truth is the share of 400 letters that nobody saw.",
        prompt_table,
    ),
    "gym": (
        "an environment and a tiny model",
        "A Gymnasium text task and 4,000 random weights: GRPO, the gate on 200 seeds that were not learned from, "
        "served and rolled back; and with rewards that chance gives.",
        gym,
    ),
    "small": (
        "a small gain, and none",
        "A prompt and 200 rows, of which 8 in 100 need a rule that the prompt lacks; the same where none does. "
        "Every row is behind the proof, out of fold.",
        small,
    ),
    "function": (
        "a function whose right answer is often nothing",
        "A function and 200 rows, of 37 of which None is right: offline; with a model half of whose proposals are "
        "useless and some break the 37; and with one all of whose useful ones do. Broken are counted on the table.",
        function,
    ),
    "faults": (
        "what goes wrong",
        "Each ends with the exit code that is due, in one sentence that says what to do; where something was paid "
        "for, the same command goes on, and asks for no answer twice.",
        faults,
    ),
    "wiring": (
        "five small repositories",
        "A script, a LangGraph package, a FastAPI service with prompts in three places, TypeScript beside Python, and "
        "a notebook: `whet init`, at most two edits, and `whet improve` by thumbs.",
        wiring,
    ),
    "frameworks": (
        "thumbs, through frameworks",
        "The agent of the thumbs, written with LangGraph, CrewAI and smolagents and without a marker: wired by `whet "
        "init`, improved by `whet improve desk.py`, live through the gateway, and rolled back.",
        frameworks,
    ),
}
"""Trials beside that of the thumbs: heading, what it is, and what runs it."""
