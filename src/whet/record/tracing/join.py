"""A program's own trajectories and the gateway's record of its model calls: one run.

The assembler calls `join` for every run in which the gateway made calls.  It reads what it is given and stores nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...types import Json, Span, Step, Task, Trajectory
from ..store.trials import TRIALS, arms_of, joined_arms
from .dialects import survey
from .dialects.calls import ENCODING as CALL
from .record import STARTED
from .told_tools import CALLED, with_told_tools


def join(recorded: Sequence[Trajectory], spans: Sequence[Span]) -> tuple[list[Trajectory], list[Span]]:
    """The traced calls of a run with the model calls made in them, and the other spans.

    Inside `whet run` a traced function knows its own steps and the gateway its model calls, token ids and all.  Both
    carry the run's id, and clocks of one machine tell in which call of the function a model call was made.  A rollout
    of a worker is one run with an id of its own: a model call that carries it is that rollout's, whatever the clocks
    say; one that carries the id of the queue's rollout is assigned to an attempt by time.  Where that is not certain,
    because two traced calls ran at once, the model call stays in the run's own trajectory: nothing is guessed.

    Args:
        recorded: trajectories of the run in the record; those that a decorator or a worker wrote are looked at.
        spans: all of the run.
    """
    own = [run for run in recorded if _owns(run) and run.seconds is not None]
    exported = {(span.trace, span.id) for span in spans if span.encoding != CALL}
    made_in: dict[str, list[Span]] = {}
    unjoined: list[Span] = []
    for span in spans:
        inside = [run for run in own if "worker" in run.meta and run.id == span.run]
        inside = inside or [run for run in own if _within(run, span)]
        if span.encoding == CALL and (span.trace, span.parent) not in exported and len(inside) == 1:
            made_in.setdefault(inside[0].id, []).append(span)
        else:
            unjoined.append(span)
    return [_with_calls(run, made_in[run.id]) for run in own if run.id in made_in], unjoined


def with_calls(steps: Sequence[Step], spans: Sequence[Span]) -> Sequence[Step]:
    """The traced steps of one answer with the model calls that a gateway recorded meanwhile."""
    return _with_calls(Trajectory(task=Task(instruction=""), steps=tuple(steps)), spans).steps


def _owns(trajectory: Trajectory) -> bool:
    """True of what a decorator or a worker wrote."""
    return "function" in trajectory.meta or trajectory.by_worker


def _within(trajectory: Trajectory, span: Span) -> bool:
    """True if a call began while a traced function ran; its end is measured after the agent has its answer."""
    return trajectory.started <= span.started / 1e9 <= trajectory.started + (trajectory.seconds or 0)


def _with_calls(trajectory: Trajectory, spans: Sequence[Span]) -> Trajectory:
    began = {span.id.hex(): span.started / 1e9 for span in spans}
    there = {id for step in trajectory.steps for id in (step.id, *step.info.get("span_ids", ()))}
    fresh = [span for span in spans if span.id.hex() not in there]
    steps, versions, meta = list(trajectory.steps), dict(trajectory.versions), dict(trajectory.meta)
    session, subject = trajectory.session, trajectory.subject
    # In a rollout the agent's answer is a step itself, which comes first: all that led to it is inside.
    answer = steps[0].id if "worker" in meta and steps and steps[0].kind == "action" else None
    for read in survey(fresh).trajectories:
        # A sub-agent's step, which the calls tell of, begins with its first call.
        # The tools that the calls tell of are looked for at the end, among the steps of the function's own.
        called = [step for step in read.steps if step.kind != "tool"]
        starts = {step.id: began[step.info["span_ids"][0]] for step in called if "span_ids" in step.info}
        for step in reversed(called):
            if step.parent is not None and step.id in starts:
                starts[step.parent] = starts[step.id]
        for call in called:
            at = starts[call.id]
            call = replace(call, info={**call.info, STARTED: at})
            index = _reported(steps, call)
            index = _innermost(steps, at, call.agent) if index is None else index
            if index is not None and _is_record(steps, index, call):
                steps[index] = _with_call(steps[index], call)
            else:
                around = None if index is None else steps[index]
                parent = call.parent or (answer if around is None else around.id)
                agent = call.agent or ("" if around is None else around.agent)
                steps.insert(_position(steps, at), replace(call, parent=parent, agent=agent))
        versions = {**read.versions, **versions}
        session, subject = session or read.session, subject or read.subject
        if trials := joined_arms(arms_of(trajectory), arms_of(read)):
            meta[TRIALS] = trials
        meta |= {key: read.meta[key] for key in ("redacted", "untrainable", "notes") if key in read.meta}
    return replace(
        trajectory,
        steps=tuple(with_told_tools(steps)),
        versions=versions,
        meta=meta,
        session=session,
        subject=subject,
    )


def _reported(steps: Sequence[Step], call: Step) -> int | None:
    """The step in which a worker's agent reported this very call itself, by its token ids."""
    alike = (number for number, step in enumerate(steps) if step.tokens is not None and _same(step, call))
    return next((number for number in alike if not _has_call(steps, number)), None)


def _same(step: Step, call: Step) -> bool:
    """True if a step is the record of the call: a model call without token ids, or with those of the call."""
    if step.tokens is None or call.tokens is None:
        return step.kind == "llm"
    ours, theirs = step.tokens, call.tokens
    return [*ours.prompt_ids] == [*theirs.prompt_ids] and [*ours.output_ids] == [*theirs.output_ids]


def _began(step: Step) -> float | None:
    started = step.info.get(STARTED)
    return started if isinstance(started, float) else None


def _innermost(steps: Sequence[Step], at: float, agent: str) -> int | None:
    """The innermost step of the decorator that was open at a time: the last to begin of those.

    Args:
        agent: of the call; of several agents' steps that are open at once, its own is the one.
    """
    open_now = []
    for number, step in enumerate(steps):
        start = _began(step)
        if start is None or step.latency is None or "trace_id" in step.info:
            continue
        if start <= at <= start + step.latency:
            open_now.append(number)
    own = [number for number in open_now if agent and steps[number].agent == agent]
    return max(own or open_now, default=None)


def _is_record(steps: Sequence[Step], index: int, call: Step) -> bool:
    """True if a step is the agent's own record of the call, and has none of the gateway's yet.

    A call that failed in a step that did not is an attempt inside it, which the agent survived.
    """
    survived = call.error is not None and steps[index].error is None
    return not survived and _same(steps[index], call) and not _has_call(steps, index)


def _has_call(steps: Sequence[Step], index: int) -> bool:
    """A step that has the record of an answered model call already, in itself or inside."""
    step = steps[index]
    inside = (inner for inner in steps if inner.parent == step.id)
    return "span_ids" in step.info or any(inner.error is None or CALLED not in inner.info for inner in inside)


def _position(steps: Sequence[Step], at: float) -> int:
    """After every step that began before."""
    # A step without a time counts as begun: it stays where its recorder put it.
    later = (number for number, step in enumerate(steps) if (_began(step) or 0.0) > at)
    return next(later, len(steps))


def _with_call(step: Step, call: Step) -> Step:
    """A step of kind llm with the gateway's record of it; its name, reward and own notes stay."""
    info: dict[str, Json] = {**call.info, **step.info}
    return replace(
        step,
        observation=call.observation if call.observation is not None else step.observation,
        action=call.action if call.action is not None else step.action,
        tokens=call.tokens or step.tokens,
        # The step's own count goes first; of messages and tokens the gateway knows more, for it saw the wire.
        usage=step.usage or call.usage,
        error=step.error or call.error,
        agent=step.agent or call.agent,
        info=info,
    )
