"""Trajectories as the datasets that other trainers read: TRL's conversational types and verl's rows.

A conversation is what one call of a model saw and answered.  Of the calls of a run each is kept whose messages no
later call goes on from: one for a plain agent, one for each sub-agent, one more where history was cut.  A run
without model calls is one question, the calls of its tools as far as these are recorded, and its answer.  What the
other side cannot say (an image, a run without any answer) is left out and counted with its reason, never bent.

Nothing is tokenised: these trainers apply their own chat template.  Where token ids were captured, training on those
(`whet train`) is exact and this is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...types import Json, Outcome, Preference, Trajectory, canonical
from ..tools import bare
from ..tracing.dialects.values import plain
from ..tracing.tool_calls import arguments, tool_steps

Message = dict[str, Json]
Worth = Callable[[Trajectory], float | None]
"""Run → its worth; None where nobody judged it."""

_UNANSWERED = "its task has no answer to score by; give the Task one, or export trl-prompts"
_UNASKED = "its question is not recorded; add its task (whet tasks add) before the run is imported"
GOOD = 0.5
"""Worth from which a run is a good one."""


@dataclass(slots=True)
class Exported:
    """Rows of a dataset, and why there are not more."""

    rows: list[dict[str, Json]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason → how many runs or preferences."""


def worth_of(score: str | None = None) -> Worth:
    """The named Score; without a name the outcome, and where that is unknown what people said of the run."""

    def worth(run: Trajectory) -> float | None:
        if run.outcome is Outcome.INFRASTRUCTURE_ERROR:
            return None
        if score is not None:
            return run.score(score)
        if run.outcome.counts:
            return float(run.outcome is Outcome.SUCCESS)
        thumbs = [feedback.value for feedback in run.feedback if feedback.kind == "thumb" and feedback.value]
        # As many up as down is no judgement: the run is left out, and not a bad one.
        return float(sum(thumbs) > 0) if thumbs and sum(thumbs) else None

    return worth


def _judged(
    runs: Iterable[Trajectory], worth: Worth, exported: Exported
) -> Iterator[tuple[Trajectory, bool]]:
    """The runs that somebody judged, and which of them are good ones."""
    for run in runs:
        value = worth(run)
        if value is None:
            exported.left_out["nobody judged it"] += 1
        else:
            yield run, value >= GOOD


def sft(runs: Iterable[Trajectory], worth: Worth) -> Exported:
    """TRL's language modelling type, `{"messages": [...]}`, from runs that went well."""
    exported = Exported()
    for run, good in _judged(runs, worth, exported):
        if not good:
            exported.left_out["it did not go well"] += 1
            continue
        for prompt, completion in _turns(run, exported):
            exported.rows.append({"messages": [*prompt, *completion]})
    return exported


def kto(runs: Iterable[Trajectory], worth: Worth) -> Exported:
    """TRL's unpaired preferences, `{"prompt", "completion", "label"}`, from every judged run."""
    exported = Exported()
    for run, good in _judged(runs, worth, exported):
        for prompt, completion in _turns(run, exported):
            exported.rows.append({"prompt": prompt, "completion": completion, "label": good})
    return exported


def dpo(runs: Iterable[Trajectory], worth: Worth, preferences: Iterable[Preference] = ()) -> Exported:
    """TRL's preferences, `{"prompt", "chosen", "rejected"}`: given ones, and runs of one task beside each other.

    Of a task's runs that began with the same messages every one that went well is set against the next that did not;
    no run is used twice.
    """
    exported = Exported()
    for preference in preferences:
        if preference.tie:
            exported.left_out["a tie"] += 1
        else:
            exported.rows.append(
                {
                    "prompt": _as_messages(preference.prompt, "user"),
                    "chosen": _as_messages(preference.chosen, "assistant"),
                    "rejected": _as_messages(preference.rejected, "assistant"),
                }
            )
    sides: dict[bytes, tuple[list[Any], list[Any]]] = {}
    for run, good in _judged(runs, worth, exported):
        for prompt, completion in _turns(run, exported):
            better, worse = sides.setdefault(canonical([run.task.id, prompt]), ([], []))
            (better if good else worse).append((prompt, completion))
    for better, worse in sides.values():
        exported.left_out["no run of the same task to compare with"] += abs(len(better) - len(worse))
        # To the shorter side: no run is used twice.
        for (prompt, chosen), (_, rejected) in zip(better, worse, strict=False):
            exported.rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    exported.left_out += Counter()  # forget the zeros
    return exported


def prompts(runs: Iterable[Trajectory]) -> Exported:
    """TRL's prompts alone, one a task, with its `answer` for the reward function and its `task` and `group`."""
    exported = Exported()
    for run, prompt in _questions(runs, exported):
        exported.rows.append(
            {"prompt": prompt, "answer": run.task.answer, "task": run.task.id, "group": run.task.group}
        )
    return exported


