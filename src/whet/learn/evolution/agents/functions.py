"""Functions marked with `@whet.evolve` in this process: cut out as text, and called as candidates in the sandbox.

The agent around a function stays in its process; only the candidate's function runs elsewhere, and is called by
JSON.  A value that JSON cannot carry is refused with the reason.  Each call has a process of its own, so that
nothing a candidate remembers reaches from one rollout into another.
"""

from __future__ import annotations

import asyncio
import builtins
import inspect
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from pathlib import Path
from typing import Any

from ....errors import InputError, SandboxError, WhetError
from ....record.tracing.resources import FunctionResource, register_loader
from ....sandbox import CallResult, Limits, Local, Pool, Sandbox
from ....sandbox.check import require
from ....types import Failure, Fault, Version
from ...datasets.callee import RUNNER, staged
from ..editing.program import Program
from .agent import RepositoryAgent
from .holding import CandidateCallFailed

_CALLS_AT_ONCE = 2
_IDLE_SECONDS = 10.0
"""After so long without a call the processes end; the next call starts them again."""


class Functions:
    """Cuts functions out of their files, and calls candidates of them.

    Args:
        sandbox: where candidates run; `Local()` for code that one trusts.
        raising: makes the exception that a failed call raises.
    """

    def __init__(
        self,
        sandbox: Sandbox | Local | None = None,
        *,
        raising: Callable[[Failure], Exception] = CandidateCallFailed,
    ) -> None:
        self._raising = raising
        self.sandbox = sandbox or Sandbox(limits=Limits(wall_seconds=10.0, cpu_seconds=10.0, processes=64))
        self._agents: weakref.WeakKeyDictionary[Callable[..., Any], RepositoryAgent] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Pool | None = None
        self._calls = 0
        self._closing: asyncio.TimerHandle | None = None

    def text(self, handle: FunctionResource) -> str:
        """The function's source, without its decorators.

        Raises:
            InputError: it cannot be cut out, or called from outside; says why.
        """
        return self._agent(handle.function).pieces[0].text

    def use(self, handle: FunctionResource) -> None:
        """Run Versions of this function's kind in the sandbox, from now on and in this process."""
        register_loader(handle.kind, self.load)

    def load(self, version: Version, original: Callable[..., Any]) -> Callable[..., Any]:
        """A Version as something to call; the original where it is the same text.

        Raises:
            InputError: as `text`, or a text that cannot take the function's place.
        """
        agent = self._agent(original)
        piece, name = agent.pieces[0], next(iter(agent.callees))
        if not isinstance(version.content, str) or version.content == piece.text:
            return original
        target = agent.target(name)
        files = staged(target.build(Program({piece.part: version.content}, piece.part)), target.entry)

        def called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[CallResult]:
            return self._submit(files, [list(args), kwargs, {}])

        if inspect.iscoroutinefunction(original):

            @wraps(original)
            async def later(*args: Any, **kwargs: Any) -> Any:
                return self._value(await asyncio.wrap_future(called(args, kwargs)))

            return later

        @wraps(original)
        def now(*args: Any, **kwargs: Any) -> Any:
            # It blocks the caller's thread; the pool goes on, for its loop runs in a thread of its own.
            return self._value(called(args, kwargs).result())

        return now

    def ready(self) -> None:
        """Make sure that there is a sandbox here, from any thread.

        Raises:
            SandboxError: there is none, or an attack on it succeeded; names the fix.
        """
        asyncio.run_coroutine_threadsafe(require(self.sandbox), self._running()).result()

    def _agent(self, function: Callable[..., Any]) -> RepositoryAgent:
        """The repository of a function, with it as the only target."""
        if function not in self._agents:
            path, name = inspect.getsourcefile(function), function.__qualname__
            if path is None or not Path(path).is_file():
                raise InputError(f"{name} has no source file, so there is no text of it to change")
            if "<locals>" in name:
                raise InputError(
                    f"{name} is defined inside another function, which does not exist in the sandbox: "
                    "mark a function of a module"
                )
            if "." in name:
                raise InputError(
                    f"{name} is a method, whose `self` cannot cross as JSON: mark a function that it calls with "
                    "plain values"
                )
            root = Path(path).resolve().parent
            while (root / "__init__.py").is_file():
                root = root.parent
            inside = Path(path).resolve().relative_to(root).as_posix()
            self._agents[function] = RepositoryAgent(root, [f"{inside}:{name}"])
        return self._agents[function]

    def _submit(self, files: dict[str, str | bytes], args: list[Any]) -> Future[CallResult]:
        """Call from any thread and any event loop: the pool lives in a loop of its own."""
        return asyncio.run_coroutine_threadsafe(self._called(files, args), self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="whet-functions", daemon=True).start()
            return self._loop

    async def _called(self, files: dict[str, str | bytes], args: list[Any]) -> CallResult:
        if self._closing is not None:
            self._closing.cancel()
        if self._pool is None:
            # No lock: all calls come through the one loop, and nothing is awaited before.
            self._pool = Pool(self.sandbox, workers=_CALLS_AT_ONCE)
        self._calls += 1
        try:
            return await self._pool.call(files, f"{RUNNER}:call", args)
        finally:
            self._calls -= 1
            if not self._calls:
                # There is no last rollout: a gate follows the search, and live traffic the gate.
                self._closing = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._close)

    def _close(self) -> None:
        if self._pool is not None and not self._calls:
            self._pool.close()
            self._pool = None

    def _value(self, result: CallResult) -> Any:
        if result.failure is not None:
            raise self._raising(result.failure)
        return result.value


def _raised(failure: Failure) -> Exception:
    """The exception that a released function would have raised in the agent's own process."""
    if failure.fault is Fault.SANDBOX:
        return SandboxError(failure.message)
    if failure.type == "CannotCross":
        return InputError(failure.message)
    kind = getattr(builtins, failure.type, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(failure.message)
    return CandidateCallFailed(failure)


_served = Functions(raising=_raised)
"""For the functions that a server has released."""


def isolated(version: Version, original: Callable[..., Any]) -> Callable[..., Any]:
    """A released Version as a function whose every call runs in the sandbox.

    Raises:
        InputError: as `Functions.load`.
        SandboxError: there is no sandbox here.
    """
    called = _served.load(version, original)
    if called is not original:
        _served.ready()
    return called


def refusal(handle: object) -> str:
    """Why no candidate can take the place of a declared function, a method for instance; "" where one can."""
    if isinstance(handle, FunctionResource):
        try:
            Functions().text(handle)
        except WhetError as error:
            return str(error)
    return ""
