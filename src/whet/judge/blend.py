"""α · environment + β · alignment: one reward of two, and the sweep that shows what each mixture trades.

The environment says whether the work got done, alignment whether it was done as people want it; pushed alone, either
costs the other.  `blend` is the mixture.  `sweep` takes candidates that were run (their trajectories), and says for
each α which of them the mixture would choose and what it has of both; those that no other one
beats in both are the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..errors import InputError
from ..types import Trajectory
from .base import Reward, reward, score
from .compound import Compound

STEPS = 10
"""Mixtures that a sweep tries between one reward alone and the other."""


def blend(
    environment: Reward,
    alignment: Reward,
    *,
    alpha: float = 0.5,
    beta: float | None = None,
    name: str = "blend",
) -> Compound:
    """α · environment + β · alignment; β is 1 − α unless given.

    Raises:
        InputError: a weight is below 0, or both are 0.
    """
    other = 1.0 - alpha if beta is None else beta
    if alpha < 0 or other < 0 or alpha + other == 0:
        raise InputError(f"alpha and beta are 0 or more and not both 0; given {alpha} and {other}")
    return Compound({environment: alpha, alignment: other}, name=name)


def recorded(name: str) -> Reward:
    """The score of a run that was recorded under this name, such as a judge's, as a reward."""

    @reward(name=name, unjudged=f"no score {name} is recorded of it")
    def told(run: Trajectory) -> float | None:
        return run.score(name)

    return told


@dataclass(frozen=True, slots=True)
class Mixture:
    """What one mixture chooses among the candidates."""

    alpha: float
    chosen: str
    environment: float
    """Mean of the chosen candidate."""
    alignment: float


@dataclass(frozen=True, slots=True)
class MixtureSweep:
    """A sweep over α, from alignment alone (0) to the environment alone (1)."""

    mixtures: Sequence[Mixture]
    front: Sequence[str]
    """Names of the candidates that no other one beats in both, the most aligned first."""

    @property
    def lines(self) -> list[str]:
        """The sweep as a table."""
        rows = [
            f"{each.alpha:5.2f} {each.environment:12.3f} {each.alignment:10.3f}  {each.chosen}"
            for each in self.mixtures
        ]
        return ["alpha  environment  alignment  chosen", *rows, f"front: {', '.join(self.front)}"]


def sweep(
    candidates: Mapping[str, Iterable[Trajectory]],
    environment: Reward,
    alignment: Reward,
    *,
    steps: int = STEPS,
) -> MixtureSweep:
    """Which candidate each mixture of two plain rewards chooses: with more α never less of the environment.

    Args:
        candidates: name → its runs, all on the same tasks.

    Raises:
        InputError: no candidate, one without a run that both can judge, or a reward that has to be awaited.
    """
    pairs = {
        name: [both for run in runs if (both := values(run, environment, alignment)) is not None]
        for name, runs in candidates.items()
    }
    return sweep_of(pairs, steps=steps)


def values(run: Trajectory, environment: Reward, alignment: Reward) -> tuple[float, float] | None:
    """What both rewards give a run; None where one of them cannot judge it."""
    both = [score(each, run) for each in (environment, alignment)]
    if any(each.value is None and not each.broke for each in both):
        return None
    return both[0].value or 0.0, both[1].value or 0.0


def sweep_of(pairs: Mapping[str, Sequence[tuple[float, float]]], *, steps: int = STEPS) -> MixtureSweep:
    """`sweep` of what the two rewards gave: name → (environment, alignment) of each run.

    Raises:
        InputError: no candidate, or one without a run.
    """
    if unjudged := [name for name, own in pairs.items() if not own]:
        raise InputError(f"no run of {unjudged[0]} could be judged by both rewards")
    if not pairs or steps < 1:
        raise InputError("a sweep needs at least one candidate and one step")
    means = {name: (fmean(e for e, _ in own), fmean(a for _, a in own)) for name, own in pairs.items()}
    mixtures = []
    for step in range(steps + 1):
        alpha = step / steps
        # Of equals the better in both, so that the ends lie on the front as well.
        chosen = max(means, key=lambda name: (_mixed(means[name], alpha), sum(means[name])))
        mixtures.append(Mixture(alpha, chosen, *means[chosen]))
    front = [
        name
        for name, own in means.items()
        if not any(_beats(other, own) for rival, other in means.items() if rival != name)
    ]
    return MixtureSweep(mixtures, sorted(front, key=lambda name: means[name]))


def _mixed(mean: tuple[float, float], alpha: float) -> float:
    return round(alpha * mean[0] + (1 - alpha) * mean[1], 12)


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] >= other[0] and one[1] >= other[1]
