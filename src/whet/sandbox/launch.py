"""The way into the outer namespaces: which host files are bound, and the command that starts a zygote.

Read-only inside are the interpreter (its prefix, or under /usr only Python's own folders), the
system's shared libraries, the folder `inside`, and what the caller named in `paths`.  There is
nothing else: no /etc but the linker's cache, no /home, no /sys, no device but null, zero and random.
"""

from __future__ import annotations

import functools
import os
import shutil
import site
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ..errors import InputError, SandboxError

INSIDE = Path(__file__).resolve().parent / "inside"
SOURCES = {path.name: path.read_bytes() for path in sorted(INSIDE.glob("*.py"))}
"""File → content of the package that runs inside.

Read when this is imported: a process that gives up being root afterwards may not look into the checkout.
"""
HOSTILE = {
    f"hostile/{path.name}": path.read_text(encoding="utf-8")
    for path in sorted((INSIDE.parent / "hostile").glob("*.py"))
}
"""Staged file → text of the program that attacks the sandbox (`check.py`)."""
BOX = "/box"
LIBRARY = "/whet"
HOST_NAME = "sandbox"
UNPRIVILEGED = 65534
"""The user called nobody: what root becomes, and what every evaluation believes to be."""

_START = "import sys; sys.path.insert(0, {library!r}); from inside.zygote import main; main()"
_ENTER = "import sys; sys.path.insert(0, {library!r}); from inside.enter import main; main()"
_ASK = (
    "import json, site, sys, sysconfig; print(json.dumps(dict(executable=sys.executable, prefix=sys.prefix, "
    "base=sys.base_prefix, folders=[sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib'), "
    "*site.getsitepackages()])))"
)
_LIBRARIES = ("/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/lib32", "/usr/local/lib")
OUTER_BOX_BYTES = 16 << 20
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


class Interpreter(msgspec.Struct, frozen=True):
    """Where a Python lives."""

    executable: str
    prefix: str
    base: str
    folders: tuple[str, ...]
    """Its standard library and its packages."""


