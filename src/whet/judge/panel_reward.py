"""A panel as a reward: its judges are asked about one answer, and it gives 1, 0, or nothing where it is not sure.

How votes are weighed is fixed when the panel is calibrated, by labels of the kind of task, so that the score of a run
does not depend on which others were judged before it.  A kind without labels is refused.  Within a kind the panel
watches, for each Version of the agent, how its judges agree: answers on which they agree otherwise than on the labelled
ones, whatever share of them is good, are not those that it was calibrated on, and none of their scores stands.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from ..errors import InputError
from ..models import Model
from ..types import UNCALIBRATED, Score, Task, Trajectory, Usage, digest
from .base import ascore
from .calibration import JudgedItems, card_of
from .card import MARKS, ReliabilityCard
from .judge import judge_of
from .labelled import LabelledItem
from .panel import FAMILIES, FEWEST, LiveKind, Panel, fitted, holds, is_right, lower
from .votes import Ballot, agreement_distance, family_agreements, family_votes

KINDS = ("kind", "slice", "category")
"""Keys of a Task's `meta` that name its kind, the first one that is there."""
_WIDER = 1.5
"""Times what sampling accounts for: how far off an agreement that is looked at again and again may be."""
_MIXTURES = 21
"""Shares of good answers that are tried for an agreement."""


def kind_of(task: Task) -> str:
    """The kind of a task; "" where it names none."""
    return next((str(task.meta[name]) for name in KINDS if task.meta.get(name)), "")


def calibrated(panel: Panel, ballots: Sequence[Ballot]) -> tuple[Panel, dict[str, float]]:
    """The panel with how one answer alone is judged, and what it then says of each item.

    Args:
        ballots: labelled, what the panel was fitted on.

    Returns:
        The panel, and item → the chance, in [0, 1], that its answer is good, by a panel without labels of its half.
    """
    by_kind: dict[str, list[Ballot]] = defaultdict(list)
    for ballot in ballots:
        by_kind[ballot.kind].append(ballot)
    live, said = dict[str, LiveKind](), dict[str, float]()
    for kind, own in by_kind.items():
        strengths: list[tuple[float, Ballot]] = []
        for labelled, held in _halves(own):
            others = {**by_kind, kind: labelled}
            part = fitted(others, panel.family_of, discounted=panel.discounted)
            strengths += zip(_strengths(part, part.weights(kind, labelled), held), held, strict=True)
        said |= {ballot.id: 1 / (1 + math.exp(-strength)) for strength, ballot in strengths}
        weights = panel.weights(kind, own)
        # How strong a verdict is, by the weights that are used; whether it is right, by such as had not its label.
        reached = _strengths(panel, weights, [ballot for _, ballot in strengths])
        rights = [
            (abs(strength), is_right(without, ballot))
            for strength, (without, ballot) in zip(reached, strengths, strict=True)
        ]
        threshold = _threshold(rights, [ballot.first is True for _, ballot in strengths])
        sure = [right for strength, right in rights if threshold is not None and strength >= threshold]
        sides = [
            family_agreements(
                family_votes(
                    [ballot for ballot in own if ballot.first is side], panel.family_of, panel.standing
                )
            )
            if any(ballot.first is side for ballot in own)
            else {}
            for side in (True, False)
        ]
        live[kind] = LiveKind(
            weights=weights,
            # Votes are few and the same sum of weights comes out a little different in another order.
            threshold=None if threshold is None else threshold * (1 - 1e-9),
            good=sides[0],
            bad=sides[1],
            items=len(own),
            accuracy=fmean(sure) if sure else None,
            coverage=len(sure) / len(own),
        )
    return msgspec.structs.replace(panel, live=live), said


def panel_card(
    panel: Panel,
    said: Mapping[str, float],
    items: Sequence[LabelledItem],
    *,
    earlier: ReliabilityCard | None = None,
) -> ReliabilityCard:
    """The card of a calibrated panel: as of a single judge, by what it says of items whose labels it did not have."""
    verdicts = JudgedItems(items, votes=dict(said))
    models = ", ".join(sorted({judge.model for judge in panel.judges.values()}))
    return card_of("panel", verdicts, evaluator=panel.key, model=models, earlier=earlier)


