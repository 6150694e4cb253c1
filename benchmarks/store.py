"""How fast the store takes and gives trajectories.  Run: python benchmarks/store.py

A trajectory has four small steps.  Every put is acknowledged after commit and fsync, so the
figures depend on the disk under --folder.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from whet.store import Store
from whet.store.codec import decode, encode
from whet.types import Outcome, Step, Task, Trajectory


def small(number: int) -> Trajectory:
    """A trajectory of four steps."""
    steps = tuple(
        Step(observation="r1 hit 3 sender month", action="search any w2 w5", reward=-0.02, id=str(index))
        for index in range(4)
    )
    return Trajectory(
        task=Task(id=f"t{number}", instruction="When is the move?"), steps=steps, outcome=Outcome.SUCCESS
    )


def rate(name: str, count: int, seconds: float) -> None:
    print(f"{name:48} {count / seconds:10,.0f} /s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    count = given.count
    made = [small(number) for number in range(count)]
    before = time.perf_counter()
    bodies = [encode(each) for each in made]
    middle = time.perf_counter()
    for body in bodies:
        decode(body, Trajectory)
    after = time.perf_counter()
    print(
        f"encode {1e6 * (middle - before) / count:.1f} us, decode {1e6 * (after - middle) / count:.1f} us, "
        f"{len(bodies[0])} bytes"
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "runs.db"
        with Store(path) as store:
            before = time.perf_counter()
            for start in range(0, count, 1_000):
                store.put(*made[start : start + 1_000])
            rate("put, 1,000 at a time", count, time.perf_counter() - before)
            before = time.perf_counter()
            for _ in store.trajectories():
                pass
            rate("read back", count, time.perf_counter() - before)
            singles = [small(number) for number in range(200)]
            before = time.perf_counter()
            for each in singles:
                store.put(each)
            rate("put, one at a time", len(singles), time.perf_counter() - before)

            def worker() -> None:
                for number in range(100):
                    store.put(small(number))

            threads = [threading.Thread(target=worker) for _ in range(32)]
            before = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate("put, one at a time from 32 threads", 3_200, time.perf_counter() - before)
            with Store(path) as other:
                fresh = [small(number) for number in range(count)]
                before = time.perf_counter()
                for start in range(0, count, 1_000):
                    other.put(*fresh[start : start + 1_000])
                rate("put through the owner's socket, 1,000 at a time", count, time.perf_counter() - before)


if __name__ == "__main__":
    main()
