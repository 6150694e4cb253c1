"""`check_reward`: a reward is guilty until proven.

It runs the reward on known-good trajectories and on attacks made of them, and refuses one that
ranks an attack as high.  A pass proves that these attacks fail, not that no other succeeds.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..errors import ContractError, InputError
from ..types import Failure, Fault, Json, Outcome, Score, Trajectory
from .base import Reward, ascore, is_async, name_of


def _answering(good: Trajectory, output: Json) -> Trajectory:
    """The run with another answer, as its environment and users would have recorded a wrong one."""
    steps = list(good.steps)
    if steps:
        last = steps[-1]
        steps[-1] = replace(last, action=output, reward=None if last.reward is None else 0.0, info={})
    # A judgement that stays on the run would let a reward that only reads it pass.
    return replace(good, output=output, steps=tuple(steps), outcome=Outcome.FAILURE, scores={}, feedback=())


def empty(good: Trajectory) -> Trajectory:
    """An answer of nothing."""
    return _answering(good, "")


def constant(good: Trajectory) -> Trajectory:
    """The answer that fits every question."""
    return _answering(good, "I don't know.")


def crashed(good: Trajectory) -> Trajectory:
    """An agent that raised before it did anything."""
    error = Failure(Fault.AGENT, "ZeroDivisionError", "division by zero")
    return replace(_answering(good, None), steps=(), error=error)


def stuffed(good: Trajectory) -> Trajectory:
    """Every word that could earn something: the question's, the answer's, and words of success."""
    words = (
        f"{good.task.instruction} {good.output_text} {good.task.answer or ''} correct done success".split()
    )
    # Sorted: in their own order the words would hold the right answer as a phrase.
    return _answering(good, " ".join([*sorted(words), *sorted(words)]))


def mutated(good: Trajectory) -> Trajectory:
    """The good answer with each digit raised by one, or read backwards if it has none."""
    text = good.output_text
    turned = text.translate({ord(str(digit)): str((digit + 1) % 10) for digit in range(10)})
    return _answering(good, text[::-1] if turned == text else turned)


ATTACKS: Mapping[str, Callable[[Trajectory], Trajectory]] = {
    attack.__name__: attack for attack in (empty, constant, crashed, stuffed, mutated)
}
"""Name → what makes a bad run of a good one."""


def check_reward(
    reward: Reward,
    good: Sequence[Trajectory],
    bad: Sequence[Trajectory] = (),
    *,
    unjudgeable: Sequence[Trajectory] = (),
    skip: Collection[str] = (),
) -> None:
    """Hold a reward to its contract.

    Args:
        good: runs known to be right; each is attacked in every way of ATTACKS.
        bad: runs known to be worse; each must score below the good runs of its task, or below
            all of them if its task has none.
        unjudgeable: runs on which it must say None.
        skip: names of attacks that cannot apply, because the attacked answer would be right.

    Raises:
        ContractError: it raises, is not finite, differs between calls, changes the trajectory,
            ranks an attack or a bad run as high as a good one, scores what it cannot judge, or gives
            a number, and another one, when the task's answer is taken away.
        InputError: no good run, an unknown attack, or an async reward (use `acheck_reward`).
    """
    if is_async(reward):
        raise InputError(f"Reward {name_of(reward)!r} is asynchronous. Use `await acheck_reward(...)`.")
    running = acheck_reward(reward, good, bad, unjudgeable=unjudgeable, skip=skip)
    # Nothing in it waits when the reward does not, so it runs to its end without an event loop.
    with contextlib.suppress(StopIteration):
        running.send(None)


async def acheck_reward(
    reward: Reward,
    good: Sequence[Trajectory],
    bad: Sequence[Trajectory] = (),
    *,
    unjudgeable: Sequence[Trajectory] = (),
    skip: Collection[str] = (),
) -> None:
    """`check_reward` for rewards that may be async, such as a Judge."""
    unknown = set(skip) - set(ATTACKS)
    if not good or unknown:
        raise InputError(
            f"check_reward needs a good trajectory and known attacks; given {len(good)} good ones and "
            f"skip={sorted(unknown)}. Attacks are {list(ATTACKS)}."
        )
    scores = [(run, await _value(reward, run, "a good run")) for run in good]
    for run, value in scores:
        for name, attack in ATTACKS.items():
            attacked = attack(run)
            if name not in skip and attacked.output_text != run.output_text:
                await _ranked(reward, run, value, attacked, f"the {name} answer")
        await _without_answer(reward, run, value)
    for worse in bad:
        same = [(run, value) for run, value in scores if run.task.id == worse.task.id]
        for run, value in same or scores:
            await _ranked(reward, run, value, worse, f"bad run {worse.id}")
    for run in unjudgeable:
        score = await _score(reward, run, f"unjudgeable run {run.id}")
        if score.value is not None:
            raise _violation(reward, f"gives {score.value:g} to unjudgeable run {run.id}; it must give None")


async def _ranked(reward: Reward, run: Trajectory, value: float, worse: Trajectory, name: str) -> None:
    below = await _value(reward, worse, name)
    if not below < value:
        shown = worse.output_text
        raise _violation(
            reward,
            f"gives {below:g} to {name} {shown[:120]!r} and {value:g} to the good run {run.id}; "
            "the good one must be higher",
        )


async def _without_answer(reward: Reward, run: Trajectory, value: float) -> None:
    if run.task.answer is None:
        return
    blind = replace(run, task=replace(run.task, answer=None))
    score = await _score(reward, blind, "a run whose task has no answer")
    if score.value is not None and score.value != value:
        raise _violation(
            reward, f"gives {score.value:g} where the task has no answer to judge by; it must give None"
        )


async def _value(reward: Reward, run: Trajectory, name: str) -> float:
    score = await _score(reward, run, name)
    if score.value is None:
        raise _violation(reward, f"gives None to {name} ({run.id}): {score.reason}")
    return score.value


async def _score(reward: Reward, run: Trajectory, name: str) -> Score:
    # A Trajectory is frozen; the mappings and lists in it are not.
    before = copy.deepcopy(run)
    first = await ascore(reward, run)
    if run != before:
        raise _violation(reward, f"changes the trajectory it judges ({name})")
    if first.broke:
        raise _violation(reward, f"fails on {name} ({run.id}): {first.reason}")
    for _ in range(2):
        again = await ascore(reward, run)
        if again.value != first.value:
            raise _violation(
                reward, f"gives {first.value} and then {again.value} to {name}; it must not vary"
            )
    return first


def _violation(reward: Reward, complaint: str) -> ContractError:
    return ContractError(f"Reward {name_of(reward)!r} {complaint}.")


def check_bands(bands: Mapping[str, tuple[float, float]]) -> None:
    """Hold bands of one reward, named from worst to best, to never overlapping.

    Args:
        bands: name → (lowest, highest) value that this kind of run can get, worst kind first.

    Raises:
        ContractError: some run of a worse kind could score as high as one of a better kind.
    """
    for name, (low, high) in bands.items():
        if not low <= high:
            raise ContractError(f"Band {name!r} goes from {low:g} to {high:g}, which is backwards.")
    ordered = list(bands.items())
    for (worse, (_, high)), (better, (low, _)) in itertools.pairwise(ordered):
        if high >= low:
            raise ContractError(
                f"Band {worse!r} reaches {high:g} and {better!r} begins at {low:g}: they overlap."
            )
