"""A function between the beginning and the end of its record, whatever kind it is.

Sync, async, generator and async generator: what it returns, yields and raises reaches the caller
unchanged, and the frame that its own calls belong to is in place only while its body runs.
"""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any

from .encode import freeze
from .kinds import Unwatched, Watch, dressed, driving, kind_of
from .record import CallNote, Frame, StepNote, blame, collector, current, trajectory
from .sink import Sink, sink_for

Begin = Callable[[tuple[Any, ...], dict[str, Any]], "tuple[CallNote | StepNote, Frame] | None"]

YIELDS = 10_000
"""Values of a generator that are recorded."""
_RUNS = 10_000
sink_of_run: OrderedDict[str, Sink] = OrderedDict()
"""Run → where it was recorded, for what is said of it later; of the newest runs."""


def finish(note: CallNote | StepNote) -> None:
    """Hand over what is known of a call or a step that has ended."""
    if type(note) is StepNote:
        note.ended = time.perf_counter()
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

        def start(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Watch]:
            values = function(*args, **kwargs)  # nothing of it runs yet
            opened = begin(args, kwargs)
            return values, Unwatched() if opened is None else _Yields(*opened)

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
            if type(result) in _LATER:
                ended = False
                return _later(result, note, frame)
            note.action = freeze(result)
            return result
        except BaseException as exception:
            note.error = blame(exception)
            raise
        finally:
            current.reset(token)
            if ended:
                finish(note)

    return wrapper


_LATER = (GeneratorType, AsyncGeneratorType, CoroutineType)
"""What a plain function may return that has not run yet: the record ends when that does."""


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
        self._token = current.set(self._frame)

    def __exit__(self, *exception: object) -> None:
        current.reset(self._token)


class _Yields:
    """The record of a driven generator: what it yielded, and how it ended when the block does."""

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
