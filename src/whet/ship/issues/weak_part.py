"""Which part of the agent a slice of failures is put down to, by what its runs share and what others do not.

It is a reading of the record, and says how sure it is: what a trace cannot tell apart, a tool that is wrong each time
from a prompt that lacks a rule, a person or a replay with one thing changed has to (`autopilot/shipping.py`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...record.store.issues import Component
from ...record.tracing.tool_calls import tool_calls
from ...types import LLM, Trajectory
from .failing import BLOCKED, SECONDS, TOKENS
from .marks import (
    AGENT,
    ARGUMENT,
    CHOICE,
    ENDED,
    ERROR,
    LONGEST,
    MODEL,
    NO_TOOL,
    RESULT,
    SINCE,
    STOPPED,
    SYSTEM,
    TOOL_MARK,
    VERSION,
    RunMark,
)
from .timing import Timing

KINDS = {
    "prompt": Component.PROMPT,
    "function": Component.TOOL,
    "router": Component.ROUTE,
    "memory": Component.MEMORY,
    "value": Component.MODEL,
    "head": Component.MODEL,
    "adapter": Component.MODEL,
    "weights": Component.MODEL,
    "files": Component.DATA,
}
"""Kind of a Version → the part that it is."""
_UNREACHED = re.compile(
    r"\b(?:5\d\d|429|408)\b|time[d ]*out|unavailable|unreachable|connection|rate.?limit|overload|refused|gateway",
    re.IGNORECASE,
)
_REMEMBERED = re.compile(
    r"\b(known|memory|memories|remember\w*|recall\w*|history|profile|preference\w*|facts?)\b", re.IGNORECASE
)
_ROUTED = re.compile(
    r"\b(rout\w*|desk|intent|agent|plan|planner|handoff|transfer\w*|department)\b", re.IGNORECASE
)
_FACT = re.compile(r"^[^A-Za-z]*(?P<name>[A-Za-z][\w '-]{1,40}):\s+\S")
"""A line of a system prompt that tells a value of something: `- (2024-05-01) tariff: night`."""
_FACTS, _VALUES = 2, 3
"""Such lines of one run, and values that those of one name have in several, from which they are remembered."""
_TOLD = 4
"""Times as often as in other runs that facts of the same people have to stand in those that fail."""
_VALUE = re.compile(r"\d+(?:\.\d+)?|\b[A-Z][\w-]{2,}\b|\b[a-z]{5,}\b")


def unreached(error: str) -> bool:
    """True of the text of an error that says that something could not be reached: no change of the agent helps."""
    return _UNREACHED.search(error) is not None


@dataclass(slots=True)
class WeakPartGuess:
    """The part that a slice is put down to."""

    component: Component
    resource: str = ""
    certainty: float = 0.0
    because: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SliceEvidence:
    """What is known of a slice when its part is looked for."""

    mark: RunMark
    alike: Sequence[RunMark]
    measure: str
    rate: float
    timing: Timing
    counts: Mapping[RunMark, tuple[int, int]]
    """Mark → how many of the failures have it, and how many runs outside; of those that a failure has."""
    failures: int
    others: int
    """Runs outside the slice."""
    failed: Sequence[Trajectory]
    """Some of the runs that failed."""
    fine: Callable[[RunMark], float | None]
    """Mark → share of failures among its runs outside the slice; None where too few are known."""

    @property
    def shares(self) -> dict[RunMark, tuple[float, float]]:
        """Mark → its share of the slice's failures, and of all other runs."""
        return {
            mark: (inside / max(1, self.failures), outside / max(1, self.others))
            for mark, (inside, outside) in self.counts.items()
        }


def weak_part(evidence: SliceEvidence) -> WeakPartGuess:
    """The part of the agent that a slice is put down to."""
    looks = (
        _by_error,
        _by_version,
        _by_model,
        _by_load,
        _by_value,
        _by_memory,
        _by_route,
        _by_tool,
        _by_desk,
    )
    for look in looks:
        suspect = look(evidence)
        if suspect is not None:
            return suspect
    if evidence.mark.kind == SINCE:
        told = (
            "nothing but the time sets these runs apart: look at the model, and at what the agent stands on"
        )
        return WeakPartGuess(Component.MODEL, certainty=0.3, because=[told])
    return WeakPartGuess(
        Component.PROMPT,
        certainty=0.3,
        because=["nothing else sets these runs apart but what they are asked"],
    )


