"""The options of every weight method, as dataclasses whose docstrings are the help of `whet train`.

They stand apart from the methods because these import torch, which takes seconds: what a
method can be told is said, and a value that it cannot take refused, without it.  A method's
module gives its own options by name too: `from whet.optimizers.sft import SFT, SFTOptions`.
"""

from __future__ import annotations

from .records import (
    AWROptions,
    CloneOptions,
    DAggerOptions,
    DPOOptions,
    KTOOptions,
    PRMOptions,
    RewardModelOptions,
    SFTOptions,
    STaROptions,
    WebRLOptions,
)
from .rounds import (
    ActorCriticOptions,
    CandidateOptions,
    GRPOOptions,
    PPOOptions,
    REINFORCEOptions,
    RLOOOptions,
    RoundOptions,
)
from .stages import StageOptions

__all__ = [
    "AWROptions",
    "ActorCriticOptions",
    "CandidateOptions",
    "CloneOptions",
    "DAggerOptions",
    "DPOOptions",
    "GRPOOptions",
    "KTOOptions",
    "PPOOptions",
    "PRMOptions",
    "REINFORCEOptions",
    "RLOOOptions",
    "RewardModelOptions",
    "RoundOptions",
    "SFTOptions",
    "STaROptions",
    "StageOptions",
    "WebRLOptions",
]
