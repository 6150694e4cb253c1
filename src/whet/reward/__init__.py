"""Rewards: plain functions from a Trajectory to a number, and the checker that proves one.

`base.py` runs them, `rules.py` has the ready ones, `compound.py` puts several together,
`judge.py` asks a model, `check.py` holds any of them to the contract.  A reward only reads:
it changes nothing, and where it cannot judge it says None, which is never 0.
"""

from .base import Judgement, Reward, ascore, is_async, name_of, reward, score, version_of
from .check import ATTACKS, acheck_reward, check_bands, check_reward
from .compound import Compound, lexicographic, product, weighted_sum
from .judge import Judge
from .rules import (
    contains,
    cost,
    env_reward,
    exact,
    fewer_steps,
    fields,
    latency,
    matches,
    number,
    output_text,
    rated,
    solved,
    thumbs,
)

__all__ = [
    "ATTACKS",
    "Compound",
    "Judge",
    "Judgement",
    "Reward",
    "acheck_reward",
    "ascore",
    "check_bands",
    "check_reward",
    "contains",
    "cost",
    "env_reward",
    "exact",
    "fewer_steps",
    "fields",
    "is_async",
    "latency",
    "lexicographic",
    "matches",
    "name_of",
    "number",
    "output_text",
    "product",
    "rated",
    "reward",
    "score",
    "solved",
    "thumbs",
    "version_of",
    "weighted_sum",
]
