"""The calls of a traced program: `@trace`, `@step`, `run()`, `feedback`, `collecting()` and `propagate`.

One call of a traced function is one Trajectory; a traced function called inside another is a
step of it.  Context variables keep concurrent runs apart.  Recording never changes what
the function returns or raises.  It does not talk to a model or read OpenTelemetry.
"""

from __future__ import annotations

import contextvars
import functools
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from msgspec import UNSET

from ...escapes import clean
from ...types import Feedback, Json, Step, Trajectory
from ..permissions.reversing import Reverse
from ..store import Store
from ..tools import Effect, effect_of
from .encode import IMMUTABLE, flat, freeze, thaw
from .guarded import guarded
from .kinds import decorated, dressed, driving, kind_of
from .labels import Kind, check_feedback, feedback_kind
from .record import (
    CallNote,
    CallSite,
    Collection,
    Frame,
    Run,
    StepNote,
    blame,
    clock,
    collector,
    current,
    current_rollout,
    current_run,
    setting,
    steps,
    timed,
    trajectory,
)
from .replay import answerable
from .sink import Sink, sink_for

_NOWHERE = Frame(None, None)
_NO_CALL = StepNote("", "", None)

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


@overload
def trace(target: F, /) -> F: ...
@overload
def trace(
    target: Store | str | os.PathLike[str] | None = None, /, *, name: str | None = None
) -> Callable[[F], F]: ...
def trace(target: Any = None, /, *, name: str | None = None) -> Any:
    """Record each call of a function, sync, async or generator, as one Trajectory.

    `@trace` records to the default store (`record_to`), `@trace(store)` to a Store or the one
    at a path.  The task's instruction is the argument, if it is one text, else the JSON of name →
    value; the output is what was returned, or the list of what was yielded.  An exception is
    recorded and raised unchanged.  The traced function is of the same kind, so that frameworks await or
    iterate it as before: the run of an async function begins when it is awaited, that of a generator with
    its first value, and ends when it is exhausted or closed.  Methods, static and class methods on either
    side of their decorator, partials and objects with `__call__` are traced alike.

    >>> @trace(store)
    ... def agent(question: str) -> str: ...

    Raises:
        InputError: it is given a class, or what cannot be called.
    """
    bare = target is not None and not isinstance(target, Store | str | os.PathLike)
    store = None if bare else target

    def mark(function: Any) -> Any:
        return decorated(function, "@whet.trace", lambda inner: _trace(inner, store, name))

    return mark(target) if bare else mark


def _trace(function: Any, target: Any, name: str | None) -> Any:
    called = CallSite(function, name)
    sink = sink_for(target) if target is not None else None

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[CallNote | StepNote, Frame]:
        frozen = args if not kwargs and flat(map(type, args)) else called.freeze(args, kwargs)
        above = current.get()
        if above is not None and above.call is not None:
            note = StepNote(called.name, "agent", above.step, "", called, frozen)
            above.call.steps.append(note)
            note.started = perf_counter()
            return note, Frame(above.call, note)
        run = current_run.get()
        id = run.id if run is not None and run.first() else ""
        call = CallNote(called, frozen, run, sink, id, time.time())
        return call, Frame(call, None)

    traced = wrap(function, begin)
    traced.whet_sink = sink or sink_for
    return traced


def recorded_in(function: Any) -> Store | str | None:
    """The store, or its path, that a function's `@trace` records to; None if it has none."""
    sink_or_finder = getattr(function, "whet_sink", None)
    if sink_or_finder is None:
        return None
    sink: Sink = sink_or_finder if isinstance(sink_or_finder, Sink) else sink_or_finder(None)
    return sink.target


def _opened(note: StepNote, call: CallNote | None) -> Frame:
    """Begin a step in a call, or loose in what collects."""
    if call is not None:
        call.steps.append(note)
    else:
        gathering = collector.get()
        if gathering is not None:
            gathering.loose.append(note)
    note.started = perf_counter()
    return Frame(call, note)


class _StepScope:
    """The return value of `step(name, ...)`: a context manager, used once, or a decorator."""

    __slots__ = ("_agent", "_effect", "_kind", "_name", "_note", "_observation", "_reverse", "_token")

    def __init__(
        self,
        name: str | None,
        kind: str,
        observation: Any,
        agent: str,
        effect: Effect | None,
        reverse: Reverse | None,
    ) -> None:
        self._name = name
        self._kind = kind
        self._observation = observation
        self._agent = agent
        self._effect = effect
        self._reverse = reverse

    def __call__(self, function: F) -> F:
        return _stepped(function, self._name, self._kind, self._agent, self._effect, self._reverse)

    def __enter__(self) -> StepNote:
        above = current.get() or _NOWHERE
        note = StepNote(self._name or "", self._kind, above.step, self._agent)
        note.observation = freeze(self._observation)
        self._note = note
        self._token = current.set(_opened(note, above.call))
        return note

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current.reset(self._token)
        note = self._note
        note.action = freeze(note.action)
        if note.info is not None:
            note.info = freeze(note.info)
        if error is not None:
            note.error = blame(error)
        finish(note)


