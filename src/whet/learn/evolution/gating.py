"""The gate on rows of a function: those that `whet evolve` recorded, or new ones, called with their arguments.

The function runs in the sandbox, as it stands and with a candidate's text in place, as it does in a search; the
repository is read and never imported.  An agent that takes an instruction is judged by `whet.judge.agent_env`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...judge import Reward
from ...prove.power import power_in_words
from ...prove.selection import dev_tasks
from ...record.columns import ColumnNames
from ...record.rows import numbered
from ...record.store import Store
from ...record.tasks import tasks
from ...sandbox import Pool
from ...types import Bundle, Sampling, Split, Task, Verdict
from ..experiment import Experiment
from .agents.agent import RepositoryAgent
from .agents.candidates import ProgramCodec
from .agents.outside import Inside, Targets
from .search.settings import Settings, modules_of

_TIMEOUT, _MEMORY = 10.0, 1024
"""Seconds and MiB of one call."""
_INSTRUCTION = frozenset(("instruction", "natural_language_instruction"))


def rows_of(
    store: Store, entry: str, data: Path | None, columns: ColumnNames, changed: Collection[str]
) -> list[Task] | Path | None:
    """The rows that judge a function: recorded ones, or where they are; None where an agent is judged, by tasks.

    A folder of `whet generate-training-data` holds rows, and so does a file with a column called `input`.  In one whose
    columns a person named, whatever they are called, they are rows of a function that a search has changed.

    Args:
        data: a file or a folder; the recorded rows if None.
        changed: names of what the Bundles change.

    Raises:
        InputError: a file that cannot be read.
    """
    if data is None:
        return recorded_rows(store, entry) or None
    if columns:
        of_function = len(columns.input) > 1 or _bare(entry) in changed or bool(recorded_rows(store, entry))
    else:
        of_function = data.is_dir() or any(
            "input" in line and _INSTRUCTION.isdisjoint(line) for _, _, line in islice(numbered(data), 1)
        )
    return data if of_function else None


def recorded_rows(store: Store, entry: str) -> list[Task]:
    """The rows with a known answer that a function was judged by in earlier searches and gates.

    Args:
        entry: the function, by its name or as module:function.
    """
    name = _bare(entry)
    runs = (run for run in store.trajectories() if run.task.initial_state.get("function") == name)
    return [task for task in tasks(runs) if "input" in task.initial_state and task.answer_known]


def _bare(entry: str) -> str:
    """The name that rows give a function by."""
    return entry.rpartition(":")[2].split(".")[-1].lower()


async def gate_rows(
    candidates: Mapping[str, Bundle],
    *,
    against: Bundle,
    repository: Path,
    entry: str,
    rows: Sequence[Task] | Path,
    columns: ColumnNames | None = None,
    rewards: Sequence[Reward],
    store: Store,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> Verdict:
    """Compare a Bundle, or the best of several, with another on rows of a function, as `Experiment.gate`.

    Args:
        candidates: by name; of several the best is chosen on some of the rows and judged on the others.
        entry: the function that is called, by its name or as module:function.
        rows: the Tasks of `recorded_rows`, or where rows are. Of a file that names no splits all rows count; those
            that a Version was searched on are left out.
        columns: of a file of rows.
        say: told which columns were guessed, and what so many rows can prove, before anything is run.
        options: of `Experiment.gate`.

    Raises:
        InputError: a function, a row or a Version that cannot be used.
        GateError: there is nothing to compare.
        SandboxError: the sandbox cannot be trusted here, with the fix.
    """
    # What neither Bundle changes stays as it stands.
    names = dict.fromkeys([*against, *(name for bundle in candidates.values() for name in bundle)])
    targets = [entry if name == _bare(entry) else name for name in names] or [entry]
    agent = RepositoryAgent(repository, targets, entry)
    assert agent.entry is not None
    judged = _of_gate(agent, rows, columns, seed, say) if isinstance(rows, Path) else list(rows)
    if say is not None:
        for sentence in power_of_best(judged, len(candidates), options.get("regime", "new-group")):
            say(sentence)
    texts = [text for callee in agent.callees.values() for text in callee.files.values()]
    warm = modules_of(text for text in texts if isinstance(text, str))
    async with AsyncExitStack() as stack:
        pool = Pool(Settings().sandbox(_TIMEOUT, _MEMORY), modules=warm)
        inside = Inside(await stack.enter_async_context(pool))
        reached = [piece for piece in agent.pieces if agent.reaches(agent.entry, piece)]
        env = Targets(
            {agent.entry: agent.target(agent.entry, reached)},
            {agent.entry: inside},
            ProgramCodec.of(agent.pieces),
        )
        experiment = Experiment(
            env=env,
            tasks=judged,
            rewards=rewards,
            seed=seed,
            store=store,
            name=f"gate/{entry}",
            concurrency=1,
        )
        return await gate_of(experiment, candidates, against=against, **options)


async def gate_of(
    experiment: Experiment, candidates: Mapping[str, Bundle], *, against: Bundle, **options: Any
) -> Verdict:
    """The Verdict on one candidate, or on the best of several."""
    if len(candidates) == 1:
        return await experiment.gate(*candidates.values(), against=against, **options)
    return await experiment.gate_best(candidates, against=against, **options)


def power_of_best(rows: Sequence[Task], count: int, regime: Sampling) -> list[str]:
    """Sentences on what the rows that judge can show of the best of so many candidates."""
    units = {task.id: task.group or task.id for task in rows}
    chooses = dev_tasks(units, regime) if count > 1 else set()
    judging = [unit for task, unit in units.items() if task not in chooses]
    sentences = [power_in_words(len(judging), len(set(judging)), regime=regime)]
    if count > 1:
        sentences.insert(
            0,
            f"{len(chooses)} rows choose among {count} candidates, and {len(judging)} others judge the best",
        )
    return sentences


def _of_gate(
    agent: RepositoryAgent,
    data: Path,
    columns: ColumnNames | None,
    seed: int,
    say: Callable[[str], None] | None,
) -> list[Task]:
    """The rows of the gate with a known answer."""
    assert agent.entry is not None
    rows = agent.rows(data, seed=seed, columns=columns, note=say).get(agent.entry, [])
    divided = data.is_dir() or any("split" in line for _, _, line in numbered(data))
    judged = [
        replace(row, split=Split.GATE)
        for row in rows
        if row.answer_known and (row.split is Split.GATE or not divided)
    ]
    if not judged:
        raise InputError(f"{data} holds no row of the gate for {agent.entry} whose right answer is known")
    return judged
