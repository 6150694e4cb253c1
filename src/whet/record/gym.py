"""Gymnasium environments as Envs, and Envs as Gymnasium environments.

An object counts as Gymnasium's by its shape, so `adapted` needs no package: `reset()` or `reset(seed=, options=)`,
with or without an info beside the observation, and `step(action)` of four values (Gym) or five (Gymnasium).
`rollout`, `check_env` and an Experiment adapt such objects by themselves; calling `adapted` is for its options.

Observations become JSON.  An action comes as text from a language model, or as JSON, and becomes a member of the action
space; one that cannot ends the episode as a failure of the policy, not of the environment.

This module does not import `env.py`, which uses it; the five values of a step are a tuple here.
"""

from __future__ import annotations

import copy
import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ContractError, EnvError, InputError, MissingExtra
from ..escapes import read_json
from ..types import Json, Split, Task
from .spaces import as_json

Five = tuple[Json, float | None, bool, bool, dict[str, Json]]
"""Observation, reward, terminated, truncated, info."""

PENALTY = -1.0
"""Reward of an action that the environment does not have."""
_SUCCESS = ("success", "is_success", "correct")
"""Keys of an info that say whether an episode went well."""
_NUMBER = re.compile(r"-?\d+")


def adapted(
    env: Any,
    *,
    actions: Sequence[str] | None = None,
    success: float | None = None,
    penalty: float = PENALTY,
) -> Any:
    """An Env of an environment with Gymnasium's methods; an object that is an Env already is returned as it is.

    A Task's `initial_state` resets it: `seed` is its seed (the rollout's own if there is none, so tasks with seeds
    begin alike in every rollout), and the other entries are Gymnasium's `options`.

    Args:
        env: with `reset` and `step`, of either generation of the API.
        actions: names of a Discrete space's actions, in order. If None, those of the env's `action_names`, `ACTIONS` or
            `get_action_meanings()`, if it has one of them.
        success: least sum of rewards of a successful episode. If None, the info decides (`success`, `is_success` or
            `correct`), else the `reward_threshold` of the env's spec, else a sum above 0 of an episode that terminated.
        penalty: reward of an action that is not in the action space. It ends the episode, so choose one below what
            playing on can cost.

    Raises:
        ContractError: a method is missing, or it is a vector of environments that nobody can make anew; says which
            and what to do.
    """
    if makers := _makers(env):
        env.close()
        env = makers[0]()
    if not _is_gymnasium(env):
        return env
    return AdaptedEnv(env, actions=actions, success=success, penalty=penalty)


def factory_of(env: Any) -> Any:
    """A function that makes a fresh environment: `env` itself if it is one, else copies of this environment.

    Raises:
        ContractError: it can neither be called nor copied, or has no `reset` or `step`.
    """
    if callable(env):
        return env
    if makers := _makers(env):
        return makers[0]
    _require(env)

    def copied() -> Any:
        try:
            return copy.deepcopy(env)
        except Exception as error:  # whatever a simulator's handle raises
            raise ContractError(
                f"{type(env).__name__} cannot be copied ({error}), and each rollout needs one of its own: give a "
                "function that makes a fresh one"
            ) from error

    return copied


def episodes(env: Any, n: int, *, seed: int = 0, split: Split | None = None) -> list[Task]:
    """Tasks that reset an environment with `n` different seeds, each a group of its own.

    Args:
        env: the environment or what makes it; gives the tasks their names.
        seed: of the seeds. Those of different splits differ.
        split: of the tasks; an Experiment divides them if None.
    """
    name = _name(env)
    label = f"{name}-{split.value if split else 'episode'}-{seed}"
    rng = random.Random(f"episodes/{label}")
    seeds: dict[int, None] = {}
    while len(seeds) < n:
        seeds[rng.randrange(2**31)] = None
    return [
        Task(id=f"{label}-{number}", group=f"{label}-{number}", initial_state={"seed": drawn}, split=split)
        for number, drawn in enumerate(seeds)
    ]


def as_gymnasium(
    env: Callable[[], Any], tasks: Sequence[Task], *, observation_space: Any = None, action_space: Any = None
) -> Any:
    """A `gymnasium.Env` of an Env, which other libraries can train and test on.

    `reset(seed=)` draws one of the tasks, `reset(options={"task": ID})` takes that one.  Rewards of None are 0, for
    Gymnasium knows no missing ones.  Several in a `gymnasium.vector.SyncVectorEnv` or `AsyncVectorEnv` work, too; with
    observations that are text, the latter takes `shared_memory=False`, for Gymnasium 1.4 loses text in shared memory.

    Args:
        env: makes a fresh Env per episode; plain or async.
        tasks: at least one.
        observation_space: of the observations, whose lists become its arrays. If None they become text: JSON if they
            are not text already.
        action_space: of the actions, which are given to the Env as JSON; any text if None.

    Raises:
        InputError: no task is given.
        MissingExtra: gymnasium is not installed.
    """
    try:
        from .gymnasium_env import TaskEnv
    except ImportError as error:
        raise MissingExtra("gymnasium", "gym") from error
    if not tasks:
        raise InputError("as_gymnasium needs at least one task for its episodes")
    return TaskEnv(env, tasks, observation_space=observation_space, action_space=action_space)


