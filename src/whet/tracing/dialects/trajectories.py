"""Spans to Trajectories: reads each span with its dialect, grows the tree, writes down the steps.

One trace is one run, and several traces that carry one run id are one run.  Every span is accounted
for: it is in a step, named among those that are no step, or counted as unread.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ...errors import InputError
from ...types import Failure, Fault, Json, Span, Step, Task, Trajectory, Usage, digest
from ..content import Content, Event, content
from ..otlp import run_trace
from ..record import outcome
from ..redact import MARKED, why_untrainable
from . import calls, genai, generic, langfuse, openinference, pydantic_ai, traceloop
from .agents import attribute
from .messages import Message, finish_reason, plain
from .reading import AGENT, FUNCTION, LLM, TOOL, Reading, who
from .tree import Node, given_calls, grow, let_go, steps

NO_MODEL_CALL = "no model call was recorded"
_DIALECTS = (openinference.read, pydantic_ai.read, traceloop.read, langfuse.read, genai.read)
_MARKS = openinference.MARKS | pydantic_ai.MARKS | traceloop.MARKS | langfuse.MARKS | genai.MARKS
_REFUSED = ("BadRequest", "Unprocessable", "ContextLength", "InvalidRequest", "UnprocessableEntity")
"""In the type of a model call's error: what was asked was at fault, not the model server."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What `read` makes of some spans, with what is part of no run."""

    trajectories: list[Trajectory]
    left_out: list[Span]
    """Spans of traces that hold no step: building an agent, a health check, an application's own logs."""


def read(spans: Sequence[Span]) -> list[Trajectory]:
    """The Trajectories that these spans are, in the order in which they began.

    The spans of a run must all be given, in any order; repeated ones count once.  A Trajectory's id is
    its trace's in hex, or made of the run's id where there is one: the same spans give the same ids.
    """
    return survey(spans).trajectories


def survey(spans: Iterable[Span]) -> Survey:
    """As `read`, and also which spans belong to no Trajectory."""
    found: list[Trajectory] = []
    left: list[Span] = []
    for (run, _), group in _runs(_once(spans)).items():
        try:
            made = _trajectory(run, group)
        except Exception as exception:
            # The record must not stop at what some exporter wrote: the bytes are kept, and this says so.
            made = _unreadable(run, group, exception)
        if made is None:
            left += group
        else:
            found.append(made)
    return Survey(sorted(found, key=lambda each: (each.started, each.id)), left)


def source_of(spans: Iterable[Span]) -> str:
    """`gateway` of a run that the gateway alone has seen, else `otlp`."""
    return "gateway" if all(span.encoding == calls.ENCODING for span in spans) else "otlp"


def trajectory_id(trace: bytes, run: str | None) -> str:
    """The id of the Trajectory that spans of this trace or run become."""
    return trace.hex() if run is None else digest(("run", run), 32)


def _once(spans: Iterable[Span]) -> list[Span]:
    """Each span once, by start; of one that came twice, what ended last."""
    kept: dict[tuple[bytes, bytes, str], Span] = {}
    for span in spans:
        key = (span.trace, span.id, span.encoding.partition("+")[0])
        other = kept.get(key)
        if other is None or (span.ended, span.body) > (other.ended, other.body):
            kept[key] = span
    # In one order whatever that of arrival: among equals, what lasted longer is around the other.
    return sorted(kept.values(), key=lambda span: (span.started, -span.ended, span.trace, span.id))


def _runs(spans: list[Span]) -> dict[tuple[str | None, bytes], list[Span]]:
    """Spans by run: a stated run id holds below the span that states it, and in a trace that states one."""
    stated: dict[bytes, set[str]] = {}
    for span in spans:
        if span.run is not None:
            stated.setdefault(span.trace, set()).add(span.run)
    parents = {(span.trace, span.id): span for span in spans if len(stated.get(span.trace, ())) > 1}
    groups: dict[tuple[str | None, bytes], list[Span]] = {}
    for span in spans:
        runs = stated.get(span.trace, set())
        run = span.run or (next(iter(runs)) if len(runs) == 1 else None)
        place: Span | None = span
        seen = set()
        while run is None and place is not None and place.id not in seen:
            run = place.run
            seen.add(place.id)
            place = parents.get((place.trace, place.parent))
        groups.setdefault((run, b"" if run is not None else span.trace), []).append(span)
    return groups


