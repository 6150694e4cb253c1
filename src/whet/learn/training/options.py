"""The options of every weight method, as dataclasses whose docstrings are the help of `whet train`.

They stand apart from the methods because these import torch, which takes seconds: help is printed, and
a value out of its range refused, without it.  A method's module gives its own options by name too:
`from whet.learn.optimizers.sft import SFT, SFTOptions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple

from ...errors import InputError
from .alarms import AlarmOptions


class Bound(NamedTuple):
    """A range in words, and whether a number lies in it; NaN lies in none."""

    said: str
    holds: Callable[[float], bool]

    def __call__(self, options: Any, *names: str) -> None:
        """Look at these options; one that is None is switched off.

        Raises:
            InputError: one lies outside.
        """
        for name in names:
            value = getattr(options, name)
            if value is not None and not self.holds(value):
                raise InputError(f"{name} must be {self.said}; got {value}")


one_or_more = Bound("1 or more", lambda value: value >= 1)
two_or_more = Bound("2 or more", lambda value: value >= 2)
not_negative = Bound("0 or more", lambda value: 0 <= value < math.inf)
positive = Bound("above 0", lambda value: 0 < value < math.inf)
share = Bound("from 0 to 1", lambda value: 0 <= value <= 1)
below_one = Bound("at least 0 and below 1", lambda value: 0 <= value < 1)


Baseline = Literal["group", "leave_one_out", "none"]
Scale = Literal["none", "group"]
Assignment = Literal["broadcast", "to_go", "agent", "decomposition"]
Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
Ratio = Literal["token", "sequence", "trajectory"]


def learning_from(options: Any, score: str, *, has_success: bool) -> Any:
    """The options, set to learn from this score.

    Args:
        has_success: something else says what went well; otherwise the competence floor is applied to the score too.
    """
    changes = {"score": score, "judged_by": "score"} | ({} if has_success else {"success": score})
    names = {field.name for field in fields(options)}
    changes = {name: value for name, value in changes.items() if name in names}
    return replace(options, **changes) if changes else options


Correction = Literal["auto", "off", "token", "sequence"]
Schedule = Literal["constant", "linear", "cosine"]


LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Names of the layers that get LoRA factors; those a model does not have are passed over."""


KL_EVERY = 10
"""Rounds between measurements of the divergence, where none are asked for and a reference costs little."""


class LearningRates(NamedTuple):
    """The learning rates of a method where none is asked for, by what is trained."""

    fresh: float = 1e-3
    """Of a small decoder of whet's own, which begins with random weights or went on from there."""
    pretrained: float = 1e-5
    """Of all weights of a pretrained model.  LoRA factors take `FACTORS` times as much."""
    reinforces: bool = False
    """True for a method that learns from its own rollouts, whose rate stays as it is from round to round."""


FACTORS = 10.0
"""LoRA factors learn best at ten times the rate of full weights, whatever the method (Schulman et al. 2025, "LoRA
without regret")."""
WARMUP_SHARE = 0.03
"""Of the steps of supervised training of a pretrained model (as Taori et al. 2023 and Dettmers et al. 2023)."""