class AdaptedEnv:
    """One episode of an environment with Gymnasium's methods, as an Env; made by `adapted`."""

    def __init__(
        self,
        env: Any,
        *,
        actions: Sequence[str] | None = None,
        success: float | None = None,
        penalty: float = PENALTY,
    ) -> None:
        _require(env)
        self.env = env
        self._names = list(actions) if actions is not None else _action_names(env)
        self._success, self._penalty = success, penalty
        self._running, self._total, self._rewarded = False, 0.0, False

    def reset(self, task: Task, seed: int) -> Json:
        """The first observation."""
        state = dict(task.initial_state)
        own = state.pop("seed", seed)
        result = self.env.reset(**self._resetting(task, own, state))
        # Gym gave the observation alone; a pair with an info is Gymnasium's.
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
        self._running, self._total, self._rewarded = True, 0.0, False
        return as_json(result[0] if pair else result)

    def _resetting(self, task: Task, seed: int, options: dict[str, Json]) -> dict[str, Any]:
        """The arguments of the wrapped `reset`, by those that it takes."""
        parameters = inspect.signature(self.env.reset).parameters.values()
        anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
        takes = {each.name for each in parameters}
        given: dict[str, Any] = {}
        if "seed" in takes or anything:
            given["seed"] = seed
        elif callable(getattr(self.env, "seed", None)):  # Gym before 0.26
            self.env.seed(seed)
        if options and ("options" in takes or anything):
            given["options"] = options
        for each in parameters:
            required = each.default is each.empty and each.kind in (
                each.POSITIONAL_OR_KEYWORD,
                each.KEYWORD_ONLY,
            )
            if each.name not in given and (required or each.name in ("task", "task_id")):
                given[each.name] = task.id
        return given

    def step(self, action: Json) -> Five:
        """The wrapped env's step.

        Raises:
            EnvError: stepped before reset or after the end, or an observation without a JSON form.
        """
        if not self._running:
            raise EnvError(f"{type(self.env).__name__} was stepped before reset or after the end.")
        try:
            taken = _member(getattr(self.env, "action_space", None), action, self._names)
        except _Refused as refused:
            self._running = False
            return None, self._penalty, True, False, {"success": False, "refused": str(refused)}
        observation, reward, terminated, truncated, info = _five_of(self.env.step(taken))
        if reward is not None:
            self._total += reward
            self._rewarded = True
        self._running = not (terminated or truncated)
        if not self._running and "outcome" not in info:
            won = self._won(info, terminated)
            info |= {} if won is None else {"success": won}
        return observation, reward, terminated, truncated, info

    def _won(self, info: Mapping[str, Json], terminated: bool) -> bool | None:
        """Whether the episode that ended went well; None if nothing says so."""
        if self._success is not None:
            return self._total >= self._success
        for key in _SUCCESS:
            if isinstance(info.get(key), (bool, int, float)):
                return bool(info[key])
        threshold = getattr(getattr(self.env, "spec", None), "reward_threshold", None)
        if threshold is not None:
            return self._total >= float(threshold)
        return self._total > 0 if terminated and self._rewarded else None


def _info_of(info: Any) -> dict[str, Json]:
    """An info as JSON; what has no JSON form is named by its type."""
    shown: dict[str, Json] = {}
    for key, value in dict(info or {}).items():
        try:
            shown[str(key)] = as_json(value)
        except EnvError:
            shown[str(key)] = f"<{type(value).__name__}>"
    return shown


def _five_of(result: Any) -> Five:
    if not isinstance(result, tuple) or len(result) not in (4, 5):
        raise EnvError(
            "step must return observation, reward, terminated, truncated, info (or, as Gym did, observation, reward, "
            f"done, info); it returned {result!r:.100}"
        )
    info = _info_of(result[-1])
    if len(result) == 5:
        terminated, truncated = bool(result[2]), bool(result[3])
    else:
        truncated = bool(info.pop("TimeLimit.truncated", False))
        terminated = bool(result[2]) and not truncated
    reward = None if result[1] is None else float(result[1])
    return as_json(result[0]), reward, terminated, truncated, info


# -- shapes -------------------------------------------------------------------------------------

_known: dict[Any, bool] = {}
"""Function of a class's `reset` → whether it is Gymnasium's: a signature costs as much as a rollout's own work."""


def _is_gymnasium(env: Any) -> bool:
    """True if `reset` takes what Gymnasium's takes, and not a Task and a seed."""
    reset = getattr(env, "reset", None)
    function = getattr(reset, "__func__", None)
    if function is None or not hasattr(env, "step"):
        return reset is None or not hasattr(env, "step") or _resets_like_gymnasium(env, reset)
    if function not in _known:
        _known[function] = _resets_like_gymnasium(env, reset)
    return _known[function]


