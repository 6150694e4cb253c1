"""What is not better must not win: the gate, judges, rewards and data, on recordings that nobody here made.

Each line is a module of its own with `measure(data, folder)`: it takes the folder of the data sets and one to work in,
and gives back what it noted, with each bar that has to be reached.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from data_rows import AbsentData
from newcomers_shell import Noted, report

from whet.errors import InputError

LINES: dict[str, str] = {
    "judges": "false_win_judges",
    "hacking": "false_win_hacking",
    "rates": "false_win_rates",
    "gate": "false_win_gate",
    "verdict": "false_win_verdict",
    "data": "false_win_data",
    "questions": "false_win_questions",
}
"""Name of a line → its module."""


def no_false_win(data: Path, folder: Path, *, lines: Sequence[str]) -> bool:
    """Measure these lines, and publish a section each; True if no bar was missed.

    Args:
        data: the data sets; a line says which of them it takes.
        folder: where it works.
    """
    reached = True
    for name in lines:
        module = importlib.import_module(LINES[name])
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        began, spent = time.monotonic(), _cpu()
        try:
            noted: list[Noted] = module.measure(data, place)
        except (AbsentData, FileNotFoundError, InputError) as error:
            noted = [Noted(name, lines={"its data are there": False}, said=str(error))]
        print(f"{name}: {time.monotonic() - began:.0f} s, {_cpu() - spent:.0f} s of CPU", flush=True)
        reached &= report(
            f"No false win: {name}", (module.__doc__ or "").partition("\n")[0], noted, page=True
        )
    return reached


def _cpu() -> float:
    """Seconds of CPU of this process and of those that it has waited for."""
    return sum(os.times()[:4])
