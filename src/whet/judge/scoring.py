"""The record scored by today's rewards: each run once, in the order of recording, with memory that stays flat.

A Score carries the version of what judged (`Score.evaluator`).  A reward that changed has another version, so its
earlier scores are told apart and replaced; the run as it was stays readable (`Store.revisions`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from ..errors import TrainingRefused
from ..record.store import Store
from ..types import Score, Trajectory
from .base import JudgesRefused, Reward, is_async, name_of, version_of
from .checkers import ajudged, judged
from .panel_reward import PanelReward
from .ranking import AT_ONCE as RANKED_AT_ONCE
from .ranking import MOST_RANKED, GroupReward, is_group_reward, ranked

CHUNK = 256
"""Runs that are written together, and that at most are in memory."""
AT_ONCE = 16
"""Runs that a reward which waits for something, such as a model, judges together."""


_REASONS = 20
"""Different reasons of a reward that are counted: some name the run, and a record has many."""

_Rescored: TypeAlias = tuple[Trajectory, Trajectory]
"""A run as it was recorded, and with its scores of now."""


@dataclass(slots=True)
class ScoreCount:
    """What one reward made of a record."""

    reward: str
    version: str
    """What judged now; "" of a reward without a version, whose earlier scores cannot be told apart."""
    scored: int = 0
    missing: int = 0
    """Runs that it looked at and could not judge."""
    total: float = 0.0
    changed: int = 0
    """Runs whose value is another than the one that was recorded."""
    earlier: Counter[str] = field(default_factory=Counter)
    """Other versions → runs that had a score of theirs."""
    why: str = ""
    """Of a panel that took scores back: why; "" of any other."""
    unjudged: Counter[str] = field(default_factory=Counter)
    """What it said of runs that it could not judge → how many of them; no more than a few different ones."""
    broke: int = 0
    """Runs on which it broke (`Score.broke`): they are among those that were scored, with 0."""
    broken_by: str = ""
    """What it raised on the first of them."""

    @property
    def mean(self) -> float | None:
        """Over the runs that were scored; None of none."""
        return self.total / self.scored if self.scored else None

    def add(self, before: Score | None, now: Score | None) -> None:
        """Count one run: its recorded score, and the one that it has now."""
        if before is not None:
            self.earlier[before.evaluator] += before.evaluator != self.version
            self.changed += now is None or before.value != now.value
        if now is None:
            return
        # An answer that broke its evaluator is worth 0, as at the gate.
        value = 0.0 if now.broke else now.value
        if now.broke:
            self.broke += 1
            self.broken_by = self.broken_by or now.reason
        if value is None:
            self.missing += 1
            if now.reason in self.unjudged or len(self.unjudged) < _REASONS:
                self.unjudged[now.reason] += 1
        else:
            self.scored, self.total = self.scored + 1, self.total + value


def current(runs: Iterable[Trajectory], rewards: Sequence[Reward]) -> Iterator[Trajectory]:
    """The runs with the scores that plain rewards give them now, one at a time.

    Raises:
        InputError: a reward is async; `rescore` awaits it.
    """
    return (judged(run, *rewards) for run in runs)


async def rescore(
    store: Store,
    rewards: Sequence[Reward],
    *,
    runs: Callable[[], Iterable[Trajectory]] | None = None,
    keep: bool = True,
) -> list[ScoreCount]:
    """Score recorded runs by these rewards, and record the scores that are new or other than before.

    A reward that waits for something (a judge) is not asked about a run that its present version has scored: that
    answer is recorded and would be paid twice.  A reward that ranks (RULER) compares the runs of a task in groups of
    `MOST_RANKED`, in the order of recording; groups are ranked in the background while others are read, and again
    once a run has come to them.  A panel that takes scores back, because its judges agree otherwise on such runs than
    on what it was calibrated on, looks at all runs a second time, and these have none.

    Args:
        runs: all of the record if None; read twice where a panel takes scores back.
        keep: False counts only.
    """
    # To the newest of now: what is overwritten below keeps its place, and what comes meanwhile is not chased.
    newest = store.newest()
    read = runs if runs is not None else lambda: store.trajectories(upto=newest)
    counts = await _rescored(store, rewards, read(), keep)
    refusing = [reward for reward in rewards if isinstance(reward, PanelReward) and reward.outside]
    if not refusing:
        return counts
    again = await _rescored(store, rewards, read(), keep)
    return [
        replace(second, earlier=first.earlier, changed=first.changed, why=why_of.get(second.reward, ""))
        for first, second in zip(counts, again, strict=True)
        for why_of in [{reward.name: reward.outside for reward in refusing}]
    ]


async def _rescored(
    store: Store, rewards: Sequence[Reward], stored: Iterable[Trajectory], keep: bool
) -> list[ScoreCount]:
    counts = [ScoreCount(name_of(reward), version_of(reward)) for reward in rewards]
    changed: list[Trajectory] = []
    single = [reward for reward in rewards if not is_group_reward(reward)]
    ranks = [reward for reward in rewards if is_group_reward(reward)]
    try:
        async for before, now in _grouped(_scored(iter(stored), single), ranks):
            for count in counts:
                count.add(before.scores.get(count.reward), now.scores.get(count.reward))
            if keep and (now.scores != before.scores or now.outcome is not before.outcome):
                changed.append(now)
            if len(changed) >= CHUNK:
                store.put(*changed, replace=True)
                changed.clear()
    finally:  # what was judged before a judge was refused is paid for
        if changed:
            store.put(*changed, replace=True)
    return counts


async def _scored(runs: Iterator[Trajectory], rewards: Sequence[Reward]) -> AsyncIterator[_Rescored]:
    if not any(map(is_async, rewards)):
        for run in runs:
            yield run, judged(run, *rewards)
        return
    slots, refused = asyncio.Semaphore(AT_ONCE), JudgesRefused()
    why: TrainingRefused | None = None

    async def judge(run: Trajectory) -> Trajectory | None:
        nonlocal why
        async with slots:
            if why is not None:
                return None
            now = await ajudged(run, *[reward for reward in rewards if not _known(run, reward)])
        try:
            refused.note(now.scores[name_of(reward)] for reward in rewards if name_of(reward) in now.scores)
        except TrainingRefused as error:
            why = error
        return now

    while chunk := list(islice(runs, CHUNK)):
        for run, now in zip(chunk, await asyncio.gather(*map(judge, chunk)), strict=True):
            if now is not None:
                yield run, now
        if why is not None:
            raise why


async def _grouped(
    runs: AsyncIterator[_Rescored], rewards: Sequence[GroupReward]
) -> AsyncIterator[_Rescored]:
    """The runs, with the scores of rewards that rank; a group comes once it is ranked."""
    waiting: dict[str, list[_Rescored]] = {}
    asked: set[asyncio.Task[list[_Rescored]]] = set()
    try:
        async for before, now in runs:
            if not rewards:
                yield before, now
                continue
            group = waiting.setdefault(now.task.id, [])
            group.append((before, now))
            if len(group) < MOST_RANKED:
                continue
            asked.add(asyncio.create_task(_ranked(waiting.pop(now.task.id), rewards)))
            if len(asked) >= RANKED_AT_ONCE:
                ended, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                for pair in [pair for one in ended for pair in one.result()]:
                    yield pair
        while waiting or asked:
            while waiting and len(asked) < RANKED_AT_ONCE:
                asked.add(asyncio.create_task(_ranked(waiting.popitem()[1], rewards)))
            ended, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for pair in [pair for one in ended for pair in one.result()]:
                yield pair
    finally:
        for task in asked:
            task.cancel()


async def _ranked(group: Sequence[_Rescored], rewards: Sequence[GroupReward]) -> list[_Rescored]:
    unknown = [reward for reward in rewards if not _ranked_before(group, reward)]
    runs = await ranked([now for _, now in group], unknown)
    return [(before, now) for (before, _), now in zip(group, runs, strict=True)]


def _ranked_before(group: Sequence[_Rescored], reward: GroupReward) -> bool:
    """True if its present version ranked just these runs; where it failed it is asked again."""
    scores = [before.scores.get(reward.name) for before, _ in group]
    version = version_of(reward)
    same = all(score is not None and score.evaluator == version for score in scores)
    return bool(version) and same and any(score is not None and score.value is not None for score in scores)


def _known(run: Trajectory, reward: Reward) -> bool:
    if isinstance(reward, PanelReward):
        # It has to see all runs to know whether they are of its kind; its judges' answers are in the record.
        return False
    score, version = run.scores.get(name_of(reward)), version_of(reward)
    same = score is not None and score.value is not None and score.evaluator == version
    return bool(version) and same and is_async(reward)
