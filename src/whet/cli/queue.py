"""`whet tasks`: the queue of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import cyclopts

from ..errors import InputError
from .root import AtLeastOne, NewRecord, Print, app, counted, listed, print_json, say_redacted
from .table import AS_GUESSED, NamedColumns

tasks_app = cyclopts.App(
    help="Make sets of tasks, see what they cover, and queue tasks for workers.", **listed("tasks")
)
app.command(tasks_app)


@tasks_app.command(name="add")
def add_tasks(
    file: Path,
    /,
    *,
    store: NewRecord,
    mode: Literal["train", "val", "test"] = "train",
    times: AtLeastOne = 1,
    resources: str | None = None,
    max_attempts: AtLeastOne = 3,
    columns: NamedColumns = AS_GUESSED,
    json: Print = False,
) -> int:
    """Record the tasks of a file and queue them, whether or not the server is running.

    Adding the same file again queues nothing twice; with a higher --times it queues the difference.

    Parameters
    ----------
    file
        One task per line, as JSON, in the published format or with the fields of a Task; or a table with an input and
        perhaps the right answer (CSV, JSON, JSON Lines, Parquet; gzipped, too), such as a benchmark's file: WebArena,
        SWE-bench, Mind2Web.
    mode
        Purpose of the runs; also the split of tasks that name none.
    times
        Runs of each task.
    resources
        Id of a recorded Bundle to run under. If omitted, the one that is live when a worker takes the task.
    max_attempts
        Most attempts at a run that fails or whose worker dies.
    """
    from ..record.store import Store
    from ..types import Rollout, Split, digest

    splits = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.GATE}
    tasks = [task if task.split else replace(task, split=splits[mode]) for task in columns.tasks(file) or []]
    rollouts = [
        Rollout(
            id=digest((task.id, mode, resources, number), 24),
            task=task,
            mode=mode,
            resources=resources,
            max_attempts=max_attempts,
        )
        for task in tasks
        for number in range(times)
    ]
    if not tasks:
        raise InputError(f"{file} holds no task: write one per line, as JSON")
    with Store(store) as opened:
        if resources is not None:
            # For its refusal: no worker could run under an id that names no recorded Bundle.
            opened.bundle(resources)
        before = opened.count("rollouts")
        with opened.batch() as batch:
            batch.add_rollouts(*rollouts)
        queued = opened.count("rollouts") - before
    if json:
        ids = [rollout.id for rollout in rollouts]
        print_json({"tasks": len(tasks), "queued": queued, "ids": ids, "redacted": batch.redacted})
    else:
        print(f"{store}: {counted(len(tasks), 'task')}, {counted(queued, 'run')} queued for {mode}")
        say_redacted(batch.redacted)
    return 0
