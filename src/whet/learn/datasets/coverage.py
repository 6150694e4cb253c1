"""Which part of the traffic a set of tasks stands for, and the smallest set that stands for most of it.

A map has a line for each cluster of what users ask and for each tool: its share of the runs, how many of them failed,
and how many tasks of the set are about it.  A set is chosen by greedy facility location (each run counts by how like
it the nearest chosen task is; Nemhauser et al. 1978 bound the loss of being greedy by 37 %), with something on top for
a tool that no chosen task calls yet.  A map says where nothing is measured; that a covered cluster is measured well it
does not say.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...judge.vectors import Vector
from ...stats import Interval, wilson
from ...types import Task
from .clusters import Clustering, clustered
from .near import Near, normalised
from .traffic import AskedTraffic, Demand, text_of

THIN = 0.5
"""Part of its share of the traffic that a cluster needs in the set; with less it is thin."""
_CANDIDATES = 3_000
"""Tasks that a set is chosen from, drawn by how often they came where there are more."""
_WORDS = 12
"""Telling words of a text by which likeness is measured when a set is chosen."""
_TOOL = 0.5
"""What a tool is worth, by its share of the runs, beside the likeness of all runs."""


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """One cluster, or one tool."""

    name: str
    runs: int
    share: float
    """Of all runs."""
    judged: int
    wrong: int
    tasks: int
    """Of the set."""
    answered: int
    """Of these with a known right answer or a checker."""
    state: str
    """`covered`, `thin`, or `missing`."""
    example: str = ""
    """Its most frequent text; "" for a tool."""

    @property
    def rate(self) -> float | None:
        """Share of its judged runs that failed; None of none."""
        return self.wrong / self.judged if self.judged else None

    @property
    def interval(self) -> Interval:
        """Wilson's 95 % interval of that rate."""
        return wilson(self.wrong, self.judged)


@dataclass(frozen=True, slots=True)
class CoverageMap:
    """A set of tasks beside the traffic."""

    clusters: Sequence[CoverageLine]
    tools: Sequence[CoverageLine]
    outside: int
    """Tasks of the set that have no word in common with the traffic."""
    covered: float
    """Share of the runs whose cluster has a task."""
    covered_wrong: float | None
    """Share of the failed runs whose cluster has a task; None where none is known to have failed."""
    likeness: float
    """Mean over runs of the cosine between what was asked and the nearest task of the set."""


def coverage(
    traffic: AskedTraffic, tasks: Sequence[Task], clustering: Clustering | None = None
) -> CoverageMap:
    """The map of a set of tasks.

    Args:
        clustering: of the traffic's texts, in their order; made if None.
    """
    demands = traffic.demands
    clustering = clustering or clustered([demand.text for demand in demands])
    homes = [clustering.nearest(text_of(task)) for task in tasks]
    by_cluster: dict[int, list[Task]] = defaultdict(list)
    for task, home in zip(tasks, homes, strict=True):
        if home is not None:
            by_cluster[home].append(task)
    total, inside = max(1, traffic.runs - traffic.wordless), sum(home is not None for home in homes)
    lines = []
    for number, cluster in enumerate(clustering.clusters):
        own = [demands[item] for item in cluster.members]
        lines.append(_line(cluster.name, own, by_cluster[number], total, inside))
    wrong = sum(line.wrong for line in lines)
    return CoverageMap(
        lines,
        _tool_lines(traffic, tasks),
        outside=len(tasks) - inside,
        covered=sum(line.runs for line in lines if line.tasks) / total,
        covered_wrong=sum(line.wrong for line in lines if line.tasks) / wrong if wrong else None,
        likeness=_likeness(demands, clustering, tasks),
    )


def _line(name: str, own: Sequence[Demand], tasks: Sequence[Task], total: int, inside: int) -> CoverageLine:
    runs = sum(demand.runs for demand in own)
    state = "missing" if not tasks else "covered"
    if tasks and len(tasks) / max(1, inside) < THIN * runs / total:
        state = "thin"
    return CoverageLine(
        name,
        runs=runs,
        share=runs / total,
        judged=sum(demand.judged for demand in own),
        wrong=sum(demand.wrong for demand in own),
        tasks=len(tasks),
        answered=sum(_answered(task) for task in tasks),
        state=state,
        example=max(own, key=lambda demand: demand.runs).text if own else "",
    )


def _answered(task: Task) -> bool:
    return task.answer_known or task.success_checker is not None


