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
    """How to train on trajectories as they are."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    per_task: int | None = None
    """Trajectories of one task at most; None for all."""
    epochs: int = 4
    """Passes over the trajectories."""
    batch: int = 64
    """Trajectories in one update."""
    validation_share: float = 0.1
    """Share of the tasks whose trajectories are kept aside for early stopping."""
    patience: int = 2
    """Epochs without a lower validation loss before it stops; the best weights are kept."""
    part_tokens: int = 4096
    """Padded tokens computed at once; changes speed and memory only."""
    seed: int = 0
    """Of the order of the trajectories."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        one_or_more(self, "epochs", "batch", "patience", "per_task", "part_tokens")
        below_one(self, "validation_share")


@dataclass(frozen=True, kw_only=True)
class SFTOptions(CloneOptions):
    """How to clone."""

    keep: Literal["good", "all"] = "good"
    """`good` keeps what passes the reward filter, `all` keeps everything that was judged."""
    score: str | None = None
    """Score that the filter looks at; None for the outcome."""
    threshold: float = 0.5
    """Lowest score that passes."""
    invert: bool = False
    """Keep what fails the filter instead: the negative control."""


@dataclass(frozen=True, kw_only=True)
class AWROptions(CloneOptions):
    """How to learn from recorded rewards."""

    score: str | None = None
    """Score to learn from; None for the sum of the step rewards."""
    beta: float = 0.3
    """Temperature of the weights, in the unit of the reward."""
    max_weight: float = 20.0
    """Largest weight of a token."""
    assignment: Assignment = "broadcast"
    """Which step gets the credit: `broadcast`, `to_go` or `agent`."""
    gamma: float = 1.0
    """Discount of the rewards to come, for `to_go`."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta", "max_weight")
        share(self, "gamma")
        if self.assignment == "decomposition":
            raise InputError(f"assignment must be broadcast, to_go or agent; got {self.assignment}")


@dataclass(frozen=True, kw_only=True)
class STaROptions(CloneOptions):
    """How to learn from one's own successes."""

    steps: int = 5
    """Rounds of sampling and cloning."""
    group_size: int = 8
    """Trajectories sampled of each task."""
    score: str | None = None
    """Score that says success; None for the outcome."""
    threshold: float = 0.5
    """Lowest score that is a success."""
    per_task: int | None = 4
    """Successes of one task at most; None for all."""
    accumulate: bool = False
    """Clone the successes of all rounds, not of the last alone."""
    filtered: bool = True
    """False clones failures too: the negative control."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "steps", "group_size")


@dataclass(frozen=True, kw_only=True)
class DAggerOptions(CloneOptions):
    """How to learn from corrections."""

    steps: int = 5
    """Rounds of acting and cloning."""
    group_size: int = 1
    """Trajectories of each task whose states the expert is shown."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=3e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "steps", "group_size")


@dataclass(frozen=True, kw_only=True)
class DPOOptions(CloneOptions):
    """How to learn from pairs."""

    loss: Literal["dpo", "ipo"] = "dpo"
    """`dpo` (sigmoid) or `ipo` (squared distance from a margin of 1 / 2β per token)."""
    pairs: Literal["trajectory", "step"] = "trajectory"
    """`trajectory` compares whole trajectories of a task, `step` two answers to the same prompt."""
    score: str | None = None
    """Score that makes the pairs; None for the sum of the step rewards."""
    margin: float = 0.0
    """Rewards must differ by more than this."""
    per_task: int | None = 8
    """Pairs of one task at most; None for all."""
    beta: float = 0.1
    """How closely the policy is held to the reference."""
    label_smoothing: float = 0.0
    """Chance that a preference is the wrong way round (conservative DPO)."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=1e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        not_negative(self, "margin")
        Bound("at least 0 and below 0.5", lambda value: 0 <= value < 0.5)(self, "label_smoothing")


@dataclass(frozen=True, kw_only=True)
class KTOOptions(CloneOptions):
    """How to learn from good and bad answers."""

    judged_by: Literal["outcome", "score", "thumbs"] = "outcome"
    """What says good or bad; `thumbs` is the sign of the latest feedback that has a value."""
    score: str | None = None
    """The score's name, for `score`."""
    threshold: float = 0.5
    """Lowest score that is good."""
    beta: float = 0.1
    """How closely the policy is held to the reference."""
    desirable_weight: float = 1.0
    """λ of good answers; raise it where they are rare."""
    undesirable_weight: float = 1.0
    """λ of bad answers."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=1e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        not_negative(self, "desirable_weight", "undesirable_weight")
        two_or_more(self, "batch")  # as the reference point needs two
        if self.judged_by == "score" and self.score is None:
            raise InputError("judged_by score needs the name of the score")


@dataclass(frozen=True, kw_only=True)
class RewardModelOptions(CloneOptions):
    """How to learn a reward."""

    reward: str = "reward_model"
    """Name of the learned reward in the Bundle."""
    objective: Literal["pairs", "outcome"] = "pairs"
    """`pairs` ranks (Bradley–Terry), `outcome` predicts success (ORM)."""
    score: str | None = None
    """Score that makes the pairs, or says success; None for the rewards, or the outcome."""
    threshold: float = 0.5
    """Lowest score that is a success."""
    margin: float = 0.0
    """Rewards of a pair must differ by more than this."""
    centring: float = 0.01
    """Weight of the term that keeps scores around 0."""
    per_task: int | None = 8
    """Pairs of one task at most; None for all."""
    validation_share: float = 0.2
    """Share of the tasks that are kept aside, for early stopping and for the accuracy."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "centring", "margin")


@dataclass(frozen=True, kw_only=True)
class PRMOptions(CloneOptions):
    """How to learn what a step is worth."""

    reward: str = "process_reward"
    """Name of the learned reward in the Bundle."""
    completions: int = 8
    """Rollouts from each prefix, where there are no labels."""
    hard: bool = False
    """Label 1 where any completion succeeds, instead of the share that does."""
    trajectories: int = 200
    """Trajectories that are labelled, at most; each costs completions × (steps − 1) rollouts."""
    validation_share: float = 0.2
    """Share of the tasks that are kept aside."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """How weights are updated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_or_more(self, "completions", "trajectories")


@dataclass(frozen=True, kw_only=True)
class WebRLOptions(CloneOptions):
    """How to learn from phases of trajectories."""

    steps: int = 5
    """Phases."""
    group_size: int = 4
    """Trajectories of each task in a phase."""
    loss: Literal["paper", "released"] = "paper"
    """`paper` regresses on the advantage, `released` clones what was better than expected."""
    score: str | None = None
    """Score to learn from; None for the sum of the step rewards."""
    beta: float = 0.5
    """How closely the policy is held to that of the phase before."""
    gamma: float = 0.9
    """Discount of the outcome, for the critic."""
    lam: float = 0.5
    """Share of the one-step estimate in the advantage; the rest is the outcome's."""
    replay_ratio: float = 2.0
    """Earlier successes at most, as a multiple of this phase's trajectories; 0 for none."""
    replay_band: tuple[float, float] = (0.5, 0.95)
    """Mean likelihood of a token under the current actor that an earlier success must have."""
    optim: OptimOptions = field(default_factory=lambda: OptimOptions(learning_rate=2e-3))
    """How weights are updated, the critic's too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "beta")
        share(self, "lam", "gamma")
        one_or_more(self, "steps", "group_size")
        not_negative(self, "replay_ratio")
