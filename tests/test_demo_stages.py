"""Stages in the order of their needs on several places, and the second process as one of those."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import alive, until

from whet.worlds.demo.stages import DemoStage, Lost, Place, behind, run_in_order

NEEDS: dict[str, tuple[str, ...]] = {
    "rule": (),
    "head": ("rule",),
    "cloned": ("head",),
    "judge": ("head",),
    "trained": ("cloned",),
    "trained by judge": ("cloned", "judge"),
    "gate": ("trained",),
}


def test_what_is_behind_a_stage_stands_in_order_and_holds_nothing_else() -> None:
    async def nothing() -> None: ...

    stages = {name: DemoStage(nothing, needs) for name, needs in NEEDS.items()}
    assert behind(stages, "rule") == []
    assert behind(stages, "trained by judge") == ["rule", "head", "cloned", "judge"]
    assert behind(stages, "gate") == ["rule", "head", "cloned", "trained"]


class Watched:
    """Places that note what is under way; each stage lasts as many turns of the event loop as it is told."""

    def __init__(self, lasts: dict[str, int] | None = None) -> None:
        self.lasts = lasts or {}
        self.begun: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.together: set[frozenset[str]] = set()
        self._under_way: set[str] = set()

    def place(self, where: str) -> Place:
        async def run(name: str) -> None:
            assert set(NEEDS[name]) <= set(self.ended), f"{name} began before what it needs had ended"
            self.begun.append((where, name))
            self._under_way.add(name)
            self.together.add(frozenset(self._under_way))
            try:
                for _ in range(self.lasts.get(name, 5)):
                    await asyncio.sleep(0)
            finally:
                self._under_way.discard(name)
            self.ended.append(name)

        return run


def never(lost: Lost) -> None:
    raise AssertionError(f"no place was lost: {lost}")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_stage_runs_once_and_after_what_it_needs(count: int) -> None:
    watched = Watched({"judge": 20, "trained": 40})
    places = [watched.place(str(number)) for number in range(count)]
    asyncio.run(run_in_order(NEEDS, places, lost=never))
    assert sorted(watched.ended) == sorted(NEEDS)
    assert len(watched.begun) == len(NEEDS)
    assert max(map(len, watched.together)) == min(count, 2), "no more than two of these can run at once"


def test_the_first_place_and_the_first_stage_are_taken_first() -> None:
    watched = Watched()
    asyncio.run(run_in_order(NEEDS, [watched.place("here"), watched.place("there")], lost=never))
    assert watched.begun[:4] == [("here", "rule"), ("here", "head"), ("here", "cloned"), ("there", "judge")]


def test_what_a_stage_raises_ends_the_job_and_what_runs_beside_it() -> None:
    watched = Watched({"judge": 10_000})

    async def here(name: str) -> None:
        await watched.place("here")(name)
        if name == "cloned":
            raise ValueError("no room left on the disk")

    with pytest.raises(ValueError, match="no room"):
        asyncio.run(run_in_order(NEEDS, [here, watched.place("there")], lost=never))
    assert "judge" not in watched.ended, "it was cancelled"
    assert "trained" not in [name for _, name in watched.begun]


def test_the_stage_of_a_place_that_is_lost_runs_at_another() -> None:
    watched = Watched()
    told: list[str] = []

    async def there(name: str) -> None:
        raise Lost(f"it died during {name}")

    asyncio.run(run_in_order(NEEDS, [watched.place("here"), there], lost=lambda lost: told.append(str(lost))))
    assert told == ["it died during judge"]
    assert sorted(watched.ended) == sorted(NEEDS)
    with pytest.raises(Lost):
        asyncio.run(run_in_order(NEEDS, [there], lost=never))


FIRST = """
import asyncio, sys
from pathlib import Path
from whet.worlds.demo.job import SMALL, JobOptions
from whet.worlds.demo.processes import SecondProcess
from whet.learn.loop import quiet

async def main():
    options = JobOptions(output=Path(sys.argv[1]), sizes=SMALL)
    store = str(Path(sys.argv[1]) / "whet.db")
    second = await SecondProcess.start(options, store=store, name="demo-1", progress=quiet, ready=print)
    print(second.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_the_second_process_ends_with_the_first_however_that_ends(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("lightgbm")
    first = subprocess.Popen([sys.executable, "-c", FIRST, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    with first:
        second = int(first.stdout.readline())
        assert alive(second), "it is at work"
        first.kill()
    until(lambda: not alive(second))


def test_a_second_process_that_dies_is_lost_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from whet.learn.loop import quiet
    from whet.worlds.demo.job import SMALL, JobOptions
    from whet.worlds.demo.processes import SecondProcess

    readied: list[dict[str, Any]] = []

    async def job() -> None:
        second = await SecondProcess.start(
            JobOptions(output=tmp_path, sizes=SMALL),
            store=str(tmp_path / "whet.db"),
            name="demo-1",
            progress=quiet,
            ready=readied.append,
        )
        try:
            os.kill(second.pid, signal.SIGKILL)
            with pytest.raises(Lost, match="code -9"):
                await second("rule")
        finally:
            await second.close()

    asyncio.run(job())
    assert readied == []
