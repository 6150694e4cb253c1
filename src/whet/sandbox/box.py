"""A sandbox's configuration: limits, interpreter, visible files, backend."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ..errors import InputError, SandboxError
from . import docker, launch
from .limits import Limits

TAIL_BYTES = 4096
"""Bytes kept of the end of what a call printed."""

_SYSTEMS = {"darwin": "macOS", "win32": "Windows"}
Backend = Literal["bubblewrap", "namespaces", "docker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The configuration under which untrusted code runs.

    Args:
        limits: of each evaluation.
        python: the interpreter inside; the running one if None, or the image's `python3`.
        paths: further host files and folders to see read-only; folders are put on sys.path.
        backend: `bubblewrap`, `namespaces` (made by ourselves), `docker`, or None for the first that is
            there; `docker` where there is an image.
        image: a Docker image with Python 3.10 or newer and the modules that are wanted; it has to be there.
            If neither this nor a backend is given, the value of `WHET_SANDBOX_IMAGE`.
    """

    limits: Limits = field(default_factory=Limits)
    python: str | None = None
    paths: Sequence[str] = ()
    backend: Backend | None = None
    image: str | None = None

    trusted_only = False
    isolated = True

    def __post_init__(self) -> None:
        # Only where no backend is named: an image beside bubblewrap or namespaces is refused by `chosen`.
        if self.image is None and self.backend is None:
            object.__setattr__(self, "image", os.environ.get("WHET_SANDBOX_IMAGE") or None)

    @property
    def chosen(self) -> Backend:
        """The backend that is used here.

        Raises:
            InputError: an image without Docker, or Docker without an image.
            SandboxError: the requested backend is not installed.
        """
        if self.backend not in (None, "docker") if self.image else self.backend == "docker":
            raise InputError(
                f"backend={self.backend!r} and image={self.image!r}: an image is for Docker, which needs one"
            )
        if self.image is not None:
            docker.program()
            return "docker"
        if sys.platform != "linux":
            raise SandboxError(
                f"the sandbox is made of Linux's namespaces, which {_SYSTEMS.get(sys.platform, sys.platform)} does not "
                "have: install Docker or Podman, pull an image with Python 3.10 or newer, and name it in "
                "WHET_SANDBOX_IMAGE (python:3.12-slim, say)"
            )
        installed = launch.bubblewrap() is not None
        if self.backend == "bubblewrap" and not installed:
            raise SandboxError(
                "bubblewrap was requested, and bwrap is not on PATH. Install it (apt install bubblewrap), "
                "or leave `backend` out to use namespaces of our own."
            )
        if self.backend is not None:
            return self.backend
        # Bubblewrap shows files with the owners that they have.
        private = installed and launch.private(launch.interpreter(self.python), self.paths)
        return "bubblewrap" if installed and not private else "namespaces"

    def command(
        self, modules: Sequence[str], container: str, cgroup: Mapping[str, int | None] | None = None
    ) -> list[str]:
        """The command that starts a zygote with `modules` imported.

        Args:
            container: its name; unused without an image.
            cgroup: how it enters one, see `cgroup.Entrance`.

        Raises:
            InputError: a path that is not there, or an interpreter that cannot be started.
            SandboxError: the backend is missing.
        """
        chosen = self.chosen
        root = launch.as_root()
        # In a container `--user` has changed the user before the zygote starts.
        become = launch.UNPRIVILEGED if root and chosen != "docker" else None
        plan = _plan(self.limits, modules, isolate=True, box=launch.BOX, library=launch.LIBRARY)
        paths = launch.existing(self.paths)
        plan |= {"path": paths, "become": become, "cgroup": cgroup}
        if self.image is not None:
            plan |= {
                "hidden": docker.without(docker.HIDDEN, paths),
                "temporary": docker.without(docker.TEMPORARY, paths),
            }
        text = msgspec.json.encode(plan).decode()
        if self.image is not None:
            return self._in_docker(self.image, container, text)
        python = launch.interpreter(self.python)
        program = launch.bubblewrap()
        if chosen == "bubblewrap" and program is not None:
            return launch.with_bubblewrap(program, python, self.paths, text)
        return launch.with_namespaces(python, self.paths, text)

    def _in_docker(self, image: str, name: str, plan: str) -> list[str]:
        binds = {str(launch.inside()): f"{launch.LIBRARY}/inside"}
        binds |= {path: path for path in launch.existing(self.paths)}
        return docker.command(
            image,
            launch.start_zygote(self.python or "python3", launch.LIBRARY, plan),
            name=name,
            limits=self.limits,
            binds=binds,
            environment=launch.settings(),
            box=(launch.BOX, launch.OUTER_BOX_BYTES, launch.UNPRIVILEGED),
        )

    def describe(self) -> str:
        """One line for tables and messages."""
        who = "root" if launch.as_root() else "an unprivileged user"
        image = "" if self.image is None else f" image {self.image}"
        return f"{self.chosen}{image}, started by {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """No sandbox: a process of one's own with a time limit, for code that one trusts.

    Every Result says `trusted_only`, and promotes nothing.  The code sees all that the user sees.
    """

    limits: Limits = field(default_factory=Limits)
    python: str | None = None
    paths: Sequence[str] = ()

    trusted_only = True
    isolated = False

    image = None

    def command(
        self, modules: Sequence[str], folder: str, cgroup: Mapping[str, int | None] | None = None
    ) -> list[str]:
        """The command that starts a zygote with `modules` imported and its folders in `folder`."""
        python = launch.interpreter(self.python)
        library = str(launch.inside().parent)
        plan = _plan(self.limits, modules, isolate=False, box=folder, library=library)
        plan |= {"path": list(self.paths), "become": None, "cgroup": cgroup}
        return launch.start_zygote(python.executable, library, msgspec.json.encode(plan).decode())

    def describe(self) -> str:
        """One line for tables and messages."""
        return "no sandbox: trusted code only"


def _plan(
    limits: Limits, modules: Sequence[str], *, isolate: bool, box: str, library: str
) -> dict[str, object]:
    for name in modules:
        if not all(part.isidentifier() for part in name.split(".")):
            raise InputError(f"modules={name!r}: it must be the name of a module, such as 'numpy'")
    return {
        "isolate": isolate,
        "box": box,
        "library": library,
        "modules": list(modules),
        "limits": msgspec.to_builtins(limits),
        "tail_bytes": TAIL_BYTES,
        "hidden": [],
        "temporary": [],
    }


def remove(folder: str) -> None:
    """Remove a scratch folder with everything that a killed program left in it."""
    deadline = time.monotonic() + 2.0
    while os.path.isdir(folder) and time.monotonic() < deadline:
        # What was killed a moment ago may just have made one more file.
        shutil.rmtree(folder, ignore_errors=True)
