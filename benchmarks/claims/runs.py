"""Runs of the main job as processes of their own, and what their stores say about each question."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from whet import Store
from whet.prove.gate import TaskResult
from whet.types import Trajectory
from whet.worlds.demo.scoring import rubric_of

COMMAND = [sys.executable, "-m", "whet", "demo", "--json"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one agent did on one question."""

    question: str
    """Mailbox, fact and tier: equal in all seeds that ask for the same."""
    mailbox: str
    tier: str
    answerable: bool
    success: float
    hallucination: float
    unknown: float
    turns: float


Table = Mapping[str, Mapping[str, Row]]
"""Agent → task id → Row."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One job that has ended."""

    seed: int
    fold: int | None
    report: Mapping[str, Any]
    table: Table
    seconds: float
    peak: float
    """Memory of all its processes at most, GB, what they share counted once; 0 where it was not measured."""


def run_all(
    jobs: Sequence[tuple[int, int | None]], *, folder: Path, mail: Path | None, parallel: int, reuse: bool
) -> list[Ran]:
    """Run the job for each (seed, fold), `parallel` at once.

    Raises:
        subprocess.CalledProcessError: a job failed; its log lies in its folder.
    """

    def one(job: tuple[int, int | None]) -> Ran:
        seed, fold = job
        output = folder / f"seed{seed}{'' if fold is None else f'-fold{fold}'}"
        peak = 0.0
        if not (reuse and (output / "figures.json").exists()):
            options = ["--seed", str(seed), "--output", str(output)]
            options += [] if mail is None else ["--mail", str(mail)]
            options += [] if fold is None else ["--fold", str(fold)]
            peak = _run(options, output)
        print(f"seed {seed}, fold {fold}: done in {output}", file=sys.stderr, flush=True)
        return replace(read(output), seed=seed, fold=fold, peak=peak)

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(one, jobs))


def _run(options: Sequence[str], output: Path) -> float:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    written = output / "figures.json"
    peak = 0.0
    with (output / "figures.part").open("wb") as out, (output / "log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, *options], stdout=out, stderr=log)
        while process.poll() is None:
            peak = max(peak, sum(_resident(pid) for pid in _family(process.pid)))
            time.sleep(0.5)
    if process.returncode:
        print((output / "log").read_text()[-2000:], file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, process.args)
    (output / "figures.part").rename(written)
    return peak / 1e6


def _family(pid: int) -> list[int]:
    """A process and all that it started; Linux alone says, elsewhere nothing is measured."""
    found = [pid]
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            found += [one for child in listed.read_text().split() for one in _family(int(child))]
    return found


def _resident(pid: int) -> int:
    """Kilobytes, of a page that several processes hold only this one's share."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def read(output: Path) -> Ran:
    """What a finished job left in its folder."""
    with Store(output / "whet.db") as store:
        name = store.state("demo/last")["name"]
        report = store.state(f"{name}/report")
        runs = list(store.trajectories(experiment=f"{name}/gate"))
    by_bundle: dict[str, dict[str, Row]] = {}
    for run in runs:
        by_bundle.setdefault(_key(run.versions), {})[run.task.id] = _row(run)
    table = {agent: by_bundle[_key(ids)] for agent, ids in report["bundles"].items()}
    table["released"] = table[report["released"]]
    printed = msgspec.json.decode((output / "figures.json").read_bytes())
    assert printed["stages"] == report["stages"], f"{output}: the store's figures are not those printed"
    return Ran(
        seed=report["seed"], fold=None, report=report, table=table, seconds=report["seconds"], peak=0.0
    )


def _key(versions: Mapping[str, str]) -> str:
    return "/".join(f"{resource}={id}" for resource, id in sorted(versions.items()))


def _row(run: Trajectory) -> Row:
    rubric = rubric_of(run)
    if rubric is None:  # it broke before it ended: no success, and nothing was said
        return Row(
            question=_question(run),
            mailbox=run.task.group,
            tier=run.task.meta["tier"],
            answerable=run.task.answer is not None,
            success=0.0,
            hallucination=0.0,
            unknown=0.0,
            turns=float(len(run.steps)),
        )
    return Row(
        question=_question(run),
        mailbox=run.task.group,
        tier=run.task.meta["tier"],
        answerable=rubric.answerable,
        success=float(rubric.success),
        hallucination=float(rubric.hallucination),
        unknown=float(rubric.returned_unknown),
        turns=float(rubric.turns),
    )


def _question(run: Trajectory) -> str:
    meta = run.task.meta
    return f"{run.task.group}/{meta['fact']}/{meta['tier']}/{meta['unanswerable']}"


def pooled(runs: Sequence[Ran]) -> dict[str, dict[str, Row]]:
    """The folds of one seed as one table, each question once.

    Raises:
        ValueError: two folds judged the same question.
    """
    tables: dict[str, dict[str, Row]] = {}
    for agent in set.intersection(*(set(run.table) for run in runs)):
        rows = tables.setdefault(agent, {})
        for run in runs:
            if rows.keys() & run.table[agent].keys():
                raise ValueError(f"two folds of seed {run.seed} judged the same question")
            rows |= run.table[agent]
    return tables


def averaged(tables: Sequence[Table], *, apart: bool) -> dict[str, list[TaskResult]]:
    """Agent → one Result per distinct question, the mean over the seeds that asked it.

    Args:
        apart: the seeds are different worlds (synthetic mail), so nothing is the same question.
    """
    found: dict[str, list[TaskResult]] = {}
    for agent in sorted(set.intersection(*(set(table) for table in tables))):
        gathered: dict[str, list[tuple[str, float]]] = {}
        for number, table in enumerate(tables):
            for row in table[agent].values():
                world = f"{number}:" if apart else ""
                gathered.setdefault(world + row.question, []).append((world + row.mailbox, row.success))
        found[agent] = [
            TaskResult(
                task=task, group=rows[0][0], scores={"success": sum(value for _, value in rows) / len(rows)}
            )
            for task, rows in sorted(gathered.items())
        ]
    return found


def results(rows: Mapping[str, Row]) -> list[TaskResult]:
    """One seed's rows as the gate takes them."""
    return [
        TaskResult(task=task, group=row.mailbox, scores={"success": row.success})
        for task, row in sorted(rows.items())
    ]