@dataclass(frozen=True, kw_only=True)
class OptimOptions:
    """Options of the optimizer of weights; what is omitted is settled by the method and by what is trained."""

    learning_rate: float | None = None
    """Learning rate of the first step, for Muon and AdamW alike. If omitted, by the method: from 1e-3 to 3e-3 for a
    small fresh model, from 1e-6 to 2e-5 for a pretrained one, ten times that for LoRA factors."""
    schedule: Schedule | None = None
    """Shape in which the learning rate falls over the planned steps. If omitted, linear for a fresh model; for a
    pretrained one cosine, and constant where it learns from its own rollouts."""
    final_share: float = 0.1
    """Share of the learning rate that is left at the end."""
    warmup: int | None = None
    """Steps over which the learning rate rises from 0. If omitted, 3 % of the steps for a pretrained model that learns
    from given trajectories, otherwise none."""
    muon: bool | None = None
    """Muon for the hidden matrices, or AdamW for all weights. If omitted, Muon for a fresh model, and AdamW for a
    pretrained one, as it was pretrained with."""
    momentum: float = 0.95
    """Nesterov momentum of Muon."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Betas of AdamW."""
    weight_decay: float = 0.0
    """Decoupled weight decay, on matrices only."""
    max_norm: float = 1.0
    """Largest norm of the gradient; longer ones are scaled down to it."""

    def __post_init__(self) -> None:
        Bound("above 0 and at most 1e6", lambda value: 0 < value <= 1e6)(self, "learning_rate")
        positive(self, "max_norm")
        share(self, "final_share")
        not_negative(self, "warmup", "weight_decay")
        below_one(self, "momentum")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas must be at least 0 and below 1; got {self.betas}")
        if self.schedule not in (None, "constant", "linear", "cosine"):
            raise InputError(f"{self.schedule!r} is not a schedule; choose constant, linear or cosine")

    def settled(self, rates: LearningRates, *, pretrained: bool, adapted: bool) -> OptimOptions:
        """The same with nothing omitted but a warm-up that depends on the number of steps.

        Args:
            rates: the method's.
            pretrained: a causal LM is trained, not a decoder of whet's own.
            adapted: only LoRA factors beside it.
        """
        rate = rates.fresh if not pretrained else rates.pretrained * (FACTORS if adapted else 1.0)
        falling: Schedule = "linear" if not pretrained else "constant" if rates.reinforces else "cosine"
        steady = not pretrained or rates.reinforces
        return replace(
            self,
            learning_rate=self.learning_rate or rate,
            schedule=self.schedule or falling,
            warmup=0 if self.warmup is None and steady else self.warmup,
            muon=not pretrained if self.muon is None else self.muon,
        )

    def rate(self, step: int, steps: int) -> float:
        """Learning rate of step number `step` (from 0) of `steps`, of options that are settled."""
        assert self.learning_rate is not None
        warmup = math.ceil(WARMUP_SHARE * steps) if self.warmup is None else self.warmup
        if step < warmup:
            # step + 1: at a rate of 0 the first update would change nothing.
            return self.learning_rate * (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, steps - warmup))
        if self.schedule == "constant":
            return self.learning_rate
        remaining = 0.5 * (1.0 + math.cos(math.pi * done)) if self.schedule == "cosine" else 1.0 - done
        return self.learning_rate * (self.final_share + (1.0 - self.final_share) * remaining)


@dataclass(frozen=True, kw_only=True)
class CloneOptions:
    """Options of every method that learns from trajectories as they are."""

    rates: ClassVar[LearningRates] = LearningRates(3e-3, 2e-5)
    """2e-5 is what Alpaca (Taori et al. 2023) and TRL's SFTConfig train all weights with."""
    resource: str = "policy"
    """Name of the weights in the Bundle."""
    per_task: int | None = None
    """Most trajectories of one task; all if omitted."""
    epochs: int = 4
    """Passes over the trajectories."""
    batch: int = 64
    """Trajectories per update."""
    validation_share: float = 0.1
    """Share of the tasks whose trajectories are held out for early stopping."""
    patience: int = 2
    """Stop after this many epochs without a lower validation loss; the best weights are kept."""
    part_tokens: int | None = None
    """Tokens computed together; affects speed and memory only. If omitted, as many as fit and are any faster."""
    seed: int = 0
    """Random seed, of the order of the trajectories."""
    optim: OptimOptions = field(default_factory=OptimOptions)
    """Options of the optimizer of weights, and of the critic's where there is one."""

    def __post_init__(self) -> None:
        one_or_more(self, "epochs", "batch", "patience", "per_task", "part_tokens")
        below_one(self, "validation_share")


