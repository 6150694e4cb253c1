"""The memory of all processes together: held by a cgroup where one can be made, else watched."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.sandbox import CallResult, Limits, Pool, cgroup
from whet.sandbox.unchecked import UncheckedPool

MIB = 1 << 20
MANY = """
import os, signal
def f(each, count):
    for _ in range(count):
        if os.fork() == 0:
            held = bytearray(b'x') * each  # one allocation: a copy would be over the limit of a single process
            signal.pause()
    signal.pause()
"""
needs_a_cgroup = pytest.mark.skipif(
    isinstance(cgroup.here(), cgroup.Nowhere), reason="no cgroup can be made here"
)


def layout(folder: Path, lines: list[str], mounts: list[str]) -> cgroup.CgroupParent | cgroup.Nowhere:
    """What is found where the kernel says this."""
    (folder / "cgroup").write_text("\n".join(lines) + "\n")
    # As the kernel writes a path with a blank, wherever the temporary folder lies.
    escaped = [line.replace(str(folder), str(folder).replace(" ", r"\040")) for line in mounts]
    (folder / "mounts").write_text("\n".join(escaped) + "\n")
    return cgroup.find(membership=folder / "cgroup", mounts=folder / "mounts")


def version_2(folder: Path, **limits: str) -> Path:
    """A hierarchy in which `user/app` has the memory controller for what is below it."""
    own = folder / "root" / "user" / "app" / "own"
    own.mkdir(parents=True)
    for place, shared in ((own, ""), (own.parent, "cpu memory pids"), (own.parent.parent, "memory")):
        (place / "cgroup.subtree_control").write_text(shared)
        (place / "cgroup.procs").write_text("")
        (place / "memory.max").write_text(limits.get(place.name, "max") + "\n")
    return own


def test_version_2_is_divided_beside_a_process_without_a_limit_of_its_own(tmp_path: Path) -> None:
    own = version_2(tmp_path)
    mounts = [f"cgroup2 {tmp_path}/root cgroup2 rw 0 0"]
    assert layout(tmp_path, ["0::/user/app/own"], mounts) == cgroup.CgroupParent(2, own.parent)


def test_a_mount_is_found_whose_path_holds_a_blank(tmp_path: Path) -> None:
    own = version_2(tmp_path / "my groups")
    (tmp_path / "my groups" / "root").rename(tmp_path / "two words")
    mounts = [f"cgroup2 {tmp_path}/two\\040words cgroup2 rw 0 0"]
    parent = tmp_path / "two words" / own.parent.relative_to(tmp_path / "my groups" / "root")
    assert layout(tmp_path, ["0::/user/app/own"], mounts) == cgroup.CgroupParent(2, parent)


def test_nothing_gets_out_of_a_limit_that_was_put_upon_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # and so no systemd-run
    version_2(tmp_path, own="1000000")
    mounts = [f"cgroup2 {tmp_path}/root cgroup2 rw 0 0"]
    found = layout(tmp_path, ["0::/user/app/own"], mounts)
    assert isinstance(found, cgroup.Nowhere)
    assert "not ours to divide" in found.reason


def test_a_delegated_cgroup_without_processes_is_divided_itself(tmp_path: Path) -> None:
    own = version_2(tmp_path, own="1000000")
    (own / "cgroup.subtree_control").write_text("memory")
    mounts = [f"cgroup2 {tmp_path}/root cgroup2 rw 0 0"]
    assert layout(tmp_path, ["0::/user/app/own"], mounts) == cgroup.CgroupParent(2, own)


def test_version_1_is_taken_where_it_has_the_memory_controller(tmp_path: Path) -> None:
    (tmp_path / "memory" / "mine").mkdir(parents=True)
    lines = ["4:cpu:/", "3:memory:/mine", "0::/"]
    mounts = [f"cgroup {tmp_path}/memory cgroup rw,memory 0 0", f"cgroup2 {tmp_path} cgroup2 rw 0 0"]
    assert layout(tmp_path, lines, mounts) == cgroup.CgroupParent(1, tmp_path / "memory" / "mine")
    refused = layout(tmp_path, ["3:memory:/other"], mounts)
    assert isinstance(refused, cgroup.Nowhere)
    assert "cannot be written" in refused.describe()


def test_a_kernel_without_cgroups_is_said_to_have_none(tmp_path: Path) -> None:
    assert isinstance(layout(tmp_path, [], []), cgroup.Nowhere)


@needs_a_cgroup
def test_many_processes_are_held_to_one_limit_by_the_kernel_and_the_next_evaluation_is_unharmed() -> None:
    async def use() -> tuple[CallResult, str, list[CallResult]]:
        limits = Limits(memory=48 * MIB, file_bytes=MIB, wall_seconds=60)
        async with UncheckedPool(limits) as pool:
            greedy = await pool.call(MANY, "f", [40 * MIB, 6])
            after = [await pool.call("def f(): return 1", "f") for _ in range(3)]
            return greedy, (await pool.bounded())[1], after

    greedy, held, after = asyncio.run(use())
    assert (greedy.killed_by, greedy.failure and greedy.failure.type) == ("memory", "MemoryLimit")
    assert [one.value for one in after] == [1, 1, 1]
    found = re.search(r"(\d+) MiB in all, (\d+) reached", held)
    assert found, held
    # Six processes of 40 MiB, each within its own limit, and never more together than one and the reserve.
    assert int(found[2]) <= int(found[1]) < 48 + 1 + 24 + 60


@needs_a_cgroup
def test_the_cgroups_of_a_pool_are_gone_when_it_is_closed_and_those_of_the_killed_when_the_next_is_made() -> (
    None
):
    place = cgroup.here()
    assert isinstance(place, cgroup.CgroupParent)
    if place.parent is None:
        pytest.skip("systemd takes its scopes away itself")
    parent = place.parent
    of_other_tests = set(parent.glob(f"whet-{os.getpid()}-*"))

    async def use() -> set[Path]:
        async with UncheckedPool(workers=2) as pool:
            await asyncio.gather(*(pool.call("def f(): return 1", "f") for _ in range(4)))
            return set(parent.glob(f"whet-{os.getpid()}-*")) - of_other_tests

    during = asyncio.run(use())
    assert during
    assert not any(one.exists() for one in during)
    killed = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = parent / f"whet-{int(killed.stdout)}-0"
    left.mkdir()
    asyncio.run(use())
    assert not left.exists()


def test_without_a_cgroup_the_sum_is_watched_and_said_to_be() -> None:
    """For a user who may write no cgroup."""
    program = """
