"""Training in the terminal: one line for each step, as it comes.

On a terminal a table with a heading now and then, and below it a line on the round that is under way; anywhere else
`name value` pairs, which a log can be searched for.  A round of reinforcement learning is always shown; of the updates
of an offline method, which are many and say little each, about every tenth part of the way.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..escapes import neutral
from ..learn.evolution.live import duration

if TYPE_CHECKING:
    from rich.live import Live

COLUMNS = {
    "reward": "reward",
    "success": "success",
    "answered": "answered",
    "loss": "loss",
    "entropy": "entropy",
    "kl": "KL",
    "tokens_per_second": "tokens/s",
    "left": "left",
    "clip_share": "clipped",
    "gradient_norm": "gradient",
    "no_signal": "no signal",
    "turns": "turns",
    "tokens": "tokens",
    "staleness": "stale",
    "mismatch": "mismatch",
    "truncated": "truncated",
}
"""Figure → heading, the more telling first: a narrow terminal shows those."""
PACE = ("tokens_per_second", "left")
HEADING_EVERY = 20
WIDTH = 9


class ProgressPrinter:
    """A Progress that prints to standard error; within `with`, also a line on the round that is under way."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._what = ""
        self._columns: list[str] = []
        self._lines = 0
        self._pace: dict[str, _Pace] = {}
        self._best: dict[str, tuple[float, int]] = {}
        """Subject → the highest success, or else reward, of a round, and its number."""
        self._under_way, self._since = "", time.monotonic()
        self._live: Live | None = None
        self._entered = False

    def __enter__(self) -> ProgressPrinter:
        self._entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        """Show a step that is worth a line."""
        shown = _answered(figures)
        if "reward" in shown:
            pace = self._pace.setdefault(what, _Pace(done))
            shown |= pace.figures(done, total, shown.get("tokens"))
            self._follow(what, done, total, shown)
        every = 1 if "reward" in shown else max(1, (total or 10) // 10)
        if done % every and done != total:
            return
        if self._console.is_terminal:
            self._row(what, done, total, shown)
        else:
            pairs = " ".join(f"{name} {_text(value)}" for name, value in shown.items())
            print(f"{what} {done}/{total or '?'} {pairs}", file=sys.stderr, flush=True)

    def _follow(self, what: str, done: int, total: int | None, figures: Mapping[str, float | str]) -> None:
        """Keep a line on the round that is under way, where there is a terminal."""
        if not (self._entered and self._console.is_terminal):
            return
        name = "success" if "success" in figures else "reward"
        value = figures.get(name)
        if isinstance(value, (int, float)) and value > self._best.get(what, (-math.inf, 0))[0]:
            self._best[what] = (value, done)
        best, round_ = self._best.get(what, (math.nan, 0))
        left = f" · {figures['left']} left" if "left" in figures else ""
        ended = total is not None and done >= total
        self._under_way = (
            ""
            if ended
            else f"{what}: best {name} {best:.3g} in round {round_}{left} · round {done + 1} under way"
        )
        self._since = time.monotonic()
        if self._live is None and not ended:
            from rich.live import Live
            from rich.text import Text

            def line() -> Text:
                gone = f", {duration(time.monotonic() - self._since)}" if self._under_way else ""
                return Text(neutral(self._under_way + gone), no_wrap=True, overflow="ellipsis")

            redirect = sys.stdout.isatty()
            self._live = Live(
                console=self._console,
                get_renderable=line,
                refresh_per_second=1,
                transient=True,
                redirect_stdout=redirect,
            )
            self._live.start()

    def _row(self, what: str, done: int, total: int | None, figures: Mapping[str, float | str]) -> None:
        first = f"{what} {done}/{total or '?'}"
        # The pace is known from the second round on, and has its columns from the first.
        paced = PACE if "reward" in figures else ()
        columns = [name for name in COLUMNS if name in figures or name in paced]
        columns += [name for name in figures if name not in COLUMNS]
        if what != self._what or not set(columns) <= set(self._columns) or self._lines % HEADING_EVERY == 0:
            # a figure that is measured now and then, as the KL, keeps its column
            before = self._columns if what == self._what else []
            both = {*before, *columns}
            self._columns = [name for name in COLUMNS if name in both]
            self._columns += sorted(both - set(COLUMNS))
            self._what, self._lines = what, 0
            headings = [COLUMNS.get(name, name)[:WIDTH] for name in self._columns]
            self._print(self._line("", headings, first), "bold")
        values = [_text(figures[name]) if name in figures else "·" for name in self._columns]
        self._print(self._line(first, values, first), None)
        self._lines += 1

    def _line(self, first: str, cells: list[str], widest: str) -> str:
        room = len(widest) + 4
        fit = max(1, (self._console.width - room) // (WIDTH + 1))
        return first.ljust(room) + " ".join(cell.rjust(WIDTH) for cell in cells[:fit])

    def _print(self, line: str, style: str | None) -> None:
        self._console.print(neutral(line), style=style, no_wrap=True, crop=True, overflow="crop")


class _Pace:
    """How fast rounds come, sampling and learning together.

    Args:
        first: number of the first round that was seen; a resumed run begins later than 1.
    """

    def __init__(self, first: int) -> None:
        self._first, self._begun = first, time.monotonic()
        self._last = self._begun

    def figures(self, done: int, total: int | None, tokens: float | str | None) -> dict[str, float | str]:
        """Tokens per second of the last round, and the time that is left at the pace so far."""
        now, before = time.monotonic(), self._last
        self._last = now
        if done <= self._first or now <= before:
            return {}  # the first round is seen at its end, and its beginning is not known
        shown: dict[str, float | str] = {}
        if isinstance(tokens, (int, float)):
            shown["tokens_per_second"] = float(round(tokens / (now - before)))
        if total is not None:
            shown["left"] = duration((total - done) * (now - self._begun) / (done - self._first))
        return shown


def _answered(figures: Mapping[str, float | str]) -> dict[str, float | str]:
    """The figures, with the rate of answers in the place of the rate of giving up."""
    shown: dict[str, float | str] = {}
    for name, value in figures.items():
        if name == "unknown" and isinstance(value, float):
            shown["answered"] = 1.0 - value
        else:
            shown[name] = value
    return shown


def _text(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else value