def _trajectory(run: str | None, spans: list[Span]) -> Trajectory | None:
    unread: list[Span] = []
    contents, pairs, loose = _contents(spans, unread)
    for each in contents:
        try:
            pairs.append((each, _reading(each)))
        except Exception:  # a dialect's reader has met what it does not know: the bytes are kept
            unread.append(each.span)
    nodes = grow(pairs)
    found = steps(nodes)
    if not found and not unread:
        return None
    for node in found:
        _complete(node)
    called = any(node.reading.kind == LLM for node in found)
    for node in found:
        if called:
            node.reading.transcript = None  # the calls themselves are there
        elif node.reading.kind == AGENT:
            node.reading.usage = node.reading.aggregate  # nothing else tells what the run has cost
    _name_arguments(found)
    made = _steps(found)
    owner = who([node.content for node in nodes])
    versions, notes = _versions(nodes)
    if not called and any(step.kind == AGENT for step in made):
        notes.append(NO_MODEL_CALL)
    source = source_of(spans)
    told: dict[str, Json] = {
        "source": source,
        "run": run,
        "notes": notes,
        "metadata": dict(owner.metadata),
        "unread": len(unread),
        "unread_spans": [span.id.hex() for span in unread],
        "loose_logs": [span.id.hex() for span in loose],
        **_shape(nodes, found),
        **_redacted(spans),
    }
    failed = _run_error(made)
    asked = _instruction(made)
    whole, nested = _attributed(found, made)
    started = min([span.started for span in spans if span.started], default=0)
    let_go(nodes)
    return Trajectory(
        task=Task(
            id=_task_id(asked) if len(asked) < 1_000 else "", instruction=asked, meta={"source": source}
        ),
        steps=tuple(whole),
        id=trajectory_id(spans[0].trace, run),
        output=_output([step for step in made if step.id not in nested]),
        versions=versions,
        outcome=outcome(failed),
        error=failed,
        trace_ids=_traces(spans, run),
        session=owner.session,
        subject=owner.subject,
        started=started / 1e9,
        seconds=max(0, max(span.ended for span in spans) - started) / 1e9,
        meta={key: value for key, value in told.items() if value},
    )


def _attributed(found: list[Node], made: list[Step]) -> tuple[list[Step], set[str]]:
    """The steps with the agents that the calls themselves tell of, where no span tells of any."""
    if any(step.kind == AGENT for step in made):
        return made, set()
    wires = {
        step.id: (node.reading.wire, node.started, node.ended)
        for step, node in zip(made, found, strict=True)
        if node.reading.wire is not None and not step.agent
    }
    return attribute(made, wires)


def _shape(nodes: list[Node], found: list[Node]) -> dict[str, Json]:
    """Which spans are no step, and which are one together."""
    apart = [node.content.span for node in nodes if node.step is None]
    return {
        "spans_not_steps": [{"span_id": span.id.hex(), "name": span.name} for span in apart],
        "merged_spans": [
            [each.content.span.id.hex() for each in node.members] for node in found if node.members[1:]
        ],
    }


def _versions(nodes: list[Node]) -> tuple[dict[str, str], list[str]]:
    """Which Version of each resource served the run, and a note on each that changed while it ran."""
    found: dict[str, str] = {}
    notes = []
    for node in sorted(nodes, key=lambda node: node.content.span.started):
        for name, version in node.reading.versions.items():
            if found.get(name, version) != version:
                notes.append(f"{name} was served as version {found[name]}, then as {version}")
            found[name] = version
    return found, notes


def _contents(
    spans: list[Span], unread: list[Span]
) -> tuple[list[Content], list[tuple[Content, Reading]], list[Span]]:
    """What spans say with their log records joined to them, the gateway's calls, and the records left over."""
    found: dict[tuple[bytes, bytes], Content] = {}
    called: list[tuple[Content, Reading]] = []
    logs: list[Content] = []
    for span in spans:
        try:
            if span.encoding == calls.ENCODING:
                called.append(calls.read(span))
            elif span.encoding.startswith("log"):
                logs.append(content(span))
            else:
                found[(span.trace, span.id)] = content(span)
        except InputError:
            unread.append(span)
    loose: list[Span] = []
    said: dict[tuple[bytes, bytes], list[Event]] = {}
    for log in logs:
        key = (log.span.trace, log.span.parent)
        if key not in found:
            loose.append(log.span)
            continue
        name = log.span.name or log.attributes.get("event.name")
        event = Event(name if isinstance(name, str) else "", log.span.started, log.attributes, log.body)
        said.setdefault(key, []).append(event)
    for key, events in said.items():
        found[key] = msgspec.structs.replace(found[key], events=(*found[key].events, *events))
    return list(found.values()), called, loose


