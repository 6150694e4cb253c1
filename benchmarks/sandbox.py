"""What a sandboxed call costs beside the same function called in this process, and beside a cold start.

    python benchmarks/sandbox.py [--calls N]

Ratios, because this machine is not yours: a pooled evaluation (a fork into fresh namespaces, numpy
loaded) against a cold one (bubblewrap, an interpreter and numpy from nothing), and a call of a program
that stays open against a pooled one.  Percentiles are over calls made one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from whet.sandbox import Pool, Sandbox
from whet.sandbox.unchecked import UncheckedPool

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
    print(f"a cold start costs {starting[0] / evaluated[0]:.0f} pooled evaluations")
    print(f"a pooled evaluation costs {evaluated[0] / staying[0]:.0f} calls of an open program")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300)
    asyncio.run(main(parser.parse_args().calls))
