"""Spans to Trajectories: reads each span with its dialect, grows the tree, writes down the steps.

One trace is one run, and several traces that carry one run id are one run.  Every span is accounted
for: it is in a step, named among those outside of any step, or counted as unread.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ....errors import InputError
from ....types import AGENT, FUNCTION, LLM, TOOL, Failure, Fault, Json, Span, Step, Task, Trajectory, digest
from ...store.redaction.redact import MARKED, redaction
from ...store.trials import TRIALS
from ..content import Content, SpanEvent, content
from ..otlp import run_trace
from ..record import outcome
from ..told_tools import with_told_tools
from . import (
    calls,
    crewai,
    genai,
    langfuse,
    langsmith,
    logfire,
    mlflow,
    openinference,
    pydantic_ai,
    traceloop,
)
from .agents import attribute
from .messages import Message, finish_reason
from .reading import NAMES, OTHER, SHAPES, SpanReading, cost, failure, first, who
from .rows import NOUNS, ROWS, Forms
from .tree import Node, given_calls, grow, let_go, steps
from .unread import evaluations, unread
from .values import parsed, plain

NO_MODEL_CALL = "no model call was recorded"
# The first that takes a span reads it: GenAI is last, for PydanticAI and Traceloop write its attributes too.
_DIALECTS = (openinference, pydantic_ai, logfire, crewai, langsmith, traceloop, langfuse, mlflow, genai)
_INPUT = ("input.value", "input", "mlflow.spanInputs", "ai.prompt")
_OUTPUT = ("output.value", "output", "mlflow.spanOutputs", "ai.response.text")
_PLAIN = frozenset((*_INPUT, *_OUTPUT))
"""Attributes in use for the input and output of a span that no dialect knows."""
_REFUSED = ("BadRequest", "Unprocessable", "ContextLength", "InvalidRequest", "UnprocessableEntity")
"""In the type of a model call's error: the request was at fault, not the model server."""
_REFUSAL = re.compile(r"\b(?:BadRequest|UnprocessableEntity)Error\b|\bError code: (?:400|413|422)\b")
"""The same in its message, where the type is not told or is that of a framework's own exception around it."""


@dataclass(frozen=True, slots=True)
class RunSurvey:
    """The Trajectories of some spans, and the spans outside of any run."""

    trajectories: list[Trajectory]
    left_out: list[Span]
    """Spans of traces that hold no step: building an agent, a health check, an application's own logs."""


def survey(spans: Iterable[Span], *, rows: bool = False) -> RunSurvey:
    """The Trajectories that these spans are, in the order in which they began, and the spans of none.

    The spans of a run must all be given, in any order; repeated ones count once.  A Trajectory's id is
    its trace's in hex, or made of the run's id where there is one: the same spans give the same ids.

    Args:
        rows: the Trajectories are only written: their steps are StepRows.
    """
    forms = ROWS if rows else NOUNS
    trajectories: list[Trajectory] = []
    left_out: list[Span] = []
    for (run, _), group in _runs(_once(spans)).items():
        try:
            trajectory = _trajectory(run, group, forms)
        except Exception as exception:
            # The record must not stop at what some exporter wrote: the bytes are kept, and this says so.
            trajectory = _unreadable(run, group, exception)
        if trajectory is None:
            left_out += group
        else:
            trajectories.append(trajectory)
    return RunSurvey(
        sorted(trajectories, key=lambda trajectory: (trajectory.started, trajectory.id)), left_out
    )


def source_of(spans: Iterable[Span]) -> str:
    """`gateway` of a run that the gateway alone has seen, else `otlp`."""
    return "gateway" if all(span.encoding == calls.ENCODING for span in spans) else "otlp"


def trajectory_id(trace: bytes, run: str | None) -> str:
    """The id of the Trajectory that spans of this trace or run become."""
    return trace.hex() if run is None else digest(("run", run), 32)


_BY_START: Callable[[Span], tuple[Any, ...]] = lambda span: (span[3], -span[4], span[0], span[1])  # noqa: E731


