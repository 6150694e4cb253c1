"""The notes taken while a call runs, and the Trajectory made of them afterwards.

The notes are mutable and cheap; `trajectory` turns them into the noun, on the writer's thread
or, inside `collecting()`, at the end of the call.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from ...errors import PermissionDenied
from ...escapes import clean
from ...types import Bundle, Failure, Fault, Json, Outcome, Step, Task, Tokens, Trajectory, Usage, new_id
from ..faults import fault_of
from ..store.trials import TRIALS
from .encode import flat, freeze, mark, raw, thaw
from .kinds import name_of

V = TypeVar("V")

STARTED = "started"
"""In a step's info, Unix time in seconds: where the process is one run of `whet run`."""
RUN = "WHET_RUN"
"""Variable with the id of the run that a whole program is, as `whet run` sets it."""
DEPLOYED = "WHET_DEPLOYED"
"""Variable with the Versions that the program's code is, as `whet run --deployed` sets it: resource → id, as JSON."""
INSIDE = "."
"""Between the id of a program's run and the rest of the id of a run inside it."""


@dataclass(slots=True)
class Run:
    """Handle of what happens inside `with run()`; feedback refers to its `id`."""

    id: str = field(default_factory=lambda: new_run(process_run()))
    session: str | None = None
    subject: str | None = None
    _unused: list[bool] = field(default_factory=lambda: [True])

    @property
    def headers(self) -> dict[str, str]:
        """Headers that a model call inside may send, so that the gateway's record of it is certain to be this run's.

        Needed only where runs overlap in one program: `whet run` tells calls apart by their times.  A
        session or subject that cannot stand in a header (not printable ASCII) is left out; it stays
        in the trace.

        >>> with whet.run(subject="ada") as run:
        ...     client.chat.completions.create(..., extra_headers=run.headers)
        """
        headers = {"x-whet-run": self.id, "x-whet-session": self.session, "x-whet-subject": self.subject}
        return {key: text for key, text in headers.items() if text and text.isascii() and text.isprintable()}

    def first(self) -> bool:
        """True once: the first call in a run takes the run's id as its own."""
        try:
            # list.pop is one step for the interpreter: of several threads that ask at once, one gets True.
            return self._unused.pop()
        except IndexError:
            return False


def new_run(inside: str | None = None) -> str:
    """A fresh id for a run, or for one inside another: the token of a program reaches the runs inside its own."""
    return new_id() if inside is None else f"{inside}{INSIDE}{new_id()}"


def process_run() -> str | None:
    """The run that this whole process is, as `whet run` tells it; its gateway calls carry the same id."""
    return os.environ.get(RUN) or None


@lru_cache(8)
def _versions_in(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        return {}  # somebody else's variable: a program goes on without


def deployed_versions() -> dict[str, str]:
    """The Versions that this program's code is, where it was deployed as a candidate; empty otherwise."""
    text = os.environ.get(DEPLOYED)
    return dict(_versions_in(text)) if text else {}


class CallSite:
    """Facts about a function before it is called."""

    __slots__ = ("by_name", "evolved", "method", "name", "names", "origin")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        evolved: bool = False,
        by_name: bool = False,
    ) -> None:
        self.name: str = name or name_of(function)
        self.by_name = by_name
        """A single argument is recorded with its name, too: a tool's, as a model's call of it has them."""
        self.evolved = evolved
        """It is known here as what `@evolve` made of it."""
        self.origin = inspect.unwrap(function)
        """The function under all its decorators."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        self.method = bool(parameters) and parameters[0].name in ("self", "cls")
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.names = [parameter.name for parameter in parameters if parameter.kind in positional]

    def freeze(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The arguments as they are now."""
        if not kwargs:
            # `map`, not a comprehension, which costs a frame of its own before Python 3.12.
            return args if flat(map(type, args)) else (list(map(freeze, args)), {}, None)
        return list(map(freeze, args)), dict(zip(kwargs, map(freeze, kwargs.values()), strict=True)), None

    def observation(self, frozen: Any, read: Callable[[Any], Json]) -> Json:
        """The single argument itself, unless `by_name`, or name → value.

        A positional argument that has no name, or whose name a keyword has, is `args[PLACE]`.
        """
        keywords: dict[str, Any] = {}
        positional: Sequence[Any] = frozen
        # `freeze` returns bare arguments only if none can change, so a list in front marks the other form.
        if len(frozen) == 3 and type(frozen[0]) is list:
            positional, keywords, _ = frozen
        names = self.names
        if self.method and positional:
            positional, names = positional[1:], names[1:]
        if len(positional) == 1 and not keywords and not self.by_name:
            return read(positional[0])
        values = {}
        for number, value in enumerate(positional):
            named = number < len(names) and names[number] not in keywords
            values[names[number] if named else f"args[{number}]"] = read(value)
        return values | {clean(key): read(value) for key, value in keywords.items()}


