"""Options and input of `whet train METHOD`, read and checked before anything that needs torch is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from ..errors import InputError
from ..types import Outcome, Score, Split
from .named import AskedJudge, is_judge, judged, named, refuse_two_rewards, warning
from .root import BaseUrl, Print, counted, existing

if TYPE_CHECKING:
    from ..learn.training.compute import ComputeOptions
    from ..learn.training.text_rows import TextRows

Dtype = Literal["auto", "float32", "bfloat16"]
LEARN_PREFERENCES = ("dpo", "reward-model")
"""Methods that also learn from preferences."""


AT_LEAST_ONE = validators.Number(gte=1)


@dataclass(frozen=True, slots=True)
class Method:
    """A method's module and optimizer, a line about it, and its needs."""

    module: str
    """Below `whet`."""
    optimizer: str
    about: str
    family: str = ""
    """Its part of `whet train --help`."""
    options: str = ""
    """Class in `learn.training.options`; by default the optimizer's name and `Options`."""
    rl: bool = False
    samples: bool = False
    """Its module makes an `environment` of recorded trajectories, for a method that wants to sample."""
    labels: bool = False
    """It learns from labelled steps, which its module reads from a file (`labelled`) or a record (`of_record`)."""
    own: bool = False
    """It learns from its own trajectories, and so can sample them from an environment."""
    plugin: bool = False
    """A learner of another package, known by its signature only."""


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """The options of every method's command."""

    data: Path | None = None
    """What to learn from: a file of trajectories, one JSON object per line; or of text in TRL's formats (prompt and
    completion, messages, or prompt, chosen and rejected), as JSON Lines or Parquet."""
    store: Path | None = None
    """Store whose trajectories to learn from, instead of --data. The new weights are recorded there."""
    output: Path
    """Folder for the weights, the metrics, and the state that --resume needs."""
    model: str = "tiny"
    """Folder or name of a causal language model, or the output folder of another whet train; tiny makes a small new
    one."""
    reward_function: str | None = None
    """Reward that judges the runs, as module:function; whet.judge:rated takes the last value that people gave. Or a
    judge, asked at --base-url: a panel (cards/panel.json), a rubric (.md, .txt), another product's (.json). If omitted,
    the recorded rewards."""
    base_url: BaseUrl = None
    judge_model: str | None = None
    """The model that a rubric without a reliability card asks."""
    judge_store: Path | None = None
    """The record that holds a judge's card and keeps its answers. If omitted, --store. A judge without a card steers
    by the chance that an answer is good."""
    judge_admitted: bool = False
    """Before anything is learned, refuse a judge that no card in that record admits, by which no gate would promote the
    result."""
    lora_rank: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0
    """Train LoRA factors of this rank beside frozen weights; 0 trains all weights."""
    device: str = "auto"
    """Where a pretrained model computes: cpu, cuda, cuda:1 or mps; auto takes a CUDA GPU where there is one."""
    dtype: Dtype = "auto"
    """Numbers of a pretrained model: float32, or bfloat16 with updates kept in float32; auto is bfloat16 on a GPU and
    float32 elsewhere."""
    recompute: bool | None = None
    """Compute activations again in the backward pass instead of keeping them: a third more time for a fraction of the
    memory. If omitted, where the device could not hold them."""
    four_bit: bool = False
    """Hold the frozen weights beside LoRA factors in 4 bits (QLoRA); needs whet[qlora]."""
    plan: bool = False
    """Print the memory that this would take on the device, part by part, and what would fit if it does not; nothing is
    read, loaded or trained."""
    plan_for: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None
    """Memory in GiB to plan for, of a device that is not here."""
    resume: bool = False
    """Resume the run in the output folder; the result is bit-identical to an uninterrupted run."""
    env: str | None = None
    """Environment to sample from while learning, instead of a record: a module:function or module:class that makes a
    new one for each rollout, with Gymnasium's methods or whet's. Only for methods that learn from their own
    trajectories."""
    agent: str | None = None
    """Agent to run while learning, instead of an environment: a module:function that takes a task's instruction and
    calls a model through OpenAI's or Anthropic's client, unchanged. It runs in processes of its own, and its calls are
    answered by the weights that learn. Needs --tasks-file and --reward-function."""
    agent_processes: Annotated[int, Parameter(validator=AT_LEAST_ONE)] = 8
    """Processes of the agent, each with one rollout at a time."""
    tasks_file: Path | None = None
    """Tasks of the environment or the agent, one JSON object per line; divided by their group."""
    episodes: Annotated[int | None, Parameter(validator=AT_LEAST_ONE)] = None
    """In place of --tasks-file: learn from so many seeds of the environment; others measure the baseline (64) and
    prove the result (200). 100 if omitted, for an environment with Gymnasium's methods."""
    policy: str | None = None
    """Policy in the environment: a module:function of (bundle, seed) that samples from the weights in the bundle. If
    omitted, the environment's own, else a chat with the model: an observation is a message, the answer the action."""
    system: str = ""
    """System message of that chat: what the task is, and which actions there are."""
    answer_tokens: Annotated[int, Parameter(validator=AT_LEAST_ONE)] = 64
    """Most tokens of an answer in that chat."""
    gate: bool = True
    """After training in an environment, compare the new weights with the old on tasks that nothing learned from. A
    release asks for the Verdict, which is in bundle.json."""
    rollouts: str | None = None
    """Engine that samples the rollouts in a process of its own: policy (whet serve-policy), vllm or sglang, which are
    started, or the URL of one that runs, whose key is in WHET_ROLLOUTS_KEY. If omitted, this process samples; for an
    --agent, policy does."""
    rollouts_options: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Further options for the engine that is started, as one text: "--gpu-memory-utilization 0.5"."""
    hand_over: Literal["disk", "gloo", "nccl"] = "disk"
    """How all weights reach that engine (LoRA factors go as adapters, by disk): disk writes them where both can read;
    gloo and nccl send them through memory to policy or sglang on this machine, nccl between two GPUs."""
    asynchronous: bool = False
    """Sample the next rounds while this one is learned from, at most --max-staleness rounds ahead (2 if omitted); what
    comes later is dropped and counted. Samples from --rollouts, or from policy."""
    max_rollouts: Annotated[int | None, Parameter(validator=AT_LEAST_ONE)] = None
    """Most fresh rollouts; if omitted, as many as the method asks for."""
    round_tasks: Annotated[int | None, Parameter(validator=AT_LEAST_ONE)] = None
    """Tasks per round, for methods that learn from their own trajectories; if omitted, all, or 16 of --episodes. From a
    record, each round takes the next ones, and each is learned from once."""
    ids_only: bool = False
    """The agent sends token ids and never messages: skip the check that recorded answers survive the model's tokenizer
    and chat template."""
    json: Print = False

    def judge(self) -> AskedJudge | None:
        """What judges the runs, where it has to be asked."""
        name = self.reward_function
        if name is None or not is_judge(name):
            return None
        return AskedJudge(
            name,
            self.judge_store or self.store,
            self.base_url,
            self.judge_model,
            steers=not self.judge_admitted,
        )

    @property
    def fresh(self) -> bool:
        """It samples as it learns."""
        return self.env is not None or self.agent is not None

    @property
    def elsewhere(self) -> bool:
        """An engine in a process of its own samples."""
        return self.rollouts is not None or self.asynchronous or self.agent is not None

    @property
    def compute(self) -> ComputeOptions:
        """Where and how precisely to compute."""
        from ..learn.training.compute import ComputeOptions  # there where the extra `train` is installed

        return ComputeOptions(
            device=self.device, dtype=self.dtype, recompute=self.recompute, four_bit=self.four_bit
        )


@dataclass(frozen=True, kw_only=True)
class PluginGiven(TrainArguments):
    """The same for a learner of another package, which may do without a model."""

    model: str = ""
    """Weights to start from: any --model of whet's own methods. If omitted, the live weights of --store, if any."""


