"""The wheel, built and installed into bare environments of every Python that is here, works without an extra.

    python -m integrations.wheel.check

It is built by pip from this checkout.  Pythons are looked for on PATH, among pyenv's, and in $WHET_PYTHONS (paths with
a colon between).  For one that is not here it is only checked that every dependency has a wheel for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MINORS = (11, 12, 13, 14)
SECONDS, MODULES = 0.3, 250
"""What importing whet may take: of processor time, and of modules."""
LOOP = """
import sys, tempfile, time
before = len(sys.modules)
began = time.process_time()
import whet
seconds, modules = time.process_time() - began, len(sys.modules) - before
with tempfile.TemporaryDirectory() as folder, whet.Store(folder + "/runs.db") as store:
    store.put(whet.Trajectory(task=whet.Task(instruction="hello"), output="world"))
    assert [run.output for run in store.trajectories()] == ["world"]
print(seconds, modules)
"""


def pythons() -> dict[int, str]:
    """Minor version of Python 3 → an interpreter of it."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = filter(None, os.environ.get("WHET_PYTHONS", "").split(":"))
    looked = [sys.executable, *named, *(shutil.which(f"python3.{minor}") or "" for minor in MINORS)]
    looked += [str(path) for path in sorted(pyenv.glob("*/bin/python"))]
    there: dict[int, str] = {}
    for path in filter(None, looked):
        done = subprocess.run([path, "--version"], capture_output=True, text=True)
        version = re.fullmatch(r"Python 3\.(\d+)\.\S+", done.stdout.strip())
        if done.returncode == 0 and version is not None and int(version[1]) in MINORS:
            there.setdefault(int(version[1]), path)
    return there


def run(*words: str, folder: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def installed(python: str, wheel: Path, folder: str) -> str:
    """Install the wheel into an environment of its own, use it, and give what importing it took."""
    home = Path(folder) / Path(python).parent.parent.name / "env"
    run(python, "-m", "venv", str(home), folder=folder)
    ours = str(home / "bin" / "python")
    run(ours, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", str(wheel), folder=folder)
    env = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": folder}
    work = str(home / "work")
    Path(work).mkdir()
    assert "Usage: whet demo" in run("whet", "demo", "--help", folder=work, env=env)
    assert "ok      Python" in run("whet", "doctor", folder=work, env=env)
    seconds, modules = run(ours, "-W", "error", "-c", LOOP, folder=work, env=env).split()
    assert float(seconds) < SECONDS, seconds
    assert int(modules) < MODULES, modules
    return f"importing takes {float(seconds) * 1000:.0f} ms and {modules} modules"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build = (
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            folder,
            str(ROOT),
        )
        run(*build, folder=folder)
        (wheel,) = Path(folder).glob("*.whl")
        there = pythons()
        for minor in MINORS:
            if minor in there:
                print(f"3.{minor}: {installed(there[minor], wheel, folder)}", flush=True)
                continue
            wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
            only = ("--only-binary", ":all:", "--no-deps", "--python-version", f"3.{minor}", "--dest", folder)
            run(sys.executable, "-m", "pip", "--quiet", "download", *only, *wanted, folder=folder)
            print(f"3.{minor}: not here; each of {len(wanted)} dependencies has a wheel for it", flush=True)


if __name__ == "__main__":
    main()
