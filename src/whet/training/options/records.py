"""Options of the methods that learn from trajectories as they are, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ...errors import InputError
from .bounds import Bound, below_one, not_negative, one_or_more, positive, share, two_or_more
from .optim import OptimOptions
from .variants import Assignment


@dataclass(frozen=True, kw_only=True)
class CloneOptions:
    """Options of every method that learns from trajectories as they are."""

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
    part_tokens: int = 4096
    """Padded tokens computed together; affects speed and memory only."""
    seed: int = 0
    """Random seed, of the order of the trajectories."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """Options of the optimizer of weights."""

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
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=1e-3))
    """Options of the optimizer of weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        not_negative(self, "margin")
        Bound("at least 0 and below 0.5", lambda value: 0 <= value < 0.5)(self, "label_smoothing")


@dataclass(frozen=True, kw_only=True)
class KTOOptions(CloneOptions):
    """Options of KTO."""

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
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=1e-3))
    """Options of the optimizer of weights."""

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
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """Options of the optimizer of weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "centring", "margin")


@dataclass(frozen=True, kw_only=True)
class PRMOptions(CloneOptions):
    """Options of the process reward model."""

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
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """Options of the optimizer of weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "completions", "trajectories")


@dataclass(frozen=True, kw_only=True)
class WebRLOptions(CloneOptions):
    """Options of WebRL."""

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
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """Options of the optimizer of weights, the critic's too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        share(self, "lam", "gamma")
        one_or_more(self, "steps", "group_size")
        not_negative(self, "replay_ratio")