@dataclass(frozen=True, kw_only=True)
class SFTOptions(CloneOptions):
    """Options of SFT."""

    keep: Literal["good", "all"] = "good"
    """`good` keeps the trajectories that pass the reward filter, `all` keeps all judged ones."""
    score: str | None = None
    """Score that the filter uses; the outcome if omitted."""
    threshold: float = 0.5
    """Lowest score that passes the filter."""
    invert: bool = False
    """Negative control: keep the trajectories that fail the filter instead."""


@dataclass(frozen=True, kw_only=True)
class AWROptions(CloneOptions):
    """Options of AWR."""

    score: str | None = None
    """Score to learn from; the sum of the step rewards if omitted."""
    beta: float = 0.3
    """Temperature of the weights, in units of the reward."""
    max_weight: float = 20.0
    """Largest weight of a token."""
    assignment: Assignment = "broadcast"
    """Steps that get the credit: `broadcast`, `to_go` or `agent`."""
    gamma: float = 1.0
    """Discount of the rewards to come, for `to_go`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta", "max_weight")
        share(self, "gamma")
        if self.assignment == "decomposition":
            raise InputError(f"assignment must be broadcast, to_go or agent; got {self.assignment}")


@dataclass(frozen=True, kw_only=True)
class STaROptions(CloneOptions):
    """Options of STaR."""

    steps: int = 5
    """Rounds of sampling and cloning."""
    group_size: int = 8
    """Trajectories sampled per task."""
    score: str | None = None
    """Score that decides success; the outcome if omitted."""
    threshold: float = 0.5
    """Lowest score that counts as success."""
    per_task: int | None = 4
    """Most successes of one task."""
    accumulate: bool = False
    """Clone the successes of all rounds, not only of the last one."""
    filtered: bool = True
    """Clone only successes; switched off, failures too, as a negative control."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "steps", "group_size")


@dataclass(frozen=True, kw_only=True)
class DAggerOptions(CloneOptions):
    """Options of DAgger."""

    steps: int = 5
    """Rounds of acting and cloning."""
    group_size: int = 1
    """Trajectories per task whose states the expert is shown."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "steps", "group_size")


@dataclass(frozen=True, kw_only=True)
class DPOOptions(CloneOptions):
    """Options of DPO."""

    rates: ClassVar[LearningRates] = LearningRates(1e-3, 1e-6)
    """1e-6 is that of Rafailov et al. 2023 and of TRL's DPOConfig."""
    loss: Literal["dpo", "ipo"] = "dpo"
    """`dpo` (sigmoid) or `ipo` (squared distance from a margin of 1 / 2β per token)."""
    pairs: Literal["trajectory", "step"] = "trajectory"
    """`trajectory` compares whole trajectories of a task, `step` two answers to the same prompt."""
    score: str | None = None
    """Score that ranks the pairs; the sum of the step rewards if omitted."""
    margin: float = 0.0
    """Least difference of the rewards of a pair."""
    per_task: int | None = 8
    """Most pairs of one task."""
    beta: float = 0.1
    """How closely the policy is held to the reference."""
    label_smoothing: float = 0.0
    """Probability that a preference is the wrong way round (conservative DPO)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        not_negative(self, "margin")
        Bound("at least 0 and below 0.5", lambda value: 0 <= value < 0.5)(self, "label_smoothing")


@dataclass(frozen=True, kw_only=True)
class KTOOptions(CloneOptions):
    """Options of KTO."""

    rates: ClassVar[LearningRates] = LearningRates(1e-3, 1e-6)
    """1e-6 is TRL's KTOConfig's; Ethayarajh et al. 2024 advise 5e-7 to 5e-6."""
    judged_by: Literal["outcome", "score", "thumbs"] = "outcome"
    """Source of the judgement; `thumbs` takes the sign of the latest feedback with a value."""
    score: str | None = None
    """Name of the score, for `score`."""
    threshold: float = 0.5
    """Lowest score that counts as good."""
    beta: float = 0.1
    """How closely the policy is held to the reference."""
    desirable_weight: float = 1.0
    """Weight λ of good answers; raise it if they are rare."""
    undesirable_weight: float = 1.0
    """Weight λ of bad answers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        not_negative(self, "desirable_weight", "undesirable_weight")
        two_or_more(self, "batch")  # as the reference point needs two
        if self.judged_by == "score" and self.score is None:
            raise InputError("judged_by score needs the name of the score")