def _once(spans: Iterable[Span]) -> list[Span]:
    """Each span once, by start; of one that came twice, what ended last."""
    latest: dict[tuple[bytes, bytes, str], Span] = {}
    for span in spans:
        trace, id, _, _, _, _, _, encoding, _, _ = span
        # Without the "+json": a span that was sent again in the other encoding is the same span.
        key = (trace, id, encoding if encoding == "span" else encoding.partition("+")[0])
        earlier = latest.get(key)
        # The body decides a tie, not the arrival: in any order the same delivery wins.
        if earlier is None or (span.ended, span.body) > (earlier.ended, earlier.body):
            latest[key] = span
    # In one order whatever that of arrival: among equals, what lasted longer is around the other.
    return sorted(latest.values(), key=_BY_START)


def _runs(spans: list[Span]) -> dict[tuple[str | None, bytes], list[Span]]:
    """Spans by run: a stated run id holds below the span that states it, and in a trace that states one."""
    stated: dict[bytes, set[str]] = {}
    for span in spans:
        if span.run is not None:
            stated.setdefault(span.trace, set()).add(span.run)
    groups: dict[tuple[str | None, bytes], list[Span]] = {}
    if not stated:
        for span in spans:
            groups.setdefault((None, span[0]), []).append(span)
        return groups
    parents = {(span.trace, span.id): span for span in spans if len(stated.get(span.trace, ())) > 1}
    for span in spans:
        runs = stated.get(span.trace, set())
        run = span.run or (next(iter(runs)) if len(runs) == 1 else None)
        ancestor: Span | None = span
        visited = set()
        while run is None and ancestor is not None and ancestor.id not in visited:
            run = ancestor.run
            visited.add(ancestor.id)
            ancestor = parents.get((ancestor.trace, ancestor.parent))
        groups.setdefault((run, b"" if run is not None else span.trace), []).append(span)
    return groups


def _trajectory(run: str | None, spans: list[Span], forms: Forms) -> Trajectory | None:
    unread: list[Span] = []
    contents, pairs, loose = _contents(spans, unread)
    for span_content in contents:
        try:
            pairs.append((span_content, _reading(span_content)))
        except Exception:  # a dialect's reader has met what it does not know: the bytes are kept
            unread.append(span_content.span)
    nodes = grow(pairs)
    step_nodes = steps(nodes)
    if not step_nodes and not unread:
        return None
    for node in step_nodes:
        _complete(node)
    called = any(node.reading.kind == LLM for node in step_nodes)
    for node in step_nodes:
        if called:
            node.reading.transcript = None  # the calls themselves are there
        elif node.reading.kind == AGENT:
            node.reading.usage = node.reading.aggregate  # nothing else tells what the run has cost
    _name_arguments(step_nodes)
    run_steps = _steps(step_nodes, forms)
    owner = who([node.content for node in nodes])
    versions, notes = _versions(nodes)
    if not called and any(step.kind == AGENT for step in run_steps):
        notes.append(NO_MODEL_CALL)
    source = source_of(spans)
    meta: dict[str, Json] = {
        "source": source,
        "run": run,
        "notes": notes,
        "metadata": dict(owner.metadata),
        "unread": len(unread),
        "unread_spans": [span.id.hex() for span in unread],
        "loose_logs": [span.id.hex() for span in loose],
        TRIALS: {trial: arm for node in step_nodes for trial, arm in node.reading.trials.items()},
        **_shape(nodes, step_nodes),
        **_redacted(spans),
    }
    failed = _run_error(step_nodes, run_steps)
    instruction = _instruction(run_steps)
    attributed, nested = _attributed(step_nodes, run_steps)
    started = min([span.started for span in spans if span.started], default=0)
    # Last of all that looks at nodes; the steps hold none of them.
    let_go(nodes)
    return Trajectory(
        task=Task(
            # Long ones are hashed by Task itself: the cache would keep their text in memory.
            id=_task_id(instruction) if len(instruction) < 1_000 else "",
            instruction=instruction,
            meta={"source": source},
        ),
        steps=tuple(with_told_tools(attributed)),
        id=trajectory_id(spans[0].trace, run),
        output=_output([step for step in run_steps if step.id not in nested]),
        versions=versions,
        outcome=outcome(failed),
        error=failed,
        trace_ids=_traces(spans, run),
        session=owner.session,
        subject=owner.subject,
        started=started / 1e9,
        seconds=max(0, max(span.ended for span in spans) - started) / 1e9,
        meta={key: value for key, value in meta.items() if value},
    )


