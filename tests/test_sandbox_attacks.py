"""The sandbox attacks itself: every attack is stopped, and one that is not is noticed."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import whet
from whet.errors import SandboxError
from whet.sandbox import Local, Pool, Sandbox, check
from whet.sandbox.inside import seccomp
from whet.sandbox.process import advice

HARMLESS_OUTSIDE = ("read_host_files", "write_outside", "open_sockets", "abstract_sockets", "use_descriptors")
"""Attacks that do no damage where nothing stops them."""

AS_A_USER = """
import asyncio, json, os, sys
import whet.sandbox.check as check
from whet.sandbox import Sandbox
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(12345, 12345, 12345)
    os.setresuid(12345, 12345, 12345)
found = asyncio.run(check.attacks(Sandbox(backend=sys.argv[1], python=sys.argv[2])))
print(json.dumps({one.name: one.detail for one in found if not one.stopped} | {"attacks": len(found)}))
"""

WITHOUT_USER_NAMESPACES = """
import asyncio, os, sys
from whet.errors import SandboxError
from whet.sandbox import Pool, Sandbox
from whet.sandbox.inside import kernel
uid, gid = os.geteuid(), os.getegid()
kernel.unshare(kernel.NEWUSER)
kernel.map_ids(0, 0, uid, gid)
open("/proc/sys/user/max_user_namespaces", "w").write("0")

async def use():
    async with Pool(Sandbox(backend=sys.argv[1])) as pool:
        return await pool.call("def f(): return 1", "f")

try:
    print(asyncio.run(use()))
except SandboxError as error:
    print("refused:", error)