def _shared(evidence: SliceEvidence, kind: str, least: float = 0.6) -> list[tuple[RunMark, float, float]]:
    """Marks of a kind that most failures have and hardly another run, those of most failures first."""
    return sorted(
        (
            (mark, inside, outside)
            for mark, (inside, outside) in evidence.shares.items()
            if mark.kind == kind and inside >= least and inside > 3 * outside
        ),
        key=lambda fact: (-fact[1], fact[0]),
    )


def _by_error(evidence: SliceEvidence) -> WeakPartGuess | None:
    own = (
        [evidence.mark]
        if evidence.mark.kind in (ERROR, ENDED)
        else [m for m, _, _ in _shared(evidence, ERROR)]
    )
    if not own:
        return None
    tool, _, error = own[0].value.partition(": ") if own[0].kind == ERROR else ("", "", own[0].value)
    name = f"the tool {tool}" if tool else "the run"
    if unreached(error):
        return WeakPartGuess(Component.UPSTREAM, tool, 0.9, [f"{name} could not be reached: {error}"])
    values = _told_by_values(evidence, tool)
    if values:
        return WeakPartGuess(
            Component.DATA, tool, 0.7, [f"{name} fails with {error} for some values alone: {values}"]
        )
    if evidence.timing.began is not None:
        return WeakPartGuess(
            Component.UPSTREAM,
            tool,
            0.7,
            [f"{name} went well until it began to fail with {error}, under the same versions"],
        )
    return WeakPartGuess(
        Component.TOOL, tool, 0.85, [f"{name} fails with {error}, whatever it is called with"]
    )


def _told_by_values(evidence: SliceEvidence, tool: str) -> str:
    """The values of one argument that the failures have and calls that went well do not; "" where none tell."""
    failing: dict[str, list[tuple[int, str]]] = defaultdict(list)
    well: Counter[str] = Counter()
    for mark, (inside, outside) in evidence.counts.items():
        if mark.kind == ARGUMENT and mark.value.startswith(f"{tool} "):
            key, _, value = mark.value.removeprefix(f"{tool} ").partition("=")
            if inside and outside <= 0.05 * inside:
                failing[key].append((inside, value))
            well[key] += outside > inside
    for key, values in failing.items():
        if sum(count for count, _ in values) >= 0.8 * evidence.failures and well[key] >= 2:
            return f"{key} = {', '.join(value for _, value in sorted(values, reverse=True)[:5])}"
    return ""


def _by_version(evidence: SliceEvidence) -> WeakPartGuess | None:
    for mark in evidence.alike:
        if mark.kind == VERSION:
            resource = mark.value.partition("=")[0]
            return WeakPartGuess(
                KINDS.get(resource.rpartition(".")[2], Component.PROMPT),
                resource,
                0.8,
                [f"only runs under this Version of {resource} fail so"],
            )
    return None


def _by_model(evidence: SliceEvidence) -> WeakPartGuess | None:
    if stopped := _shared(evidence, STOPPED):
        reason = stopped[0][0].value
        return WeakPartGuess(
            Component.MODEL, reason, 0.75, [f"the model stopped by {reason!r}, and seldom does elsewhere"]
        )
    for mark in evidence.alike:
        if mark.kind in (MODEL, STOPPED):
            return WeakPartGuess(Component.MODEL, mark.value, 0.7, [f"only runs with {mark} fail so"])
    return None


def _by_load(evidence: SliceEvidence) -> WeakPartGuess | None:
    if evidence.measure in (SECONDS, TOKENS):
        part = Component.UPSTREAM if evidence.measure == SECONDS else Component.MODEL
        return WeakPartGuess(
            part, evidence.mark.value, 0.4, [f"runs with the same tools took less {evidence.measure} before"]
        )
    if evidence.measure == BLOCKED:
        return WeakPartGuess(
            Component.PROMPT, evidence.mark.value, 0.3, ["a guardrail stops what the agent tries here"]
        )
    return None


def _by_value(evidence: SliceEvidence) -> WeakPartGuess | None:
    if evidence.mark.kind not in (ARGUMENT, RESULT):
        return None
    tool = evidence.mark.value.partition(" ")[0]
    return WeakPartGuess(
        Component.DATA, tool, 0.6, [f"other values of {tool} go well: {evidence.mark.value} does not"]
    )


