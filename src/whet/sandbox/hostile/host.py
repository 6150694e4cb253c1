"""Attacks on the host: its files, its network, its processes, its privileges, and what it has without limit."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .attempts import X86, C, achieved_by, called, done, system_call


def read_host_files(host: dict[str, Any]) -> list[str]:
    """Read a file of the host, by name and through every way round."""

    def read(path: str) -> Callable[[], Any]:
        def attempt() -> Any:
            if os.path.isdir(path):
                # A folder that leads to the interpreter is there, and shows the way to it alone.
                listed = {os.path.join(path, name) for name in os.listdir(path)}
                return sorted(listed - set(host["bound"])) or None
            with open(path, "rb") as file:
                return file.read(60).decode("latin-1")

        return attempt

    paths = [host["secret"], host["home"] + "/.ssh"]
    if not host["image"]:  # which has its own
        paths += [
            "/etc/passwd",
            "/etc/shadow",
            "/etc/hostname",
            "/home",
            host["home"] + "/.bashrc",
            "/var/log",
        ]
    paths += [
        "/proc/1/root" + host["secret"],
        "/proc/self/cwd/../.." + host["secret"],
        "../../../.." + host["secret"],
    ]
    paths += ["/sys/class/net", "/run", "/boot", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda"]
    return achieved_by({path: read(path) for path in paths})


def read_host_environment(host: dict[str, Any]) -> list[str]:
    """Every environment that can be read; what of it is the host's is decided outside."""
    variables = list(os.environ.values())
    for pid in [*range(1, 64), host["parent"]]:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables += file.read().decode("latin-1").split("\0")
        except OSError:
            continue
    return [variable.partition("=")[2] or variable for variable in variables]


def write_outside(host: dict[str, Any]) -> list[str]:
    """Leave something in any folder but its own, or change what the next evaluation will run."""

    def write(folder: str) -> Callable[[], Any]:
        def attempt() -> bool:
            path = os.path.join(folder, "whet-was-here")
            with open(path, "w") as file:
                file.write("left behind")
            os.unlink(path)
            return True

        return attempt

    folders = [
        host["folder"],
        "/",
        "/etc",
        "/dev",
        "/proc",
        "/usr/lib",
        "/whet",
        "/whet/inside",
        "/root",
        "/home",
    ]
    folders += [folder for folder in sys.path if not folder.startswith("/box")]
    folders += [os.path.dirname(os.__file__), os.path.dirname(sys.executable), "/dev/shm", "/var/tmp", "/run"]

    def is_its_own(folder: str) -> bool:
        """By name, or because it is its temporary folder under another name."""
        if os.path.realpath(folder).startswith("/box"):
            return True
        return os.path.isdir(folder) and os.path.samefile(folder, "/box/tmp")

    return achieved_by({folder: write(folder) for folder in folders if not is_its_own(folder)})


def open_sockets(host: dict[str, Any]) -> list[str]:
    """Reach a listener of the host on loopback, or make any socket at all."""

    def connect(family: int, address: Any) -> Callable[[], Any]:
        def attempt() -> bool:
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                connection.settimeout(0.5)
                connection.connect(address)
                return True

        return attempt

    def make(family: int, kind: int) -> Callable[[], Any]:
        def attempt() -> bool:
            socket.socket(family, kind).close()
            return True

        return attempt

    attempts: dict[str, Callable[[], Any]] = {
        "loopback": connect(socket.AF_INET, ("127.0.0.1", host["port"]))
    }
    for name in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_UNIX"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            attempts[f"{name} {int(kind)}"] = make(int(getattr(socket, name, 40)), int(kind))
    return achieved_by(attempts)


def abstract_sockets(host: dict[str, Any]) -> list[str]:
    """Reach a listener of the host by an abstract name, which no file system guards."""

    def attempt() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect("\0" + host["abstract"])
            return True

    return achieved_by({"abstract socket": attempt})


def fork_bomb(host: dict[str, Any]) -> int:
    """The number of processes that can run at once, this one included."""
    count = 1
    while count < 64:
        try:
            pid = os.fork()
        except OSError:
            return count
        if pid == 0:
            signal.pause()
        count += 1
    return count


_STEP = 1 << 20


def _filled(most: int) -> list[bytes]:
    """As many blocks of `_STEP` bytes as can be had."""
    held: list[bytes] = []
    while len(held) < most // _STEP:
        try:
            held.append(b"\1" * _STEP)
        except MemoryError:
            break
    return held


def memory_bomb(host: dict[str, Any]) -> int:
    """Bytes that one process can fill."""
    return len(_filled(host["most"])) * _STEP


def memory_bomb_of_many(host: dict[str, Any]) -> int:
    """Bytes that all processes together can fill, all of them holding on to theirs."""
    reading, writing = os.pipe()
    children = 0
    while children < 64:
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            held = _filled(host["most"])
            os.write(writing, (len(held) * _STEP).to_bytes(8, "little"))
            signal.pause()
        children += 1
    os.close(writing)
    total = 0
    for _ in range(children):
        report = os.read(reading, 8)
        if len(report) < 8:
            break  # the rest were killed for it
        total += int.from_bytes(report, "little")
    return total


def disk_bomb(host: dict[str, Any]) -> int:
    """Bytes that can be written, to as many files as it takes."""
    written, number, chunk = 0, 0, b"x" * 65536
    while written < host["most"]:
        try:
            with open(f"bomb{number}", "wb", buffering=0) as file:
                while written < host["most"]:
                    done = file.write(chunk)
                    written += done or 0
                    if not done:
                        return written
        except OSError:
            if not os.path.exists(f"bomb{number}") or not os.path.getsize(f"bomb{number}"):
                return written
        number += 1
    return written


