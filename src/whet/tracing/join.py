"""A program's own trajectories and the gateway's record of its model calls: one run, put together.

Inside `whet run` a traced function knows what it did and the gateway what its model was asked, token
ids and all.  Both carry the run's id, and clocks of one machine say which call of the function a model
call was made in.  A rollout of a worker is one run with an id of its own: a model call that carries it is
that rollout's, whatever the clocks say; one that carries the id of the queue's rollout is told among the
attempts by time.  Where that is not certain, because two traced calls ran at once, the model call stays
in the run's own trajectory: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..types import Json, Span, Step, Trajectory
from .dialects import survey
from .dialects.calls import ENCODING as CALL
from .record import STARTED


def join(recorded: Sequence[Trajectory], spans: Sequence[Span]) -> tuple[list[Trajectory], list[Span]]:
    """What the traced calls of a run become with the model calls made in them, and the spans left over.

    Args:
        recorded: trajectories of the run in the record; those that a decorator or a worker wrote are looked at.
        spans: all of the run.
    """
    own = [each for each in recorded if _owns(each) and each.seconds is not None]
    known = {(span.trace, span.id) for span in spans if span.encoding != CALL}
    made_in: dict[str, list[Span]] = {}
    left: list[Span] = []
    for span in spans:
        inside = [each for each in own if "worker" in each.meta and each.id == span.run]
        inside = inside or [each for each in own if _within(each, span)]
        if span.encoding == CALL and (span.trace, span.parent) not in known and len(inside) == 1:
            made_in.setdefault(inside[0].id, []).append(span)
        else:
            left.append(span)
    return [_joined(each, made_in[each.id]) for each in own if each.id in made_in], left


def _owns(trajectory: Trajectory) -> bool:
    """Whether a decorator wrote it or a worker."""
    return "function" in trajectory.meta or {"worker", "rollout"} <= trajectory.meta.keys()


def _within(trajectory: Trajectory, span: Span) -> bool:
    """Whether a call began while a traced function ran; its end is measured after the agent has its answer."""
    return trajectory.started <= span.started / 1e9 <= trajectory.started + (trajectory.seconds or 0)


def _joined(trajectory: Trajectory, spans: Sequence[Span]) -> Trajectory:
    began = {span.id.hex(): span.started / 1e9 for span in spans}
    there = {id for step in trajectory.steps for id in (step.id, *step.info.get("span_ids", ()))}
    fresh = [span for span in spans if span.id.hex() not in there]
    steps, versions, meta = list(trajectory.steps), dict(trajectory.versions), dict(trajectory.meta)
    session, subject = trajectory.session, trajectory.subject
    # In a rollout the agent's answer is a step itself, which comes first: all that led to it is inside.
    answer = steps[0].id if "worker" in meta and steps and steps[0].kind == "action" else None
    for read in survey(fresh).trajectories:
        # A sub-agent's step, which the calls tell of, begins with its first call.
        starts = {step.id: began[step.info["span_ids"][0]] for step in read.steps if "span_ids" in step.info}
        for step in reversed(read.steps):
            if step.parent is not None and step.id in starts:
                starts[step.parent] = starts[step.id]
        for call in read.steps:
            at = starts[call.id]
            call = replace(call, info={**call.info, STARTED: at})
            place = _reported(steps, call)
            place = _place(steps, at, call.agent) if place is None else place
            if place is not None and _same(steps[place], call) and not _taken(steps, place):
                steps[place] = _one(steps[place], call)
            else:
                around = None if place is None else steps[place]
                parent = call.parent or (answer if around is None else around.id)
                agent = call.agent or ("" if around is None else around.agent)
                steps.insert(_position(steps, at), replace(call, parent=parent, agent=agent))
        versions = {**read.versions, **versions}
        session, subject = session or read.session, subject or read.subject
        meta |= {key: read.meta[key] for key in ("redacted", "untrainable", "notes") if key in read.meta}
    return replace(
        trajectory,
        steps=tuple(steps),
        versions=versions,
        meta=meta,
        session=session,
        subject=subject,
    )


def _reported(steps: Sequence[Step], call: Step) -> int | None:
    """The step in which a worker's agent has told of this very call itself, by its token ids."""
    alike = (number for number, step in enumerate(steps) if step.tokens is not None and _same(step, call))
    return next((number for number in alike if not _taken(steps, number)), None)


def _same(step: Step, call: Step) -> bool:
    """Whether a step is the record of the call: one that says so, or that has its token ids."""
    if step.tokens is None or call.tokens is None:
        return step.kind == "llm"
    ours, theirs = step.tokens, call.tokens
    return [*ours.prompt_ids] == [*theirs.prompt_ids] and [*ours.output_ids] == [*theirs.output_ids]


def _began(step: Step) -> float | None:
    found = step.info.get(STARTED)
    return found if isinstance(found, float) else None


def _place(steps: Sequence[Step], at: float, agent: str) -> int | None:
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


def _taken(steps: Sequence[Step], place: int) -> bool:
    """A step that has the record of a model call already, in itself or inside."""
    step = steps[place]
    return "span_ids" in step.info or any(each.parent == step.id for each in steps)


def _position(steps: Sequence[Step], at: float) -> int:
    """After every step that began before."""
    later = (number for number, step in enumerate(steps) if (_began(step) or 0.0) > at)
    return next(later, len(steps))


def _one(step: Step, call: Step) -> Step:
    """A step of kind llm with what the gateway saw of it; its name, reward and own notes stay."""
    info: dict[str, Json] = {**call.info, **step.info}
    return replace(
        step,
        observation=call.observation if call.observation is not None else step.observation,
        action=call.action if call.action is not None else step.action,
        tokens=call.tokens or step.tokens,
        usage=step.usage or call.usage,
        error=step.error or call.error,
        agent=step.agent or call.agent,
        info=info,
    )
