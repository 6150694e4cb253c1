"""Evaluations by warm processes, several at a time, and what their answers mean out here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import msgspec

from ..errors import InputError
from ..types import Failure, Fault, Json
from .box import Local, Sandbox
from .inside import worker
from .limits import CallResult, Limits
from .process import ZygoteLost, ZygoteProcess
from .staging import Source, arguments, entry_of, files_of

PROGRAM, EVALUATOR = "program", "evaluator"
"""The modules that a co-resident pair becomes."""


class ProgramSession:
    """One loaded program that answers call after call; what it remembers between them is its own.

    A call that ends the program (a timeout, a crash) is its answer to all further calls, too: open
    it again to go on with the next input.
    """

    def __init__(self, pool: UncheckedPool, zygote: ZygoteProcess, opening: bytes) -> None:
        self._pool, self._zygote = pool, zygote
        self._opening = [opening]
        self._ended = False
        self._lost = ""
        self.co_resident = False

    async def call(
        self,
        args: Sequence[Json] = (),
        kwargs: Mapping[str, Json] | None = None,
        *,
        seconds: float | None = None,
        last: bool = False,
    ) -> CallResult:
        """The program's answer to one input; the same as `Pool.call`.

        Args:
            last: end the program with this call, rather than by a message of its own afterwards.
        """
        return (await self._calls([arguments(args, kwargs)], seconds, b"l" if last else b"c"))[0]

    async def calls(self, inputs: Sequence[Sequence[Json]]) -> list[CallResult]:
        """The results of one call after the other, the same as `call` on each of the inputs.

        All inputs are sent at once, so that neither side waits for the other between two calls.

        Args:
            inputs: the arguments of each call.
        """
        return await self._calls([arguments(args, None) for args in inputs], None, b"c")

    async def _calls(
        self, inputs: Sequence[bytes], seconds: float | None, kind: bytes, stream: Any = None
    ) -> list[CallResult]:
        if self._ended:
            raise InputError("this session was closed by the previous call; open a new one")
        limits = self._pool.sandbox.limits
        allowed = limits.wall_seconds if seconds is None else min(seconds, limits.wall_seconds)
        if not allowed > 0:
            raise InputError(f"seconds={seconds!r}: it must be above 0")
        results: list[CallResult] = []
        try:
            if not self._lost:
                # Sixteen characters, which the zygote cuts off by position.
                head = kind + f"{allowed:16.6f}".encode()
                # The event loop takes answers in meanwhile, so no full socket holds the zygote up.
                self._zygote.send(*self._opening, *(head + call for call in inputs))
                self._opening, self._ended = [], kind == b"l"
                for _ in inputs:
                    meta, body = await self._zygote.ask(allowed, stream)
                    results.append(self._result(**_judged(meta, body, allowed, limits)))
        except ZygoteLost as error:
            self._lost = str(error)
            self._zygote.kill()
        except BaseException:
            # Cancelled in the middle: what the zygote says next would be taken for the next answer.
            self._zygote.kill()
            self._lost = "the call was cancelled"
            raise
        lost = [self._result(failure=Failure(Fault.SANDBOX, "SandboxLost", self._lost))] if self._lost else []
        return results + lost * (len(inputs) - len(results))

    def end(self) -> None:
        """End the program; `Pool.open` does it."""
        if self._zygote.alive and not self._opening and not self._ended:
            self._zygote.send(b"e")

    def _result(self, **fields: Any) -> CallResult:
        trusted = self._pool.sandbox.trusted_only
        return CallResult(co_resident=self.co_resident, trusted_only=trusted, **fields)


class UncheckedPool:
    """A Pool that has not been attacked, in which the attacks themselves run.  Use `Pool`."""

    def __init__(
        self,
        sandbox: Sandbox | Local | Limits | None = None,
        *,
        modules: Sequence[str] = (),
        workers: int = 1,
    ) -> None:
        if isinstance(sandbox, Limits):
            sandbox = Sandbox(limits=sandbox)
        if workers < 1:
            raise InputError(f"workers={workers}: a pool needs at least one")
        self.sandbox: Sandbox | Local = sandbox if sandbox is not None else Sandbox()
        self.modules, self.workers = tuple(modules), workers
        self._idle: list[ZygoteProcess] = []
        self._all: set[ZygoteProcess] = set()
        self._slots = asyncio.Semaphore(workers)

    async def _admit(self) -> None:
        """Checks before anything is run; none here."""

    async def __aenter__(self) -> Self:
        """Start the first process.

        Raises:
            SandboxError: it cannot be shut in here, or an attack succeeded; says how to mend it.
        """
        async with self._zygote(None):
            return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the pool, whatever it is doing."""
        for zygote in self._all:
            zygote.kill()
        self._all.clear()
        self._idle.clear()

    async def call(
        self,
        source: Source,
        entry: str,
        args: Sequence[Json] = (),
        kwargs: Mapping[str, Json] | None = None,
        *,
        seconds: float | None = None,
    ) -> CallResult:
        """Call one function of staged code on one input, in a process of its own.

        Args:
            source: text of a module, a folder, or path → text; nothing else of the host is seen.
            entry: `module:function`; a bare name is looked up in the module given as text.
            args: JSON values, as are those of `kwargs`; never the answer.
            seconds: a shorter time limit than the sandbox's.

        Returns:
            A CallResult; whatever the code does is data in it.

        Raises:
            InputError: an argument that cannot cross as JSON, or a name that is none.
        """
        call, spec = arguments(args, kwargs), _spec(source, entry_of(entry), "call")
        return await self._once(spec, call, seconds)

    async def pair(
        self, program: Source, evaluator: Source, *, function: str = "evaluate", seconds: float | None = None
    ) -> CallResult:
        """Run an evaluator of the form `evaluate(path_of_the_program)` beside the program itself.

        Args:
            program: text of a program, staged as `program.py`, or files with a `program.py` among them.
            evaluator: text, staged as `evaluator.py`, or files with an `evaluator.py` among them.
            function: which of the evaluator's functions, `evaluate_stage1` for instance.

        Returns:
            A CallResult whose value is `{"metrics": {...}, "artifacts": {...}}`, and which is marked
            co-resident: the program could have written it, so it steers a search and promotes nothing.
        """
        files = {**_named(program, PROGRAM), **_named(evaluator, EVALUATOR)}
        spec = _spec(files, entry_of(f"{EVALUATOR}:{function}"), "pair")
        return await self._once(spec, arguments([f"{PROGRAM}.py"], None), seconds, co_resident=True)

    @asynccontextmanager
    async def open(self, source: Source, entry: str) -> AsyncIterator[ProgramSession]:
        """A program that stays loaded between calls and occupies one worker until it is left."""
        spec = _spec(source, entry_of(entry), "call")
        self._prepare(spec)
        async with self._zygote() as zygote:
            session = ProgramSession(self, zygote, b"o" + spec)
            try:
                yield session
            finally:
                session.end()

    async def script(
        self,
        source: Source,
        path: str,
        argv: Sequence[str] = (),
        *,
        stream: Callable[[str, bytes], None] | None = None,
    ) -> CallResult:
        """Run a staged file as `__main__`; the value is its exit code.

        Args:
            path: which of the staged files.
            stream: called with `o` or `e` and the printed bytes, as they come.
        """
        spec = _spec(source, path, "script", argv)
        result = await self._once(spec, b"[[], {}]", None, stream=stream)
        if result.exit_code is None or result.killed_by is not None:
            return result
        return replace(result, value=result.exit_code, failure=None)

    async def processes(self) -> list[int]:
        """Ids of the processes inside one of the pool's zygotes, itself and the evaluation it keeps ready."""
        async with self._zygote(None) as zygote:
            return await zygote.census()

    async def bounded(self) -> tuple[int, str]:
        """Bytes that an evaluation cannot exceed with all its processes, and what holds them there, in words."""
        async with self._zygote(None) as zygote:
            return zygote.bound, zygote.bounded()

    async def _once(
        self,
        spec: bytes,
        call: bytes,
        seconds: float | None,
        *,
        co_resident: bool = False,
        stream: Any = None,
    ) -> CallResult:
        self._prepare(spec)  # before a zygote is chosen: one with other modules is replaced
        async with self._zygote(co_resident) as zygote:
            session = ProgramSession(self, zygote, (b"o" if stream is None else b"s") + spec)
            session.co_resident = co_resident
            return (await session._calls([call], seconds, b"l", stream))[0]

    @asynccontextmanager
    async def _zygote(self, co_resident: bool | None = False) -> AsyncIterator[ZygoteProcess]:
        """One of the zygotes, started if need be, for as long as the block lasts.

        What an evaluator beside its program holds passes through its zygote's memory, so none that has
        served such a pair forks a program that is judged from outside.

        Args:
            co_resident: True for an evaluator beside its program, False for a program; None for neither.
        """
        await self._admit()
        async with self._slots:
            zygote = await self._fitting(co_resident)
            if co_resident is not None:
                zygote.co_resident = co_resident
            try:
                yield zygote
            finally:
                if zygote.alive:
                    self._idle.append(zygote)
                else:
                    self._all.discard(zygote)

    def _prepare(self, spec: bytes) -> None:
        """From now on start processes with an event loop loaded if the staged code may want one."""
        if b"async" in spec and "asyncio" not in self.modules:
            # Never taken out again: each change of the modules replaces all processes that are warm.
            self.modules = (*self.modules, "asyncio")

    async def _fitting(self, co_resident: bool | None) -> ZygoteProcess:
        for spare in [spare for spare in self._idle if not spare.alive or spare.modules != self.modules]:
            self._idle.remove(spare)
            self._all.discard(spare)
            spare.kill()
        for spare in self._idle:
            if co_resident is None or spare.co_resident in (co_resident, None):
                self._idle.remove(spare)
                return spare
        zygote = ZygoteProcess(self.sandbox, self.modules)
        await zygote.start()
        self._all.add(zygote)
        return zygote


