"""`calls`: an agent function as an environment, one call per episode.

For agents that are run as they are: the task's instruction goes in, whatever comes back ends the
episode, and what the agent traced on the way becomes its steps.  An agent that acts turn by turn
has an Env of its own (`whet.env`); what an Experiment does with either is in `whet.loop`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from .env import Env, StepResult
from .errors import EnvError
from .policy import Action, Policy
from .tracing import collecting, using
from .types import Bundle, Json, Step, Task


class _Call:
    """One call of an agent as an Env: the policy is the agent, its answer ends the episode."""

    def __init__(self) -> None:
        self._open = False

    def reset(self, task: Task, seed: int) -> Json:
        self._open = True
        return (
            {"instruction": task.instruction, **task.initial_state}
            if task.initial_state
            else task.instruction
        )

    def step(self, action: Json) -> StepResult:
        if not self._open:
            raise EnvError("this call has not been started or is over: reset() a fresh Env")
        self._open = False
        return StepResult(None, None, True)


class _Agent:
    """A user's agent as the Policy of one call, under one Bundle."""

    def __init__(self, agent: Callable[..., Any], bundle: Bundle) -> None:
        self._agent, self._bundle = agent, bundle

    async def act(self, observation: Json, /) -> Action:
        arguments = observation if isinstance(observation, dict) else {}
        given = () if arguments else (observation,)
        if "instruction" in arguments:
            arguments = dict(arguments)
            given = (arguments.pop("instruction"),)
        with using(self._bundle), collecting() as records:
            if inspect.iscoroutinefunction(self._agent):
                value = await self._agent(*given, **arguments)
            else:
                # A thread of its own, so that an agent that waits for its model does not hold up the others.
                value = await asyncio.to_thread(self._agent, *given, **arguments)
        steps: list[Step] = []
        for record in records:
            steps.extend([record] if isinstance(record, Step) else record.steps)
        return Action(value, steps=steps)


class _Calls:
    def __init__(self, agent: Callable[..., Any]) -> None:
        self._agent = agent

    def __call__(self) -> Env:
        return _Call()

    def policy(self, bundle: Bundle, seed: int, /) -> Policy:
        return _Agent(self._agent, bundle)


def calls(agent: Callable[..., Any]) -> _Calls:
    """An agent function, sync or async, as an environment: one call is one episode.

    The task's instruction is the first argument and the entries of `initial_state` are keyword
    arguments.  The agent runs under the Bundle being tried, as far as it reads its resources at
    call time; what it traced becomes steps of the trajectory.
    """
    return _Calls(agent)
