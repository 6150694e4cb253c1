"""What every trial of a newcomer shares: a folder in which commands are typed, and what is noted of a trial."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from page import publish, table

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDS = ("openai>=3",)


@dataclass
class Noted:
    """One run of a trial."""

    name: str
    figures: dict[str, str] = field(default_factory=dict)
    lines: dict[str, bool] = field(default_factory=dict)
    """What has to be reached → whether it was."""
    said: str = ""
    """What the product printed, to be read where a line is missed."""

    @property
    def missed(self) -> list[str]:
        return [line for line, reached in self.lines.items() if not reached]


class Shell:
    """A folder and its commands, each counted and logged in `typed.log`."""

    def __init__(self, folder: Path, python: Path | None = None) -> None:
        self.folder, self.python = folder, str(python or sys.executable)
        self.commands, self.began = 0, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def minutes(self) -> str:
        """Since the first command."""
        return f"{(time.monotonic() - self.began) / 60:.1f}"

    def environ(self, variables: Mapping[str, str]) -> dict[str, str]:
        """As a newcomer has it, with some variables."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("WHET_")}
        own["PATH"] = f"{Path(self.python).parent}{os.pathsep}{own.get('PATH', '')}"
        return {**own, "OPENAI_API_KEY": "none", **variables}

    def program(self, words: Sequence[str]) -> list[str]:
        """The words as they are run: `whet` and `python` are those of the environment under trial."""
        if words[0] == "whet":
            return [self.python, "-m", "whet", *words[1:]]
        return [self.python, *words[1:]] if words[0] == "python" else list(words)

    def type(
        self, *words: str, variables: Mapping[str, str] | None = None, seconds: float = 1_800
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        self.commands += 1
        done = subprocess.run(
            self.program(words),
            cwd=self.folder,
            env=self.environ(variables or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        with (self.folder / "typed.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}[{done.returncode}]\n\n")
        return done


def bare(folder: Path, needs: Sequence[str]) -> Path | None:
    """The interpreter of a fresh environment with whet from this source and what an agent needs; None if pip fails."""
    place = folder / "bare"
    python = place / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    wanted = [f"{REPOSITORY}[server,evolve]", *needs]
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", *wanted], capture_output=True, text=True
    )
    if done.returncode:
        print(f"no bare environment, so this one is used: {done.stderr.strip()[-300:]}", flush=True)
        return None
    return python


def report(heading: str, about: str, noted: Sequence[Noted], *, page: bool) -> bool:
    """Print the trials, publish them where that is wanted; True if no line was missed."""
    heads = list(dict.fromkeys(name for one in noted for name in one.figures))
    rows = [[one.name, *(one.figures.get(head, "–") for head in heads)] for one in noted]
    for one, row in zip(noted, rows, strict=True):
        print(" | ".join(row), flush=True)
        if one.missed:
            print(f"missed: {', '.join(one.missed)}\n{one.said}", flush=True)
    if page:
        publish(heading, [about, "", *table(["trial", *heads], rows)])
    return not any(one.missed for one in noted)
