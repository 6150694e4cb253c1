"""Attacks on the kernel: calls that have been ways out before, under every name and number that they have."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from .attempts import X86, C, achieved_by, called, done, in_a_child, system_call


def use_other_call_tables(host: dict[str, Any]) -> list[str]:
    """Reach system calls by the numbers of another machine, which a filter for this one does not know."""
    attempts: dict[str, Callable[[], Any]] = {}
    if X86:
        # mov eax, 20 (getpid of the 32 bit table); int 0x80; ret
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        entry = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        attempts["32 bit"] = lambda: in_a_child(lambda: entry() > 0)
        attempts["x32"] = lambda: in_a_child(lambda: C.syscall(0x40000000 | 39) > 0)
    attempts["a number from the future"] = lambda: system_call(900, 900, 0, 0)
    attempts["clone3"] = lambda: system_call(435, 435, ctypes.create_string_buffer(88), 88)
    return achieved_by(attempts)


def mount_anew(host: dict[str, Any]) -> list[str]:
    """Mount by the newer calls, or change what is mounted."""
    buffer = ctypes.create_string_buffer(32)
    return achieved_by(
        {
            "fsopen": lambda: system_call(430, 430, b"tmpfs", 0),
            "fspick": lambda: system_call(433, 433, -100, b"/", 0),
            "fsmount": lambda: system_call(432, 432, 3, 0, 0),
            "open_tree": lambda: system_call(428, 428, -100, b"/", 1),
            "move_mount": lambda: system_call(429, 429, -100, b"/", -100, b"/box", 0),
            "mount_setattr": lambda: system_call(442, 442, -100, b"/", 0, buffer, 32),
            "pivot_root": lambda: system_call(155, 41, b"/box", b"/box"),
            "chroot": lambda: called("chroot", b"/box"),
            "umount": lambda: called("umount2", b"/box", 2),
            "statmount": lambda: system_call(457, 457, buffer, buffer, 32, 0),
            "listmount": lambda: system_call(458, 458, buffer, buffer, 1, 0),
        }
    )


def open_by_handle(host: dict[str, Any]) -> list[str]:
    """Open a file by its number instead of its name, which no mount stands before."""
    buffer, mount = ctypes.create_string_buffer(b"\x80", 136), ctypes.c_int()
    return achieved_by(
        {
            "name_to_handle_at": lambda: system_call(303, 264, -100, b"/", buffer, ctypes.byref(mount), 0),
            "open_by_handle_at": lambda: system_call(304, 265, -100, buffer, os.O_RDONLY),
        }
    )


def hold_others(host: dict[str, Any]) -> list[str]:
    """Take descriptors, pages or signals of another process."""
    vector = (ctypes.c_void_p * 2)(0, 4096)
    attempts: dict[str, Callable[[], Any]] = {}
    for pid in (host["parent"], 1, 2):
        if pid == os.getpid():
            continue
        attempts |= {
            f"pidfd of {pid}": partial(system_call, 434, 434, pid, 0),
            f"kcmp {pid}": partial(system_call, 312, 272, os.getpid(), pid, 0, 0, 0),
            f"move the pages of {pid}": partial(system_call, 279, 239, pid, 0, None, None, None, 0),
            f"migrate the pages of {pid}": partial(system_call, 256, 238, pid, 0, None, None),
            f"write the memory of {pid}": partial(system_call, 311, 271, pid, vector, 1, vector, 1, 0),
        }
    attempts |= {
        "pidfd_getfd": lambda: system_call(438, 438, 3, 0, 0),
        "process_madvise": lambda: system_call(440, 440, 3, vector, 1, 8, 0),
        "process_mrelease": lambda: system_call(448, 448, 3, 0),
    }
    return achieved_by(attempts)


def change_the_machine(host: dict[str, Any]) -> list[str]:
    """The clock, the name, modules, swap, accounting, a restart; each with arguments that do nothing."""
    buffer = ctypes.create_string_buffer(256)
    return achieved_by(
        {
            "the clock": lambda: system_call(227, 112, 0, None),
            "its speed": lambda: system_call(305, 266, 0, buffer),
            "the name": lambda: called("sethostname", b"", 0),
            "the domain": lambda: called("setdomainname", b"", 0),
            "a module": lambda: system_call(313, 273, -1, b"", 0),
            "a module taken out": lambda: system_call(176, 106, b"whet-no-such", 0),
            "a new kernel": lambda: system_call(246, 104, 0, 0, None, 0),
            "swap": lambda: called("swapoff", b"/nowhere"),
            "accounting": lambda: called("acct", None),
            "quotas": lambda: system_call(179, 60, 0, None, 0, None),
            "a restart": lambda: system_call(169, 142, 0, 0, 0, None),
            "the kernel's log": lambda: system_call(103, 116, 10, None, 0),
            "ports": lambda: system_call(172, None, 3),
            "a terminal hung up": lambda: system_call(153, 58),
        }
    )


def use_exotic_sockets(host: dict[str, Any]) -> list[str]:
    """Make a socket, or a pair, of a family that few programs need."""

    def make(family: int, kind: int) -> Callable[[], Any]:
        return lambda: done(socket.socket(family, kind).close)

    def pair(family: int) -> Callable[[], Any]:
        return lambda: system_call(53, 199, family, 1, 0, ctypes.create_string_buffer(8))

    families = {
        "CAN": 29,
        "TIPC": 30,
        "BLUETOOTH": 31,
        "ALG": 38,
        "VSOCK": 40,
        "KCM": 41,
        "QIPCRTR": 42,
        "XDP": 44,
    }
    attempts = {f"AF_{name}": make(family, 2) for name, family in families.items()}
    attempts |= {f"AF_{name}, in order": make(family, 5) for name, family in families.items()}
    attempts |= {f"a pair of AF_{name}": pair(family) for name, family in families.items()}
    attempts["a pair of AF_INET"] = pair(2)
    return achieved_by(attempts)


def splice_into_files(host: dict[str, Any]) -> list[str]:
    """Have pages of a read-only file in a pipe, where a hole of the kernel once let them be written."""
    reading, writing = os.pipe()
    file = os.open(sys.executable, os.O_RDONLY)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.create_string_buffer(64)), 64)
    other = os.pipe()
    return achieved_by(
        {
            "splice": lambda: system_call(275, 76, file, None, writing, None, 1, 0),
            "tee": lambda: system_call(276, 77, reading, other[1], 1, 2),
            "vmsplice": lambda: system_call(278, 75, other[1], vector, 1, 0),
        }
    )


def type_on_the_terminal(host: dict[str, Any]) -> list[str]:
    """Type a command where the user types, or take the terminal."""

    def terminal(request: int) -> Callable[[], Any]:
        # The kernel asks for a terminal only after the filter; a pipe answers ENOTTY, the filter EPERM.
        return lambda: any(int(C.ioctl(number, request, b"x")) >= 0 for number in range(5))

    return achieved_by(
        {
            "TIOCSTI": terminal(0x5412),
            "TIOCLINUX": terminal(0x541C),
            "TIOCSCTTY": terminal(0x540E),
            "/dev/tty": lambda: os.open("/dev/tty", os.O_RDWR),
            "/dev/console": lambda: os.open("/dev/console", os.O_RDWR),
        }
    )


def run_with_more_rights(host: dict[str, Any]) -> list[str]:
    """Start a program that somebody gave more rights, or one of its own making."""

    def own_program() -> bool:
        with open("own", "w") as file:
            file.write(f"#!{sys.executable}\n")
        os.chmod("own", 0o755)
        return subprocess.run(["./own"], check=False).returncode == 0

    def marked() -> list[str]:
        folders = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/lib")
        paths = [
            f"{folder}/{name}" for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)
        ]
        return [
            path
            for path in paths
            if os.path.exists(path) and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)
        ]

    def more_privileges() -> bool:
        asked_for_new_privileges = 39
        return int(C.prctl(asked_for_new_privileges, 0, 0, 0, 0)) == 0

    return achieved_by(
        {
            "a program of its own": own_program,
            "a program that becomes another user": lambda: (marked() and more_privileges()) or None,
            "privileges may be gained": more_privileges,
            "a secure bit": lambda: called("prctl", 28, 1, 0, 0, 0),
            "a capability kept": lambda: called("prctl", 47, 2, 21, 0, 0),
        }
    )


def make_devices(host: dict[str, Any]) -> list[str]:
    """Make a device, or reach one that is there."""

    def read(path: str) -> Callable[[], Any]:
        return lambda: done(os.close, os.open(path, os.O_RDWR))

    names = (
        "mem",
        "kmem",
        "port",
        "kvm",
        "fuse",
        "net/tun",
        "loop0",
        "loop-control",
        "snapshot",
        "uinput",
        "vhost-net",
    )
    attempts: dict[str, Callable[[], Any]] = {name: read(f"/dev/{name}") for name in names}
    attempts["the memory, made"] = lambda: done(os.mknod, "memory", 0o600 | stat.S_IFCHR, os.makedev(1, 1))
    attempts["a disk, made"] = lambda: done(os.mknod, "disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
    return achieved_by(attempts)


def leave_a_dump(host: dict[str, Any]) -> list[str]:
    """Crash, so that the kernel writes the memory to a file or hands it to a program of the host's."""
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return ["a dump was made"] if os.WCOREDUMP(status) else []
