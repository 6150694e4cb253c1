"""What so many pairs in so many groups can prove, in either regime, before any of them was run.

Twelve groups cannot prove what 1,700 tasks can, if the question is about the next group: each group is one piece of
evidence on how groups differ.  So whoever is about to spend is told both figures, and how many groups would do.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from ..errors import InputError
from ..stats import BETS, t_quantile
from ..types import Sampling

DIFFERING = 0.2
"""Share of the pairs whose two sides differ: in the middle, of recorded agents that are 5 points apart."""
SPREAD = 0.1
"""Standard deviation of the gain between groups."""
TRIES = 0.8
"""The power that a gain is called provable at."""
MISSED = 1e-4
"""Chance that a canary's harm is not found within the units that are named for it."""
HARMS = ("success", "errors", "seconds", "dollars")
"""What a canary is taken back for; each has the same part of the evidence."""


def power(
    gain: float,
    pairs: int,
    *,
    groups: int | None = None,
    differing: float = DIFFERING,
    spread: float = SPREAD,
    alpha: float = 0.05,
) -> float:
    """Chance that a gain is proven by one look at so many pairs.

    Both of the gate's conditions must be met.  The bet asks for a mean difference from some bar on, which is found by
    betting on pairs of which `differing` differ; the interval over groups for a noncentral t above its quantile, in
    its normal approximation (Johnson and Welch 1940).

    Args:
        gain: true mean difference, above 0.
        groups: of equal size, in the regime new-group; None for exchangeable tasks.
        differing: share of the pairs whose two sides differ; a gain is a share of them, at the least.
        spread: standard deviation of the gain between groups.

    Raises:
        InputError: a gain that is not above 0 or above 1.
    """
    if not 0 < gain <= 1:
        raise InputError(f"gain {gain}: it must be above 0 and at most 1")
    units = pairs if groups is None else min(groups, pairs)
    if units < 2:
        return 0.0
    differing = max(differing, gain)
    variance = (differing - gain * gain) / pairs + (0.0 if groups is None else spread**2 / units)
    error, df = math.sqrt(max(variance, 1e-12)), units - 1
    t = t_quantile(0.975, df)
    normal = NormalDist()
    betting = normal.cdf((gain - bar(pairs, differing, alpha=alpha)) / error)
    interval = normal.cdf((gain / error - t * (1 - 1 / (4 * df))) / math.sqrt(1 + t * t / (2 * df)))
    return min(betting, interval)


def bar(pairs: int, differing: float, *, alpha: float = 0.05) -> float:
    """The least mean difference at which a bet on so many pairs, of which a share differs, reaches 1/alpha."""
    goal, count = math.log(1 / alpha), pairs * differing

    def wealth(mean: float) -> float:
        up, down = (count + mean * pairs) / 2, (count - mean * pairs) / 2
        logs = [
            math.log(part) + up * math.log1p(stake) + down * math.log1p(-stake)
            for stake, part in BETS.items()
        ]
        top = max(logs)
        return top + math.log(sum(math.exp(log - top) for log in logs))

    low, high = 0.0, differing
    if wealth(high) < goal:
        return math.inf
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if wealth(middle) >= goal else (middle, high)
    return high


def after_passing(effect: float, error: float, least: float) -> float:
    """An effect that was only looked at because it was at least `least`, without what that adds to it.

    The median-unbiased estimate of a normal mean given that the value passed a bar (as of Zhong and Prentice 2008 for
    genome scans): the mean under which a value that passed is as often above this one as below.  It differs from the
    effect where that passed narrowly; far above the bar they are the same.  Of what is better than nothing the median
    stays one if it is not let below 0, and its mean error is a third then.
    """
    if error <= 0 or effect < least:
        return effect
    normal = NormalDist()
    low, high = 0.0, effect
    for _ in range(60):
        middle = (low + high) / 2
        passed = normal.cdf((middle - least) / error)
        low, high = (middle, high) if normal.cdf((middle - effect) / error) < passed / 2 else (low, middle)
    return high


