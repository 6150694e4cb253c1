"""Options of RLHF: those of its three stages, and of the whole."""

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
