"""A place in a program filled with expressions until its rows come out right.

The program has a call of ours at the place: `__whet_hole__` for a value, `__whet_spot__` for a statement.  It is loaded
once, and a row then costs one call: a version of its own for each expression would cost ten times as much.
Right answers are known here by their digests alone.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import worker
from .composing import MISSING, Composer, Expression
from .timing import TooLong, limited

VALUE, STATEMENT = "__whet_hole__", "__whet_spot__"
"""Names of our calls in the program."""
_VISITS, _PER_ROW = 12, 3
"""Visits whose values are kept, and those of one call."""
_RUNAWAY = 20
"""Times that a place may be visited, in visits of the program as it is; and some more."""
_TRIED, _TRIED_STATEMENT = 3, 2
"""Failing rows one of which must come out right, with an expression and with a statement."""
_PART = 0.2
"""Of the failing rows, to be told of a filling that leaves some of them."""
WHOLE = 12
"""Fillings that answer every row: then no more are tried."""
_CONDITIONS = 80
"""Of jumps that are tried."""
_HANG, _HANGS = 100, 3
"""Calls that one which does not end counts as, and hangs after which a function is called no more."""
_COMPUTED = 6
"""Values that are computed for each call that may be made."""


class _Runaway(BaseException):
    """A place was visited too often."""


class Filling(NamedTuple):
    """What is put into a place."""

    text: str
    """The expression; the condition of a jump."""
    target: int
    """Of the statements that may stand there."""
    answered: int
    """Failing rows that come out right."""


def digest(answer: Any) -> str:
    """By which answers are compared: numbers by their value, keys in any order.

    Raises:
        CannotCross: it is no JSON.
    """
    worker.crossing(answer)
    text = json.dumps(_rounded(answer), sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _rounded(value: Any) -> Any:
    if type(value) is float:
        return int(value) if value.is_integer() else float(f"{value:.9g}")
    if type(value) is list:
        return [_rounded(member) for member in value]
    if type(value) is dict:
        return {key: _rounded(member) for key, member in value.items()}
    return value


class _Hole:
    """Our calls in the program."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.space: dict[str, Any] = {}
        """The globals of the program."""
        self.visits: list[tuple[Any, ...]] = []
        self.filling: Callable[..., Any] | None = None
        """What the visits come upon; None for the program as it is."""
        self.target, self.jump = 0, False
        self.recording = False
        self.visited = 0
        """Times in the call that is under way."""
        self._most = 1
        self.kinds: set[type] = set()
        """Of the values of the expression that stands there."""
        vars(builtins)[VALUE], vars(builtins)[STATEMENT] = self._value, self._statement

    def _visit(self, getters: Sequence[Callable[[], Any]]) -> tuple[Any, ...]:
        self.visited += 1
        if self.recording:
            self._most = max(self._most, self.visited)
        elif self.visited > _RUNAWAY * self._most + 200:
            raise _Runaway
        values = []
        for getter in getters:
            try:
                values.append(getter())
            except NameError:
                values.append(MISSING)
        if self.recording and self.visited <= _PER_ROW and len(self.visits) < _VISITS:
            self.space = sys._getframe(2).f_globals
            with contextlib.suppress(Exception):
                self.visits.append(copy.deepcopy(tuple(values)))
        return tuple(values)

    def _value(self, before: Callable[[], Any], *getters: Callable[[], Any]) -> Any:
        values = self._visit(getters)
        if self.filling is not None:
            return self.filling(*values)
        value = before()
        if self.recording:
            self.kinds.add(type(value))
        return value

    def _statement(self, *getters: Callable[[], Any]) -> tuple[int, Any]:
        values = self._visit(getters)
        if self.filling is None:
            return -1, None
        value = self.filling(*values)
        return (-1 if self.jump and not value else self.target), value

    def compiled(self, text: str) -> Callable[..., Any] | None:
        """A function of the names."""
        try:
            function: Callable[..., Any] = eval(f"lambda {', '.join(self.names)}: ({text})", self.space)
        except Exception:
            return None
        return function

    def evaluated(self, text: str) -> tuple[Any, ...]:
        """The values of an expression at the visits."""
        function = self.compiled(text)
        values: list[Any] = []
        for visit in self.visits:
            try:
                values.append(function(*copy.deepcopy(visit)) if function is not None else MISSING)
            except Exception:
                values.append(MISSING)
        return tuple(values)

    def truth(self, takes: str) -> bool | None:
        """Whether a truth has to stand there, None where anything may."""
        if takes == "test":
            return True
        return False if takes == "value" and self.kinds - {bool, type(None)} else None

    def takes(self, expression: Expression, takes: str, name: str) -> bool:
        """Whether an expression may stand there, by its type."""
        kind = expression.kind
        if takes in ("jump", "test"):
            return kind is bool or (expression.size == 1 and kind in (list, dict, str, set, int))
        if takes == "set":
            index = self.names.index(name)
            kinds = {type(visit[index]) for visit in self.visits} - {type(MISSING)}
        elif takes == "value":
            kinds = self.kinds
        else:
            return True
        alike = {int, float} if kind in (int, float) else {kind}
        return not kinds - {type(None)} or bool(kinds & alike) or kind is type(None)