def units_to_take_back(
    harm: float, share: float, *, alpha: float, rate: float | None = None, missed: float = MISSED
) -> int | None:
    """Judged units within which a canary that loses `harm` in success is taken back, but for a chance of `missed`.

    Of the gamblers of the canary's e-process (`canary.py`) the fastest is followed: its log wealth after n units is
    normal by its mean and variance of one, and has to pay for its part of the wealth and for the other harms' part.

    Args:
        harm: fall in the rate of success.
        share: of the units that the candidate gets.
        rate: success of what is live; the worst of all if None.

    Returns:
        None if it takes more than a million.

    Raises:
        InputError: harm or share outside (0, 1), or a rate below the harm.
    """
    if not 0 < harm < 1 or not 0 < share < 1 or (rate is not None and not harm <= rate <= 1):
        raise InputError(
            f"harm {harm} and share {share} must lie in (0, 1), and the rate {rate} be at least the harm"
        )
    rates = [harm + (1 - harm) * step / 20 for step in range(21)] if rate is None else [rate]
    needed = [_units(harm, share, alpha, live, NormalDist().inv_cdf(1 - missed)) for live in rates]
    return None if None in needed else max(units for units in needed if units is not None)


def _units(harm: float, share: float, alpha: float, rate: float, z: float) -> int | None:
    mean = rate - share * harm
    outcomes = [
        (share * (rate - harm), -(1 - mean) * (1 - share)),
        (share * (1 - rate + harm), mean * (1 - share)),
        ((1 - share) * rate, (1 - mean) * share),
        ((1 - share) * (1 - rate), -mean * share),
    ]
    fastest = None
    for stake, part in BETS.items():
        logs = [(chance, math.log1p(stake * bet)) for chance, bet in outcomes]
        growth = sum(chance * log for chance, log in logs)
        if growth <= 0:
            continue
        spread = math.sqrt(max(0.0, sum(chance * log * log for chance, log in logs) - growth * growth))
        goal = math.log(len(HARMS) / (alpha * part))
        # growth·n − z·spread·√n ≥ goal, a quadratic in √n.
        root = (z * spread + math.sqrt(z * z * spread * spread + 4 * growth * goal)) / (2 * growth)
        units = math.ceil(root * root)
        fastest = units if fastest is None else min(fastest, units)
    return fastest if fastest is not None and fastest <= 1_000_000 else None


def provable(pairs: int, *, groups: int | None = None, spread: float = SPREAD) -> float | None:
    """The smallest gain, in whole hundredths, that so many pairs prove in `TRIES` of tries; None if there is none."""
    return next(
        (
            hundredths / 100
            for hundredths in range(1, 101)
            if power(hundredths / 100, pairs, groups=groups, spread=spread) >= TRIES
        ),
        None,
    )


def power_in_words(pairs: int, groups: int, *, regime: Sampling = "new-group") -> str:
    """A sentence for a plan: what this many pairs in this many groups prove in either regime, and in more groups.

    Args:
        regime: the one that decides.
    """
    exchangeable = f"{pairs} pairs prove {_gain(provable(pairs))}"
    if groups >= pairs:
        return (
            f"power: {exchangeable} in {TRIES:.0%} of tries; no two share a group, so both regimes, exchangeable "
            "and new-group, are one"
        )
    # With more groups come more pairs, as many in each.
    more = "; ".join(
        f"{times * groups} such groups {_gain(provable(times * pairs, groups=times * groups))}"
        for times in (2, 4)
    )
    return (
        f"power, by regime, in {TRIES:.0%} of tries: exchangeable (more such tasks), {exchangeable}; new-group (a "
        f"group that was not seen), {groups} groups prove {_gain(provable(pairs, groups=groups))}, where the gain "
        f"differs by {100 * SPREAD:.0f} points between groups ({more}). Regime {regime} decides; --regime declares the "
        "other"
    )


def _gain(gain: float | None) -> str:
    return "no gain at all" if gain is None else f"a gain of {100 * gain:.0f} points"
