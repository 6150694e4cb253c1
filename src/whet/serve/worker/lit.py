"""Agents written for the Agent Lightning 0.1 interface, and their reports as whet's nouns.

`LitAgent` has the shape of that interface, so a class written for it runs under `whet work` with
its import changed, and a class derived from the original runs with no change at all: only the
methods are looked at.  The trainer and tracer that the original hands to an agent do not exist
here; the gateway or `whet.trace` records a rollout.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from ...types import Bundle, Json, Outcome, Score, Step, Task, Tokens, Trajectory


class LLM(msgspec.Struct, tag_field="resource_type", tag="llm"):
    """An endpoint and model as a resource."""

    endpoint: str
    model: str
    sampling_parameters: dict[str, Any] = {}


class PromptTemplate(msgspec.Struct, tag_field="resource_type", tag="prompt_template"):
    """A prompt as a resource."""

    template: str
    engine: Literal["jinja", "f-string", "poml"] = "f-string"


class Triplet(msgspec.Struct):
    """One turn: prompt, response and reward."""

    prompt: Any
    response: Any
    reward: float | None = None
    metadata: dict[str, Any] = {}


class LitReport(msgspec.Struct):
    """The report of a rollout; the body of `POST /rollout`."""

    rollout_id: str
    final_reward: float | None = None
    triplets: list[Triplet] | None = None
    trace: list[dict[str, Any]] | None = None
    logs: list[str] | None = None
    metadata: dict[str, Any] = {}


class LitAgent:
    """Derive from it and write `training_rollout`, or `training_rollout_async`.

    Args:
        trained_agents: kept for the subclass; nothing here reads it.
    """

    def __init__(self, *, trained_agents: str | None = None) -> None:
        self.trained_agents = trained_agents

    def training_rollout(self, task: Any, rollout_id: str, resources: Mapping[str, Any]) -> Any:
        """Work on one train task.

        Args:
            task: the task's input.
            rollout_id: of this attempt.
            resources: name → LLM, PromptTemplate, or a plain value.

        Returns:
            A float (the reward), a list of Triplets or of span dicts, a LitReport, or None.
        """
        raise NotImplementedError("write training_rollout or training_rollout_async")

    def validation_rollout(self, task: Any, rollout_id: str, resources: Mapping[str, Any]) -> Any:
        """Work on one validation or test task; as on a train task unless overridden."""
        return self.training_rollout(task, rollout_id, resources)

    async def training_rollout_async(self, task: Any, rollout_id: str, resources: Mapping[str, Any]) -> Any:
        """As `training_rollout`, for an agent that awaits."""
        raise NotImplementedError("write training_rollout or training_rollout_async")

    async def validation_rollout_async(self, task: Any, rollout_id: str, resources: Mapping[str, Any]) -> Any:
        """As `validation_rollout`, for an agent that awaits."""
        return await self.training_rollout_async(task, rollout_id, resources)


def is_lit(agent: object) -> bool:
    """True if an agent has that interface, whatever class it is derived from."""
    return callable(getattr(agent, "training_rollout", None)) or callable(
        getattr(agent, "training_rollout_async", None)
    )


def is_async(agent: object) -> bool:
    """True if it has an asynchronous method of its own, not the one that only raises NotImplementedError."""
    method = getattr(type(agent), "training_rollout_async", None)
    return inspect.iscoroutinefunction(method) and not _is_base(method)


def _is_base(method: Any) -> bool:
    # The original's and ours alike: defined in a class that is itself called LitAgent.
    return str(getattr(method, "__qualname__", "")).split(".")[0] == "LitAgent"


def input_of(task: Task) -> Json:
    """The task as an agent of this interface gets it: as `whet.calls` gives it, or `meta["input"]`."""
    if "input" in task.meta:
        return task.meta["input"]
    if task.initial_state:
        return {"instruction": task.instruction, **task.initial_state}
    return task.instruction


def resources_of(bundle: Bundle) -> dict[str, Any]:
    """The resources of a Bundle as this interface has them; one that is neither LLM nor prompt stays as it is."""
    resources: dict[str, Any] = {}
    for name, version in bundle.items():
        try:
            resources[name] = msgspec.convert(served(version.content), LLM | PromptTemplate)
        except msgspec.ValidationError:
            resources[name] = version.content
    return resources


def served(content: Json) -> Json:
    """A resource's content in this interface's wire form: a bare string is a prompt template."""
    if isinstance(content, str):
        return {"resource_type": "prompt_template", "template": content, "engine": "f-string"}
    return content


def reported(result: Any, rollout_id: str) -> LitReport:
    """The return value of a rollout method as a LitReport.

    Raises:
        TypeError: the interface does not allow it.
    """
    if result is None:
        return LitReport(rollout_id)
    if isinstance(result, bool | int | float):
        return LitReport(rollout_id, final_reward=float(result))
    if isinstance(result, list):
        return _listed(result, rollout_id)
    if hasattr(result, "final_reward") and hasattr(result, "triplets"):
        # Ours, or the original's class with the same fields.
        triplets = None if result.triplets is None else [_triplet(turn) for turn in result.triplets]
        return LitReport(
            rollout_id, result.final_reward, triplets, result.trace, result.logs, dict(result.metadata or {})
        )
    raise TypeError(
        f"a rollout returned {type(result).__name__}; it must return a float, a list of Triplets or of "
        "span dicts, a LitReport, or None"
    )


def _listed(result: Sequence[Any], rollout_id: str) -> LitReport:
    if all(isinstance(span, dict) for span in result):
        return LitReport(rollout_id, trace=list(result))
    triplets = [_triplet(turn) for turn in result]
    return LitReport(rollout_id, final_reward=triplets[-1].reward if triplets else None, triplets=triplets)


def _triplet(turn: Any) -> Triplet:
    if not hasattr(turn, "prompt") or not hasattr(turn, "response"):
        raise TypeError(
            f"a rollout returned a list with {type(turn).__name__}; Triplets or dicts are expected"
        )
    return Triplet(turn.prompt, turn.response, turn.reward, dict(turn.metadata or {}))


def trajectory_of(report: LitReport, task: Task, id: str) -> Trajectory:
    """A report as a Trajectory: each triplet a Step with its tokens, agent and reward.

    The final reward is that of the last Step where no triplet has one of its own, and the Score "reward" in any
    case.  A rollout that reports nothing else is one Step.  A reward that is missing stays missing: the Score has
    the value None and says why.  Nothing is judged: the outcome is UNKNOWN until a Reward has looked at it.

    Args:
        task: of the rollout.
        id: of the trajectory.
    """
    final = report.final_reward
    if final is None and report.triplets:
        final = report.triplets[-1].reward
    steps = [_step(triplet, number) for number, triplet in enumerate(report.triplets or ())]
    if not steps and final is not None:
        steps = [Step(id="0", kind="agent", observation=input_of(task), reward=final)]
    elif steps and all(step.reward is None for step in steps):
        steps[-1] = replace(steps[-1], reward=final)
    if steps:
        steps[-1] = replace(steps[-1], done=True)
    why = "" if final is not None else "the agent reported no reward"
    meta: dict[str, Json] = {"protocol": "agent-lightning 0.1"}
    for name, value in (("trace", report.trace), ("logs", report.logs), ("reported", report.metadata)):
        if value:
            meta[name] = value
    return Trajectory(
        task=task,
        id=id,
        steps=tuple(steps),
        output=steps[-1].action if steps else None,
        scores={"reward": Score("reward", final, why, "agent")},
        outcome=Outcome.UNKNOWN,
        meta=meta,
    )


def _step(triplet: Triplet, number: int) -> Step:
    """One model call.

    The 0.1 client gives prompt and response as `{"token_ids": [...]}` where its tracer saw token ids, which are
    empty lists where it did not; log-probabilities only where an agent reports them itself, in the response.
    Without them they are unknown (NaN): good for cloning, and refused by what needs them.
    """
    prompt_ids, output_ids = _ids(triplet.prompt), _ids(triplet.response)
    tokens = None
    if prompt_ids and output_ids:
        reported = triplet.response.get("logprobs")
        numeric = isinstance(reported, list) and all(map(_is_number, reported))
        complete = numeric and len(reported) == len(output_ids)
        logprobs = tuple(map(float, reported)) if complete else (math.nan,) * len(output_ids)
        version = triplet.metadata.get("policy_version")
        tokens = Tokens(
            prompt_ids, output_ids, logprobs, policy_version=None if version is None else str(version)
        )
    name = triplet.metadata.get("agent_name")
    return Step(
        id=str(number),
        kind="llm",
        observation=_without_tokens(triplet.prompt),
        action=_without_tokens(triplet.response),
        reward=triplet.reward,
        agent=name if isinstance(name, str) and name != _ANY_AGENT else "",
        tokens=tokens,
        info=triplet.metadata,
    )


_ANY_AGENT = "*"
"""The 0.1 exporter's agent name for a call outside every agent span."""
_TOKENS = ("token_ids", "logprobs")


def _ids(content: Any) -> tuple[int, ...]:
    """Token ids of a prompt or a response; empty if it has none, or something else in their place."""
    token_ids = content.get("token_ids") if isinstance(content, dict) else None
    if isinstance(token_ids, list) and all(type(token) is int for token in token_ids):
        return tuple(token_ids)
    return ()


def _without_tokens(content: Any) -> Json:
    if not isinstance(content, dict) or "token_ids" not in content:
        return content
    return {name: value for name, value in content.items() if name not in _TOKENS} or None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