@dataclass(frozen=True, kw_only=True)
class RewardModelOptions(CloneOptions):
    """Options of the reward model."""

    rates: ClassVar[LearningRates] = LearningRates(2e-3, 1e-5)
    """About the 9e-6 of InstructGPT (Ouyang et al. 2022)."""
    reward: str = "reward_model"
    """Name of the learned reward in the Bundle."""
    objective: Literal["pairs", "outcome"] = "pairs"
    """`pairs` ranks (Bradley–Terry), `outcome` predicts success (ORM)."""
    score: str | None = None
    """Score that ranks the pairs or decides success; the rewards or the outcome if omitted."""
    threshold: float = 0.5
    """Lowest score that counts as success."""
    margin: float = 0.0
    """Least difference of the rewards of a pair."""
    centring: float = 0.01
    """Weight of the term that keeps scores near 0."""
    per_task: int | None = 8
    """Most pairs of one task."""
    validation_share: float = 0.2
    """Share of the tasks that are held out, for early stopping and the accuracy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "centring", "margin")


@dataclass(frozen=True, kw_only=True)
class PRMOptions(CloneOptions):
    """Options of the process reward model."""

    rates: ClassVar[LearningRates] = LearningRates(2e-3, 1e-5)
    """As for a reward model."""
    reward: str = "process_reward"
    """Name of the learned reward in the Bundle."""
    completions: int = 8
    """Rollouts from each prefix, where there are no labels."""
    hard: bool = False
    """Label a step 1 if any completion succeeds, instead of with the share that does."""
    trajectories: int = 200
    """Most trajectories to label; each costs completions × (steps − 1) rollouts."""
    validation_share: float = 0.2
    """Share of the tasks that are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "completions", "trajectories")