def _spec(source: Source, entry: str, mode: str, argv: Sequence[str] = ()) -> bytes:
    spec = {"files": files_of(source), "entry": entry, "mode": mode, "argv": list(argv)}
    return msgspec.json.encode(spec)


def _named(source: Source, module: str) -> Mapping[str, str | bytes]:
    if isinstance(source, str):
        return {f"{module}.py": source}
    if isinstance(source, Mapping):
        return source
    raise InputError(f"the {module} of a pair is given as text or as path → text, not as a folder")


def _judged(meta: dict[str, Any], body: bytes, allowed: float, limits: Limits) -> dict[str, Any]:
    """The zygote's report on a call, as the fields of a CallResult."""
    fields: dict[str, Any] = {
        "seconds": meta["seconds"],
        "cpu_seconds": meta["cpu"],
        "stdout": meta["printed"],
    }
    if meta.get("broken"):
        return fields | {"failure": Failure(Fault.SANDBOX, "SandboxBroken", meta["broken"])}
    if meta["answered"]:
        return fields | _answer(body, limits)
    killed = meta["killed"]
    if killed.startswith("exit "):
        message = f"the program ended its process with code {killed[5:]} before it answered"
        return fields | {"failure": Failure(Fault.AGENT, "Ended", message), "exit_code": int(killed[5:])}
    name, message = {
        "wall": ("Timeout", f"no answer within {allowed:g} s"),
        "cpu": ("CpuLimit", f"more than {limits.cpu_seconds:g} s of CPU time"),
        "memory": ("MemoryLimit", f"more than {limits.memory:,} bytes of memory in all processes together"),
        "output": ("OutputLimit", f"more than {limits.output_bytes:,} bytes printed or answered"),
    }.get(killed, ("Killed", f"the process was killed by {killed}"))
    return fields | {"failure": Failure(Fault.AGENT, name, message), "killed_by": killed}


def _answer(body: bytes, limits: Limits) -> dict[str, Any]:
    """The program's answer; nothing in it is believed but that the program gave it."""
    kind, text = body[:1], body[1:]
    try:
        if kind in (worker.VALUE, worker.ENDED):
            return {"value": msgspec.json.decode(text)}
        if kind == worker.REFUSED:
            return {"failure": Failure(Fault.AGENT, "CannotCross", msgspec.json.decode(text, type=str))}
        if kind == worker.RAISED:
            raised = msgspec.json.decode(text, type=dict[str, str])
            where = f" ({raised['where']})" if raised.get("where") else ""
            message, killed = raised["message"], {}
            if raised["type"] == "MemoryError":
                message, killed = message or f"more than {limits.memory:,} bytes", {"killed_by": "memory"}
            return {"failure": Failure(Fault.AGENT, raised["type"], f"{message}{where}"), **killed}
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        return {"failure": Failure(Fault.AGENT, "Garbled", f"the answer is not what was promised: {error}")}
    return {"failure": Failure(Fault.AGENT, "Garbled", "the answer is not what was promised")}
