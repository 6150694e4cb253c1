"""`whet train METHOD`: learning weights from recorded trajectories, or in an environment.

Each method's command is generated from its options dataclass: a field is an option, its docstring the explanation.
The method itself, and with it torch, is imported when all input has been checked and training begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import cyclopts
import msgspec
from cyclopts import Group, Parameter

from ..errors import InputError, NotFoundError
from .flags import flattened, with_options
from .named import named
from .parallel import parallel
from .root import app, listed, print_json
from .train_engine import acting, beside, closing, one_limit, sampling_elsewhere
from .train_input import Method, PluginGiven, TrainArguments, TrainingInput, asked, refuse_mixed
from .train_plugins import described, learner, plugged, refuse_clash

if TYPE_CHECKING:
    from ..learn.training.running import SamplingWorld, Trained
    from ..types import Bundle


CLONE, PREFER, REWARD = "Imitate what went well", "Learn from comparisons", "Learn a reward"
REINFORCE, OTHER, LAUNCH = "Reinforce", "By other commands", "In several processes"
METHODS = {
    "sft": Method("learn.optimizers.sft", "SFT", "Clone trajectories that went well.", CLONE),
    "awr": Method("learn.optimizers.awr", "AWR", "Clone, weighted by how much better than expected.", CLONE),
    "star": Method(
        "learn.optimizers.star", "STaR", "Clone one's own successes, from the base.", CLONE, own=True
    ),
    "dpo": Method("learn.optimizers.dpo", "DPO", "Learn from pairs: DPO, IPO, Step-DPO.", PREFER),
    "kto": Method("learn.optimizers.kto", "KTO", "Learn from thumbs, one answer at a time.", PREFER),
    "grpo": Method(
        "learn.optimizers.grpo",
        "GRPO",
        "Learn from rewards, relative to the group.",
        REINFORCE,
        rl=True,
        own=True,
    ),
    "rloo": Method(
        "learn.optimizers.rloo",
        "RLOO",
        "Learn from rewards, relative to the rest of the group.",
        REINFORCE,
        rl=True,
        own=True,
    ),
    "reinforce": Method(
        "learn.optimizers.reinforce", "REINFORCE", "Learn from returns.", REINFORCE, rl=True, own=True
    ),
    "ppo": Method(
        "learn.optimizers.ppo",
        "PPO",
        "Learn from rewards against a value head.",
        REINFORCE,
        rl=True,
        own=True,
    ),
    "a2c": Method(
        "learn.optimizers.ppo",
        "PPO",
        "PPO with one pass, unclipped.",
        REINFORCE,
        options="A2COptions",
        rl=True,
        own=True,
    ),
    "webrl": Method(
        "learn.optimizers.webrl", "WebRL", "Regress on the advantage of each step.", REINFORCE, own=True
    ),
    "rlhf": Method(
        "cli.methods.rlhf",
        "rlhf",
        "Clone, learn a reward, then PPO.",
        REINFORCE,
        options="StageOptions",
        samples=True,
    ),
    "reward-model": Method(
        "learn.optimizers.reward_model", "RewardModel", "Learn a reward from pairs or outcomes.", REWARD
    ),
    "prm": Method("cli.methods.prm", "PRM", "Learn what each step is worth.", REWARD, labels=True),
}
NEED_MORE = {
    "dagger": (
        "Ask an expert what the policy should have done, and clone it.",
        "dagger asks an expert in the states that the policy itself reaches, so it needs an environment and an expert "
        "function: Experiment.improve(whet.learn.optimizers.dagger.DAgger(expert)). Corrections that are recorded "
        "already are demonstrations: whet train sft",
    ),
    "candidates": (
        "PPO over admissible actions (GLAM).",
        "candidates chooses among the actions that an environment admits, and recorded trajectories do not say "
        "which those were: Experiment.improve(whet.learn.optimizers.candidates.Candidates(admissible)). From recorded "
        "rewards alone: whet train ppo",
    ),
    "evolve": (
        "Change an agent's prompts, functions and settings.",
        "evolve changes prompts, functions and settings, not weights, by running the agent: whet improve "
        "MODULE:FUNCTION --store STORE --reward NAME --with evolve, or "
        "Experiment.improve(whet.learn.optimizers.evolve.Evolve()). A weight method learns from the same record: "
        "whet train sft",
    ),
    "reflect": (
        "Change an agent's prompts as a model does that has seen what went wrong.",
        "reflect changes prompts, not weights, by running the agent: whet improve MODULE:FUNCTION --store STORE "
        "--reward NAME --with reflect --model NAME --base-url URL, or "
        "Experiment.improve(whet.learn.evolution.prompts.reflecting.Reflect(model=model)); a prompt alone by a table: "
        "whet improve prompt.txt --data FILE. A weight method learns from the same record: whet train sft",
    ),
    "head": (
        "Learn an agent's decisions from thumbs.",
        "head learns an agent's decisions, not a model's weights: whet improve MODULE:FUNCTION --store STORE "
        "--reward NAME --with head, or Experiment.improve(whet.learn.optimizers.head.Head()). A weight method learns "
        "from the same record: whet train kto",
    ),
}
"""Learners that need more than recorded token ids: name → a line about it, and what to do instead."""

TOPICS: dict[str, Sequence[str]] = {
    "": (
        *("data", "store", "output", "model", "reward_function", "score", "steps", "epochs", "group_size"),
        *("optim__learning_rate", "lora_rank", "resume", "json"),
    ),
    "A judge as the reward": ("base_url", "judge_model", "judge_store", "judge_admitted"),
    "On a GPU": ("device", "dtype", "recompute", "four_bit", "plan", "plan_for"),
    "In an environment, or by an agent": (
        *("env", "agent", "agent_processes", "episodes", "tasks_file", "system", "answer_tokens", "policy"),
        *("rollouts", "asynchronous", "max_rollouts", "round_tasks", "gate"),
    ),
}
"""Options by topic; those under "" come first, and what is not here under Advanced."""

PLUGIN = "_plugin"
"""Ends the name under which cyclopts asks this module for a plug-in's command."""

