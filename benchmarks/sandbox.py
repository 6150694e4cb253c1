"""What a sandboxed call costs beside the same function called in this process, and beside a cold start.

    python benchmarks/sandbox.py [--calls N]

Ratios, because this machine is not yours: a pooled evaluation (a fork into fresh namespaces, numpy
loaded) against a cold one (bubblewrap, an interpreter and numpy from nothing), and a call of a program
that stays open against a pooled one.  Percentiles are over calls made one after the other.

Beside that the floor: the processor time of a fork into the namespaces of an evaluation with its mounts, limits and
filter, whose process ends at once, against that of a whole pooled evaluation of a function without an import.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from whet.sandbox import Pool, Sandbox
from whet.sandbox.inside import kernel
from whet.sandbox.inside.walls import SPACES, Walls
from whet.sandbox.unchecked import UncheckedPool

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: what a sandbox forked is ours to wait for once it is gone
SMALL = "def f(x):\n    return x * 2\n"
SOURCE = "import numpy\ndef f(x):\n    return float(numpy.sum(numpy.arange(x)))\n"


async def timed(call: Callable[[], Awaitable[object]], count: int) -> tuple[float, float]:
    """p50 and p90 in milliseconds."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await call()
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    return taken[count // 2], taken[count * 9 // 10]


def spent() -> float:
    """Processor seconds of this process and of all that it has waited for."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def floor(calls: int) -> float:
    """Processor milliseconds of a process that is forked into the walls of an evaluation and ends."""
    limits = Sandbox().limits
    with tempfile.TemporaryDirectory() as folder:
        plan: dict[str, Any] = {
            "isolate": True,
            "box": folder,
            "hidden": [],
            "limits": {
                name: getattr(limits, name) for name in ("file_bytes", "cpu_seconds", "processes", "memory")
            },
        }
        walls = Walls(plan, limits.memory + (4 << 30))
        gc.collect()
        gc.freeze()
        before = spent()
        for _ in range(calls):
            pid = kernel.fork_into(SPACES)
            if pid == 0:
                try:
                    walls.enter()
                    walls.close()
                finally:
                    os._exit(0)
            os.waitpid(pid, 0)
        return (spent() - before) / calls * 1e3


async def evaluation(calls: int) -> float:
    """Processor milliseconds of a whole pooled evaluation, by those of many less those of few."""
    seconds = []
    for count in (20, calls + 20):
        before = spent()
        async with UncheckedPool(Sandbox()) as pool:
            for _ in range(count):
                assert (await pool.call(SMALL, "f", [10])).value == 20
        time.sleep(0.5)  # the kernel takes namespaces apart when their last process is gone
        seconds.append(spent() - before)
    return (seconds[1] - seconds[0]) / calls * 1e3


async def main(calls: int) -> None:
    """Print the table."""
    sandbox = Sandbox()

    async def cold() -> None:
        async with UncheckedPool(sandbox, modules=("numpy",)) as pool:
            assert (await pool.call(SOURCE, "f", [10])).value == 45.0

    starting = await timed(cold, 5)
    async with Pool(sandbox, modules=("numpy",)) as pool:

        async def pooled() -> None:
            assert (await pool.call(SOURCE, "f", [10])).value == 45.0

        await timed(pooled, 20)
        evaluated = await timed(pooled, calls)
        async with pool.open(SOURCE, "f") as session:

            async def called() -> None:
                assert (await session.call([10])).value == 45.0

            await timed(called, 20)
            staying = await timed(called, calls)
    print(f"{sandbox.describe()}, {calls} calls one after the other, numpy loaded")
    for name, (p50, p90) in (
        ("cold start", starting),
        ("pooled evaluation", evaluated),
        ("open program", staying),
    ):
        print(f"{name:20} p50 {p50:8.2f} ms   p90 {p90:8.2f} ms")
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    least, small = floor(calls), await evaluation(calls)
    print(f"floor {least:.2f} ms of CPU, a pooled evaluation {small:.2f}: {small / least:.2f} times as much")
    print(f"a cold start costs {starting[0] / evaluated[0]:.0f} pooled evaluations")
    print(f"a pooled evaluation costs {evaluated[0] / staying[0]:.0f} calls of an open program")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300)
    asyncio.run(main(parser.parse_args().calls))
