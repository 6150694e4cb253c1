"""A cgroup for the memory of a zygote and all that it forks, where one can be made.

Version 2 where the hierarchy is writable here (root, a delegated subtree, a systemd user session's
own slice) or systemd makes a scope for us; version 1 where the memory controller is there.  It is
made below or, by version 2's rule that processes live in leaves, beside the cgroup that this process
is in, and never beside one that has a limit, so nothing here gets out of a limit that was put upon us.
It limits memory and nothing else: processes, files and time have other limits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESERVE = 24 << 20
"""Bytes above the limits of an evaluation: the next one that waits, page tables, pipes."""

_PREFIX = "whet-"
_SCOPE_EVENTS = 9
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """Where a cgroup can be made.

    Args:
        parent: the folder it is made in; None where systemd makes a scope.
        scope: the beginning of a command that starts another one in a scope of its own.
    """

    version: int
    parent: Path | None
    scope: tuple[str, ...] = ()

    def describe(self) -> str:
        """A few words for tables."""
        how = "a systemd scope" if self.parent is None else f"below {self.parent}"
        return f"cgroup v{self.version}, {how}"


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No cgroup can be made here, and why."""

    reason: str

    def describe(self) -> str:
        """A few words for tables."""
        return f"no cgroup: {self.reason}"


def find(
    *, membership: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mounts")
) -> CgroupParent | Nowhere:
    """The place for cgroups of this process.

    Args:
        membership: which cgroups this process is in, as the kernel writes it.
        mounts: the mounted file systems, as the kernel writes them.
    """
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines() if line]
        mounted = [
            [_unescaped(word) for word in line.split()[1:4]]
            for line in mounts.read_text().splitlines()
            if line
        ]
    except OSError as error:
        return Nowhere(str(error))
    for _, names, path in lines:
        # Version 1 first: where both are mounted, a controller listed here is not in version 2.
        if "memory" in names.split(","):
            return _version_1(path, mounted)
    own = next((path for number, names, path in lines if number == "0" and not names), None)
    root = next((Path(where) for where, kind, _ in mounted if kind == "cgroup2"), None)
    if own is None or root is None:
        return Nowhere("the kernel shows none here")
    return _version_2(root / own.lstrip("/")) or _scope() or Nowhere(f"{root}{own} is not ours to divide")


