"""Intervals and e-processes, in plain Python.

What the gate and every report rest on: Wilson's interval for a rate, the
cluster-robust interval for a mean, and betting processes for the mean of
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


def wilson(successes: float, n: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval for a rate; (0, 1) of nothing.

    Raises:
        InputError: not 0 ≤ successes ≤ n.
    """
    if not 0 <= successes <= n:
        raise InputError(f"{successes} successes of {n}: give a count between 0 and n")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    rate, weight = successes / n, z * z / n
    centre = (rate + weight / 2) / (1 + weight)
    half = z * math.sqrt(rate * (1 - rate) / n + weight / (4 * n)) / (1 + weight)
    return max(0.0, centre - half), min(1.0, centre + half)


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


def _t_tail(t: float, df: float) -> float:
    """P(T > t) for t ≥ 0."""
    a, b, x = df / 2, 0.5, df / (df + t * t)
    if x >= 1:
        return 0.5
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
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
    while _t_tail(high, df) > 1 - p:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        if _t_tail(middle, df) > 1 - p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class ClusterMean:
    """Mean of values that come in clusters, with its cluster-robust standard error, value by value.

    The variance is the sandwich estimate Σ_g (S_g − n_g·mean)² / n² times G/(G−1), and intervals use
    Student's t with G*−1 degrees of freedom (Cameron and Miller 2015, "A Practitioner's Guide to
    Cluster-Robust Inference", section VI).  Unlike there, G* is the effective number of clusters
    n² / Σ n_g² (after Carter, Schnepel and Steigerwald 2017): G for equal sizes, fewer where one
    cluster holds much of the values, which would else make the interval too narrow.  Adding a value
    takes constant time.
    """

    __slots__ = ("_clusters", "_cross", "_singles", "_sizes", "_squares", "n", "total")

    def __init__(self) -> None:
        self._clusters: dict[Hashable, tuple[int, float]] = {}
        self._singles = 0
        # Σ S_g², Σ S_g·n_g and Σ n_g² over clusters: all that the sandwich needs.
        self._squares, self._cross, self._sizes = 0.0, 0.0, 0
        self.n, self.total = 0, 0.0

    def add(self, value: float, cluster: Hashable = None) -> None:
        """Add a value; a cluster of None or "" means that it is a cluster of its own."""
        if cluster is None or cluster == "":
            size, inside = 0, 0.0
            self._singles += 1
        else:
            size, inside = self._clusters.get(cluster, (0, 0.0))
            self._clusters[cluster] = (size + 1, inside + value)
        grown = inside + value
        self._squares += grown * grown - inside * inside
        self._cross += grown * (size + 1) - inside * size
        self._sizes += 2 * size + 1
        self.n += 1
        self.total += value

    @property
    def clusters(self) -> int:
        """How many clusters there are."""
        return len(self._clusters) + self._singles

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the intervals, at least 1: effective clusters less one, in tenths."""
        return max(1.0, (10 * self.n * self.n // self._sizes) / 10 - 1) if self.n else 1.0

    @property
    def mean(self) -> float:
        """Mean over values (not over clusters); NaN of nothing."""
        return self.total / self.n if self.n else math.nan

    def standard_error(self, *, extra: float = 0.0) -> float:
        """Of the mean; infinite with fewer than two clusters.

        Args:
            extra: added to the sum of squares: what unseen differences are allowed for.
        """
        count = self.clusters
        if count < 2:
            return math.inf
        mean = self.mean
        spread = self._squares - 2 * mean * self._cross + mean * mean * self._sizes
        return math.sqrt(max(0.0, spread + extra) * count / (count - 1)) / self.n

    def interval(self, *, level: float = 0.95, bounds: Interval = UNBOUNDED, extra: float = 0.0) -> Interval:
        """Two-sided interval for the mean within `bounds`; all of them with fewer than two clusters."""
        error = self.standard_error(extra=extra)
        if math.isinf(error):
            return bounds
        half = t_quantile(0.5 + level / 2, self.degrees) * error
        return max(bounds[0], self.mean - half), min(bounds[1], self.mean + half)


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


BETS = (0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9)
"""Shares of the wealth that can be staked without going bankrupt on one loss."""
CEILING = 1e100
"""Where wealth is capped, so that it stays a number; a cap only lowers it, which keeps the guarantee."""


class BettingProcess:
    """Evidence against "the mean of differences in [−1, 1] is at most `null`", valid at every moment.

    Testing by betting (Shafer 2021; Waudby-Smith and Ramdas 2024): each of 16 gamblers stakes a
    fixed share λ of its wealth on every difference being above `null`, and the e-value is their
    mean wealth, Mean_k Π_i (1 + λ_k·(d_i − null)).  If the conditional mean of each difference
    given those before it is at most `null`, this is a nonnegative supermartingale that starts at 1,
    so by Ville's inequality it *ever* reaches 1/α with probability at most α.  Unlike the papers'
    plug-in bets these are a fixed mixture: the value does not depend on the order of the pairs.

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
        self.stakes = tuple(bet / (1 + null) for bet in BETS)
        self._wealth = [1.0] * len(BETS)
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
        self.value = sum(wealth) / len(wealth)
        return self.value


def pairs_needed(differences: Sequence[float], *, null: float = 0.0, alpha: float = 0.05) -> int | None:
    """How many pairs like these a BettingProcess would take to reach 1/alpha.

    Each gambler's mean log growth over the pairs seen is carried forward, and the smallest n at which
    the mean wealth of all reaches 1/alpha is returned: about the mean stopping time, which is
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
        top = max(growth) * n
        return top + math.log(sum(math.exp(one * n - top) for one in growth) / len(growth))

    low, high = 0, 1_000_000
    if log_wealth(high) < goal:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if log_wealth(middle) >= goal else (middle, high)
    return high
