"""Futures that follow other futures, and what carries a commit back into memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
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