"""

BACKENDS = ["bubblewrap", "namespaces"] if shutil.which("bwrap") else ["namespaces"]


def run(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_attack_is_stopped(backend: str) -> None:
    found = asyncio.run(check.attacks(Sandbox(backend=backend)))  # type: ignore[arg-type]
    assert {one.name: one.detail for one in found if not one.stopped} == {}
    assert len(found) >= 50


def system_python() -> str:
    """An interpreter that an unprivileged user may start, where the tests themselves are run by root."""
    home = os.path.join(pwd.getpwuid(0).pw_dir, "")
    for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.geteuid() == 0 else (sys.executable,):
        if os.access(path, os.X_OK) and not os.path.realpath(path).startswith(home):
            return path
    return pytest.skip("no interpreter that another user than root may start")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_attack_is_stopped_for_an_unprivileged_user_too(backend: str) -> None:
    assert json.loads(run(AS_A_USER, backend, system_python())) == {"attacks": len(check.JUDGES)}


WITHOUT_DEFENCES = {
    "inside/seccomp.py": [
        ("_ERRNO | errno.EPERM", "_ALLOW"),
        ("(_RETURN, _ERRNO)", "(_RETURN, _ALLOW)"),
        ("(_RETURN, _KILL)", "(_RETURN, _ALLOW)"),
        ("_ERRNO | errno.ENOSYS", "_ALLOW"),
    ],
    "inside/frames.py": [("memory.madvise(_WIPE_ON_FORK)", "pass")],
    "inside/walls.py": [
        ("resource.RLIMIT_SIGPENDING: 128,", ""),
        ("resource.RLIMIT_NOFILE: 64,", ""),
        ("nr_inodes={max(64, file_bytes // 1024)}", "nr_inodes=20000"),
        ('resource.RLIMIT_FSIZE: limits["file_bytes"],', ""),
        ("resource.RLIMIT_MEMLOCK: 0,", ""),
    ],
    "launch.py": [('HOST_NAME = "sandbox"', f"HOST_NAME = {os.uname().nodename!r}")],
}
"""File → (what a defence is, what stands in its place)."""
WITHOUT_THEM = {
    "use_asynchronous_io",
    "watch_files",
    "grow_pipes",
    "queue_signals",
    "hold_timers",
    "hold_descriptors",
    "make_empty_files",
    "lock_memory",
    "share_memory",
    "open_by_handle",
    "use_exotic_sockets",
    "splice_into_files",
    "use_the_kernel",
    "trace_others",
    "nest_namespaces",
    "open_sockets",
    "lock_host_files",
    "see_what_is_cached",
    "find_earlier_text",
    "use_other_call_tables",
}
"""Attacks that get through where the defences of `WITHOUT_DEFENCES` are taken away, on any kernel of today."""


def test_attacks_get_through_a_sandbox_whose_defences_are_taken_away(tmp_path: Path) -> None:
    """Each by itself could fail for a reason of its own, and would then prove nothing by failing."""
    copy = tmp_path / "whet"
    shutil.copytree(Path(whet.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__", "static"))
    for name, changes in WITHOUT_DEFENCES.items():
        path = copy / "sandbox" / name
        text = path.read_text()
        for defence, nothing in changes:
            assert defence in text, (name, defence)
            text = text.replace(defence, nothing)
        path.write_text(text)
    script = (
        "import asyncio, json\nfrom whet.sandbox import Sandbox, check\n"
        "found = asyncio.run(check.attacks(Sandbox(backend='namespaces')))\n"
        "print(json.dumps([one.name for one in found if not one.stopped]))"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) >= WITHOUT_THEM


def test_without_a_sandbox_the_same_attacks_succeed_and_are_noticed() -> None:
    found = asyncio.run(check.attacks(Local(), only=HARMLESS_OUTSIDE))
    through = {one.name for one in found if not one.stopped}
    assert through == set(HARMLESS_OUTSIDE)


def test_a_hole_is_noticed_and_the_sandbox_refused(tmp_path: Path) -> None:
    """A sandbox that sees one host folder too many, where the bait happens to lie."""
    bait = tmp_path / "bait"
    bait.mkdir()
    script = (
        "import asyncio, tempfile\n"
        f"tempfile.tempdir = {str(bait)!r}\n"
        "from whet.errors import SandboxError\n"
        "from whet.sandbox import Pool, Sandbox\n"
        "async def use():\n"
        f"    async with Pool(Sandbox(paths=({str(bait)!r},))) as pool:\n"
        "        await pool.call('def f(): return 1', 'f')\n"
        "try: asyncio.run(use())\n"
        "except SandboxError as error: print(error)\n"
    )
    assert "does not hold here" in (said := run(script))
    assert "read_host_files" in said


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_user_namespaces_it_refuses_and_names_the_fix(backend: str) -> None:
    said = run(WITHOUT_USER_NAMESPACES, backend)
    assert said.startswith("refused:")
    assert "sysctl user.max_user_namespaces=" in said


@pytest.mark.parametrize(
    ("setting", "value", "fix"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1\n",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0\n", "user.max_user_namespaces="),
        ("user/max_user_namespaces", "15000\n", "--security-opt"),
    ],
)
def test_the_fix_is_read_from_the_kernels_settings(
    tmp_path: Path, setting: str, value: str, fix: str
) -> None:
    path = tmp_path / setting
    path.parent.mkdir(parents=True)
    path.write_text(value)
    assert fix in advice("clone into new namespaces: Operation not permitted", settings=tmp_path)


def test_a_backend_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt install bubblewrap"):
        asyncio.run(check.attacks(Sandbox(backend="bubblewrap")))


def test_nothing_is_left_behind_when_the_pool_is_closed() -> None:
    mark = f"whet-left-{os.getpid()}"

    async def use() -> None:
        async with Pool(workers=2) as pool:
            daemon = (
                "import os, time\ndef f():\n    if os.fork() == 0:\n        while True: time.sleep(0.01)\n"
                "    return 1"
            )
            results = await asyncio.gather(
                *(pool.call({"candidate.py": daemon, mark: ""}, "f") for _ in range(4))
            )
            assert [one.value for one in results] == [1] * 4
            assert len(await pool.processes()) <= 4
            inside = [one._process for one in pool._all]
        assert all(one is None or one.poll() is not None for one in inside)

    asyncio.run(use())


def test_the_filter_is_for_machines_that_it_knows() -> None:
    assert len(seccomp.program("x86_64")) % 8 == 0
    assert seccomp.program("aarch64") != seccomp.program("x86_64")
    with pytest.raises(OSError, match="riscv64"):
        seccomp.program("riscv64")


def test_the_check_command_prints_the_table_and_exits_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "sandbox", "check", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table["stopped"] is True
    assert {one["name"] for one in table["attacks"]} == set(check.JUDGES)


def test_a_script_runs_inside_with_its_output_and_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\n"
        "print(sys.argv[1:], os.path.exists(sys.argv[1]))\n"
        "print('aside', file=sys.stderr)\n"
        "os._exit(7) if 'hard' in sys.argv else sys.exit(3)\n"
    )

    def whet(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "whet", "sandbox", "run", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    # After -- an option is the script's, even one that has the name of ours.
    done = whet(str(script), "--", str(script), "--seconds", "3")
    said = f"{[str(script), '--seconds', '3']} False\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, said, "aside\n")
    assert whet("--unsafe-local", str(script), str(script)).stdout == f"{[str(script)]} True\n"
    script.write_text("while True: pass")
    slow = whet("--seconds", "0.5", str(script))
    assert slow.returncode == 124
    assert slow.stderr == f"error: {script}: no answer within 0.5 s\n"
    assert whet(str(tmp_path / "none.py")).returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_a_user_whose_interpreter_is_at_home_is_not_told_that_home_can_be_read(tmp_path: Path) -> None:
    """The way to a virtual environment in /home exists inside, and shows nothing but itself."""
    home = Path("/home") / f"whet-{os.getpid()}"
    mask = os.umask(0o022)
    home.mkdir(parents=True)
    try:
        (home / "private").write_text("not on the way")
        python = home / "v" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(system_python())
        (home / "v" / "pyvenv.cfg").write_text(
            f"home = {os.path.dirname(os.path.realpath(system_python()))}\n"
        )
        for backend in BACKENDS:
            assert json.loads(run(AS_A_USER, backend, str(python))) == {"attacks": len(check.JUDGES)}
    finally:
        os.umask(mask)
        shutil.rmtree(home)