def _halves(ballots: Sequence[Ballot]) -> list[tuple[list[Ballot], list[Ballot]]]:
    """Each half by the hash of its items, and the other one."""
    halves: tuple[list[Ballot], list[Ballot]] = ([], [])
    for ballot in ballots:
        halves[int(digest(["half", ballot.id], 2), 16) % 2].append(ballot)
    if not all(halves):
        return [(list(ballots), list(ballots))]
    return [(halves[0], halves[1]), (halves[1], halves[0])]


def _strengths(panel: Panel, weights: Mapping[str, float], ballots: Sequence[Ballot]) -> list[float]:
    votes = family_votes(ballots, panel.family_of, panel.standing)
    return [
        sum(weight * votes[family][number] for family, weight in weights.items() if family in votes)
        for number in range(len(ballots))
    ]


def _threshold(rights: Sequence[tuple[float, float]], good: Sequence[bool]) -> float | None:
    """The least strength from which on verdicts hold, and tell more than that most answers are good, or bad."""
    for strength in sorted({strength for strength, _ in rights}):
        if not holds(rights, strength):
            continue
        sure = [
            (right, label)
            for (reached, right), label in zip(rights, good, strict=True)
            if reached >= strength
        ]
        share = fmean(label for _, label in sure)
        if lower(sum(right for right, _ in sure), len(sure)) > max(share, 1 - share):
            return strength
    return None