def _by_memory(evidence: SliceEvidence) -> WeakPartGuess | None:
    personal = [_facts_of(run) for run in evidence.failed]
    values: dict[str, set[str]] = defaultdict(set)
    for name, line in (fact for facts in personal for fact in facts):
        values[name].add(line)
    told = [{line for name, line in facts if len(values[name]) >= _VALUES} for facts in personal]
    facts = {line[:LONGEST] for lines in told for line in lines}
    named = any(
        inside > 1.5 * outside
        for mark, (inside, outside) in evidence.shares.items()
        if mark.kind == SYSTEM and _REMEMBERED.search(mark.value)
    )
    own = [shares for mark, shares in evidence.shares.items() if mark.kind == SYSTEM and mark.value in facts]
    # Were every run told of its person, those of the same people outside would have these facts, too.
    lines = named or sum(inside for inside, _ in own) > _TOLD * sum(outside for _, outside in own)
    without_tools = evidence.shares.get(RunMark(TOOL_MARK, NO_TOOL), (0.0, 0.0))[0]
    remembered = sum(
        len(told_here) >= _FACTS or any(_REMEMBERED.match(line.strip()) for line in _system(run).splitlines())
        for told_here, run in zip(told, evidence.failed, strict=True)
    )
    if lines and without_tools >= 0.6 and remembered >= 0.6 * len(evidence.failed):
        return WeakPartGuess(
            Component.MEMORY, "", 0.6, ["the agent answers from what it remembers, without a tool"]
        )
    return None


def _facts_of(run: Trajectory) -> list[tuple[str, str]]:
    """Name and whole line of each value that a run's system prompt tells."""
    lines = [line.strip() for line in _system(run).splitlines()]
    return [(match["name"].casefold(), line) for line in lines if (match := _FACT.match(line))]


def _system(run: Trajectory) -> str:
    for step in run.steps:
        if step.kind == LLM and isinstance(step.observation, list | tuple):
            return "\n".join(
                str(message.get("text", message.get("content", "")))
                for message in step.observation
                if isinstance(message, Mapping) and message.get("role") in ("system", "developer")
            )
    return ""


def _by_route(evidence: SliceEvidence) -> WeakPartGuess | None:
    inside, outside = evidence.shares.get(RunMark(TOOL_MARK, NO_TOOL), (0.0, 0.0))
    if inside >= 0.8 and outside <= 0.5:
        return WeakPartGuess(
            Component.ROUTE,
            "",
            0.5,
            [f"no tool is called in {inside:.0%} of them, and in {outside:.0%} of all others"],
        )
    return _went_to(evidence) if evidence.mark.kind in (AGENT, CHOICE) else None


def _by_desk(evidence: SliceEvidence) -> WeakPartGuess | None:
    """Of a name in the system prompt, after the tools: where each topic has its own, it says what was asked."""
    named = evidence.mark.kind == SYSTEM and _ROUTED.search(evidence.mark.value)
    return _went_to(evidence) if named else None


def _went_to(evidence: SliceEvidence) -> WeakPartGuess:
    where = evidence.mark.value
    return WeakPartGuess(Component.ROUTE, where, 0.4, [f"they are those that went to {where}"])


def _by_tool(evidence: SliceEvidence) -> WeakPartGuess | None:
    tools = [
        mark for mark, (inside, _) in evidence.shares.items() if mark.kind == TOOL_MARK and inside >= 0.6
    ]
    tools = [mark for mark in tools if mark.value != NO_TOOL]
    if not tools:
        return None
    elsewhere = [(mark, share) for mark in tools if (share := evidence.fine(mark)) is not None]
    grounded = sum(_grounded(run) for run in evidence.failed) / max(1, len(evidence.failed))
    name = ", ".join(mark.value for mark in tools)
    if len(elsewhere) == len(tools) and all(share < 0.5 * evidence.rate for _, share in elsewhere):
        if grounded >= 0.5:
            return WeakPartGuess(
                Component.PROMPT,
                "",
                0.5,
                [f"{name} goes well elsewhere, and the answers repeat what it gave"],
            )
        return WeakPartGuess(
            Component.ROUTE,
            name,
            0.5,
            [f"{name} goes well elsewhere, and the answers say what it did not give: a step is missing"],
        )
    if evidence.rate >= 0.78 and grounded >= 0.3:
        return WeakPartGuess(
            Component.TOOL,
            name,
            0.45,
            [f"nearly all fail that call {name}, and the answers repeat what it gave"],
        )
    return WeakPartGuess(
        Component.PROMPT,
        "",
        0.45,
        [f"{name} is called as ever and some answers are right: it is how they are given"],
    )


def _grounded(run: Trajectory) -> bool:
    """True if the answer repeats a value that a tool gave and the question did not have."""
    results = " ".join(str(call.result) for call in tool_calls(run)).lower()
    question = run.task.instruction.lower()
    values = {value.lower() for value in _VALUE.findall(run.output_text)}
    numbers = {value for value in values if value[0].isdigit()}
    own = {value for value in (numbers or values) if value not in question}
    return any(value in results or value.removesuffix(".00").removesuffix("0") in results for value in own)