ABOUT = "Train a model's weights on recorded trajectories, or in an environment, by one of these methods."

# Resolved on use: only then the plug-ins are looked up.
app.command(f"{__name__}:train_app", help=ABOUT, **listed("train"))


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
    methods = cyclopts.App(name="train", help=ABOUT, default_parameter=app.default_parameter)
    families = {
        family: Group(family, sort_key=order)
        for order, family in enumerate((CLONE, PREFER, REINFORCE, REWARD, OTHER, "Plug-ins", LAUNCH))
    }

    def add(attribute: str, name: str, about: str, family: str) -> None:
        methods.command(
            f"{__name__}:{attribute}",
            name=name,
            help=about,
            group=families[family],
            sort_key=len(list(methods)),
        )

    for name, method in METHODS.items():
        add(f"{name.replace('-', '_')}_command", name, method.about, method.family)
    for name, (about, why) in NEED_MORE.items():
        add(f"{name}_command", name, f"{about}\n\nNot a method of whet train: {why}.", OTHER)
    plugins = plugged(reserved={*METHODS, *NEED_MORE})
    for name, about in plugins.items():
        add(f"{name}{PLUGIN}", name, about, "Plug-ins")
    methods.command(parallel, name="parallel", group=families[LAUNCH])

    @methods.default
    def unknown(*words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)]) -> int:
        if words:
            raise NotFoundError(
                f"there is no method {words[0]!r}. whet's own: {', '.join(sorted({*METHODS, *NEED_MORE}))}; "
                f"of plug-ins: {', '.join(sorted(plugins)) or 'none installed'}"
            )
        app.help_print(["train"])
        return 0

    return methods


