"""Many versions of a program tried one after the other in one evaluation, which costs each a tenth of one of its own.

They share a process, and one that hangs takes it along; the next one has another.  So what comes from here
chooses which version is worth an evaluation of its own, and is believed no further.  A call ends by its
processor time, not by the clock: on a busy machine a version that hangs is told after as many steps as on a
quiet one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import machinery
from typing import Any

from . import worker

_LARGEST = 1 << 20
"""Bytes of answers kept of one version; the rest of them count as missing."""
_SPARE_SECONDS = 3.0
"""Beyond its processor time a fork may wait so long, and sleep."""
_Tell = Callable[[bytes], None]
_DONE = b"#"
"""Told after the last answer of a version; every answer begins with a letter or a bracket."""
_HANGS = 10_000_000
"""Steps that a call counts as which was ended."""


def answers(
    runner: str,
    versions: Sequence[Mapping[str, str]],
    calls: Sequence[Any],
    seconds: float,
    enough: float,
) -> list[dict[str, Any]]:
    """What each version answers to each call, as a letter and JSON; fewer answers where it was ended.

    Args:
        runner: module with `call`, which is loaded anew for each version.
        versions: path → text of the staged files that differ.
        seconds: processor time of one call.
        enough: seconds after which no further version is begun; then fewer are returned.
    """
    requests = [json.dumps([call, {}]).encode() for call in calls]

    def work(tell: _Tell) -> None:
        function = worker.resolve(f"{runner}:call")
        for request in requests:
            with _limited(seconds):
                tell(_answer(worker.call, function, request, False))

    return _each(versions, work, seconds, enough)


def scores(
    evaluator: str,
    function: str,
    program: str,
    versions: Sequence[Mapping[str, str]],
    seconds: float,
    enough: float,
) -> list[dict[str, Any]]:
    """What the evaluator says of each version, as one answer; the other arguments are those of `answers`."""
    from .beside import evaluate

    def work(tell: _Tell) -> None:
        with _limited(seconds):
            tell(_answer(_encoded, evaluate, evaluator, function, program))

    return _each(versions, work, seconds, enough)


class _TooLong(BaseException):
    """A call has used up its processor time."""


def _too_long(number: int, frame: Any) -> None:
    raise _TooLong


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TooLong after so much processor time, again and again; end the process where nobody hears it."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, 10.0 * seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def _answer(function: Callable[..., bytes], *args: Any) -> bytes:
    """An answer, or the name of the exception: the traceback of an endless recursion costs more than the call."""
    try:
        return function(*args)
    except _TooLong:
        raise
    except BaseException as error:
        return worker.RAISED + type(error).__name__.encode("utf-8", "replace")


def _encoded(function: Callable[..., Any], *args: Any) -> bytes:
    return worker.VALUE + worker.encode(function(*args))


def lines(
    runner: str, watched: Sequence[str], calls: Sequence[Any], seconds: float, enough: float
) -> list[dict[str, Any]]:
    """For each call the lines of the watched files that ran, the steps, the processor time and the answer, as JSON.

    A call that takes longer is ended, and says what it has seen.

    Args:
        watched: staged paths.
    """
    requests = [json.dumps([call, {}]).encode() for call in calls]

    def work(request: bytes) -> Callable[[_Tell], None]:
        def traced(tell: _Tell) -> None:
            function = worker.resolve(f"{runner}:call")
            began = time.process_time()
            with _Trace(watched, tell, seconds) as trace:
                answer = _answer(worker.call, function, request, False)
            trace.tell(time.process_time() - began, answer)

        return traced

    return _all([work(request) for request in requests], 2.0 * seconds, enough)


def lines_beside(
    evaluator: str, function: str, program: str, watched: Sequence[str], seconds: float
) -> list[dict[str, Any]]:
    """As `lines`, for one evaluation of a program."""
    from .beside import evaluate

    def traced(tell: _Tell) -> None:
        began = time.process_time()
        with _Trace(watched, tell, seconds, everything=True) as trace:
            answer = _answer(_encoded, evaluate, evaluator, function, program)
        trace.tell(time.process_time() - began, answer)

    return _all([traced], 2.0 * seconds, 4.0 * seconds)


_ASKS: dict[str, Callable[..., Any]] = {
    "answers": answers,
    "scores": scores,
    "lines": lines,
    "lines_beside": lines_beside,
}


def handle(ask: str, *args: Any) -> Any:
    """Call one of the functions above by its name."""
    return _ASKS[ask](*args)


class _Trace:
    """Notes which lines of some files run, while it is open."""

    def __init__(
        self,
        watched: Sequence[str],
        tell: _Tell,
        seconds: float,
        *,
        everything: bool = False,
    ) -> None:
        self._say, self._seconds, self._everything = tell, seconds, everything
        self._watched = {os.path.abspath(path): path for path in watched}
        self._lines: dict[str, set[int]] = {path: set() for path in watched}
        self._steps = 0

    def __enter__(self) -> _Trace:
        # A handler, and not the end of the process: what has been seen of a call that hangs says why it does.
        signal.signal(signal.SIGPROF, self._timeout)
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        sys.settrace(self._enter)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _enter(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        path = self._watched.get(frame.f_code.co_filename)
        if path is None:
            return self._count if self._everything else None
        seen = self._lines[path]

        def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self._steps += 1
                seen.add(frame.f_lineno)
            return trace

        return trace

    def _count(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        self._steps += 1
        return self._count

    def _timeout(self, number: int, frame: Any) -> None:
        sys.settrace(None)
        self._steps = _HANGS
        self.tell(self._seconds)
        os._exit(0)

    def tell(self, cpu: float, answer: bytes = b"") -> None:
        """Report what was seen, and the answer, if there was one."""
        seen = {path: sorted(lines) for path, lines in self._lines.items()}
        text = answer.decode("utf-8", "replace")
        self._say(worker.encode({"lines": seen, "steps": self._steps, "cpu": cpu, "answer": text}))


def _each(
    versions: Sequence[Mapping[str, str]],
    work: Callable[[_Tell], None],
    seconds: float,
    enough: float,
) -> list[dict[str, Any]]:
    home = os.getcwd()

    def of(version: Mapping[str, str]) -> Callable[[_Tell], None]:
        def staged(tell: _Tell) -> None:
            _forget(home)
            for path, text in version.items():
                with open(path, "w", encoding="utf-8", newline="") as file:
                    file.write(text)
            work(tell)

        return staged

    return _all([of(version) for version in versions], seconds, enough)


_elsewhere: dict[str, Any] = {}
"""Modules by name that lie outside of the folder: some hundred, whose files are asked for once, not by each version."""


def _forget(home: str) -> None:
    """Let what lies in a folder be imported anew."""
    os.chdir(home)
    # Another module may stand under a name by now: what a version puts there is looked at.
    new = [(name, module) for name, module in sys.modules.items() if _elsewhere.get(name) is not module]
    for name, module in new:
        if (getattr(module, "__file__", None) or "").startswith(f"{home}/"):
            del sys.modules[name]
        else:
            _elsewhere[name] = module
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, machinery.FileFinder) and finder.path.startswith(home):
            finder.invalidate_caches()
    if loaded := sys.modules.get(f"{__package__}.beside"):
        vars(loaded)["_evaluators"].clear()


def _all(works: Sequence[Callable[[_Tell], None]], seconds: float, enough: float) -> list[dict[str, Any]]:
    """Do all of it in a fork, and what follows something that ended its fork in another one."""
    # Two versions of one file may have the same size and second, by which stale bytecode is told.
    sys.dont_write_bytecode = True
    deadline = time.monotonic() + enough
    reports: list[dict[str, Any]] = []
    while len(reports) < len(works) and (not reports or time.monotonic() < deadline):
        reports += _forked(works[len(reports) :], seconds, deadline)
    return reports


def _forked(works: Sequence[Callable[[_Tell], None]], seconds: float, enough: float) -> list[dict[str, Any]]:
    """What a fork told of each of these, as far as it came; the last of them may have ended it."""
    mine, its = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(mine)
            _become(its, works, enough)
        finally:
            # Whatever it raised: a fork that came back would answer in the place of the one that made it.
            os._exit(0)
    os.close(its)
    reports: list[dict[str, Any]] = []
    texts: list[str] = []
    received = bytearray()
    poller = select.poll()
    poller.register(mine, select.POLLIN)
    size = 0
    while size <= _LARGEST and poller.poll((10.0 * seconds + _SPARE_SECONDS) * 1000):
        part = os.read(mine, 1 << 16)
        if not part:
            break
        received += part
        while len(received) >= 4 and len(received) - 4 >= (length := int.from_bytes(received[:4], "little")):
            body = bytes(received[4 : 4 + length])
            del received[: 4 + length]
            size += length
            if body == _DONE:
                reports.append({"told": texts})
                texts, size = [], 0
            else:
                texts.append(body.decode("utf-8", "replace"))
    os.close(mine)
    # Also where it has ended: what it started may live on, in the session that it leads.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    whole = len(reports) == len(works) or (time.monotonic() > enough and reports)
    return reports if whole else [*reports, {"told": texts}]


def _become(its: int, works: Sequence[Callable[[_Tell], None]], enough: float) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def tell(body: bytes) -> None:
        message = memoryview(len(body).to_bytes(4, "little") + body)
        while message:
            message = message[os.write(its, message) :]

    for work in works:
        try:
            broken = worker.attempt(work, tell)
            hung = broken is not None and b'"_TooLong"' in broken
        except _TooLong:
            broken, hung = None, True
        # A version that hung has no further answers; one that could not be loaded has its failure as the first.
        if broken is not None and not hung:
            tell(broken)
        tell(_DONE)
        if time.monotonic() > enough:
            return