def refuse_mixed(name: str, common: TrainArguments, methods: Mapping[str, Method]) -> None:
    """Refuse options that do not go together.

    Raises:
        InputError: a record and an environment, an environment without its tasks, or a method that cannot use it.
    """
    own = methods[name].own
    if not common.fresh:
        asked_for = (common.tasks_file, common.policy, common.episodes, common.system, common.max_rollouts)
        if any(asked_for) or common.rollouts or common.asynchronous or common.hand_over != "disk":
            raise InputError(
                "--tasks-file, --episodes, --policy, --system, --rollouts, --hand-over, --asynchronous and "
                "--max-rollouts need an environment or an agent: give it with --env or --agent"
            )
        if common.round_tasks and not own:
            raise InputError(f"{name} learns from all its trajectories at once: omit --round-tasks")
        return
    if not own:
        able = ", ".join(method for method, about in methods.items() if about.own)
        raise InputError(f"{name} learns from a record; --env and --agent are for {able}")
    if common.data is not None or common.store is not None:
        raise InputError(
            "give a record (--data or --store) or what to sample in (--env or --agent), not both"
        )
    if common.hand_over != "disk" and (not common.elsewhere or common.rollouts == "vllm"):
        raise InputError(
            "--hand-over gloo and nccl are for an engine that takes weights through memory: --rollouts policy or "
            "sglang; vLLM takes them by disk"
        )
    if common.elsewhere and common.model in ("tiny", ""):
        raise InputError(
            "an engine in a process of its own (--rollouts, --asynchronous, --agent) serves a model from a folder: "
            "give it with --model"
        )
    if common.agent is not None:
        _refuse_agent(common)
    if common.policy is not None and common.system:
        raise InputError("--system is of the chat with the model; a --policy of your own has its own")


