"""The result of learning: the improved Bundle with its history, and every candidate on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..prove.guardrails import pairs_in_words
from ..prove.selection import beside_dev
from ..record.diffs import diff
from ..record.store.findings import RewardFinding
from ..types import Bundle, Verdict


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One learner's result in a composition."""

    name: str
    bundle: Bundle
    entered: bool
    """True if the composition continued from it."""
    reason: str
    """Why it entered or was left out, with the evidence, in a sentence."""
    validation: float | None = None
    """Mean of the metric on validation; None if it was not run there."""
    gain: float | None = None
    """Mean paired difference to the best candidate before it; None if it was not compared."""
    error: float | None = None
    """Standard error of `gain`, clustered by group; None of fewer than two groups."""
    pairs: int = 0
    rollouts: int = 0
    """Rollouts that its learner made."""


@dataclass(slots=True)
class Accounts:
    """Counts of the rollouts that ran beside training, by their fate."""

    asked: int = 0
    """Rollouts that were started, a retried one once."""
    finished: int = 0
    """Came back with a trajectory."""
    failed: int = 0
    """Given up after the last attempt; their trajectories are infrastructure errors."""
    cancelled: int = 0
    """Still under way when the pipeline was closed."""
    running: int = 0
    raised: int = 0
    """Attempts that raised."""
    hung: int = 0
    """Attempts that did not end in time."""
    died: int = 0
    """Attempts whose worker went away: an exit, or a cancellation that was not ours."""
    stale: int = 0
    """Rollouts of groups that came too late; among the finished and failed."""
    learned: int = 0
    """Rollouts that were handed to the optimizer; among the finished and failed."""

    @property
    def balanced(self) -> bool:
        """True if every rollout that was started is accounted for."""
        return self.asked == self.finished + self.failed + self.cancelled + self.running


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """The result of `Experiment.improve` or `Experiment.compose`."""

    bundle: Bundle
    parent: Bundle
    optimizer: str
    metrics: Sequence[Mapping[str, float]] = ()
    """One mapping per round."""
    rounds: int = 0
    rollouts: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    reason: str = ""
    candidates: Sequence[Candidate] = ()
    """Of a composition: every learner's result in the order in which they were tried."""
    fallbacks: Sequence[Bundle] = ()
    """Simpler candidates that the gate judges in its place, in this order, if `bundle` does not pass."""

    accounts: Accounts | None = None
    """Of rollouts that ran beside training."""
    findings: Sequence[RewardFinding] = ()
    """What the last round's runs show beside the first's: its score may have been hacked (`judge/hacking.py`)."""

    def beside_dev(self, verdict: Verdict) -> Verdict:
        """The Verdict on its Bundle, with the effect on the tasks that it was chosen on among several."""
        compared = [candidate for candidate in self.candidates if candidate.gain is not None]
        if len(compared) < 2:
            return verdict
        dev = sum(candidate.gain or 0.0 for candidate in compared if candidate.entered)
        pairs = max(candidate.pairs for candidate in compared)
        return beside_dev(verdict, len(compared), dev, "It was", f"at most {pairs_in_words(pairs)}")

    def diff(self) -> str:
        """Every changed resource as a unified diff of its readable content."""
        return diff(self.parent, self.bundle)
