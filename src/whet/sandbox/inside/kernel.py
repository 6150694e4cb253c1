"""The few kernel calls that CPython 3.10 has no name for, through ctypes.

`PyDLL` keeps the interpreter lock: a forked child must come back from the call holding it.
"""

from __future__ import annotations

import ctypes
import os
import signal

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
_ATTR_IDMAP = 0x100000
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000
_MNT_DETACH = 2

_SET_DUMPABLE, _SET_NO_NEW_PRIVS, _SET_PDEATHSIG = 4, 38, 1
_CAPABILITY_VERSION_3 = 0x20080522
_NUMBERS = {"x86_64": {"clone": 56, "pivot_root": 155}, "aarch64": {"clone": 220, "pivot_root": 41}}

MACHINE = os.uname().machine

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_FORKS = (
    ctypes.pythonapi.PyOS_BeforeFork,
    ctypes.pythonapi.PyOS_AfterFork_Child,
    ctypes.pythonapi.PyOS_AfterFork_Parent,
)
for _hook in _FORKS:
    _hook.restype = None


def _checked(result: int, action: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")
    return result


def number_of(call: str) -> int:
    """The number of a system call on this machine."""
    try:
        return _NUMBERS[MACHINE][call]
    except KeyError:
        raise OSError(f"the sandbox knows x86_64 and aarch64, and this machine is {MACHINE}") from None


def fork_into(namespaces: int) -> int:
    """`os.fork`, the child in new namespaces; 0 in the child, its process id in the parent.

    One clone is what makes a fresh evaluation cheap: unshare and fork would copy the page tables of
    the imported modules twice.
    """
    before, in_child, in_parent = _FORKS
    before()
    # The last two arguments change places between the machines; both stay 0.
    pid: int = _libc.syscall(_NUMBERS[MACHINE]["clone"], namespaces | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        in_child()
        return 0
    error = ctypes.get_errno()
    in_parent()
    if pid < 0:
        raise OSError(error, f"clone into new namespaces: {os.strerror(error)}")
    return pid


def unshare(namespaces: int) -> None:
    """Leave these namespaces for new ones."""
    _checked(_libc.unshare(namespaces), "unshare")


def set_host_name(name: str) -> None:
    """Name the machine, in a namespace of one's own."""
    _checked(_libc.sethostname(name.encode(), len(name)), "sethostname")


class Mount:
    """A mount(2) that is done when it is called; `kind` is the file system's type, empty for a bind.

    Its arguments are made when it is: whoever calls it in a fork touches no memory for them.
    """

    __slots__ = ("_action", "_arguments")

    def __init__(self, source: str, target: str, kind: str, flags: int, options: str = "") -> None:
        paths = source.encode(), target.encode(), kind.encode() or None
        self._arguments = (*paths, ctypes.c_ulong(flags), options.encode() or None)
        self._action = f"mount {kind or source} on {target}"

    def __call__(self) -> None:
        _checked(_libc.mount(*self._arguments), self._action)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """The same, at once."""
    Mount(source, target, kind, flags, options)()


def set_mount_attributes(target: str, attributes: int, *, recursive: bool) -> None:
    """Add attributes such as read-only to a mount, or to all that is mounted below it."""
    mount_attr = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    done = _libc.syscall(
        442, _AT_FDCWD, target.encode(), flags, ctypes.byref(mount_attr), ctypes.sizeof(mount_attr)
    )
    _checked(done, f"mount_setattr on {target}")


def owned_by(uid: int) -> int:
    """A descriptor for `bind_as`: of a user namespace in which what belongs to root belongs to this user.

    Raises:
        OSError: it cannot be made here.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            unshare(NEWUSER)
            os.write(writing, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        if not os.read(reading, 1):
            raise OSError("no user namespace can be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                # Owners in the file system on the left, owners through the mount next to them: root's become
                # this user's, those in between stay.
                file.write(f"0 {uid} 1\n1 1 {uid - 1}\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def bind_as(owner: int, source: str, target: str, attributes: int) -> None:
    """Bind with these attributes, and with the owners that a descriptor of `owned_by` says.

    Raises:
        OSError: the file system does not know how (Linux 5.12 for ext4 and XFS, 5.19 for overlays).
    """
    clone = 1 | os.O_CLOEXEC | _AT_RECURSIVE
    tree = _checked(_libc.syscall(428, _AT_FDCWD, source.encode(), clone), f"open_tree {source}")
    try:
        mount_attr = (ctypes.c_uint64 * 4)(attributes | _ATTR_IDMAP, 0, 0, owner)
        flags = _AT_EMPTY_PATH | _AT_RECURSIVE
        done = _libc.syscall(442, tree, b"", flags, ctypes.byref(mount_attr), ctypes.sizeof(mount_attr))
        _checked(done, f"mount_setattr on {source}")
        empty_path = 4
        done = _libc.syscall(429, tree, b"", _AT_FDCWD, target.encode(), empty_path)
        _checked(done, f"move_mount to {target}")
    finally:
        os.close(tree)


def pivot(root: str, old: str) -> None:
    """Make `root` the root of this mount namespace and put the old one at `old`, which lies in it."""
    _checked(_libc.syscall(number_of("pivot_root"), root.encode(), old.encode()), f"pivot_root to {root}")


def detach(target: str) -> None:
    """Let go of a mount and everything below it."""
    _checked(_libc.umount2(target.encode(), _MNT_DETACH), f"umount of {target}")


def map_ids(inside_uid: int, inside_gid: int, outside_uid: int, outside_gid: int) -> None:
    """Give the user namespace this process is in the one identity that it has outside."""
    for name, text in (
        # First: without privilege outside the kernel takes gid_map only once this is denied.
        ("setgroups", "deny"),
        ("uid_map", f"{inside_uid} {outside_uid} 1"),
        ("gid_map", f"{inside_gid} {outside_gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def _prctl(option: int, value: int, action: str) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), action)


def die_with_parent() -> None:
    """SIGKILL when the thread that started this process ends."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL, "prctl(PR_SET_PDEATHSIG)")


def forbid_new_privileges() -> None:
    """No program started from here on gains anything by being setuid; seccomp asks for it."""
    _prctl(_SET_NO_NEW_PRIVS, 1, "prctl(PR_SET_NO_NEW_PRIVS)")


def become(uid: int) -> None:
    """Change for good from root to an unprivileged user and group of that number."""
    # The user last: who is root no more changes no group.
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Without it /proc/self belongs to root, and the map of a new user namespace cannot be written.
    _prctl(_SET_DUMPABLE, 1, "prctl(PR_SET_DUMPABLE)")


_ALL_MINE = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
_NONE = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    """Give up every capability in the current user namespace."""
    _checked(_libc.capset(_ALL_MINE, _NONE), "capset")
