"""Attacks on what the machine counts for a user, or not at all: how much of it can one evaluation hold?"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .attempts import C, achieved_by, called, done, ignoring, system_call

_MOST = 4096
"""Of anything that is tried: enough to see that there is no limit, and too little to harm a machine without one."""


def _held(make: Callable[[int], Any]) -> int:
    """How many of a thing can be had at once, up to `_MOST`."""
    held: list[Any] = []
    while len(held) < _MOST:
        try:
            held.append(make(len(held)))
        except (OSError, RuntimeError, MemoryError):
            break
    return len(held)


def use_asynchronous_io(host: dict[str, Any]) -> list[str]:
    """Take a slot for asynchronous reads, of which the whole machine has 65,536."""
    context = ctypes.c_ulong(0)
    return achieved_by(
        {
            "io_setup": lambda: system_call(206, 0, 1, ctypes.byref(context)),
            "io_submit": lambda: system_call(209, 2, context, 0, None),
            "io_getevents": lambda: system_call(208, 4, context, 0, 0, None, None),
        }
    )


def watch_files(host: dict[str, Any]) -> list[str]:
    """Take a watch of files, of which a user has 128; learn what the host does with its files."""
    return achieved_by(
        {
            "inotify": lambda: called("inotify_init1", 0),
            "inotify, the old call": lambda: system_call(253, None),
            "fanotify": lambda: called("fanotify_init", 0, 0),
            "dnotify": lambda: fcntl.fcntl(os.open("/", os.O_RDONLY), 1026, 1),
        }
    )


def grow_pipes(host: dict[str, Any]) -> list[str]:
    """Have larger pipes, whose pages are counted for the user of the whole machine."""
    return achieved_by({"a pipe of 1 MiB": lambda: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)})


def queue_signals(host: dict[str, Any]) -> int:
    """Signals that can wait for a process."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})

    def queue(number: int) -> None:
        if C.sigqueue(os.getpid(), int(signal.SIGRTMIN), number) < 0:
            raise OSError("no more")

    return _held(queue)


def hold_timers(host: dict[str, Any]) -> int:
    """Timers of the kernel."""

    def make(number: int) -> int:
        timer = ctypes.c_int()
        if not system_call(222, 107, 1, None, ctypes.byref(timer)):
            raise OSError("no more")
        return timer.value

    return _held(make)


def hold_descriptors(host: dict[str, Any]) -> int:
    """Files open at once."""
    return _held(lambda number: os.open("/", os.O_RDONLY))


def start_threads(host: dict[str, Any]) -> int:
    """Threads at once, which are processes to the kernel."""
    stop = threading.Event()

    def start(number: int) -> threading.Thread:
        thread = threading.Thread(target=stop.wait, daemon=True)
        thread.start()
        return thread

    return _held(start) + 1


def make_empty_files(host: dict[str, Any]) -> int:
    """Empty files, each of which takes memory of the kernel."""

    def make(number: int) -> None:
        os.close(os.open(f"empty{number}", os.O_CREAT | os.O_WRONLY))

    return _held(make)


def make_a_large_file(host: dict[str, Any]) -> list[str]:
    """A file larger than is allowed, with or without something in it."""
    ignoring(signal.SIGXFSZ)
    beyond = 1 << 40
    file = os.open("large", os.O_CREAT | os.O_RDWR)
    return achieved_by(
        {
            "a sparse file": lambda: done(os.truncate, "large", beyond),
            "one of blocks": lambda: done(os.posix_fallocate, file, 0, host["most"]),
            "a byte far out": lambda: os.pwrite(file, b"x", beyond),
        }
    )


def hold_memory_in_sockets(host: dict[str, Any]) -> int:
    """Bytes that wait in the kernel between ends of sockets and pipes."""
    held, total, chunk = [], 0, b"x" * 65536
    while total < host["most"]:
        try:
            pair = socket.socketpair()
        except OSError:
            break
        held.append(pair)
        with contextlib.suppress(OSError):
            pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        pair[0].setblocking(False)
        try:
            while True:
                total += pair[0].send(chunk)
        except OSError:
            continue
    return total


