"""Attacks on other evaluations: those before, those after, and the processes of the host that use the same files."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from .attempts import C, achieved_by, called, done, in_a_child, system_call

_PLANTED = re.compile(rb"planted-[0-9a-f]{32}")
_PAGE = 4096
_FILES = (os.__file__, ctypes.__file__)
"""Files of the host that can be read inside."""
_LOCK = "hhqqi4x"
"""`struct flock` where a long has eight bytes."""
_REACH = 16 << 20
"""Bytes around every object that are looked at."""


def plant(host: dict[str, Any]) -> str:
    """An evaluation like any other: its input, its output, its files and its answer hold a text."""
    text = str(host["planted"])
    print(text)
    print(text, file=sys.stderr)
    for folder in (".", os.environ.get("TMPDIR", "."), "/tmp", "/dev/shm"):
        try:
            with open(os.path.join(folder, "planted"), "w") as file:
                file.write(text)
        except OSError:
            continue
    return text


def find_earlier_files(host: dict[str, Any]) -> list[str]:
    """Files that the evaluation before has left."""
    folders = (".", os.environ.get("TMPDIR", "."), "/tmp", "/dev/shm", "/box", "/var/tmp")
    return [folder for folder in folders if os.path.exists(os.path.join(folder, "planted"))]


def find_earlier_text(host: dict[str, Any]) -> list[str]:
    """Text of the evaluation before in this one's memory, which was forked from the same process."""
    found = set()
    for memory in _memory():
        found.update(_PLANTED.findall(memory))
    return [text.decode() for text in sorted(found)]


def _memory() -> Iterator[bytes]:
    """Every page near an object, without /proc to say which there are: a pipe refuses to take one that is not there."""
    ids = [id(each) for each in gc.get_objects()] + [id(vars), id(b""), int(C.sbrk(0) or 0) & (1 << 64) - 1]
    regions = sorted({address // _REACH for address in ids if address > _REACH})
    wanted = sorted({region + around for region in regions for around in (-1, 0, 1)})
    reading, writing = os.pipe()
    write = C.write
    write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    write.restype = ctypes.c_ssize_t
    for region in wanted:
        held = b""
        for address in range(region * _REACH, (region + 1) * _REACH, _PAGE):
            if write(writing, address, _PAGE) == _PAGE:
                held = held[-64:] + os.read(reading, _PAGE)
                yield held


def lock_host_files(host: dict[str, Any]) -> list[str]:
    """Hold a lock on a file that programs of the host use, so that they wait."""

    def whole_file(path: str) -> bool | None:
        first, second = (os.open(path, os.O_RDONLY) for _ in range(2))
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True  # the first one holds
        return None  # granted twice, so neither does

    def part_of_it(path: str) -> bool | None:
        file = os.open(path, os.O_RDONLY)
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack(_LOCK, fcntl.F_RDLCK, 0, 0, 0, 0))
        # A lock of one's own does not count as one: another process has to ask.
        return in_a_child(lambda: _locked(path)) or None

    attempts: dict[str, Callable[[], Any]] = {}
    for path in _FILES:
        attempts |= {path: partial(whole_file, path), f"part of {path}": partial(part_of_it, path)}
    return achieved_by(attempts)


def _locked(path: str) -> bool:
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
    answered = fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_GETLK, asked)
    return bool(struct.unpack(_LOCK, answered)[0] != fcntl.F_UNLCK)


def lease_host_files(host: dict[str, Any]) -> list[str]:
    """Be told, and be waited for, when a program of the host opens a file."""

    def lease(path: str) -> Callable[[], Any]:
        return lambda: fcntl.fcntl(os.open(path, os.O_RDONLY), 1024, fcntl.F_RDLCK) == 0 or None

    return achieved_by({path: lease(path) for path in _FILES})


def change_host_files(host: dict[str, Any]) -> list[str]:
    """Change what can only be read: its content, name, mode, owner, times or attributes."""
    attempts: dict[str, Callable[[], Any]] = {}
    for path in _FILES:
        attempts |= {
            f"write {path}": partial(os.open, path, os.O_WRONLY),
            f"truncate {path}": partial(done, os.truncate, path, os.path.getsize(path)),
            f"rename {path}": partial(done, os.rename, path, path + ".old"),
            f"link {path}": partial(done, os.link, path, "linked"),
            f"mode of {path}": partial(done, os.chmod, path, 0o777),
            f"owner of {path}": partial(done, os.chown, path, os.getuid(), os.getgid()),
            f"times of {path}": partial(done, os.utime, path),
            f"attribute of {path}": partial(done, os.setxattr, path, "user.whet", b"x"),
            f"a file beside {path}": partial(os.open, os.path.dirname(path), os.O_TMPFILE | os.O_RDWR),
        }
    return achieved_by(attempts)


def see_what_is_cached(host: dict[str, Any]) -> list[str]:
    """Learn which pages of a file the host has lately used."""
    seen = ctypes.create_string_buffer(1 << 16)
    page = ctypes.c_void_p(ctypes.addressof(seen) & ~(_PAGE - 1))
    return achieved_by(
        {
            "mincore": lambda: called("mincore", page, _PAGE, seen),
            "cachestat": lambda: system_call(451, 451, os.open(_FILES[0], os.O_RDONLY), seen, seen, 0),
        }
    )


def learn_the_hosts_name(host: dict[str, Any]) -> list[str]:
    """The name of the machine; what of it is the host's is decided outside."""
    return [os.uname().nodename]
