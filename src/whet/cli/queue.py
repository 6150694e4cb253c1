"""`whet tasks` and `whet resources`: what workers are to do, and with what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import cyclopts
import msgspec

from .app import AtLeastOne, Record, app, content_of, counted

app.command(cyclopts.App(name="tasks", help="The work that is handed out to workers."))
app.command(cyclopts.App(name="resources", help="Snapshots of what work is done with: prompts, knobs."))


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
        Id of the snapshot to run under; what is latest when a worker takes the task, if left out.
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
            opened.resources.get(resources)
        before = opened.count("rollouts")
        opened.add_rollouts(*rollouts)
        queued = opened.count("rollouts") - before
    if json:
        said = {"tasks": len(tasks), "queued": queued, "ids": [each.id for each in rollouts]}
        print(msgspec.json.encode(said).decode())
    else:
        print(f"{store}: {counted(len(tasks), 'task')}, {counted(queued, 'run')} queued for {mode}")
    return 0


@app["resources"].command(name="put")
def put_resource(name: str, file: Path, /, *, store: Record, json: bool = False) -> int:
    """Make a file the latest content of a resource; the others of the latest snapshot stay.

    Parameters
    ----------
    name
        What workers know it by, `system_prompt` for example.
    file
        Its content: JSON if the name ends in .json, else text.
    store
        The record; made if it does not exist.
    json
        Print one JSON object: id, names.
    """
    from ..store import Store

    content = content_of(file)
    with Store(store) as opened:
        latest = opened.resources.latest()
        values = {**(latest[1] if latest else {}), name: content}
        id = opened.resources.put(values)
    if json:
        print(msgspec.json.encode({"id": id, "names": sorted(values)}).decode())
    else:
        print(f"{store}: snapshot {id} of {', '.join(sorted(values))}")
    return 0
