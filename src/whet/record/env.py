"""Where a policy acts: the Env protocol, and `rollout`, the one loop that drives it.

`rollout` never raises for what goes wrong inside it: a failure is attributed
once, here, and stored on the Trajectory.  An environment that breaks is an
infrastructure error, which no learner may score as a failure.  `check_env`
is what tests, ours and yours, hold an Env to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..errors import ContractError, EnvError, PermissionDenied
from ..types import Budget, Bundle, Failure, Fault, Json, Outcome, Step, Task, Trajectory, canonical, new_id
from .faults import fault_of
from .gym import adapted
from .permissions.enforcement import enforced
from .permitted_env import PermittedEnv
from .policy import Action, FunctionPolicy, Policy, placed
from .tracing.record import outcome as outcome_of
from .tracing.trace import in_rollout


@dataclass(frozen=True, slots=True)
class StepResult:
    """An Env's answer to an action; unpacks as Gymnasium's five values."""

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
"""Makes a fresh Env per rollout, or a fresh environment with Gymnasium's methods.  A factory may besides have

- `policy(bundle, seed)`: makes the Policy, where env and policy are one (`whet.calls`);
- `held(bundle)`: an async context manager that an Experiment enters around the rollouts of one bundle, where
  they share something dear, such as a process.  Entered again within, it shares what is there.
- `expect(bundle, tasks)`: told within `held` of which tasks one episode each follows, in this order, unless the run
  is broken off.

An Env may have `meta`, a mapping of JSON values that the rollout puts into `Trajectory.meta`; `co_resident` and
`trusted_only` in it say that the gate may promote nothing by this trajectory.
"""


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


@asynccontextmanager
async def held(env: EnvFactory, bundle: Bundle) -> AsyncIterator[None]:
    """The factory's resources for rollouts of one bundle, if it holds any."""
    opened = getattr(env, "held", None)
    if opened is None:
        yield
        return
    async with opened(bundle):
        yield