def verl(runs: Iterable[Trajectory], *, source: str = "whet") -> Exported:
    """verl's rows, one a task: `data_source`, `prompt`, `ability`, `reward_model`, `extra_info`.

    Args:
        source: by which verl's `reward_score` finds the function that judges.
    """
    exported = Exported()
    for run, prompt in _questions(runs, exported):
        if not run.task.answer_known:
            exported.left_out[_UNANSWERED] += 1
            continue
        answer = run.task.answer
        exported.rows.append(
            {
                "data_source": source,
                "prompt": prompt,
                "ability": "agent",
                "reward_model": {
                    "style": "rule",
                    "ground_truth": answer if isinstance(answer, str) else canonical(answer).decode(),
                },
                "extra_info": {
                    "index": len(exported.rows),
                    "split": str(run.task.split or "train"),
                    "task": run.task.id,
                    "group": run.task.group,
                },
            }
        )
    return exported


def conversations(run: Trajectory) -> list[list[Json]]:
    """Messages and answer of each last call of a model, in the form that `docs/nouns.md` calls an observation."""
    calls = [
        [*step.observation, step.action]
        for step in run.steps
        if step.kind == "llm" and isinstance(step.observation, list) and isinstance(step.action, dict)
    ]
    last_calls = [
        call
        for index, call in enumerate(calls)
        if not any(later[: len(call)] == call for later in calls[index + 1 :])
    ]
    if calls or run.output is None or not run.task.instruction:
        return last_calls
    question = {"role": "user", "text": run.task.instruction}
    return [[question, *_tools(run), {"role": "assistant", "text": run.output_text}]]


def _tools(run: Trajectory) -> list[Json]:
    """The tool calls of a run whose model calls are not recorded, as a model would have asked for them.

    None of them where the names of an argument are not recorded: what has no name cannot be asked for.
    """
    tools = tool_steps(run)
    if not all(isinstance(arguments(tool), dict) for tool in tools):
        return []
    messages: list[Json] = []
    for index, tool in enumerate(tools):
        id = tool.info.get("tool_call_id") or f"call_{index}"
        call = {"id": id, "name": bare(tool.name), "arguments": arguments(tool)}
        messages.append({"role": "assistant", "tool_calls": [call]})
        result = plain(tool.action) if tool.error is None else f"{tool.error.type}: {tool.error.message}"
        messages.append({"role": "tool", "tool_call_id": id, "text": result})
    return messages


def chat(message: Json) -> Message | None:
    """One message as chat templates take it; None if they cannot say it.

    Arguments of tool calls stay objects, as templates want them and not as the API sends them.
    """
    if not isinstance(message, dict) or message.get("parts"):
        return None
    api_message: Message = {"role": message.get("role", "user"), "content": message.get("text") or ""}
    if calls := message.get("tool_calls"):
        api_message["tool_calls"] = [
            {
                "type": "function",
                "id": call.get("id"),
                "function": {"name": call.get("name"), "arguments": call.get("arguments")},
            }
            for call in calls
        ]
    if message.get("role") == "tool":
        api_message["tool_call_id"] = message.get("tool_call_id")
    return api_message


def _turns(run: Trajectory, exported: Exported) -> Iterator[tuple[list[Message], list[Message]]]:
    """Prompt and completion of each conversation, cut before the first word of the assistant."""
    recorded = conversations(run)
    if not recorded:
        answered_none = run.task.instruction or run.output is None
        exported.left_out["it has no answer" if answered_none else _UNASKED] += 1
    for conversation in recorded:
        messages = [chat(message) for message in conversation]
        texts = [message for message in messages if message is not None]
        # The whole conversation: without an image the answer to it would teach to invent.
        if len(texts) < len(messages):
            exported.left_out["a message is no text (an image, a file)"] += 1
            continue
        first = next(index for index, message in enumerate(texts) if message["role"] == "assistant")
        yield texts[:first], texts[first:]


def _questions(runs: Iterable[Trajectory], exported: Exported) -> Iterator[tuple[Trajectory, list[Message]]]:
    """The first prompt of each task."""
    task_ids: set[str] = set()
    for run in runs:
        if run.task.id in task_ids:
            continue
        prompt_and_completion = next(iter(_turns(run, exported)), None)
        if prompt_and_completion is not None:
            task_ids.add(run.task.id)
            yield run, prompt_and_completion[0]


def _as_messages(side: Json, role: str) -> list[Message]:
    """A side of a recorded preference: text, or messages in our form or in the API's."""
    if isinstance(side, str):
        return [{"role": role, "content": side}]
    listed: Sequence[Json] = side if isinstance(side, list) else [side]
    messages: list[Message] = []
    for message in listed:
        if isinstance(message, dict) and "content" in message:
            messages.append(dict(message))
        else:
            messages.append(chat(message) or {"role": role, "content": canonical(message).decode()})
    return messages
