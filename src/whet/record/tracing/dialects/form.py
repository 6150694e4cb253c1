"""The plain form in which captured steps are shown: one dictionary a step, the same for every dialect."""

from __future__ import annotations

import msgspec

from ....types import AGENT, LLM, Json, Step, Tokens, Trajectory


def form(trajectory: Trajectory) -> dict[str, Json]:
    """A Trajectory as `whet show trajectories` prints it: its task, its steps and its feedback.

    `parent` of a step is the index of the step it happened in.  Works for any Trajectory, traced by
    OpenTelemetry, by the gateway or by `whet.trace`.
    """
    indices = {step.id: index for index, step in enumerate(trajectory.steps) if step.id}
    error = trajectory.error
    return {
        "id": trajectory.id,
        "run": trajectory.meta.get("run"),
        "trace_ids": list(trajectory.trace_ids),
        "session": trajectory.session,
        "subject": trajectory.subject,
        "instruction": trajectory.task.instruction,
        "initial_state": dict(trajectory.task.initial_state),
        "outcome": str(trajectory.outcome),
        "error": None
        if error is None
        else {"type": error.type, "message": error.message, "fault": str(error.fault)},
        "output": trajectory.output,
        "versions": dict(trajectory.versions),
        "started": trajectory.started,
        "seconds": trajectory.seconds,
        "scores": [msgspec.to_builtins(score) for score in trajectory.scores.values()],
        "feedback": msgspec.to_builtins(trajectory.feedback),
        "steps": [step_form(step, index, indices) for index, step in enumerate(trajectory.steps)],
        "meta": dict(trajectory.meta),
    }


def step_form(step: Step, index: int, indices: dict[str, int]) -> dict[str, Json]:
    """One step: kind, parent index, span_ids, name, model, input_messages, output, arguments, usage, error."""
    info = step.info
    spoken = step.kind in (AGENT, LLM)
    used = info.get("usage")
    if used is None and step.usage is not None and "span_ids" not in info:
        used = {"input": step.usage.prompt_tokens, "output": step.usage.output_tokens}
    shown = {
        "index": index,
        "kind": step.kind,
        "name": step.name,
        "agent": step.agent,
        "parent": None if step.parent is None else indices.get(step.parent),
        "span_ids": info.get("span_ids", []),
        "trace_id": info.get("trace_id"),
        "model": info.get("model"),
        "response_model": info.get("response_model"),
        "input_messages": step.observation if spoken else None,
        "arguments": None if spoken else step.observation,
        "output": {"text": step.action} if not spoken and isinstance(step.action, str) else step.action,
        "finish_reason": info.get("finish_reason"),
        "reward": step.reward,
        "usage": used,
        "aggregate_usage": info.get("aggregate_usage"),
        "error": None if step.error is None else {"type": step.error.type, "message": step.error.message},
        "tool_call_id": info.get("tool_call_id"),
        "latency": step.latency,
        "tokens": None if step.tokens is None else _tokens(step.tokens),
    }
    shown.update(
        {key: info[key] for key in ("choices", "transcript", "attributes", "evaluations") if key in info}
    )
    return shown


def _tokens(tokens: Tokens) -> dict[str, Json]:
    return {
        "prompt_ids": list(tokens.prompt_ids),
        "output_ids": list(tokens.output_ids),
        "logprobs": list(tokens.logprobs),
        "mask": None if tokens.mask is None else list(tokens.mask),
        "policy_version": tokens.policy_version,
    }
