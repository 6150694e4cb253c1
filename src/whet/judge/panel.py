"""Panel: several judges whose votes are weighed by what they were right about, and by how they agree on what is new.

How far a judge can be believed differs more between kinds of task than between judges: on answers made to mislead, most
judges are wrong more often than right.  So a panel is fitted on kinds with labels and then *reads* another kind without
any: the covariance of votes needs no labels, and how far a family of judges (the prompts of one model) agrees with the
family that no kind has shown to be bad, the anchor, tells how often it is right there.  Where the agreement is unlike
any that it was fitted on, the panel refuses, and the single judge that did best elsewhere speaks, unproven.

Method: naive Bayes with the accuracies of Dawid and Skene (1979) by EM, begun and held by a regression of accuracy on
agreement with the anchor (after Parisi et al. 2014, who read accuracies off the covariance alone: that needs judges who
err independently, and judges that share a model or a taste do not).  It trains no model and asks none; `card.py` says
what a single judge is worth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean, median, pvariance

import msgspec

from ..errors import InputError
from ..stats import Interval, cluster_interval, wilson
from ..types import digest
from .votes import (
    Ballot,
    agreement_distance,
    both_names,
    error_correlations,
    family_agreements,
    family_votes,
    judge_accuracies,
    model_of,
    standings,
)

SURE = 0.95
"""Share of the verdicts that must be right where a panel is sure."""
FEWEST = 20
"""Labelled items below which neither a kind nor a threshold says anything."""
FAMILIES = 3
"""Two judges that disagree do not tell which of them errs."""
_FURTHER = 2.0
"""How much further than the furthest of its kinds from their nearest a new kind may be: one more kind of few would
exceed the furthest itself one time in five."""
_ROUNDS = 5
_ALMOST = 0.9
"""The strongest signed accuracy that a family is credited with: a few hundred labels prove no more."""


class PanelKind(msgspec.Struct, frozen=True):
    """What one kind of task has shown."""

    items: int
    judges: dict[str, float]
    """Judge → signed accuracy: 2 · accuracy - 1."""
    families: dict[str, float]
    """The same of a family's joint vote."""
    errors: dict[str, float]
    """Two families → correlation of their being right: what their sharing a model or a taste makes of one vote."""
    agreement: dict[str, tuple[float, float]]
    """Two families, as `first|second` → mean of the product of their votes, and its standard error."""


class PanelJudge(msgspec.Struct, frozen=True):
    """What one judge of a panel is made of, so that it can be asked again."""

    rubric: str
    model: str
    settings: dict[str, str | int | bool | list[str]]
    """As `judge.judge_of` takes them."""
    evaluator: str
    """Its version."""
    threshold: float
    """Mark, in [0, 1], from which on it votes for an answer."""


class LiveKind(msgspec.Struct, frozen=True):
    """How one answer alone is judged, of a kind that the panel has labels of."""

    weights: dict[str, float]
    """Family → log-odds of its vote."""
    threshold: float | None
    """Strength from which on a verdict is sure; None where none is."""
    good: dict[str, tuple[float, float]]
    """Agreement of two families on answers labelled good, as `PanelKind.agreement`."""
    bad: dict[str, tuple[float, float]]
    items: int = 0
    accuracy: float | None = None
    """Of the verdicts that are sure, each by a panel that had no label of its half of the items; None without any."""
    coverage: float = 0.0
    """Share of the items on which it is sure."""


@dataclass(frozen=True, slots=True)
class PanelVerdict:
    """A panel's verdict on one item."""

    vote: float
    """Log-odds that the first answer is better (or the one answer good); 0 for a tie."""
    sure: bool
    """True if verdicts of this strength were right often enough (SURE) on the kinds that it was fitted on."""

    @property
    def first(self) -> bool | None:
        """True for the first answer, False for the second; None for a tie."""
        return None if self.vote == 0 else self.vote > 0