def _reading(one: Content) -> Reading:
    if _MARKS.isdisjoint(one.attributes):
        return generic.read(one)
    for dialect in _DIALECTS:
        reading = dialect(one)
        if reading is not None:
            return reading
    return generic.read(one)


def _complete(step: Node) -> None:
    """Gather in a step's reading what its other spans say."""
    whole = step.reading
    for member in step.members:
        if member.reading.fill is not None and whole.kind == AGENT:
            member.reading.fill(member.reading)
    attempts = [node for node in step.members if node.is_call]
    if attempts and not step.is_call:
        # One model call that the client tried several times: the last that was answered counts.
        attempts.sort(key=lambda node: (node.reading.error is None, node.content.span.ended))
        _take_call(whole, attempts[-1].reading)
        if len(attempts) > 1:
            whole.extra["attempts"] = len(attempts)
    for member in step.members[1:]:
        if not member.is_call:
            _fill(whole, member.reading)


def _take_call(whole: Reading, call: Reading) -> None:
    """Messages, tokens and what was served from the gateway, which saw the wire; names from the span."""
    whole.input = call.input or whole.input
    if call.output is not None:
        whole.output, whole.others = call.output, call.others
    whole.tokens = call.tokens
    whole.versions.update(call.versions)
    whole.extra.update(call.extra)
    whole.fault = call.fault or whole.fault
    _fill(whole, call)
    if whole.usage and call.usage:
        whole.usage = {key: call.usage[key] if value is None else value for key, value in whole.usage.items()}


def _fill(whole: Reading, other: Reading) -> None:
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
        "error",
        "transcript",
    ):
        if getattr(whole, name) is None:
            setattr(whole, name, getattr(other, name))


def _name_arguments(found: list[Node]) -> None:
    """A tool whose span lost the names of its arguments, or has none: what the call to it said."""
    asked: dict[str, Json] = {}  # by models so far: some servers number their calls anew in each answer
    for node in found:
        for call in (node.reading.output or {}).get("tool_calls", ()):
            asked[call["id"] or ""] = call["arguments"]
        tool = node.reading
        if tool.kind != TOOL or (isinstance(tool.arguments, dict) and tool.tool_call_id):
            continue
        given = [each for each in given_calls(node) if each.get("name") == tool.name]
        if tool.tool_call_id:
            given = [each for each in given if each.get("id") == tool.tool_call_id]
        elif len(given) > 1 and tool.arguments is not None:
            given = [each for each in given if _fits(tool.arguments, each.get("args"))]
        if len(given) == 1:
            id = given[0].get("id")
            tool.tool_call_id = tool.tool_call_id or (id if isinstance(id, str) else None)
            if not isinstance(tool.arguments, dict):
                tool.arguments = given[0]["args"]
        if not isinstance(tool.arguments, dict) and tool.tool_call_id and tool.tool_call_id in asked:
            tool.arguments = asked[tool.tool_call_id]


def _fits(value: Json, arguments: Json) -> bool:
    return value == arguments or (isinstance(arguments, dict) and list(arguments.values()) == [value])


def _steps(found: list[Node]) -> list[Step]:
    ids: dict[int, str] = {}
    taken: set[str] = set()
    for node in found:
        span = node.content.span
        short = span.id.hex()  # unique in its trace; a run may be several traces
        ids[id(node)] = short if short not in taken else f"{span.trace.hex()}:{short}"
        taken.add(short)
    agents: dict[int, str] = {}
    made: list[Step] = []
    errors: dict[tuple[str, str], Fault] = {}
    for node in found:
        if node.reading.kind != AGENT and node.reading.error is not None:
            errors.setdefault(node.reading.error, _fault(node.reading))
    for node in found:
        above = node.inside
        agent = node.reading.name if node.reading.kind == AGENT else agents.get(id(above), "")
        agents[id(node)] = agent
        made.append(_step(node, ids[id(node)], None if above is None else ids.get(id(above)), agent, errors))
    return made


