"""`whet train METHOD` and `whet capture`: learning weights from recorded trajectories.

Each method's command is made from its options dataclass: a field is an option, its
docstring the explanation.  The method itself, and with it torch, is imported when
everything that was given has been looked at and training begins.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import cyclopts
import msgspec
from cyclopts import Parameter, validators

from ..errors import InputError
from .app import app, existing
from .named import judged

if TYPE_CHECKING:
    from ..training.running import Trained


@dataclass(frozen=True, slots=True)
class _Method:
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
    """Whether its module has a `rollout` of recorded trajectories, for a method that wants to sample."""
    labels: bool = False
    """Whether its module reads files of labelled steps, by `labelled`."""


METHODS = {
    "sft": _Method("optimizers.sft", "SFT", "SFTOptions", "Clone trajectories that went well.", rl=False),
    "awr": _Method(
        "optimizers.awr", "AWR", "AWROptions", "Clone, weighted by how much better than expected.", rl=False
    ),
    "star": _Method(
        "optimizers.star", "STaR", "STaROptions", "Clone one's own successes, from the base.", rl=False
    ),
    "dpo": _Method("optimizers.dpo", "DPO", "DPOOptions", "Learn from pairs: DPO, IPO, Step-DPO.", rl=False),
    "kto": _Method(
        "optimizers.kto", "KTO", "KTOOptions", "Learn from thumbs, one answer at a time.", rl=False
    ),
    "reward-model": _Method(
        "optimizers.reward_model",
        "RewardModel",
        "RewardModelOptions",
        "Learn a reward from pairs or outcomes.",
        rl=False,
    ),
    "grpo": _Method("optimizers.grpo", "GRPO", "GRPOOptions", "Learn from rewards, relative to the group."),
    "rloo": _Method(
        "optimizers.rloo", "RLOO", "RLOOOptions", "Learn from rewards, relative to the rest of the group."
    ),
    "reinforce": _Method("optimizers.reinforce", "REINFORCE", "REINFORCEOptions", "Learn from returns."),
    "ppo": _Method("optimizers.ppo", "PPO", "PPOOptions", "Learn from rewards against a value head."),
    "a2c": _Method("optimizers.ppo", "PPO", "PPOOptions", "PPO with one pass, unclipped.", preset="a2c"),
    "webrl": _Method(
        "optimizers.webrl", "WebRL", "WebRLOptions", "Regress on the advantage of each step.", rl=False
    ),
    "prm": _Method(
        "cli.methods.prm",
        "PRM",
        "PRMOptions",
        "Learn what each step is worth.",
        rl=False,
        samples=True,
        labels=True,
    ),
    "rlhf": _Method(
        "cli.methods.rlhf", "rlhf", "StageOptions", "Clone, learn a reward, PPO.", rl=False, samples=True
    ),
}
NEED_MORE = {
    "dagger": (
        "Ask an expert what the policy should have done, and clone it.",
        "dagger asks an expert in the states that the policy itself comes into, so it needs an environment and a "
        "function that knows better: Experiment.improve(whet.optimizers.dagger.DAgger(expert)). Corrections that "
        "are recorded already are demonstrations: whet train sft",
    ),
    "candidates": (
        "PPO over admissible actions (GLAM).",
        "candidates chooses among the actions that an environment admits, and recorded trajectories do not say "
        "which those were: Experiment.improve(whet.optimizers.candidates.Candidates(admissible)). From recorded "
        "rewards alone: whet train ppo",
    ),
}
"""What a recording is not enough for: method → a line about it, and what to do instead."""

_train = cyclopts.App(
    name="train",
    help="Train a model's weights on recorded trajectories, by one of these methods.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command(_train)
for _name, _method in METHODS.items():
    _train.command(f"{__name__}:{_name.replace('-', '_')}_command", name=_name, help=_method.about)
for _name, (_about, _why) in NEED_MORE.items():
    _train.command(f"{__name__}:{_name}_command", name=_name, help=f"{_about}\n\nNot a command: {_why}.")


def __getattr__(name: str) -> Callable[..., int]:
    method = name.removesuffix("_command").replace("_", "-")
    if name.endswith("_command") and method in NEED_MORE:
        return _refusal(NEED_MORE[method][1])
    if not name.endswith("_command") or method not in METHODS:
        raise AttributeError(name)
    return _command(method)


def _refusal(why: str) -> Callable[..., int]:
    def command(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> int:
        raise InputError(why)

    return command


def _command(name: str) -> Callable[..., int]:
    """The command of a method, with an option for every field of its options."""
    method = METHODS[name]
    kind = getattr(import_module("whet.training.options"), method.options)
    defaults = getattr(kind, method.preset)() if method.preset else kind()
    flat = dict(_flattened(defaults))

    def command(**given: Any) -> int:
        changed = {key: given.pop(key) for key in list(given) if key in flat}
        options = _rebuilt(defaults, {flat[key].path: value for key, value in changed.items()})
        return _run(name, options, **given)

    parameters = [*inspect.signature(_shared).parameters.values()]
    hints = get_type_hints(_shared, include_extras=True)
    parameters = [one.replace(annotation=hints[one.name]) for one in parameters]
    for key, option in flat.items():
        # what is on by default needs a way to be switched off
        off = f"--no-{option.shown}" if option.value is True else ()
        about = Parameter(name=f"--{option.shown}", help=option.about, negative=off)
        shown: Any = Annotated.__class_getitem__((option.type, about))  # type: ignore[attr-defined]
        parameters.append(
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=option.value, annotation=shown)
        )
    command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__ = name
    command.__doc__ = method.about
    return command


@dataclass(frozen=True, slots=True)
class _Option:
    path: tuple[str, ...]
    type: Any
    value: Any
    about: str

    @property
    def shown(self) -> str:
        return ".".join(word.replace("_", "-") for word in self.path)


def _flattened(options: Any, path: tuple[str, ...] = ()) -> list[tuple[str, _Option]]:
    """Every field of a dataclass, those of nested ones too, in order."""
    kind = type(options)
    hints, about = get_type_hints(kind), _docstrings(kind)
    found: list[tuple[str, _Option]] = []
    for one in fields(kind):
        value, where = getattr(options, one.name), (*path, one.name)
        if path and one.name in ("resource", "seed"):
            continue  # a stage has those of the whole
        if is_dataclass(value):
            found += _flattened(value, where)
        else:
            found.append(("__".join(where), _Option(where, hints[one.name], value, about.get(one.name, ""))))
    return found


def _docstrings(kind: type) -> dict[str, str]:
    """Field → the string that stands under it in the source."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = " ".join(text.value.value.split())
    return found


