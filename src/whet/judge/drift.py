"""Has what an agent is asked, does, costs or scores changed? Two windows of runs, one bet for each of their features.

A conformal test martingale (Vovk, Gammerman and Shafer 2005; the Simple Jumper of Vovk 2021): a run of the current
window is ranked among all before it, the reference first.  As long as runs come from one source the ranks are
independent and uniform, whatever the feature's distribution is; who bets on high or on low ranks wins only where it
changed.  So the window may be looked at after every run and never ends, and no threshold is tuned: a feature is called
drifted once its e-value has ever reached the number of features over `alpha`, and over a whole window without a change
anything is called so with a chance of at most `alpha` (Ville's inequality, Bonferroni over features).

One run of each session is taken, for those of one conversation are alike.  Weekdays differ from Sundays: take a
reference that has both.  It names what changed and since when; whether that is bad is not said.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..record.store import Store
from ..record.store.trials import SHADOW
from ..stats import CEILING
from ..types import Outcome, Trajectory

ALPHA = 0.01
"""Chance that a window without any change is called drifted."""
LEAST = 30
"""Values of a feature in the reference, below which it is not watched."""
REFERENCE = 400
"""Runs after a release that are taken for how things are."""
CURRENT = 4_000
"""Runs after these that are watched."""
_JUMP = 0.01
"""Part of the wealth that changes its bet with each run, so that a change is found whenever it comes."""
_BETS = (-0.9, -0.4, -0.15, 0.15, 0.4, 0.9)
"""Bets on low and on high ranks."""
_TOOLS = 20
"""Tools that are watched: those that are used most."""
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One feature of runs over both windows."""

    feature: str
    """`input` (how unusual its words are), `input length`, `tool NAME`, `other tools`, `tool calls`, `score NAME`,
    `success`, `thumbs`, `errors`, `tokens`, `dollars`, `seconds` or `steps`."""
    e_value: float
    """The largest that was reached."""
    drifted: bool
    since: float | None
    """Unix time of the run from which the evidence rose; None where nothing drifted."""
    before: float
    """Mean in the reference."""
    now: float
    """Mean from `since` on, of the whole window where nothing drifted."""
    n: int
    """Runs of the current window that have the feature."""

    @property
    def sentence(self) -> str:
        """The feature and its means, in words."""
        verb = "drifted" if self.drifted else "is as before"
        means = f"{self.before:.3g} → {self.now:.3g}"
        return f"{self.feature} {verb}: {means} over {self.n:,} runs (e-value {self.e_value:.3g})"


def drift(
    reference: Iterable[Trajectory], current: Iterable[Trajectory], *, alpha: float = ALPHA, seed: int = 0
) -> list[Drift]:
    """Every feature that both windows have, the surest drift first.

    Args:
        reference: runs from when all was as it should be; some hundred.
        current: later ones, in the order of their start.
        alpha: chance that anything is called drifted where nothing is.
        seed: breaks ties of rank.
    """
    before, now = _first_of_session(reference), _first_of_session(current)
    watched = _features(before, now)
    drifts = [
        _watch(feature, old, new, level=len(watched) / alpha, seed=seed)
        for feature, (old, new) in watched.items()
    ]
    return sorted(drifts, key=lambda each: (-each.e_value, each.feature))


def windows(
    store: Store, *, since: float | None = None, reference: int = REFERENCE, current: int = CURRENT
) -> tuple[list[Trajectory], list[Trajectory]]:
    """The first runs since a moment, and those after them: the windows of a watch that goes on until the next release.

    Args:
        since: Unix time in seconds; when what is live went live if None, or the start of the record.
        reference, current: runs of either window, at most.
    """
    if since is None:
        log = store.history(last=1)
        since = log[0].at if log else 0.0
    traffic = (run for run in store.trajectories(served=True, since=since) if is_traffic(run))
    runs = list(itertools.islice(traffic, reference + current))
    return runs[:reference], runs[reference:]


def is_traffic(run: Trajectory) -> bool:
    """True of what served somebody: not a shadow, a replay, or a rollout of an experiment or of the queue."""
    return not {SHADOW, "replay_of", "rollout"} & run.meta.keys()


def _first_of_session(runs: Iterable[Trajectory]) -> list[Trajectory]:
    """One run of each session, by the time at which it began."""
    first: dict[str, Trajectory] = {}
    for run in sorted(runs, key=lambda trajectory: (trajectory.started, trajectory.id)):
        first.setdefault(f"session {run.session}" if run.session else f"run {run.id}", run)
    return [*first.values()]


_Timed = list[tuple[float, float]]
"""Values of a feature with the Unix time of their runs."""


def _features(before: Sequence[Trajectory], now: Sequence[Trajectory]) -> dict[str, tuple[_Timed, _Timed]]:
    # What is usual is learned on every second run, and the others are ranked among: a run would always look stranger
    # than those which taught what is usual.
    taught, held = before[::2], before[1::2]
    usual = Counter(word for run in taught for word in set(_words(run)))
    tools = Counter(tool for run in taught for tool in {*_tools(run)})
    frequent = [tool for tool, _ in tools.most_common(_TOOLS)]

    def learned(run: Trajectory) -> dict[str, float | None]:
        used = {*_tools(run)}
        return {
            "input": _strangeness(run, usual, len(taught)),
            **{f"tool {tool}": float(tool in used) for tool in frequent},
            "other tools": float(not used <= {*frequent}),
        }

    watched = _columns(before, now, _of_run) | _columns(held, now, learned)
    return {name: (old, new) for name, (old, new) in watched.items() if len(old) >= LEAST and new}


