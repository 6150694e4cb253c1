"""`calls`: an agent function as an environment, one call per episode.

For agents that are run as they are: the task's instruction goes in, whatever comes back ends the
episode, and what the agent traced on the way becomes its steps.  A task that was read from recorded
runs is replayed: the agent's tools answer from the record and the world is not touched.  An agent
that acts turn by turn has an Env of its own (`whet.record.env`); what an Experiment does with either is in
`whet.learn.experiment`, and how far a replay can be trusted says `whet.judge.replay`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from ..errors import EnvError, InputError
from ..record.env import Env, StepResult
from ..record.policy import Action, Policy
from ..record.store import Store
from ..record.tracing import collecting, flush, recorded_in, using
from ..record.tracing.replay import Divergence, ReplayCounts
from ..record.tracing.trace import timing
from ..types import Bundle, Json, Outcome, Span, Step, Task, Trajectory
from . import Reward
from .replay import Fidelity, answer_of, attempt, fidelity_of, replay_of

Record: TypeAlias = Store | str | os.PathLike[str] | Iterable[Trajectory] | Literal["live"] | None
"""Where the recorded runs of a task are; `"live"` never replays, None asks the agent's own `@trace`."""
ModelCalls: TypeAlias = Callable[[], Sequence[Span]]
"""The model calls that a gateway has noted since it was asked last."""

_episode: ContextVar[_Call | None] = ContextVar("whet_episode", default=None)
"""The call that is under way in this rollout: how a policy knows what its environment replays."""


@dataclass(slots=True)
class Replays:
    """The fate of all calls so far, of every candidate."""

    live: int = 0
    """Calls of tasks that no recorded run is known of; their tools ran."""
    replayed: int = 0
    diverged: int = 0
    """Of the replayed: left out, as infrastructure errors, for they did what was never recorded."""
    exact: int = 0
    """Tool calls answered as recorded."""
    nearest: int = 0
    simulated: int = 0

    @property
    def faithful(self) -> float | None:
        """Share of the replayed calls that did not diverge; None of nothing."""
        return 1 - self.diverged / self.replayed if self.replayed else None


class _Call:
    """One call of an agent as an Env: the policy is the agent, its answer ends the episode."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._open = False
        self.recorded: Trajectory | None = None
        self.counts: ReplayCounts | None = None

    def reset(self, task: Task, seed: int) -> Json:
        self.recorded, self._open = self._calls.recorded(task, seed), True
        _episode.set(self)
        if task.initial_state:
            return {"instruction": task.instruction, **task.initial_state}
        return task.instruction

    def step(self, action: Json) -> StepResult:
        if not self._open:
            raise EnvError("this call has not been started or is over: reset() a fresh Env")
        self._open = False
        if self.recorded is None:
            return StepResult(None, None, True)
        counts = self.counts or ReplayCounts()
        replay = {"of": self.recorded.id, **msgspec.to_builtins(counts)}
        info: dict[str, Json] = {"replay": replay}
        if counts.diverged:
            info["outcome"] = Outcome.INFRASTRUCTURE_ERROR.value
        return StepResult(None, None, True, False, info)

    @property
    def open(self) -> bool:
        """The agent may act in it."""
        return self._open


class _Agent:
    """A user's agent as the Policy of one call, under one Bundle."""

    def __init__(self, calls: Calls, bundle: Bundle) -> None:
        self._calls, self._bundle = calls, bundle

    async def act(self, observation: Json, /) -> Action:
        episode = _episode.get()
        # The variable outlives the call in this task; without `open` a later live call would be replayed.
        if episode is not None and episode.open and episode.recorded is not None:
            return await self._replayed(episode, episode.recorded)
        self._calls.count(None)
        agent = self._calls.agent
        arguments = observation if isinstance(observation, dict) else {}
        positional = () if arguments else (observation,)
        if "instruction" in arguments:
            arguments = dict(arguments)
            positional = (arguments.pop("instruction"),)
        with self._calls.counted() as counted:
            with using(self._bundle), collecting() as records:
                value = await answer_of(agent, *positional, **arguments)
            steps: list[Step] = []
            for record in records:
                steps.extend([record] if isinstance(record, Step) else record.steps)
        return Action(value, steps=counted(steps))

    async def _replayed(self, episode: _Call, recorded: Trajectory) -> Action:
        with self._calls.counted() as counted:
            done = await attempt(
                self._calls.agent,
                recorded,
                bundle=self._bundle,
                divergence=self._calls.divergence,
                live=self._calls.live,
            )
        episode.counts = done.counts
        self._calls.count(done.counts)
        # An agent that was refused an answer fails for want of a record: that is not its failure.
        if done.error is not None and not done.counts.diverged:
            raise done.error
        return Action(done.output, steps=counted(done.steps))


def _chosen(store: Store, names: Sequence[str], seed: int) -> Trajectory | None:
    """The recorded run that the seed names; one that was a replay itself is passed over."""
    for offset in range(len(names)):
        for run in store.trajectories(ids=[names[(seed + offset) % len(names)]], limit=1):
            if replay_of(run) is None:
                return run
    return None


def _same_versions(replayed: Trajectory, recorded: Trajectory) -> bool:
    """True if they ran under the same Versions, as far as both say."""
    return all(recorded.versions.get(name, id) == id for name, id in replayed.versions.items())