def _attributed(step_nodes: list[Node], run_steps: list[Step]) -> tuple[list[Step], set[str]]:
    """The steps with the agents that the calls themselves tell of, where no span tells of any."""
    if any(step.kind == AGENT for step in run_steps):
        return run_steps, set()
    wires = {
        step.id: (node.reading.wire, node.started, node.ended)
        for step, node in zip(run_steps, step_nodes, strict=True)
        if node.reading.wire is not None and not step.agent
    }
    return attribute(run_steps, wires)


def _shape(nodes: list[Node], step_nodes: list[Node]) -> dict[str, Json]:
    """The spans outside of any step, and those that are one step together."""
    apart = [node.content.span for node in nodes if node.step is None]
    return {
        "spans_not_steps": [{"span_id": span.id.hex(), "name": span.name} for span in apart],
        "merged_spans": [
            [member.content.span.id.hex() for member in node.members]
            for node in step_nodes
            if node.members[1:]
        ],
    }


def _versions(nodes: list[Node]) -> tuple[dict[str, str], list[str]]:
    """The Version of each resource that served the run, and a note on each that changed while it ran."""
    versions: dict[str, str] = {}
    notes: list[str] = []
    served = [node for node in nodes if node.reading.versions]
    for node in sorted(served, key=lambda node: node.content.span.started):
        for name, version in node.reading.versions.items():
            if versions.get(name, version) != version:
                notes.append(f"{name} was served as version {versions[name]}, then as {version}")
            versions[name] = version
    return versions, notes


def _contents(
    spans: list[Span], unread: list[Span]
) -> tuple[list[Content], list[tuple[Content, SpanReading]], list[Span]]:
    """The contents of spans with their log records, the gateway's calls, and the records of no span here."""
    contents: dict[tuple[bytes, bytes], Content] = {}
    called: list[tuple[Content, SpanReading]] = []
    logs: list[Content] = []
    for span in spans:
        try:
            if span.encoding == calls.ENCODING:
                called.append(calls.read(span))
            elif span.encoding.startswith("log"):
                logs.append(content(span))
            else:
                contents[(span.trace, span.id)] = content(span)
        except InputError:
            unread.append(span)
    loose: list[Span] = []
    records: dict[tuple[bytes, bytes], list[SpanEvent]] = {}
    for log in logs:
        key = (log.span.trace, log.span.parent)
        if key not in contents:
            loose.append(log.span)
            continue
        name = log.span.name or log.attributes.get("event.name")
        event = SpanEvent(name if isinstance(name, str) else "", log.span.started, log.attributes, log.body)
        records.setdefault(key, []).append(event)
    for key, events in records.items():
        contents[key] = msgspec.structs.replace(contents[key], events=(*contents[key].events, *events))
    return list(contents.values()), called, loose


def _reading(span_content: Content) -> SpanReading:
    held = span_content.attributes
    for read in _readers(tuple(held)) if len(held) <= NAMES else _readers.__wrapped__(tuple(held)):
        reading = read(span_content)
        if reading is not None:
            if reading.kind == LLM:
                reading.dollars = cost(span_content.attributes)
            return reading
    return _unknown(span_content)