def _plugged_app(name: str) -> cyclopts.App:
    """A plug-in's command, with the learner's own description below its options."""
    command = _command(name, plugin=True)
    single = cyclopts.App(
        name=name,
        help_epilogue=command.__doc__,
        help_format="plaintext",  # somebody else's text, whose stars and indents are not Markdown
        default_parameter=app.default_parameter,
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
        if defaults is not None:
            refuse_clash(name, flattened(defaults), flattened(TrainArguments))
    else:
        method = METHODS[name]
        kind = getattr(
            import_module("whet.learn.training.options"), method.options or f"{method.optimizer}Options"
        )
        defaults = kind()

    def train(*, common: TrainArguments, **of_method: Any) -> int:
        return _run(name, method, of_method.get("options"), common)

    command = with_options(
        train,
        {"common": PluginGiven if plugin else TrainArguments}
        | ({} if defaults is None else {"options": defaults}),
        topics={**TOPICS, **_advanced(defaults)},
        about={} if plugin else _rates(defaults),
    )
    command.__name__, command.__doc__ = name, method.about
    return command


def _rates(defaults: Any) -> dict[str, str]:
    """What is said of the learning rate of a method, or of each of its stages."""
    stages = {
        path[:-2] for path in (option.path for option in flattened(defaults).values()) if "optim" in path
    }
    explained = {}
    for stage in stages:
        rates = reduce(getattr, stage, defaults).rates
        explained["__".join((*stage, "optim", "learning_rate"))] = (
            f"Learning rate of the first step, for Muon and AdamW alike. If omitted, {rates.fresh:g} for a small fresh "
            f"model, {rates.pretrained:g} for all weights of a pretrained one and {rates.pretrained * 10:g} for LoRA "
            "factors beside it."
        )
    return explained


def _advanced(defaults: Any) -> dict[str, list[str]]:
    """The method's other options by topic: its own, then those of each dataclass inside its options."""
    topics: dict[str, list[str]] = {"Advanced": ["ids_only", "rollouts_options", "hand_over"]}
    for key, option in flattened(defaults).items() if defaults is not None else ():
        if key not in TOPICS[""]:
            title = f"Advanced: {option.path[0]}" if len(option.path) > 1 else "Advanced"
            topics.setdefault(title, []).append(key)
    return topics


def _run(name: str, method: Method, options: Any, common: TrainArguments) -> int:
    if common.lora_rank and common.model in ("tiny", ""):
        raise InputError("--lora-rank trains factors beside a pretrained model; give one with --model")
    if common.four_bit and not common.lora_rank:
        raise InputError(
            "--four-bit holds frozen weights, and all are trained; add factors with --lora-rank 16"
        )
    compute = common.compute  # refused, where it is no device, before the input is read
    if common.plan or common.plan_for is not None:
        from .plan import plan  # with the planning of the extra `train`

        return plan(name, method, options, common)
    if common.output.is_file():
        raise InputError(f"{common.output} is a file; give a folder for the weights with --output")
    refuse_mixed(name, common, {**METHODS, name: method})
    training = asked(name, method, options, common)
    survey = None
    if training.trajectories and common.model:
        # Before torch: what cannot be learned from is said at once.
        from ..learn.training.capture import require

        survey = require(training.trajectories, score=getattr(training.options, "score", None), rl=method.rl)

    # the rest needs torch, which takes seconds to import
    from ..learn.training.importing import importing

    with importing():
        from ..learn.loop import quiet
        from ..learn.training import processes, running
        from ..learn.training.huggingface import LoRAOptions
        from ..learn.training.local import use_compute
        from ..learn.training.sampling_world import ROUND_TASKS
    from ..record.store import Store
    from ..types import Budget
    from .steps import ProgressPrinter

    use_compute(compute)
    options = training.options
    module = None if method.plugin else import_module(f"whet.{method.module}")
    make = partial(learner, name) if method.plugin else _maker(method, module, training, common.model)
    settings = {"lora_rank": common.lora_rank, "reward_function": training.rewarded, "env": common.env or ""}
    settings |= {} if common.agent is None else {"agent": common.agent}
    settings |= {} if common.dtype == "auto" else {"dtype": common.dtype}
    settings |= {"four_bit": True} if common.four_bit else {}
    drawn = common.env is not None and common.tasks_file is None
    if drawn:
        settings |= {
            "episodes": common.episodes,
            "system": common.system,
            "answer_tokens": common.answer_tokens,
        }
    with (
        processes.joined(common.output) as folder,
        sampling_elsewhere(common, options, folder) as models,
        acting(common, options, models) as env,
        ProgressPrinter() as printer,
    ):
        first = processes.place().first  # of several processes, only this one prints and records
        job = running.TrainingJob(
            name=name,
            trajectories=training.trajectories,
            output=folder,
            model=common.model,
            start=_live(common),
            lora=LoRAOptions(rank=common.lora_rank, alpha=2 * common.lora_rank) if common.lora_rank else None,
            ids_only=common.ids_only or training.labels is not None,
            survey=survey,
            score=getattr(options, "score", None),
            rl=method.rl,
            preferences=training.preferences,
            world=_world(method, module, training, common, env),
            tasks=common.round_tasks if common.round_tasks or not drawn else ROUND_TASKS,
            gate=common.gate and common.fresh,
            metric=getattr(options, "score", None) or "success" if common.agent else "success",
            budget=None if common.max_rollouts is None else Budget(rollouts=common.max_rollouts),
            asynchronous=beside(models, options) if common.asynchronous and models else None,
            settings=(msgspec.to_builtins(options) or {}) | settings,
            seed=getattr(options, "seed", 0),
            resource=getattr(options, "resource", "policy"),
            progress=printer if first and not common.json else quiet,
        )
        learned = one_limit(options) if common.asynchronous else options
        run = running.run(job, lambda: make(learned), resume=common.resume)
        trained = asyncio.run(closing(run, models, env, training.reward))
    if not first:
        return 0
    if common.store is not None:
        with Store(common.store) as opened:  # so that a later erasure there marks these Versions
            opened.put_versions(*trained.bundle.values())
    _say(name, method, trained, common)
    return 0


def _live(common: TrainArguments) -> Bundle:
    """The live Bundle of the store, from which a run without a model starts."""
    from ..record.store import Store
    from ..types import Bundle

    if common.model or common.store is None:
        return Bundle()
    with Store(common.store) as opened:
        return opened.live() or Bundle()


def _maker(method: Method, module: Any, training: TrainingInput, model: str) -> Any:
    """A function from options to the optimizer."""
    make: Any = getattr(module, method.optimizer)
    if method.labels:
        from ..learn.training.dataset import grouped

        labels = training.labels
        if labels is None:
            labels = module.of_record(training.options, grouped(training.trajectories))
        make = partial(make, labelled=labels)
    if training.preferences:
        from ..learn.training.templates import encoder

        make = partial(make, encode=encoder(model))
    return make


def _world(
    method: Method, module: Any, training: TrainingInput, common: TrainArguments, env: Any
) -> SamplingWorld | None:
    """Environment and tasks that the method samples from; None if it learns from the record only."""
    from ..learn.training.dataset import grouped
    from ..learn.training.running import SamplingWorld, trained_on
    from ..learn.training.sampling_world import SamplingPlan
    from ..record.tasks import from_jsonl

    if method.samples and training.trajectories:
        groups = grouped(training.trajectories)
        world = module.environment(training.options, groups)
        return SamplingWorld(env=world, tasks=trained_on([group.task for group in groups]), groups=groups)
    if env is None:
        return None
    options = training.options
    return SamplingPlan(
        env=env,
        tasks=None if common.tasks_file is None else from_jsonl(common.tasks_file),
        episodes=common.episodes,
        policy=None if common.policy is None else named(common.policy),
        rewards=[] if training.reward is None else [training.reward],
        system=common.system,
        answer_tokens=common.answer_tokens,
        gate=common.gate,
    ).world(
        common.model,
        resource=getattr(options, "resource", "policy"),
        temperature=getattr(options, "temperature", 1.0),
        seed=getattr(options, "seed", 0),
    )


def _say(name: str, method: Method, trained: Trained, common: TrainArguments) -> None:
    figures = {key: round(value, 6) for key, value in trained.metrics.items()}
    if common.json:
        versions = {key: version.content for key, version in trained.bundle.items()}
        result = {"method": name, "rounds": trained.rounds, "reason": trained.reason, "bundle": versions}
        if trained.verdict is not None:
            result["verdict"] = msgspec.to_builtins(trained.verdict)
        print_json({**result, "metrics": figures})
        return
    if trained.survey is not None:
        print("\n".join(trained.survey.lines()))
    print(f"{name}: {trained.reason} ({trained.rounds} rounds)")
    for key, value in figures.items():
        print(f"  {key:28} {value:>14g}")
    for resource, version in trained.bundle.items():
        content = version.content if isinstance(version.content, dict) else {}
        inner = content.get("network", content)
        print(f"{resource}: {version.id} {inner.get('path', '') if isinstance(inner, dict) else ''}".rstrip())
    if trained.verdict is not None:
        from ..prove.verdict import render

        print(render(trained.verdict))
        if trained.verdict.releasable:
            print(f"next: whet release {common.output}; whet rollback takes it back")
        elif trained.verdict.promote:
            from ..learn.training.running import STORE

            print(f"next: whet findings --store {common.output / STORE}")
    elif trained.ungated:
        print(f"the gate could not judge: {trained.ungated}")
    if method.own and not method.plugin and not common.fresh:
        store = common.store or "STORE"
        print(
            f"next: sample with these weights (whet release {common.output} --store {store} --unproven; "
            f"whet serve-policy --store {store}; whet run --store {store} --tokens ...), "
            f"check the runs (whet show --trainable), then whet train {name} --store {store} "
            f"--output {common.output} --resume. With an environment: --env."
        )
