"""A passed check of the sandbox is remembered for the machine's uptime, and by nobody's word but the user's own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import whet
from whet.sandbox import Sandbox, check, passes

COUNTED = """
import asyncio, json, sys
from whet.sandbox import Pool, check
from whet.sandbox.unchecked import UncheckedPool
calls, call = [], UncheckedPool.call

async def counted(pool, source, entry, *args, **named):
    if not (args and args[0] and args[0][0] == "plant"):  # what two of the attacks look for
        calls.append(entry)
    return await call(pool, source, entry, *args, **named)

UncheckedPool.call = counted

async def use():
    async with Pool() as pool:
        return (await pool.call("def answer(): return 42", "answer")).value

assert asyncio.run(use()) == 42
print(json.dumps([calls.count("hostile:attack"), calls.count("answer")]))
"""
"""A command that runs a sandbox; prints how many attacks it ran, and how many calls of its own."""


def attacked(state: Path, *, package: Path | None = None, **environment: str) -> bool:
    """Start a command that runs a sandbox; True if it ran every attack first, False if none."""
    env = {**os.environ, "XDG_STATE_HOME": str(state), **environment}
    if package is not None:
        env["PYTHONPATH"] = str(package)
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    attacks, own = json.loads(done.stdout)
    assert own == 1
    assert attacks in (0, len(check.JUDGES))
    return bool(attacks)


def test_the_second_command_runs_no_attack(tmp_path: Path) -> None:
    assert attacked(tmp_path)
    (file,) = (tmp_path / "whet").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert not attacked(tmp_path)


def test_a_changed_line_of_the_sandbox_is_attacked_again(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    source = Path(whet.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__", "console", "static")
    shutil.copytree(source, copy / "whet", ignore=ignored)
    state = tmp_path / "state"
    assert attacked(state, package=copy)
    with (copy / "whet" / "sandbox" / "inside" / "seccomp.py").open("a") as file:
        file.write("\n# changed\n")
    assert attacked(state, package=copy)
    assert not attacked(state, package=copy)
    codes = {passes.CODE}
    for changed in ("inside/seccomp.py", "launch.py"):
        script = "from whet.sandbox import passes; print(passes.CODE)"
        with (copy / "whet" / "sandbox" / changed).open("a") as file:
            file.write("\n# changed again\n")
        env = {**os.environ, "PYTHONPATH": str(copy)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
        codes.add(done.stdout)
    assert len(codes) == 3


def _edited(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"backend"', b'"Backend"'))


def _truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _readable(file: Path) -> None:
    file.chmod(0o604)


def _writable_folder(file: Path) -> None:
    file.parent.chmod(0o770)


def _linked(file: Path) -> None:
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def _linked_folder(file: Path) -> None:
    file.parent.rename(file.parent.parent / "elsewhere")
    file.parent.symlink_to(file.parent.parent / "elsewhere")


def _a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _foreign(file: Path) -> None:
    if os.geteuid():
        pytest.skip("to give a file away takes root")
    os.chown(file, 12345, 12345)


def _foreign_folder(file: Path) -> None:
    if os.geteuid():
        pytest.skip("to give a folder away takes root")
    os.chown(file.parent, 12345, 12345)


@pytest.mark.parametrize(
    "tampered",
    [
        _edited,
        _truncated,
        _readable,
        _writable_folder,
        _linked,
        _linked_folder,
        _a_pipe,
        _foreign,
        _foreign_folder,
    ],
)
def test_a_file_that_another_could_have_written_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tampered: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    wanted = passes.dependencies(Sandbox())
    assert not passes.known(wanted)
    passes.settle(wanted, True)
    assert passes.known(wanted)
    (file,) = (tmp_path / "whet").iterdir()
    tampered(file)
    assert not passes.known(wanted)


def test_a_new_boot_another_configuration_and_other_rights_are_other_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plain = Sandbox(backend="namespaces")
    passes.settle(passes.dependencies(plain), True)
    assert passes.known(passes.dependencies(plain))
    assert not passes.known(passes.dependencies(Sandbox(backend="namespaces", paths=(str(tmp_path),))))
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    with monkeypatch.context() as restarted:
        restarted.setattr(passes, "_BOOT", boot)
        assert not passes.known(passes.dependencies(plain))
    with monkeypatch.context() as without:
        without.setattr(passes, "_BOOT", tmp_path / "missing")
        assert passes.dependencies(plain) is None
    script = (
        "from whet.sandbox import Sandbox, passes\n"
        "from whet.sandbox.inside import kernel\n"
        "plain = Sandbox(backend='namespaces')\n"
        "print(passes.known(passes.dependencies(plain)))\n"
        "kernel.unshare(kernel.NEWUSER)\n"
        "print(passes.known(passes.dependencies(plain)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_an_image_is_never_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tomorrow another image may have its name."""
    assert passes.dependencies(Sandbox(image="python:3.12")) is None


def test_a_hole_found_by_the_check_takes_the_pass_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder too many is visible inside, and the bait comes to lie in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bait = tmp_path / "bait"
    bait.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(bait))
    seen = Sandbox(paths=(str(bait),))
    wanted = passes.dependencies(seen)
    passes.settle(wanted, True)
    assert passes.known(wanted)
    found = asyncio.run(check.attacks(seen))
    assert "read_host_files" in {attack.name for attack in found if not attack.stopped}
    assert not passes.known(wanted)


def test_whet_sandbox_check_attacks_whatever_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    passes.settle(passes.dependencies(Sandbox()), True)
    command = [sys.executable, "-m", "whet", "sandbox", "check", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["attacks"]) == len(check.JUDGES)


def test_where_nothing_can_be_written_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "whet").write_text("a file")
    wanted = passes.dependencies(Sandbox())
    passes.settle(wanted, True)
    assert not passes.known(wanted)
    assert (tmp_path / "whet").read_text() == "a file"


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_no_folder_is_left_in_a_home_that_is_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 12345, 12345)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    passes.settle(passes.dependencies(Sandbox()), True)
    assert list(tmp_path.iterdir()) == []


def test_the_folder_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(70):
        passes.settle(b"%d" % number, True)
    assert len(list((tmp_path / "whet").iterdir())) == 64
    assert passes.known(b"69")
    assert not passes.known(b"0")