class PanelReward:
    """A Reward of one answer: 1.0 or 0.0 where the panel is sure; None where it abstains, or was not calibrated.

    Until its card admits it, it gives the chance that the answer is good instead, as an uncalibrated judge does: that
    steers, and promotes nothing.

    Args:
        panel: made by `whet audit RUBRIC --model A --model B --model C`.
        models: by the names that the panel has.
        card: of this panel; None, or one of another panel, leaves it uncalibrated.

    Raises:
        InputError: the panel names no judges, or was fitted on pairs.
    """

    is_async = True

    def __init__(
        self,
        panel: Panel,
        models: Mapping[str, Model],
        *,
        card: ReliabilityCard | None = None,
        name: str = "panel",
    ) -> None:
        refuse_unasked(panel)
        self.name, self.panel = name, panel
        self.cleared = card is not None and card.clears(panel.key, MARKS)
        self.version = panel.key if self.cleared else f"{UNCALIBRATED}{panel.key}"
        self._judges = {
            judge: judge_of(spec.rubric, models[spec.model], spec.settings, name=judge)
            for judge, spec in panel.judges.items()
        }
        self._seen: dict[tuple[str, str], list[Ballot]] = defaultdict(list)
        """Kind and Versions → ballots of the runs that all families voted on."""
        self._outside: dict[tuple[str, str], str] = {}
        """The same → why its runs are not what the panel was calibrated on."""

    @property
    def usage(self) -> Usage:
        """What its judges' answers cost so far."""
        return sum((judge.usage for judge in self._judges.values()), Usage())

    async def __call__(self, trajectory: Trajectory) -> Score:
        """0 where the agent failed or answered nothing, on a kind that the panel was calibrated on."""
        kind = kind_of(trajectory.task)
        live = self.panel.live.get(kind)
        if live is None:
            known = ", ".join(name or "no kind" for name in self.panel.live)
            return self._score(
                None, f"refused: the panel has no labels of {kind or 'no kind'!r}, only of {known}"
            )
        # After the kind: the only values of a kind without labels would be these, and their mean 0.
        if trajectory.error is not None:
            return self._score(0.0, f"it failed: {trajectory.error.type}")
        if not trajectory.output_text.strip():
            return self._score(0.0, "nothing was answered")
        marks = await asyncio.gather(*(ascore(judge, trajectory) for judge in self._judges.values()))
        ballot = Ballot(
            {
                judge: 1.0 if mark.value >= self.panel.judges[judge].threshold else -1.0
                for judge, mark in zip(self._judges, marks, strict=True)
                if mark.value is not None
            },
            None,
            kind,
            trajectory.id,
        )
        votes = family_votes([ballot], self.panel.family_of, self.panel.standing)
        told = ", ".join(f"{family} {own[0]:+.2g}" for family, own in votes.items()) or "no judge gave a mark"
        if len(votes) < FAMILIES:
            return self._score(None, f"{len(votes)} models voted, and it takes {FAMILIES}: {told}")
        group = self._group(trajectory)
        if len(votes) == len(live.weights):
            self._seen[group].append(ballot)
            if len(self._seen[group]) in _looks():
                self._look(group)
        if group in self._outside:
            return self._score(None, f"refused: {self._outside[group]}")
        strength = sum(
            weight * votes[family][0] for family, weight in live.weights.items() if family in votes
        )
        if not self.cleared:
            return self._score(1 / (1 + math.exp(-strength)), told)
        if live.threshold is None or abs(strength) < live.threshold:
            return self._score(None, f"abstains: {told}")
        return self._score(float(strength > 0), told)

    def withdrawn(self, runs: Sequence[Trajectory]) -> str:
        """Why the scores of these runs do not stand, now that it has judged all of them; "" if they do."""
        groups = {self._group(run) for run in runs}
        for group in groups:
            if len(self._seen.get(group, ())) >= FEWEST:
                self._look(group)
        return next((self._outside[group] for group in sorted(groups) if group in self._outside), "")

    @property
    def outside(self) -> str:
        """Why it takes scores back, of the first kind and Versions of which it does; "" if of none."""
        return next(iter(self._outside.values()), "")

    def _group(self, run: Trajectory) -> tuple[str, str]:
        return kind_of(run.task), digest(dict(run.versions), 12)

    def _look(self, group: tuple[str, str]) -> None:
        """See whether the judges agree as they did on labelled answers, at some share of good ones."""
        live = self.panel.live[group[0]]
        votes = family_votes(self._seen[group], self.panel.family_of, self.panel.standing)
        here = family_agreements(votes)
        looks = []
        for step in range(_MIXTURES):
            mixed = _mixed(live, step / (_MIXTURES - 1))
            distance, noise = agreement_distance(here, mixed)
            looks.append((distance - _WIDER * noise, distance, noise))
        beyond, distance, noise = min(looks)
        if beyond > 0:
            self._outside[group] = (
                f"on {len(self._seen[group])} answers of kind {group[0] or 'no kind'!r} the judges agree otherwise "
                f"than on the labelled ones: {math.sqrt(distance):.2f} off, where sampling accounts for "
                f"{math.sqrt(_WIDER * noise):.2f}. Label some of these answers and fit the panel again."
            )

    def _score(self, value: float | None, reason: str) -> Score:
        return Score(self.name, value, reason, self.version)


def refuse_unasked(panel: Panel) -> None:
    """Refuse a panel that cannot judge an answer alone.

    Raises:
        InputError: it names no judges, or has no labels of single answers.
    """
    if not panel.judges:
        raise InputError(
            "this panel was fitted on verdicts that were recorded, and names no judges that could be asked: fit one by "
            "whet audit RUBRIC.md --model A --model B --model C --base-url URL --labels FILE --output FOLDER"
        )
    if not panel.live:
        raise InputError(
            "this panel was fitted on pairs, and a reward marks single answers: fit it on labelled single answers "
            "(input, output, label)"
        )


def _looks() -> frozenset[int]:
    """Numbers of runs at which the agreement is looked at: each time that they have doubled."""
    return frozenset(FEWEST * 2**step for step in range(20))


def _mixed(live: LiveKind, good: float) -> dict[str, tuple[float, float]]:
    """The agreements of answers of which this share is good."""
    if not (live.good and live.bad):
        return live.good or live.bad
    return {
        pair: (
            good * live.good[pair][0] + (1 - good) * live.bad[pair][0],
            math.hypot(good * live.good[pair][1], (1 - good) * live.bad[pair][1]),
        )
        for pair in live.good.keys() & live.bad.keys()
    }