def _columns(
    before: Sequence[Trajectory],
    now: Sequence[Trajectory],
    row: Callable[[Trajectory], dict[str, float | None]],
) -> dict[str, tuple[_Timed, _Timed]]:
    """Feature → its values in either window; a run without it is left out."""
    columns: dict[str, tuple[_Timed, _Timed]] = {}
    for window, runs in enumerate((before, now)):
        for run in runs:
            for feature, value in row(run).items():
                if value is not None:
                    columns.setdefault(feature, ([], []))[window].append((run.started, value))
    return columns


def _of_run(run: Trajectory) -> dict[str, float | None]:
    usage = run.usage
    thumbs = [given.value for given in run.feedback if given.kind == "thumb" and given.value is not None]
    return {
        "input length": float(len(run.task.instruction)),
        "tool calls": float(len(_tools(run))),
        **{f"score {name}": score.value for name, score in run.scores.items()},
        "success": float(run.outcome is Outcome.SUCCESS) if run.outcome.counts else None,
        "thumbs": fmean(thumbs) if thumbs else None,
        "errors": float(run.error is not None or run.outcome is Outcome.INFRASTRUCTURE_ERROR),
        "tokens": float(usage.prompt_tokens + usage.output_tokens) or None,
        "dollars": usage.dollars or None,
        "seconds": run.seconds,
        "steps": float(len(run.steps)),
    }


def _tools(run: Trajectory) -> list[str]:
    return [step.name for step in run.steps if step.kind == "tool" and step.name]


def _words(run: Trajectory) -> list[str]:
    return _WORD.findall(run.task.instruction.lower())


def _strangeness(run: Trajectory, usual: Counter[str], runs: int) -> float | None:
    """How rare the words of its input are among inputs as they used to be: their mean surprise."""
    words = _words(run)
    return fmean(math.log((runs + 1) / (usual[word] + 1)) for word in words) if words else None


def _watch(feature: str, reference: _Timed, current: _Timed, *, level: float, seed: int) -> Drift:
    chance = random.Random(f"{seed} {feature}")
    martingale = RankMartingale([value for _, value in reference], chance)
    for _, value in current:
        martingale.add(value)
    drifted = martingale.most >= level
    since = martingale.since if drifted else 0
    return Drift(
        feature=feature,
        e_value=martingale.most,
        drifted=drifted,
        since=current[since][0] if drifted else None,
        before=fmean(value for _, value in reference),
        now=fmean(value for _, value in current[since:]),
        n=len(current),
    )


class RankMartingale:
    """Evidence that values no longer come from where the reference came from.

    Args:
        reference: values to rank among.
        chance: breaks ties.
    """

    __slots__ = ("_begin", "_chance", "_low", "_rate", "_sorted", "_wealth", "most", "n", "since", "value")

    def __init__(self, reference: Sequence[float], chance: random.Random) -> None:
        self._sorted = sorted(reference)
        self._rate = len({*reference}) <= 2
        self._chance = chance
        self._wealth = [1 / len(_BETS)] * len(_BETS)
        self._low, self._begin = 1.0, 0
        self.n = 0
        self.value = 1.0
        self.most = 1.0
        """The largest value so far: 1/alpha is reached with a chance of at most alpha where nothing changed."""
        self.since = 0
        """Place of the value from which the evidence rose to `most`."""

    def add(self, value: float) -> float:
        """Rank a value among all before it, bet, and return the e-value now."""
        below = bisect.bisect_left(self._sorted, value)
        equal = bisect.bisect_right(self._sorted, value, lo=below) - below
        # Smoothed: without the chance ties would make the ranks of a rate anything but uniform.
        rank = (below + self._chance.random() * (equal + 1)) / (len(self._sorted) + 1)
        surprise = self._surprise(rank)
        bisect.insort(self._sorted, value)
        share = _JUMP * self.value / len(_BETS)
        self._wealth = [
            ((1 - _JUMP) * part + share) * (1 + bet * surprise)
            for part, bet in zip(self._wealth, _BETS, strict=True)
        ]
        self.value = sum(self._wealth)
        if self.value > CEILING:
            self._wealth = [part / self.value * CEILING for part in self._wealth]
            self.value = CEILING
        self.n += 1
        if self.value < self._low:
            self._low, self._begin = self.value, self.n
        if self.value > self.most:
            self.most, self.since = self.value, min(self._begin, self.n - 1)
        return self.value

    def _surprise(self, rank: float) -> float:
        """A function of a uniform rank that has the mean 0 and lies in [−1, 1]."""
        if not self._rate:
            return rank - 0.5
        # Of a rate the ranks are all ties: what tells is only on which side of the step between the two values it is.
        step = (bisect.bisect_left(self._sorted, self._sorted[-1]) + 0.5) / (len(self._sorted) + 1)
        return ((rank > step) - (1 - step)) / max(step, 1 - step)
