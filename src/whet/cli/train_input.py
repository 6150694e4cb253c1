"""What `whet train METHOD` was given: read and checked before anything that needs torch is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..types import Split
from .app import counted, existing
from .named import judged, named

LEARN_PREFERENCES = ("dpo", "reward-model")
"""Methods that learn from preferences beside trajectories."""


@dataclass(frozen=True, slots=True)
class Method:
    """Where a method is, and what one says of it in a line."""

    module: str
    """Below `whet`."""
    optimizer: str
    options: str
    """In `training.options`."""
    about: str
    rl: bool = True
    preset: str = ""
    """Classmethod of the options that gives the defaults; the constructor if empty."""
    samples: bool = False
    """Whether its module makes an `environment` of recorded trajectories, for a method that wants to sample."""
    labels: bool = False
    """Whether it learns from labelled steps, which its module reads from a file (`labelled`) or a record
    (`of_record`)."""
    own: bool = False
    """Whether it learns from its own trajectories, and so can sample them from an environment."""
    plugin: bool = False
    """Whether it is a learner of another package, of which is known what its signature says."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What every method's command was given."""

    output: Path
    data: Path | None = None
    store: Path | None = None
    reward_function: str | None = None
    model: str = "tiny"
    """Empty for none, which a plug-in may do without."""
    env: str | None = None
    tasks_file: Path | None = None
    policy: str | None = None
    rollouts: int | None = None
    round_tasks: int | None = None
    lora_rank: int = 0
    ids_only: bool = False
    resume: bool = False
    json: bool = False


def refuse_mixed(name: str, given: Given, methods: Mapping[str, Method]) -> None:
    """Refuse options that do not go together.

    Raises:
        InputError: a record and an environment, half an environment, or a method that has no use for it.
    """
    own = methods[name].own
    if given.env is None:
        if given.tasks_file or given.policy or given.rollouts:
            raise InputError(
                "--tasks-file, --policy and --rollouts are of an environment; give it with --env"
            )
        if given.round_tasks and not own:
            raise InputError(f"{name} learns from all it is given at once; leave --round-tasks out")
        return
    if not own:
        able = ", ".join(method for method, about in methods.items() if about.own)
        raise InputError(f"{name} learns from a record; --env is for {able}")
    if given.data is not None or given.store is not None:
        raise InputError("give a record (--data or --store) or an environment (--env), not both")
    if given.tasks_file is None:
        raise InputError("--env needs its tasks: one JSON object a line, given with --tasks-file")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, read and looked at."""

    options: Any
    trajectories: Sequence[Any]
    labels: Sequence[Any] | None
    """Labelled steps instead, of which the trajectories are made."""
    rewarded: Sequence[str]
    """The reward function and its version, which a resumed run must have too."""
    preferences: Sequence[Any] = ()


def asked(name: str, method: Method, options: Any, given: Given) -> Asked:
    """Read the record, or look at what is to sample, and judge it by the reward function.

    Raises:
        InputError, NotFoundError: it cannot be read, or the method has no use for it.
    """
    if given.env is not None:
        return _sampled(options, given)
    labels = _labelled(method, given.data, given.model)
    if labels is not None:
        return Asked(options, [one.trajectory for one in labels], labels, [])
    trajectories = _to_learn_from(read_trajectories(given.data, given.store))
    preferences = _preferences(name, method, given)
    if given.reward_function is None:
        return Asked(options, trajectories, labels, [], preferences)
    if not method.plugin and "score" not in _names(options):
        raise InputError(f"{name} takes no reward function: it learns its reward, from labels or pairs")
    trajectories, score, version = judged(trajectories, given.reward_function)
    options = _learning_from(options, score, trajectories)
    return Asked(options, trajectories, labels, [given.reward_function, version], preferences)


def _sampled(options: Any, given: Given) -> Asked:
    """Of a method that samples: its reward, if one was given, judges each rollout."""
    if given.reward_function is None:
        return Asked(options, [], None, [])
    from ..reward import name_of, version_of

    reward = named(given.reward_function)
    chosen = _learning_from(options, name_of(reward), [])
    if "success" in _names(chosen):
        chosen = replace(chosen, success="success")
    return Asked(chosen, [], None, [given.reward_function, version_of(reward)])


def _to_learn_from(trajectories: Sequence[Any]) -> Sequence[Any]:
    """Without those of tasks that the gate keeps; it says how many there were."""
    kept = [one for one in trajectories if one.task.split is not Split.GATE]
    if len(kept) < len(trajectories):
        hidden = counted(len(trajectories) - len(kept), "trajectory")
        print(f"left out: {hidden} of the gate's tasks, which nothing learns from", file=sys.stderr)
    return kept


def _preferences(name: str, method: Method, given: Given) -> Sequence[Any]:
    """The preferences of the store, for a method that learns from pairs and can read them; a plug-in gets all."""
    if given.store is None or not (method.plugin or name in LEARN_PREFERENCES):
        return ()
    from ..store import Store

    with Store(given.store) as opened:
        every = list(opened.preferences())
    if not every or method.plugin:
        return every
    from ..training.pairs import of_ids

    if encoder(given.model) is not None:
        return every
    kept = [one for one in every if of_ids(one)]
    if len(kept) < len(every):
        lost = counted(len(every) - len(kept), "preference")
        print(f"left out: {lost} in text, which this model has no tokenizer to read", file=sys.stderr)
    return kept


def encoder(model: str) -> Callable[[Any], Sequence[int]] | None:
    """How the model's tokenizer reads the text of a preference; None if it has none."""
    from ..training.templates import tokenizer_of

    tokenizer = None if model == "tiny" else tokenizer_of(model)
    if tokenizer is None:
        return None
    return lambda text: list(tokenizer(str(text), add_special_tokens=False)["input_ids"])


def _labelled(method: Method, data: Path | None, model: str) -> Sequence[Any] | None:
    """Labelled steps, where the method reads files of such and this is one."""
    if not method.labels or data is None:
        return None
    found: Sequence[Any] | None = import_module(f"whet.{method.module}").labelled(data, model)
    return found


def _learning_from(options: Any, score: str, trajectories: Sequence[Any]) -> Any:
    """The options of a method that learns from this score.

    The competence floor is for it too, where nothing else says what went well.
    """
    if getattr(options, "score", None) is not None:
        raise InputError("give --score for one that was recorded, or --reward-function for one to give now")
    if getattr(options, "judged_by", "outcome") == "thumbs":
        raise InputError("give --judged-by thumbs, or --reward-function, which judges instead of them")
    known = any(one.outcome.counts or "success" in one.scores for one in trajectories)
    changes = {"score": score, "judged_by": "score"} | ({} if known else {"success": score})
    there = _names(options)
    taken = {name: value for name, value in changes.items() if name in there}
    return replace(options, **taken) if taken else options


def _names(options: Any) -> set[str]:
    """Names of the options; none of a plug-in that takes none."""
    return set() if options is None else {one.name for one in fields(options)}


def read_trajectories(data: Path | None, store: Path | None) -> Sequence[Any]:
    """The trajectories of a file or of a store.

    Raises:
        InputError, NotFoundError: neither or both are given, or it cannot be read.
    """
    from ..data import formats
    from ..store import Store
    from ..tracing.signals import hear

    if (data is None) == (store is None):
        raise InputError("give the trajectories either as --data FILE or as --store FILE")
    if data is not None:
        return formats.read_trajectories(data)
    assert store is not None
    existing(store)
    with Store(store) as opened:
        hear(opened)
        return list(opened.trajectories())
