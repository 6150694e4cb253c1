"""Options of the methods that learn round by round from rewards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import InputError
from ..alarms import AlarmOptions
from .bounds import not_negative, one_or_more, positive, share
from .optim import OptimOptions
from .variants import Aggregation, Assignment, Baseline, Ratio, Scale


@dataclass(frozen=True, kw_only=True)
class RoundOptions:
    """How to train from rewards, whatever the method."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    score: str | None = None
    """Score to learn from; None for the sum of the step rewards."""
    steps: int = 100
    """Rounds in all; learning rate and entropy bonus fall over them."""
    group_size: int = 8
    """Trajectories per task."""
    curriculum: bool = False
    """Where only some tasks are drawn for a round, prefer those of which a group can hold a success and a failure."""
    success: str = "success"
    """Name in the recorded baseline that the competence floor is for."""
    floor: float = 0.05
    """Lowest baseline to start from: a policy that never succeeds has nothing to reinforce."""
    aggregation: Aggregation = "dapo"
    """How token losses are averaged: `grpo`, `bnpo`, `dr_grpo` or `dapo`."""
    completion_length: int | None = None
    """Constant of `dr_grpo`: the longest output in tokens."""
    ratio: Ratio = "token"
    """What the importance ratio is taken of: a `token`, a `sequence`'s mean (GSPO), a `trajectory`'s sum."""
    clip_low: float = 0.2
    """How far a probability ratio may fall below 1."""
    clip_high: float = 0.28
    """How far it may rise above 1."""
    entropy_bonus: float = 0.02
    """Weight of the mean token entropy at first; falls to zero over the steps."""
    kl_coefficient: float = 0.0
    """Weight of the divergence from the first weights."""
    kl_every: int = 10
    """Steps between measurements of that divergence, where it is no part of the loss."""
    passes: int = 1
    """Times each batch of trajectories is learned from."""
    minibatch: int | None = None
    """Trajectories in one update; None for all."""
    max_staleness: int | None = None
    """Updates that may lie between sampling and learning; older trajectories are left out and counted."""
    temperature: float = 1.0
    """What the trajectories were sampled at."""
    off_policy: bool = False
    """Learn from tokens that other weights sampled too, corrected by clipped importance ratios; else refuse."""
    checkpoint_every: int = 10
    """Rounds between checkpoints: weights on disk, a Version, a state that resumes."""
    patience: int | None = None
    """Checkpoints without better validation before it stops; None goes on to the end."""
    unknown: str | None = None
    """Score that says whether the policy gave up on an answerable task, for the alarm."""
    alarms: AlarmOptions = field(default_factory=AlarmOptions)
    """When to stop because the policy collapses."""
    part_tokens: int = 4096
    """Padded tokens computed at once; changes speed and memory only."""
    seed: int = 0
    """Of the order of minibatches."""
    optim: OptimOptions = field(default_factory=OptimOptions)
    """How weights are updated."""

    def __post_init__(self) -> None:
        one_or_more(self, "steps", "group_size", "passes", "minibatch", "checkpoint_every", "kl_every")
        one_or_more(self, "completion_length", "patience", "part_tokens")
        not_negative(self, "max_staleness", "clip_high", "entropy_bonus", "kl_coefficient")
        share(self, "clip_low")
        positive(self, "temperature")
        if self.aggregation == "dr_grpo" and not self.completion_length:
            raise InputError("aggregation dr_grpo needs completion_length, the longest output in tokens")
        if self.ratio != "token" and self.aggregation != "grpo":
            raise InputError(
                f"ratio {self.ratio} is one number for each trajectory, so aggregation must be grpo, "
                f"the mean over trajectories; it is {self.aggregation}"
            )