def _rebuilt(options: Any, changes: Mapping[tuple[str, ...], Any]) -> Any:
    """The options with these fields changed, nested ones in their place."""
    own = {path[0]: value for path, value in changes.items() if len(path) == 1}
    for one in fields(options):
        inner = {path[1:]: value for path, value in changes.items() if path[0] == one.name and len(path) > 1}
        if inner:
            own[one.name] = _rebuilt(getattr(options, one.name), inner)
    return replace(options, **own)


def _shared(
    *,
    output: Annotated[Path, Parameter(help="Folder for the weights, the metrics and what resuming needs.")],
    data: Annotated[Path | None, Parameter(help="Trajectories, one JSON object a line.")] = None,
    store: Annotated[
        Path | None, Parameter(help="Trajectories of this store instead; what is made is recorded there.")
    ] = None,
    reward_function: Annotated[
        str | None,
        Parameter(
            help="What a run was worth, as module:function, for example whet.reward:rated for the last value that "
            "people gave it; what was recorded with it if left out."
        ),
    ] = None,
    model: Annotated[
        str,
        Parameter(help="Folder or name of a causal language model, or tiny for a fresh one of whet's own."),
    ] = "tiny",
    lora_rank: Annotated[
        int,
        Parameter(
            help="Train LoRA factors of this rank beside frozen weights; 0 trains all weights.",
            validator=validators.Number(gte=0),
        ),
    ] = 0,
    ids_only: Annotated[
        bool,
        Parameter(
            help="The agent sends token ids and never messages: do not ask whether recorded answers survive the "
            "model's tokenizer and chat template."
        ),
    ] = False,
    resume: Annotated[
        bool, Parameter(help="Go on with the run in the output folder, to the same bits.")
    ] = False,
    json: Annotated[bool, Parameter(help="Print the result as one JSON object on standard output.")] = False,
) -> None:
    """What every method's command takes."""


