"""`whet work`: one worker in this process, or several processes of it.

Signals: the first Ctrl-C stops claiming and finishes what runs, the second gives it back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import InputError, StoreError
from ...record.tracing.resources import isolate_functions
from ...types import Mode
from .agent import attempt, load
from .client import QueueClient
from .run import Tally, Worker

_PARENT = "WHET_WORK_PARENT"
"""Process id of the parent, for a worker that is one of several."""
GAVE_UP = 75
"""Exit code of a worker whose patience with an absent server ended: what sysexits.h calls a temporary failure."""
QUICK = 5.0
"""Seconds that a process has to live to be restarted when it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The settings of one worker."""

    agent: str
    """MODULE:NAME."""
    url: str
    token: str
    concurrency: int = 8
    lease: float = 60.0
    """Seconds."""
    modes: Sequence[Mode] = ()
    """All if empty."""
    limit: int | None = None
    """Rollouts after which to stop."""
    patience: float | None = None
    """Seconds that the server may be unreachable; None retries indefinitely."""


def work_here(work: WorkerOptions, done: Callable[[Tally], None]) -> int:
    """Run a worker in this process until it is stopped; returns the exit code.

    Args:
        done: called at the end with the counts.

    Raises:
        InputError: the agent cannot be loaded, or the server refuses.

    Returns:
        0, or GAVE_UP.
    """
    isolate_functions()
    attempt_ = attempt(load(work.agent))

    async def main() -> int:
        stopping, released = asyncio.Event(), asyncio.Event()

        def stop() -> None:
            if stopping.is_set():
                released.set()
            else:
                _say("finishing the rollouts under way; Ctrl-C again gives them back")
                stopping.set()

        loop = asyncio.get_running_loop()
        for signal_ in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_, stop)
        client = QueueClient(work.url, work.token, on_trouble=_say)
        worker = Worker(
            attempt_,
            client,
            name=f"{socket.gethostname()}-{os.getpid()}",
            concurrency=work.concurrency,
            lease=work.lease,
            modes=list(work.modes) or None,
            report=_say,
        )
        orphaned = asyncio.create_task(_orphaned(stop))
        gave_up = False
        try:
            await worker.run(stopping, released, limit=work.limit, patience=work.patience)
        except StoreError as exception:
            gave_up = True
            _say(str(exception))
        finally:
            orphaned.cancel()
            await client.close()
        done(worker.tally)
        if released.is_set():
            # An agent that blocks a thread cannot be stopped, and Python would wait for the thread.
            sys.stdout.flush()
            os._exit(130)
        return GAVE_UP if gave_up else 0

    return asyncio.run(main())


async def _orphaned(stop: Callable[[], None]) -> None:
    """Stop when the parent that started several processes is gone."""
    parent = os.environ.get(_PARENT)
    if parent is None:
        return
    while os.getppid() == int(parent):
        await asyncio.sleep(1.0)
    stop()


def work_in_processes(count: int, arguments: Sequence[str], token: str) -> int:
    """Run `whet work` with these arguments in `count` processes; one that dies is started again.

    Returns:
        0, GAVE_UP, or the exit code of a process that failed at once.

    Raises:
        InputError: `count` is less than 1.
    """
    if count < 1:
        raise InputError(f"--processes {count}: at least 1")
    command = [sys.executable, "-m", "whet", "work", *arguments]
    environment = {**os.environ, "WHET_TOKEN": token, _PARENT: str(os.getpid())}

    def start() -> tuple[subprocess.Popen[bytes], float]:
        # A group of its own: Ctrl-C reaches the parent alone, which passes it on once.
        return subprocess.Popen(command, env=environment, start_new_session=True), time.monotonic()

    running = [start() for _ in range(count)]
    signals: list[int] = []

    def stop(number: int, frame: object) -> None:
        signals.append(number)
        for process, _ in running:
            if process.poll() is None:
                process.send_signal(number)

    for signal_ in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_, stop)
    code = 0
    while running:
        for index, (process, since) in enumerate(list(running)):
            try:
                ended = process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
            if signals:
                # A process that had no signal handler yet ends by the signal itself: not a failure.
                code = 130 if len(signals) > 1 else code
            elif ended in (0, GAVE_UP):
                code = max(code, ended)
            elif time.monotonic() - since < QUICK:
                code = ended if ended > 0 else 1
            else:
                _say(f"worker process {process.pid} ended with {ended}; starting another")
                running[index] = start()
                break
            del running[index]
            break
    return code


def _say(line: str) -> None:
    print(f"whet work: {line}", file=sys.stderr, flush=True)
