"""Votes of judges on items: what can be read off them, with labels and without."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, pvariance


@dataclass(frozen=True, slots=True)
class Ballot:
    """The votes on one item: which of two answers is better, or whether one answer is good."""

    votes: Mapping[str, float]
    """Judge → its vote in [-1, 1]: 1 for the first answer (or a good one), -1 for the second (or a bad one), 0 where it
    contradicts itself. A judge that failed has none."""
    first: bool | None = None
    """The label: True if the first answer is better (or the one answer good); None where nobody knows."""
    kind: str = ""
    """The kind of task: a panel is calibrated on kinds."""
    id: str = ""

    @property
    def sign(self) -> int:
        """The label as a vote."""
        return 0 if self.first is None else 1 if self.first else -1


def pair_vote(forwards: int | None, backwards: int | None) -> float | None:
    """One vote of a judge that was asked in both orders; None where it failed in both.

    Args:
        forwards, backwards: 1 or 2, the answer it preferred, numbered alike in both orders; None where it failed.
    """
    sides = [{1: 1.0, 2: -1.0}[winner] for winner in (forwards, backwards) if winner is not None]
    return sum(sides) / 2 if sides else None  # one order alone is half the evidence


def model_of(judge: str) -> str:
    """The family of a judge that is called model/prompt."""
    return judge.partition("/")[0]


def judge_accuracies(ballots: Sequence[Ballot]) -> dict[str, float]:
    """Judge → its signed accuracy, 2 · accuracy - 1, on labelled items."""
    rights: dict[str, list[float]] = defaultdict(list)
    for ballot in ballots:
        for judge, vote in ballot.votes.items():
            rights[judge].append(vote * ballot.sign)
    return {judge: fmean(own) for judge, own in rights.items()}


def standings(
    judges: Mapping[str, Mapping[str, float]], items: Mapping[str, int], family_of: Mapping[str, str]
) -> dict[str, float]:
    """Judge → its accuracy above that of its family, on the kinds that it voted on, in standard errors."""
    above: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for kind, accuracies in judges.items():
        by_family: dict[str, list[float]] = defaultdict(list)
        for judge, accuracy in accuracies.items():
            by_family[family_of[judge]].append(accuracy)
        for judge, accuracy in accuracies.items():
            above[judge].append((accuracy - fmean(by_family[family_of[judge]]), items[kind]))
    return {
        judge: fmean(gain for gain, _ in own) * math.sqrt(sum(count for _, count in own))
        for judge, own in above.items()
    }


def family_votes(
    ballots: Sequence[Ballot], family_of: Mapping[str, str], standing: Mapping[str, float]
) -> dict[str, list[float]]:
    """Family → its joint vote on each item, of its judges that voted on it; 0 where none did."""
    families = sorted(
        {family_of[judge] for ballot in ballots for judge in ballot.votes if judge in family_of}
    )
    votes: dict[str, list[float]] = {family: [] for family in families}
    weight = {judge: math.exp(min(50.0, standing.get(judge, 0.0))) for judge in family_of}
    for ballot in ballots:
        sums: dict[str, float] = dict.fromkeys(families, 0.0)
        weights: dict[str, float] = dict.fromkeys(families, 0.0)
        for judge, vote in ballot.votes.items():
            if judge in family_of:
                sums[family_of[judge]] += weight[judge] * vote
                weights[family_of[judge]] += weight[judge]
        for family in families:
            votes[family].append(sums[family] / weights[family] if weights[family] else 0.0)
    return votes


def both_names(one: str, other: str) -> str:
    """The name of two families together."""
    return "|".join(sorted((one, other)))


def family_agreements(votes: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Two families → mean of the product of their votes, and its standard error."""
    names = sorted(votes)
    agreements = {}
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            products = [first * second for first, second in zip(votes[one], votes[other], strict=True)]
            error = math.sqrt(pvariance(products) / len(products))
            agreements[both_names(one, other)] = fmean(products), error
    return agreements


def error_correlations(ballots: Sequence[Ballot], votes: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Two families → correlation of their being right, 0 where it is negative."""
    names = sorted(votes)
    rights = {
        name: [vote * ballot.sign for vote, ballot in zip(votes[name], ballots, strict=True)]
        for name in names
    }
    apart = {name: math.sqrt(pvariance(own)) for name, own in rights.items()}
    correlations = {}
    for number, one in enumerate(names):
        for other in names[number + 1 :]:
            both = fmean(first * second for first, second in zip(rights[one], rights[other], strict=True))
            shared = both - fmean(rights[one]) * fmean(rights[other])
            scale = apart[one] * apart[other]
            correlations[both_names(one, other)] = max(0.0, shared / scale) if scale else 0.0
    return correlations


def agreement_distance(
    here: Mapping[str, tuple[float, float]], there: Mapping[str, tuple[float, float]]
) -> tuple[float, float]:
    """Mean squared difference of two kinds' agreements without that of sampling, and what sampling adds at most.

    The first is 0 on average, and may be below, where both are samples of one kind.
    """
    both = [pair for pair in here if pair in there]
    if not both:
        return 0.0, 0.0
    noise = [here[pair][1] ** 2 + there[pair][1] ** 2 for pair in both]
    squares = [(here[pair][0] - there[pair][0]) ** 2 for pair in both]
    # The pairs share families: as many of their errors are independent as there are families.
    families = (1 + math.sqrt(1 + 8 * len(both))) / 2
    return fmean(squares) - fmean(noise), 2 * math.sqrt(2 / families) * fmean(noise)


def dividing_mark(marked: Sequence[tuple[float, bool]]) -> float:
    """The mark that divides liked from disliked answers best; of equal ones that nearest to the middle."""
    marks = sorted({mark for mark, _ in marked})
    between = [(low + high) / 2 for low, high in pairwise(marks)] or [0.5]
    return min(
        between,
        key=lambda border: (sum((mark >= border) is not up for mark, up in marked), abs(border - 0.5)),
    )
