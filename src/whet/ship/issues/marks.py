"""What a run can be told apart by: its tools and their errors, model, agents, versions, words of what was asked.

A mark is a kind and a value, such as `tool: stock`.  All runs with one mark are a slice of the traffic.  Marks are read
off any run, whatever recorded it; what a run lacks gives no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from ...record.rows import as_text
from ...record.tracing.tool_calls import Invocation, tool_calls
from ...types import LLM, TOOL, Json, Step, Trajectory


class RunMark(NamedTuple):
    """A kind and a value."""

    kind: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.value}"


TOOL_MARK, ERROR, ARGUMENT, RESULT, SEQUENCE = "tool", "tool error", "tool argument", "tool result", "tools"
MODEL, AGENT, CHOICE, SYSTEM, VERSION = "model", "agent", "choice", "system prompt", "version"
STOPPED, WORD, FIELD, ENDED = "stopped", "word", "field", "error"
SINCE = "since"
"""All runs from a moment on; no run brings it, and a table finds its runs by their start."""
TELLING = (
    *(ERROR, TOOL_MARK, SEQUENCE, CHOICE, AGENT, MODEL, STOPPED, ENDED, FIELD, ARGUMENT, RESULT),
    *(WORD, VERSION, SYSTEM),
)
"""Kinds of mark, that first which says most of where to look; of marks of the very same runs the first is named."""
NO_TOOL = "none"
LONGEST = 60
"""Characters of a value that can be a mark."""
_MOST_LINES, _MOST_WORDS, _MOST_FIELDS = 60, 40, 12
"""Of one run."""
_WORD = re.compile(r"[^\W\d_][\w'-]+|\d+")
_DETAIL = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{12,}\b|\d+")
_QUOTED = re.compile(r"(?<!\w)'[^']*(?:'|$)|\"[^\"]*(?:\"|$)")
_STATUS = re.compile(r"\b[45]\d\d\b")
_FAILED = re.compile(
    r"^\W*(?:error|exception|traceback|failed|[A-Z]\w*(?:Error|Exception))\b[:\s]", re.IGNORECASE
)
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an the is are was were be do does did can could will would i you he she it we they me my your his her our "
        "their this that of to in on at for from by with and or but if as please once more",
    )
)
"""Words that alone say nothing of what is asked."""


def marks_of(run: Trajectory) -> set[RunMark]:
    """All marks of a run."""
    calls = tool_calls(run)
    marks = set(_tool_marks(calls))
    models = [step for step in run.steps if step.kind == LLM]
    if not calls and models:
        marks.add(RunMark(TOOL_MARK, NO_TOOL))
    for step in models:
        if model := step.info.get("model"):
            marks.add(RunMark(MODEL, str(model)[:LONGEST]))
        if (reason := step.info.get("finish_reason")) and reason not in (
            "stop",
            "tool_calls",
            "end_turn",
            "tool_use",
        ):
            marks.add(RunMark(STOPPED, str(reason)[:LONGEST]))
    if models:
        marks |= {RunMark(SYSTEM, line) for line in _system_lines(models[0])}
    marks |= set(_step_marks(run))
    marks |= {RunMark(VERSION, f"{resource}={id}") for resource, id in run.versions.items()}
    marks |= {RunMark(WORD, word) for word in words_of(question_of(run))}
    marks |= set(_field_marks(run.task.meta))
    if run.error is not None:
        kind = kind_of_error(f"{run.error.type}: {run.error.message}")
        marks |= {RunMark(ENDED, each) for each in (kind, any_value(kind))}
    return marks


def question_of(run: Trajectory) -> str:
    """What the run was asked, as text."""
    return as_text(run.task.initial_state.get("input", run.task.instruction))


def words_of(text: str) -> list[str]:
    """The words of a text that can tell what it is about, and its pairs of neighbours."""
    plain = [word.lower() for word in _WORD.findall(text[:600])]
    single = [word for word in plain if word not in _COMMON and len(word) > 1 and not word.isdigit()]
    pairs = [f"{first} {second}" for first, second in pairwise(plain) if not second.isdigit()]
    return list(dict.fromkeys([*single[:_MOST_WORDS], *pairs[:_MOST_WORDS]]))


def kind_of_error(text: str) -> str:
    """An error without what differs from one to the next: ids and numbers but the HTTP status."""
    first = " ".join(text.split())[:200]
    return _DETAIL.sub(lambda match: match[0] if _STATUS.fullmatch(match[0]) else "…", first)[:LONGEST]


def any_value(error: str) -> str:
    """An error without the values that it quotes, such as the key that is missing."""
    return _QUOTED.sub("'…'", error)


def error_of(call: Invocation) -> str | None:
    """What went wrong with a tool call: as it was recorded, or as its result says; None if nothing did."""
    if call.error is not None:
        return f"{call.error.type}: {call.error.message}"
    content = _decoded(call.result)
    if isinstance(content, Mapping):
        for key in ("error", "exception", "errors"):
            if content.get(key):
                return as_text(content[key])
        if content.get("isError") or content.get("success") is False or content.get("ok") is False:
            return as_text(content.get("message") or content.get("content") or "it reports a failure")
        return None
    if isinstance(content, str) and _FAILED.search(content[:80]):
        return content
    return None


def _decoded(result: Json) -> Json:
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(result)
        except (msgspec.DecodeError, RecursionError):
            return result
    return result


def _tool_marks(calls: list[Invocation]) -> Iterator[RunMark]:
    names = [call.name for call in calls if call.name]
    yield from (RunMark(TOOL_MARK, name[:LONGEST]) for name in names)
    if names:
        again = " (repeated)" if len(set(names)) < len(names) else ""
        yield RunMark(SEQUENCE, " → ".join(dict.fromkeys(names))[:200] + again)
    for call in calls:
        if not call.name:
            continue
        for key, value in _scalars(call.arguments):
            yield RunMark(ARGUMENT, f"{call.name} {key}={value}")
        error = error_of(call)
        if error is not None:
            kind = kind_of_error(error)
            yield from (RunMark(ERROR, f"{call.name}: {each}") for each in {kind, any_value(kind)})
            continue
        content = _decoded(call.result)
        if content in ("", [], {}, "null", "None"):
            yield RunMark(RESULT, f"{call.name} gives nothing")
        for key, value in _scalars(content):
            yield RunMark(RESULT, f"{call.name} {key}={value}")


def _scalars(content: Json) -> Iterator[tuple[str, str]]:
    """Names and short values; not of fractions and large numbers, which differ from one run to the next."""
    if not isinstance(content, Mapping):
        return
    for key, value in list(content.items())[:_MOST_FIELDS]:
        short = isinstance(value, str) and 0 < len(value) <= 40
        if short or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 100):
            yield str(key)[:LONGEST], str(value)


def _system_lines(step: Step) -> Iterator[str]:
    """The short lines of the system prompt: those that all runs share mark nothing out, and are dropped later."""
    shown: Any = step.observation
    for message in shown if isinstance(shown, list | tuple) else ():
        if isinstance(message, Mapping) and message.get("role") in ("system", "developer"):
            text = message.get("text", message.get("content"))
            for line in str(text or "").splitlines()[:_MOST_LINES]:
                if stripped := line.strip():
                    yield stripped[:LONGEST]


def _step_marks(run: Trajectory) -> Iterator[RunMark]:
    for step in run.steps:
        if step.agent:
            yield RunMark(AGENT, step.agent[:LONGEST])
        if step.kind in (LLM, TOOL) or not step.name:
            continue
        if step.kind != "action":
            yield RunMark(AGENT, step.name[:LONGEST])
        if isinstance(step.action, str | bool) and 0 < len(str(step.action)) <= 40:
            yield RunMark(CHOICE, f"{step.name} gives {step.action}")


def _field_marks(meta: Mapping[str, Json]) -> Iterator[RunMark]:
    """What the task says of itself: its category, language, product and so on."""
    for key, value in list(meta.items())[:_MOST_FIELDS]:
        if key != "source" and isinstance(value, str | bool) and 0 < len(str(value)) <= 40:
            yield RunMark(FIELD, f"{key}={value}")
