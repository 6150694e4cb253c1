"""A task's own `success_checker` as a Reward that also decides the outcome.

A task comes from a file and names its checker; the name is looked up among the functions that the caller gives, and
nothing is imported because a file says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import InputError, NotFoundError
from ..types import Outcome, Score, Task, Trajectory, digest
from .base import Judgement, Reward, ascore, is_async, name_of, score, version_of

PASSES = 0.5
"""Score from which a checker's judgement is a success."""
_UNDECIDED = (Outcome.UNKNOWN, Outcome.SUCCESS, Outcome.FAILURE)
"""Outcomes that a checker replaces: a run that was cut short or broke stays what it is."""


class Checked:
    """Judges each run by the checker that its task names.

    Args:
        functions: name → Reward: a function Trajectory → bool, float, Score or None, plain or async.  A task's
            `success_checker` is `python:` and one of these names.
        name: of the Score.

    Raises:
        InputError: no function, or what is given under a name is not one.
    """

    def __init__(self, functions: Mapping[str, Reward], *, name: str = "checked") -> None:
        if not functions or not all(callable(function) for function in functions.values()):
            raise InputError(f"checked() needs name → function; given {dict(functions)!r:.120}.")
        self.name = name
        self.version = digest({name: version_of(function) for name, function in functions.items()}, 12)
        self.is_async = any(is_async(function) for function in functions.values())
        self._functions = dict(functions)

    def __call__(self, trajectory: Trajectory) -> Judgement | Awaitable[Judgement]:
        """The checker's judgement; None where the task names no checker.

        Raises:
            InputError: the name is not of the form `python:function`.
            NotFoundError: the function is not among those allowed.
        """
        return self._judged(trajectory) if self.is_async else self._named(self._ask(trajectory))

    async def _judged(self, trajectory: Trajectory) -> Judgement:
        judgement = self._ask(trajectory)
        return self._named(await judgement if isinstance(judgement, Awaitable) else judgement)

    def _ask(self, trajectory: Trajectory) -> Any:
        named = trajectory.task.success_checker
        if named is None:
            return Score(self.name, None, f"task {trajectory.task.id} names no success_checker")
        return resolve_checker(named, self._functions)(trajectory)

    def _named(self, judgement: Judgement) -> Judgement:
        return replace(judgement, name=self.name) if isinstance(judgement, Score) else judgement

    def admit(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks whose checker is not allowed, before anything is run on them.

        Raises:
            InputError: a name is not of the form `python:function`.
            NotFoundError: a function is not among those allowed.
        """
        for task in tasks:
            if task.success_checker is not None:
                resolve_checker(task.success_checker, self._functions)


def checked(functions: Mapping[str, Reward], *, name: str = "checked") -> Checked:
    """A Reward that judges each run by its task's `success_checker`, and with it decides the run's outcome.

    >>> rewards = [whet.judge.checked({"cart_has_item": cart_has_item})]  # "success_checker": "python:cart_has_item"

    Arguments and errors as of `Checked`.
    """
    return Checked(functions, name=name)


def resolve_checker(name: str, allowed: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function that a `success_checker` names, from those that the caller allows.

    Raises:
        InputError: the name is not of the form `python:function`.
        NotFoundError: the function is not allowed.
    """
    kind, _, function = name.partition(":")
    if kind != "python" or not function:
        raise InputError(f"success_checker {name!r} is not of the form 'python:function'")
    if function not in allowed:
        names = ", ".join(sorted(allowed)) or "none"
        raise NotFoundError(
            f"success_checker {function!r} is not among the allowed functions ({names}). "
            f"Allow it with whet.judge.checked({{{function!r}: the_function}})."
        )
    return allowed[function]


def admit(rewards: Iterable[Reward], tasks: Iterable[Task]) -> None:
    """Have the rewards refuse tasks that they could never judge.

    Raises:
        InputError, NotFoundError: as of `Checked.admit`.
    """
    for reward in rewards:
        if isinstance(reward, Checked):
            reward.admit(tasks)


def judged(trajectory: Trajectory, *rewards: Reward) -> Trajectory:
    """The run with the Score of each plain reward, and with the outcome that its task's checker decides.

    Raises:
        InputError: a reward is async; use `ajudged`.
    """
    for checker in _checkers(rewards):
        trajectory = _decided(trajectory, score(checker, trajectory))
    scores = [
        trajectory.scores.get(name_of(r)) if isinstance(r, Checked) else score(r, trajectory) for r in rewards
    ]
    return _with(trajectory, scores)


async def ajudged(trajectory: Trajectory, *rewards: Reward) -> Trajectory:
    """`judged` for any rewards, plain or async."""
    for checker in _checkers(rewards):
        trajectory = _decided(trajectory, await ascore(checker, trajectory))
    scores = [
        # A checker was asked above, and may ask a model: not twice.
        trajectory.scores.get(name_of(r)) if isinstance(r, Checked) else await ascore(r, trajectory)
        for r in rewards
    ]
    return _with(trajectory, scores)


def _checkers(rewards: Iterable[Reward]) -> list[Checked]:
    # They come first: `solved` and other rewards look at the outcome that a checker decides.
    return [reward for reward in rewards if isinstance(reward, Checked)]


def _decided(trajectory: Trajectory, score: Score) -> Trajectory:
    scored = trajectory.scored(score)
    if trajectory.outcome not in _UNDECIDED:
        return scored
    if score.broke:
        # The outcome stays as it is; but `success`, which is read off it, is not to be had by breaking the checker.
        return scored.scored(replace(score, name="success"))
    if score.value is None:
        return scored
    if trajectory.by_worker:  # whose own word on its success this takes the place of
        scored = scored.scored(replace(score, name="success", value=float(score.value >= PASSES)))
    return replace(scored, outcome=Outcome.SUCCESS if score.value >= PASSES else Outcome.FAILURE)


def _with(trajectory: Trajectory, scores: Iterable[Score | None]) -> Trajectory:
    """The run with these Scores, in the order of the rewards, which tables and reports keep."""
    judged_now = {score.name: score for score in scores if score is not None}
    if not judged_now:
        return trajectory
    before = {name: score for name, score in trajectory.scores.items() if name not in judged_now}
    return replace(trajectory, scores={**before, **judged_now})
