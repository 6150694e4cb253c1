"""Where a policy acts: the Env protocol, and `rollout`, the one loop that drives it.

`rollout` never raises for what goes wrong inside it: a failure is attributed
once, here, and stored on the Trajectory.  An environment that breaks is an
infrastructure error, which no learner may score as a failure.  `check_env`
is what tests, ours and yours, hold an Env to.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from .errors import ContractError, EnvError, ModelError
from .policy import Action, FunctionPolicy, Policy
from .types import Budget, Failure, Fault, Json, Outcome, Step, Task, Trajectory, Usage, new_id


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an Env answers; unpacks as Gymnasium's five values."""

    observation: Json
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Json] = field(default_factory=dict)
    """`success` (bool) or `outcome` (an Outcome) decide the trajectory's outcome."""

    def __iter__(self) -> Any:
        return iter((self.observation, self.reward, self.terminated, self.truncated, self.info))


@runtime_checkable
class Env(Protocol):
    """One episode of one task; single use.  Methods may be plain or async.

    `snapshot() -> Any` and `restore(Any)` are optional; tree search and process labels need them.
    """

    def reset(self, task: Task, seed: int) -> Any:
        """Start the episode and return the first observation (or an awaitable of it)."""
        ...

    def step(self, action: Json) -> Any:
        """Take the action and return a StepResult (or an awaitable of one).

        Raises:
            EnvError: stepped before reset or after the end.
        """
        ...


EnvFactory = Callable[[], Env]


@dataclass(frozen=True, slots=True)
class Transition:
    """One step as the classic four-value loop records it.

    `obs` is what was seen before the action, `next_obs` what the environment answered,
    `reward` what the action earned and `done` whether it ended the episode.
    """

    obs: Json
    action: Json
    reward: float
    done: bool
    next_obs: Json