def endless_loop(host: dict[str, Any]) -> None:
    """Never answer, and hear no signal that can be ignored."""
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def endless_output(host: dict[str, Any]) -> None:
    """Print without end."""
    line = b"x" * 4096
    while True:
        os.write(1, line)


def signal_others(host: dict[str, Any]) -> list[str]:
    """Find a process of the host to signal; kill the process group that it was started in."""
    attempts = {str(pid): (partial(done, os.kill, pid, 0)) for pid in (host["parent"], *range(2, 300))}
    achieved = achieved_by(attempts)
    me = os.getpid()
    if os.getppid():
        achieved.append(f"a parent with the id {os.getppid()}")
    if os.getpgid(0) != me:
        achieved.append(f"the process group {os.getpgid(0)} of somebody else")
    # Reaches the warm process if both are still in one group; this one dies of it too, or outlives it as init.
    os.kill(0, signal.SIGKILL)
    return achieved


def trace_others(host: dict[str, Any]) -> list[str]:
    """Take hold of another process: attach, or read its memory."""
    buffer = ctypes.create_string_buffer(64)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    here = Vector(ctypes.addressof(buffer), 64)
    attempts: dict[str, Callable[[], Any]] = {"be traced": lambda: called("ptrace", 0, 0, 0, 0)}
    for pid in (host["parent"], 1, 2, 3):
        attempts[f"attach to {pid}"] = partial(called, "ptrace", 16, pid, 0, 0)
        attempts[f"read the memory of {pid}"] = partial(
            system_call, 310, 270, pid, ctypes.byref(here), 1, ctypes.byref(here), 1, 0
        )
    return achieved_by(attempts)


def leave_a_daemon(host: dict[str, Any]) -> str:
    """Answer, and leave a process behind that has let go of everything."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            while True:
                time.sleep(0.01)
        os._exit(0)
    return "left"


def nest_namespaces(host: dict[str, Any]) -> list[str]:
    """Become root in a namespace of its own, which is where most holes of the kernel begin."""
    newuser, newns, newpid, newnet = 0x10000000, 0x20000, 0x20000000, 0x40000000

    def cloned(flags: int) -> bool:
        pid = int(C.syscall(56 if X86 else 220, flags | signal.SIGCHLD, 0, 0, 0, 0))
        if pid == 0:
            os._exit(0)
        return pid > 0

    attempts: dict[str, Callable[[], Any]] = {}
    for name, flag in (("user", newuser), ("mount", newns), ("process", newpid), ("network", newnet)):
        attempts[f"unshare the {name} namespace"] = partial(called, "unshare", flag)
        attempts[f"clone into a {name} namespace"] = partial(cloned, flag)
    return achieved_by(attempts)


def use_proc(host: dict[str, Any]) -> list[str]:
    """See other processes, or touch the kernel's settings."""

    def opened(path: str) -> Callable[[], Any]:
        return lambda: done(os.close, os.open(path, os.O_RDWR))

    paths = ("/proc/sysrq-trigger", "/proc/self/mem", "/proc/1/mem", "/proc/sys/kernel/core_pattern")
    attempts: dict[str, Callable[[], Any]] = {path: opened(path) for path in paths}
    attempts["list /proc"] = lambda: os.listdir("/proc") or None
    attempts["mount proc"] = lambda: called("mount", b"proc", b"/box/tmp", b"proc", 0, None)
    attempts["uncover /proc"] = lambda: called("umount2", b"/proc", 2)
    return achieved_by(attempts)


def use_descriptors(host: dict[str, Any]) -> list[str]:
    """Descriptors beyond its own five pipes and /dev/null."""
    import stat

    reached = []
    for number in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] + 256):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            continue
        kind = "nothing" if number == 0 and stat.S_ISCHR(mode) else "pipe" if stat.S_ISFIFO(mode) else "other"
        if number > 4 or kind == "other":
            reached.append(f"descriptor {number} of mode {mode:o}")
    return reached


def become_root(host: dict[str, Any]) -> list[str]:
    """Any privilege: another user, a capability, a mount, a root of its own."""

    def capable() -> bool:
        header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        return called("capget", header, data) and any(data)

    return achieved_by(
        {
            "hold a capability": capable,
            "setuid(0)": lambda: done(os.setuid, 0),
            "setgid(0)": lambda: done(os.setgid, 0),
            "setgroups": lambda: done(os.setgroups, [0]),
            "chroot": lambda: done(os.chroot, "/box"),
            "mount": lambda: called("mount", b"none", b"/box/tmp", b"tmpfs", 0, None),
            "remount the root": lambda: called("mount", None, b"/", None, 4096 | 32, None),
            "raise a limit": lambda: done(resource.setrlimit, resource.RLIMIT_NPROC, (4096, 4096)),
        }
    )


def use_the_kernel(host: dict[str, Any]) -> list[str]:
    """System calls that have been ways out before, and a number from the future."""
    buffer = ctypes.create_string_buffer(256)
    attempts: dict[str, Callable[[], Any]] = {
        "bpf": lambda: system_call(321, 280, 0, buffer, 64),
        "perf_event_open": lambda: system_call(298, 241, buffer, 0, -1, -1, 0),
        "io_uring_setup": lambda: system_call(425, 425, 4, buffer),
        "userfaultfd": lambda: system_call(323, 282, 1),
        "keyctl": lambda: system_call(250, 219, 0, -3, 0),
        "memfd_create": lambda: system_call(319, 279, b"hidden", 0),
        "shmget": lambda: system_call(29, 194, 0, 1 << 20, 0o1600),
        "personality": lambda: system_call(135, 92, 0x0040000),
        "open_by_handle_at": lambda: system_call(304, 265, 0, buffer, 0),
        "setns": lambda: system_call(308, 268, 0, 0),
    }
    return achieved_by(attempts)