@dataclass(frozen=True, slots=True)
class PanelReading:
    """A panel's verdicts on the items of one kind, and what they rest on."""

    kind: str
    verdicts: Sequence[PanelVerdict]
    decided_by: str
    """`panel`, or the judge that speaks alone."""
    refusal: str = ""
    """Why the panel did not decide; "" if it did. Refused verdicts may steer, and are never sure."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Family → log-odds of its vote."""
    nearest: str = ""
    """The kind that was fitted on and agrees most like this one."""
    distance: float = 0.0
    """Root mean square difference of the agreements between families from those of that kind, without sampling's."""
    reach: float = 0.0
    """The distance beyond which the panel refuses."""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """Judges weighed together; made by `fit_panel`, kept as JSON."""

    family_of: dict[str, str]
    discounted: bool = False
    """True if a family counts the less, the more it errs with others; decided by what does better on kinds left out."""
    standing: dict[str, float]
    """Judge → how far it stands above the others of its family, in standard errors."""
    kinds: dict[str, PanelKind]
    thresholds: dict[str, float] = {}
    """Kind → strength from which on its verdicts are sure; a kind without one has none that are. Under "" for any other
    kind, where at least two kinds reach that strength and all that do are right often enough."""
    accuracy: float = math.nan
    """Mean over kinds, each read by a panel that was fitted on the others."""
    single_accuracy: float = math.nan
    """The same of the judge that was best on the others."""
    gain: Interval = (-1.0, 1.0)
    """95 % interval of the share of items by which the panel beats that judge."""
    refusal: str = ""
    """Why it cannot be used at all; "" if it can."""
    judges: dict[str, PanelJudge] = {}
    """Judge → what it is made of; none of verdicts that were recorded elsewhere."""
    live: dict[str, LiveKind] = {}
    """Kind → how an answer alone is judged; of a panel of marks."""

    @property
    def key(self) -> str:
        """Its version: what a card is of."""
        return digest(["panel", msgspec.to_builtins(self)], 12)

    def single(self, judges: Iterable[str]) -> str:
        """The judge, of these, that did best on the kinds that the panel was fitted on.

        Raises:
            InputError: none of them was among those that it was fitted on.
        """
        known = [
            judge
            for judge in sorted(set(judges))
            if any(judge in kind.judges for kind in self.kinds.values())
        ]
        if not known:
            raise InputError(
                f"the panel knows none of these judges; it knows {', '.join(sorted(self.family_of))}"
            )
        common = [kind for kind in self.kinds.values() if all(judge in kind.judges for judge in known)]
        if common:
            return max(known, key=lambda judge: fmean(kind.judges[judge] for kind in common))
        return max(
            known,
            key=lambda judge: fmean(
                kind.judges[judge] - fmean(kind.judges.values())
                for kind in self.kinds.values()
                if judge in kind.judges
            ),
        )

    def read(self, ballots: Sequence[Ballot]) -> dict[str, PanelReading]:
        """Kind → verdicts, in the order of its ballots; labels are not looked at.

        Raises:
            InputError: no judge of a kind's ballots is known.
        """
        by_kind: dict[str, list[Ballot]] = defaultdict(list)
        for ballot in ballots:
            by_kind[ballot.kind].append(ballot)
        return {kind: self._read(kind, own) for kind, own in by_kind.items()}

    def _read(self, kind: str, ballots: Sequence[Ballot]) -> PanelReading:
        judges = {judge for ballot in ballots for judge in ballot.votes} & set(self.family_of)
        chosen = self.single(judges)
        votes = family_votes(ballots, self.family_of, self.standing)
        nearest, distance, reach = self._distance(kind, votes)
        refusal = self.refusal
        if not refusal and len(votes) < FAMILIES:
            refusal = (
                f"{len(votes)} families of judges voted; agreement tells who is right from {FAMILIES} on"
            )
        if not refusal and distance > reach:
            refusal = (
                f"the judges agree otherwise here than on any kind that the panel was fitted on: {distance:.2f} from "
                f"{nearest or 'the labelled items'}, and {reach:.2f} is the furthest that those kinds account for. "
                "Label some items of this kind and fit again."
            )
        if not refusal and self.gain[1] < 0:
            refusal = (
                f"{chosen} alone did better on the kinds that it was fitted on: "
                f"{self.single_accuracy:.3f} against {self.accuracy:.3f}"
            )
        if refusal:
            alone = [PanelVerdict(ballot.votes.get(chosen, 0.0), False) for ballot in ballots]
            return PanelReading(kind, alone, chosen, refusal, {}, nearest, distance, reach)
        weights, scores = self._weighed(kind, votes)
        bound = self.thresholds.get(kind if kind in self.kinds else "", math.inf)
        verdicts = [PanelVerdict(score, abs(score) >= bound) for score in scores]
        return PanelReading(kind, verdicts, "panel", "", weights, nearest, distance, reach)

    def _distance(self, kind: str, votes: Mapping[str, Sequence[float]]) -> tuple[str, float, float]:
        """The nearest kind, how far off it is, and how far it may be."""
        here = family_agreements(votes)
        known = {kind: self.kinds[kind]} if kind in self.kinds else self.kinds
        apart = {name: agreement_distance(here, other.agreement) for name, other in known.items()}
        nearest = min(apart, key=lambda name: apart[name][0])
        distance, noise = apart[nearest]
        spread = 0.0
        if kind not in self.kinds and len(self.kinds) > 1:
            spread = max(
                min(
                    agreement_distance(own.agreement, other.agreement)[0]
                    for name, other in self.kinds.items()
                    if name != own_name
                )
                for own_name, own in self.kinds.items()
            )
        return nearest, math.sqrt(max(0.0, distance)), math.sqrt(_FURTHER**2 * max(0.0, spread) + noise)

    def weights(self, kind: str, ballots: Sequence[Ballot]) -> dict[str, float]:
        """Family → log-odds of its vote on such items."""
        return self._weighed(kind, family_votes(ballots, self.family_of, self.standing))[0]

    def _weighed(
        self, kind: str, votes: Mapping[str, Sequence[float]]
    ) -> tuple[dict[str, float], list[float]]:
        """Family → log-odds of its vote, and the sum for each item."""
        families = sorted(
            family for family in votes if any(family in other.families for other in self.kinds.values())
        )
        anchor = max(families, key=lambda name: min(self._accuracies(name)))
        prior = self._expected(kind, anchor, families, votes)
        items = len(next(iter(votes.values())))
        # The prior counts as one more kind of the usual size would.
        weight = median(other.items for other in self.kinds.values())
        accuracies = dict(prior)
        own_share = self._own_share(families) if self.discounted else dict.fromkeys(families, 1.0)
        for _ in range(_ROUNDS):
            belief = [math.tanh(score / 2) for score in _summed(accuracies, own_share, votes, items)]
            right = {
                name: sum(vote * side for vote, side in zip(votes[name], belief, strict=True))
                for name in families
            }
            accuracies = {name: (weight * prior[name] + right[name]) / (weight + items) for name in families}
            # What all kinds have shown of the anchor is a floor, and not held against it where it is better.
            accuracies[anchor] = max(prior[anchor], right[anchor] / items)
        weights = {name: own_share[name] * _log_odds(accuracies[name]) for name in families}
        return weights, _summed(accuracies, own_share, votes, items)

    def _own_share(self, families: Sequence[str]) -> dict[str, float]:
        """Family → the part of its vote that is its own: a third where three always err together."""
        shares = {}
        for name in families:
            shared = 1.0
            for other in families:
                seen = [
                    kind.errors[pair]
                    for kind in self.kinds.values()
                    if (pair := both_names(name, other)) in kind.errors
                ]
                shared += fmean(seen) if seen else 0.0
            shares[name] = 1 / shared
        return shares

    def _accuracies(self, family: str) -> list[float]:
        return [kind.families[family] for kind in self.kinds.values() if family in kind.families]

    def _expected(
        self, kind: str, anchor: str, families: Sequence[str], votes: Mapping[str, Sequence[float]]
    ) -> dict[str, float]:
        """Family → the signed accuracy that its agreement with the anchor lets expect here."""
        seen = [
            (other.agreement[pair][0], accuracy)
            for other in self.kinds.values()
            for name, accuracy in other.families.items()
            if name != anchor and (pair := both_names(name, anchor)) in other.agreement
        ]
        slope, level = _line(seen)
        here = family_agreements(votes)
        expected = {}
        for name in families:
            if name == anchor:
                expected[name] = fmean(self._accuracies(name))
                continue
            pair = both_names(name, anchor)
            elsewhere = [other.agreement[pair][0] for other in self.kinds.values() if pair in other.agreement]
            agreed, error = here[pair]
            if elsewhere:
                # Few items say little of their kind: between them and what the kinds have in common.
                between = pvariance(elsewhere)
                trust = between / (between + error**2) if between + error**2 else 0.0
                agreed = trust * agreed + (1 - trust) * fmean(elsewhere)
            expected[name] = slope * agreed + level
        if (own := self.kinds.get(kind)) is not None:
            usual = median(other.items for other in self.kinds.values())
            share = own.items / (own.items + usual)
            for name in set(families) & set(own.families):
                expected[name] = share * own.families[name] + (1 - share) * expected[name]
        return expected


