"""Intervals and e-processes, in plain Python.

What the gate and every report rest on: Wilson's interval for a rate, the
clustered interval for a mean, and betting processes for the mean of
bounded paired differences, which may be watched after every pair.  No numpy:
`import whet` stays light, and a thousand re-pairings of 600 pairs take seconds.
It decides nothing; `gate.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from statistics import NormalDist

from .errors import InputError

Interval = tuple[float, float]
UNBOUNDED: Interval = (-math.inf, math.inf)


def wilson(successes: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval for a rate; (0, 1) of nothing.

    Raises:
        InputError: not 0 ≤ successes ≤ n.
    """
    if not 0 <= successes <= n:
        raise InputError(f"{successes} successes of {n}: give a count between 0 and n")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate, weight = successes / n, z * z / n
    centre = (rate + weight / 2) / (1 + weight)
    half = z * math.sqrt(rate * (1 - rate) / n + weight / (4 * n)) / (1 + weight)
    return max(0.0, centre - half), min(1.0, centre + half)


def auc(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Chance that a right one ranks above a wrong one, ties counting half (Mann-Whitney); NaN without both."""
    tied: dict[float, list[int]] = {}
    for score, good in zip(scores, right, strict=True):
        tied.setdefault(score, [0, 0])[bool(good)] += 1
    below, total = 0, 0.0
    for score in sorted(tied):
        wrong, good_ones = tied[score]
        total += good_ones * (below + wrong / 2)
        below += wrong
    positive = len(right) - below
    return total / (positive * below) if positive and below else math.nan


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 400):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def t_tail(t: float, df: float) -> float:
    """P(T > t) of Student's t with `df` degrees of freedom, for t ≥ 0."""
    a, b, x = df / 2, 0.5, df / (df + t * t)
    if x >= 1:
        return 0.5
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges fast on this side only; on the other it is taken of the mirrored tail.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a / 2
    return (1 - front * _beta_fraction(b, a, 1 - x) / b) / 2


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The value that Student's t with `df` degrees of freedom stays under with probability `p`.

    Raises:
        InputError: p outside (0, 1) or df < 1.
    """
    if not 0 < p < 1 or df < 1:
        raise InputError(f"t_quantile(p={p}, df={df}): p must lie in (0, 1) and df must be at least 1")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while t_tail(high, df) > 1 - p:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        if t_tail(middle, df) > 1 - p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# Little changes between 0.02 and 0.2; at 0 the largest group decides alone, at 1 tiny groups cost power.
LIKENESS = 0.1
"""How alike two values of one cluster are taken to be (their correlation) when a cluster's weight is set.
It moves only the weights; the interval is valid whatever the truth is."""


class ClusterMean:
    """Mean of values that come in clusters, and an interval that few and unequal clusters cannot fool.

    A cluster of n values weighs as much as its effective number of independent ones,
    m = n / (1 + (n − 1)·LIKENESS), the design effect of survey sampling (Kish 1965): ten values of one
    mailbox say more than one, and a thousand not much more than a hundred.  What is estimated is the mean of
    a cluster drawn anew; where every value stands alone, or all clusters are of one size, it is the plain mean.

    The interval holds every μ that the t-statistic of m_g·(mean_g − μ) over the G clusters, with G−1 degrees
    of freedom, does not refuse (the group t-test of Ibragimov and Müller 2010, inverted).  For independent
    normal cluster means it is conservative at levels from 92 % whatever their variances (Bakirov and
    Székely 2005), so neither the sizes nor how much clusters differ has to be known.  Unlike the usual
    sandwich estimate it does not grow too narrow when one cluster holds most values.  Adding a value takes
    constant time.
    """

    __slots__ = ("_clusters", "_cross", "_sizes", "_squares", "_sum", "_weight", "clusters", "n", "total")

    def __init__(self) -> None:
        self._clusters: dict[Hashable, tuple[int, float]] = {}
        # Over clusters, with m the weight and a = m·mean: Σ a, Σ a², Σ a·m, Σ m and Σ m².
        self._sum = self._squares = self._cross = self._weight = self._sizes = 0.0
        self.n, self.total = 0, 0.0
        self.clusters = 0
        """Number of clusters."""

    def add(self, value: float, cluster: Hashable = None) -> None:
        """Add a value; a cluster of None or "" means that it is a cluster of its own."""
        self.n += 1
        self.total += value
        if cluster is None or cluster == "":
            self.clusters += 1
            self._move(value, 1.0, 1)
            return
        size, inside = self._clusters.get(cluster, (0, 0.0))
        if size:
            factor = 1 / (1 + (size - 1) * LIKENESS)
            self._move(inside * factor, size * factor, -1)
        else:
            self.clusters += 1
        size, inside = size + 1, inside + value
        self._clusters[cluster] = (size, inside)
        factor = 1 / (1 + (size - 1) * LIKENESS)
        self._move(inside * factor, size * factor, 1)

    def _move(self, a: float, m: float, sign: int) -> None:
        self._sum += sign * a
        self._squares += sign * a * a
        self._cross += sign * a * m
        self._weight += sign * m
        self._sizes += sign * m * m

    @property
    def plain(self) -> float:
        """Mean over values, each counted once; NaN of nothing."""
        return self.total / self.n if self.n else math.nan

    @property
    def mean(self) -> float:
        """Mean over clusters by weight; NaN of nothing."""
        return self._sum / self._weight if self.n else math.nan

    # Where one group held 600 of 625 values, the sandwich estimate promoted 44 % of useless candidates and
    # the effective number of groups 26 %, at a nominal 2.5 %; this promotes 1.7 %.
    def interval(self, *, level: float = 0.95, bounds: Interval = UNBOUNDED, extra: float = 0.0) -> Interval:
        """Two-sided interval for the mean within `bounds`; all of them with fewer than two clusters.

        Args:
            extra: added to the sum of squares of plain values: what unseen ones are allowed for.
        """
        count = self.clusters
        if count < 2:
            return bounds
        # |t(μ)| ≤ c is a quadratic in μ: square·μ² − 2·middle·μ + rest ≤ 0.
        share = t_quantile(0.5 + level / 2, count - 1) ** 2 / (count - 1)
        # In the unit of a = m·mean, where a plain value weighs _weight / n on average.
        more = extra * (self._weight / self.n) ** 2
        square = (1 + share) * self._weight**2 - share * count * self._sizes
        middle = (1 + share) * self._sum * self._weight - share * count * self._cross
        rest = (1 + share) * self._sum**2 - share * count * (self._squares + more)
        if square <= 0:  # weights too unequal for so few clusters: nothing is excluded
            return bounds
        half = math.sqrt(max(0.0, middle * middle - square * rest)) / square
        return max(bounds[0], middle / square - half), min(bounds[1], middle / square + half)


def cluster_interval(
    values: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    bounds: Interval = UNBOUNDED,
) -> Interval:
    """Interval for the mean of `values` (N), clustered by `groups` (N).

    Args:
        groups: each value's cluster; None, or "" for one value, means a cluster of its own.
        bounds: what the mean can be; with fewer than two clusters this is the answer, because
            one cluster says nothing about how clusters differ.

    Raises:
        InputError: the two have different lengths.
    """
    if groups is not None and len(groups) != len(values):
        raise InputError(f"{len(values)} values but {len(groups)} groups: give one group per value")
    mean = ClusterMean()
    for index, value in enumerate(values):
        mean.add(value, None if groups is None else groups[index])
    return mean.interval(level=level, bounds=bounds)


BETS: dict[float, float] = {
    0.05: 0.01,
    **dict.fromkeys((0.125, 0.15, 0.175, 0.2, 0.225, 0.25), 0.06),
    0.3: 0.11,
    0.35: 0.1,
    0.4: 0.09,
    0.45: 0.08,
    0.5: 0.07,
    **dict.fromkeys((0.6, 0.7, 0.8, 0.9), 0.045),
}
"""Share of the wealth that a gambler stakes → its part of the wealth at the start.

A gain of g where a share d of the pairs differs is found fastest by staking g/d.  Most of the wealth lies where gains
of 3 to 15 points are, with between a tenth and a third of the pairs different; the last four are for changes that make
next to nothing worse, the first for gains in a record of many thousands."""
CEILING = 1e100
"""Where wealth is capped, so that it stays a number; a cap only lowers it, which keeps the guarantee."""


class BettingProcess:
    """Evidence against "the mean of differences in [−1, 1] is at most `null`", valid at every moment.

    Testing by betting (Shafer 2021; Waudby-Smith and Ramdas 2024) by the method of mixtures (Robbins 1970): 16
    gamblers share out a wealth of 1 (`BETS`), each stakes a fixed share λ of its own on every difference being above
    `null`, and the e-value is what all have, Σ_k w_k Π_i (1 + λ_k·(d_i − null)).  If the conditional mean of each
    difference given those before it is at most `null`, this is a nonnegative supermartingale that starts at 1,
    so by Ville's inequality it *ever* reaches 1/α with probability at most α.  Unlike the papers'
    plug-in bets these are a fixed mixture: the value does not depend on the order of the pairs, and a process that is
    fed the rest of the pairs later is the same process.

    Args:
        null: 0 for superiority, −margin for non-inferiority.

    Raises:
        InputError: null outside (−1, 1).
    """

    __slots__ = ("_factors", "_wealth", "n", "null", "stakes", "value")

    def __init__(self, null: float = 0.0) -> None:
        if not -1 < null < 1:
            raise InputError(f"null {null} lies outside (-1, 1), where differences of rates are")
        self.null = null
        # Divided, so that the worst difference, -1, costs exactly the share `bet` of the wealth.
        self.stakes = tuple(bet / (1 + null) for bet in BETS)
        self._wealth = list(BETS.values())
        self._factors: dict[float, tuple[float, ...]] = {}
        self.n = 0
        self.value = 1.0
        """The e-value now."""

    def add(self, difference: float) -> float:
        """Bet on one difference and return the e-value.

        Raises:
            InputError: outside [−1, 1] or not a number.
        """
        factors = self._factors.get(difference)
        if factors is None:
            if not -1 <= difference <= 1:
                raise InputError(
                    f"difference {difference} lies outside [-1, 1]: rescale the metric to [0, 1]"
                )
            factors = tuple(1 + stake * (difference - self.null) for stake in self.stakes)
            if len(self._factors) < 64:  # success is 0 or 1: three values make up almost all bets
                self._factors[difference] = factors
        self.n += 1
        wealth = self._wealth = [held * factor for held, factor in zip(self._wealth, factors, strict=True)]
        if wealth[0] > CEILING or max(wealth) > CEILING:
            wealth = self._wealth = [min(held, CEILING) for held in wealth]
        self.value = min(sum(wealth), CEILING)
        return self.value


def discoveries(e_values: Sequence[float], *, alpha: float = 0.05) -> list[int]:
    """Places of those whose evidence holds although several were tried: the e-BH procedure of Wang and Ramdas (2022).

    Of k e-values the largest j that are all at least k/(alpha·j): among what is named the expected share without an
    effect is at most `alpha`, however the e-values depend on each other.  Where none has an effect, anything is named
    with probability at most `alpha`.
    """
    order = sorted(range(len(e_values)), key=lambda place: -e_values[place])
    count = max(
        (rank for rank, place in enumerate(order, 1) if e_values[place] >= len(e_values) / (alpha * rank)),
        default=0,
    )
    return sorted(order[:count])


def pairs_needed(differences: Sequence[float], *, null: float = 0.0, alpha: float = 0.05) -> int | None:
    """Number of pairs like these that a BettingProcess would take to reach 1/alpha.

    Each gambler's mean log growth over the pairs seen is carried forward, and the smallest n at which
    the wealth of all reaches 1/alpha is returned: about the mean stopping time, which is
    above its median, if the pairs seen are typical (from few pairs it is a rough guess).

    Returns:
        None if the mean is not above `null`, or if more than a million pairs would be needed.
    """
    if not differences or sum(differences) / len(differences) <= null:
        return None
    counts: dict[float, int] = {}
    for difference in differences:
        counts[difference] = counts.get(difference, 0) + 1
    growth = [
        sum(count * math.log1p(stake * (value - null)) for value, count in counts.items()) / len(differences)
        for stake in BettingProcess(null).stakes
    ]
    goal = math.log(1 / alpha)

    def log_wealth(n: int) -> float:
        # By logarithms: exp(rate · n) leaves the range of a float long before a million pairs.
        top = max(growth) * n
        parts = zip(growth, BETS.values(), strict=True)
        return top + math.log(sum(weight * math.exp(rate * n - top) for rate, weight in parts))

    low, high = 0, 1_000_000
    if log_wealth(high) < goal:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if log_wealth(middle) >= goal else (middle, high)
    return high


def pairs_for(gain: float, *, clusters: int | None = None) -> int | None:
    """Number of pairs that it takes to prove a gain in a rate where nothing gets worse, before any was seen.

    Both of the gate's conditions must be met: the bet (`pairs_needed`) and a clustered interval above 0, for which
    pairs of one cluster are taken to differ no less than others.

    Args:
        gain: share of the pairs that get better.
        clusters: how many the pairs are in; None for as many as pairs.

    Returns:
        None with fewer than two clusters, or if more than a million pairs would be needed.

    Raises:
        InputError: a gain that is not above 0, or above 1.
    """
    if not 0 < gain <= 1:
        raise InputError(f"gain {gain}: it must be above 0 and at most 1")
    better = round(gain * 1000)
    betting = pairs_needed([1.0] * better + [0.0] * (1000 - better)) if better else None
    if betting is None or (clusters is not None and clusters < 2):
        return None
    spread = gain - gain * gain
    pairs = betting
    for _ in range(50):
        df = max(1, (pairs if clusters is None else min(clusters, pairs)) - 1)
        needed = max(betting, math.ceil(t_quantile(0.975, df) ** 2 * spread / (gain * gain)))
        if needed <= pairs:
            return pairs
        pairs = needed
    return pairs


def gain_for(pairs: int, *, clusters: int | None = None) -> float | None:
    """The smallest gain, in whole hundredths, that so many pairs are likely to prove where nothing gets worse.

    Returns:
        None if there is none: too few pairs or clusters.
    """

    def proven(hundredths: int) -> bool:
        needed = pairs_for(hundredths / 100, clusters=clusters)
        return needed is not None and needed <= pairs

    if not proven(100):
        return None
    low, high = 0, 100
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proven(middle) else (middle, high)
    return high / 100