@dataclass(frozen=True, kw_only=True)
class WebRLOptions(CloneOptions):
    """Options of WebRL."""

    rates: ClassVar[LearningRates] = LearningRates(2e-3, 1e-6)
    """1e-6 is the actor's in Qi et al. 2024; the critic takes a reward model's."""
    steps: int = 5
    """Number of phases."""
    group_size: int = 4
    """Trajectories per task and phase."""
    loss: Literal["paper", "released"] = "paper"
    """`paper` regresses on the advantage; `released`, as the released code, clones what was better than expected."""
    score: str | None = None
    """Score to learn from; the sum of the step rewards if omitted."""
    beta: float = 0.5
    """How closely the policy is held to that of the previous phase."""
    gamma: float = 0.9
    """Discount of the outcome, for the critic."""
    lam: float = 0.5
    """Share of the one-step estimate in the advantage; the rest is the outcome."""
    replay_ratio: float = 2.0
    """Most earlier successes, as a multiple of this phase's trajectories; 0 for none."""
    replay_band: tuple[float, float] = (0.5, 0.95)
    """Range of the mean token likelihood, under the current policy, of the earlier successes to replay."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        share(self, "lam", "gamma")
        one_or_more(self, "steps", "group_size")
        not_negative(self, "replay_ratio")


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """Options of every method that learns round by round."""

    rates: ClassVar[LearningRates] = LearningRates(1e-3, 1e-6, reinforces=True)
    """1e-6 is that of DeepSeekMath (Shao et al. 2024), DAPO (Yu et al. 2025) and TRL's GRPOConfig."""
    fresh_entropy_bonus: ClassVar[float] = 0.02
    """The entropy bonus of a small fresh model, where none is given."""
    resource: str = "policy"
    """Name of the weights in the Bundle."""
    score: str | None = None
    """Score to learn from; the sum of the step rewards if omitted."""
    steps: int = 100
    """Number of rounds; the learning rate and the entropy bonus fall over them."""
    group_size: int = 8
    """Trajectories per task."""
    curriculum: bool = False
    """If a round draws only some of the tasks, prefer those whose group may hold both a success and a failure."""
    success: str = "success"
    """Score of the recorded baseline to which the competence floor applies."""
    floor: float = 0.05
    """Lowest baseline to start from: a policy that never succeeds has nothing to reinforce."""
    aggregation: Aggregation = "dapo"
    """Averaging of the token losses: `grpo`, `bnpo`, `dr_grpo` or `dapo`."""
    completion_length: int | None = None
    """Constant of `dr_grpo`: the longest output in tokens."""
    ratio: Ratio = "token"
    """Unit of the importance ratio: each `token`, the mean of a `sequence` (GSPO), or the sum of a `trajectory`."""
    clip_low: float = 0.2
    """How far a probability ratio may fall below 1."""
    clip_high: float = 0.28
    """How far a probability ratio may rise above 1."""
    entropy_bonus: float | None = None
    """Initial weight of the mean token entropy; it falls to zero over the rounds. If omitted, none for a pretrained
    model, whose answers it would blur."""
    kl_coefficient: float = 0.0
    """Weight of the KL divergence from the initial weights."""
    kl_every: int | None = None
    """Rounds between measurements of that divergence, where it is not part of the loss. If omitted, 10; and never where
    all weights of a pretrained model are trained, as it needs a second copy of them."""
    passes: int = 1
    """Times that each batch of trajectories is learned from."""
    minibatch: int | None = None
    """Trajectories per update; all if omitted."""
    max_staleness: int | None = None
    """Most updates between sampling and learning; older trajectories are left out and counted."""
    temperature: float = 1.0
    """Temperature at which the trajectories were sampled."""
    off_policy: bool = False
    """Also learn from tokens that other weights sampled, corrected by clipped importance ratios; otherwise refuse."""
    rollout_correction: Correction = "auto"
    """Truncated importance sampling (Yao et al. 2025): weight each `token`, or each `sequence`, by how much likelier it
    is in training than in the engine that sampled it; `auto` is `token` where another engine samples, else `off`."""
    rollout_correction_cap: float = 2.0
    """Largest such weight."""
    checkpoint_every: int = 10
    """Rounds between checkpoints: weights on disk, a Version, and the state that resuming needs."""
    patience: int | None = None
    """Stop after this many checkpoints without better validation; never if omitted."""
    unknown: str | None = None
    """Score that tells if the policy gave up on an answerable task, for the alarm."""
    alarms: AlarmOptions = field(default_factory=AlarmOptions)
    """Signs of collapse at which training stops."""
    part_tokens: int | None = None
    """Tokens computed together; affects speed and memory only. If omitted, as many as fit and are any faster."""
    seed: int = 0
    """Random seed, of the order of minibatches."""
    optim: OptimOptions = field(default_factory=OptimOptions)
    """Options of the optimizer of weights."""

    def measured_every(self, *, full: bool) -> int | None:
        """Rounds between measurements of the divergence, for which the first weights are kept; None for none.

        Args:
            full: all weights of a pretrained model are trained.
        """
        unasked = full and self.alarms.max_kl is None
        return self.kl_every if self.kl_every is not None or unasked else KL_EVERY

    def __post_init__(self) -> None:
        one_or_more(self, "steps", "group_size", "passes", "minibatch", "checkpoint_every", "kl_every")
        one_or_more(self, "completion_length", "patience", "part_tokens")
        not_negative(self, "max_staleness", "clip_high", "entropy_bonus", "kl_coefficient")
        share(self, "clip_low")
        positive(self, "temperature", "rollout_correction_cap")
        if self.aggregation == "dr_grpo" and not self.completion_length:
            raise InputError("aggregation dr_grpo needs completion_length, the longest output in tokens")
        if self.ratio != "token" and self.aggregation != "grpo":
            raise InputError(
                f"ratio {self.ratio} is one number for each trajectory, so aggregation must be grpo, "
                f"the mean over trajectories; it is {self.aggregation}"
            )