def _refuse_agent(common: TrainArguments) -> None:
    if common.env is not None:
        raise InputError("give an environment (--env) or an agent (--agent), which is run as it is, not both")
    if common.policy is not None or common.system or common.episodes is not None:
        raise InputError("--policy, --system and --episodes are of an environment; an agent acts by itself")
    module, _, function = (common.agent or "").partition(":")
    if not module or not function:
        raise InputError(f"--agent is {common.agent!r}; write module:function, such as my_agent:answer")
    if common.tasks_file is None:
        raise InputError(
            "--agent needs tasks: give --tasks-file, one JSON object per line with an instruction, such as "
            '{"instruction": "Capital of France?", "group": "europe"}'
        )
    if common.reward_function is None:
        raise InputError(
            "nothing judges what the agent answers: give --reward-function module:function, which takes a trajectory"
        )


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """The checked options, and the input that was read."""

    options: Any
    trajectories: Sequence[Any]
    labels: Sequence[Any] | None
    """Labelled steps that the trajectories are made of, for a method that learns from such."""
    rewarded: Sequence[str]
    """The reward function and its version; a resumed run must have the same."""
    preferences: Sequence[Any] = ()
    reward: Any = None
    """Of a method that samples: what judges each rollout."""


def asked(name: str, method: Method, options: Any, common: TrainArguments) -> TrainingInput:
    """Read the record, or check the environment, and apply the reward function.

    Raises:
        InputError, NotFoundError: it cannot be read, or the method cannot use it.
    """
    if common.fresh:
        return _sampled(options, common)
    labels = _labelled(method, common.data, common.model)
    if labels is not None:
        return TrainingInput(options, [label.trajectory for label in labels], labels, [])
    written = None if common.data is None or common.store is not None else _text_rows(method, common, options)
    preferences: Sequence[Any]
    if written is not None:
        trajectories, preferences = _to_learn_from(written.trajectories), written.preferences
    else:
        trajectories = _to_learn_from(read_trajectories(common.data, common.store))
        preferences = _preferences(name, method, common)
    if common.reward_function is None:
        if not method.plugin:
            options, trajectories = _by_the_record(options, trajectories)
        return TrainingInput(options, trajectories, labels, [], preferences)
    if not method.plugin and "score" not in _names(options):
        raise InputError(f"{name} takes no reward function: it learns a reward, from labels or pairs")
    trajectories, score, version = judged(trajectories, common.reward_function, common.judge())
    options = _learning_from(options, score, trajectories)
    return TrainingInput(options, trajectories, labels, [common.reward_function, version], preferences)


def _text_rows(method: Method, common: TrainArguments, options: Any) -> TextRows | None:
    """The rows of a file in one of TRL's formats, as ids of the model; None for a file of trajectories.

    Raises:
        InputError: the method or the model cannot read text.
    """
    from ..record.exchange.text_rows import read_text_rows

    assert common.data is not None
    rows = read_text_rows(common.data)
    if rows is None:
        return None
    if method.plugin or not common.model or common.model == "tiny":
        raise InputError(
            f"{common.data} holds rows of text, which a model's own tokenizer reads: give --model DIR, or its name"
        )
    from ..learn.training.chat import codec_of
    from ..learn.training.text_rows import tokenised

    return tokenised(rows, codec_of(common.model, getattr(options, "resource", "policy")))


def _sampled(options: Any, common: TrainArguments) -> TrainingInput:
    """The same for a method that samples: the reward function, if any, judges each rollout."""
    if common.reward_function is None:
        return TrainingInput(options, [], None, [])
    from ..judge import name_of, version_of

    reward = common.judge() or named(common.reward_function)
    # In an environment of its own the gate goes by the environment.
    if common.agent is not None and common.gate and (told := warning([reward])):
        print(f"note: {told}", file=sys.stderr)
    chosen = _learning_from(options, name_of(reward), [])
    # Of an agent only the reward says what went well: its outcomes are its failures.
    if "success" in _names(chosen) and common.agent is None:
        chosen = replace(chosen, success="success")
    return TrainingInput(chosen, [], None, [common.reward_function, version_of(reward)], reward=reward)


