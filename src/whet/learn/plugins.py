"""The plug-in contract: learners, environments, rewards and models of other packages, found by name.

A package announces what it brings as entry points, and nothing else is needed:

    [project.entry-points."whet.optimizers"]
    choose = "my_package:Choose"

    group            what the entry point names
    whet.optimizers  a class or function whose call without arguments gives an Optimizer
    whet.envs        a function without arguments that makes a fresh Env; it may bring a `policy`
    whet.rewards     a Reward: a function of a Trajectory
    whet.models      a class or function whose call with a base URL and a model's name gives a Model

`whet improve --with NAME`, `whet train NAME` and `load` find them.  The options of a learner are the dataclass that
its parameter `options` is annotated with: `whet train NAME` has a flag for every field, the string under the field is
its help.  whet's own are announced the same way, in BUILT_IN.  Nothing is imported before it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..errors import InputError, MissingExtra, NotFoundError
from .loop import Optimizer

GROUPS = ("whet.optimizers", "whet.envs", "whet.rewards", "whet.models")
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "whet.optimizers": {
        "awr": "whet.learn.optimizers.awr:AWR",
        "dpo": "whet.learn.optimizers.dpo:DPO",
        "evolve": "whet.learn.optimizers.evolve:Evolve",
        "grpo": "whet.learn.optimizers.grpo:GRPO",
        "head": "whet.learn.optimizers.head:Head",
        "kto": "whet.learn.optimizers.kto:KTO",
        "ppo": "whet.learn.optimizers.ppo:PPO",
        "reflect": "whet.learn.evolution.prompts.reflecting:Reflect",
        "reinforce": "whet.learn.optimizers.reinforce:REINFORCE",
        "rloo": "whet.learn.optimizers.rloo:RLOO",
        "sft": "whet.learn.optimizers.sft:SFT",
        "star": "whet.learn.optimizers.star:STaR",
    },
    "whet.envs": {},
    "whet.rewards": {
        "contains": "whet.judge:contains",
        "cost": "whet.judge.rules:COST",
        "env_reward": "whet.judge:env_reward",
        "exact": "whet.judge:exact",
        "f1": "whet.judge.answers:F1",
        "fewer_steps": "whet.judge.rules:FEWER_STEPS",
        "format": "whet.judge.answers:formatted",
        "goal_state": "whet.judge.conduct:goal_state",
        "implied": "whet.judge:implied",
        "intent": "whet.judge.conduct:intent",
        "json": "whet.judge.answers:JSON",
        "latency": "whet.judge.rules:LATENCY",
        "no_loops": "whet.judge.conduct:no_loops",
        "normalised": "whet.judge:exact",
        "number": "whet.judge.answers:NUMERIC",
        "numeric": "whet.judge.answers:NUMERIC",
        "rated": "whet.judge:rated",
        "ruler": "whet.judge:ruler",
        "safe": "whet.judge.conduct:safe",
        "schema": "whet.judge.answers:SCHEMA",
        "solved": "whet.judge:solved",
        "sql": "whet.judge.sql:SQL",
        "subgoals": "whet.judge.conduct:subgoals",
        "tests": "whet.judge.answers:TESTS",
        "thumbs": "whet.judge:thumbs",
        "tool_use": "whet.judge.tool_use:TOOL_USE",
        "turns": "whet.judge.conduct:TURNS",
        "verbatim": "whet.judge.answers:VERBATIM",
    },
    "whet.models": {"openai": "whet.models:OpenAIModel"},
}


def announced(group: str) -> dict[str, EntryPoint]:
    """Name → entry point of everything in a group, whet's own first; nothing is imported.

    Raises:
        NotFoundError: no such group.
        InputError: two packages announce one name.
    """
    if group not in GROUPS:
        raise NotFoundError(f"{group!r} is not a group of plug-ins; there are {', '.join(GROUPS)}")
    points = {name: EntryPoint(name, value, group) for name, value in BUILT_IN[group].items()}
    for point in entry_points(group=group):
        earlier = points.setdefault(point.name, point)
        if earlier.value != point.value:
            raise InputError(
                f"{point.name!r} of {group} is announced as {earlier.value} and as {point.value}: "
                "uninstall one of the packages, or have one rename it"
            )
    return points


def load(group: str, name: str) -> Any:
    """The object under a name of a group.

    Raises:
        NotFoundError: nothing is announced under it.
        InputError: it cannot be imported.
        MissingExtra: it needs a package of an extra.
    """
    points = announced(group)
    if name not in points:
        raise NotFoundError(f"{group} has no {name!r}; there are {', '.join(sorted(points)) or 'none'}")
    try:
        return points[name].load()
    # An ImportError as well, and the one that says what to install.
    except MissingExtra:
        raise
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name!r} of {group}, {points[name].value}, cannot be imported: {error}") from error


def optimizer(name: str, **settings: Any) -> Optimizer:
    """The optimizer of that name, made with these settings.

    Raises:
        InputError: as `load`; or what it gives is not an Optimizer, or takes no such settings.
    """
    make = load("whet.optimizers", name)
    try:
        learner = make(**settings)
    except TypeError as error:
        raise InputError(f"{name!r} of whet.optimizers cannot be made: {error}") from error
    if not isinstance(learner, Optimizer):
        raise InputError(
            f"{name!r} of whet.optimizers gives a {type(learner).__name__}, which is not an Optimizer: it needs name, "
            "group_size, on_policy, ordered and step (whet.learn.loop)"
        )
    return learner
