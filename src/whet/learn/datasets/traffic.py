"""What an agent is asked in production: recorded runs as distinct tasks, with how often each came and how it went.

Tasks that nearly repeat each other are one where nothing tells them apart: the same start, the same checker, the same
numbers and no two different answers.  How often they came is kept, so a rare question does not look like a frequent
one.
`coverage.py` says which part of it a set of tasks stands for, and chooses one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from ...record.rows import as_text
from ...record.store import Store
from ...record.tasks import GroupKey, HasTrajectories, tasks
from ...record.tracing.signals import hear, telling
from ...record.tracing.tool_calls import tool_calls
from ...types import Json, Outcome, Split, Task, Trajectory, canonical
from .division import divide
from .near import Near, normalised
from .refining import SAME, gives_away

GUIDED = "guided"
"""`meta["provenance"]["how"]` of a run that was made with a guide at hand (`learn.guided`)."""
SYNTHETIC = frozenset({"written", "varied", "generated", "model"})
"""`meta["provenance"]["how"]` of tasks that nobody asked."""
_NUMBER = re.compile(r"\d+")
GOOD = 0.5
"""A score from which on a run went well."""


def _how(meta: Mapping[str, Json]) -> Json:
    provenance = meta.get("provenance")
    return provenance.get("how") if isinstance(provenance, Mapping) else None


def is_synthetic(task: Task) -> bool:
    """True for a task that nobody asked."""
    return _how(task.meta) in SYNTHETIC


def went_wrong(run: Trajectory, score: str | None = None) -> bool | None:
    """Whether a run failed: by a score, else its outcome, else what people said of it or let show; None if unknown.

    Args:
        score: name of a score in [0, 1]; without it the outcome speaks.
    """
    if score is not None:
        value = run.score(score)
        return None if value is None else value < GOOD
    if run.outcome.counts:
        return run.outcome is not Outcome.SUCCESS
    if run.outcome is Outcome.INFRASTRUCTURE_ERROR:
        return None
    if run.error is not None:
        return True
    values = [note.value for note in telling(run.feedback) if note.value is not None]
    return fmean(values) <= 0 if values else None


@dataclass(frozen=True, slots=True)
class Demand:
    """One task of the traffic."""

    task: Task
    """With `meta["trajectories"]`, the ids of its runs."""
    text: str
    runs: int
    judged: int
    """Runs of which it is known whether they failed."""
    wrong: int
    tools: Mapping[str, int]
    """Tool → runs that called it."""
    joined: Sequence[str] = ()
    """Ids of the tasks that nearly repeat it and are counted here."""


@dataclass(frozen=True, slots=True)
class AskedTraffic:
    """The tasks behind recorded runs, without those that nobody asked."""

    demands: Sequence[Demand]
    """The most frequent first."""
    runs: int
    distinct: int
    """Tasks before near-duplicates were joined."""
    wordless: int
    """Runs without a text, which nothing can be said of."""
    wrong_by_tool: Mapping[str, tuple[int, int]]
    """Tool → runs that called it and were judged, and how many of them failed."""
    synthetic: Mapping[str, Sequence[bool]]
    """Id of a task that nobody asked → whether each of its judged runs succeeded. They are no traffic."""

    @property
    def successes(self) -> dict[str, Sequence[bool]]:
        """Id of a task, asked or synthetic → whether each of its judged runs succeeded."""
        of_asked = {
            demand.task.id: [True] * (demand.judged - demand.wrong) + [False] * demand.wrong
            for demand in self.demands
        }
        return {**of_asked, **self.synthetic}

    @property
    def giveaways(self) -> list[Demand]:
        """Tasks whose text says the right answer itself: they measure reading and no work."""
        return [demand for demand in self.demands if gives_away(demand.text, demand.task)]


@dataclass(frozen=True, slots=True)
class _RunFacts:
    wrong: bool | None
    tools: frozenset[str]


def text_of(task: Task) -> str:
    """The text of a task: its instruction, or what its start says where it has none."""
    if task.instruction.strip() or not task.initial_state:
        return task.instruction
    return as_text(task.initial_state.get("input", dict(task.initial_state)))


def traffic(
    source: HasTrajectories | Iterable[Trajectory],
    *,
    group: GroupKey | str | None = None,
    score: str | None = None,
) -> AskedTraffic:
    """The tasks behind recorded runs, near-duplicates joined.

    Args:
        source: a Store, or trajectories with their feedback.
        group: as `whet.tasks` takes it.
        score: name of the score in [0, 1] that says which runs failed.

    Raises:
        InputError: `group` names an entry that a task lacks.
    """
    if isinstance(source, Store):
        hear(source)
    facts: dict[str, _RunFacts] = {}
    synthetic: dict[str, list[bool]] = {}

    def passing() -> Iterator[Trajectory]:
        for run in source.trajectories() if hasattr(source, "trajectories") else source:
            if _how(run.meta) == GUIDED:
                continue
            if is_synthetic(run.task):
                if (wrong := went_wrong(run, score)) is not None:
                    synthetic.setdefault(run.task.id, []).append(not wrong)
                continue
            names = frozenset(call.name for call in tool_calls(run) if call.name is not None)
            facts[run.id] = _RunFacts(went_wrong(run, score), names)
            yield run

    distinct = tasks(passing(), group=group)
    demands = [_demand(task, facts) for task in distinct]
    worded = [demand for demand in demands if normalised(demand.text)]
    by_tool: dict[str, tuple[int, int]] = {}
    for fact in facts.values():
        if fact.wrong is None:
            continue
        for tool in fact.tools:
            judged, failed = by_tool.get(tool, (0, 0))
            by_tool[tool] = judged + 1, failed + fact.wrong
    return AskedTraffic(
        sorted(_joined(worded), key=lambda demand: (-demand.runs, demand.task.id)),
        runs=len(facts),
        distinct=len(distinct),
        wordless=sum(demand.runs for demand in demands) - sum(demand.runs for demand in worded),
        wrong_by_tool=by_tool,
        synthetic=synthetic,
    )


def _demand(task: Task, facts: Mapping[str, _RunFacts]) -> Demand:
    runs = [facts[id] for id in task.meta["trajectories"]]
    judged = [run.wrong for run in runs if run.wrong is not None]
    tools = Counter(chain.from_iterable(run.tools for run in runs))
    return Demand(task, text_of(task), len(runs), len(judged), sum(judged), tools)


def _joined(demands: Sequence[Demand]) -> list[Demand]:
    """Near-duplicates that nothing tells apart as one, which is the one with an answer, else the most frequent."""
    order = sorted(
        range(len(demands)),
        key=lambda item: (not demands[item].task.answer_known, -demands[item].runs, item),
    )
    index = Near([normalised(demand.text) for demand in demands], SAME)
    kinds = [_kind(demand) for demand in demands]
    joined_items: set[int] = set()
    joined: list[Demand] = []
    for item in order:
        if item in joined_items:
            continue
        joined_items.add(item)
        demand = demands[item]
        for neighbour, _ in index.of(normalised(demand.text)):
            if (
                neighbour in joined_items
                or kinds[neighbour] != kinds[item]
                or not _agree(demand.task, demands[neighbour].task)
            ):
                continue
            joined_items.add(neighbour)
            demand = _together(demand, demands[neighbour])
        joined.append(demand)
    return joined


def _kind(demand: Demand) -> Hashable:
    """What near-duplicates have in common."""
    start = dict(demand.task.initial_state)
    if demand.text != demand.task.instruction:
        start = {}  # the text is the start itself
    return canonical(start), demand.task.success_checker, tuple(_NUMBER.findall(demand.text))


def _agree(task: Task, neighbour: Task) -> bool:
    if not (task.answer_known and neighbour.answer_known):
        return True
    return normalised(as_text(task.answer)) == normalised(as_text(neighbour.answer))


def _together(demand: Demand, neighbour: Demand) -> Demand:
    ids = [*demand.task.meta["trajectories"], *neighbour.task.meta["trajectories"]]
    return replace(
        demand,
        task=replace(demand.task, meta={**demand.task.meta, "trajectories": ids}),
        runs=demand.runs + neighbour.runs,
        judged=demand.judged + neighbour.judged,
        wrong=demand.wrong + neighbour.wrong,
        tools=Counter(demand.tools) + Counter(neighbour.tools),
        joined=[*demand.joined, neighbour.task.id],
    )


def as_tasks(demands: Sequence[Demand], names: Sequence[str], *, seed: int = 0) -> list[Task]:
    """Demands as tasks to write: with their sides, and in `meta` what the traffic says of them.

    Near-duplicates that were told apart lie on one side, or are left out (`division.divide`).

    Args:
        names: the cluster of each.
    """
    divided = divide(
        [
            replace(
                demand.task,
                meta={
                    **demand.task.meta,
                    "cluster": name,
                    "runs": demand.runs,
                    "failed": demand.wrong,
                    "judged": demand.judged,
                    "tools": sorted(demand.tools),
                    "joined": list(demand.joined),
                    "provenance": {"how": "recorded", "runs": list(demand.task.meta["trajectories"])[:5]},
                },
            )
            for demand, name in zip(demands, names, strict=True)
        ],
        seed=seed,
    )
    return divided.tasks


def sides(written: Iterable[Task]) -> dict[str, int]:
    """Split → tasks."""
    counts = Counter(task.split for task in written)
    return {side.value: counts[side] for side in Split}