def _step(
    node: Node, id: str, parent: str | None, agent: str, errors: Mapping[tuple[str, str], Fault]
) -> Step:
    reading = node.reading
    failed = None
    if reading.error is not None:
        fault = errors.get(reading.error, Fault.AGENT) if reading.kind == AGENT else _fault(reading)
        failed = Failure(fault, reading.error[0], reading.error[1][:10_000])
    info: dict[str, Json] = {
        "span_ids": [each.content.span.id.hex() for each in node.members],
        "trace_id": node.content.span.trace.hex(),
        "model": reading.model,
        "response_model": reading.response_model,
        "finish_reason": finish_reason(reading.finish, reading.output, failed=failed is not None)
        if reading.kind == LLM
        else None,
        "tool_call_id": reading.tool_call_id,
        "usage": reading.usage if reading.kind != AGENT else None,
        "aggregate_usage": reading.aggregate,
        "versions": dict(reading.versions) or None,
        "transcript": reading.transcript if reading.kind == AGENT else None,
        **{key: value for key, value in reading.extra.items() if key != "workflow"},
    }
    if reading.others and "choices" not in info:
        info["choices"] = [{"output": each} for each in (reading.output, *reading.others)]
    spoken = reading.kind in (AGENT, LLM)
    spent = reading.usage
    return Step(
        observation=reading.input if spoken else reading.arguments,
        action=reading.output if spoken else reading.result,
        kind=reading.kind,
        name=reading.name,
        agent=agent,
        id=id,
        parent=parent,
        tokens=reading.tokens,
        usage=None
        if spent is None
        else Usage(spent["input"] or 0, spent["output"] or 0, calls=int(reading.kind != AGENT)),
        latency=max(0, node.ended - node.started) / 1e9,
        error=failed,
        info={key: value for key, value in info.items() if value is not None},
    )


def _fault(reading: Reading) -> Fault:
    """Whose failure it was: the gateway's word, else by what kind of step failed."""
    if reading.fault is not None:
        try:
            return Fault(reading.fault)
        except ValueError:
            pass
    if reading.kind == LLM and reading.error is not None:
        return Fault.AGENT if any(name in reading.error[0] for name in _REFUSED) else Fault.MODEL
    return Fault.TOOL if reading.kind == TOOL else Fault.AGENT


def _run_error(made: Sequence[Step]) -> Failure | None:
    """The run failed if its agent did, or if what came last outside of any agent did."""
    top = [step for step in made if step.parent is None]
    agents = [step for step in top if step.kind == AGENT]
    if agents:
        return next((step.error for step in reversed(agents) if step.error is not None), None)
    return top[-1].error if top else None


def _instruction(made: Sequence[Step]) -> str:
    """What the user asked: the last thing said by a user before the first step; else what the function was given."""
    for step in made:
        for each in reversed(step.observation or ()) if step.kind in (AGENT, LLM) else ():
            if each["role"] == "user" and each.get("text"):
                text: str = each["text"]
                return text
    given = next((step.observation for step in _functions(made)), None)
    return plain(given)


@functools.lru_cache(maxsize=256)
def _task_id(instruction: str) -> str:
    """The id of a Task with this instruction and no more: many runs ask for the same, or for nothing."""
    return Task(instruction=instruction).id


def _output(made: Sequence[Step]) -> Json:
    """What the run came to: its agent's last word, else its last model call's, else what the function returned."""
    top = [step for step in made if step.kind == AGENT and step.parent is None and step.action is not None]
    spoken = top or [step for step in made if step.kind == LLM and step.action is not None]
    if not spoken:
        return next((step.action for step in reversed(_functions(made))), None)
    last: Message = spoken[-1].action
    return last["text"] if set(last) <= {"role", "text", "reasoning"} and "text" in last else last


def _functions(made: Sequence[Step]) -> list[Step]:
    """The outermost functions of a run in which no dialect knows anything: spans of somebody's own."""
    if any(step.kind != FUNCTION for step in made):
        return []
    return [step for step in made if step.parent is None]


def _redacted(spans: Iterable[Span]) -> dict[str, Json]:
    """Where something was redacted at ingest, what and how often; nothing may be trained on it."""
    counts: dict[str, int] = {}
    for span in spans:
        if b"[redacted:" in span.body:
            for name in MARKED.findall(span.body):
                counts[name.decode()] = counts.get(name.decode(), 0) + 1
    if not counts:
        return {}
    return {"redacted": counts, "untrainable": why_untrainable(counts)}


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