@overload
def step(target: F, /) -> F: ...
@overload
def step(
    target: str | None = None,
    /,
    *,
    kind: str = ...,
    observation: Json = ...,
    agent: str = ...,
    effect: Effect | None = ...,
    reverse: Reverse | None = ...,
) -> _StepScope: ...
def step(
    target: Any = None,
    /,
    *,
    kind: str = "function",
    observation: Json = None,
    agent: str = "",
    effect: Effect | None = None,
    reverse: Reverse | None = None,
) -> Any:
    """Record a step of the traced call that runs: a decorator, or a context manager.

    Steps nest: each knows the one around it.  Outside a traced call and `collecting()` nothing
    is recorded.  Inside the `with` block set `action`, `reward`, `tokens`, `usage` and `info`.

    >>> @step(kind="tool", effect="read")
    ... def search(words: list[str]) -> list[str]: ...
    >>> with step("answer", kind="llm", observation=prompt) as now:
    ...     now.action = model(prompt)

    Args:
        target: the name; the function's own if it decorates one.
        kind: `llm`, `tool`, `agent`, `function`, `action`.
        observation: what was seen; a decorated function's is its arguments: name → value, or the value
            itself where there is one, unless it is a tool.
        agent: the one of several agents that took it.
        effect: of a tool on the world: `read`, `idempotent` or `write`; none counts as write.  A recorded
            run can be replayed without calling its tools (`tracing.Replay`), and this says what a call
            that was not recorded may get.
        reverse: of a tool: `reverse(result, **arguments)` takes back what a call did (`permissions`).

    Raises:
        InputError: no such effect, or it is given a class or what cannot be called.
    """
    effect = effect_of(effect)
    if target is not None and not isinstance(target, str):
        return _stepped(target, None, kind, agent, effect, reverse)
    return _StepScope(target, kind, observation, agent, effect, reverse)


def _stepped(
    function: F,
    name: str | None,
    kind: str,
    agent: str,
    effect: Effect | None,
    reverse: Reverse | None = None,
) -> F:
    marked: F = decorated(
        function, "@whet.step", lambda inner: _step(inner, name, kind, agent, effect, reverse)
    )
    return marked


def _step(
    function: Any,
    name: str | None,
    kind: str,
    agent: str,
    effect: Effect | None,
    reverse: Reverse | None = None,
) -> Any:
    called = CallSite(function, name, by_name=kind == "tool")
    # Permissions before a replay: a candidate on recorded answers is held to them as it would be in production.
    inner = function
    if kind == "tool":
        inner = guarded(answerable(function, called, effect), called, effect, reverse)
    stepped = _recording(inner, called, kind, agent)
    stepped.whet_step = (called.name, kind, agent)
    return stepped


def evolving(function: Any) -> Any:
    """A function whose implementation may change, each call of which is a step, whichever implementation answers.

    Where `@step` or `@trace` marks the same function, there is one record of a call: as the step says, or the traced
    call itself.
    """
    name, kind, agent = getattr(function, "whet_step", (None, "function", ""))
    called = CallSite(function, name, evolved=True, by_name=kind == "tool")
    return _recording(function, called, kind, agent)


def _recording(function: Any, called: CallSite, kind: str, agent: str) -> Any:
    name, origin = called.name, called.origin

    # One function, though a reader would rather see three: a call of another is a tenth of what a step may cost.
    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[StepNote, Frame] | None:
        above = current.get()
        if above is None:
            if collector.get() is None:
                return None
            above = _NOWHERE
        call, around = above.call, above.step
        outer = (around or call or _NO_CALL).called
        # The innermost record is of this very call: made by another decorator, where one of the two is evolve.  The
        # same decorator on the way in once more is a function that calls itself.
        if (
            outer is not None
            and outer.origin is origin
            and outer is not called
            and (outer.evolved or called.evolved)
        ):
            return None
        frozen = args if not kwargs and flat(map(type, args)) else called.freeze(args, kwargs)
        note = StepNote(name, kind, around, agent, called, frozen)
        if call is None:
            return note, _opened(note, None)
        call.steps.append(note)
        note.started = perf_counter()
        return note, Frame(call, note)

    return wrap(function, begin)


