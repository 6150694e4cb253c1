"""Docker as the outer wall: the command that starts a zygote in a container of an image that is there.

The container replaces bubblewrap; what happens in it is the same: the zygote forks every evaluation
into fresh namespaces, with our own seccomp filter.  So Docker's filter, which forbids exactly that, is
switched off; capabilities, network and a writable root are not there to be used.  Nothing is pulled:
which image runs is decided by whoever pulled it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from ..errors import InputError, SandboxError
from .limits import Limits

WARM_BYTES = 1 << 30
"""Bytes for the imported modules in the container's own limit, above the limits of an evaluation."""


HIDDEN = ("/sys", "/run", "/var/tmp", "/dev/mqueue")
"""Folders of a container that every evaluation finds empty: what they show is the host's, or is shared."""

TEMPORARY = ("/tmp", "/dev/shm")
"""Folders of a container that are every evaluation's own temporary folder."""


def program() -> str:
    """The path of `docker`, or of `podman`, which takes the same words.

    Raises:
        SandboxError: neither is installed.
    """
    path = shutil.which("docker") or shutil.which("podman")
    if path is None:
        raise SandboxError(
            "a Docker image was requested, and neither docker nor podman is on PATH. Install one of them, "
            "or leave the image out: bubblewrap or namespaces of our own need neither."
        )
    return path


def command(
    image: str,
    start: Sequence[str],
    *,
    name: str,
    limits: Limits,
    binds: Mapping[str, str],
    environment: Mapping[str, str],
    box: tuple[str, int, int],
) -> list[str]:
    """The `docker run` around a zygote.

    Args:
        image: of a Linux with Python 3.10 or newer and the modules that are wanted.
        start: the command inside.
        name: of the container, to remove it by.
        binds: host path to path inside, read-only.
        environment: variables beside those of the image.
        box: the folder of an evaluation, its bytes, and the user that it belongs to.

    Raises:
        InputError: a name of an image, or a path, that Docker would take for something else.
        SandboxError: no docker.
    """
    if not image or image.startswith("-") or any(letter.isspace() for letter in image):
        raise InputError(f"{image!r} is not the name of an image, such as python:3.12")
    folder, size, user = box
    words = [program(), "run", "--rm", "--interactive", "--name", name, "--pull", "never"]
    words += ["--network", "none", "--read-only", "--ipc", "private", "--shm-size", "64k"]
    words += ["--user", f"{user}:{user}", "--workdir", "/"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    # Ours is stricter and on every evaluation; theirs forbids the namespaces that an evaluation gets.
    words += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    # The running evaluation, the one before it while it is cleared away, the next one, the zygote.
    words += ["--pids-limit", str(2 * limits.processes + 4)]
    memory = str(most(limits))
    # Docker's `--memory-swap` is memory and swap together: the same figure means no swap.
    words += ["--memory", memory, "--memory-swap", memory]
    words += ["--tmpfs", f"{folder}:rw,nosuid,nodev,noexec,size={size},mode=1777"]
    for source, target in binds.items():
        if "," in source:
            raise InputError(f"{source}: Docker takes no path with a comma")
        words += ["--mount", f"type=bind,source={source},target={target},readonly"]
    for variable, value in environment.items():
        words += ["--env", f"{variable}={value}"]
    # `--entrypoint` takes one word; the arguments of the command stand behind the image.
    return [*words, "--entrypoint", start[0], image, *start[1:]]


def most(limits: Limits) -> int:
    """Bytes of memory that a container has in all: one evaluation, its files, the imported modules."""
    return limits.memory + limits.file_bytes + WARM_BYTES


def without(folders: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Those of the folders that cover none of the paths."""
    return [folder for folder in folders if not any((path + "/").startswith(folder + "/") for path in paths)]


def fresh_name() -> str:
    """A name for a container that nobody else has."""
    return f"whet-{os.getpid()}-{os.urandom(6).hex()}"


def remove(name: str) -> None:
    """End a container and everything in it: the process that was started here is not it, but its messenger."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, SandboxError):
        for words in (["kill", name], ["rm", "--force", name]):
            done = subprocess.run([program(), *words], capture_output=True, timeout=30, check=False)
            if done.returncode == 0:
                return  # one that is killed is removed by --rm


def advice(reason: str) -> str:
    """Advice on a container that could not be started; the empty string where Docker is not to blame."""
    low = reason.lower()
    if "image not known" in low or "no such image" in low or "unable to find image" in low:
        return "Nothing is pulled by itself: `docker pull IMAGE`, or `docker build` one with the modules you need."
    if "docker daemon" in low or "docker api" in low:
        return (
            "Start Docker, or let your user talk to it (the group `docker`, or rootless Docker); `docker run --rm "
            "IMAGE true` has to work. Without an image the sandbox is bubblewrap or namespaces of our own."
        )
    if "oci runtime" in low and "python3" in low:
        return "The image has no python3 on its PATH: take one with Python 3.10 or newer, or say where (`python`)."
    return ""
