"""What is not better must not win: the gate, judges, rewards and data, on recordings that nobody here made.

Each line is a module of its own with `measure(data, folder)`: it takes the folder of the data sets and one to work in,
and gives back what it noted, with each bar that has to be reached.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from data_rows import AbsentData
from newcomers_shell import Noted, report

from whet.errors import InputError

LINES: dict[str, str] = {
    "data": "false_win_data",
    "gate": "false_win_gate",
    "hacking": "false_win_hacking",
    "dynamics": "false_win_dynamics",
    "questions": "false_win_questions",
    "verdict": "false_win_verdict",
    "rates": "false_win_rates",
    "judges": "false_win_judges",
}
"""Name of a line → its module; the longest ones first."""
SIDE_BY_SIDE = 2
"""Lines at a time: the cores that the claim is made for."""


def no_false_win(data: Path, folder: Path, *, lines: Sequence[str]) -> bool:
    """Measure these lines, two side by side, and publish a section each; True if no bar was missed.

    Args:
        data: the data sets; a line says which of them it takes.
        folder: where it works.
    """
    reached, began = True, time.monotonic()
    # Lines are side by side, so that more threads for each would only wait for one another.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A process of its own for each: what memory a line takes is then its own, too.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(SIDE_BY_SIDE, mp_context=fresh, max_tasks_per_child=1) as pool:
        measured = {name: pool.submit(_measured, name, data, folder / name) for name in lines}
        for name, line in measured.items():
            noted, seconds, spent = line.result()
            print(f"{name}: {seconds:.0f} s, {spent:.0f} s of CPU", flush=True)
            about = (importlib.import_module(LINES[name]).__doc__ or "").partition("\n")[0]
            reached &= report(f"No false win: {name}", about, noted, page=True)
    print(f"all lines: {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    return reached


def _measured(name: str, data: Path, folder: Path) -> tuple[list[Noted], float, float]:
    """What a line noted, the seconds that it took, and those of CPU."""
    folder.mkdir(parents=True, exist_ok=True)
    began, spent = time.monotonic(), _cpu()
    try:
        noted: list[Noted] = importlib.import_module(LINES[name]).measure(data, folder)
    except (AbsentData, FileNotFoundError, InputError) as error:
        noted = [Noted(name, lines={"its data are there": False}, said=str(error))]
    return noted, time.monotonic() - began, _cpu() - spent


def _cpu() -> float:
    """Seconds of CPU of this process and of those that it has waited for."""
    return sum(os.times()[:4])