class _Rows:
    """Calls of the program, and the digests of their right answers.

    Args:
        calls: those of failing rows first.
        failing: of the calls.
        left: calls that may be made.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        hole: _Hole,
        calls: Sequence[Any],
        wanted: Sequence[str],
        failing: int,
        left: int,
        seconds: float,
    ) -> None:
        self._function, self._hole, self._seconds = function, hole, seconds
        self._requests = [json.dumps(call) for call in calls]
        self._wanted, self.failing, self.left = wanted, failing, left
        self._caches: list[Any] = []

    def right(self, index: int) -> bool:
        """Whether a row comes out right."""
        self.left -= 1
        self._hole.visited = 0
        for cache in self._caches:
            cache.cache_clear()
        arguments = json.loads(self._requests[index])
        try:
            with limited(self._seconds):
                return digest(worker.awaited(self._function(*arguments))) == self._wanted[index]
        except TooLong:
            self.left -= _HANG
        except BaseException:
            pass
        return False

    def bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the program that ends, and is called no more where it did not a few times."""
        hangs = 0

        def ended(*args: Any) -> Any:
            nonlocal hangs
            self._hole.visited = 0
            try:
                if hangs < _HANGS:
                    with limited(self._seconds):
                        return function(*args)
            except TooLong:
                hangs += 1
            except BaseException:
                pass
            return MISSING

        return ended

    def answered(self, tried: int) -> int:
        """Failing rows that come out right; 0 where one that passes no longer does, or none of the first few."""
        count = 0
        for index in range(self.failing):
            count += self.right(index)
            if not count and index + 1 >= tried:
                return 0
        if count < self.failing and count < self.failing * _PART:
            return 0
        passing = range(self.failing, len(self._wanted))
        return count if count and all(self.right(index) for index in passing) else 0

    def visited(self) -> bool:
        """Run the rows with the program as it is; whether a failing one comes to the place."""
        self._hole.recording = True
        for index in range(len(self._wanted)):
            self.right(index)
            if index + 1 == self.failing and not self._hole.visits:
                return False
        self._hole.recording = False
        # What the program keeps between calls is to be forgotten.
        self._caches = [value for value in self._hole.space.values() if hasattr(value, "cache_clear")]
        return bool(self._hole.visits)


def fillings(
    function: Callable[..., Any],
    place: Mapping[str, Any],
    rows: Mapping[str, Any],
    seconds: float,
    enough: float = math.inf,
) -> tuple[list[Filling], list[int]]:
    """What a place can be filled with, in the order of size, and where to go on; nowhere at the end.

    Args:
        function: calls the program.
        place: `names` that it can say, what stood there `before`, texts of `atoms`, `called` functions, `attributes`,
            and the `targets`, each a kind of statement and a name (`evolution/holes.py`).
        rows: `calls`, those of failing rows first, digests of the answers `wanted`, how many are `failing`, the
            `most` calls that are made, and where to go on `from`: fillings that were tried, and calls that are left.
        seconds: processor time of one call.
        enough: seconds after which no more is tried.
    """
    deadline = time.monotonic() + enough
    hole = _Hole(place["names"])
    checked = _Rows(function, hole, rows["calls"], rows["wanted"], rows["failing"], rows["most"], seconds)
    if not checked.visited():
        return [], []
    composer = Composer(
        hole.names,
        hole.visits,
        place["before"],
        place["atoms"],
        [(name, checked.bounded(hole.space[name])) for name in place["called"] if name in hole.space],
        place["attributes"],
        hole.evaluated,
        hole.truth(place["targets"][0][0]),
        _COMPUTED * rows["most"],
    )
    tried, checked.left = rows.get("from") or (0, checked.left)
    answered: list[Filling] = []
    wait = _TRIED if place["before"] else _TRIED_STATEMENT
    for number, (expression, compiled, target, jump) in enumerate(_candidates(hole, composer, place)):
        if checked.left <= 0:
            break
        if number < tried:
            continue
        if number > tried and time.monotonic() > deadline:
            return answered, [number, checked.left]
        hole.filling, hole.target, hole.jump = compiled, target, jump
        if count := checked.answered(wait):
            answered.append(Filling(expression.text, target, count))
        # What is composed next may call the program as it is.
        hole.filling = None
        if sum(filling.answered == checked.failing for filling in answered) == WHOLE:
            break
    return answered, []


def _candidates(
    hole: _Hole, composer: Composer, place: Mapping[str, Any]
) -> Iterator[tuple[Expression, Callable[..., Any], int, bool]]:
    """Everything that may stand there by its type: expression, its function, target, and whether it is a jump."""
    conditions = 0
    for expression in composer.all():
        compiled, jumps = None, 0
        for target, (takes, name) in enumerate(place["targets"]):
            jump = takes == "jump"
            if (jump and conditions >= _CONDITIONS) or not hole.takes(expression, takes, name):
                continue
            compiled = compiled or hole.compiled(expression.text)
            if compiled is None:
                break
            jumps += jump
            yield expression, compiled, target, jump
        conditions += bool(jumps)
