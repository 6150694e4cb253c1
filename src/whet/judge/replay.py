"""Judge an agent again on runs that were recorded, without touching the world, and say how far to trust that.

`again` runs the agent on one recorded run: its tools are answered from the record (`tracing.Replay`), its
model calls are real.  `fidelity` replays many runs with the agent as it is: the replayed verdict should
equal the recorded one, and the share of runs where it does bounds what a comparison on replays can mean.
A run that diverged is left out and counted, never scored as the agent's failure.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import AsyncGeneratorType, GeneratorType
from typing import Any, TypeAlias

import msgspec

from ..errors import InputError
from ..record.policy import placed
from ..record.store.trials import SHADOW
from ..record.tools import bare
from ..record.tracing import collecting, current_bundle, using
from ..record.tracing.encode import freeze, thaw
from ..record.tracing.kinds import kind_of
from ..record.tracing.record import blame
from ..record.tracing.record import outcome as outcome_of
from ..record.tracing.replay import Divergence, Replay, ReplayCounts, unmarked
from ..stats import Interval, wilson
from ..types import Bundle, Failure, Json, Outcome, Score, Step, Trajectory, canonical, new_id
from . import Reward, ascore, name_of, version_of

UNRECORDED = (
    "did what was never recorded; record the tools with arguments and results (@whet.step(kind='tool'), the gateway or "
    "spans), or say what else answers: --nearest, --simulator"
)
"""Why a replay is left out, and what to do about it; after how many runs, and before the calls."""
Agent: TypeAlias = Callable[..., Json] | Callable[..., Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded run and the same run again."""

    recorded: Trajectory
    again: Trajectory
    """Its outcome is an infrastructure error where the run diverged."""
    counts: ReplayCounts

    @property
    def faithful(self) -> bool:
        """Every tool call was answered."""
        return not self.counts.diverged


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The agreement of replays with the recorded verdicts."""

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
    live: int
    """Reads that were not recorded and ran for real."""
    differing: Sequence[str]
    """Ids of the runs whose verdict changed."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """First call of a diverged run that nothing could answer → how many runs it ended, most frequent first."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Reason that kept replays from a verdict, such as an unreachable model → how many, likewise."""

    @property
    def rate(self) -> float | None:
        """Share of the compared runs with an equal verdict; None of nothing."""
        return self.equal / self.compared if self.compared else None

    @property
    def sentence(self) -> str:
        """The agreement of the replays with the record, in words."""
        excluded = f"; {self.diverged} left the record and do not count" if self.diverged else ""
        if self.rate is None:
            return f"None of {self.runs} replays of the baseline could be compared with the record{excluded}."
        low, high = self.interval
        return (
            f"Replays of the baseline agreed with the record in {100 * self.rate:.0f} % of {self.compared} runs "
            f"(95 %: {100 * low:.0f} to {100 * high:.0f} %){excluded}."
        )


@dataclass(frozen=True, slots=True)
class ReplayAttempt:
    """The result of calling an agent on a recorded run."""

    counts: ReplayCounts
    output: Json = None
    error: Exception | None = None
    failure: Failure | None = None
    """Of an agent in a process of its own, which raises nothing here."""
    seconds: float | None = None
    steps: Sequence[Step] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


async def answer_of(agent: Agent, *arguments: Any, **named: Any) -> Any:
    """An agent's answer, of whatever kind its function is; of a generator the list of its values."""
    if kind_of(agent) == "async":
        value = await agent(*arguments, **named)
    else:
        # A thread of its own, so that an agent that waits for its model does not hold up the others.
        # to_thread copies the context, with it the Bundle and the Replay; a bare executor would lose both.
        value = await asyncio.to_thread(_ended, agent, arguments, named)
    if isinstance(value, AsyncGeneratorType):
        return [piece async for piece in value]
    return list(value) if isinstance(value, GeneratorType) else value