import asyncio, json, os, sys
from whet.sandbox import Limits, Sandbox
from whet.sandbox.unchecked import UncheckedPool
os.setgroups([])
os.setresgid(12345, 12345, 12345)
os.setresuid(12345, 12345, 12345)
os.environ.pop("XDG_RUNTIME_DIR", None)
async def use():
    limits = Limits(memory=48 << 20, file_bytes=1 << 20, wall_seconds=60)
    async with UncheckedPool(Sandbox(limits=limits, python=sys.argv[2])) as pool:
        greedy = await pool.call(sys.argv[1], "f", [40 << 20, 6])
        return [greedy.killed_by, *await pool.bounded()]
print(json.dumps(asyncio.run(use())))
"""
    if os.geteuid() != 0:
        pytest.skip("whether this user may make a cgroup is the machine's business")
    python = next(
        (one for one in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(one, os.X_OK)), None
    )
    if python is None:
        pytest.skip("no interpreter that another user than root may start")
    done = subprocess.run(
        [sys.executable, "-c", program, MANY, python],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    killed_by, bound, how = json.loads(done.stdout)
    assert killed_by == "memory"
    assert bound == 8 * 48 * MIB + MIB
    assert "every 50 ms" in how
    assert "cannot be written" in how or "not ours to divide" in how


def test_a_scope_that_systemd_does_not_make_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_given_up", [])
    refusing = ("sh", "-c", "echo Failed to start transient scope unit >&2; exit 1")
    monkeypatch.setattr(cgroup, "_find_once", lambda: cgroup.CgroupParent(2, None, refusing))

    async def use() -> tuple[object, str]:
        async with UncheckedPool(Limits(memory=48 * MIB)) as pool:
            return (await pool.call("def f(): return 1", "f")).value, (await pool.bounded())[1]

    value, how = asyncio.run(use())
    assert value == 1
    assert "every 50 ms" in how
    assert "Failed to start transient scope unit" in how


def test_a_process_that_waits_is_not_the_one_that_dies_for_the_memory_of_another() -> None:
    """The next evaluation stands ready while one runs; whatever that one does, it is there afterwards."""

    async def use() -> list[object]:
        async with Pool(Limits(memory=48 * MIB, wall_seconds=20)) as pool:
            found: list[object] = []
            for _ in range(4):
                found.append((await pool.call(MANY, "f", [30 * MIB, 6])).killed_by)
                found.append((await pool.call("def f(): return 'well'", "f")).value)
            return found

    began = time.monotonic()
    assert asyncio.run(use()) == ["memory", "well"] * 4
    assert time.monotonic() - began < 4 * 20  # none of them was waited for until its time was up
