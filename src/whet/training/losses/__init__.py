"""The losses of weight methods: pure functions of tensors, no model and no data.

`policy` has what is learned from rewards, `preference` what is learned from
comparisons and judgements, `critic` what a value head is for.
"""

from __future__ import annotations

from .critic import discounted, gae, value_loss, whiten
from .policy import (
    advantages,
    clipped,
    exact_kl,
    k1,
    k3,
    log_ratios,
    token_weights,
)
from .preference import bradley_terry, dpo, first_difference, ipo, kto, kto_divergence, unit_sums

__all__ = [
    "advantages",
    "bradley_terry",
    "clipped",
    "discounted",
    "dpo",
    "exact_kl",
    "first_difference",
    "gae",
    "ipo",
    "k1",
    "k3",
    "kto",
    "kto_divergence",
    "log_ratios",
    "token_weights",
    "unit_sums",
    "value_loss",
    "whiten",
]