@contextmanager
def run(*, session: str | None = None, subject: str | None = None) -> Iterator[Run]:
    """A handle on the traced calls inside: its `id` is what feedback refers to.

    The first call takes that id as its trajectory's; all carry it as `meta["run"]`.  In a rollout, of a worker or an
    Experiment, the handle is the rollout's: its `id` is that of the trajectory which will be recorded of it.
    """
    handle = Run(session=session and clean(session), subject=subject and clean(subject))
    if (rollout := current_rollout.get()) is not None:
        handle.id = rollout
        handle.first()  # the rollout's own trajectory has this id; no traced call inside may take it
    token = current_run.set(handle)
    try:
        yield handle
    finally:
        current_run.reset(token)


def feedback(
    run: str | Run | None = None,
    value: float | None = None,
    comment: str = "",
    *,
    correction: Json = UNSET,
    kind: Kind | None = None,
    step: str | None = None,
    session: str | None = None,
    store: Store | str | None = None,
) -> Feedback:
    """Record a person's feedback on a run, a step of it, or a session.

    Args:
        run: a handle, or the id of a run or trajectory; None where a session is meant.
        value: a thumb (1 or -1) or any number; None if there is only a comment or correction.
        correction: the right answer; of a preference `{"chosen": ..., "rejected": ...}`. If the right answer is
            None, set `kind="correction"` too.
        kind: None takes a value of 1 or -1 for a thumb and any other for a rating, a correction for one,
            and what has neither for a comment.
        step: id of the step that is meant.
        session: id of the conversation that is meant, instead of a run.
        store: where it goes; else where this process recorded the run, else the default store.

    Raises:
        InputError: nothing or two things are meant, or the kind lacks what makes it one.
    """
    id = run.id if isinstance(run, Run) else run or ""
    sink = sink_for(store) if store is not None else sink_of_run.get(id) or sink_for(None)
    record = Feedback(
        run=id,
        value=value,
        comment=clean(comment),
        correction=None if correction is UNSET else thaw(freeze(correction)),
        kind=feedback_kind(kind, value, correction),
        step=step,
        session=session and clean(session),
    )
    check_feedback(record)
    sink.add(record)
    return record


@contextmanager
def collecting() -> Iterator[list[Trajectory | Step]]:
    """Collect the records made inside instead of sending them to a store.

    A finished call is appended at once as a Trajectory.  Steps outside any traced call are
    appended, as Steps, when the block ends.
    """
    gathering = Collection()
    token = collector.set(gathering)
    outer = current.set(None)  # a call around this block is not the parent of what happens in it
    try:
        yield gathering.records
    finally:
        current.reset(outer)
        collector.reset(token)
        # At the end of the block: a step outside of any call has nobody who could say that it is complete.
        gathering.records.extend(steps(gathering.loose, thaw, clock()))


class _Propagating(Executor):
    """An executor whose work runs in a copy of the context that submitted it."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        # At submit: a thread of the pool has a context of its own, which begins empty.
        return self._inner.submit(propagate(fn), *args, **kwargs)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[R]:
        return self._inner.map(propagate(fn), *iterables, timeout=timeout, chunksize=chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._inner.shutdown(wait, cancel_futures=cancel_futures)


def timing() -> AbstractContextManager[bool]:
    """Let steps inside say when they began, so that the gateway's model calls find their place among them."""
    return setting(timed, True)


def in_rollout(id: str) -> AbstractContextManager[str]:
    """Let `run()` inside give the handle of the rollout with this id."""
    return setting(current_rollout, id)


@overload
def propagate(target: Executor, /) -> Executor: ...
@overload
def propagate(target: Callable[P, R], /) -> Callable[P, R]: ...
def propagate(target: Any, /) -> Any:
    """Carry the context (run, traced call, candidate Bundle) into other threads.

    Of a thread pool: a pool whose work runs in the context of its `submit`.  Of a function: one
    that runs in the context of this very call to `propagate`.  asyncio carries it by itself.
    """
    if isinstance(target, Executor):
        return _Propagating(target)
    context = contextvars.copy_context()

    @functools.wraps(target)
    def carried(*args: Any, **kwargs: Any) -> Any:
        return context.copy().run(target, *args, **kwargs)  # a context can be entered only once at a time

    return carried


# -- a function between the beginning and the end of its record ---------------------------------
#
# Sync, async, generator and async generator: what it returns, yields and raises reaches the caller unchanged, and
# the frame that its own calls belong to is in place only while its body runs.

Begin = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[CallNote | StepNote, Frame] | None"]

YIELDS = 10_000
"""Values of a generator that are recorded."""
_RUNS = 10_000
sink_of_run: OrderedDict[str, Sink] = OrderedDict()
"""Run → where it was recorded, for later feedback on it; of the newest runs."""


