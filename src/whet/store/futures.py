"""Futures that follow other futures, and what carries a commit back into memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Event:
    """What became of a submission, on its way into the memory."""

    __slots__ = ("_apply", "_problem", "_settled")

    def __init__(
        self,
        apply: Callable[[BaseException | None], None],
        problem: BaseException | None,
        settled: Future[None] | None,
    ) -> None:
        self._apply, self._problem, self._settled = apply, problem, settled

    def apply(self) -> None:
        self._apply(self._problem)

    def tell(self) -> None:
        if self._settled is None:
            return
        if self._problem is None:
            self._settled.set_result(None)
        else:
            self._settled.set_exception(self._problem)


def ready(value: T) -> Future[T]:
    """A future that is done."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def follow(future: Future[Any], value: Callable[[], T]) -> Future[T]:
    """What follows a future, with another value."""
    result: Future[T] = Future()

    def finished(done: Future[Any]) -> None:
        if problem := done.exception():
            result.set_exception(problem)
        else:
            result.set_result(value())

    future.add_done_callback(finished)
    return result


def pass_on(done: Future[T], result: Future[T]) -> None:
    """Give `result` what `done` came to."""
    if problem := done.exception():
        result.set_exception(problem)
    else:
        result.set_result(done.result())


def gather(
    problems: list[Exception | None], waits: Sequence[tuple[int, Future[None]]]
) -> Future[list[Exception | None]]:
    """The problems, with those of the futures that are waited for."""
    result: Future[list[Exception | None]] = Future()
    left = len(waits)
    lock = threading.Lock()
    if not waits:
        result.set_result(problems)

    def finished(place: int, done: Future[None]) -> None:
        nonlocal left
        problem = done.exception()
        with lock:
            problems[place] = problem if isinstance(problem, Exception) else None
            left -= 1
            last = left == 0
        if last:
            result.set_result(problems)

    for place, future in waits:
        future.add_done_callback(partial(finished, place))
    return result
