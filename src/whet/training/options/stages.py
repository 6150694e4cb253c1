"""Options of RLHF: those of its three stages, and what holds them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from .bounds import one_or_more, positive
from .records import RewardModelOptions, SFTOptions
from .rounds import PPOOptions


@dataclass(frozen=True, kw_only=True)
class StageOptions:
    """Options of the three stages."""

    resource: str = "policy"
    """Name of the weights in the Bundle."""
    seed: int = 0
    """Of the order of trajectories and of what is sampled."""
    skip_clone: bool = False
    """Begin with the reward: the policy can follow instructions already."""
    tasks: int = 32
    """Prompts answered in each round of the third stage."""
    clip_reward: float = 5.0
    """Learned rewards are cut to ± this."""
    stop_id: int | None = None
    """Token that ends an answer; by default the one that most recorded answers end with."""
    max_new_tokens: int | None = None
    """Tokens of an answer at most; by default those of the longest recorded one."""
    clone: SFTOptions = field(default_factory=SFTOptions)
    """The first stage."""
    reward: RewardModelOptions = field(default_factory=RewardModelOptions)
    """The second stage."""
    reinforce: PPOOptions = field(default_factory=lambda: PPOOptions(score="learned", kl_coefficient=0.02))
    """The third stage."""

    def __post_init__(self) -> None:
        one_or_more(self, "tasks", "max_new_tokens")
        positive(self, "clip_reward")