async def _resolved(value: Any) -> Any:
    # Not `inspect.isawaitable`: it costs as much as all else around a step of a plain environment.
    return await value if hasattr(type(value), "__await__") else value


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
        env: an Env, or an environment with Gymnasium's methods (`whet.record.gym.adapted`).
        seed: of this rollout alone; given to the env.
        budget: `steps` and `seconds` are limits of this rollout. A policy that awaits is cut
            off when the time is up; one that computes is stopped after its action.
        versions: resource name → Version id, recorded on the trajectory.
        id: the trajectory's id, which `whet.run()` gives in it; a fresh one if None.
        prefix: actions to replay first, without asking the policy (tree search branches this way).

    Returns:
        A Trajectory whose `outcome` says how it ended. Failures of the model or the
        environment, and a budget used up, are INFRASTRUCTURE_ERROR; an exception of the
        agent's own is FAILURE, and what permissions denied is BLOCKED.
    """
    named = id or new_id()
    with in_rollout(named):
        return await _episode(
            env, policy, task, seed, budget or Budget(), versions or {}, named, prefix or ()
        )


async def _episode(
    env: Env,
    policy: Policy,
    task: Task,
    seed: int,
    limit: Budget,
    versions: Mapping[str, str],
    id: str,
    prefix: Sequence[Json],
) -> Trajectory:
    steps: list[Step] = []
    env_steps = 0  # of the env; in `steps` lie those of a traced agent, too
    started, clock = time.time(), time.perf_counter()
    outcome, error, output = Outcome.UNKNOWN, None, None
    forced = list(prefix)

    try:
        env = adapted(env)
        enforcement = enforced()
        if enforcement is not None:
            env = PermittedEnv(env, enforcement)
        observation = await _resolved(env.reset(task, seed))
    except (Exception, SystemExit) as exception:
        outcome, error = Outcome.INFRASTRUCTURE_ERROR, _failure(Fault.ENVIRONMENT, exception)
    while error is None:
        # Before the policy is asked: an action that the env may no longer take would be paid for in vain.
        if limit.steps is not None and env_steps >= limit.steps:
            outcome = Outcome.TRUNCATED
            break
        if limit.seconds is not None and time.perf_counter() - clock >= limit.seconds:
            outcome = Outcome.TIMEOUT
            break
        before = time.perf_counter()
        seconds_left = None if limit.seconds is None else limit.seconds - (before - clock)
        action = Action(forced.pop(0)) if forced else await _decided(policy, observation, seconds_left)
        if isinstance(action, _Undecided):
            outcome, error = action.outcome, action.error
            steps.extend(placed(action.steps, steps))
            break
        latency = time.perf_counter() - before
        result = StepResult(None)
        try:
            result = _five(await _resolved(env.step(action.value)))
            # Inside the try: an `outcome` that is none is the environment's fault, like a step that raises.
            ended = _outcome(result)
        except PermissionDenied as denied:
            # Of a tool that the environment called for the policy: its doing, as the action was.
            error = _failure(Fault.AGENT, denied)
            outcome = outcome_of(error)
        except (Exception, SystemExit) as exception:
            outcome, error = Outcome.INFRASTRUCTURE_ERROR, _failure(Fault.ENVIRONMENT, exception)
        done = error is None and (result.terminated or result.truncated)
        step = Step(
            observation=observation,
            action=action.value,
            reward=None if error else result.reward,
            done=done,
            tokens=action.tokens,
            usage=action.usage,
            latency=latency,
            # By place, as `placed` numbers the steps that go inside.
            id=str(len(steps)),
            error=error,
            info={} if error else result.info,
        )
        steps.append(step)
        if error is not None:
            break
        env_steps += 1
        # After the step around them: a reader that meets a child first would not know its parent.
        steps.extend(placed(action.steps, steps, step.id))
        observation, output = result.observation, action.value
        if done:
            outcome = ended
            break
    return Trajectory(
        id=id,
        task=task,
        steps=tuple(steps),
        output=output,
        versions=dict(versions),
        outcome=outcome,
        error=error,
        seed=seed,
        started=started,
        seconds=time.perf_counter() - clock,
        meta=getattr(env, "meta", None) or {},
    )


@dataclass(frozen=True, slots=True)
class _Undecided:
    """The end of a rollout whose policy gave no action."""

    outcome: Outcome
    error: Failure | None = None
    steps: Sequence[Step] = ()
    """Of a whole agent, before it failed."""


async def _decided(policy: Policy, observation: Json, seconds: float | None) -> Action | _Undecided:
    limit = None
    try:
        if seconds is None:
            action = await policy.act(observation)
        else:
            async with asyncio.timeout(seconds) as limit:
                action = await policy.act(observation)
        if not isinstance(action, Action):
            raise TypeError(f"act() returned {type(action).__name__}; it must return an Action")
        return action
    # A program that ends itself has failed at its task: one exit must not end all rollouts, with its own exit code.
    except (Exception, SystemExit) as exception:
        # A TimeoutError may be the agent's own, and then its failure: only the limit knows if it ran out.
        if isinstance(exception, TimeoutError) and limit is not None and limit.expired():
            return _Undecided(Outcome.TIMEOUT)
        carried = getattr(exception, "failure", None)
        if isinstance(carried, Failure):  # it failed elsewhere, and what came over says whose fault it was
            return _Undecided(outcome_of(carried), carried, getattr(exception, "steps", ()))
        # A budget that ran out says as little about the policy as an endpoint that is down.
        failure = _failure(fault_of(exception), exception)
        return _Undecided(outcome_of(failure), failure)


def failed(
    task: Task, fault: Fault, exception: Exception, *, seed: int, versions: Mapping[str, str], id: str
) -> Trajectory:
    """The trajectory of a rollout that failed before it began, as its environment or policy was made."""
    failure = _failure(fault, exception)
    return Trajectory(
        id=id,
        task=task,
        versions=dict(versions),
        outcome=outcome_of(failure),
        error=failure,
        seed=seed,
        seconds=0.0,
    )


def _failure(fault: Fault, exception: BaseException) -> Failure:
    return Failure(fault, type(exception).__name__, str(exception))


def _five(result: Any) -> StepResult:
    if isinstance(result, StepResult):
        return result
    # Four values would unpack too, with `info` where `truncated` belongs.
    if not isinstance(result, tuple) or len(result) != 5:
        raise EnvError(
            f"step must return observation, reward, terminated, truncated, info; it returned "
            f"{result!r:.100}. Of four values it is Gym's, and is adapted if reset takes no Task."
        )
    return StepResult(*result)


def _outcome(result: StepResult) -> Outcome:
    if "outcome" in result.info:
        return Outcome(result.info["outcome"])
    if "success" in result.info:
        return Outcome.SUCCESS if result.info["success"] else Outcome.FAILURE
    return Outcome.TRUNCATED if result.truncated and not result.terminated else Outcome.UNKNOWN


async def check_env(make: EnvFactory, task: Task, actions: Sequence[Json], *, seed: int = 0) -> None:
    """Hold an Env to its contract on one task.

    Args:
        make: makes a fresh Env.
        task: any task it accepts.
        actions: valid actions in order, the last of which must end the episode.

    Raises:
        ContractError: step before reset or after the end does not raise; a valid action does;
            results are not StepResults; an observation is not JSON, or changes after it was given;
            the same seed and actions give different results; a snapshot does not restore.
    """
    try:
        await _held(make, task, actions, seed)
    except Exception as error:
        problem = (
            str(error) if isinstance(error, ContractError) else f"raised {type(error).__name__}: {error}"
        )
        raise ContractError(f"{type(make()).__name__}: {problem}") from error


async def _held(make: EnvFactory, task: Task, actions: Sequence[Json], seed: int) -> None:
    # An env of its own: one that failed before reset may be in any state.
    made, make = make, lambda: adapted(made())
    await _must_refuse(make(), actions[0], "before reset")
    env = make()
    first = await _played(env, task, actions, seed)
    await _must_refuse(env, actions[-1], "after the end")
    if await _played(make(), task, actions, seed) != first:
        raise ContractError("the same task, seed and actions gave different results")
    if hasattr(env, "snapshot") and len(actions) > 1:
        branch: Any = make()
        await _resolved(branch.reset(task, seed))
        saved = await _resolved(branch.snapshot())
        once = tuple(await _resolved(branch.step(actions[0])))
        await _resolved(branch.restore(saved))
        if tuple(await _resolved(branch.step(actions[0]))) != once:
            raise ContractError("restore(snapshot()) did not bring the episode back")
    trajectory = await rollout(make(), FunctionPolicy(_replayed(actions)), task, seed=seed)
    if trajectory.error is not None:
        raise ContractError(f"a rollout ended in {trajectory.error.type}: {trajectory.error.message}")


async def _must_refuse(env: Env, action: Json, when: str) -> None:
    try:
        await _resolved(env.step(action))
    except RuntimeError:
        return
    except Exception as error:
        raise ContractError(
            f"step {when} must raise EnvError, not {type(error).__name__}: {error}"
        ) from error
    raise ContractError(f"step {when} must raise EnvError")


async def _played(env: Env, task: Task, actions: Sequence[Json], seed: int) -> list[Any]:
    observations: list[Any] = [await _resolved(env.reset(task, seed))]
    # As bytes, now: an env that changes an observation later is caught by the comparison at the end.
    transitions: list[Any] = [(_as_json(observations[0]), None, False)]
    for number, action in enumerate(actions):
        result = _five(await _resolved(env.step(action)))
        if result.reward is not None and result.reward != result.reward:
            raise ContractError(f"reward of action {number} is NaN; use None where there is none")
        ended = result.terminated or result.truncated
        if ended != (number == len(actions) - 1):
            raise ContractError(f"action {number} {'ended' if ended else 'did not end'} the episode")
        observations.append(result.observation)
        transitions.append((_as_json(result.observation), result.reward, ended))
    if [_as_json(observation) for observation in observations] != [
        observation for observation, _, _ in transitions
    ]:
        raise ContractError("an observation changed after it was given; give a copy")
    return transitions


def _as_json(observation: Any) -> bytes:
    try:
        return canonical(observation)
    except (TypeError, ValueError) as error:
        raise ContractError(f"an observation cannot be written as JSON ({error})") from error


def _replayed(actions: Sequence[Json]) -> Callable[[Json], Json]:
    remaining = iter(actions)
    return lambda _observation: next(remaining)


__all__ = [
    "Env",
    "EnvError",
    "EnvFactory",
    "StepResult",
    "Transition",
    "check_env",
    "failed",
    "rollout",
]
