"""`whet tasks`: what workers are to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import cyclopts
import msgspec

from .app import AtLeastOne, Record, app, counted

app.command(cyclopts.App(name="tasks", help="The work that is handed out to workers."))


@app["tasks"].command(name="add")
def add_tasks(
    file: Path,
    /,
    *,
    store: Record,
    mode: Literal["train", "val", "test"] = "train",
    times: AtLeastOne = 1,
    resources: str | None = None,
    max_attempts: AtLeastOne = 3,
    json: bool = False,
) -> int:
    """Record the tasks of a file and queue them, with the server running or not.

    Adding the same file again queues nothing twice; more --times queues what is new.

    Parameters
    ----------
    file
        One task per line, in the published shape or with the fields of a Task.
    store
        The record; made if it does not exist.
    mode
        What the runs are for; it is also the split of a task that names none.
    times
        Runs of each task.
    resources
        Id of the recorded Bundle to run under; what is live when a worker takes the task, if left out.
    max_attempts
        How often a run that fails, or whose worker dies, is tried.
    json
        Print one JSON object: tasks, queued, ids.
    """
    from ..data.tasks import from_jsonl
    from ..errors import InputError
    from ..store import Store
    from ..types import Rollout, Split, digest

    splits = {"train": Split.TRAIN, "val": Split.VALIDATION, "test": Split.GATE}
    tasks = [task if task.split else replace(task, split=splits[mode]) for task in from_jsonl(file)]
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
        raise InputError(f"{file} holds no task; give one as JSON on each line")
    with Store(store) as opened:
        if resources is not None:
            opened.bundle(resources)
        before = opened.count("rollouts")
        opened.add_rollouts(*rollouts)
        queued = opened.count("rollouts") - before
    if json:
        said = {"tasks": len(tasks), "queued": queued, "ids": [each.id for each in rollouts]}
        print(msgspec.json.encode(said).decode())
    else:
        print(f"{store}: {counted(len(tasks), 'task')}, {counted(queued, 'run')} queued for {mode}")
    return 0
