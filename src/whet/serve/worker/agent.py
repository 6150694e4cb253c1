"""One attempt at one rollout: the user's agent, whatever its interface, from a Lease to a FinishRequest.

A failure is attributed here: an exception of the agent is a recorded failure of the rollout; an
infrastructure error (the model endpoint down, the environment broken) is reported as an error, so
that the queue gives the rollout out again.  Nothing is imported because a task says so; the agent
is named on the user's own command line.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...judge.agent_env import calls
from ...record.env import rollout
from ...record.store.codec import recordable
from ...record.tracing.live import noting, using
from ...record.tracing.record import blame, outcome
from ...record.tracing.trace import in_rollout, timing
from ...types import Bundle, Lease, Outcome, Trajectory, digest
from .lit import input_of, is_async, is_lit, reported, resources_of, trajectory_of
from .wire import FinishRequest

Attempt = Callable[[Lease, Bundle], Awaitable[FinishRequest]]
"""Runs one lease under its Bundle; never raises an exception of the agent."""


def load(spec: str) -> Any:
    """The object that `MODULE:NAME` names; the current folder is searched first.

    Raises:
        InputError: no such module or name, or the module failed to import.
    """
    module, _, name = spec.partition(":")
    if not module or not name:
        raise InputError(f"{spec!r} is not a name. Write MODULE:NAME, for example my_agent:answer")
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InputError(f"{module} is a file; a module is named without its ending: {dotted}:{name}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        named: Any = importlib.import_module(module)
    except SystemExit as exception:
        # Unnoticed, it would end the command with the program's exit code, and nothing would have been done.
        raise InputError(
            f"{module} cannot be imported: it ends the program (SystemExit: {exception}). Put what it does when it is "
            'started under if __name__ == "__main__":'
        ) from exception
    except Exception as exception:
        raise InputError(
            f"{module} cannot be imported: {type(exception).__name__}: {exception}"
        ) from exception
    for part in name.split("."):
        if not hasattr(named, part):
            raise InputError(f"{spec!r} cannot be loaded: {module} has no {name!r}")
        named = getattr(named, part)
    return named


def attempt(agent: Any) -> Attempt:
    """The Attempt that runs an agent: a function (sync or async), a LitAgent, or a class of either.

    Raises:
        InputError: it is none of these.
    """
    if inspect.isclass(agent):
        try:
            agent = agent()
        except TypeError as exception:
            raise InputError(f"{agent.__name__} cannot be made without arguments: {exception}") from exception
    if is_lit(agent):
        return _Lit(agent)
    if callable(agent):
        return _Called(agent)
    raise InputError(
        f"{type(agent).__name__} is not an agent: give a function, or a class with training_rollout"
    )


def _id(lease: Lease) -> str:
    return f"{lease.rollout.id}.{lease.attempt}"


def _finish(lease: Lease, trajectory: Trajectory, bundle: Bundle, read: Mapping[str, str]) -> FinishRequest:
    # What was read wins over what the Bundle names: a function that the sandbox cannot take runs as in the source.
    trajectory = replace(trajectory, versions={**bundle.ids, **read})
    id, mode = lease.rollout.id, lease.rollout.mode
    meta = {"run": id, "rollout": id, "attempt": lease.attempt, "mode": mode, "worker": lease.worker}
    trajectory = recordable(replace(trajectory, meta={**trajectory.meta, **meta}))
    # The queue retries a report with an error; the agent's own mistake is a result, to learn from.
    error = trajectory.error if trajectory.outcome is Outcome.INFRASTRUCTURE_ERROR else None
    own = {name: id for name, id in read.items() if name not in bundle}
    return FinishRequest(lease.rollout.id, lease.fence, trajectory, error, own=own)


class _Called:
    """A plain function: one call is one episode, as `whet.calls` has it."""

    def __init__(self, agent: Callable[..., Any]) -> None:
        self._env = calls(agent)

    async def __call__(self, lease: Lease, bundle: Bundle) -> FinishRequest:
        seed = lease.rollout.meta.get("seed")
        if not isinstance(seed, int):
            # Of the rollout and not of the attempt: one that is tried again gets the same seed.
            seed = int(digest(lease.rollout.id, 8), 16)
        with noting() as read, timing():
            done = await rollout(
                self._env(),
                self._env.policy(bundle, seed),
                lease.rollout.task,
                seed=seed,
                id=_id(lease),
            )
        return _finish(lease, done, bundle, read)


class _Lit:
    """An agent with the interface of `lit.LitAgent`."""

    def __init__(self, agent: Any) -> None:
        self._agent, self._awaits = agent, is_async(agent)

    async def __call__(self, lease: Lease, bundle: Bundle) -> FinishRequest:
        task, id = lease.rollout.task, _id(lease)
        name = "training_rollout" if lease.rollout.mode == "train" else "validation_rollout"
        arguments = (input_of(task), id, resources_of(bundle))
        began, clock = time.time(), time.perf_counter()
        read: Mapping[str, str] = {}
        try:
            with using(bundle), noting() as read, in_rollout(id), timing():
                if self._awaits:
                    result = await getattr(self._agent, f"{name}_async")(*arguments)
                else:
                    # to_thread carries the context along; with run_in_executor the agent
                    # would run without its Bundle.
                    result = await asyncio.to_thread(getattr(self._agent, name), *arguments)
            done = trajectory_of(reported(result, id), task, id)
        except (Exception, SystemExit) as exception:
            # A CancelledError is no Exception: it goes on to the worker, which knows why it cancelled. A program that
            # ends itself does so for its rollout, and not for the worker's others.
            failure = blame(exception)
            done = Trajectory(task=task, id=id, outcome=outcome(failure), error=failure)
        seconds = time.perf_counter() - clock
        return _finish(lease, replace(done, started=began, seconds=seconds), bundle, read)