def fit_panel(ballots: Sequence[Ballot], *, families: Mapping[str, str] | None = None) -> Panel:
    """A panel of the judges that voted on labelled items.

    Each kind is read once by a panel of the others, which gives the threshold of being sure, and shows whether the
    panel beats the judge that it would choose.  A single kind is read by halves of itself.

    Args:
        families: judge → the judges that err together; the part of its name before the first `/` if omitted.

    Raises:
        InputError: an item has no label, or there are too few.
    """
    if any(ballot.first is None for ballot in ballots):
        raise InputError("a panel is fitted on labelled items: an item without a label is among them")
    if len(ballots) < 2 * FEWEST:
        raise InputError(f"a panel takes at least {2 * FEWEST} labelled items; given {len(ballots)}")
    judges = sorted({judge for ballot in ballots for judge in ballot.votes})
    family_of = {judge: (families or {}).get(judge) or model_of(judge) for judge in judges}
    by_kind: dict[str, list[Ballot]] = defaultdict(list)
    for ballot in ballots:
        by_kind[ballot.kind].append(ballot)
    trials = [_tried(by_kind, family_of, discounted=discounted) for discounted in (False, True)]
    trial = max(
        trials, key=lambda one: one.accuracy
    )  # the first of equals: independent judges need no discount
    rights = [right for own in trial.rights for right in own]
    gains = [panel - single for panel, single in zip(rights, chain(*trial.single_rights), strict=True)]
    chance = wilson(sum(rights), len(rights))[0] <= 0.5
    return msgspec.structs.replace(
        fitted(by_kind, family_of, discounted=trial.discounted),
        thresholds=_thresholds(trial.strengths),
        accuracy=trial.accuracy,
        single_accuracy=fmean(map(fmean, trial.single_rights)),
        gain=cluster_interval(gains, bounds=(-1.0, 1.0)),
        refusal="on kinds that it was not fitted on it is not right beyond chance" if chance else "",
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """Each kind read by a panel of the others."""

    discounted: bool
    rights: list[list[float]] = field(default_factory=list)
    """By kind: 1 for each right verdict, 0 for a wrong one, a half for a tie."""
    single_rights: list[list[float]] = field(default_factory=list)
    """The same of the judge that was best on the others."""
    strengths: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Kind → strength and rightness of each verdict that the panel gave."""

    @property
    def accuracy(self) -> float:
        return fmean(map(fmean, self.rights))


def _tried(
    by_kind: Mapping[str, Sequence[Ballot]], family_of: Mapping[str, str], *, discounted: bool
) -> _Trial:
    trial = _Trial(discounted)
    for kind, own, rest in _left_out(by_kind):
        panel = fitted(rest, family_of, discounted=discounted)
        reading = panel.read(own)[kind]
        chosen = panel.single({judge for ballot in own for judge in ballot.votes})
        rights = [
            is_right(verdict.vote, ballot) for verdict, ballot in zip(reading.verdicts, own, strict=True)
        ]
        trial.rights.append(rights)
        trial.single_rights.append([(1 + ballot.votes.get(chosen, 0.0) * ballot.sign) / 2 for ballot in own])
        if not reading.refusal:
            trial.strengths.setdefault(kind, []).extend(
                (abs(verdict.vote), right) for verdict, right in zip(reading.verdicts, rights, strict=True)
            )
    return trial


def _left_out(
    by_kind: Mapping[str, Sequence[Ballot]],
) -> list[tuple[str, Sequence[Ballot], Mapping[str, Sequence[Ballot]]]]:
    """Each kind and the others; the halves of the only one."""
    if len(by_kind) > 1:
        return [
            (kind, own, {name: other for name, other in by_kind.items() if name != kind})
            for kind, own in by_kind.items()
        ]
    ((kind, own),) = by_kind.items()
    return [(kind, own[side::2], {kind: own[1 - side :: 2]}) for side in (0, 1)]


def fitted(
    by_kind: Mapping[str, Sequence[Ballot]], family_of: Mapping[str, str], *, discounted: bool
) -> Panel:
    """A panel with the accuracies of judges and families, and without the test of them that `fit_panel` adds."""
    judges = {kind: judge_accuracies(own) for kind, own in by_kind.items()}
    standing = standings(judges, {kind: len(own) for kind, own in by_kind.items()}, family_of)
    kinds = {}
    for kind, own in by_kind.items():
        votes = family_votes(own, family_of, standing)
        families = {
            name: fmean(vote * ballot.sign for vote, ballot in zip(cast, own, strict=True))
            for name, cast in votes.items()
        }
        kinds[kind] = PanelKind(
            len(own), judges[kind], families, error_correlations(own, votes), family_agreements(votes)
        )
    return Panel(family_of=dict(family_of), discounted=discounted, standing=standing, kinds=kinds)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and level of the least squares line; as is where there are too few points."""
    if len(points) < 3:
        return 1.0, 0.0
    middle, level = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0
    return slope, level - slope * middle


def _log_odds(signed: float) -> float:
    return 2 * math.atanh(max(-_ALMOST, min(_ALMOST, signed)))


def _summed(
    accuracies: Mapping[str, float],
    own_share: Mapping[str, float],
    votes: Mapping[str, Sequence[float]],
    items: int,
) -> list[float]:
    weighed = [(own_share[name] * _log_odds(accuracy), votes[name]) for name, accuracy in accuracies.items()]
    return [sum(weight * cast[number] for weight, cast in weighed) for number in range(items)]


def is_right(vote: float, ballot: Ballot) -> float:
    """1 for the labelled side, 0 for the other, a half for a tie."""
    return 0.5 if vote == 0 else float((vote > 0) is ballot.first)


def _thresholds(strengths: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    """Kind, or "" for any other → the least strength from which on verdicts are right often enough."""
    thresholds = {}
    for kind, own in strengths.items():
        holding = [strength for strength, _ in own if holds(own, strength)]
        if holding:
            thresholds[kind] = min(holding)
    for strength in sorted({strength for own in strengths.values() for strength, _ in own}):
        reaching = [
            own for own in strengths.values() if sum(reached >= strength for reached, _ in own) >= FEWEST
        ]
        if len(reaching) < 2:
            break
        if all(holds(own, strength) for own in reaching):
            return {**thresholds, "": strength}
    return thresholds


def holds(own: Sequence[tuple[float, float]], strength: float) -> bool:
    """True if the verdicts of at least this strength are right often enough, at 90 % confidence."""
    rights = [right for reached, right in own if reached >= strength]
    return len(rights) >= FEWEST and lower(sum(rights), len(rights)) >= SURE


def lower(right: float, count: int) -> float:
    """Wilson's lower bound at 90 %, one-sided."""
    z = 1.2816
    rate, weight = right / count, z * z / count
    return (rate + weight / 2 - z * math.sqrt(rate * (1 - rate) / count + weight / (4 * count))) / (
        1 + weight
    )
