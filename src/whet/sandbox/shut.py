"""Shutting in a program that is its owner's own: it answers, speaks to one address on this machine, changes nothing.

The sandbox of evaluations is for code that nobody trusts, and shows it next to nothing.  This is for an agent that is
run again on recorded work: it needs its packages, its files and its model, and must reach no tool of the real world
(`inside/shut.py` has the walls).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import site
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import launch

_BYTES = 1 << 30
"""Of the folder and all that the program writes, in memory."""
_START = "import sys; sys.path.insert(0, {library!r}); from inside.shut import main; sys.path.pop(0); main()"


class Shut:
    """What a program is shut into, and the carrier of its one connection outside.  Use it as a context manager.

    Args:
        folder: copied, becomes its working folder.
        port: of 127.0.0.1, that it reaches outside; 0 for none.
    """

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        self._folder, self._port = folder.resolve(), port
        self._control: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def descriptors(self) -> list[int]:
        """That the program inherits."""
        assert self._theirs is not None
        return [self._theirs.fileno()]

    def command(self, text: str, words: Sequence[str]) -> list[str]:
        """The command that runs a program shut in.

        Args:
            text: of the program, in Python.
            words: its arguments.
        """
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)
        kept = {
            sys.prefix,
            sys.base_prefix,
            *site.getsitepackages(),
            str(Path(__file__).resolve().parents[2]),
        }
        kept |= {
            os.path.realpath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
        }
        plan = {
            "root": launch.as_root(),
            "folder": str(self._folder),
            "kept": sorted(path for path in kept if os.path.isdir(path)),
            "bytes": _BYTES,
            "port": self._port,
            "control": self._theirs.fileno(),
            "program": [text, *words],
        }
        source = _START.format(library=str(launch.inside().parent))
        return [sys.executable, "-c", source, msgspec.json.encode(plan).decode()]

    def started(self) -> None:
        """Carry its connections from now on; to be called in the event loop, once the program has its descriptors."""
        assert self._theirs is not None
        self._theirs.close()
        self._spawn(self._carry())

    def end(self) -> None:
        """Carry nothing more."""
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self) -> None:
        """Connect each end that comes through the control to the port outside."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        assert self._control is not None
        with self._control as control:
            loop.add_reader(control.fileno(), arrived.set)
            try:
                while True:
                    await arrived.wait()
                    arrived.clear()
                    try:
                        sign, fds, _, _ = socket.recv_fds(control, 1, 1)
                    except BlockingIOError:  # it was told twice of one
                        continue
                    if not sign:
                        return
                    for fd in fds:
                        self._spawn(self._connected(socket.socket(fileno=fd)))
            finally:
                loop.remove_reader(control.fileno())

    async def _connected(self, end: socket.socket) -> None:
        inside_reader, inside = await asyncio.open_connection(sock=end)
        with contextlib.closing(inside), contextlib.suppress(OSError):
            outside_reader, outside = await asyncio.open_connection("127.0.0.1", self._port)
            with contextlib.closing(outside):
                await asyncio.gather(_pump(inside_reader, outside), _pump(outside_reader, inside))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Carry bytes one way until there are no more."""
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