def lock_memory(host: dict[str, Any]) -> list[str]:
    """Memory that the machine may not page out."""
    page = ctypes.create_string_buffer(1 << 16)
    return achieved_by(
        {
            "mlock": lambda: called("mlock", page, 1 << 16),
            "mlock2": lambda: system_call(325, 284, page, 1 << 16, 0),
            "mlockall": lambda: called("mlockall", 3),
            "huge pages": lambda: called("madvise", page, 1 << 16, 1234),
        }
    )


def raise_limits(host: dict[str, Any]) -> list[str]:
    """Any limit made higher, one's own or that of the process outside."""

    def higher(which: int) -> Callable[[], bool]:
        def attempt() -> bool:
            soft, hard = resource.getrlimit(which)
            if hard == resource.RLIM_INFINITY:
                return False  # nothing that the sandbox holds on to
            resource.setrlimit(which, (soft, hard + 1))
            return True

        return attempt

    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    attempts: dict[str, Callable[[], Any]] = {name: higher(which) for name, which in limits.items()}
    attempts["of the process outside"] = lambda: resource.prlimit(host["parent"], resource.RLIMIT_CPU)
    return achieved_by(attempts)


def take_priority(host: dict[str, Any]) -> list[str]:
    """Run before everybody else."""

    class Parameter(ctypes.Structure):
        _fields_ = [("priority", ctypes.c_int)]

    first = ctypes.byref(Parameter(1))
    ahead = 1 << 13  # the class of disk access that waits for nobody
    return achieved_by(
        {
            "real time, first come": lambda: called("sched_setscheduler", 0, 1, first),
            "real time, in turn": lambda: called("sched_setscheduler", 0, 2, first),
            "a deadline": lambda: system_call(314, 274, 0, bytes([48, 0, 0, 0, 6]) + bytes(43), 0),
            "nice -20": lambda: done(os.setpriority, os.PRIO_PROCESS, 0, -20),
            "of the process outside": lambda: done(os.setpriority, os.PRIO_PROCESS, host["parent"], 19),
            "the disk": lambda: system_call(251, 30, 1, 0, ahead),
        }
    )


def share_memory(host: dict[str, Any]) -> list[str]:
    """What outlives the process that made it, in the kernel's tables."""
    return achieved_by(
        {
            "shared memory": lambda: system_call(29, 194, 0x77, 4096, 0o1666),
            "a semaphore": lambda: system_call(64, 190, 0x77, 1, 0o1666),
            "a queue": lambda: system_call(68, 186, 0x77, 0o1666),
            "a queue with a name": lambda: system_call(240, 180, b"whet", 0o102, 0o600, None),
            "a file without a name": lambda: system_call(319, 279, b"hidden", 0),
            "a secret one": lambda: system_call(447, 447, 0),
            "a key": lambda: system_call(248, 217, b"user", b"whet", b"x", 1, -3),
            "a key asked for": lambda: system_call(249, 218, b"user", b"whet", None, -3),
            "a keyring": lambda: system_call(250, 219, 1, None),
        }
    )


def sleep_through_the_limit(host: dict[str, Any]) -> None:
    """Use no time at all, and never answer."""
    ignoring(signal.SIGALRM, signal.SIGTERM)
    while True:
        time.sleep(3600)


def endless_complaint(host: dict[str, Any]) -> None:
    """Print without end where errors are printed."""
    while True:
        os.write(2, b"\x1b[2J" * 1024)


def claim_a_huge_answer(host: dict[str, Any]) -> None:
    """Begin an answer of four gigabytes."""
    os.write(4, b"\xff\xff\xff\xff" + b"v" * 1024)
    sleep_through_the_limit(host)