def _resets_like_gymnasium(env: Any, reset: Any) -> bool:
    try:
        signature = inspect.signature(reset)
    except (TypeError, ValueError):  # a compiled one
        return hasattr(env, "action_space")
    try:
        bound = signature.bind("task", 0)
    except TypeError:
        return True
    if "seed" in list(bound.arguments)[:1] or "options" in bound.arguments:
        return True
    # `reset(*args, **kwargs)` says nothing.
    return "args" in bound.arguments and hasattr(env, "action_space")


def _makers(env: Any) -> Sequence[Callable[[], Any]]:
    """Of a vector environment, what makes each of those that it plays; rollouts run side by side by themselves."""
    return tuple(getattr(env, "env_fns", None) or ()) if hasattr(env, "single_action_space") else ()


def _require(env: Any) -> None:
    name = type(env).__name__
    if hasattr(env, "single_action_space") or (hasattr(env, "num_envs") and hasattr(env, "envs")):
        raise ContractError(
            f"{name} is a vector environment, which plays several episodes at once; give a function that makes one "
            "of its environments, and rollouts run side by side by themselves"
        )
    missing = [method for method in ("reset", "step") if not callable(getattr(env, method, None))]
    if missing:
        does = {
            "reset": "reset(task, seed) starts an episode (Gymnasium: reset(seed=None, options=None))",
            "step": "step(action) answers an action with observation, reward, terminated, truncated, info",
        }
        raise ContractError(
            f"{name} is not an environment: it has no {' and no '.join(missing)}. Give it the "
            f"method{'s' * (len(missing) > 1)}: {'; '.join(does[method] for method in missing)}"
        )


def _name(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return str(getattr(spec, "id", None) or getattr(env, "__name__", None) or type(env).__name__)


def _action_names(env: Any) -> list[str]:
    # The wrappers of Gymnasium 1 pass no names on.
    inner = getattr(env, "unwrapped", env)
    for attribute in ("action_names", "ACTIONS"):
        names = getattr(env, attribute, None) or getattr(inner, attribute, None)
        if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
            return list(names)
    meanings = getattr(inner, "get_action_meanings", None)
    return [str(name) for name in meanings()] if callable(meanings) else []


# -- actions ------------------------------------------------------------------------------------


class _Refused(Exception):
    """An action that is not in the action space."""


def _member(space: Any, action: Json, names: Sequence[str]) -> Any:
    """The member of an action space that an action means.

    Raises:
        _Refused: it means none; the text says what the space has.
    """
    kinds = {kind.__name__ for kind in type(space).__mro__}
    if "Discrete" in kinds:
        return _discrete(space, action, names)
    if "Text" in kinds:
        if not isinstance(action, str):
            raise _Refused(f"{action!r:.80} is not text")
        return action
    if kinds & {"Box", "MultiBinary", "MultiDiscrete", "Dict", "Tuple"}:
        member = _structured(space, _decoded(action), kinds)
        if not space.contains(member):
            raise _Refused(f"{action!r:.80} lies outside {space}")
        return member
    return action


def _discrete(space: Any, action: Json, names: Sequence[str]) -> int:
    start, count = int(getattr(space, "start", 0)), int(space.n)
    number: int | None = None
    if isinstance(action, int) and not isinstance(action, bool):
        number = action
    elif isinstance(action, float) and action.is_integer():
        number = int(action)
    elif isinstance(action, str):
        number = _named(action, names, start)
    if number is None or not start <= number < start + count:
        choice = ", ".join(names) if names else f"a number from {start} to {start + count - 1}"
        raise _Refused(f"{action!r:.80} is not an action; choose {choice}")
    return number


def _named(text: str, names: Sequence[str], start: int) -> int | None:
    """The number of the action that a text names: the text itself, or the only one that stands in it."""
    said = text.strip().casefold()
    folded = [name.casefold() for name in names]
    if said in folded:
        return start + folded.index(said)
    inside = [
        number for number, name in enumerate(folded) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said)
    ]
    if len(inside) == 1:
        return start + inside[0]
    numbers = _NUMBER.findall(said)
    return int(numbers[0]) if len(numbers) == 1 and not inside else None


def _decoded(action: Json) -> Json:
    if not isinstance(action, str):
        return action
    try:
        return read_json(msgspec.json.decode, action)
    except (msgspec.DecodeError, ValueError) as error:
        raise _Refused(f"{action!r:.80} is not JSON: {error}") from error


def _structured(space: Any, value: Json, kinds: set[str]) -> Any:
    """JSON as a member of a space with parts or of an array space."""
    if "Dict" in kinds:
        if not isinstance(value, dict) or set(value) != set(space.spaces):
            raise _Refused(f"{value!r:.80} needs the keys {sorted(space.spaces)}")
        return {key: _member(inner, value[key], ()) for key, inner in space.spaces.items()}
    if "Tuple" in kinds:
        if not isinstance(value, list) or len(value) != len(space.spaces):
            raise _Refused(f"{value!r:.80} needs {len(space.spaces)} items")
        return tuple(_member(inner, item, ()) for inner, item in zip(space.spaces, value, strict=True))
    import numpy  # there is an array space, so it is installed

    try:
        return numpy.asarray(value, dtype=space.dtype).reshape(space.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise _Refused(f"{value!r:.80} does not fit {space}: {error}") from error