@functools.cache
def interpreter(python: str | None) -> Interpreter:
    """Where a Python lives; the running one if None.

    Raises:
        InputError: it cannot be started.
    """
    if python is None:
        library = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
        folders = (*library, *site.getsitepackages())
        return Interpreter(sys.executable, sys.prefix, sys.base_prefix, folders)
    try:
        command = [python, "-s", "-E", "-c", _ASK]
        # From the root: `-c` puts the current folder on sys.path, and somebody's json.py may lie there.
        done = subprocess.run(command, capture_output=True, timeout=30, check=True, cwd="/")
        return msgspec.json.decode(done.stdout, type=Interpreter)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise InputError(f"{python} cannot be started as a Python interpreter: {error}") from error


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path that exists inside, read-only; a symbolic link when `link` is given."""

    path: str
    link: str = ""

    @property
    def private(self) -> bool:
        """True if only its owner can read it, or something directly in it."""
        return not self.link and not all(map(_everybody_may, [self.path, *_children(self.path)]))


def _everybody_may(path: str) -> bool:
    """Read it, and enter it if it is a folder; a file that its owner starts can be started."""
    mode = os.stat(path, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        return True
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0)
    return mode & needed == needed


def _children(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else []
    except OSError:
        return []


def _system_libraries() -> Iterator[Bind]:
    for path in _LIBRARIES:
        if os.path.islink(path):
            yield Bind(path, os.readlink(path))
        elif os.path.isdir(path):
            yield Bind(path)
    if os.path.isfile("/etc/ld.so.cache"):
        yield Bind("/etc/ld.so.cache")


def _of_python(python: Interpreter) -> Iterator[str]:
    executable = os.path.realpath(python.executable)
    yield python.executable
    yield executable
    for prefix in (python.base, python.prefix):
        if prefix in ("/usr", "/usr/local", "/"):
            yield from python.folders
        else:
            yield from (f"{prefix}/bin", f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/pyvenv.cfg")
    # A link to a link: every name on the way from the virtual environment to the real file.
    step = python.executable
    while os.path.islink(step):
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
        yield step


def startable(python: Interpreter) -> None:
    """Nothing, or that this user may not start that interpreter.

    Raises:
        SandboxError: it lies where only somebody else can look.
    """
    # Without `effective_ids` the real user is asked about, who is not the one that starts it.
    if not os.access(python.executable, os.X_OK, effective_ids=True):
        raise SandboxError(
            f"the interpreter {python.executable} cannot be started by user {os.geteuid()}, who starts the sandbox: "
            "it lies in a folder of somebody else's. Name one that this user can start (python=)."
        )


def existing(paths: Sequence[str]) -> list[str]:
    """The same paths, without symbolic links.

    Raises:
        InputError: one of them does not exist or is the root.
    """
    resolved = []
    for path in paths:
        target = os.path.realpath(path)
        if target == "/" or not os.path.exists(target):
            raise InputError(f"paths={path!r}: it must be an existing file or folder, and not the root")
        resolved.append(target)
    return resolved


def binds(python: Interpreter, paths: Sequence[str]) -> list[Bind]:
    """Everything of the host that is visible inside, outer folders before what lies in them.

    Raises:
        InputError: one of `paths` does not exist or is the root.
    """
    by_path = {bind.path: bind for bind in _system_libraries()}
    for path in _of_python(python):
        if os.path.isdir(path) or os.path.isfile(path):
            by_path.setdefault(path, Bind(path))
    for path in existing(paths):
        by_path.setdefault(path, Bind(path))
    outermost: list[Bind] = []
    for path in sorted(by_path):
        # With the slash, or /usr/lib64 would count as lying in /usr/lib.
        covered = any(not bind.link and (path + "/").startswith(bind.path + "/") for bind in outermost)
        if not covered:
            outermost.append(by_path[path])
    return outermost


def on_the_way(bound: Sequence[Bind]) -> list[str]:
    """The bound paths and the folders above them, which exist inside because of them."""
    paths = {bind.path for bind in bound}
    return sorted(paths | {str(folder) for path in paths for folder in Path(path).parents})


def has_temporary(bound: Sequence[Bind]) -> bool:
    """True if /tmp can be a link to the box: nothing that lies there is bound."""
    return not any(bind.path.startswith("/tmp") for bind in bound)


def settings(home: str = BOX) -> dict[str, str]:
    """The environment of every evaluation, whatever its interpreter; `home` is for temporary files, too."""
    return {
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        # So that the order of a set is the same in every evaluation.
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        # Threads count as processes: a library that starts one per core would use up `Limits.processes`.
        **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")},
    }


def environment(python: Interpreter, home: str = BOX) -> dict[str, str]:
    """All of an evaluation's environment; nothing of the caller's."""
    base_library = f"{python.base}/lib"
    return {
        "PATH": f"{os.path.dirname(python.executable)}",
        **settings(home),
        # The linker finds a relocatable interpreter's own library through /proc, which is not there.
        **({} if python.base.startswith("/usr") else {"LD_LIBRARY_PATH": base_library}),
    }


_staged: list[tempfile.TemporaryDirectory[str]] = []
"""The copy of the package, once it is made; removed when this process ends."""


def inside() -> Path:
    """The folder of the package that runs inside, where everybody can read it.

    Itself, or a copy in the temporary folder: of a checkout that only root can read nobody could run it.

    Raises:
        SandboxError: it has to be copied, and the temporary folder cannot be written.
    """
    if _everybody_reads(INSIDE):
        return INSIDE
    if not _staged:
        try:
            folder = tempfile.TemporaryDirectory(prefix="whet-inside-")
            os.chmod(folder.name, 0o755)
            copy = Path(folder.name, INSIDE.name)
            copy.mkdir()
            for name, content in SOURCES.items():
                (copy / name).write_bytes(content)
                (copy / name).chmod(0o644)
            copy.chmod(0o755)
        except OSError as error:
            raise SandboxError(
                f"{INSIDE} cannot be read by everybody, and its copy cannot be written: {error}. "
                "Set TMPDIR to a folder that can be written."
            ) from error
        _staged.append(folder)
    return Path(_staged[0].name, INSIDE.name)


def _everybody_reads(folder: Path) -> bool:
    """True if this process can read it, and another user could once it is bound."""
    try:
        modes = [folder.stat().st_mode & 0o005 == 0o005]
        return all([*modes, *((folder / name).stat().st_mode & 0o004 for name in SOURCES)])
    except OSError:
        return False


def start_zygote(executable: str, library: str, plan: str) -> list[str]:
    """The command that becomes the zygote, where its package lies in the folder `library`."""
    return [executable, "-s", "-B", "-c", _START.format(library=library), plan]


def bubblewrap() -> str | None:
    """The path of `bwrap`, None where it is not installed."""
    return shutil.which("bwrap")


def as_root() -> bool:
    """True if this process is root over more than itself, and so has to become another user inside."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return False
    # Root of a user namespace that maps itself alone has no other user to become.
    with open("/proc/self/uid_map", encoding="ascii") as file:
        spans = [[int(word) for word in line.split()] for line in file]
    return any(first <= UNPRIVILEGED < first + count for first, _, count in spans)