def _unescaped(word: str) -> str:
    """A word of the kernel's list of mounts, which writes a blank as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), word)


def _version_1(path: str, mounted: list[list[str]]) -> CgroupParent | Nowhere:
    for where, kind, options in mounted:
        if kind == "cgroup" and "memory" in options.split(","):
            own = Path(where) / path.lstrip("/")
            if os.access(own, os.W_OK):
                return CgroupParent(1, own)
            return Nowhere(f"{own} cannot be written")
    return Nowhere("the memory controller is not mounted")


def _version_2(own: Path) -> CgroupParent | None:
    """Below its own cgroup if that holds no process, else beside it if it has no limit of its own."""
    for parent in (own, own.parent):
        try:
            shared = (parent / "cgroup.subtree_control").read_text().split()
        except OSError:
            return None
        # To move a process takes the right to write the list of the nearest common ancestor.
        if "memory" in shared and all(os.access(file, os.W_OK) for file in (parent, parent / "cgroup.procs")):
            return CgroupParent(2, parent)
        try:
            limited = (parent / "memory.max").read_text().strip() != "max"
        except OSError:
            return None
        if limited:
            return None
    return None


def _scope() -> CgroupParent | None:
    """systemd's own way, where its manager for this user answers."""
    program = shutil.which("systemd-run")
    user = [] if os.geteuid() == 0 else ["--user"]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if program is None or not os.path.exists(
        "/run/systemd/system" if not user else f"{runtime}/systemd/private"
    ):
        return None
    command = [program, *user, "--scope", "--quiet", "--collect", "-p", "MemoryAccounting=yes"]
    try:
        scope = subprocess.run(
            [*command, "--", "cat", "/proc/self/cgroup"],
            capture_output=True,
            timeout=10,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return CgroupParent(2, None, tuple(command)) if scope.stdout.rstrip().endswith(".scope") else None


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way of a process into a cgroup: the beginning of its command, and the zygote's descriptors."""

    prefix: tuple[str, ...]
    descriptors: dict[str, int | None]
    """`enter`: a descriptor into which it writes 0; `events`: one that counts those killed for memory."""
    passed: tuple[int, ...]
    """Descriptors that the process inherits."""


_find_once = functools.cache(find)
_given_up: list[Nowhere] = []


def here() -> CgroupParent | Nowhere:
    """`find`, asked once in this process; nowhere once it was given up."""
    return _given_up[-1] if _given_up else _find_once()


def give_up(reason: str) -> None:
    """Make no more cgroups in this process: it did not work out."""
    _given_up.append(Nowhere(reason))


class Cgroup:
    """The cgroup of one zygote.

    Args:
        place: where it is made.

    Raises:
        OSError: it cannot be made after all.
    """

    def __init__(self, place: CgroupParent) -> None:
        self.place = place
        self.limit = 0
        """Bytes that everything in it can have together; 0 until `allow`."""
        self.path: Path | None = None
        if place.parent is not None:
            _sweep(place.parent)
            # By the process id in the name `_sweep` knows whose it was.
            self.path = place.parent / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
            self.path.mkdir()
            try:
                # Far above any machine, to see that it can be written: `allow` sets the real one.
                (self.path / _FILES[place.version][0]).write_text(str(1 << 50))
            except OSError:
                self.path.rmdir()
                raise

    @contextlib.contextmanager
    def entrance(self) -> Iterator[Entrance]:
        """The Entrance for a process that is to start in it; open for as long as the block lasts."""
        if self.path is None:
            # The shell opens what is to be seen no more from inside, and becomes the command.
            events = f'exec {_SCOPE_EVENTS}<"{_root()}$(sed -n s/^0:://p /proc/self/cgroup)/memory.events"'
            prefix = (*self.place.scope, "--", "sh", "-c", f'{events}; exec "$@"', "sh")
            yield Entrance(prefix, {"enter": None, "events": _SCOPE_EVENTS}, ())
            return
        # Opened here and inherited: inside there is no /sys to open them in.
        enter = os.open(self.path / "cgroup.procs", os.O_WRONLY)
        events_here = os.open(self.path / _FILES[self.place.version][3], os.O_RDONLY)
        try:
            yield Entrance((), {"enter": enter, "events": events_here}, (enter, events_here))
        finally:
            os.close(enter)
            os.close(events_here)

    def allow(self, more: int, process: int) -> None:
        """Set the limit to the bytes in use now and `more`.

        Args:
            process: one that is in the scope that systemd made.

        Raises:
            OSError: the limit cannot be set.
        """
        if self.path is None:
            scope = _of_process(process)
            if scope == _of_process(os.getpid()) or scope.suffix != ".scope":
                raise FileNotFoundError(f"systemd left process {process} in {scope}")
            self.path = scope
        first, second, used, _ = _FILES[self.place.version]
        # After the imports: what the modules take is in use by then, and is not charged to an evaluation.
        limit = int((self.path / used).read_text()) + more
        limit -= limit % os.sysconf("SC_PAGESIZE")
        # In this order: the limit with swap may not be below the one without.
        (self.path / first).write_text(str(limit))
        with contextlib.suppress(FileNotFoundError):  # no swap, nothing to limit
            # Version 1 counts memory and swap together in this file, version 2 swap alone.
            (self.path / second).write_text(str(limit) if self.place.version == 1 else "0")
        self.limit = limit

    def describe(self) -> str:
        """A few words for tables: where it is, and how much of its limit was ever used."""
        name = "memory.max_usage_in_bytes" if self.place.version == 1 else "memory.peak"
        peak = ""
        with contextlib.suppress(OSError):
            if self.path is not None:
                peak = f", {int((self.path / name).read_text()) >> 20} reached"
        return f"{self.place.describe()}: {self.limit >> 20} MiB in all{peak}"

    def remove(self) -> None:
        """Take it away once its processes are gone, which takes them a moment; systemd does that itself."""
        deadline = time.monotonic() + 1.0
        while self.place.parent is not None and self.path is not None and time.monotonic() < deadline:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.002)
            else:
                return


_FILES = {
    1: (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.usage_in_bytes",
        "memory.oom_control",
    ),
    2: ("memory.max", "memory.swap.max", "memory.current", "memory.events"),
}
"""Version → the files of the limit, the limit on swap, the bytes in use, and the processes killed for memory."""


def _root() -> str:
    """Where the hierarchy of version 2 is mounted."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((words[1] for words in mounts if words[2] == "cgroup2"), "/sys/fs/cgroup")


def _of_process(process: int) -> Path:
    """The cgroup of version 2 that a process is in."""
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return Path(_root() + line.removeprefix("0::"))
    raise FileNotFoundError(f"process {process} is in no cgroup of version 2")


def _sweep(parent: Path) -> None:
    """Delete the cgroups of processes that were killed; the kernel keeps all that are in use."""
    for path in parent.glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            with contextlib.suppress(OSError):
                path.rmdir()