def finish(note: CallNote | StepNote) -> None:
    """Hand over the record of a call or a step that has ended."""
    if type(note) is StepNote:
        note.ended = perf_counter()
        return
    assert type(note) is CallNote
    note.ended = time.time()
    gathering = collector.get()
    if gathering is not None:
        gathering.records.append(trajectory(note, encoded=False))
        return
    sink = note.sink
    if sink is None:
        sink = sink_for(None)
    sink.add(note)
    if note.run is not None:
        sink_of_run[note.run.id] = sink
        if len(sink_of_run) > _RUNS:
            sink_of_run.popitem(last=False)


def wrap(function: Any, begin: Begin) -> Any:
    """`function` between `begin` and `finish`: a function of the same kind, which frameworks take for it."""
    kind = kind_of(function)
    wrapper: Callable[..., Any]
    if kind == "async":

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            # Not when it is called: a coroutine that nobody awaits has done nothing and leaves no record.
            opened = begin(args, kwargs)
            if opened is None:
                return await function(*args, **kwargs)
            return await _awaited(function, args, kwargs, opened)

    elif kind == "generator":

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            opened = begin(args, kwargs)
            if opened is None:
                return (yield from function(*args, **kwargs))
            return (yield from _generated(lambda: function(*args, **kwargs), *opened))

    elif kind == "async generator":

        def start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, _Yields | None]:
            values = function(*args, **kwargs)  # nothing of it runs yet
            opened = begin(args, kwargs)
            return values, None if opened is None else _Yields(*opened)

        wrapper = driving(start)
    else:
        wrapper = _plain(function, begin)
    return dressed(wrapper, function)


def _plain(function: Any, begin: Begin) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        opened = begin(args, kwargs)
        if opened is None:
            return function(*args, **kwargs)
        note, frame = opened
        token = current.set(frame)
        ended = True
        try:
            result = function(*args, **kwargs)
            if type(result) in IMMUTABLE:
                note.action = result
                return result
            if type(result) in _LATER:  # not every awaitable: a Task has begun by itself
                ended = False
                return _later(result, note, frame)
            note.action = freeze(result)
            return result
        except BaseException as exception:
            # BaseException: a cancelled or interrupted call is recorded as cut short, and raised unchanged.
            note.error = blame(exception)
            raise
        finally:
            current.reset(token)
            if ended:
                if type(note) is StepNote:
                    note.ended = perf_counter()  # as `finish` does, without the cost of calling it
                else:
                    finish(note)

    return wrapper


_LATER = (GeneratorType, AsyncGeneratorType, CoroutineType)
"""Types that a plain function may return before they have run: the record ends when they do."""


def _later(result: Any, note: CallNote | StepNote, frame: Frame) -> Any:
    if isinstance(result, GeneratorType):
        return _generated(lambda: result, note, frame)
    if isinstance(result, AsyncGeneratorType):
        return driving(lambda _args, _kwargs: (result, _Yields(note, frame)))()
    return _awaited(lambda: result, (), {}, (note, frame))


async def _awaited(
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    opened: tuple[CallNote | StepNote, Frame],
) -> Any:
    note, frame = opened
    token = current.set(frame)
    try:
        result = await function(*args, **kwargs)
        note.action = freeze(result)
        return result
    except BaseException as exception:
        note.error = blame(exception)
        raise
    finally:
        current.reset(token)
        finish(note)


class _Inside:
    """Has a frame in place for a block."""

    __slots__ = ("_frame", "_token")

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __enter__(self) -> None:
        # A token can be reset only in the context that set it, and a generator may be resumed in another.
        self._token = current.set(self._frame)

    def __exit__(self, *exception: object) -> None:
        current.reset(self._token)


class _Yields:
    """The record of a driven generator: its values, and how it ended when the block does."""

    __slots__ = ("_frame", "_note", "_values")

    def __init__(self, note: CallNote | StepNote, frame: Frame) -> None:
        self._note = note
        self._frame = frame
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        if len(self._values) < YIELDS:
            self._values.append(freeze(value))

    def inside(self) -> _Inside:
        return _Inside(self._frame)

    def __enter__(self) -> _Yields:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._note.error = blame(error)
        # What was yielded until then, also where it was closed early or raised.
        self._note.action = freeze(self._values)
        finish(self._note)


def _generated(
    make: Callable[[], Generator[Any, Any, Any]], note: CallNote | StepNote, frame: Frame
) -> Generator[Any, Any, Any]:
    """Drive a generator; the frame is in place only while its body runs, not while it is suspended."""
    with _Yields(note, frame) as yields:
        generator = make()
        resume: Callable[[], Any] = functools.partial(next, generator)
        while True:
            try:
                with _Inside(frame):
                    value = resume()
            except StopIteration as stop:
                return stop.value
            yields.add(value)
            try:
                resume = functools.partial(generator.send, (yield value))
            except GeneratorExit:
                with _Inside(frame):
                    generator.close()
                raise
            except BaseException as thrown:
                resume = functools.partial(generator.throw, thrown)
