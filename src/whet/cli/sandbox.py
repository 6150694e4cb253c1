"""`whet sandbox`: what holds on this machine, and running a script inside."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
import msgspec
from cyclopts import Parameter

from .app import app

if TYPE_CHECKING:
    from ..sandbox import Local, Result, Sandbox

commands = cyclopts.App(
    name="sandbox", help="Run code that you did not write, and see what it could do on this machine."
)
app.command(commands)

_MIB = 1 << 20


@commands.command
def check(
    *,
    backend: Literal["bubblewrap", "namespaces"] | None = None,
    docker: str | None = None,
    python: str | None = None,
    json: bool = False,
) -> int:
    """Attack the sandbox in every known way and print what became of it; exits 0 only if all are stopped.

    Parameters
    ----------
    backend
        How it is shut in: by bubblewrap, or by namespaces of our own; bubblewrap where it is installed.
    docker
        An image with Python 3.10 or newer: shut in by a container of it, which docker or podman starts. For
        every command: WHET_SANDBOX_IMAGE.
    python
        The interpreter inside; the running one if left out, or the image's python3.
    json
        Print one JSON object.
    """
    from ..sandbox import Sandbox
    from ..sandbox.check import attacks

    sandbox = Sandbox(backend=backend, python=python, image=docker)
    found = asyncio.run(attacks(sandbox))
    stopped = all(one.stopped for one in found)
    if json:
        table = {"sandbox": sandbox.describe(), "stopped": stopped, "attacks": found}
        print(msgspec.json.encode(table).decode())
        return 0 if stopped else 1
    print(sandbox.describe())
    for one in found:
        print(f"{one.name.replace('_', ' '):24} {'stopped' if one.stopped else 'SUCCEEDED':10} {one.detail}")
    through = sum(not one.stopped for one in found)
    print(f"{len(found)} attacks, {'all stopped' if stopped else f'{through} succeeded'}")
    return 0 if stopped else 1


@commands.command
def run(
    file: Path,
    /,
    *args: Annotated[str, Parameter(allow_leading_hyphen=True)],
    seconds: float = 10.0,
    memory: int = 512,
    path: tuple[Path, ...] = (),
    docker: str | None = None,
    unsafe_local: bool = False,
) -> int:
    """Run a Python script inside and pass on what it prints and its exit code.

    It sees itself, the interpreter with its packages and an empty folder; no network, no file of the host,
    nothing on standard input. Ended for its time it exits 124, for another limit 137.

    Parameters
    ----------
    file
        The script.
    args
        What follows is the script's; after -- also what looks like an option of this command.
    seconds
        Wall-clock limit; CPU time has the same.
    memory
        MiB beyond what the interpreter itself needs.
    path
        A further file or folder that it may read; may be given several times.
    docker
        An image with Python 3.10 or newer whose python3 and packages it gets, in a container of it.
    unsafe_local
        Run it without the sandbox, with all that you may do yourself. For code that you trust.
    """
    from ..errors import InputError, NotFoundError
    from ..sandbox import Limits, Local, Sandbox

    if not file.is_file():
        raise NotFoundError(f"there is no script at {file}")
    if not 0 < seconds < math.inf:
        raise InputError(f"--seconds {seconds:g}: it must be a number above 0")
    if memory < 1:
        raise InputError(f"--memory {memory}: it must be at least 1 MiB")
    limits = Limits(memory=memory * _MIB, cpu_seconds=seconds, wall_seconds=seconds)
    paths = tuple(str(one) for one in path)
    shut_in = Sandbox(limits=limits, paths=paths, image=docker)
    sandbox = Local(limits=limits, paths=paths) if unsafe_local else shut_in
    result = asyncio.run(_run(sandbox, file, args))
    if result.ok:
        return int(result.value)
    assert result.failure is not None
    print(f"error: {file}: {result.failure.message}", file=sys.stderr)
    return 124 if result.killed_by == "wall" else 137


async def _run(sandbox: Sandbox | Local, file: Path, args: tuple[str, ...]) -> Result:
    from ..sandbox import Pool

    def passed_on(kind: str, part: bytes) -> None:
        stream = sys.stdout if kind == "o" else sys.stderr
        stream.buffer.write(part)
        stream.flush()

    async with Pool(sandbox) as pool:
        return await pool.script({file.name: file.read_bytes()}, file.name, args, stream=passed_on)