def tools_of(tasks: Sequence[Task], demands: Sequence[Demand]) -> list[set[str]]:
    """The tools that each task exercises: required ones and those of its runs, else those of its nearest traffic."""
    index = Near([normalised(demand.text) for demand in demands])
    exercised = []
    for task in tasks:
        required = task.meta.get("required_calls") or ()
        names = {str(call["name"]) for call in required if isinstance(call, Mapping) and "name" in call}
        names |= {str(tool) for tool in task.meta.get("tools") or ()}
        if not names:
            near = sorted(index.of(normalised(text_of(task))), key=lambda pair: -pair[1])[:1]
            names = {tool for item, _ in near for tool in demands[item].tools}
        exercised.append(names)
    return exercised


def _tool_lines(traffic: AskedTraffic, tasks: Sequence[Task]) -> list[CoverageLine]:
    exercised = tools_of(tasks, traffic.demands)
    runs: Counter[str] = Counter()
    for demand in traffic.demands:
        runs.update(demand.tools)
    lines = []
    for tool, count in sorted(runs.items(), key=lambda pair: (-pair[1], pair[0])):
        own = [task for task, tools in zip(tasks, exercised, strict=True) if tool in tools]
        judged, wrong = traffic.wrong_by_tool.get(tool, (0, 0))
        lines.append(
            CoverageLine(
                tool,
                runs=count,
                share=count / max(1, traffic.runs),
                judged=judged,
                wrong=wrong,
                tasks=len(own),
                answered=sum(map(_answered, own)),
                state="covered" if own else "missing",
            )
        )
    return lines


def _likeness(demands: Sequence[Demand], clustering: Clustering, tasks: Sequence[Task]) -> float:
    index = _Likeness(clustering.vectors)
    nearest = [0.0] * len(demands)
    for task in tasks:
        for item, likeness in index.of(clustering.vector(text_of(task))).items():
            nearest[item] = max(nearest[item], likeness)
    total = sum(demand.runs for demand in demands)
    return sum(demand.runs * near for demand, near in zip(demands, nearest, strict=True)) / max(1, total)


class _Likeness:
    """Which texts are how like a text, by their most telling words."""

    def __init__(self, vectors: Sequence[Vector]) -> None:
        self._holders: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for item, vector in enumerate(vectors):
            for word, weight in _telling(vector):
                self._holders[word].append((item, weight))

    def of(self, vector: Vector) -> dict[int, float]:
        """Place → cosine, at most 1."""
        likeness: defaultdict[int, float] = defaultdict(float)
        for word, weight in _telling(vector):
            for item, own in self._holders.get(word, ()):
                likeness[item] += weight * own
        return {item: min(1.0, value) for item, value in likeness.items()}


def _telling(vector: Vector) -> list[tuple[str, float]]:
    return sorted(vector.items(), key=lambda pair: (-pair[1], pair[0]))[:_WORDS]


def chosen(traffic: AskedTraffic, count: int, clustering: Clustering, *, seed: int = 0) -> list[int]:
    """Places of so many demands that together stand for as much of the traffic as can be, the most telling first.

    Failed runs count twice: what goes wrong is what a set has to show.
    """
    demands = traffic.demands
    weights = [demand.runs + demand.wrong for demand in demands]
    candidates = list(range(len(demands)))
    if len(candidates) > _CANDIDATES:
        rng = random.Random(f"chosen:{seed}")
        drawn = sorted(candidates, key=lambda item: rng.random() ** (1 / weights[item]), reverse=True)
        candidates = drawn[:_CANDIDATES]
    total = sum(weights)
    runs = sum(demand.runs for demand in demands)
    tool_runs: Counter[str] = Counter()
    for demand in demands:
        tool_runs.update(demand.tools)
    index, nearest, used = _Likeness(clustering.vectors), [0.0] * len(demands), set[str]()

    def gain(item: int) -> float:
        likeness = index.of(clustering.vectors[item])
        better = sum(
            weights[neighbour] * (near - nearest[neighbour])
            for neighbour, near in likeness.items()
            if near > nearest[neighbour]
        )
        tools = sum(tool_runs[tool] for tool in demands[item].tools if tool not in used)
        return better / total + _TOOL * tools / runs

    # Lazily (Minoux 1978): what a task adds only shrinks, so an old figure is a bound.
    heap = [(-gain(item), item) for item in candidates]
    heapq.heapify(heap)
    picked: list[int] = []
    while heap and len(picked) < count:
        _, item = heapq.heappop(heap)
        fresh = gain(item)
        if heap and fresh < -heap[0][0] - 1e-12:
            heapq.heappush(heap, (-fresh, item))
            continue
        picked.append(item)
        used.update(demands[item].tools)
        for neighbour, near in index.of(clustering.vectors[item]).items():
            nearest[neighbour] = max(nearest[neighbour], near)
    return picked
