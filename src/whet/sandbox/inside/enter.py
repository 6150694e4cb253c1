"""The way into the outer namespaces where there is no bubblewrap: the same walls, built by hand.

Run from outside as a program of its own.  It leaves every namespace, builds a root of nothing but
the given binds, all of them read-only, and becomes the zygote.  Root makes no user namespace and the
zygote changes its user afterwards: an interpreter in root's home can still be bound, and a process
limit counts for nothing while the user outside is root.  What root alone may read (a checkout made under
umask 077) is bound as that user's.  Needs Linux 5.12 for recursive read-only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from . import kernel

_BASE = "/tmp"
_NEW, _OLD = "/new", "/old"


def _place(target: str, folder: bool) -> None:
    """Make the folder or the empty file that something is mounted on."""
    if folder:
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "ab"):
        pass


def _bind(source: str, target: str, attributes: int, owner: int | None = None) -> None:
    _place(target, os.path.isdir(source))
    if owner is not None:
        # Where it cannot be, it is bound as it is: what nobody reads fails inside, with the path in the message.
        with contextlib.suppress(OSError):
            kernel.bind_as(owner, source, target, attributes)
            return
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.set_mount_attributes(target, attributes, recursive=True)


def _build(plan: dict[str, Any], owner: int | None) -> None:
    """The new root, at /new, while the old one stands at /old.

    Args:
        owner: a descriptor of `kernel.owned_by`, for what only root may read.
    """
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV
    # Where mounts are shared, those below would else appear on the host, too.
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("base", _BASE, "tmpfs", quiet, "size=1m,mode=0755")
    for name in (_NEW, _OLD):
        os.mkdir(_BASE + name)
    kernel.pivot(_BASE, _BASE + _OLD)
    kernel.mount("root", _NEW, "tmpfs", quiet, "size=1m,mode=0755")
    still = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID
    for path, link, private in plan["binds"]:
        if link:
            os.makedirs(os.path.dirname(_NEW + path), exist_ok=True)
            os.symlink(link, _NEW + path)
        else:
            # A link of the old root, followed as if it stood in the new one, would lead nowhere.
            _bind(_follow(path), _NEW + path, still | kernel.ATTR_NODEV, owner if private else None)
    source, target = plan["library"]
    _bind(_OLD + source, _NEW + target, still | kernel.ATTR_NODEV)
    for device in plan["devices"]:
        _bind(_OLD + device, _NEW + device, still)
    os.makedirs(_NEW + plan["box"])
    kernel.mount("box", _NEW + plan["box"], "tmpfs", quiet, f"size={plan['box_bytes']},mode=1777")
    os.symlink(plan["box"] + "/tmp", _NEW + "/dev/shm")
    if plan["temporary"]:
        os.symlink(plan["temporary"], _NEW + "/tmp")
    os.makedirs(_NEW + "/proc")
    kernel.mount("proc", _NEW + "/proc", "proc", quiet | kernel.MS_NOEXEC)
    os.chdir(_NEW)
    # Stacks the old root on the new one, from where it is taken off: pivot_root(2) without a folder for it.
    kernel.pivot(".", ".")
    kernel.detach(".")
    os.chdir("/")
    # Last: all mount points above are folders and files made in it.
    kernel.set_mount_attributes("/", still, recursive=False)


def _follow(path: str) -> str:
    """Where a path of the old root really is, seen from the new place of the old root."""
    for _ in range(40):
        prefix = ""
        for part in path.strip("/").split("/"):
            prefix += "/" + part
            if os.path.islink(_OLD + prefix):
                link = os.readlink(_OLD + prefix)
                joined = os.path.normpath(os.path.join(os.path.dirname(prefix), link))
                path = os.path.normpath(joined + path[len(prefix) :])
                break
        else:
            return _OLD + path
    raise OSError(f"too many symbolic links at {path}")


def main() -> None:
    """Enter and become the command; the process that was started stays outside and waits for it."""
    plan = json.loads(sys.argv[1])
    owner = None
    try:
        if any(private for _, _, private in plan["binds"]):
            with contextlib.suppress(OSError):
                # Before `_leave`: this forks, and the first child after unshare(NEWPID) is the init without
                # which the namespace takes no further process.
                owner = kernel.owned_by(plan["user"])
        _leave(plan)
    except OSError as error:
        sys.exit(f"{error}")
    # Under the caller's umask, such as 077, nobody could enter the folders of the new root.
    os.umask(0o022)
    pid = os.fork()
    if pid:
        os.closerange(0, 2)  # the channel is the zygote's
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    try:
        kernel.die_with_parent()
        _build(plan, owner)
        kernel.forbid_new_privileges()
        os.execve(plan["command"][0], plan["command"], plan["environment"])
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    os._exit(1)


def _leave(plan: dict[str, Any]) -> None:
    """Into namespaces of one's own; by the next fork for the processes' one."""
    spaces = kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWCGROUP
    uid, gid = os.geteuid(), os.getegid()
    kernel.die_with_parent()
    if plan["root"]:
        kernel.unshare(spaces)
    else:
        kernel.unshare(spaces | kernel.NEWUSER)
        kernel.map_ids(plan["user"], plan["user"], uid, gid)
    kernel.set_host_name(plan["name"])