@dataclass(frozen=True, kw_only=True)
class GRPOOptions(RoundOptions):
    """How to train from rewards, relative to the group."""

    baseline: Baseline = "group"
    """`group` (GRPO), `leave_one_out` (RLOO) or `none` (REINFORCE)."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation, as the paper does."""
    assignment: Assignment = "broadcast"
    """Which step gets the credit: `broadcast`, `to_go`, `agent` or `decomposition`."""
    gamma: float = 1.0
    """Discount of the rewards to come, where the credit is each step's own."""

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
    """How to train from rewards, relative to the rest of the group."""

    ratio: Ratio = "trajectory"
    """What the importance ratio is taken of; `trajectory` is the paper's."""
    aggregation: Aggregation = "grpo"
    """How token losses are averaged; `grpo` is the mean over trajectories."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy at first; falls to zero over the steps."""
    kl_coefficient: float = 0.0
    """Times log π − log π_ref of the trajectory, taken off its reward (TRL's default is 0.05)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_size < 2:
            raise InputError(
                f"group_size is {self.group_size}: leaving one out of a group of one leaves none; use 2 or more"
            )


@dataclass(frozen=True, kw_only=True)
class REINFORCEOptions(RoundOptions):
    """How to train from returns."""

    group_size: int = 4
    """Trajectories per task; one is enough without a group baseline."""
    baseline: Literal["none", "mean", "group"] = "mean"
    """`mean` takes off the round's mean credit, `group` the task's, `none` nothing."""
    assignment: Assignment = "to_go"
    """Which step gets the credit: `to_go`, `broadcast`, `agent` or `decomposition`."""
    gamma: float = 1.0
    """Discount of the rewards to come."""
    whiten: bool = True
    """Divide the advantages by the round's deviation."""
    entropy_bonus: float = 0.01
    """Weight of the mean token entropy at first; falls to zero over the steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "gamma")
        if self.baseline == "group" and self.group_size < 2:
            raise InputError("a group of one has no baseline; use group_size 2 or more, or baseline mean")


@dataclass(frozen=True, kw_only=True)
class ActorCriticOptions(RoundOptions):
    """How to train from rewards against a value head, whatever is decided."""

    group_size: int = 1
    """Trajectories per task; the baseline is the value head's, so one is enough."""
    gamma: float = 1.0
    """Discount from one decision to the next."""
    lam: float = 0.95
    """λ of the generalised advantage: 1 trusts returns, 0 the value head."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    value_clip: float | None = 0.2
    """How far a value may move from the old one in one round; None for no limit."""
    value_coefficient: float = 0.1
    """Weight of the value loss."""
    value_width: int | None = None
    """Units of a layer between states and value; None for a linear head."""
    whiten: bool = True
    """Advantages with mean 0 and deviation 1 over the round."""
    passes: int = 4
    """Times each round's trajectories are learned from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "gamma", "lam")
        positive(self, "value_clip")
        not_negative(self, "value_coefficient")
        one_or_more(self, "value_width")


@dataclass(frozen=True, kw_only=True)
class PPOOptions(ActorCriticOptions):
    """How to train from rewards against a value head."""

    gamma: float = 1.0
    """Discount from token to token."""
    value_trains_trunk: bool = True
    """Whether the value loss reaches the policy's own layers."""
    kl_coefficient: float = 0.0
    """Times log π − log π_ref, taken off the reward of each token (TRL's default is 0.05)."""
    entropy_bonus: float = 0.0
    """Weight of the mean token entropy at first; falls to zero over the steps."""

    @classmethod
    def a2c(cls, **changes: Any) -> PPOOptions:
        """A2C: one pass over fresh trajectories, so that nothing is clipped, and Monte-Carlo advantages."""
        settings = {"passes": 1, "lam": 1.0, "value_clip": None, "value_coefficient": 0.5}
        return cls(**{**settings, "entropy_bonus": 0.01, **changes})


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(ActorCriticOptions):
    """How to train a policy over admissible actions."""

    gamma: float = 0.99
    """Discount from step to step."""
    lam: float = 0.99
    """λ of the generalised advantage."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    value_width: int | None = 32
    """Units of the layer between state and value; None for a linear head."""
    entropy_bonus: float = 0.01
    """Weight of the mean entropy of the choices; falls to zero over the steps."""
    minibatch: int | None = 256
    """Steps in one update; None for all."""
    normalised: bool = False
    """Score actions by the mean of their tokens' log-likelihoods, as a `Chooser(normalised=True)` samples them.

    The paper's sum favours short actions; where lengths differ, an untrained policy hardly says the others.
    """
    ratio: Ratio = "token"
    """The choice is one decision whatever its tokens; leave it."""
    aggregation: Aggregation = "dapo"
    """The mean over choices; leave it."""
