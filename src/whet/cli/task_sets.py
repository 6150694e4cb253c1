"""`whet tasks collect` and `cover`: recorded runs as a set of tasks, and which part of the traffic a set stands for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from .named import known_score
from .queue import tasks_app
from .root import AtLeastOne, Print, Record, counted, existing, print_json
from .task_writing import bias_lines, plain_bias

if TYPE_CHECKING:
    from ..learn.datasets.coverage import CoverageLine, CoverageMap
    from ..learn.datasets.traffic import AskedTraffic, Demand

SHOWN = 60
"""Letters of an example that are shown."""

GroupName = Annotated[
    str | None,
    Parameter(
        help="Entry of a task's meta or initial_state to split by. If omitted, its group, else the session, else the "
        "person."
    ),
]
ScoreName = Annotated[
    str | None,
    Parameter(
        help="A score in [0, 1] that says which runs failed: those under a half. If omitted, their outcomes, else what "
        "people said of them or let show."
    ),
]


@tasks_app.command(name="collect")
def collect_tasks(
    *,
    store: Record,
    output: Path,
    number: AtLeastOne | None = None,
    answered: bool = False,
    group: GroupName = None,
    score: ScoreName = None,
    seed: int = 0,
    json: Print = False,
) -> int:
    """Make a set of tasks of recorded runs: near-duplicates joined, divided into sides, and chosen to stand for most.

    For example: whet tasks collect --store runs.db --output tasks.jsonl --number 50

    The file goes to whet tasks add, whet gate and Experiment. Tasks whose text says the right answer itself are left
    out. The map that is printed says which part of the traffic the set stands for, by what people ask and by the tools
    that are called, and how often each part fails.

    Parameters
    ----------
    output
        File of the tasks, one per line, each with its side, its cluster, and how often it came and failed.
    number
        Tasks in the set: those that together stand for as much of the traffic as can be, failed runs twice. If
        omitted, all.
    answered
        Take only tasks with a known right answer or a checker: those that can be judged.
    seed
        Random seed of clusters and sides.
    """
    from dataclasses import replace

    from ..learn.datasets.clusters import clustered
    from ..learn.datasets.coverage import chosen, coverage
    from ..learn.datasets.splits import leakage
    from ..learn.datasets.traffic import as_tasks, sides
    from ..record.tasks import to_jsonl
    from ..types import Split

    all_traffic = _traffic(store, group, score)
    clustering = clustered([demand.text for demand in all_traffic.demands], seed=seed)
    left_out = {demand.task.id for demand in all_traffic.giveaways}
    if answered:
        left_out |= {demand.task.id for demand in all_traffic.demands if not _judgeable(demand)}
    places = [place for place, demand in enumerate(all_traffic.demands) if demand.task.id not in left_out]
    if not places:
        raise InputError(
            f"none of the {counted(len(all_traffic.demands), 'task')} in {store} can be taken: "
            + ("none has a known right answer or a checker" if answered else "each says its answer itself")
        )
    if number is not None and number < len(places):
        eligible = replace(all_traffic, demands=[all_traffic.demands[place] for place in places])
        own = replace(clustering, vectors=[clustering.vectors[place] for place in places])
        places = [places[pick] for pick in chosen(eligible, number, own, seed=seed)]
    picked = [all_traffic.demands[place] for place in places]
    names = [clustering.clusters[clustering.places[place]].name for place in places]
    written = as_tasks(picked, names, seed=seed)
    to_jsonl(output, written)
    covered = coverage(all_traffic, written, clustering)
    gate = [task for task in written if task.split is Split.GATE]
    shared = leakage([task for task in written if task.split is not Split.GATE], gate)
    if json:
        print_json(
            {
                "output": str(output),
                "tasks": len(written),
                "sides": sides(written),
                "leakage": str(shared),
                **_counts(all_traffic),
                **_plain(covered),
            }
        )
        return 0
    for line in _summary(all_traffic):
        print(line)
    print(
        f"{output}: {counted(len(written), 'task')}, "
        + ", ".join(f"{n} {s}" for s, n in sides(written).items())
    )
    if len(written) < len(picked):
        print(f"  left out {len(picked) - len(written)}: nearly the same as a task of another side")
    print(f"  between the gate and the other sides: {shared}")
    for line in _map(covered):
        print(line)
    return 0


@tasks_app.command(name="cover")
def cover_tasks(
    file: Path,
    /,
    *,
    store: Record,
    group: GroupName = None,
    score: ScoreName = None,
    seed: int = 0,
    json: Print = False,
) -> int:
    """Show which part of the traffic a set of tasks stands for: by what people ask, and by the tools that are called.

    For example: whet tasks cover tasks.jsonl --store runs.db

    Exits 1 where a cluster of what people ask, or a tool, is missing in the set. How tasks of the set that nobody asked
    (whet tasks write, whet tasks vary) differ from what people ask is told beside it, with how often the agent succeeds
    on either.

    Parameters
    ----------
    file
        Tasks: one per line as JSON, or a table of rows.
    seed
        Random seed of the clusters.
    """
    from ..learn.datasets.bias import generator_bias
    from ..learn.datasets.clusters import clustered
    from ..learn.datasets.coverage import coverage
    from ..learn.datasets.traffic import is_synthetic
    from ..record.tasks import from_jsonl

    tasks = from_jsonl(file)
    all_traffic = _traffic(store, group, score)
    clustering = clustered([demand.text for demand in all_traffic.demands], seed=seed)
    covered = coverage(all_traffic, tasks, clustering)
    synthetic = [task for task in tasks if is_synthetic(task)]
    asked = [demand.task for demand in all_traffic.demands]
    bias = generator_bias(asked, synthetic, successes=all_traffic.successes, seed=seed)
    if json:
        fields = {**_counts(all_traffic), **_plain(covered)}
        print_json({"tasks": len(tasks), **fields, "bias": None if bias is None else plain_bias(bias)})
    else:
        for line in (*_summary(all_traffic), f"{file}: {counted(len(tasks), 'task')}", *_map(covered)):
            print(line)
        for line in bias_lines(bias, len(asked), len(synthetic)) if synthetic else ():
            print(line)
    return int(any(line.state == "missing" for line in (*covered.clusters, *covered.tools)))


def _traffic(store: Path, group: str | None, score: str | None) -> AskedTraffic:
    from ..learn.datasets.traffic import traffic
    from ..record.store import Store

    with Store(existing(store)) as opened:
        known_score(opened, score)
        all_traffic = traffic(opened, group=group, score=score)
    if not all_traffic.demands:
        raise NotFoundError(
            f"{store} holds {counted(all_traffic.runs, 'run')}, and none with a text: record the agent with whet run "
            "or whet.trace first"
        )
    return all_traffic


def _judgeable(demand: Demand) -> bool:
    return demand.task.answer_known or demand.task.success_checker is not None


def _counts(traffic: AskedTraffic) -> dict[str, Any]:
    return {
        "runs": traffic.runs,
        "distinct": traffic.distinct,
        "joined": sum(len(demand.joined) for demand in traffic.demands),
        "wordless": traffic.wordless,
        "giveaways": [demand.task.id for demand in traffic.giveaways],
    }


def _plain(covered: CoverageMap) -> dict[str, Any]:
    def line(of: CoverageLine) -> dict[str, Any]:
        return {**msgspec.to_builtins(of), "rate": of.rate, "interval": of.interval}

    fields = msgspec.to_builtins(covered)
    return {**fields, "clusters": list(map(line, covered.clusters)), "tools": list(map(line, covered.tools))}


def _summary(traffic: AskedTraffic) -> Iterator[str]:
    joined = sum(len(demand.joined) for demand in traffic.demands)
    yield (
        f"{counted(traffic.runs, 'run')} of {counted(traffic.distinct, 'task')}, {joined} of them nearly repeating "
        "another"
    )
    if traffic.wordless:
        yield f"  {counted(traffic.wordless, 'run')} without a text: nothing can be said of them"
    giveaways = traffic.giveaways
    if giveaways:
        example = " ".join(giveaways[0].text.split())[:SHOWN]
        yield f"  left out {len(giveaways)}: the text says the right answer itself, for instance {example!r}"


def _map(covered: CoverageMap) -> Iterator[str]:
    wrong = "" if covered.covered_wrong is None else f" and {covered.covered_wrong:.0%} of the failed ones"
    yield (
        f"the set stands for {covered.covered:.0%} of the runs{wrong}; a run and its nearest task are "
        f"{covered.likeness:.2f} alike on average"
    )
    if covered.outside:
        yield f"  {counted(covered.outside, 'task')} share no word with the traffic"
    yield from _table("what people ask", covered.clusters)
    if covered.tools:
        yield from _table("tools", covered.tools)


def _table(title: str, lines: Sequence[CoverageLine]) -> Iterator[str]:
    yield f"{title:36}{'runs':>8}{'failed':>22}{'tasks':>7}{'judgeable':>11}  state"
    for line in lines:
        failed = "unknown"
        if line.rate is not None:
            low, high = line.interval
            failed = f"{line.rate:.0%} [{low:.0%}, {high:.0%}]"
        name = " ".join(line.name.split())[:34]
        yield f"  {name:34}{line.share:>8.0%}{failed:>22}{line.tasks:>7}{line.answered:>11}  {line.state}"
        if line.state == "missing" and line.example:
            yield f"    for instance {' '.join(line.example.split())[:SHOWN]!r}"
