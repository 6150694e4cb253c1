"""What people said of a candidate on real traffic beside what is live, as rows that anyone can judge again.

The k-th thumb of the candidate's arm is paired with the k-th of the other: who comes next is drawn by chance, so the
two are exchangeable, and the pairs are what `whet verdict` takes.  The betting process behind it may be looked at after
each of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..learn.datasets.thumbs import Scale
from ..models.prices import known_prices
from ..prove.verdict import verdict
from ..record.costs import dollars_of
from ..record.influence import InfluenceLimits, person_of
from ..record.tracing.signals import IMPLICIT
from ..ship.delivery.body import FEWEST
from ..types import Json, Trajectory, Verdict, digest

MOST_OF_ONE = InfluenceLimits().at_least
"""Thumbs of one person on one arm that count for a repair: traffic buys no influence."""
_PARTS = 4
"""Of a trial, one after the other, by which a delivery shows whether its effect lasts."""
JUDGES = (
    "people, by their thumbs on real traffic: the k-th who was served the change beside the k-th who was not",
    f"of one person at most {MOST_OF_ONE} thumbs count on either side",
)
"""Who judged, for a delivery."""


def liked_of(run: Trajectory) -> bool | None:
    """Whether a person liked what they were served, by the last thing that they said; None where nobody said."""
    notes = [
        note
        for note in run.feedback
        if note.value is not None and note.step is None and not note.kind.startswith(IMPLICIT)
    ]
    return Scale(ones=False).up(max(notes, key=lambda note: note.at)) if notes else None


@dataclass(frozen=True, slots=True)
class LiveThumb:
    """What one person said of one run."""

    run: str
    liked: bool
    seconds: float | None = None
    """That the run took; None where it does not say."""
    cost: float | None = None
    """Dollars that it cost; None where a model has no price, or it called none."""


def _drawn(run: str, share: float) -> bool:
    """True for as many runs of what is live as the candidate has beside them."""
    return share >= 0.5 or int(digest(["beside", run], 8), 16) / 16**8 < share / (1 - share)


@dataclass(frozen=True, slots=True)
class TrialSpan:
    """The runs of one part of the traffic while one trial stood."""

    runs: Iterable[Trajectory]
    versions: Collection[str]
    """Ids of the candidate's Versions; a run under one of them is of its arm."""
    share: Callable[[float], float] = lambda at: 0.5
    """Unix time → share of the traffic that the candidate had then."""


@dataclass(frozen=True, slots=True)
class LiveArms:
    """Thumbs on both arms, in the order in which the runs began."""

    live: Sequence[LiveThumb]
    candidate: Sequence[LiveThumb]

    @classmethod
    def of(cls, *spans: TrialSpan) -> LiveArms:
        """From the trials that a repair was on, one after the other.

        Where the candidate has less than half of the traffic, as many of the other arm's runs count as it has itself,
        drawn by their hash: else its k-th thumb would come later than the one beside it, and whatever the traffic does
        meanwhile, or the share, would be taken for an effect.  For the same reason no pair is of two trials.
        """
        live, candidate = list[LiveThumb](), list[LiveThumb]()
        prices = known_prices()
        counted = Counter[tuple[str, bool]]()
        for span in spans:
            pairs = min(len(live), len(candidate))
            del live[pairs:], candidate[pairs:]
            first = dict[str, bool]()
            for run in sorted(span.runs, key=lambda run: (run.started, run.id)):
                tried = not {*run.versions.values()}.isdisjoint(span.versions)
                # Who had begun with what is live, and is the candidate's since its share rose, is of neither arm.
                if first.setdefault(run.session or run.id, tried) is not tried:
                    continue
                liked = liked_of(run)
                if liked is None or (not tried and not _drawn(run.id, span.share(run.started))):
                    continue
                person = person_of(run)
                counted[person, tried] += 1
                # The first ones, so that a pair which was looked at stays what it was.
                if not person or counted[person, tried] <= MOST_OF_ONE:
                    dollars, unpriced = dollars_of(run, prices)
                    cost = None if unpriced or not dollars else dollars
                    (candidate if tried else live).append(LiveThumb(run.id, liked, run.seconds, cost))
        return cls(live, candidate)

    @property
    def pairs(self) -> int:
        """Pairs of one thumb each."""
        return min(len(self.live), len(self.candidate))

    @property
    def liked(self) -> float:
        """Share of the thumbs on the candidate that are up."""
        return sum(thumb.liked for thumb in self.candidate) / max(1, len(self.candidate))

    @property
    def disliked(self) -> float:
        """Share of the thumbs on what is live that are down."""
        return sum(not thumb.liked for thumb in self.live) / max(1, len(self.live))

    def rows(self, side: str) -> list[dict[str, Json]]:
        """One side's outcomes, as `whet verdict` reads them."""
        thumbs = self.live if side == "live" else self.candidate
        spent = (
            {name: value for name in ("seconds", "cost") if (value := getattr(thumb, name)) is not None}
            for thumb in thumbs
        )
        # Of two different questions no kind is shared, so the kinds are the parts of the trial.
        part = max(FEWEST, math.ceil(self.pairs / _PARTS))
        return [
            {
                "task": f"pair-{number:05d}",
                "success": thumb.liked,
                "run": thumb.run,
                "slice": f"pairs {number - (number - 1) % part} on",
                **amounts,
            }
            for number, (thumb, amounts) in enumerate(zip(thumbs[: self.pairs], spent, strict=False), 1)
        ]

    def verdict(self, candidate: str, alpha: float, *, baseline: str = "") -> Verdict | None:
        """The gate's, on all pairs so far; None as long as there are too few to look at.

        Args:
            candidate: id of the Bundle.
            alpha: chance of promoting what has no effect: a part of the night's.
            baseline: id of the Bundle that it was made from.
        """
        if self.pairs < 2:
            return None
        judged = self.again()
        bar = 1 / alpha
        proven = judged.promote and judged.e_value >= bar
        note = (
            f"of the night's chance of an error this proof has {alpha:.3g}: it takes an e-value of {bar:.4g}"
        )
        reasons = (*judged.reasons, note)
        return replace(judged, candidate=candidate, baseline=baseline, promote=proven, reasons=reasons)

    def unharmed(self, loss: float) -> float:
        """E-value of that the candidate is not worse by so much; 0 of too few pairs."""
        if self.pairs < 2:
            return 0.0
        rows = self.rows("live"), self.rows("candidate")
        return verdict(*rows, regime="exchangeable", watched=True, margin=loss).e_value

    def again(self) -> Verdict:
        """What `whet verdict live.jsonl candidate.jsonl --regime exchangeable` says."""
        return verdict(self.rows("live"), self.rows("candidate"), regime="exchangeable", watched=True)

    def write(self, folder: Path) -> list[Path]:
        """Both sides as files."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for side in ("live", "candidate"):
            path = folder / f"{side}.jsonl"
            path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in self.rows(side)))
            written.append(path)
        return written