def _ended(agent: Agent, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    value = agent(*arguments, **named)
    return list(value) if isinstance(value, GeneratorType) else value  # its body runs here


async def attempt(
    agent: Agent,
    recorded: Trajectory,
    *,
    bundle: Bundle,
    divergence: Divergence = "exclude",
    guard: bool = False,
    live: Collection[str] = (),
) -> ReplayAttempt:
    """Call an agent once with the arguments of a recorded run, its tools answered from the record.

    An agent whose recorded tools are not marked (`@whet.step(kind="tool")`) is not called at all: its
    tools would run for real.  That counts as a divergence.  Arguments as of `again`.
    """
    open_tools = unmarked(recorded, live)
    if open_tools:
        counts = ReplayCounts()
        counts.diverged.append(f"{', '.join(open_tools)}: not marked with @whet.step(kind='tool')")
        return ReplayAttempt(counts)
    arguments, named = call_of(agent, recorded)
    failure: Exception | None = None
    output: Json = None
    began = time.monotonic()
    # `collecting` inside: what the replayed agent traces must not reach the store as a run of its own.
    with Replay(recorded, divergence=divergence, guard=guard) as replay, collecting() as records:
        try:
            with using(bundle):
                output = await answer_of(agent, *arguments, **named)
        except Exception as error:  # an agent that fails is data; that the user interrupts is not
            failure = error
    steps: list[Step] = []
    versions: dict[str, str] = {}
    for record in records:
        steps.extend([record] if isinstance(record, Step) else record.steps)
        versions |= {} if isinstance(record, Step) else record.versions
    return ReplayAttempt(
        replay.counts,
        output,
        failure,
        seconds=time.monotonic() - began,
        steps=steps,
        versions=versions,
    )


async def again(
    agent: Agent,
    recorded: Trajectory,
    *,
    bundle: Bundle | None = None,
    divergence: Divergence = "exclude",
    guard: bool = False,
    live: Collection[str] = (),
) -> Replayed:
    """Run an agent on the task of a recorded run, with its tools answered from the record.

    Args:
        agent: called with the task's instruction and `initial_state`, as `calls` does; where a traced
            function had several arguments, with those.
        bundle: that it runs under; None leaves the live one.
        divergence, guard: as in `Replay`.
        live: names of tools that may run for real: those that a framework brings and nobody can mark.
    """
    done = await attempt(
        agent, recorded, bundle=bundle or current_bundle(), divergence=divergence, guard=guard, live=live
    )
    return replayed(recorded, done)


def replayed(recorded: Trajectory, done: ReplayAttempt) -> Replayed:
    """A recorded run and what came of running it again."""
    failure = done.failure if done.error is None else blame(done.error)
    # An agent may have caught the refusal and gone on with something else: that run is no evidence either.
    ended = Outcome.INFRASTRUCTURE_ERROR if done.counts.diverged else outcome_of(failure)
    replayed = Trajectory(
        id=new_id(),
        task=recorded.task,
        steps=tuple(placed(done.steps)),
        output=_json(done.output),
        seconds=done.seconds,
        versions=done.versions,
        outcome=ended,
        error=failure,
        session=recorded.session,
        meta={"replay_of": recorded.id},
    )
    return Replayed(recorded, replayed, done.counts)


async def fidelity(
    agent: Agent,
    recorded: Iterable[Trajectory],
    *,
    rewards: Sequence[Reward] = (),
    divergence: Divergence = "exclude",
    concurrency: int = 8,
    guard: bool = False,
    live: Collection[str] = (),
) -> Fidelity:
    """Replay runs with the agent as it is, and count how often the verdict is the recorded one.

    Args:
        rewards: the verdict is their scores of either run; with none it is the output itself and
            whether the run failed.
        concurrency: runs at once.
        live: as in `again`.

    Raises:
        InputError: no run that could be replayed.
    """
    slots = asyncio.Semaphore(concurrency)

    async def compared(trajectory: Trajectory) -> tuple[Replayed, Json, Json]:
        async with slots:
            done = await again(agent, trajectory, divergence=divergence, guard=guard, live=live)
        return done, await _verdict(done.recorded, rewards), await _verdict(done.again, rewards)

    runs = await asyncio.gather(*(compared(trajectory) for trajectory in recorded))
    if not runs:
        raise InputError("there is no recorded run to replay. Trace the agent first (`@whet.trace`).")
    return _counted([(done.recorded.id, done.counts, done.again.error, old, new) for done, old, new in runs])


async def fidelity_of(
    replayed: Iterable[Trajectory], recorded: Iterable[Trajectory], *, rewards: Sequence[Reward] = ()
) -> Fidelity:
    """As `fidelity`, of runs that an Experiment has made already with `whet.calls(agent, record=...)`.

    Args:
        replayed: trajectories; one that is not a replay of one of `recorded` is skipped.
            For a fidelity those of the Bundle that was recorded: a candidate may well answer otherwise.
        recorded: the runs that were replayed.
        rewards: as in `fidelity`.
    """
    by_id = {trajectory.id: trajectory for trajectory in recorded}
    runs: list[_Pair] = []
    for trajectory in replayed:
        replay_notes = replay_of(trajectory)
        before = by_id.get(str(replay_notes.get("of"))) if replay_notes else None
        if replay_notes is not None and before is not None:
            counts = msgspec.convert({**replay_notes, "unused": replay_notes.get("unused", 0)}, ReplayCounts)
            old, new = await _verdict(before, rewards), await _verdict(trajectory, rewards)
            runs.append((before.id, counts, trajectory.error, old, new))
    return _counted(runs)


def replay_of(trajectory: Trajectory) -> Mapping[str, Json] | None:
    """A rollout's note on the replay that it was, None if it was not one.

    `of` (the recorded run), and of its tool calls `exact`, `nearest`, `simulated`, `unused` and `diverged`.
    """
    for step in trajectory.steps:
        notes = step.info.get("replay")
        if isinstance(notes, Mapping):
            return notes
    return None


def abridged(trajectory: Trajectory) -> Trajectory:
    """A scored trajectory without its output and steps, of which only what `replay_of` says stays."""
    notes = replay_of(trajectory)
    return replace(trajectory, output=None, steps=() if notes is None else (Step(info={"replay": notes}),))


_Pair: TypeAlias = tuple[str, ReplayCounts, Failure | None, Json, Json]
"""One replay: the id of the recorded run, its counts, its failure, and the verdict before and after."""


def _counted(runs: Sequence[_Pair]) -> Fidelity:
    """The sum of replays."""
    faithful = [run for run in runs if not run[1].diverged]
    judged = [(id, old == new) for id, _, _, old, new in faithful if old is not None and new is not None]
    broken = Counter(
        f"{error.type}: {error.message}" for _, _, error, _, new in faithful if new is None and error
    )
    equal = sum(same for _, same in judged)
    first = Counter(counts.diverged[0] for _, counts, *_ in runs if counts.diverged)
    return Fidelity(
        runs=len(runs),
        compared=len(judged),
        equal=equal,
        interval=wilson(equal, len(judged)),
        diverged=len(runs) - len(faithful),
        unjudged=len(faithful) - len(judged),
        exact=sum(counts.exact for _, counts, *_ in runs),
        nearest=sum(counts.nearest for _, counts, *_ in runs),
        simulated=sum(counts.simulated for _, counts, *_ in runs),
        live=sum(counts.live for _, counts, *_ in runs),
        differing=tuple(id for id, same in judged if not same),
        reasons=dict(first.most_common()),
        broken=dict(broken.most_common()),
    )


def runs_of(agent: Agent | str, recorded: Iterable[Trajectory]) -> list[Trajectory]:
    """Those of the recorded runs that are this agent's, or that of a function of this name, as far as the record tells.

    A traced call names its function, and one of another function is left out; a run captured by the gateway or OTLP
    names none and stays.  The rollouts of an Experiment and shadows are not recorded runs.  Where nothing is
    left, because the agent was traced under another name, everything is.
    """
    whole = agent if isinstance(agent, str) else getattr(agent, "__qualname__", type(agent).__name__)
    name = bare(str(whole))
    every = [trajectory for trajectory in recorded if SHADOW not in trajectory.meta]
    own = [
        trajectory
        for trajectory in every
        if bare(str(trajectory.meta.get("function", ""))) == name
        or trajectory.meta.get("source") in ("otlp", "gateway")
    ]
    return own or every


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
    """The verdict on a run; None where it could not be judged."""
    if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if not rewards:
        failed = trajectory.error.type if trajectory.error is not None else ""
        return canonical((trajectory.output, failed))
    scores = [(await _scored(reward, trajectory)).value for reward in rewards]
    return None if None in scores else scores


async def _scored(reward: Reward, trajectory: Trajectory) -> Score:
    """The Score that it has from this very reward, which may have asked a model for it, else a new one."""
    held = trajectory.scores.get(name_of(reward))
    return (
        held
        if held is not None and held.evaluator == version_of(reward)
        else await ascore(reward, trajectory)
    )


def _json(value: Any) -> Json:
    """An agent's answer in the form in which it would have been recorded."""
    return thaw(freeze(value))