# Structs without the collector's attention: of three calls in a hundred the slowest part was a collection that their
# notes had set off.  No note may refer to what leads back to it, for nothing would free the two.


class StepNote(msgspec.Struct, eq=False, gc=False):
    """One step under way.  Set `action`, `reward`, `tokens`, `usage`, `info` inside the `with` block."""

    name: str
    kind: str
    parent: StepNote | None
    agent: str = ""
    called: CallSite | None = None
    frozen: Any = None
    observation: Any = None
    action: Any = None
    reward: float | None = None
    tokens: Tokens | None = None
    usage: Usage | None = None
    info: Mapping[str, Any] | None = None
    error: Failure | None = None
    started: float = 0.0
    ended: float = 0.0

    def step(
        self, number: int, parent: str | None, read: Callable[[Any], Json], clock: float | None = None
    ) -> Step:
        """The noun; with `clock`, Unix time less the performance counter, it says when it began."""
        info = msgspec.json.decode(self.info) if isinstance(self.info, msgspec.Raw) else self.info or {}
        if clock is not None:
            info = {**info, STARTED: clock + self.started}
        return Step(
            observation=read(self.observation)
            if self.called is None
            else self.called.observation(self.frozen, read),
            action=read(self.action),
            reward=self.reward,
            kind=self.kind,
            name=self.name,
            agent=self.agent,
            id=str(number),
            parent=parent,
            tokens=self.tokens,
            usage=self.usage,
            latency=self.ended - self.started if self.ended else None,
            error=self.error,
            info=info,
        )


class CallNote(msgspec.Struct, eq=False, gc=False):
    """One traced call under way."""

    called: CallSite
    frozen: Any
    run: Run | None
    sink: Any
    id: str
    """Of its trajectory, where the run has one for it; else one is made when the call has ended."""
    started: float
    ended: float = 0.0
    steps: list[StepNote] = []
    versions: dict[str, str] | None = None
    bundle: Bundle | None = None
    """Live at its first read of a resource: one call is one agent, though a release comes meanwhile."""
    trials: Mapping[str, Json] | None = None
    """The canaries that it was drawn for then, as `meta` has them."""
    action: Any = None
    error: Failure | None = None

    def used(self, resource: str, version: str) -> None:
        """Note which Version of a resource was read."""
        if self.versions is None:
            self.versions = {resource: version}
        else:
            self.versions[resource] = version


class Frame(msgspec.Struct, eq=False, gc=False):
    """The place of the code that runs: the traced call, if any, and the innermost step."""

    call: CallNote | None
    step: StepNote | None


current: ContextVar[Frame | None] = ContextVar("whet_frame", default=None)
current_run: ContextVar[Run | None] = ContextVar("whet_run", default=None)
collector: ContextVar[Collection | None] = ContextVar("whet_collector", default=None)
timed: ContextVar[bool] = ContextVar("whet_timed", default=False)
"""True where steps record when they began although the process is not a run of `whet run`: in a worker."""
current_rollout: ContextVar[str | None] = ContextVar("whet_rollout", default=None)
"""Id of the rollout under way: the trajectory that will be recorded of it."""