@functools.lru_cache(maxsize=SHAPES)
def _readers(keys: tuple[str, ...]) -> tuple[Callable[[Content], SpanReading | None], ...]:
    """The dialects that a span with attributes of these names may be in."""
    return tuple(dialect.read for dialect in _DIALECTS if not dialect.MARKS.isdisjoint(keys))


def _unknown(span_content: Content) -> SpanReading:
    """A span that no dialect knows: a function that somebody traced, or the plumbing around a model call.

    Its neighbours decide: among spans that a dialect knows it is left out of the steps, in a trace that has none it
    is a step of kind `function`.
    """
    held = span_content.attributes
    reading = SpanReading(OTHER, span_content.span.name, error=failure(span_content))
    if not _PLAIN.isdisjoint(held):
        result = first(held, *_OUTPUT)
        reading.arguments = parsed(first(held, *_INPUT))
        reading.result = None if result is None else plain(result)
    return reading


_WIRE = ("model", "response_model", "response_id", "input", "output", "finish", "usage")


def _complete(step: Node) -> None:
    """Complete a step's reading from its other spans."""
    merged = step.reading
    if len(step.members) == 1 and merged.fill is None:
        return
    for member in step.members:
        if member.reading.fill is not None and merged.kind == AGENT:
            member.reading.fill(member.reading)
    if merged.kind == LLM:
        # Of two instrumentors the inner one is nearer to the wire: a framework may show the prompt in words of its own.
        for member in sorted(step.members[1:], key=lambda node: node.depth):
            if not member.is_call:
                for name in _WIRE:
                    if (told := getattr(member.reading, name)) is not None:
                        setattr(merged, name, told)
    attempts = [node for node in step.members if node.is_call]
    if attempts and not step.is_call:
        # One model call that the client tried several times: the last that was answered counts.
        attempts.sort(key=lambda node: (node.reading.error is None, node.content.span.ended))
        _take_call(merged, attempts[-1].reading)
        if len(attempts) > 1:
            merged.extra["attempts"] = len(attempts)
    for member in step.members[1:]:
        if not member.is_call:
            _fill(merged, member.reading)


def _take_call(target: SpanReading, call: SpanReading) -> None:
    """Take messages, tokens and served Versions from the gateway, which saw the wire; names stay the span's."""
    target.input = call.input or target.input
    if call.output is not None:
        target.output, target.others = call.output, call.others
    target.tokens = call.tokens
    target.versions.update(call.versions)
    target.trials.update(call.trials)
    target.extra.update(call.extra)
    target.fault = call.fault or target.fault
    _fill(target, call)
    if target.usage and call.usage:
        target.usage = {
            key: call.usage[key] if value is None else value for key, value in target.usage.items()
        }


def _fill(target: SpanReading, source: SpanReading) -> None:
    for name in (
        "model",
        "response_model",
        "response_id",
        "input",
        "output",
        "arguments",
        "result",
        "tool_call_id",
        "finish",
        "usage",
        "aggregate",
        "dollars",
        "error",
        "transcript",
    ):
        if getattr(target, name) is None:
            setattr(target, name, getattr(source, name))


def _name_arguments(step_nodes: list[Node]) -> None:
    """Give a tool whose span lost its arguments, or their names, those of the model's call to it."""
    requested: dict[str, Json] = {}  # by models so far: some servers number their calls anew in each answer
    for node in step_nodes:
        for call in (node.reading.output or {}).get("tool_calls", ()):
            requested[call["id"] or ""] = call["arguments"]
        tool = node.reading
        if tool.kind != TOOL or (isinstance(tool.arguments, dict) and tool.tool_call_id):
            continue
        node_calls = [node_call for node_call in given_calls(node) if node_call.get("name") == tool.name]
        if tool.tool_call_id:
            node_calls = [node_call for node_call in node_calls if node_call.get("id") == tool.tool_call_id]
        elif len(node_calls) > 1 and tool.arguments is not None:
            node_calls = [
                node_call for node_call in node_calls if _fits(tool.arguments, node_call.get("args"))
            ]
        if len(node_calls) == 1:
            id = node_calls[0].get("id")
            tool.tool_call_id = tool.tool_call_id or (id if isinstance(id, str) else None)
            if not isinstance(tool.arguments, dict):
                tool.arguments = node_calls[0]["args"]
        if not isinstance(tool.arguments, dict) and tool.tool_call_id and tool.tool_call_id in requested:
            tool.arguments = requested[tool.tool_call_id]