@dataclass(frozen=True, kw_only=True)
class GRPOOptions(RoundOptions):
    """Options of GRPO."""

    baseline: Baseline = "group"
    """`group` (GRPO), `leave_one_out` (RLOO) or `none` (REINFORCE)."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation, as the paper does."""
    assignment: Assignment = "broadcast"
    """Steps that get the credit: `broadcast`, `to_go`, `agent` or `decomposition`."""
    gamma: float = 1.0
    """Discount of later rewards, where each step gets credit of its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "gamma")
        if self.group_size < 2 and self.baseline != "none":
            raise InputError(
                f"group_size is {self.group_size}: a group of one has no baseline; use 2 or more"
            )

    @classmethod
    def paper(cls, **changes: Any) -> GRPOOptions:
        """DeepSeekMath's: mean of each output's mean, deviation-scaled, symmetric clip, KL 0.04."""
        settings = {"aggregation": "grpo", "scale": "group", "clip_high": 0.2, "kl_coefficient": 0.04}
        return cls(**{**settings, "entropy_bonus": 0.0, **changes})

    @classmethod
    def dr_grpo(cls, completion_length: int, **changes: Any) -> GRPOOptions:
        """Dr. GRPO: no scaling by length or deviation."""
        settings = {"aggregation": "dr_grpo", "completion_length": completion_length, "clip_high": 0.2}
        return cls(**{**settings, "entropy_bonus": 0.0, **changes})

    @classmethod
    def dapo(cls, **changes: Any) -> GRPOOptions:
        """DAPO: token-level mean, clip-higher, deviation-scaled, no KL; groups without a signal are skipped."""
        return cls(**{"scale": "group", "entropy_bonus": 0.0, **changes})

    @classmethod
    def gspo(cls, **changes: Any) -> GRPOOptions:
        """GSPO: one ratio for each trajectory, its tokens' mean, and a clip to match."""
        settings = {"ratio": "sequence", "aggregation": "grpo", "scale": "group"}
        return cls(**{**settings, "clip_low": 3e-4, "clip_high": 4e-4, "entropy_bonus": 0.0, **changes})


