"""A container as the outer wall.

Most of it runs against a stand-in for `docker`: a program that takes the same words, and refuses those
that it does not know, and starts the command in namespaces of our own.  With `WHET_TEST_IMAGE` set to an
image with Python 3.10 or newer, and docker or podman there, the attacks are tried in a real container.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from whet.errors import InputError, SandboxError
from whet.sandbox import Limits, Sandbox, check, docker
from whet.sandbox.process import advice
from whet.sandbox.unchecked import UncheckedPool

# The shell begins it: a #! line cannot name an interpreter whose path holds a blank, or is long.
STAND_IN = r"""#!/bin/sh
'''exec' '{python}' -E "$0" "$@"
'''
import argparse, json, os, sys
sys.path.insert(0, {source!r})
from whet.sandbox import launch

with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\n")
if sys.argv[1] in ("kill", "rm"):
    sys.exit(1)
parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
for switch in ("rm", "interactive", "read-only"):
    parser.add_argument("--" + switch, action="store_true", required=True)
for one in ("name", "pull", "network", "ipc", "shm-size", "user", "workdir", "cap-drop", "pids-limit", "memory",
            "memory-swap", "tmpfs", "entrypoint"):
    parser.add_argument("--" + one, required=True)
for several in ("security-opt", "mount", "env"):
    parser.add_argument("--" + several, action="append", default=[])
parser.add_argument("image")
parser.add_argument("start", nargs=argparse.REMAINDER)
told = parser.parse_args(sys.argv[2:])
if told.image != "there:1":
    sys.stderr.write(f"Unable to find image '{{told.image}}' locally\ndocker: Error: No such image: {{told.image}}.\n")
    sys.exit(125)
python = launch.interpreter(None)
mounts = [dict(word.partition("=")[::2] for word in mount.split(",")) for mount in told.mount]
inside = next(one for one in mounts if one["target"] == "/whet/inside")
others = [one["source"] for one in mounts if one is not inside]
bound = launch.binds(python, others)
words = {{
    "root": False, "name": "container", "user": int(told.user.partition(":")[0]),
    "binds": [(one.path, one.link, False) for one in bound],
    "library": [inside["source"], inside["target"]], "devices": ["/dev/null", "/dev/urandom"],
    "box": "/box", "box_bytes": 1 << 20, "temporary": "/box/tmp" if launch.has_temporary(bound) else "",
    "environment": {{**launch.environment(python), **dict(word.split("=", 1) for word in told.env)}},
    "command": [python.executable if told.entrypoint == "python3" else told.entrypoint, *told.start],
}}
sys.argv = ["enter", json.dumps(words)]
from whet.sandbox.inside import enter
enter.main()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but a `docker`; the file that it writes its words to."""
    program, log = tmp_path / "bin" / "docker", tmp_path / "log"
    program.parent.mkdir()
    source = str(Path(docker.__file__).parents[2])
    program.write_text(STAND_IN.format(python=sys.executable, source=source, log=str(log)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent))
    return log


def test_a_function_is_called_in_a_container_that_is_ended_with_the_pool(
    stand_in: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text("answer = 42\n")
    limits = Limits(memory=128 << 20, processes=5, file_bytes=1 << 20)
    sandbox = Sandbox(image="there:1", limits=limits, paths=(str(tmp_path / "mine"),))

    async def use() -> list[Any]:
        async with UncheckedPool(sandbox, modules=("json",)) as pool:
            source = (
                "import mine, os\ndef f(x):\n    print('said')\n    return [x + mine.answer, os.getuid()]"
            )
            first = await pool.call(source, "f", [1])
            hung = await pool.call("def f():\n    while True: pass", "f", seconds=0.3)
            full = await pool.call("def f(): open('x', 'wb').write(b'x' * (2 << 20))", "f")
            after = await pool.call("def f(): return 'well'", "f")
            return [
                first.value,
                first.stdout,
                hung.killed_by,
                full.failure and full.failure.type,
                after.value,
            ]

    assert asyncio.run(use()) == [[43, 65534], "said\n", "wall", "OSError", "well"]
    words = stand_in.read_text()
    name = words[words.index("whet-") :].partition('"')[0]
    assert words.splitlines()[1:] == [f'["kill", "{name}"]', f'["rm", "--force", "{name}"]']


def test_the_command_takes_everything_away_that_a_program_does_not_need() -> None:
    limits = Limits(memory=100 << 20, processes=5, file_bytes=10 << 20)
    words = docker.command(
        "there:1",
        ["python3", "-B", "plan"],
        name="whet-1",
        limits=limits,
        binds={"/of the host": "/inside"},
        environment={"LANG": "C.UTF-8"},
        box=("/box", 4096, 65534),
    )
    said = " ".join(words)
    for wanted in (
        "run --rm --interactive --name whet-1 --pull never",
        "--network none --read-only",
        "--user 65534:65534",
        "--cap-drop ALL --security-opt no-new-privileges",
        "--pids-limit 14",
        f"--memory {docker.most(limits)} --memory-swap {docker.most(limits)}",
        "--tmpfs /box:rw,nosuid,nodev,noexec,size=4096,mode=1777",
        "--mount type=bind,source=/of the host,target=/inside,readonly",
        "--env LANG=C.UTF-8 --entrypoint python3 there:1 -B plan",
    ):
        assert wanted in said
    assert not {"--privileged", "--volume", "-v", "--env-file", "--publish"} & set(words)


@pytest.fixture(autouse=True)
def a_docker_on_the_path(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line names a program that exists, also where Docker is not installed."""
    if "stand_in" not in request.fixturenames and "container" not in request.node.name:
        program = tmp_path / "docker"
        program.write_text("")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize("image", ["", "--privileged", "two words"])
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    with pytest.raises(InputError, match="not the name of an image"):
        docker.command(
            image, ["python3"], name="n", limits=Limits(), binds={}, environment={}, box=("/box", 1, 1)
        )