def _to_learn_from(trajectories: Sequence[Any]) -> Sequence[Any]:
    """The trajectories without those of the gate's tasks; prints how many were left out."""
    usable = [trajectory for trajectory in trajectories if trajectory.task.split is not Split.GATE]
    if len(usable) < len(trajectories):
        hidden = counted(len(trajectories) - len(usable), "trajectory")
        print(f"left out: {hidden} of the gate's tasks, which nothing learns from", file=sys.stderr)
    return usable


def _preferences(name: str, method: Method, common: TrainArguments) -> Sequence[Any]:
    """Preferences of the store that the method can learn from; a plug-in gets all."""
    if common.store is None or not (method.plugin or name in LEARN_PREFERENCES):
        return ()
    from ..record.store import Store

    with Store(common.store) as opened:
        preferences = list(opened.preferences())
    if not preferences or method.plugin:
        return preferences
    from ..learn.training.pairs import of_ids
    from ..learn.training.templates import encoder

    if encoder(common.model) is not None:
        return preferences
    readable = [preference for preference in preferences if of_ids(preference)]
    if len(readable) < len(preferences):
        unreadable = counted(len(preferences) - len(readable), "preference")
        print(f"left out: {unreadable} in text, for which this model has no tokenizer", file=sys.stderr)
    return readable


def _labelled(method: Method, data: Path | None, model: str) -> Sequence[Any] | None:
    """Labelled steps of the file, if the method reads such files and this is one."""
    if not method.labels or data is None:
        return None
    labelled: Sequence[Any] | None = import_module(f"whet.{method.module}").labelled(data, model)
    return labelled


def _learning_from(options: Any, score: str, trajectories: Sequence[Any]) -> Any:
    """The options, set to learn from this score.

    The competence floor is applied to it as well where nothing else says what went well.
    """
    refuse_two_rewards(getattr(options, "score", None), score)
    if getattr(options, "judged_by", "outcome") == "thumbs":
        raise InputError("give either --judged-by thumbs, or --reward-function, which judges instead of them")
    if options is None:
        return None
    from ..learn.training.options import learning_from

    has_success = any(run.outcome.counts or "success" in run.scores for run in trajectories)
    return learning_from(options, score, has_success=has_success)


def _by_the_record(options: Any, trajectories: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The options and trajectories, where the record has only what the method does not look at first.

    A method that learns from step rewards learns from outcomes where no step has a reward, and one that asks
    for the outcome takes the sum of the step rewards where nothing has an outcome.
    """
    if "score" not in _names(options) or options.score is not None:
        return options, trajectories
    if getattr(options, "judged_by", "outcome") != "outcome":
        return options, trajectories
    asks_outcome = "threshold" in _names(options) and getattr(options, "objective", "outcome") == "outcome"
    rewards = [trajectory.reward for trajectory in trajectories]
    outcomes = [float(t.outcome is Outcome.SUCCESS) if t.outcome.counts else None for t in trajectories]
    instead, values = ("reward", rewards) if asks_outcome else ("outcome", outcomes)
    first = outcomes if asks_outcome else rewards
    if any(value is not None for value in first) or all(value is None for value in values):
        return options, trajectories
    scored = [
        replace(t, scores={**t.scores, instead: Score(name=instead, value=value)})
        for t, value in zip(trajectories, values, strict=True)
    ]
    return _learning_from(options, instead, scored), scored


def _names(options: Any) -> set[str]:
    """Names of the options; empty for a plug-in without options."""
    return set() if options is None else {field.name for field in fields(options)}


def read_trajectories(data: Path | None, store: Path | None) -> Sequence[Any]:
    """The trajectories of a file or of a store.

    Raises:
        InputError, NotFoundError: neither or both are given, or it cannot be read.
    """
    from ..record.exchange import formats
    from ..record.influence import weighed
    from ..record.store import Store
    from ..record.tracing.signals import hear

    if (data is None) == (store is None):
        raise InputError("give the trajectories either as --data FILE or as --store FILE")
    if data is not None:
        return list(formats.read_trajectories(data))
    assert store is not None
    with Store(existing(store)) as opened:
        # Sessions may have gone on with no server running: what they show is read before the runs are judged.
        hear(opened)
        influence = weighed(opened.trajectories())
    if influence.sentence:
        print(f"{store}: {influence.sentence}", file=sys.stderr)
    return influence.runs
