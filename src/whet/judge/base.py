"""The type of a reward, and `score`, the one place where rewards are run.

A reward may answer with a number, a bool, a Score, or None where it cannot judge.  Whatever
goes wrong inside it becomes a Score of None whose reason begins with whose fault it was.  A reward that an
answer breaks (`reward: ...`) is worth 0 to the gate, else breaking it would pay; a judge that could not be asked
(`model: ...`) leaves the answer unjudged.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import CO_COROUTINE, iscoroutinefunction
from numbers import Real
from types import FunctionType
from typing import Any, TypeVar, cast, overload

from ..errors import InputError, TrainingRefused
from ..record.faults import fault_of, key_refused
from ..types import UNCALIBRATED, Failure, Fault, Outcome, Score, Trajectory

Judgement = float | bool | Score | None
"""The answer of a reward; None means that it cannot judge this trajectory."""

Reward = Callable[[Trajectory], Judgement | Awaitable[Judgement]]
"""A named function from Trajectory to Judgement, plain or async."""

_UNJUDGED = "the reward answered None: it found nothing to judge in this trajectory"
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARKS = frozenset({"is_async", "_is_coroutine_mark", "_is_coroutine_marker"})
"""Attributes by which a plain function says that it has to be awaited."""
_versions: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


@overload
def reward(function: _Function, /) -> _Function: ...
@overload
def reward(
    *, name: str = "", version: str = "", unjudged: str = "", higher_is_better: bool | None = None
) -> Callable[[_Function], _Function]: ...
def reward(
    function: Any = None,
    /,
    *,
    name: str = "",
    version: str = "",
    unjudged: str = "",
    higher_is_better: bool | None = None,
) -> Any:
    """Give a reward function its name and version; it stays the plain function it was.

    >>> @reward(name="polite", version="2")
    ... def judge(trajectory): return "please" in trajectory.output

    Args:
        name: its name in every Score; the function's own if empty.
        version: what to change when its judgement changes; a hash of its source if empty.
        unjudged: the reason of a Score where it answers None: what the trajectory lacks, and where to get it.
        higher_is_better: which way a guardrail on its score looks; None leaves that to the guardrail.  What learns
            raises the score that it is given.
    """

    def named(inner: Any) -> Any:
        inner.name = name or inner.__name__
        if version:
            inner.version = version
        if unjudged:
            inner.unjudged = unjudged
        if higher_is_better is not None:
            inner.higher_is_better = higher_is_better
        return inner

    return named if function is None else named(function)


def name_of(reward: Reward) -> str:
    """The reward's name: its `name`, or the function's own."""
    return str(getattr(reward, "name", "") or getattr(reward, "__name__", "") or type(reward).__name__)


def version_of(reward: Reward) -> str:
    """The reward's version: its `version`, or a hash of its source, or "" where there is none to read."""
    declared = getattr(reward, "version", "")
    if declared:
        return str(declared)
    try:
        # TypeError: a reward that is not hashable or weakly referable; getsource raises it of objects, too.
        version = _versions.get(reward)
        if version is None:
            source = inspect.getsource(reward)
            version = _versions[reward] = hashlib.sha256(source.encode()).hexdigest()[:12]
    except (TypeError, OSError):
        return ""
    return version


def only_steers(reward: Reward) -> bool:
    """True of a judge that no reliability card admits: a gate promotes nothing by what it says."""
    return version_of(reward).startswith(UNCALIBRATED)


def withdrawn(reward: Reward, runs: Sequence[Trajectory]) -> str:
    """Why a reward takes its scores of these runs back, now that it has judged all of them; "" if they stand.

    Most never do: a panel does, whose judges agree otherwise on them than on what it was calibrated on.
    """
    look = getattr(reward, "withdrawn", None)
    return str(look(runs)) if look is not None else ""


def is_async(reward: Reward) -> bool:
    """True if the reward has to be awaited: an `async def`, an object whose call is one, or a
    compound of such (which says so in its `is_async`)."""
    if type(reward) is FunctionType and _MARKS.isdisjoint(reward.__dict__):  # asked of every run
        return bool(reward.__code__.co_flags & CO_COROUTINE)
    return bool(
        getattr(reward, "is_async", False)
        or iscoroutinefunction(reward)
        or _is_async_call(cast("Any", type(reward)))
    )


@lru_cache(maxsize=256)
def _is_async_call(kind: type) -> bool:
    return iscoroutinefunction(kind.__call__)


