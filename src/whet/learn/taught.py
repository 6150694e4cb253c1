"""Was it the reward that taught it?  A gain at the gate after a training whose own reward did not rise.

A policy that is trained drifts whatever it is paid: it loses entropy and keeps to fewer answers, and may get truly
better by that.  The gate rightly calls it better; that its reward is good for anything nobody has shown, and the next
training by it may drift elsewhere.  So the curve of the reward is kept with the weights that it made, and where these
pass a gate against what they were made from, the reward has to have risen: over the rounds, or on the gate's own runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import correlation, fmean, stdev

import msgspec

from ..judge.hacking import Traits
from ..record.store.findings import UNTAUGHT, RewardFinding
from ..stats import t_tail
from ..types import Bundle, Json, Verdict

CURVE = "curve"
"""Of what a Version's `meta["made"]` holds: the RewardCurve of the training that made it."""
LEVEL = 0.01
"""Chance at which a reward that taught nothing passes for one that rose, of either look at it."""
FEWEST_ROUNDS = 4
"""Rounds below which their means tell nothing, and the gate's runs alone are looked at."""


class RewardCurve(msgspec.Struct, frozen=True, kw_only=True):
    """How the reward of a training went, in means of its rounds."""

    score: str
    """Name of the score that it learned by; `reward` is the sum of the steps' rewards."""
    rounds: int
    first: float
    """Mean of the first fifth of the rounds, in the reward's own unit."""
    last: float
    """Of the last fifth."""
    p: float | None
    """Chance of rising as much where no round differs from another; None of fewer than FEWEST_ROUNDS."""


def reward_curve(metrics: Sequence[Mapping[str, float]], score: str) -> RewardCurve | None:
    """The curve of a training on fresh rollouts; None where its rounds tell of no reward.

    Tested is the correlation of the rounds' means with the logarithm of their number (t with R − 2 degrees of freedom,
    one side), for most is learned early: what rises in the first five of a hundred rounds and stays there has risen.
    """
    means = [row["reward"] for row in metrics if "reward" in row]
    if not means:
        return None
    part = max(1, len(means) // 5)
    return RewardCurve(
        score=score,
        rounds=len(means),
        first=fmean(means[:part]),
        last=fmean(means[-part:]),
        p=_trend(means) if len(means) >= FEWEST_ROUNDS else None,
    )


def _trend(means: Sequence[float]) -> float:
    if max(means) == min(means):
        return 1.0
    r = correlation([math.log(number) for number in range(1, len(means) + 1)], means)
    freedom = len(means) - 2
    return _above(r * math.sqrt(freedom / max(1 - r * r, 1e-12)), freedom)


def _above(t: float, freedom: int) -> float:
    return t_tail(t, freedom) if t >= 0 else 1 - t_tail(-t, freedom)


def untaught(
    verdict: Verdict, candidate: Bundle, baseline: Bundle, before: Sequence[Traits], after: Sequence[Traits]
) -> list[RewardFinding]:
    """A finding where the gate calls trained weights better and the reward that trained them did not rise.

    None where anything else was changed as well, or the comparison begins elsewhere than the training: then the gain is
    not the training's alone.

    Args:
        before, after: runs of the baseline and of the candidate on the gate's tasks.
    """
    changed = [each for name, each in candidate.items() if baseline.ids.get(name) != each.id]
    # With a margin nothing is said to have been gained.
    if not verdict.promote or verdict.margin or len(changed) != 1 or set(baseline) - set(candidate):
        return []
    (version,) = changed
    made = version.meta.get("made")
    kept = made.get(CURVE) if isinstance(made, Mapping) else None
    if kept is None or version.parent is None or version.parent != baseline.ids.get(version.resource):
        return []
    curve = msgspec.convert(kept, RewardCurve)
    # What it learned by is what it is judged by.
    if curve.score == verdict.metric or (curve.p is not None and curve.p <= LEVEL):
        return []
    earlier = {run.task: run.scores for run in before}
    pairs = [(earlier[run.task], run) for run in after if run.task in earlier and not run.masked]
    gains = [
        run.scores[curve.score] - old[curve.score]
        for old, run in pairs
        if curve.score in old and curve.score in run.scores
    ]
    if _rises(gains) or (curve.p is None and len(gains) < 2):
        return []
    at_gate = f", and {fmean(gains):+.3f} on {len(gains)} tasks of the gate" if gains else ""
    sentence = (
        f"{verdict.metric or 'success'} is higher by {verdict.effect:+.3f}, but what it was trained by ({curve.score}) "
        f"did not rise beyond chance: {curve.first:.3f} in the first of its {curve.rounds} rounds, {curve.last:.3f} in "
        f"the last{at_gate}. So the gain is not by this reward, and another training by it may as well lose it"
    )
    runs = [
        run.id
        for old, run in pairs
        if run.scores.get(verdict.metric, 0.0) > old.get(verdict.metric, 0.0)
        and run.scores.get(curve.score, 0.0) <= old.get(curve.score, 0.0)
    ]
    return [RewardFinding(kind=UNTAUGHT, sentence=sentence, runs=runs)]


def _rises(gains: Sequence[float]) -> bool:
    """True if paired gains are above 0 at LEVEL (t-test, one side)."""
    if len(gains) < 2:
        return False
    mean, spread = fmean(gains), stdev(gains)
    if spread == 0:
        return mean > 0
    return _above(mean / spread * math.sqrt(len(gains)), len(gains) - 1) <= LEVEL


def kept_with(curve: RewardCurve | None) -> dict[str, Json]:
    """The curve in the form in which a Version keeps it; empty without one."""
    return {} if curve is None else {CURVE: msgspec.to_builtins(curve)}
