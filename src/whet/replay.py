"""Judge an agent again on runs that were recorded, without touching the world, and say how far to trust that.

`again` runs the agent on one recorded run: its tools are answered from the record (`tracing.Replay`), its
model calls are real.  `fidelity` replays many runs with the agent as it is: the replayed verdict should
equal the recorded one, and the share of runs where it does bounds what a comparison on replays can mean.
A run that diverged is left out and counted, never scored as the agent's failure.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from .errors import InputError
from .reward import Reward, ascore
from .stats import Interval, wilson
from .tracing import collecting, using
from .tracing.encode import freeze, thaw
from .tracing.record import blame
from .tracing.record import outcome as outcome_of
from .tracing.replay import Counts, Divergence, Replay
from .types import Bundle, Failure, Json, Outcome, Step, Trajectory, canonical, new_id

Agent: TypeAlias = Callable[..., Json] | Callable[..., Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded run and the same run again."""

    recorded: Trajectory
    again: Trajectory
    """Its outcome is an infrastructure error where the run diverged."""
    counts: Counts

    @property
    def faithful(self) -> bool:
        """Every tool call was answered."""
        return not self.counts.diverged


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How often a replay came to the verdict that was recorded."""

    runs: int
    compared: int
    """Runs that neither diverged nor lack a verdict on either side."""
    equal: int
    interval: Interval
    """95 % for `rate` (Wilson)."""
    diverged: int
    unjudged: int
    """A verdict is missing on one side: the recorded run broke, or a reward could not judge it."""
    exact: int
    """Tool calls answered as recorded."""
    nearest: int
    simulated: int
    differing: Sequence[str]
    """Ids of the runs whose verdict changed."""

    @property
    def rate(self) -> float | None:
        """Share of the compared runs with an equal verdict; None of nothing."""
        return self.equal / self.compared if self.compared else None


async def again(
    agent: Agent,
    recorded: Trajectory,
    *,
    bundle: Bundle | None = None,
    divergence: Divergence = "exclude",
    guard: bool = False,
) -> Replayed:
    """Run an agent on what a recorded run was asked, with its tools answered from the record.

    Args:
        agent: called with the task's instruction and `initial_state`, as `calls` does; where a traced
            function had several arguments, with those.
        bundle: what it runs under; None leaves what is live.
        divergence, guard: as in `Replay`.
    """
    given, named = call_of(agent, recorded)
    failure: Failure | None = None
    output: Json = None
    with Replay(recorded, divergence=divergence, guard=guard) as replay, collecting() as records:
        try:
            with using(bundle if bundle is not None else Bundle()):
                if inspect.iscoroutinefunction(agent):
                    output = await agent(*given, **named)
                else:
                    output = await asyncio.to_thread(agent, *given, **named)
        except Exception as error:  # an agent that fails is data; that the user interrupts is not
            failure = blame(error)
    steps: list[Step] = []
    versions: dict[str, str] = {}
    for one in records:
        steps.extend([one] if isinstance(one, Step) else one.steps)
        versions |= {} if isinstance(one, Step) else one.versions
    # An agent may have caught the refusal and gone on with something else: that run is no evidence either.
    ended = outcome_of(failure) if replay.faithful else Outcome.INFRASTRUCTURE_ERROR
    found = Trajectory(
        id=new_id(),
        task=recorded.task,
        steps=steps,
        output=_json(output),
        versions=versions,
        outcome=ended,
        error=failure,
        session=recorded.session,
        meta={"replay_of": recorded.id},
    )
    return Replayed(recorded, found, replay.counts)


async def fidelity(
    agent: Agent,
    recorded: Iterable[Trajectory],
    *,
    rewards: Sequence[Reward] = (),
    divergence: Divergence = "exclude",
    concurrency: int = 8,
    guard: bool = False,
) -> Fidelity:
    """Replay runs with the agent as it is, and count how often the verdict is the recorded one.

    Args:
        rewards: the verdict is what they say of either run; with none it is the output itself and
            whether the run failed.
        concurrency: runs at once.

    Raises:
        InputError: no run that could be replayed.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(trajectory: Trajectory) -> tuple[Replayed, Json, Json]:
        async with slots:
            done = await again(agent, trajectory, divergence=divergence, guard=guard)
        return done, await _verdict(done.recorded, rewards), await _verdict(done.again, rewards)

    runs = await asyncio.gather(*(one(each) for each in recorded))
    if not runs:
        raise InputError("there is no recorded run to replay. Trace the agent first (`@whet.trace`).")
    faithful = [(done, old, new) for done, old, new in runs if done.faithful]
    judged = [(done, old == new) for done, old, new in faithful if old is not None and new is not None]
    equal = sum(same for _, same in judged)
    return Fidelity(
        runs=len(runs),
        compared=len(judged),
        equal=equal,
        interval=wilson(equal, len(judged)),
        diverged=len(runs) - len(faithful),
        unjudged=len(faithful) - len(judged),
        exact=sum(done.counts.exact for done, _, _ in runs),
        nearest=sum(done.counts.nearest for done, _, _ in runs),
        simulated=sum(done.counts.simulated for done, _, _ in runs),
        differing=tuple(done.recorded.id for done, same in judged if not same),
    )


def call_of(agent: Agent, recorded: Trajectory) -> tuple[tuple[Json, ...], dict[str, Json]]:
    """Positional and named arguments with which the agent was called in a recorded run."""
    task = recorded.task
    named = dict(task.initial_state)
    try:
        value = msgspec.json.decode(task.instruction)
    except msgspec.DecodeError:
        return (task.instruction,), named
    # A function of several arguments is recorded as the JSON of name → value; of one that is no text, as its JSON.
    names = list(inspect.signature(agent).parameters)
    if isinstance(value, dict) and value and set(value) <= set(names):
        return (), {**named, **value}
    return ((value if not isinstance(value, str) else task.instruction,), named)


async def _verdict(trajectory: Trajectory, rewards: Sequence[Reward]) -> Any:
    """What was judged of a run; None where it could not be."""
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if not rewards:
        failed = trajectory.error.type if trajectory.error is not None else ""
        return canonical((trajectory.output, failed))
    scores = [(await ascore(one, trajectory)).value for one in rewards]
    return None if None in scores else scores


def _json(value: Any) -> Json:
    """An agent's answer in the form in which it would have been recorded."""
    return thaw(freeze(value))