def score(reward: Reward, trajectory: Trajectory) -> Score:
    """Run a plain reward on a trajectory.

    Never raises for what the reward does.  An exception, a number that is not finite, or something
    that is not a number gives a Score of None whose reason begins with "reward:" (`Score.broke`); an endpoint that
    the reward could not reach, one whose reason begins with the machine's fault, such as "model:".  A trajectory
    that ended in an infrastructure error is not shown to the reward at all: its Score is None.

    Raises:
        InputError: the reward is async; use `ascore`.
    """
    if is_async(reward):
        raise InputError(
            f"Reward {name_of(reward)!r} is asynchronous. Use `await ascore(reward, trajectory)`."
        )
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return _masked(reward)
    try:
        value = reward(trajectory)
    # An exit that went on would end the command with the reward's own exit code, 0 perhaps, as if all were well.
    except (Exception, SystemExit) as error:
        return _raised(reward, error)
    if isinstance(value, Coroutine):
        value.close()  # else Python warns that it was never awaited
        return _failed(reward, "returned a coroutine; declare it with `async def`")
    return _as_score(value, reward)


async def ascore(reward: Reward, trajectory: Trajectory) -> Score:
    """`score` for any reward, plain or async, such as a Judge."""
    if not is_async(reward):
        return score(reward, trajectory)
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return _masked(reward)
    try:
        value: Any = reward(trajectory)
        return _as_score(await value, reward)
    # Not BaseException: a cancelled task or Ctrl-C is no failure of the reward.
    except (Exception, SystemExit) as error:
        return _raised(reward, error)


class JudgesRefused:
    """Ends a run of judgements once a judge's endpoint refused the key so many times in a row."""

    def __init__(self, most: int = 3) -> None:
        self._most = most
        self._in_a_row = Counter[str]()

    def note(self, scores: Iterable[Score]) -> None:
        """Count the scores of one trajectory.

        Raises:
            TrainingRefused: the judge of one of these was refused so often.
        """
        for score in scores:
            refused = score.value is None and key_refused(_endpoint(score.reason))
            self._in_a_row[score.name] = self._in_a_row[score.name] + 1 if refused else 0
            if self._in_a_row[score.name] >= self._most:
                raise TrainingRefused(
                    f"the judge {score.name} cannot be asked: {score.reason[:300]} Nothing more is asked, and what was "
                    "judged is kept: give it its key or its model, and run the same command again."
                )


def _endpoint(reason: str) -> Failure | None:
    """What the endpoint of a judge did, by the reason of a missing score; None where it did nothing."""
    fault, _, message = reason.partition(": ")
    return Failure(Fault.MODEL, message.partition(":")[0], message) if fault == Fault.MODEL.value else None


def _masked(reward: Reward) -> Score:
    why = "not scored: the infrastructure failed, not the agent"
    return Score(name_of(reward), None, why, version_of(reward))


def _raised(reward: Reward, error: Exception | SystemExit) -> Score:
    fault = fault_of(error)
    # An exception of plain code is the reward's own; `fault_of` knows those of endpoints, budgets and sandboxes.
    return _failed(
        reward, f"{type(error).__name__}: {error}", Fault.REWARD if fault is Fault.AGENT else fault
    )


def _failed(reward: Reward, reason: str, fault: Fault = Fault.REWARD) -> Score:
    return Score(name_of(reward), None, f"{fault}: {reason}", version_of(reward))


def _as_score(value: Any, reward: Reward) -> Score:
    if type(value) is float and math.isfinite(value):
        return Score(name_of(reward), value, "", version_of(reward))
    if isinstance(value, Score):
        if type(value.value) is float and math.isfinite(value.value) and value.evaluator:
            return value
        inner = _as_score(value.value, reward)
        if inner.value is None and value.value is not None:
            return inner
        return replace(value, value=inner.value, evaluator=value.evaluator or version_of(reward))
    if value is None:
        why = getattr(reward, "unjudged", "") or _UNJUDGED
        return Score(name_of(reward), None, why, version_of(reward))
    # Real and not `int | float`: NumPy's scalars are registered as Real, and a bool is one too.
    if not isinstance(value, Real):
        return _failed(reward, f"returned {value!r:.80}, which is not a number, a bool, None or a Score")
    if not math.isfinite(value):
        return _failed(reward, f"returned {float(value)}")
    return Score(name_of(reward), float(value), "", version_of(reward))
