"""A/A: nothing is better than itself, however often one looks and however many candidates one tries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from page import publish, table
from world import learning

from whet.prove.gate import Comparison, PairedResults, TaskResult, compare
from whet.types import Bundle, Group, Split, Version
from whet.worlds.demo.job import Sizes
from whet.worlds.demo.learning import Learning

EPISODES = 8
"""Recorded episodes of each question, from which pairs are drawn."""
LEAST_MIXED = 0.2
"""Share of the questions on which chance must decide, or the measurement could not fail."""


async def _recorded(learning: Learning) -> tuple[Bundle, list[Group], list[Group]]:
    """A sampled policy, and its episodes on validation and on the gate's questions."""
    job = learning.job
    rule = await learning.evolved("rule", job.checked, "success", "the checker")
    cloned = await learning.cloned(rule, rule)
    sampled = cloned.put(Version(resource="decoding", content={"temperature": 1.0}))
    validation = await job.checked.evaluate(sampled, Split.VALIDATION, n=EPISODES)
    return sampled, validation, await job.checked.evaluate(sampled, Split.GATE, n=EPISODES)


def _results(groups: Sequence[Group]) -> list[list[TaskResult]]:
    return [
        [
            TaskResult(task=group.task.id, group=group.task.group, scores={"success": run.score("success")})
            for run in group.trajectories
        ]
        for group in groups
    ]


def watched(episodes: Sequence[Sequence[TaskResult]], rng: random.Random) -> tuple[bool, bool]:
    """One re-pairing of a Bundle with itself, looked at after every pair: promoted by the gate? by a z-test?"""
    comparison, promoted, naive = Comparison(watched=True), False, False
    total = squares = 0.0
    for count, runs in enumerate(rng.sample(list(episodes), len(episodes)), 1):
        old, new = rng.sample(list(runs), 2)
        if not promoted:
            promoted = comparison.add(PairedResults(old, new))
        difference = (new.scores["success"] or 0.0) - (old.scores["success"] or 0.0)
        total, squares = total + difference, squares + difference * difference
        spread = squares - total * total / count
        naive = naive or (
            count >= 20 and spread > 0 and total > 1.645 * (spread * count / (count - 1)) ** 0.5
        )
    return promoted, naive


def best_of(
    candidates: int,
    validation: Sequence[Sequence[TaskResult]],
    gate: Sequence[Sequence[TaskResult]],
    rng: random.Random,
) -> bool:
    """Is the best of some null candidates, chosen on validation, promoted over the same Bundle?"""
    scored = []
    for _ in range(candidates):
        own = random.Random(rng.getrandbits(64))  # which episodes are this candidate's, on both sides
        scored.append((sum(own.choice(runs).scores["success"] or 0.0 for runs in validation), own))
    _, own = max(scored, key=lambda row: row[0])
    drawn = [own.sample(list(runs), 2) for runs in gate]
    return compare([old for old, _ in drawn], [new for _, new in drawn]).promote


def aa(folder: Path, *, pairings: int, trials: int, candidates: int, sizes: Sizes) -> None:
    """Both A/A measurements on one sampled policy."""
    with learning(0, folder / "aa", sizes) as one:
        _, validation, gate = asyncio.run(_recorded(one))
    held, judged = _results(validation), _results(gate)
    success = [run.scores["success"] or 0.0 for runs in judged for run in runs]
    mixed = sum(len({run.scores["success"] for run in runs}) > 1 for runs in judged)
    if mixed < LEAST_MIXED * len(judged):
        raise SystemExit(
            f"only {mixed} of {len(judged)} questions were both solved and not: pairs of such a policy are nearly all "
            "equal, and never promoting them would show nothing. Clone more."
        )
    rng = random.Random("a/a")
    decided = [watched(judged, rng) for _ in range(pairings)]
    best = sum(best_of(candidates, held, judged, rng) for _ in range(trials))
    promoted, naive = (sum(row[place] for row in decided) for place in (0, 1))
    lines = [
        f"One cloned policy sampled at temperature 1 against itself: {len(judged)} questions with {EPISODES} recorded "
        f"episodes each, success {100 * sum(success) / len(success):.1f} %, both outcomes seen on {mixed} questions.",
        "",
        *table(
            ("what", "promoted", "share %", "allowed %"),
            [
                [
                    f"{pairings:,} re-pairings, watched after every pair",
                    str(promoted),
                    f"{100 * promoted / pairings:.1f}",
                    "5",
                ],
                [
                    "the same pairs, one-sided z-test after every pair",
                    str(naive),
                    f"{100 * naive / pairings:.1f}",
                    "–",
                ],
                [
                    f"best of {candidates} null candidates picked on validation, {trials} times",
                    str(best),
                    f"{100 * best / trials:.1f}",
                    "5",
                ],
            ],
        ),
    ]
    publish("A/A", lines)
