"""Passed checks of the sandbox, remembered until the machine starts again.

The attacks cost a second, which each command paid anew.  What is remembered is one file for each configuration, and
the file says everything that the pass depended on: the boot, the kernel, the text of this package, the user with
his capabilities, namespaces and filters, the interpreter, the paths.  Where any of it is different, the sandbox is
attacked again.

The folder and the file have to be this user's alone; all else is ignored, as if there were no file.  So another
user cannot forge a pass.  This user can, who could as well change the package; code in the sandbox sees no file.
A pass in an image is not remembered: another image may have its name by then.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from . import cgroup, launch
from .box import Sandbox

_KEPT = 64
"""Files in the folder; older ones are deleted."""
_LONGEST = 1 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PRIVILEGES = ("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp")
"""Beginnings of the lines of /proc/self/status that say what this process may do."""


def _digest() -> str:
    outside = {path.name: path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))}
    text = hashlib.sha256()
    hostile = {name: content.encode() for name, content in launch.HOSTILE.items()}
    for name, content in [*outside.items(), *launch.SOURCES.items(), *hostile.items()]:
        text.update(f"{name}:{len(content)}:".encode() + content)
    return text.hexdigest()


CODE = _digest()
"""Digest of the sandbox's own text: what is imported now, even where it is edited later."""


def dependencies(sandbox: Sandbox) -> bytes | None:
    """All that a pass depends on, as JSON; None where it cannot be known, and so not be remembered.

    Asked before the attacks: a cgroup that does not work is given up during them.
    """
    if sandbox.image is not None:
        return None
    kernel = os.uname()
    chosen, bubblewrap = sandbox.chosen, shutil.which("bwrap")
    interpreter = launch.interpreter(sandbox.python)
    place = cgroup.here()
    try:
        known = {
            "boot": _BOOT.read_text().strip(),
            "kernel": [kernel.release, kernel.version, kernel.machine],
            "code": CODE,
            "privileges": _privileges(),
            # A container has the boot of its host.
            "namespaces": _namespaces(),
            "root": _file("/")[:2],
            "backend": chosen,
            "bubblewrap": _file(bubblewrap) if bubblewrap and chosen == "bubblewrap" else None,
            "interpreter": [msgspec.to_builtins(interpreter), _file(interpreter.executable)],
            "paths": launch.existing(sandbox.paths),
            "memory": [place.version, place.parent is None]
            if isinstance(place, cgroup.CgroupParent)
            else None,
            # The attacks reach for files in it.
            "temporary": tempfile.gettempdir(),
        }
    except OSError:
        return None
    return msgspec.json.format(msgspec.json.encode(known), indent=1)


def known(wanted: bytes | None) -> bool:
    """True if a sandbox with these `dependencies` has passed since the machine started."""
    if wanted is None:
        return False
    with contextlib.suppress(OSError), _folder(make=False) as folder:
        # Without O_NONBLOCK a pipe of this name would hold us up.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(_name(wanted), flags, dir_fd=folder)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and _ours_alone(status):
                return file.read(_LONGEST) == wanted
    return False


def settle(wanted: bytes | None, passed: bool) -> None:
    """Remember the outcome of all attacks: a pass is kept, and one that is no longer true is deleted.

    Where it cannot be written nothing is: the next command attacks again.
    """
    if wanted is None:
        return
    with contextlib.suppress(OSError), _folder(make=passed) as folder:
        if not passed:
            os.unlink(_name(wanted), dir_fd=folder)
            return
        fresh = f"{_name(wanted)}.{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(fresh, flags, 0o600, dir_fd=folder)
        with open(descriptor, "wb") as file:
            file.write(wanted)
        # At once: another command may be reading it.
        os.replace(fresh, _name(wanted), src_dir_fd=folder, dst_dir_fd=folder)
        _delete_old(folder)


def _name(wanted: bytes) -> str:
    return f"sandbox-{hashlib.sha256(wanted).hexdigest()[:40]}"


@contextmanager
def _folder(*, make: bool) -> Iterator[int]:
    """A descriptor of the user's folder for what a program remembers (`XDG_STATE_HOME`).

    Raises:
        OSError: there is none, it cannot be made, or somebody else could write in it.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    path = Path(state if os.path.isabs(state) else f"{home}/.local/state") / "whet"
    if make and not path.exists():
        above = next(folder for folder in path.parents if folder.exists())
        # Root with another's HOME must not leave folders there that the other cannot use.
        if above.stat().st_uid != os.geteuid():
            raise PermissionError(f"{above} is somebody else's")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _ours_alone(os.fstat(descriptor)):
            raise PermissionError(f"{path} is not this user's alone")
        yield descriptor
    finally:
        os.close(descriptor)


def _ours_alone(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _delete_old(folder: int) -> None:
    names = [name for name in os.listdir(folder) if name.startswith("sandbox-")]
    ages = {name: os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime_ns for name in names}
    for name in sorted(names, key=ages.__getitem__)[:-_KEPT]:
        os.unlink(name, dir_fd=folder)


def _privileges() -> list[str]:
    """What this process may do, as the kernel writes it, and its security label."""
    lines = Path("/proc/self/status").read_text().splitlines()
    privileges = [line for line in lines if line.startswith(_PRIVILEGES)]
    with contextlib.suppress(OSError):  # a kernel without security modules
        privileges.append(Path("/proc/self/attr/current").read_text().strip("\0\n"))
    return privileges


def _namespaces() -> list[str]:
    # The others are of the children to come, and differ from thread to thread.
    names = [name for name in sorted(os.listdir("/proc/self/ns")) if not name.endswith("_for_children")]
    return [os.readlink(f"/proc/self/ns/{name}") for name in names]


def _file(path: str) -> list[int]:
    status = os.stat(path)
    return [status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns]
