"""A server's memory is that of what it holds: threads share the C library's arenas, and what is free is given back."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx2
import pytest
from processes import until
from server_world import world

from whet.serve import app
from whet.serve.memory import ARENAS

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc"
)
TOKEN = "t" * 20


def arenas(pid: int) -> int:
    """Arenas beside the first one: glibc reserves 64 MB for each, from a multiple of 64 MB to the next.

    The kernel joins neighbours of the same kind, so that one end of an arena may not be seen; both rarely are not.
    """
    size = 64 * 1024 * 1024
    mapped = re.findall(r"^(\w+)-(\w+) (rw-p|---p) 00000000 00:00 0\s*$", maps(pid), re.MULTILINE)
    begun = {
        int(start, 16) // size for start, _, kind in mapped if kind == "rw-p" and int(start, 16) % size == 0
    }
    reserved = {
        int(end, 16) // size - 1 for _, end, kind in mapped if kind == "---p" and int(end, 16) % size == 0
    }
    return sum(_is_arena(pid, place * size, size) for place in begun | reserved)


def _is_arena(pid: int, start: int, size: int) -> bool:
    """True if what glibc writes where it begins is there, its arena's address: a mapping may begin there by chance."""
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(start)
        (arena,) = struct.unpack("=Q", memory.read(8))
    return start < arena < start + size


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_many_threads_share_a_servers_arenas(tmp_path: Path) -> None:
    words = ["serve", "--store", str(tmp_path / "runs.db"), "--port", "0", "--token", TOKEN]
    with subprocess.Popen(
        [sys.executable, "-m", "whet", *words], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split(" on ")[1].split(";")[0]
            together = Barrier(8)

            def read(_: int) -> int:
                with httpx2.Client(
                    base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=90
                ) as client:
                    together.wait(90)
                    return [client.get("/api/trajectories").status_code for _ in range(5)].count(200)

            with ThreadPoolExecutor(8) as pool:
                assert list(pool.map(read, range(8))) == [5] * 8
            assert len(list(Path(f"/proc/{server.pid}/task").iterdir())) > 8
            assert 1 <= arenas(server.pid) < ARENAS
        finally:
            server.terminate()


def test_free_memory_between_what_is_held_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    size, pieces = 8192, 5_000
    with world(tmp_path / "runs.db") as here:
        memory = [library.malloc(size) for _ in range(pieces)]
        for place in memory:
            ctypes.memset(place, 1, size)
        full = resident()
        for place in memory[:-1]:  # the last one holds the end of the arena
            library.free(ctypes.c_void_p(place))
        assert full - resident() < size * pieces / 2, "by itself little comes back"
        assert here.get("/healthz")["status"] == "ok"
    monkeypatch.setattr(app, "TRIM", 0.05)
    with world(tmp_path / "other.db"):
        until(lambda: full - resident() > size * pieces / 2)
    library.free(ctypes.c_void_p(memory[-1]))