def private(python: Interpreter, paths: Sequence[str]) -> bool:
    """True if root would bind files that the user nobody cannot read, which takes namespaces of our own."""
    return as_root() and any(bind.private for bind in binds(python, paths))


def with_bubblewrap(program: str, python: Interpreter, paths: Sequence[str], plan: str) -> list[str]:
    """The bwrap command around a zygote.

    For root there is no user namespace around it: binding needs root's eyes, and a process limit
    counts for nothing while the user outside is root, so the zygote changes its user itself.
    """
    startable(python)
    command = [
        program,
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--hostname",
        HOST_NAME,
    ]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
    if as_root():
        # For `kernel.become` in the zygote; bwrap drops every capability that is not named.
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", str(UNPRIVILEGED), "--gid", str(UNPRIVILEGED)]
    bound = binds(python, paths)
    # A folder that bwrap makes on the way to a bind is open to root alone, so each is made before.
    for folder in sorted({*on_the_way(bound), LIBRARY, "/dev"} - {"/", *(bind.path for bind in bound)}):
        if not any(not bind.link and (folder + "/").startswith(bind.path + "/") for bind in bound):
            command += ["--perms", "0755", "--dir", folder]
    for bind in bound:
        command += ["--symlink", bind.link, bind.path] if bind.link else ["--ro-bind", bind.path, bind.path]
    command += ["--ro-bind", str(inside()), f"{LIBRARY}/inside", "--proc", "/proc"]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    # For what the modules write when they are imported; every evaluation mounts its own box on it.
    command += ["--perms", "1777", "--size", str(OUTER_BOX_BYTES), "--tmpfs", BOX]
    # Semaphores of several processes are files there; in the box they count against its size.
    command += ["--symlink", f"{BOX}/tmp", "/dev/shm"]
    if has_temporary(bound):
        command += ["--symlink", f"{BOX}/tmp", "/tmp"]
    command += ["--remount-ro", "/", "--chdir", "/"]
    for name, value in environment(python).items():
        command += ["--setenv", name, value]
    return [*command, "--", *start_zygote(python.executable, LIBRARY, plan)]


def with_namespaces(python: Interpreter, paths: Sequence[str], plan: str) -> list[str]:
    """The command around a zygote where there is no bubblewrap: `inside.enter`, by the same rules."""
    startable(python)
    bound, root = binds(python, paths), as_root()
    root_plan = {
        "root": root,
        "name": HOST_NAME,
        "user": UNPRIVILEGED,
        "binds": [(bind.path, bind.link, root and bind.private) for bind in bound],
        "library": [str(inside()), f"{LIBRARY}/inside"],
        "devices": _DEVICES,
        "box": BOX,
        "box_bytes": OUTER_BOX_BYTES,
        "temporary": f"{BOX}/tmp" if has_temporary(bound) else "",
        "environment": environment(python),
        "command": start_zygote(python.executable, LIBRARY, plan),
    }
    source = _ENTER.format(library=str(inside().parent))
    return [python.executable, "-I", "-S", "-B", "-c", source, msgspec.json.encode(root_plan).decode()]