def _run(
    name: str,
    options: Any,
    *,
    output: Path,
    data: Path | None = None,
    store: Path | None = None,
    reward_function: str | None = None,
    model: str = "tiny",
    lora_rank: int = 0,
    ids_only: bool = False,
    resume: bool = False,
    json: bool = False,
) -> int:
    method = METHODS[name]
    if lora_rank and model == "tiny":
        raise InputError("--lora-rank trains factors beside a pretrained model; give one with --model")
    if output.is_file():
        raise InputError(f"{output} is a file; give a folder for the weights with --output")
    asked = _asked(name, options, data=data, store=store, model=model, reward_function=reward_function)

    # what follows needs torch, which takes seconds to import
    from ..loop import quiet
    from ..store import Store
    from ..training import processes, running
    from ..training.dataset import grouped
    from ..training.huggingface import LoRAOptions
    from .steps import Steps

    room, options, trajectories = import_module(f"whet.{method.module}"), asked.options, asked.trajectories
    make = getattr(room, method.optimizer)
    if asked.labels is not None:
        make = partial(make, labelled=asked.labels)
    settings = {"lora_rank": lora_rank, "reward_function": asked.rewarded}
    with processes.joined(output) as folder:
        first = processes.place().first
        job = running.Job(
            name=name,
            trajectories=trajectories,
            output=folder,
            model=model,
            lora=LoRAOptions(rank=lora_rank, alpha=2 * lora_rank) if lora_rank else None,
            ids_only=ids_only or asked.labels is not None,
            score=getattr(options, "score", None),
            rl=method.rl,
            rollout=room.rollout(options, grouped(trajectories)) if method.samples and trajectories else None,
            settings=msgspec.to_builtins(options) | settings,
            seed=options.seed,
            resource=options.resource,
            progress=Steps() if first and not json else quiet,
        )
        done = asyncio.run(running.run(job, lambda: make(options), resume=resume))
    if not first:
        return 0
    if store is not None:
        with Store(store) as opened:  # so that what is erased there later is known to be in them
            opened.put_versions(*done.bundle.values())
    _say(name, done, json)
    return 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, read and looked at."""

    options: Any
    trajectories: Sequence[Any]
    labels: Sequence[Any] | None
    """Labelled steps instead, of which the trajectories are made."""
    rewarded: Sequence[str]
    """The reward function and its version, which a resumed run must have too."""


def _asked(
    name: str,
    options: Any,
    *,
    data: Path | None,
    store: Path | None,
    model: str,
    reward_function: str | None,
) -> _Asked:
    labels = _labelled(METHODS[name], data, model)
    trajectories = _trajectories(data, store) if labels is None else [one.trajectory for one in labels]
    if reward_function is None:
        return _Asked(options, trajectories, labels, [])
    if not any(one.name == "score" for one in fields(options)):
        raise InputError(f"{name} takes no reward function: it learns its reward, from labels or pairs")
    trajectories, score, version = judged(trajectories, reward_function)
    return _Asked(
        _learning_from(options, score, trajectories), trajectories, labels, [reward_function, version]
    )


def _labelled(method: _Method, data: Path | None, model: str) -> Sequence[Any] | None:
    """Labelled steps, where the method reads files of such and this is one."""
    if not method.labels or data is None:
        return None
    found: Sequence[Any] | None = import_module(f"whet.{method.module}").labelled(data, model)
    return found


def _say(name: str, done: Trained, json: bool) -> None:
    figures = {key: round(value, 6) for key, value in done.metrics.items()}
    if json:
        versions = {key: version.content for key, version in done.bundle.items()}
        result = {"method": name, "rounds": done.rounds, "reason": done.reason, "bundle": versions}
        print(msgspec.json.encode({**result, "metrics": figures}).decode())
        return
    if done.survey is not None:
        print("\n".join(done.survey.lines()))
    print(f"{name}: {done.reason} ({done.rounds} rounds)")
    for key, value in figures.items():
        print(f"  {key:28} {value:>14g}")
    for resource, version in done.bundle.items():
        where = version.content.get("network", version.content).get("path", "")
        print(f"{resource}: {version.id} {where}")


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
    there = {one.name for one in fields(options)}
    return replace(options, **{name: value for name, value in changes.items() if name in there})


def _trajectories(data: Path | None, store: Path | None) -> Sequence[Any]:
    from ..data.files import read
    from ..store import Store

    if (data is None) == (store is None):
        raise InputError("give the trajectories either as --data FILE or as --store FILE")
    if data is not None:
        return read(data)
    assert store is not None
    existing(store)
    with Store(store) as opened:
        return list(opened.trajectories())


_capture = cyclopts.App(
    name="capture",
    help="Look at what was captured, before training on it.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)
app.command(_capture)


@_capture.command(name="check")
def check(
    *,
    data: Path | None = None,
    store: Path | None = None,
    score: str | None = None,
    reward_function: str | None = None,
    json: bool = False,
) -> int:
    """Say of each trajectory whether it can be trained on, and if not why.

    Calls seen, token ids present, reward present, each prompt an extension of the last, masks that fit.
    Exits with 1 if not one can be trained on.

    Parameters
    ----------
    data
        Trajectories, one JSON object a line.
    store
        Trajectories of this store instead.
    score
        The score that is the reward; the step rewards or else the outcome if left out.
    reward_function
        A reward to give now instead, as module:function; whet.reward:rated is the last value that people gave.
    json
        Print one JSON object a line: first the survey, then each trajectory.
    """
    from ..training import capture

    if score is not None and reward_function is not None:
        raise InputError("give --score for one that was recorded, or --reward-function for one to give now")
    trajectories = _trajectories(data, store)
    if reward_function is not None:
        trajectories, score, _ = judged(trajectories, reward_function)
    found = capture.survey(trajectories, score=score)
    each = [capture.check(trajectory, score=score) for trajectory in trajectories]
    if json:
        print(msgspec.json.encode(found).decode())
        for one in each:
            row = msgspec.to_builtins(one) | {"trainable": one.trainable, "clonable": one.clonable}
            print(msgspec.json.encode(row).decode())
    else:
        print("\n".join(found.lines()))
        for one in each:
            if one.reasons:
                print(f"{one.id}  {', '.join(one.reasons)}")
    return 0 if found.trainable or found.clonable else 1
