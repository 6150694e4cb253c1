"""`whet train METHOD`: learning weights from recorded trajectories, or in an environment.

Each method's command is made from its options dataclass: a field is an option, its
docstring the explanation.  The method itself, and with it torch, is imported when
everything that was given has been looked at and training begins.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import cyclopts
import msgspec
from cyclopts import Parameter, validators

from ..errors import InputError, NotFoundError
from .app import app
from .flags import flattened, parameter, rebuilt
from .named import named
from .train_input import Asked, Given, Method, asked, encoder, refuse_mixed
from .train_plugins import MODEL as PLUGIN_MODEL
from .train_plugins import described, learner, plugged, refuse_clash

if TYPE_CHECKING:
    from ..training.running import Trained, World
    from ..types import Bundle


METHODS = {
    "sft": Method("optimizers.sft", "SFT", "SFTOptions", "Clone trajectories that went well.", rl=False),
    "awr": Method(
        "optimizers.awr", "AWR", "AWROptions", "Clone, weighted by how much better than expected.", rl=False
    ),
    "star": Method(
        "optimizers.star",
        "STaR",
        "STaROptions",
        "Clone one's own successes, from the base.",
        rl=False,
        own=True,
    ),
    "dpo": Method("optimizers.dpo", "DPO", "DPOOptions", "Learn from pairs: DPO, IPO, Step-DPO.", rl=False),
    "kto": Method(
        "optimizers.kto", "KTO", "KTOOptions", "Learn from thumbs, one answer at a time.", rl=False
    ),
    "reward-model": Method(
        "optimizers.reward_model",
        "RewardModel",
        "RewardModelOptions",
        "Learn a reward from pairs or outcomes.",
        rl=False,
    ),
    "grpo": Method(
        "optimizers.grpo", "GRPO", "GRPOOptions", "Learn from rewards, relative to the group.", own=True
    ),
    "rloo": Method(
        "optimizers.rloo",
        "RLOO",
        "RLOOOptions",
        "Learn from rewards, relative to the rest of the group.",
        own=True,
    ),
    "reinforce": Method(
        "optimizers.reinforce", "REINFORCE", "REINFORCEOptions", "Learn from returns.", own=True
    ),
    "ppo": Method(
        "optimizers.ppo", "PPO", "PPOOptions", "Learn from rewards against a value head.", own=True
    ),
    "a2c": Method(
        "optimizers.ppo", "PPO", "PPOOptions", "PPO with one pass, unclipped.", preset="a2c", own=True
    ),
    "webrl": Method(
        "optimizers.webrl",
        "WebRL",
        "WebRLOptions",
        "Regress on the advantage of each step.",
        rl=False,
        own=True,
    ),
    "prm": Method(
        "cli.methods.prm",
        "PRM",
        "PRMOptions",
        "Learn what each step is worth.",
        rl=False,
        labels=True,
    ),
    "rlhf": Method(
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
    "evolve": (
        "Change an agent's prompts, functions and settings.",
        "evolve changes prompts, functions and settings by running the agent, and no weights: whet improve "
        "MODULE:FUNCTION --store STORE --reward NAME --with evolve, or "
        "Experiment.improve(whet.optimizers.evolve.Evolve()). A weight method learns from the same record: "
        "whet train sft",
    ),
    "head": (
        "Learn an agent's decisions from thumbs.",
        "head learns what an agent decides, and no weights of a model: whet improve MODULE:FUNCTION --store STORE "
        "--reward NAME --with head, or Experiment.improve(whet.optimizers.head.Head()). A weight method learns from "
        "the same record: whet train kto",
    ),
}
"""Learners that a recording of token ids is not enough for: name → a line about it, and what to do instead."""

PLUGIN = "_plugin"
"""Ends the name under which cyclopts asks this module for a plug-in's command."""
AT_LEAST_ONE = validators.Number(gte=1)

ABOUT = "Train a model's weights on recorded trajectories, by one of these methods."

# resolved when it is asked for: only then are the plug-ins looked up
app.command(f"{__name__}:train_app", name="train", help=ABOUT)


def __getattr__(name: str) -> Any:
    if name == "train_app":
        return _train_app()
    if name.endswith(PLUGIN):
        return _plugged_app(name.removesuffix(PLUGIN))
    method = name.removesuffix("_command").replace("_", "-")
    if name.endswith("_command") and method in NEED_MORE:
        return _refusal(NEED_MORE[method][1])
    if not name.endswith("_command") or method not in METHODS:
        raise AttributeError(name)
    return _command(method)


