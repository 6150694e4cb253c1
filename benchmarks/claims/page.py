"""docs/claims.md: one section per measurement, each with its date and its command."""

from __future__ import annotations

import fcntl
import shlex
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
INTRODUCTION = """# Claims

What was measured, when, and with which command. `scripts/claims COMMAND` measures a section again and
replaces it; nothing here is written by hand. Intervals are 95 %, clustered by mailbox.
"""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, columns after the first to the right."""
    return [
        "| " + " | ".join(heads) + " |",
        "|" + "|".join(["---", *["---:"] * (len(heads) - 1)]) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def rows_of(heading: str, *, page: Path = PAGE) -> list[list[str]]:
    """The rows of the tables in a section of the page, without their heads; none where there is no such section."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    section = next((text for text in old.split("\n## ") if text.partition("\n")[0].strip() == heading), "")
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def percent(value: float | None, *, signed: bool = False) -> str:
    """A share in percent, or a dash."""
    return "–" if value is None else f"{100 * value:{'+' if signed else ''}.1f}"


def points(effect: float, interval: Sequence[float]) -> str:
    """A difference of two shares with its interval, in points."""
    return f"{100 * effect:+.1f} [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]"


def publish(heading: str, lines: Sequence[str], *, page: Path = PAGE) -> None:
    """Print a section and put it into the page in place of the one of that heading."""
    # Where the work lay is of this machine alone.
    words = [
        word for word, before in zip(sys.argv[1:], sys.argv, strict=False) if "--folder" not in (word, before)
    ]
    command = shlex.join(["scripts/claims", *words])
    section = "\n".join(
        [f"## {heading}", "", f"{date.today().isoformat()}, `{command}`", "", *lines]
    ).rstrip()
    print(section)
    page.parent.mkdir(parents=True, exist_ok=True)
    with page.with_suffix(".lock").open("w") as lock:  # two measurements may end at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = page.read_text(encoding="utf-8") if page.exists() else INTRODUCTION
        head, *sections = old.split("\n## ")
        kept = {text.partition("\n")[0].strip(): f"## {text.strip()}" for text in sections}
        kept[heading] = section
        page.write_text("\n\n".join([head.strip(), *kept.values()]) + "\n", encoding="utf-8")
    page.with_suffix(".lock").unlink(missing_ok=True)