def test_a_path_that_docker_would_cut_in_two_is_refused() -> None:
    with pytest.raises(InputError, match="comma"):
        docker.command(
            "there:1",
            ["python3"],
            name="n",
            limits=Limits(),
            binds={"/a,readonly=false": "/b"},
            environment={},
            box=("/box", 1, 1),
        )


def test_an_image_without_docker_is_refused_and_says_what_else_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match=r"neither docker nor podman is on PATH.*bubblewrap"):
        asyncio.run(check.attacks(Sandbox(image="python:3.12")))


def test_an_image_that_was_not_pulled_is_named_with_what_to_do(stand_in: Path) -> None:
    with pytest.raises(SandboxError, match=r"No such image: other:2.*docker pull"):
        asyncio.run(check.attacks(Sandbox(image="other:2")))


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "Start Docker"),
        ("permission denied while trying to connect to the Docker daemon socket", "the group `docker`"),
        ("Error: localhost/none:1: image not known", "docker pull"),
        ('OCI runtime create failed: exec: "python3": executable file not found', "no python3"),
    ],
)
def test_what_docker_says_is_followed_by_what_to_do(said: str, fix: str) -> None:
    assert fix in advice(said)


def test_docker_needs_an_image_and_an_image_docker() -> None:
    for sandbox in (Sandbox(backend="docker"), Sandbox(backend="bubblewrap", image="python:3.12")):
        with pytest.raises(InputError, match="an image is for Docker"):
            asyncio.run(check.attacks(sandbox))


def test_the_environment_can_name_the_image_for_every_sandbox_that_is_not_told_otherwise(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_SANDBOX_IMAGE", "there:1")
    assert (Sandbox().chosen, Sandbox().image) == ("docker", "there:1")
    assert Sandbox(image="other:2").image == "other:2"
    assert Sandbox(backend="namespaces").chosen == "namespaces"


@pytest.mark.skipif("WHET_TEST_IMAGE" not in os.environ, reason="WHET_TEST_IMAGE names no image")
def test_every_attack_is_stopped_in_a_container() -> None:
    found = asyncio.run(check.attacks(Sandbox(image=os.environ["WHET_TEST_IMAGE"])))
    assert {one.name: one.detail for one in found if not one.stopped} == {}
    assert len(found) == len(check.JUDGES)
