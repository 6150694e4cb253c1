"""Scoring 100,000 stored trajectories by five rules: runs a second and core, and the memory that it takes.

The record is made of the recorded agents' own runs, and read and scored by what `whet score` calls.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_rows import AbsentData, json_rows, lacks
from newcomers_shell import Noted

from whet.judge import Reward
from whet.judge.scoring import current, rescore
from whet.learn.plugins import load
from whet.record.store import Store
from whet.types import Outcome, Step, Task, Trajectory, Usage

RUNS = 100_000
BAR = 20_000
RULES = ("exact", "number", "contains", "latency", "cost")
FLAT = 1.15
"""Largest peak memory of all the runs, as a multiple of that of a tenth of them."""


def measure(data: Path, folder: Path) -> list[Noted]:
    """Fill a store, then score it: as it is, then with the scores recorded, each in a process of its own."""
    path = folder / "runs.db"
    path.unlink(missing_ok=True)
    began = time.process_time()
    with Store(path) as store:
        recorded = itertools.islice(itertools.cycle(list(_runs(data))), RUNS)
        number = itertools.count()
        while chunk := list(itertools.islice(recorded, 1000)):
            store.put(*(_trajectory(next(number), *row) for row in chunk))
    filled = time.process_time() - began
    reading, counted, few, kept = (
        _alone(path, part, limit)
        for part, limit in (("read", RUNS), ("count", RUNS), ("count", RUNS // 10), ("keep", RUNS))
    )
    noted = [
        Noted("filling the store", {"runs": f"{RUNS:,}", "a second and core": f"{RUNS / filled:,.0f}"}),
        _noted("reading alone", reading),
        _noted(f"scoring by {', '.join(RULES)}", counted),
        _noted("of a tenth of the runs", few),
        _noted("and recording the scores (whet score)", kept),
    ]
    rate, ratio = counted["runs"] / counted["seconds"], counted["megabytes"] / few["megabytes"]
    noted[2].lines = {
        f"{BAR:,} runs a second and core": rate >= BAR,
        f"memory flat: at most {FLAT} times that of a tenth": ratio <= FLAT,
        "every run was scored by every rule, or says why not": counted["answers"]
        == counted["runs"] * len(RULES),
    }
    right, shuffled = counted["right"], counted["shuffled"]
    noted.append(
        Noted(
            "the control: exact, with the answers shuffled among the tasks",
            {"mean": f"{right:.3f}, shuffled {shuffled:.3f}"},
            {"shuffled answers are hardly ever right": shuffled < 0.1 * right},
        )
    )
    return noted


def _noted(name: str, took: dict[str, float]) -> Noted:
    return Noted(
        name,
        {
            "runs": f"{took['runs']:,.0f}",
            "CPU seconds": f"{took['seconds']:.2f}",
            "a second and core": f"{took['runs'] / took['seconds']:,.0f}",
            "peak MB": f"{took['megabytes']:.0f}",
        },
    )


def _alone(path: Path, part: str, limit: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, str(path), part, str(limit)], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _part(path: Path, part: str, limit: int) -> dict[str, float]:
    """One way through the store, all threads of this process counted."""
    rewards: list[Reward] = [load("whet.rewards", name) for name in RULES] if part != "read" else []
    figures = {"runs": 0.0, "answers": 0.0}
    with Store(path) as store:
        began = time.process_time()
        if part == "keep":
            counts = asyncio.run(rescore(store, rewards))
            figures["runs"] = float(limit)
            figures["answers"] = float(sum(count.scored + count.missing for count in counts))
        else:
            for run in current(store.trajectories(limit=limit), rewards):
                figures["runs"] += 1
                figures["answers"] += len(run.scores)
        figures["seconds"] = time.process_time() - began
        figures["megabytes"] = _peak()
        if part == "count":
            figures |= _shuffled(store)
    return figures


def _peak() -> float:
    """Peak memory in megabytes; what `getrusage` says includes that of the process which started this one."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _shuffled(store: Store) -> dict[str, float]:
    """Mean of `exact` over some runs, as they are and with the right answers of other tasks."""
    exact = load("whet.rewards", "exact")
    runs = list(store.trajectories(limit=5000))
    answers = [run.task.answer for run in runs]
    random.Random(0).shuffle(answers)
    means = {}
    for name, right in (("right", [run.task.answer for run in runs]), ("shuffled", answers)):
        judged = [
            exact(Trajectory(task=Task(answer=answer), output=run.output))
            for run, answer in zip(runs, right, strict=True)
        ]
        known = [value for value in judged if value is not None]
        means[name] = sum(known) / len(known)
    return means


def _runs(data: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], Any]]:
    """Agent, its row, its task, and as the right answer the first one that the benchmark's checker passed."""
    place = data / "recorded_agents"
    tasks = {row["id"]: row for row in json_rows(place / "tasks.jsonl.gz", lacks("id")) if row is not None}
    rows = [
        (file.name.partition(".jsonl")[0], row)
        for file in sorted((place / "runs").glob("*.jsonl*"))
        for row in json_rows(file, lacks("id", "success", "answer"))
        if row is not None and row["id"] in tasks
    ]
    if not rows:
        raise AbsentData(f"{place} holds no run of one of its tasks")
    right: dict[str, Any] = {}
    for _, row in rows:
        if row["success"]:
            right.setdefault(row["id"], row["answer"])
    for agent, row in rows:
        yield agent, row, tasks[row["id"]], right.get(row["id"])


def _trajectory(
    number: int, agent: str, row: dict[str, Any], about: dict[str, Any], right: Any
) -> Trajectory:
    question = str(about.get("question") or "")
    # A list of calls is one answer, and not several that are right.
    task = Task(
        instruction=question,
        answer=[right] if isinstance(right, list) else right,
        group=str(about.get("category") or ""),
    )
    step = Step(
        kind="llm",
        observation=[{"role": "user", "text": question}],
        action=row["answer"],
        usage=Usage(int(row.get("input_tokens") or 0), int(row.get("output_tokens") or 0), 0.0, 1),
        latency=row.get("seconds"),
        info={"model": agent},
    )
    return Trajectory(
        task=task,
        id=f"{agent}/{number}",
        steps=(step,),
        output=row["answer"],
        seconds=row.get("seconds"),
        outcome=Outcome.SUCCESS if row["success"] else Outcome.FAILURE,
    )


if __name__ == "__main__":
    print(json.dumps(_part(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