def _train_app() -> cyclopts.App:
    """The methods, whet's own and those of plug-ins."""
    group = cyclopts.App(
        name="train", help=ABOUT, help_format="plaintext", default_parameter=Parameter(negative=())
    )
    for name, method in METHODS.items():
        group.command(f"{__name__}:{name.replace('-', '_')}_command", name=name, help=method.about)
    for name, (about, why) in NEED_MORE.items():
        group.command(f"{__name__}:{name}_command", name=name, help=f"{about}\n\nNot a command: {why}.")
    found = plugged(taken={*METHODS, *NEED_MORE})
    for name, about in found.items():
        group.command(f"{__name__}:{name}{PLUGIN}", name=name, help=about)

    @group.default
    def unknown(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> int:
        if words:
            raise NotFoundError(
                f"there is no method {words[0]!r}. whet's own: {', '.join(sorted({*METHODS, *NEED_MORE}))}; "
                f"of plug-ins: {', '.join(sorted(found)) or 'none is installed'}"
            )
        app.help_print(["train"])
        return 0

    return group


def _plugged_app(name: str) -> cyclopts.App:
    """A plug-in's command; what the learner says of itself stands below its options."""
    command = _command(name, plugin=True)
    single = cyclopts.App(
        name=name,
        help_epilogue=command.__doc__,
        help_format="plaintext",
        default_parameter=Parameter(negative=()),
    )
    single.default(command)
    return single


def _refusal(why: str) -> Callable[..., int]:
    def command(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> int:
        raise InputError(why)

    return command


def _command(name: str, *, plugin: bool = False) -> Callable[..., int]:
    """The command of a method, with an option for every field of its options."""
    if plugin:
        method, defaults = described(name)
    else:
        method = METHODS[name]
        kind = getattr(import_module("whet.training.options"), method.options)
        defaults = getattr(kind, method.preset)() if method.preset else kind()
    flat = {} if defaults is None else dict(flattened(defaults))
    unset = {"model": ""} if plugin else {}

    def command(**given: Any) -> int:
        changed = {key: given.pop(key) for key in list(given) if key in flat}
        options = (
            rebuilt(defaults, {flat[key].path: value for key, value in changed.items()}) if flat else None
        )
        return _run(name, method, options, Given(**(unset | given)))

    hints = get_type_hints(_shared, include_extras=True)
    shared = inspect.signature(_shared).parameters
    if plugin:
        hints["model"] = Annotated[str, Parameter(help=PLUGIN_MODEL)]
        refuse_clash(name, flat, shared)
    parameters = [
        one.replace(annotation=hints[one.name], default=unset.get(one.name, one.default))
        for one in shared.values()
    ]
    parameters += [parameter(key, option) for key, option in flat.items()]
    command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__ = name
    command.__doc__ = method.about
    return command


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
        Parameter(
            help="Folder or name of a causal language model, the output folder of another whet train, or tiny for a "
            "fresh one of whet's own."
        ),
    ] = "tiny",
    env: Annotated[
        str | None,
        Parameter(
            help="Sample as it learns, in this environment instead of a record: module:function, which makes a fresh "
            "one for each rollout. Needs --tasks-file; for methods that learn from their own trajectories."
        ),
    ] = None,
    tasks_file: Annotated[
        Path | None, Parameter(help="The environment's tasks, one JSON object a line; split by their group.")
    ] = None,
    policy: Annotated[
        str | None,
        Parameter(
            help="Who acts there: module:function of (bundle, seed), which samples from the weights in the bundle; "
            "left out where the environment brings one."
        ),
    ] = None,
    rollouts: Annotated[
        int | None,
        Parameter(
            help="Fresh rollouts at most; as many as the method asks for if left out.", validator=AT_LEAST_ONE
        ),
    ] = None,
    round_tasks: Annotated[
        int | None,
        Parameter(
            help="Tasks of a round, for methods that learn from their own trajectories; all if left out. Of a record "
            "the next so many, each learned from once.",
            validator=AT_LEAST_ONE,
        ),
    ] = None,
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


def _run(name: str, method: Method, options: Any, given: Given) -> int:
    if given.lora_rank and given.model in ("tiny", ""):
        raise InputError("--lora-rank trains factors beside a pretrained model; give one with --model")
    if given.output.is_file():
        raise InputError(f"{given.output} is a file; give a folder for the weights with --output")
    refuse_mixed(name, given, {**METHODS, name: method})
    known = asked(name, method, options, given)

    # what follows needs torch, which takes seconds to import
    from ..loop import quiet
    from ..store import Store
    from ..training import processes, running
    from ..training.huggingface import LoRAOptions
    from ..types import Budget
    from .steps import Steps

    options = known.options
    room = None if method.plugin else import_module(f"whet.{method.module}")
    make = partial(learner, name) if method.plugin else _maker(method, room, known, given.model)
    settings = {"lora_rank": given.lora_rank, "reward_function": known.rewarded, "env": given.env or ""}
    with processes.joined(given.output) as folder:
        first = processes.place().first
        job = running.Job(
            name=name,
            trajectories=known.trajectories,
            output=folder,
            model=given.model,
            start=_live(given),
            lora=LoRAOptions(rank=given.lora_rank, alpha=2 * given.lora_rank) if given.lora_rank else None,
            ids_only=given.ids_only or known.labels is not None,
            score=getattr(options, "score", None),
            rl=method.rl,
            preferences=known.preferences,
            world=_world(method, room, known, given),
            tasks=given.round_tasks,
            budget=None if given.rollouts is None else Budget(rollouts=given.rollouts),
            settings=(msgspec.to_builtins(options) or {}) | settings,
            seed=getattr(options, "seed", 0),
            resource=getattr(options, "resource", "policy"),
            progress=Steps() if first and not given.json else quiet,
        )
        done = asyncio.run(running.run(job, lambda: make(options), resume=given.resume))
    if not first:
        return 0
    if given.store is not None:
        with Store(given.store) as opened:  # so that what is erased there later is known to be in them
            opened.put_versions(*done.bundle.values())
    _say(name, method, done, given)
    return 0


def _live(given: Given) -> Bundle:
    """What is live in the store, which a run without a model begins with."""
    from ..store import Store
    from ..types import Bundle

    if given.model or given.store is None:
        return Bundle()
    with Store(given.store) as opened:
        return opened.live() or Bundle()


def _maker(method: Method, room: Any, known: Asked, model: str) -> Any:
    """What makes the optimizer of its options."""
    make: Any = getattr(room, method.optimizer)
    if method.labels:
        from ..training.dataset import grouped

        labels = known.labels
        if labels is None:
            labels = room.of_record(known.options, grouped(known.trajectories))
        make = partial(make, labelled=labels)
    if known.preferences:
        make = partial(make, encode=encoder(model))
    return make


def _world(method: Method, room: Any, known: Asked, given: Given) -> World | None:
    """Where the method samples; None for one that learns from the record alone."""
    from ..data.tasks import from_jsonl
    from ..reward import name_of
    from ..training.dataset import grouped
    from ..training.running import World, success, trained_on

    if method.samples and known.trajectories:
        groups = grouped(known.trajectories)
        world = room.environment(known.options, groups)
        return World(env=world, tasks=trained_on([group.task for group in groups]), groups=groups)
    if given.env is None:
        return None
    assert given.tasks_file is not None
    policy = None if given.policy is None else named(given.policy)
    rewards = [success] if given.reward_function is None else [named(given.reward_function)]
    if all(name_of(reward) != "success" for reward in rewards):
        rewards.append(success)
    return World(env=named(given.env), tasks=from_jsonl(given.tasks_file), policy=policy, rewards=rewards)


def _say(name: str, method: Method, done: Trained, given: Given) -> None:
    figures = {key: round(value, 6) for key, value in done.metrics.items()}
    if given.json:
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
        content = version.content if isinstance(version.content, dict) else {}
        inner = content.get("network", content)
        print(f"{resource}: {version.id} {inner.get('path', '') if isinstance(inner, dict) else ''}".rstrip())
    if method.own and not method.plugin and given.env is None:
        store = given.store or "STORE"
        print(
            f"next: sample with these weights (whet release {given.output} --store {store} --unproven; "
            f"whet serve-policy --store {store}; whet run --store {store} --tokens ...), "
            f"look at the runs (whet capture check), then whet train {name} --store {store} "
            f"--output {given.output} --resume. With an environment: --env."
        )
