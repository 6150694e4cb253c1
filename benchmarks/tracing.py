"""What tracing costs the caller's thread.  Run: python benchmarks/tracing.py [--calls N]

Prints one line per case: nanoseconds per call at the median and the 99th percentile, the bare
function's own time (and that of reading the clock) taken off the median.  The writer's thread
works meanwhile, as it does in a program; nothing is dropped, or the last line says how many.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.record.store import Store
from whet.record.tracing import collecting, dropped, flush, resource, step, trace, using
from whet.types import Bundle, Version


def times(function: Callable[..., Any], args: tuple[Any, ...], calls: int, pause: bool) -> list[int]:
    """Nanoseconds of each call, sorted.  `pause` rests between bursts, as traffic does."""
    taken = []
    clock = time.perf_counter_ns
    for number in range(calls):
        if pause and number % 100 == 0:
            time.sleep(0.02)
        before = clock()
        function(*args)
        taken.append(clock() - before)
    return sorted(taken)


def report(name: str, taken: list[int], bare: int) -> None:
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    print(f"{name:44} p50 {p50 - bare:7,} ns over bare   p99 {p99:9,} ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    texts = ("a" * 1024, "b" * 1024)
    tables = ({"text": "a" * 1000, "n": 1}, ["b" * 500, "c" * 500])

    def bare(first: Any, second: Any) -> Any:
        return None

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        stepped = step(bare)

        @trace(store)
        def many_steps(first: Any, second: Any) -> None:
            for _ in range(100):
                stepped(first, second)

        floor = times(bare, texts, calls, True)
        base = floor[len(floor) // 2]
        report("bare function (absolute)", floor, 0)
        report("@trace, two texts of 1 KB", times(trace(store)(bare), texts, calls, True), base)
        flush()
        report("@trace, a dict and a list of 1 KB", times(trace(store)(bare), tables, calls, True), base)
        flush()
        report("@step outside any trace", times(stepped, texts, calls, True), base)
        taken = times(many_steps, texts, calls // 100, True)
        report("@step in a trace, two texts of 1 KB", [each // 100 for each in taken], base)
        flush()

        def gathered(first: Any, second: Any) -> None:
            with collecting():
                many_steps(first, second)

        taken = times(gathered, texts, calls // 100, False)
        report("@step inside collecting(), with its Step", [each // 100 for each in taken], base)
        prompt, rule = resource("prompt", default="x"), resource("rule", default={"missing": 1})
        with using(Bundle([Version(resource="prompt", content="y")])):
            report("str(resource)", times(lambda _a, _b: str(prompt), texts, calls, False), base)
            report("resource['key']", times(lambda _a, _b: rule["missing"], texts, calls, False), base)
    print(f"dropped: {dropped()}")


if __name__ == "__main__":
    main()