@dataclass(frozen=True, kw_only=True)
class RLOOOptions(RoundOptions):
    """Options of RLOO."""

    fresh_entropy_bonus: ClassVar[float] = 0.0

    ratio: Ratio = "trajectory"
    """Unit of the importance ratio; `trajectory` is the paper's."""
    aggregation: Aggregation = "grpo"
    """Averaging of the token losses; `grpo` is the mean over trajectories."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    kl_coefficient: float = 0.0
    """Weight of log π − log π_ref of the trajectory, subtracted from its reward (TRL's default is 0.05)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2:
            raise InputError(
                f"group_size is {self.group_size}: leaving one out of a group of one leaves none; use 2 or more"
            )


@dataclass(frozen=True, kw_only=True)
class REINFORCEOptions(RoundOptions):
    """Options of REINFORCE."""

    fresh_entropy_bonus: ClassVar[float] = 0.01

    group_size: int = 4
    """Trajectories per task; one is enough without a group baseline."""
    baseline: Literal["none", "mean", "group"] = "mean"
    """`mean` subtracts the mean credit of the round, `group` that of the task, `none` nothing."""
    assignment: Assignment = "to_go"
    """Steps that get the credit: `to_go`, `broadcast`, `agent` or `decomposition`."""
    gamma: float = 1.0
    """Discount of later rewards."""
    whiten: bool = True
    """Divide the advantages by their standard deviation over the round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "gamma")
        if self.baseline == "group" and self.group_size < 2:
            raise InputError("a group of one has no baseline; use group_size 2 or more, or baseline mean")


@dataclass(frozen=True, kw_only=True)
class ActorCriticOptions(RoundOptions):
    """Options of every method with a value head."""

    group_size: int = 1
    """Trajectories per task; one is enough, as the value head gives the baseline."""
    gamma: float = 1.0
    """Discount from one decision to the next."""
    lam: float = 0.95
    """λ of the generalised advantage: 1 trusts returns, 0 the value head."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    value_clip: float | None = 0.2
    """How far a value may move from the old one in one round; none for no limit."""
    value_coefficient: float = 0.1
    """Weight of the value loss."""
    value_width: int | None = None
    """Units of a layer between states and value; a linear head if omitted."""
    whiten: bool = True
    """Normalise the advantages to mean 0 and deviation 1 over the round."""
    passes: int = 4
    """Times that each round's trajectories are learned from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "gamma", "lam")
        positive(self, "value_clip")
        not_negative(self, "value_coefficient")
        one_or_more(self, "value_width")


@dataclass(frozen=True, kw_only=True)
class PPOOptions(ActorCriticOptions):
    """Options of PPO."""

    fresh_entropy_bonus: ClassVar[float] = 0.0

    gamma: float = 1.0
    """Discount from token to token."""
    value_trains_trunk: bool = True
    """Let the value loss train the policy's own layers, too."""
    kl_coefficient: float = 0.0
    """Weight of log π − log π_ref, subtracted from the reward of each token (TRL's default is 0.05)."""


@dataclass(frozen=True, kw_only=True)
class A2COptions(PPOOptions):
    """Options of A2C (Mnih et al. 2016): one pass over fresh trajectories, so that nothing is clipped, and Monte-Carlo
    advantages."""

    fresh_entropy_bonus: ClassVar[float] = 0.01

    passes: int = 1
    """Times that each round's trajectories are learned from."""
    lam: float = 1.0
    """λ of the generalised advantage: 1 trusts returns, 0 the value head."""
    value_clip: float | None = None
    """How far a value may move from the old one in one round; none for no limit."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(ActorCriticOptions):
    """Options of PPO over admissible actions."""

    fresh_entropy_bonus: ClassVar[float] = 0.01
    gamma: float = 0.99
    """Discount from step to step."""
    lam: float = 0.99
    """λ of the generalised advantage."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    value_width: int | None = 32
    """Units of the layer between state and value; none for a linear head."""
    minibatch: int | None = 256
    """Steps per update; none for all."""
    normalised: bool = False
    """Score actions by the mean of their tokens' log-likelihoods, as a `Chooser(normalised=True)` samples them.

    The paper's sum favours short actions; where lengths differ, an untrained policy hardly says the others.
    """
    ratio: Ratio = "token"
    """The choice is one decision whatever its tokens; leave it."""
    aggregation: Aggregation = "dapo"
    """The mean over choices; leave it."""


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options of the three stages."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    seed: int = 0
    """Random seed, of the order of trajectories and of sampling."""
    skip_clone: bool = False
    """Skip the first stage, for a policy that already follows instructions."""
    tasks: int = 32
    """Prompts per round of the third stage."""
    clip_reward: float = 5.0
    """Learned rewards are clipped to ± this."""
    stop_id: int | None = None
    """Token that ends an answer; if omitted, the one that most recorded answers end with."""
    max_new_tokens: int | None = None
    """Most tokens of an answer; if omitted, as many as the longest recorded one has."""
    clone: SFTOptions = field(default_factory=SFTOptions)
    """The first stage."""
    reward: RewardModelOptions = field(default_factory=RewardModelOptions)
    """The second stage."""
    reinforce: PPOOptions = field(default_factory=lambda: PPOOptions(score="learned", kl_coefficient=0.02))
    """The third stage."""

    def __post_init__(self) -> None:
        one_or_more(self, "tasks", "max_new_tokens")
        positive(self, "clip_reward")
