"""Recorded text-to-SQL episodes as InterCode publishes them, read into trajectories.

A folder holds `ic_spider_dev.json` (the questions with their tables) and `traj/MODEL.json` (what each model did).
`episodes` reads everything that happened; `answers` keeps what a deployed scorer would see: of each episode the
first SELECT that ran and returned something, with its result, and nothing of what came before or after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whet.types import Outcome, Step, Task, Trajectory

TURNS = 10
"""Steps after which an episode was cut off."""
_SELECT = re.compile(r"\s*select\b", re.IGNORECASE)


def tasks(folder: Path) -> dict[int, Task]:
    """The questions by their number; the database is the group."""
    found = {}
    for row in json.loads((folder / "ic_spider_dev.json").read_text(encoding="utf-8")):
        found[row["task_id"]] = Task(
            id=f"sql-{row['task_id']}",
            instruction=row["query"],
            group=row["db"],
            meta={"tables": row["db_tables"], "hardness": row["hardness"]},
        )
    return found


def episodes(folder: Path) -> list[Trajectory]:
    """Every episode of every model, with the grader's reward of each step."""
    known, found = tasks(folder), []
    for path in sorted((folder / "traj").glob("*.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            steps = tuple(_steps(row["turn_history"]))
            good = row["summary"]["max_reward"] == 1
            found.append(
                Trajectory(
                    task=known[row["task_id"]],
                    id=f"{path.stem}-{row['task_id']}",
                    steps=steps,
                    outcome=Outcome.SUCCESS if good else Outcome.FAILURE,
                    started=0.0,
                    meta={"model": path.stem},
                )
            )
    return found


def answers(folder: Path) -> list[Trajectory]:
    """The first SELECT of each episode that ran and returned something, judged by its own reward.

    Episodes whose grader speaks only at the end, on `submit`, are left out: which of their queries it meant is
    known from the end alone.
    """
    found = []
    for episode in episodes(folder):
        if any(step.action == "submit" for step in episode.steps):
            continue
        step = next((step for step in episode.steps if _returned(step)), None)
        if step is not None:
            found.append(
                Trajectory(
                    task=episode.task,
                    id=f"{episode.id}-answer",
                    steps=(Step(observation=step.observation, action=step.action),),
                    output=step.action,
                    outcome=Outcome.SUCCESS if step.reward == 1 else Outcome.FAILURE,
                    started=0.0,
                    meta=episode.meta,
                )
            )
    return found


def _steps(history: dict[str, Any]) -> Iterator[Step]:
    """Actions with what came back; some episodes have one action more, which was never run."""
    for action, seen, reward in zip(
        history["actions"], history["observations"], history["rewards"], strict=False
    ):
        inside = re.fullmatch(r"execute\[(.*)\]", action, re.DOTALL)
        yield Step(
            action=inside[1] if inside else action.strip(),
            observation=seen,
            reward=float(reward),
            kind="tool",
            name="sql",
        )


def _returned(step: Step) -> bool:
    seen = str(step.observation).strip()
    return (
        bool(_SELECT.match(str(step.action)))
        and seen not in ("", "[]", "None")
        and not seen.startswith("Error")
    )
