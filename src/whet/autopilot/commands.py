"""Commands of whet that the autopilot gives, each in a process of its own that ends with it."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from ..errors import MissingExtra, WhetError
from ..escapes import neutral


class ExtraMissing(WhetError):
    """A command needs an extra that is not installed."""


async def run_command(folder: Path, *words: str | Path) -> str:
    """What a command of whet prints.

    Args:
        folder: that it runs in.

    Raises:
        WhetError: it failed, with its last line.
    """
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "whet.autopilot.child", str(os.getpid()), *map(str, words)),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        printed, told = await child.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        raise
    if child.returncode == 0:
        return printed.decode()
    last = neutral((told.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1])
    if child.returncode == MissingExtra.exit_code:
        raise ExtraMissing(last.removeprefix("error: "))
    raise WhetError(f"whet {words[0]} ended with {child.returncode}: {last[:400]}")