@contextmanager
def setting(variable: ContextVar[Any], value: V) -> Iterator[V]:
    """Have a context variable hold `value` for a block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


class Collection:
    """The records that `collecting()` gathers: finished calls, and steps outside any call."""

    __slots__ = ("loose", "records")

    def __init__(self) -> None:
        self.records: list[Trajectory | Step] = []
        self.loose: list[StepNote] = []


def blame(error: BaseException) -> Failure:
    """An exception as data."""
    try:
        message = clean(str(error))
    except Exception:
        message = mark(error)["$repr"]
    return Failure(fault_of(error), type(error).__name__, message[:10_000])


def outcome(failure: Failure | None) -> Outcome:
    """A return is unjudged, an exception of the agent's a failure, a closed or cancelled call truncated.

    A call that the permissions denied, and that the agent did not catch, blocked the run.
    """
    if failure is None:
        return Outcome.UNKNOWN
    if failure.fault is not Fault.AGENT:
        return Outcome.INFRASTRUCTURE_ERROR
    # By name: a Failure is data, and one that was read from spans was an exception in another process.
    if failure.type in ("GeneratorExit", "CancelledError", "KeyboardInterrupt", "SystemExit"):
        return Outcome.TRUNCATED
    return Outcome.BLOCKED if failure.type == PermissionDenied.__name__ else Outcome.FAILURE


def trajectory(note: CallNote, *, encoded: bool) -> Trajectory:
    """The noun made of a finished call.

    Args:
        encoded: leave what was encoded at the call as JSON bytes (`msgspec.Raw`), for a writer
            that will only encode it again; else decode it.
    """
    read = raw if encoded else thaw
    # Thawed even where `encoded`: an instruction is text, not bytes.
    observation = note.called.observation(note.frozen, thaw)
    instruction = observation if isinstance(observation, str) else msgspec.json.encode(observation).decode()
    meta: dict[str, Json] = {"function": note.called.name}
    program_run = process_run()
    if note.run is not None or program_run is not None:
        meta["run"] = note.run.id if note.run is not None else program_run
    if program_run is not None and note.run is not None:
        meta["process_run"] = program_run
    if note.trials:
        meta[TRIALS] = dict(note.trials)
    # Where the gateway records too, its calls are told by their times which step they were made in.
    return Trajectory(
        id=note.id or fresh_id(note),
        task=Task(instruction=instruction, meta={"function": note.called.name}),
        steps=steps(note.steps, read, clock()),
        output=read(note.action),
        versions={**deployed_versions(), **(note.versions or {})},
        outcome=outcome(note.error),
        error=note.error,
        session=note.run.session if note.run else None,
        subject=note.run.subject if note.run else None,
        started=note.started,
        seconds=note.ended - note.started,
        meta=meta,
    )


def fresh_id(note: CallNote) -> str:
    """An id as `new_id` makes it, but of the time of the call: ids sort by when runs began, not were written."""
    return f"{int(note.started * 1000):012x}{os.urandom(6).hex()}"


def clock() -> float | None:
    """Unix time less the performance counter, None where no gateway's calls are told apart by it."""
    # On the writer's thread `timed` is never set, for a new thread begins with an empty context.
    return time.time() - time.perf_counter() if timed.get() or process_run() is not None else None


def steps(
    notes: Sequence[StepNote], read: Callable[[Any], Json], clock: float | None = None
) -> tuple[Step, ...]:
    """Notes as Steps, numbered in the order in which they began; `clock` as in `StepNote.step`."""
    numbers = {id(note): number for number, note in enumerate(notes)}
    numbered = []
    for number, note in enumerate(notes):
        above = numbers.get(id(note.parent)) if note.parent is not None else None
        numbered.append(note.step(number, None if above is None else str(above), read, clock))
    return tuple(numbered)
