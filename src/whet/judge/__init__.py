"""Rewards: plain functions from a Trajectory to a number, and the checker that proves one.

`base.py` runs them, `rules.py` has the ready ones, `compound.py` puts several together,
`checkers.py` asks a task's own checker, `judge.py` a model, `check.py` holds any of them to the
contract.  A reward only reads: it changes nothing, and where it cannot judge it says None, which is never 0.
`evaluator.py`, `proof.py` and `variants.py` prove evaluators that are programs; `replay.py` and `agent_env.py` run an
agent again so that it can be judged.
"""

from .base import Judgement, Reward, ascore, is_async, name_of, reward, score, version_of
from .check import ATTACKS, acheck_reward, check_bands, check_reward
from .checkers import Checked, admit, ajudged, checked, judged
from .compound import Compound, lexicographic, product, weighted_sum
from .grounding import Grounded
from .judge import Judge
from .ranking import Ruler, ruler
from .rules import (
    contains,
    cost,
    env_reward,
    exact,
    fewer_steps,
    fields,
    implied,
    latency,
    matches,
    number,
    rated,
    solved,
    thumbs,
)

__all__ = [
    "ATTACKS",
    "Checked",
    "Compound",
    "Grounded",
    "Judge",
    "Judgement",
    "Reward",
    "Ruler",
    "acheck_reward",
    "admit",
    "ajudged",
    "ascore",
    "check_bands",
    "check_reward",
    "checked",
    "contains",
    "cost",
    "env_reward",
    "exact",
    "fewer_steps",
    "fields",
    "implied",
    "is_async",
    "judged",
    "latency",
    "lexicographic",
    "matches",
    "name_of",
    "number",
    "product",
    "rated",
    "reward",
    "ruler",
    "score",
    "solved",
    "thumbs",
    "version_of",
    "weighted_sum",
]
