"""How far the signs that people give without being asked can be believed: measured on the runs that they also rated.

A person who asks again, leaves or says thanks says something of an answer (`whet.record.tracing.signals`), and how much
differs from one product to the next.  So a kind of sign counts only where people's own thumbs confirm it, beyond what
thumbs in that direction are anyway, and then with the error rate that was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..stats import Interval, cluster_interval

_LEAST = 12
"""Signs beside a thumb below which none of their kind count."""


@dataclass(frozen=True, slots=True)
class SignBesideThumb:
    """A sign for or against an answer, and the thumb that the same run got."""

    kind: str
    speaks_for: bool
    thumb_up: bool
    person: str


@dataclass(frozen=True, slots=True)
class SignPrecision:
    """How often one kind of sign and the thumb on the same answer agree."""

    kind: str
    speaks_for: bool
    compared: int
    agreed: int
    base: float
    """Share of all thumbs that point this way: what a sign given at random would reach."""
    lift: Interval
    """95 % interval of the share that agree less `base`, clustered by people."""

    @property
    def share(self) -> float:
        """Share that agree, by Laplace's rule of succession."""
        return (self.agreed + 1) / (self.compared + 2)

    @property
    def counts(self) -> bool:
        """True if the signs tell something of an answer, beyond chance and on its side."""
        return self.compared >= _LEAST and self.lift[0] > 0 and self.share > 0.5

    @property
    def sentence(self) -> str:
        """What was measured, and what follows."""
        if self.counts:
            follows = "they count where no thumb was given"
        elif self.compared < _LEAST:
            follows = f"too few to count: it takes {_LEAST}"
        else:
            follows = "not surely more than chance, so they do not count"
        return (
            f"{self.kind} agrees with {self.agreed} of the {self.compared} thumbs beside it "
            f"({self.base:.0%} would by chance): {follows}"
        )


def sign_precisions(
    pairs: Iterable[SignBesideThumb], base: Mapping[bool, float]
) -> dict[tuple[str, bool], SignPrecision]:
    """Kind and direction → how far its signs agree with thumbs.

    Args:
        base: direction → share of all thumbs that point that way.
    """
    by_kind: dict[tuple[str, bool], list[SignBesideThumb]] = defaultdict(list)
    for pair in pairs:
        by_kind[pair.kind, pair.speaks_for].append(pair)
    precisions = {}
    for (kind, speaks_for), own in sorted(by_kind.items()):
        chance = base[speaks_for]
        agrees = [pair.thumb_up == speaks_for for pair in own]
        lift = cluster_interval(
            [value - chance for value in agrees], [pair.person for pair in own], bounds=(-1.0, 1.0)
        )
        precisions[kind, speaks_for] = SignPrecision(kind, speaks_for, len(own), sum(agrees), chance, lift)
    return precisions
