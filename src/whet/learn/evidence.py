"""The recorded runs of an experiment's train tasks: the evidence of learners that ask for no rollouts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..record.store import Store
from ..types import Bundle, Group, Outcome, Score, Task, Trajectory, Version
from .episodes import Episodes
from .loop import Optimizer

COLLECTED = "collect"
"""Phase of the runs that `Experiment.collect` makes; runs that compare two candidates have another."""


def takes_records(optimizer: Optimizer) -> bool:
    """True if it learns from whatever groups there are and asks for no fresh ones."""
    return optimizer.group_size == 0 and getattr(optimizer, "takes_groups", True)


class Evidence:
    """The recorded runs of tasks, scored by an experiment's rewards.

    Args:
        episodes: whose store, rewards and name they are.
    """

    def __init__(self, episodes: Episodes) -> None:
        self._episodes = episodes
        # A judge is paid for: it is asked once about a run, until the run gets more feedback.
        self._judged: dict[tuple[str, str, int], tuple[Outcome, dict[str, Score]]] = {}

    async def of(self, tasks: Sequence[Task]) -> list[Group]:
        """One Group for each task that has runs, in the order of the tasks; [] without a store.

        The runs of a task are those that it was read from (`meta["trajectories"]`, as `whet.tasks` puts it), and of
        a task that names none those that `collect` recorded.
        """
        store = self._episodes.store
        if store is None:
            return []
        named = {task.id: _named(task) for task in tasks}
        collected: dict[str, list[Trajectory]] = {task.id: [] for task in tasks if not named[task.id]}
        if collected:
            for run in store.trajectories(experiment=f"{self._episodes.name}/{COLLECTED}"):
                if run.task.id in collected:
                    collected[run.task.id].append(run)
        groups = []
        for task in tasks:
            ids = named[task.id]
            runs: Iterable[Trajectory] = store.trajectories(ids=ids) if ids else collected[task.id]
            # The task of now, not the recorded one: its answer holds the corrections made since.
            scored = [await self._scored(replace(run, task=task)) for run in runs]
            if scored:
                groups.append(Group(task, tuple(scored)))
        return groups

    async def _scored(self, run: Trajectory) -> Trajectory:
        key = (run.id, run.task.id, len(run.feedback))
        if key in self._judged:
            outcome, scores = self._judged[key]
            return replace(run, outcome=outcome, scores=scores)
        scored = await self._episodes.scored(run)
        # A missing Score is asked for again: the model that judges may have been down, or the reward is one of groups.
        if all(score.value is not None for score in scored.scores.values()):
            self._judged[key] = (scored.outcome, dict(scored.scores))
        return scored


def learned_from(bundle: Bundle, tasks: Sequence[Task], store: Store | None) -> set[str]:
    """Ids of the tasks that the Versions of a Bundle learned from, with all tasks of their groups.

    The runs that a Version was made from stand in its `meta["data"]` (`record.lineage`), whoever made it: `whet train`
    does not know the split of a later experiment. A search over rows leaves no runs; the ids of its rows stand in
    `meta["rows"]`.
    """
    runs = {run for version in bundle.values() for run in _ids(version, "data")}
    task_ids = {row for version in bundle.values() for row in _ids(version, "rows")}
    if not runs and not task_ids:
        return set()
    if runs and store is not None:
        task_ids |= {run.task.id for run in store.trajectories(ids=sorted(runs))}
    learned = [task for task in tasks if task.id in task_ids or runs.intersection(_named(task))]
    groups = {task.group for task in learned if task.group}
    return {task.id for task in learned} | {task.id for task in tasks if task.group in groups}


def _ids(version: Version, key: str) -> Sequence[str]:
    ids = version.meta.get(key)
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list | tuple) else ()


def _named(task: Task) -> list[str]:
    return [id for id in task.meta.get("trajectories") or () if isinstance(id, str)]
