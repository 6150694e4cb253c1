"""The sandbox where a person's checkout may lie: below a folder that only root can read, made under umask 077."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whet
from whet.errors import SandboxError
from whet.sandbox import Sandbox, launch
from whet.sandbox.unchecked import UncheckedPool

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")

DROPPED = """
import asyncio, json, os, sys
import whet
from whet.errors import WhetError
from whet.sandbox import Sandbox
from whet.sandbox.unchecked import UncheckedPool
os.setgroups([])
os.setresgid(12345, 12345, 12345)
os.setresuid(12345, 12345, 12345)

async def use(python):
    try:
        async with UncheckedPool(Sandbox(backend="namespaces", python=python)) as pool:
            return (await pool.call("def f(): return 42", "f")).value
    except WhetError as error:
        return str(error)

print(json.dumps([whet.__file__, *(asyncio.run(use(one)) for one in json.loads(sys.argv[1]))]))
"""

MOUNTS = """
import sys
from whet.sandbox.inside import kernel
owner = kernel.owned_by(65534)
kernel.unshare(kernel.NEWNS)
kernel.bind_as(owner, sys.argv[1], sys.argv[1], kernel.ATTR_RDONLY)
"""


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody else may enter, with a blank and letters in its name, under umask 077."""
    mask = os.umask(0o077)
    try:
        folder = tmp_path / "nür für mich 名"
        folder.mkdir()
        yield folder
    finally:
        os.umask(mask)


def whet_from(package: Path, program: str, *words: str, **environment: str) -> str:
    """What a program prints that imports whet from there."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def package(private: Path) -> Path:
    """The folder of a copy of the package that its owner alone can read."""
    source = Path(whet.__file__).parent
    shutil.copytree(
        source,
        private / "whet",
        ignore=shutil.ignore_patterns("__pycache__", "console", "static"),
        copy_function=shutil.copyfile,
    )
    for folder, _, _ in os.walk(private):
        os.chmod(folder, 0o700)
    return private


@as_root
def test_a_process_that_gives_up_root_needs_the_checkout_no_more(package: Path) -> None:
    """It could read the package when it imported it, and cannot when it starts the sandbox."""
    system = next(
        (one for one in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(one, os.X_OK)), None
    )
    if system is None:
        pytest.skip("no interpreter that another user than root may start")
    hidden = package / "python"
    hidden.symlink_to(system)
    loaded, value, refused = json.loads(whet_from(package, DROPPED, json.dumps([system, str(hidden)])))
    assert Path(loaded).is_relative_to(package)
    assert value == 42
    assert str(hidden) in refused
    assert "cannot be started" in refused


@as_root
def test_nothing_of_the_copy_is_left_when_the_process_ends(package: Path, tmp_path: Path) -> None:
    shared = tmp_path / "temporary files"
    shared.mkdir()
    shared.chmod(0o777)
    program = "from whet.sandbox import launch; print(launch.inside())"
    folder = Path(whet_from(package, program, TMPDIR=str(shared)).strip())
    assert folder.is_relative_to(shared)
    assert list(shared.iterdir()) == []
    whet_from(package, f"{program}; launch.inside()")
    assert launch.inside().is_dir()


@as_root
def test_what_root_alone_may_read_is_read_inside_where_root_names_it(private: Path) -> None:
    """A checkout and an environment made under umask 077: files 0600, folders 0700."""
    own = private / "seen" / "tools" / "strings.py"
    own.parent.mkdir(parents=True)
    own.write_text("answer = 42\n")
    (private / "secret").write_text("beside it")
    if subprocess.run(
        [sys.executable, "-c", MOUNTS, str(private)], capture_output=True, check=False
    ).returncode:
        pytest.skip("this kernel or file system cannot show files as another user's")
    source = (
        "import os, tools.strings\n"
        "def f(beside, own):\n"
        "    try:\n        open(own, 'a')\n        written = True\n"
        "    except OSError:\n        written = False\n"
        "    return [tools.strings.answer, os.getuid(), os.path.exists(beside), written]"
    )

    async def use() -> object:
        async with UncheckedPool(Sandbox(paths=(str(private / "seen"),))) as pool:
            return (await pool.call(source, "f", [str(private / "secret"), str(own)])).value

    assert asyncio.run(use()) == [42, launch.UNPRIVILEGED, False, False]
    assert own.stat().st_mode & 0o777 == 0o600


def test_an_interpreter_that_this_user_cannot_start_is_named(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("not a program")
    known = launch.Interpreter(str(script), "/usr", "/usr", ())
    with pytest.raises(SandboxError, match=r"cannot be started by user \d+.*python="):
        launch.with_namespaces(known, (), "{}")