class Calls:
    """A factory of Envs that brings its policy, and counts its replays; see `calls`."""

    def __init__(
        self,
        agent: Callable[..., Any],
        record: Record,
        divergence: Divergence,
        live: Collection[str],
        model_calls: ModelCalls | None = None,
    ) -> None:
        self._model_calls = model_calls
        self.agent, self.divergence, self.live = agent, divergence, live
        self._record = record
        self._store: Store | None = record if isinstance(record, Store) else None
        self._runs: Mapping[str, Trajectory] | None = None
        if record is not None and not isinstance(record, Store | str | os.PathLike):
            self._runs = {run.id: run for run in record}
        self._lock = threading.Lock()
        self._replays = Replays()

    def __call__(self) -> Env:
        return _Call(self)

    def policy(self, bundle: Bundle, seed: int, /) -> Policy:
        return _Agent(self, bundle)

    @property
    def replays(self) -> Replays:
        """Counts of all calls so far; of each one, its trajectory's first step says (`info["replay"]`)."""
        with self._lock:
            return Replays(**{name: getattr(self._replays, name) for name in Replays.__slots__})

    def recorded(self, task: Task, seed: int) -> Trajectory | None:
        """The run that a rollout of this task replays: of several one by the seed; None if it has none.

        Raises:
            InputError: the task names recorded runs, and the record that was given has none of them.
        """
        ids = task.meta.get("trajectories")
        names = [str(id) for id in ids] if isinstance(ids, list | tuple) else []
        if self._runs is not None:
            runs = [self._runs[id] for id in names if id in self._runs]
            runs = runs or [run for run in self._runs.values() if run.task.id == task.id]
            chosen = runs[seed % len(runs)] if runs else None
        elif self._record == "live" or not names or (store := self._opened()) is None:
            return None
        else:
            chosen = _chosen(store, names, seed)
        if chosen is None and names and self._record is not None:
            raise InputError(
                f"task {task.id!r} was read from the recorded runs {', '.join(names[:3])}, of which the record has "
                "none. Give calls(record=...) the store they are in, or record='live' to run the agent for real."
            )
        return chosen

    async def fidelity(
        self, replayed: Iterable[Trajectory], rewards: Sequence[Reward] = ()
    ) -> Fidelity | None:
        """How far these rollouts agree with what was recorded; None where none is a replay of the same Versions.

        Args:
            replayed: rollouts; one that is not a replay, or that ran under other Versions than its recorded run, is
                passed over.
            rewards: as of `whet.judge.replay.fidelity_of`.
        """
        runs = [(run, str(replay["of"])) for run in replayed if (replay := replay_of(run)) is not None]
        originals = dict(self._runs or {})
        if self._runs is None and runs and (store := self._opened()) is not None:
            originals = {run.id: run for run in store.trajectories(ids=sorted({of for _, of in runs}))}
        # Without this a candidate that rightly answers otherwise would count as an unfaithful replay.
        alike = [run for run, of in runs if of in originals and _same_versions(run, originals[of])]
        return await fidelity_of(alike, originals.values(), rewards=rewards) if alike else None

    def _opened(self) -> Store | None:
        if self._store is None:
            target = recorded_in(self.agent) if self._record is None else self._record
            if isinstance(target, Store):
                self._store = target
            elif isinstance(target, str | os.PathLike) and os.path.exists(target):
                self._store = Store(target)
        flush()  # what was traced a moment ago is in the record
        return self._store

    @contextmanager
    def counted(self) -> Iterator[Callable[[Sequence[Step]], Sequence[Step]]]:
        """While the agent answers; what it gives adds the model calls of that time to the steps that were traced."""
        if self._model_calls is None:
            yield lambda steps: steps
            return
        # With the readers of all traces, which few commands need.
        from ..record.tracing.join import with_calls

        model_calls = self._model_calls
        model_calls()  # those of an answer that failed are nobody's
        with timing():
            yield lambda steps: with_calls(steps, model_calls())

    def count(self, counts: ReplayCounts | None) -> None:
        """Note one call; None of a live one."""
        with self._lock:
            if counts is None:
                self._replays.live += 1
                return
            self._replays.replayed += 1
            self._replays.diverged += bool(counts.diverged)
            self._replays.exact += counts.exact
            self._replays.nearest += counts.nearest
            self._replays.simulated += counts.simulated


def calls(
    agent: Callable[..., Any],
    *,
    record: Record = None,
    divergence: Divergence = "exclude",
    live: Collection[str] = (),
    model_calls: ModelCalls | None = None,
) -> Calls:
    """An agent function as an environment: one call is one episode.

    The function is plain, async or a generator of either, whose answer is the list of what it yields.

    The task's instruction is the first argument and the entries of `initial_state` are keyword
    arguments.  The agent runs under the Bundle being tried, as far as it reads its resources at
    call time; what it traced becomes steps of the trajectory.

    A task that `whet.tasks` read from recorded runs is replayed: the agent is called as it was, its
    model calls are real, and its tools (functions marked `@whet.step(kind="tool")`) get their recorded
    answers.  A run that does what was never recorded is an infrastructure error, which no statistic
    counts; `replays` says how many there were, and the reasons of the gate's Verdict how far the replays'
    verdicts agree with the recorded ones.

    Args:
        record: where the recorded runs are: a Store, its path, or Trajectories; `"live"` never replays.
            By default the store that the agent's own `@trace` records to.
        divergence: what a call gets that was not recorded: `exclude` refuses it, `nearest` answers a read
            with the most similar recorded one, a function simulates the tool.
        live: names of tools that may run for real in a replay of what was captured from outside: those that
            a framework brings and nobody can mark.
        model_calls: the gateway's calls since it was asked last; they become steps of the rollout under way, of which
            there must be one at a time.
    """
    return Calls(agent, record, divergence, live, model_calls)