def _fits(value: Json, arguments: Json) -> bool:
    return value == arguments or (isinstance(arguments, dict) and list(arguments.values()) == [value])


def _steps(step_nodes: list[Node], forms: Forms) -> list[Step]:
    ids: dict[int, str] = {}
    used_ids: set[str] = set()
    errors: dict[tuple[str, str], Fault] = {}
    for node in step_nodes:
        span = node.content.span
        short = span.id.hex()  # unique in its trace; a run may be several traces
        ids[id(node)] = short if short not in used_ids else f"{span.trace.hex()}:{short}"
        used_ids.add(short)
        reading = node.reading
        if reading.error is not None and reading.kind != AGENT:
            errors.setdefault(reading.error, _fault(reading))
    agents: dict[int, str] = {}
    run_steps: list[Step] = []
    for node in step_nodes:
        reading, above = node.reading, node.inside
        agent = agents[id(node)] = reading.name if reading.kind == AGENT else agents.get(id(above), "")
        failed = None
        if reading.error is not None:
            fault = errors.get(reading.error, Fault.AGENT) if reading.kind == AGENT else _fault(reading)
            failed = Failure(fault, reading.error[0], reading.error[1][:10_000])
        spoken = reading.kind in (AGENT, LLM)
        spent = reading.usage
        run_steps.append(
            forms.step(
                observation=reading.input if spoken else reading.arguments,
                action=reading.output if spoken else reading.result,
                kind=reading.kind,
                name=reading.name,
                agent=agent,
                id=ids[id(node)],
                parent=None if above is None else ids.get(id(above)),
                tokens=reading.tokens,
                usage=None
                if spent is None
                else forms.usage(
                    spent["input"] or 0,
                    spent["output"] or 0,
                    reading.dollars or 0.0,
                    int(reading.kind != AGENT),
                ),
                latency=max(0, node.ended - node.started) / 1e9,
                error=failed,
                info=_info(node, failed is not None),
            )
        )
    return run_steps


def _info(node: Node, failed: bool) -> dict[str, Json]:
    """More on a step: whatever its spans state."""
    reading = node.reading
    info: dict[str, Json] = {
        "span_ids": [member.content.span.id.hex() for member in node.members],
        "trace_id": node.content.span.trace.hex(),
    }
    # Written out: this is done for every span of every run, and most of it is stated nowhere.
    if reading.model is not None:
        info["model"] = reading.model
    if reading.response_model is not None:
        info["response_model"] = reading.response_model
    if reading.kind == LLM:
        finish = finish_reason(reading.finish, reading.output, failed=failed)
        if finish is not None:
            info["finish_reason"] = finish
    if reading.tool_call_id is not None:
        info["tool_call_id"] = reading.tool_call_id
    if reading.usage is not None and reading.kind != AGENT:
        info["usage"] = reading.usage
    if reading.aggregate is not None:
        info["aggregate_usage"] = reading.aggregate
    if reading.versions:
        info["versions"] = dict(reading.versions)
    if reading.transcript is not None and reading.kind == AGENT:
        info["transcript"] = reading.transcript
    contents = [member.content for member in node.members if not member.is_call]
    if attributes := unread(contents, reading):
        info["attributes"] = attributes
    if judged := evaluations(contents):
        info["evaluations"] = judged
    for key, value in reading.extra.items():
        if value is None:
            info.pop(key, None)
        elif key != "workflow":
            info[key] = value
    if reading.others and "choices" not in reading.extra:
        info["choices"] = [{"output": answer} for answer in (reading.output, *reading.others)]
    return info


