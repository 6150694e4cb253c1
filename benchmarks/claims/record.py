"""What the record promises, by the benchmarks beside this folder: their own tables, dated."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from page import publish

PARTS = {
    "durability": "Kill -9 under load",
    "kills": "Kill -9 of the server, over all that it acknowledges",
    "store": "The record as it grows",
    "ingest": "Spans that become trajectories, beside raw SQLite",
    "rollouts": "Rollouts handed out and taken back",
    "phoenix": "Visible traces beside Phoenix",
    "soak": "The soak",
    "gateway": "What the gateway adds",
    "redaction": "Secrets in texts that the rules had not seen",
    "sandbox": "What a sandboxed call costs",
}
"""Benchmark → heading of its section."""
NOTHING_WRITTEN = ("redaction", "sandbox")
"""Those that need no folder to work in."""


MODELS = {
    "trl": ("training", "Training beside TRL"),
    "plan": ("training/planned.py", "What training takes, by arithmetic and measured"),
    "large": ("training/large.py", "Steps of large models beside TRL"),
    "conversations": ("training/conversations.py", "Conversations of a transformers model"),
    "makespan": ("training/makespan.py", "Rollouts beside training"),
}
"""Name → a benchmark of training, and the heading of its section."""


def models(part: str, options: Sequence[str], *, heading: str = "") -> bool:
    """The same for a benchmark of training.

    Args:
        heading: of the section, for a second one of the same benchmark.
    """
    script, own_heading = MODELS[part]
    return _published(script, options, [], heading or own_heading)


def record(part: str, options: Sequence[str], *, folder: Path, heading: str = "") -> bool:
    """Run a benchmark with these options and publish what it prints; whether it found what it promises.

    Args:
        folder: where it works, on the disk that is measured.
        heading: of the section, for a second one of the same benchmark.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = [] if part in NOTHING_WRITTEN else ["--folder", str(folder)]
    return _published(f"{part}.py", options, own, heading or PARTS[part])


def _published(script: str, options: Sequence[str], own: Sequence[str], heading: str) -> bool:
    words = [sys.executable, str(Path(__file__).resolve().parents[1] / script), *options, *own]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    said = done.stdout.rstrip() or "It printed nothing."
    ended = [] if done.returncode == 0 else ["", f"It ended with exit code {done.returncode}."]
    command = shlex.join(["python", f"benchmarks/{script}", *options])
    publish(heading, [f"What `{command}` prints:", "", "```", said, "```", *ended])
    return done.returncode == 0
