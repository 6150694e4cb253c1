"""`whet score`: the runs of a record scored by today's rewards."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from ..errors import InputError
from .named import broken, opened_rewards
from .root import BaseUrl, JudgeModel, Print, Record, command, counted, existing, print_json
from .show import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..judge.scoring import ScoreCount
    from ..types import Trajectory


@command("score")
def score(
    *,
    store: Record,
    reward: tuple[str, ...] = (),
    since: str | None = None,
    experiment: str | None = None,
    dry_run: bool = False,
    judge_model: JudgeModel = None,
    base_url: BaseUrl = None,
    json: Print = False,
) -> int:
    """Score recorded runs by rewards as they are now: whet score --store runs.db --reward exact --reward f1

    Each score is recorded with the version of its reward. After a reward has changed, score again: the scores of its
    earlier version are replaced, and whet report and all that learns from the record have the present ones. A judge
    is asked only about runs that its present version has not scored.

    Parameters
    ----------
    reward
        The name of a built-in reward, such as exact, f1 or tool_use, or module:function. May be repeated.
    since
        Only runs that began then or later: Unix seconds, a date, or a date with a time (ISO 8601).
    experiment
        Only rollouts of this experiment.
    dry_run
        Count, and record nothing.
    """
    from ..judge.base import name_of
    from ..judge.scoring import rescore
    from ..record.store import Store
    from ..types import Usage

    if not reward:
        raise InputError("name at least one reward: --reward exact, or --reward module:function")

    spent: dict[str, Usage] = {}

    async def scored(opened: Store) -> list[ScoreCount]:
        async with AsyncExitStack() as stack:
            rewards = await opened_rewards(
                reward, opened, base_url, stack, judge_model=judge_model, steers=True
            )
            newest = opened.newest()

            def runs() -> Iterator[Trajectory]:
                return opened.trajectories(since=moment(since), experiment=experiment, upto=newest)

            counts = await rescore(opened, rewards, runs=runs, keep=not dry_run)
            spent.update({name_of(judge): getattr(judge, "usage", Usage()) for judge in rewards})
            return counts

    with Store(existing(store)) as opened:
        counts = asyncio.run(scored(opened))
    if json:
        costs = {name: msgspec.to_builtins(usage) for name, usage in spent.items()}
        print_json(
            [
                {**msgspec.to_builtins(count), "mean": count.mean, "usage": costs[count.reward]}
                for count in counts
            ]
        )
        return 0
    for count in counts:
        usage = spent[count.reward]
        tokens = usage.prompt_tokens + usage.output_tokens
        asked = f"; asked in {counted(usage.calls, 'call')}, {tokens:,} tokens" if usage.calls else ""
        print(f"{sentence(count)}{asked}")
    if dry_run:
        print("nothing was recorded: --dry-run")
    return 0


def sentence(count: ScoreCount) -> str:
    """What one reward made of the record."""
    mean = "no run could be judged" if count.mean is None else f"mean {count.mean:.3f} of"
    runs = "" if count.mean is None else f" {counted(count.scored, 'run')}"
    version = f" {count.version[:40]}" if count.version else " (no version)"
    parts = [f"{count.reward}{version}: {mean}{runs}"]
    if count.broke:
        parts.append(broken(count.broke, count.scored, count.broken_by))
    if count.missing:
        said = max(count.unjudged, key=count.unjudged.__getitem__, default="")
        parts.append(f"{count.missing:,} not judged" + (f" ({said})" if said and not count.why else ""))
    for earlier, number in count.earlier.items():
        if number:
            parts.append(f"{counted(number, 'score')} of version {earlier or '(none)'} replaced")
    if count.changed:
        parts.append(f"{counted(count.changed, 'value')} changed")
    if count.why:
        parts.append(f"refused: {count.why}")
    return ", ".join(parts)
