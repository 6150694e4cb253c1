"""How a long search stands: one line on a terminal that is kept up to date, and a line now and then anywhere else.

It shows the best score, the candidate under trial, calls, money and the time that is left at the pace so far.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from ...escapes import neutral

if TYPE_CHECKING:
    from rich.live import Live

    from ...models.budget import Meter
    from .search.records import ProposalRecord

PAUSE = 5.0
"""Seconds between two lines where there is no terminal."""
PER_SECOND = 2.0
"""Times a second that the line is drawn on a terminal."""


class LiveLine:
    """A Progress of searches, to be entered with `with`.

    Args:
        meter: of the model calls, for their number and dollars.
        calls: most model calls, where they are limited.
        proposals: most proposals of an evolution, where they are.
        quiet: show nothing.
    """

    def __init__(
        self, meter: Meter, *, calls: int | None = None, proposals: int | None = None, quiet: bool = False
    ) -> None:
        self._meter, self._calls, self._proposals, self._quiet = meter, calls, proposals, quiet
        self._begun = self._drawn = time.monotonic()
        self._start: float | None = None
        self._best: float | None = None
        self._now = ""
        self._share = 0.0
        """Of the work that is done."""
        self._undrawn = False
        """Something came after the last line that was printed."""
        self._live: Live | None = None

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._undrawn:
            # The last line, without which a search that ends within a second would have shown nothing.
            print(self.line(), file=sys.stderr, flush=True)

    def __call__(self, what: str, done: int, total: int | None = None, **figures: float | str) -> None:
        """Take what a learner says of its candidate: rows done of all, `score`, `best`, `candidate`, `runs`, `most`."""
        score, candidate = figures.get("score"), figures.get("candidate")
        rows = f"{done} of {total} rows" if total else f"{done} rows" if done else ""
        value = f"{score:.2f}" if isinstance(score, float) and done else ""
        quoted = f"“{candidate}”" if candidate else ""
        self._now = " ".join(part for part in (what, quoted, value, f"on {rows}" if value else rows) if part)
        runs, most = figures.get("runs"), figures.get("most")
        if isinstance(runs, (int, float)) and isinstance(most, (int, float)) and most:
            self._share = runs / most
        best = figures.get("best")
        self._draw(best if isinstance(best, float) else None)

    def proposal(self, name: str, record: ProposalRecord, *, search: int = 0, searches: int = 1) -> None:
        """Take a proposal of an evolution, or of one of several searches."""
        score = f"{record.score:g}" if record.score is not None else record.failure or record.status
        subject = f"{name}: " if name else ""
        if searches > 1:
            subject += f"fold {search + 1} of {searches}, "
        self._now = f"{subject}proposal {record.number}, {record.operator}: {score}"
        if self._proposals:
            self._share = (search + min(1.0, record.number / self._proposals)) / searches
        best = record.score if self._best is None else max(self._best, record.score or self._best)
        self._draw(best)

    def _draw(self, best: float | None) -> None:
        better = best is not None and best != self._best
        if best is not None:
            self._start, self._best = best if self._start is None else self._start, best
        if self._quiet:
            return
        if sys.stderr.isatty():
            self._on_terminal()
            return
        now = time.monotonic()
        # A better one is news; at most one line a second all the same, for offline searches find them by the dozen.
        self._undrawn = now - self._drawn < (1.0 if better else PAUSE)
        if not self._undrawn:
            self._drawn = now
            print(self.line(), file=sys.stderr, flush=True)

    def _on_terminal(self) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live
            from rich.text import Text

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = Live(
                console=console,
                get_renderable=lambda: Text(self.line(), no_wrap=True, overflow="ellipsis"),
                refresh_per_second=PER_SECOND,
                transient=True,
                # Only what goes to the same terminal may be printed above the line.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._live.start()

    def line(self) -> str:
        """The line as it stands: the candidate last, because it is the part that may be cut off."""
        spent = self._meter.spent
        parts = []
        if self._best is not None:
            since = f" (from {self._start:.4g})" if self._start not in (None, self._best) else ""
            parts.append(f"best {self._best:.4g}{since}")
        if spent["calls"]:
            most = f" of {self._calls}" if self._calls else ""
            parts.append(f"{spent['calls']:.0f}{most} model calls")
        if spent["dollars"]:
            parts.append(f"${spent['dollars']:.{2 if spent['dollars'] >= 1 else 4}f}")
        gone = time.monotonic() - self._begun
        left = f", at most {duration(gone * (1 / self._share - 1))} left" if 0.05 < self._share <= 1 else ""
        parts.append(f"{duration(gone)}{left}")
        parts.append(self._now)
        return neutral(" · ".join(part for part in parts if part)).replace("\n", " ")


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
