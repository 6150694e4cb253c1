"""`whet sandbox`: a test of the sandbox on this machine, and a script inside it."""

from __future__ import annotations

import asyncio
import codecs
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from .root import Print, app, listed, print_json

if TYPE_CHECKING:
    from ..sandbox import CallResult, Local, Sandbox

commands = cyclopts.App(
    help="Run untrusted code in the sandbox, and test the sandbox on this machine.", **listed("sandbox")
)
app.command(commands)

_MIB = 1 << 20


@commands.command
def check(
    *,
    backend: Literal["bubblewrap", "namespaces"] | None = None,
    docker: str | None = None,
    python: str | None = None,
    json: Print = False,
) -> int:
    """Attack the sandbox in every known way, and print which attacks it stops; exits 0 only if it stops all.

    Parameters
    ----------
    backend
        Isolation by bubblewrap, or by whet's own use of Linux namespaces. If omitted, bubblewrap where it is installed.
    docker
        Isolation by a container of this image, which needs Python 3.10 or newer; docker or podman starts it. To use it
        for every command, set WHET_SANDBOX_IMAGE.
    python
        Python interpreter to use inside. If omitted, the running one, or the image's python3.
    """
    from ..sandbox import Sandbox
    from ..sandbox.check import attacks

    sandbox = Sandbox(backend=backend, python=python, image=docker)
    attempts = asyncio.run(attacks(sandbox))
    stopped = all(attempt.stopped for attempt in attempts)
    if json:
        table = {"sandbox": sandbox.describe(), "stopped": stopped, "attacks": attempts}
        print_json(table)
        return 0 if stopped else 1
    print(sandbox.describe())
    for attempt in attempts:
        outcome = "stopped" if attempt.stopped else "SUCCEEDED"
        print(f"{attempt.name.replace('_', ' '):24} {outcome:10} {attempt.detail}")
    through = sum(not attempt.stopped for attempt in attempts)
    print(f"{len(attempts)} attacks, {'all stopped' if stopped else f'{through} succeeded'}")
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
    """Run a Python script in the sandbox, and pass on its output and exit code.

    It sees itself, the interpreter with its packages, and an empty folder: no network, no files of the host, and empty
    standard input. Exits 124 on timeout, 137 when another limit is exceeded.

    Parameters
    ----------
    file
        The script.
    args
        Arguments of the script. Put -- before those that look like options of this command.
    seconds
        Limit of wall-clock time, and of CPU time.
    memory
        MiB of memory beyond what the interpreter itself needs.
    path
        A further file or folder that it may read. May be repeated.
    docker
        Run it in a container of this image, with the image's python3 (3.10 or newer) and packages.
    unsafe_local
        Run it unsandboxed, with your user's permissions. Only for code that you trust.
    """
    from ..sandbox import Limits, Local, Sandbox

    if not file.is_file():
        raise NotFoundError(f"there is no script at {file}")
    if not 0 < seconds < math.inf:
        raise InputError(f"--seconds {seconds:g}: it must be a number above 0")
    if memory < 1:
        raise InputError(f"--memory {memory}: it must be at least 1 MiB")
    limits = Limits(memory=memory * _MIB, cpu_seconds=seconds, wall_seconds=seconds)
    paths = tuple(map(str, path))
    shut_in = Sandbox(limits=limits, paths=paths, image=docker)
    sandbox = Local(limits=limits, paths=paths) if unsafe_local else shut_in
    result = asyncio.run(_run(sandbox, file, args))
    if result.ok:
        return int(result.value)
    assert result.failure is not None
    print(f"error: {file}: {result.failure.message}", file=sys.stderr)
    return 124 if result.killed_by == "wall" else 137


async def _run(sandbox: Sandbox | Local, file: Path, args: tuple[str, ...]) -> CallResult:
    from ..sandbox import Pool

    decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in "oe"}

    def passed_on(kind: str, part: bytes) -> None:
        stream = sys.stdout if kind == "o" else sys.stderr
        if stream.isatty():  # by `terminal.prepare`: a program that was shut in does not steer the terminal
            stream.write(decoders[kind].decode(part))
        else:
            stream.buffer.write(part)
        stream.flush()

    async with Pool(sandbox) as pool:
        return await pool.script({file.name: file.read_bytes()}, file.name, args, stream=passed_on)
