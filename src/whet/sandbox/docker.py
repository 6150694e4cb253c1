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
"""What the imported modules may have, above the limits of an evaluation, in the container's own limit."""


def program() -> str:
    """The path of `docker`, or of `podman`, which takes the same words.

    Raises:
        SandboxError: neither is installed.
    """
    found = shutil.which("docker") or shutil.which("podman")
    if found is None:
        raise SandboxError(
            "a Docker image was asked for, and there is neither docker nor podman on PATH. Install one of them, "
            "or leave the image out: bubblewrap or namespaces of our own need neither."
        )
    return found


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
        environment: what is set beside what the image sets.
        box: the folder of an evaluation, its bytes, and the user that it belongs to.

    Raises:
        InputError: a name of an image, or a path, that Docker would take for something else.
        SandboxError: no docker.
    """
    if not image or image.startswith("-") or any(letter.isspace() for letter in image):
        raise InputError(f"{image!r} is not the name of an image, such as python:3.12")
    folder, size, user = box
    words = [program(), "run", "--rm", "--interactive", "--name", name, "--pull", "never"]
    words += [
        "--network",
        "none",
        "--read-only",
        "--ipc",
        "none",
        "--user",
        f"{user}:{user}",
        "--workdir",
        "/",
    ]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    # Ours is stricter and on every evaluation; theirs forbids the namespaces that an evaluation gets.
    words += ["--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"]
    # The running evaluation, the one before it while it is cleared away, the next one, the zygote.
    words += ["--pids-limit", str(2 * limits.processes + 4)]
    memory = str(limits.memory + limits.file_bytes + WARM_BYTES)
    words += ["--memory", memory, "--memory-swap", memory]
    words += ["--tmpfs", f"{folder}:rw,nosuid,nodev,noexec,size={size},mode=1777"]
    for source, target in binds.items():
        if "," in source:
            raise InputError(f"{source}: Docker takes no path with a comma")
        words += ["--mount", f"type=bind,source={source},target={target},readonly"]
    for variable, value in environment.items():
        words += ["--env", f"{variable}={value}"]
    return [*words, "--entrypoint", start[0], image, *start[1:]]


def fresh_name() -> str:
    """A name for a container that nobody else has."""
    return f"whet-{os.getpid()}-{os.urandom(6).hex()}"


def remove(name: str) -> None:
    """End a container and everything in it: the process that was started here is not it, but its messenger."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, SandboxError):
        subprocess.run([program(), "rm", "--force", name], capture_output=True, timeout=30, check=False)