async def _resolved(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def rollout(
    env: Env,
    policy: Policy,
    task: Task,
    *,
    seed: int,
    budget: Budget | None = None,
    versions: Mapping[str, str] | None = None,
    id: str | None = None,
    prefix: Sequence[Json] | None = None,
) -> Trajectory:
    """Let `policy` act in `env` on `task` until the end, a limit or a failure.

    Args:
        seed: of this rollout alone; given to the env.
        budget: `steps` and `seconds` are limits of this rollout.
        versions: resource name → Version id, recorded on the trajectory.
        id: the trajectory's id; a fresh one if None.
        prefix: actions to replay first, without asking the policy (tree search branches this way).

    Returns:
        A Trajectory whose `outcome` says how it ended. Failures of the model or the
        environment are INFRASTRUCTURE_ERROR; an exception of the agent's own is FAILURE.
    """
    limit = budget or Budget()
    steps: list[Step] = []
    started, clock = time.time(), time.perf_counter()
    outcome, error, output = Outcome.UNKNOWN, None, None
    forced = list(prefix or ())

    def failure(fault: Fault, exception: BaseException) -> Failure:
        return Failure(fault, type(exception).__name__, str(exception))

    try:
        observation = await _resolved(env.reset(task, seed))
    except Exception as exception:
        outcome, error = Outcome.INFRASTRUCTURE_ERROR, failure(Fault.ENVIRONMENT, exception)
    while error is None:
        if limit.steps is not None and len(steps) >= limit.steps:
            outcome = Outcome.TRUNCATED
            break
        if limit.seconds is not None and time.perf_counter() - clock >= limit.seconds:
            outcome = Outcome.TIMEOUT
            break
        before = time.perf_counter()
        try:
            action = Action(forced.pop(0)) if forced else await policy.act(observation)
        except ModelError as exception:
            outcome, error = Outcome.INFRASTRUCTURE_ERROR, failure(Fault.MODEL, exception)
            break
        except Exception as exception:
            outcome, error = Outcome.FAILURE, failure(Fault.AGENT, exception)
            break
        step = Step(
            observation=observation,
            action=action.value,
            tokens=action.tokens,
            usage=action.usage,
            latency=time.perf_counter() - before,
            id=str(len(steps)),
        )
        try:
            result = StepResult(*await _resolved(env.step(action.value)))
        except Exception as exception:
            outcome, error = Outcome.INFRASTRUCTURE_ERROR, failure(Fault.ENVIRONMENT, exception)
            steps.append(replace(step, error=error))
            break
        done = result.terminated or result.truncated
        steps.append(replace(step, reward=result.reward, done=done, info=result.info))
        steps.extend(replace(inner, parent=inner.parent or step.id) for inner in action.steps)
        observation, output = result.observation, action.value
        if done:
            outcome = _outcome(result)
            break
    return Trajectory(
        id=id or new_id(),
        task=task,
        steps=tuple(steps),
        output=output,
        versions=dict(versions or {}),
        outcome=outcome,
        error=error,
        seed=seed,
        started=started,
        seconds=time.perf_counter() - clock,
    )


def _outcome(result: StepResult) -> Outcome:
    if "outcome" in result.info:
        return Outcome(result.info["outcome"])
    if "success" in result.info:
        return Outcome.SUCCESS if result.info["success"] else Outcome.FAILURE
    return Outcome.TRUNCATED if result.truncated and not result.terminated else Outcome.UNKNOWN


def usage(trajectory: Trajectory) -> Usage:
    """Sum of the usage of a trajectory's steps."""
    return sum((step.usage for step in trajectory.steps if step.usage), Usage())


class FourValueEnv:
    """Adapts an environment whose `step` returns `(obs, reward, done, info)` to the Env protocol.

    Args:
        env: has `reset()` or `reset(task_id)` and a four-value `step(action)`.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, task: Task, seed: int) -> Json:
        takes_task = bool(inspect.signature(self.env.reset).parameters)
        return self.env.reset(task.id) if takes_task else self.env.reset()

    def step(self, action: Json) -> StepResult:
        observation, reward, done, info = self.env.step(action)
        info = dict(info)
        truncated = bool(info.pop("TimeLimit.truncated", False))
        if "correct" in info and "success" not in info:
            info["success"] = bool(info["correct"])
        return StepResult(observation, float(reward), bool(done) and not truncated, truncated, info)


async def check_env(make: EnvFactory, task: Task, actions: Sequence[Json], *, seed: int = 0) -> None:
    """Hold an Env to its contract on one task.

    Args:
        make: makes a fresh Env.
        task: any task it accepts.
        actions: valid actions in order, the last of which must end the episode.

    Raises:
        ContractError: step before reset or after the end does not raise; results are not
            StepResults; the same seed and actions give different results; a snapshot does
            not restore.
    """

    def fail(what: str) -> ContractError:
        return ContractError(f"{type(make()).__name__}: {what}")

    try:
        await _resolved(make().step(actions[0]))
    except RuntimeError:
        pass
    else:
        raise fail("step before reset must raise EnvError")

    async def play(env: Env) -> list[Any]:
        seen: list[Any] = [await _resolved(env.reset(task, seed))]
        for number, action in enumerate(actions):
            result = await _resolved(env.step(action))
            if len(tuple(result)) != 5:
                raise fail("step must return a StepResult: observation, reward, terminated, truncated, info")
            result = StepResult(*result)
            if result.reward is not None and result.reward != result.reward:
                raise fail(f"reward of action {number} is NaN; use None where there is none")
            ended = result.terminated or result.truncated
            if ended != (number == len(actions) - 1):
                raise fail(f"action {number} {'ended' if ended else 'did not end'} the episode")
            seen.append((result.observation, result.reward, ended))
        return seen

    env = make()
    first = await play(env)
    try:
        await _resolved(env.step(actions[-1]))
    except RuntimeError:
        pass
    else:
        raise fail("step after the end must raise EnvError")
    if await play(make()) != first:
        raise fail("the same task, seed and actions gave different results")
    if hasattr(env, "snapshot") and len(actions) > 1:
        branch: Any = make()
        await _resolved(branch.reset(task, seed))
        saved = await _resolved(branch.snapshot())
        once = tuple(await _resolved(branch.step(actions[0])))
        await _resolved(branch.restore(saved))
        if tuple(await _resolved(branch.step(actions[0]))) != once:
            raise fail("restore(snapshot()) did not bring the episode back")
    await rollout(make(), FunctionPolicy(_replayed(actions)), task, seed=seed)


def _replayed(actions: Sequence[Json]) -> Callable[[Json], Json]:
    remaining = iter(actions)
    return lambda _observation: next(remaining)


__all__ = [
    "Env",
    "EnvError",
    "EnvFactory",
    "FourValueEnv",
    "StepResult",
    "Transition",
    "check_env",
    "rollout",
    "usage",
]