def _fault(reading: SpanReading) -> Fault:
    """The fault of a failure: the gateway's word, else by the kind of step that failed."""
    if reading.fault is not None:
        try:
            return Fault(reading.fault)
        except ValueError:
            pass
    if reading.kind == LLM and reading.error is not None:
        type, message = reading.error
        refused = any(name in type for name in _REFUSED) or _REFUSAL.search(message) is not None
        return Fault.AGENT if refused else Fault.MODEL
    return Fault.TOOL if reading.kind == TOOL else Fault.AGENT


def _run_error(step_nodes: Sequence[Node], run_steps: Sequence[Step]) -> Failure | None:
    """The run failed if its agent's last state was a failure, or without an agent what ended last.

    What ended, not what began: a call that fails while another is under way, whose answer the agent goes on with, is a
    step with an error in a run without one.
    """
    top = [
        (node.ended, number, step)
        for number, (node, step) in enumerate(zip(step_nodes, run_steps, strict=True))
        if step.parent is None
    ]
    agents = [ended for ended in top if ended[2].kind == AGENT]
    return max(agents or top)[2].error if top else None


def _instruction(run_steps: Sequence[Step]) -> str:
    """The instruction: the last user's message before the first step, else the arguments of the function."""
    for step in run_steps:
        for message in reversed(step.observation or ()) if step.kind in (AGENT, LLM) else ():
            if message["role"] == "user" and message.get("text"):
                text: str = message["text"]
                return text
    arguments = next((step.observation for step in _functions(run_steps)), None)
    return plain(arguments)


@functools.lru_cache(maxsize=256)
def _task_id(instruction: str) -> str:
    """The id of a Task with this instruction and no more: many runs ask for the same, or for nothing."""
    return Task(instruction=instruction).id


def _output(run_steps: Sequence[Step]) -> Json:
    """The output of the run: its agent's last answer, else its last model call's, else the function's."""
    top = [
        step for step in run_steps if step.kind == AGENT and step.parent is None and step.action is not None
    ]
    spoken = top or [step for step in run_steps if step.kind == LLM and step.action is not None]
    if not spoken:
        return next((step.action for step in reversed(_functions(run_steps))), None)
    last: Message = spoken[-1].action
    return last["text"] if set(last) <= {"role", "text", "reasoning"} and "text" in last else last


def _functions(run_steps: Sequence[Step]) -> list[Step]:
    """The outermost functions of a run in which no dialect knows anything: spans of somebody's own."""
    if any(step.kind != FUNCTION for step in run_steps):
        return []
    return [step for step in run_steps if step.parent is None]


def _redacted(spans: Iterable[Span]) -> dict[str, Json]:
    """Redactions at ingest by rule, and their count; nothing may be trained on the text."""
    counts: dict[str, int] = {}
    for span in spans:
        if b"[redacted:" in span.body:
            for name in MARKED.findall(span.body):
                counts[name.decode()] = counts.get(name.decode(), 0) + 1
    if not counts:
        return {}
    return redaction(counts)


def _traces(spans: Iterable[Span], run: str | None) -> tuple[str, ...]:
    """Their traces, without the one that only stands for a run id, under which nobody traced anything."""
    stands = None if run is None else run_trace(run)
    return tuple(sorted(trace.hex() for trace in {span.trace for span in spans} if trace != stands))


def _unreadable(run: str | None, spans: list[Span], exception: Exception) -> Trajectory:
    return Trajectory(
        task=Task(meta={"source": source_of(spans)}),
        id=trajectory_id(spans[0].trace, run),
        trace_ids=tuple(sorted({span.trace.hex() for span in spans})),
        started=min(span.started for span in spans) / 1e9,
        meta={
            "source": source_of(spans),
            **({} if run is None else {"run": run}),
            "unread": len(spans),
            "unread_spans": [span.id.hex() for span in spans],
            "notes": [f"the spans cannot be read: {type(exception).__name__}: {exception}"],
        },
    )
