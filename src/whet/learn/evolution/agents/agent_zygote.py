"""The program of an agent's zygote: it imports what its entry's module begins with, and forks a process per candidate.

The text of this file is handed to `python -c`, like that of `agent_process.py`, which a fork becomes: it takes the
standard library only.  Before the first fork it looks at what its imports left behind.  Where a fork might not be what
a process of its own would have been, it says so and ends, and everything starts as without it.

On the control, a socket of packets: from it once `{"why": ""}`, or the reason against it; to it JSON for each fork
(`folder`, `path`, `entry`) with three descriptors: the line, standard error, and a socket on which the fork writes `p`
and its process id, and the zygote, when that is over, `c` and its exit code.  The end of the control ends all.
"""

from __future__ import annotations

import asyncio  # noqa: F401  as the text that a fork becomes
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

_PATHLESS = ("os", "posixpath", "pathlib", "ntpath")
"""Modules that ask for the current folder on behalf of others."""


class Imports:
    """What the imports of some statements leave behind.

    Args:
        folder: a copy of the agent as it came, which is the current folder. What remembers it, a fork has to forget.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.opened: list[str] = []
        """Files of the agent that were opened."""
        self.askers: list[str] = []
        """Modules that asked for the current folder."""
        self._watching = False

    def run(self, statements: str) -> None:
        """Run import statements, watched."""
        asked = os.getcwd

        def getcwd() -> str:
            if self._watching:
                self.askers.append(_asker())
            return asked()

        sys.addaudithook(self._heard)
        os.getcwd, self._watching = getcwd, True
        # What an import makes stays, and a collection would look through it again and again.
        gc.disable()
        try:
            exec(compile(statements, "<imports>", "exec"), {"__name__": "whet_imports"})
        finally:
            self._watching, os.getcwd = False, asked
            gc.enable()

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._watching or event != "open" or not isinstance(args[0], str | bytes):
            return
        path = os.path.normpath(os.path.join(self.folder, os.fsdecode(args[0])))
        # What a package says of itself is the same for every candidate; a folder of packages is tried as an archive.
        of_package = any(part.endswith((".dist-info", ".egg-info")) for part in path.split("/"))
        if _below(path, self.folder) and not of_package and path not in sys.path:
            self.opened.append(path)

    def against(self, control: int) -> str:
        """The reason why no fork may take the place of a process of its own; "" without one."""
        if len(os.listdir("/proc/self/task")) > 1:
            return "an import started a thread"
        os.close(os.pidfd_open(os.getpid()))  # raises where a container forbids it
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            return "an import started a process"
        with os.scandir("/proc/self/fd") as entries:
            held = {int(entry.name) for entry in entries} - {0, 1, 2, control}
        for descriptor in held:
            with contextlib.suppress(OSError):  # that of the listing itself is closed by now
                return f"an import left {os.readlink(f'/proc/self/fd/{descriptor}')} open"
        if os.getcwd() != self.folder:
            return "an import changed the current folder"
        if self.opened:
            return f"an import reads {self.opened[0]}"
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and _below(file, self.folder):
                return f"{name} is the agent's own"
        for name in self.askers:
            # The last of the places for temporary files is the current folder; taken, it would be remembered.
            if name != "tempfile" and not _remembered(name, self.folder):
                return f"{name} asks for the current folder"
        return ""


def _asker() -> str:
    """The module that asked for the current folder."""
    frame: Any = sys._getframe(2)  # of who called `getcwd`
    while frame.f_back is not None and frame.f_globals.get("__name__") in _PATHLESS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _remembered(name: str, folder: str) -> list[str]:
    """Globals of a module that are a text of the folder or below it."""
    names = vars(sys.modules[name]) if name in sys.modules else {}
    return [key for key, value in names.items() if isinstance(value, str) and _below(value, folder)]


def moved(folder: str, askers: list[str], request: dict[str, Any]) -> None:
    """In a fork: everything that names the zygote's folder names the candidate's."""
    new: str = request["folder"]
    os.chdir(new)
    os.environ["PYTHONPATH"] = request["path"]
    sys.path[:] = [new + entry[len(folder) :] if _below(entry, folder) else entry for entry in sys.path]
    for entry in [entry for entry in sys.path_importer_cache if _below(entry, folder)]:
        del sys.path_importer_cache[entry]
    for name in askers:
        for key in _remembered(name, folder):
            module = vars(sys.modules[name])
            module[key] = new + module[key][len(folder) :]
    # `random` is seeded anew by every fork; this one would give all candidates the same numbers.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork on request until the owner is gone; returns in a fork, with what was asked."""
    poller, children = select.poll(), dict[int, tuple[int, socket.socket]]()
    poller.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor in children:
                poller.unregister(descriptor)
                pid, status = children.pop(descriptor)
                os.close(descriptor)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with status, contextlib.suppress(OSError):
                    status.send(b"c%d\n" % code)
                continue
            packet, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
            if not packet:
                for pid, _ in children.values():
                    # Itself, too: it may not lead its group yet.
                    for kill in (os.killpg, os.kill):
                        with contextlib.suppress(ProcessLookupError):
                            kill(pid, signal.SIGKILL)
                os._exit(0)  # what an import leaves for the end is for processes that did something
            line, errors, telling = descriptors
            status = socket.socket(fileno=telling)
            try:
                pid = os.fork()
            except OSError:
                status.close()
            else:
                if pid == 0:
                    os.setsid()
                    os.dup2(errors, 2)
                    os.close(errors)
                    for held, (_, other) in children.items():
                        os.close(held)
                        other.close()
                    with status:
                        status.send(b"p%d\n" % os.getpid())
                    control.close()
                    os.set_inheritable(line, True)
                    return {**json.loads(packet), "line": line}
                held = os.pidfd_open(pid)
                children[held] = pid, status
                poller.register(held, select.POLLIN)
            os.close(line)
            os.close(errors)


def main() -> str:
    """In a fork: the text that it becomes, with its arguments in `sys.argv`."""
    _, descriptor, statements, text = sys.argv
    del sys.argv[1:]
    control, folder = socket.socket(fileno=int(descriptor)), os.getcwd()
    os.set_inheritable(control.fileno(), False)
    imports = Imports(folder)
    try:
        imports.run(statements)
        why = imports.against(control.fileno())
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        control.send(json.dumps({"why": why[:1000]}).encode())
    if why:
        os._exit(1)
    gc.collect()
    # A collection in a fork would write to every object, and so copy its page.
    gc.freeze()
    request = serve(control)
    sys.argv += [str(request["line"]), request["entry"]]
    moved(folder, imports.askers, request)
    return text


def fresh(text: str) -> Any:
    """The code of a program, for which nothing of this one is left in its module."""
    code, module = compile(text, "<string>", "exec"), globals()
    for name in [name for name in module if not name.startswith("__")]:
        del module[name]
    return code


if __name__ == "__main__":
    exec(fresh(main()))
