"""`whet autopilot` as the nights run it: a process of its own, with a log, and an end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_LIMIT = 1_200.0
"""Seconds of one look, after which it is told to end; the next one goes on."""


def begun(
    python: str | Path,
    options: Mapping[str, object],
    *,
    folder: Path,
    variables: Mapping[str, str],
    log: Path,
) -> subprocess.Popen[bytes]:
    """The autopilot, begun.

    Args:
        options: of the command.
        folder: the agent's.
        variables: in its environment, beside those of this process.
        log: a file; what it prints is added to it.
    """
    words = [str(word) for pair in options.items() for word in pair]
    with log.open("ab") as file:
        return subprocess.Popen(
            [python, "-m", "whet", "autopilot", *words],
            cwd=folder,
            env={**os.environ, **variables},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def ended(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the end of a look.

    Raises:
        RuntimeError: it ended with an error.
    """
    try:
        code = process.wait(_LIMIT)
    except subprocess.TimeoutExpired:
        # Not SIGINT, which a process that was begun in the background may be told to ignore.
        process.terminate()
        code = process.wait(60)
    if code:
        raise RuntimeError(log.read_text(encoding="utf-8")[-3_000:])
