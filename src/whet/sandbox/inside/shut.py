"""A program that can have no effect but what it answers, and that one address outside answers it.

Unlike an evaluation it is its owner's own code, and it sees the machine's files as its owner does: what it must not do
is change anything, or speak to anybody but its model.  It has no network; what it sends to one port of the loopback is
carried to the same port outside.  Every file is read-only, but its folder, a copy that lives in memory and ends with
it.  Sockets that lie in the file system cannot be opened, and no process outside can be seen.

Run from outside as a program of its own; the plan is its one argument.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import struct
import sys
import threading
from typing import Any

from . import kernel, seccomp

_HIDDEN = ("/tmp", "/var/tmp", "/run", "/dev/shm")
"""Where programs leave what others may write, or speak to them."""
FOLDER = "/tmp/agent"
_SPACES = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS
_UP = 0x8914, struct.pack("16sH14x", b"lo", 0x41)
"""SIOCSIFFLAGS, and the loopback with IFF_UP and IFF_RUNNING."""


def main() -> None:
    """Enter, and run the program; the process that was started stays outside and waits for it."""
    plan = json.loads(sys.argv[1])
    uid, gid = os.geteuid(), os.getegid()
    kernel.die_with_parent()
    try:
        if plan["root"]:
            kernel.unshare(_SPACES)
        else:
            kernel.unshare(_SPACES | kernel.NEWUSER)
            kernel.map_ids(uid, gid, uid, gid)
    except OSError as error:
        sys.exit(f"it cannot be shut in: {error}")
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    try:
        kernel.die_with_parent()
        _shut(plan)
    except OSError as error:
        sys.stderr.write(f"it cannot be shut in: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    text, *words = plan["program"]
    sys.argv = ["-c", *words]
    sys.path[0] = FOLDER
    # What was not there when the interpreter started is remembered as missing.
    sys.path_importer_cache.clear()
    exec(compile(text, "<agent>", "exec"), {"__name__": "__main__"})


def _shut(plan: dict[str, Any]) -> None:
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV
    # Held open: they are hidden by what is mounted, and found again through the descriptor.
    own = os.open(plan["folder"], os.O_RDONLY | os.O_DIRECTORY)
    kept = {path: os.open(path, os.O_PATH) for path in plan["kept"] if path.startswith(_HIDDEN)}
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.set_mount_attributes("/", kernel.ATTR_RDONLY | kernel.ATTR_NOSUID, recursive=True)
    for path in dict.fromkeys(map(os.path.realpath, _HIDDEN)):
        if os.path.isdir(path):
            kernel.mount("none", path, "tmpfs", quiet, f"size={plan['bytes']},mode=1777")
    for path, descriptor in kept.items():
        os.makedirs(path, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", path, "", kernel.MS_BIND | kernel.MS_REC)
        kernel.set_mount_attributes(path, kernel.ATTR_RDONLY | kernel.ATTR_NOSUID, recursive=True)
        os.close(descriptor)
    shutil.copytree(f"/proc/self/fd/{own}", FOLDER, symlinks=True)
    os.close(own)
    kernel.mount("proc", "/proc", "proc", quiet | kernel.MS_NOEXEC)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        fcntl.ioctl(device, *_UP)
    os.chdir(FOLDER)
    kernel.drop_capabilities()
    kernel.forbid_new_privileges()
    seccomp.Filter(seccomp.no_named_sockets()).install()
    if plan["port"]:
        _carry(plan["port"], socket.socket(fileno=plan["control"]))


def _carry(port: int, control: socket.socket) -> None:
    """Hand each connection to the port to whoever holds the other end of `control`."""
    listening = socket.create_server(("127.0.0.1", port))

    def accept() -> None:
        while True:
            inside, _ = listening.accept()
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(control, [b"."], [theirs.fileno()])
                except OSError:
                    inside.close()
                    ours.close()
                    continue
            for source, target in ((inside, ours), (ours, inside)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way until there are no more."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
