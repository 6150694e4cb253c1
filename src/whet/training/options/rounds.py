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
    """Options of every method that learns round by round."""

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
    entropy_bonus: float = 0.02
    """Initial weight of the mean token entropy; it falls to zero over the rounds."""
    kl_coefficient: float = 0.0
    """Weight of the KL divergence from the initial weights."""
    kl_every: int = 10
    """Rounds between measurements of that divergence, where it is not part of the loss."""
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
    checkpoint_every: int = 10
    """Rounds between checkpoints: weights on disk, a Version, and the state that resuming needs."""
    patience: int | None = None
    """Stop after this many checkpoints without better validation; never if omitted."""
    unknown: str | None = None
    """Score that tells if the policy gave up on an answerable task, for the alarm."""
    alarms: AlarmOptions = field(default_factory=AlarmOptions)
    """Signs of collapse at which training stops."""
    part_tokens: int = 4096
    """Padded tokens computed together; affects speed and memory only."""
    seed: int = 0
    """Random seed, of the order of minibatches."""
    optim: OptimOptions = field(default_factory=OptimOptions)
    """Options of the optimizer of weights."""

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

    ratio: Ratio = "trajectory"
    """Unit of the importance ratio; `trajectory` is the paper's."""
    aggregation: Aggregation = "grpo"
    """Averaging of the token losses; `grpo` is the mean over trajectories."""
    scale: Scale = "none"
    """`group` divides advantages by the group's deviation."""
    clip_high: float = 0.2
    """How far a probability ratio may rise above 1."""
    entropy_bonus: float = 0.0
    """Initial weight of the mean token entropy; it falls to zero over the rounds."""
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
    entropy_bonus: float = 0.01
    """Initial weight of the mean token entropy; it falls to zero over the rounds."""

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

    gamma: float = 1.0
    """Discount from token to token."""
    value_trains_trunk: bool = True
    """Let the value loss train the policy's own layers, too."""
    kl_coefficient: float = 0.0
    """Weight of log π − log π_ref, subtracted from the reward of each token (TRL's default is 0.05)."""
    entropy_bonus: float = 0.0
    """Initial weight of the mean token entropy; it falls to zero over the rounds."""

    @classmethod
    def a2c(cls, **changes: Any) -> PPOOptions:
        """A2C: one pass over fresh trajectories, so that nothing is clipped, and Monte-Carlo advantages."""
        settings = {"passes": 1, "lam": 1.0, "value_clip": None, "value_coefficient": 0.5}
        return cls(**{**settings, "entropy_bonus": 0.01, **changes})


@dataclass(frozen=True, kw_only=True)
class CandidateOptions(ActorCriticOptions):
    """Options of PPO over admissible actions."""

    gamma: float = 0.99
    """Discount from step to step."""
    lam: float = 0.99
    """λ of the generalised advantage."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    value_width: int | None = 32
    """Units of the layer between state and value; none for a linear head."""
    entropy_bonus: float = 0.01
    """Initial weight of the mean entropy of the choices; it falls to zero over the rounds."""
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
