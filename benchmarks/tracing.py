"""What tracing costs the caller's thread.  Run: python benchmarks/tracing.py [--calls N]

Prints one line per case: nanoseconds per call at the median and the 99th percentile, those of the bare
function (and of reading the clock) taken off.  Each call is clocked by itself, the steps inside a traced
call too.  The writer's thread works meanwhile, as it does in a program; nothing is dropped, or the last
line says how many.  `warm` is the best of many short loops in CPU time of the caller's thread: the cost of
the code where nothing else disturbs the caches.
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

BURST = 100


def times(function: Callable[..., Any], args: tuple[Any, ...], calls: int, pause: bool) -> list[int]:
    """Nanoseconds of each call.  `pause` rests between bursts, as traffic does."""
    taken = []
    clock = time.perf_counter_ns
    for number in range(calls):
        if pause and number % BURST == 0:
            time.sleep(0.02)
        before = clock()
        function(*args)
        taken.append(clock() - before)
    return taken


def warm(function: Callable[..., Any], args: tuple[Any, ...], rounds: int = 50) -> float:
    """Nanoseconds of CPU a call, the best of `rounds` of 100 calls."""
    best = float("inf")
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(100):
            function(*args)
        best = min(best, (time.thread_time_ns() - began) / 100)
    return best


def report(name: str, taken: list[int], bare: list[int], loop: float | None = None) -> None:
    def share(part: int, first: int) -> int:
        """A percentile, of the bursts' calls from their `first` on."""
        own, floor = (
            sorted(time for number, time in enumerate(times) if number % BURST >= first)
            for times in (taken, bare)
        )
        return own[len(own) * part // 100] - (floor[len(floor) * part // 100] if floor else 0)

    best = "" if loop is None else f"   warm {loop:7,.0f} ns"
    print(
        f"{name:44} p50 {share(50, 0):7,} ns   p99 {share(99, 0):9,} ns   busy p99 {share(99, 2):7,} ns{best}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    calls = parser.parse_args().calls
    texts = ("a" * 1024, "b" * 1024)
    tables = ({"text": "a" * 1000, "n": 1}, ["b" * 500, "c" * 500])
    dialogue = ([{"role": "user", "content": "a" * 2000}] * 10, {"model": "m"})
    cases = (
        ("two texts of 1 KB", texts),
        ("a dict and a list of 1 KB", tables),
        ("ten messages of 2 KB", dialogue),
    )

    def bare(first: Any, second: Any) -> Any:
        return None

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        traced, stepped = trace(store)(bare), step(bare)

        @trace(store)
        def inside(measured: Callable[[], Any]) -> None:
            found.append(measured())

        found: list[Any] = []
        floor, least = times(bare, texts, calls, True), warm(bare, texts)
        report("bare function (absolute)", floor, [], least)
        for name, arguments in cases:
            report(
                f"@trace, {name}",
                times(traced, arguments, calls, True),
                floor,
                warm(traced, arguments) - least,
            )
            flush()
            taken: list[int] = []
            for _ in range(calls // BURST):
                time.sleep(0.02)
                inside(lambda arguments=arguments: times(stepped, arguments, BURST, False))
                taken += found.pop()
            inside(lambda arguments=arguments: warm(stepped, arguments, 20))
            report(f"@step in a trace, {name}", taken, floor, found.pop() - least)
            flush()
        report("@step outside any trace", times(stepped, texts, calls, True), floor)

        @trace(store)
        def many_steps(first: Any, second: Any) -> None:
            for _ in range(100):
                stepped(first, second)

        def gathered(first: Any, second: Any) -> None:
            with collecting():
                many_steps(first, second)

        taken = times(gathered, texts, calls // 100, False)
        report("@step inside collecting(), with its Step", [each // 100 for each in taken], floor)
        prompt, rule = resource("prompt", default="x"), resource("rule", default={"missing": 1})
        with using(Bundle([Version(resource="prompt", content="y")])):
            report("str(resource)", times(lambda _a, _b: str(prompt), texts, calls, False), floor)
            report("resource['key']", times(lambda _a, _b: rule["missing"], texts, calls, False), floor)
    print(f"dropped: {dropped()}")


if __name__ == "__main__":
    main()
