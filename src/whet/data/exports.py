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

from ..reward.rules import output_text
from ..tracing.dialects.messages import plain
from ..tracing.tool_calls import arguments, bare, tool_steps
from ..types import Json, Outcome, Preference, Trajectory, canonical

Message = dict[str, Json]
Row = dict[str, Json]
Worth = Callable[[Trajectory], float | None]
"""How good a run was; None where nobody said."""

_UNANSWERED = "its task has no answer to score by; give the Task one, or export trl-prompts"
_UNASKED = "its question is not recorded; add its task (whet tasks add) before the run is imported"
GOOD = 0.5
"""Worth from which a run is a good one."""


@dataclass(slots=True)
class Exported:
    """Rows of a dataset, and why there are not more."""

    rows: list[Row] = field(default_factory=list)
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
        thumbs = [one.value for one in run.feedback if one.kind == "thumb" and one.value]
        return float(sum(thumbs) > 0) if thumbs and sum(thumbs) else None

    return worth


def sft(runs: Iterable[Trajectory], worth: Worth) -> Exported:
    """TRL's language modelling type, `{"messages": [...]}`, from runs that went well."""
    made = Exported()
    for run in runs:
        value = worth(run)
        if value is None or value < GOOD:
            made.left_out["nobody judged it" if value is None else "it did not go well"] += 1
            continue
        for prompt, completion in _told(run, made):
            made.rows.append({"messages": [*prompt, *completion]})
    return made


def kto(runs: Iterable[Trajectory], worth: Worth) -> Exported:
    """TRL's unpaired preferences, `{"prompt", "completion", "label"}`, from every judged run."""
    made = Exported()
    for run in runs:
        value = worth(run)
        if value is None:
            made.left_out["nobody judged it"] += 1
            continue
        for prompt, completion in _told(run, made):
            made.rows.append({"prompt": prompt, "completion": completion, "label": value >= GOOD})
    return made


def dpo(runs: Iterable[Trajectory], worth: Worth, preferences: Iterable[Preference] = ()) -> Exported:
    """TRL's preferences, `{"prompt", "chosen", "rejected"}`: given ones, and runs of one task beside each other.

    Of a task's runs that began with the same messages every one that went well is set against the next that did not;
    no run is used twice.
    """
    made = Exported()
    for one in preferences:
        if one.tie:
            made.left_out["a tie"] += 1
        else:
            made.rows.append(
                {
                    "prompt": _given(one.prompt, "user"),
                    "chosen": _given(one.chosen, "assistant"),
                    "rejected": _given(one.rejected, "assistant"),
                }
            )
    sides: dict[bytes, tuple[list[Any], list[Any]]] = {}
    for run in runs:
        value = worth(run)
        if value is None:
            made.left_out["nobody judged it"] += 1
            continue
        for prompt, completion in _told(run, made):
            good, bad = sides.setdefault(canonical([run.task.id, prompt]), ([], []))
            (good if value >= GOOD else bad).append((prompt, completion))
    for good, bad in sides.values():
        made.left_out["no run of the same task to compare with"] += abs(len(good) - len(bad))
        for (prompt, chosen), (_, rejected) in zip(good, bad, strict=False):
            made.rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    made.left_out += Counter()  # forget the zeros
    return made


def prompts(runs: Iterable[Trajectory]) -> Exported:
    """TRL's prompts alone, one a task, with its `answer` for the reward function and its `task` and `group`."""
    made = Exported()
    for run, prompt in _questions(runs, made):
        made.rows.append(
            {"prompt": prompt, "answer": run.task.answer, "task": run.task.id, "group": run.task.group}
        )
    return made


def verl(runs: Iterable[Trajectory], *, source: str = "whet") -> Exported:
    """verl's rows, one a task: `data_source`, `prompt`, `ability`, `reward_model`, `extra_info`.

    Args:
        source: by which verl's `reward_score` finds the function that judges.
    """
    made = Exported()
    for run, prompt in _questions(runs, made):
        if not run.task.answer_known:
            made.left_out[_UNANSWERED] += 1
            continue
        answer = run.task.answer
        made.rows.append(
            {
                "data_source": source,
                "prompt": prompt,
                "ability": "agent",
                "reward_model": {
                    "style": "rule",
                    "ground_truth": answer if isinstance(answer, str) else canonical(answer).decode(),
                },
                "extra_info": {
                    "index": len(made.rows),
                    "split": str(run.task.split or "train"),
                    "task": run.task.id,
                    "group": run.task.group,
                },
            }
        )
    return made


def conversations(run: Trajectory) -> list[list[Json]]:
    """What each last call of a model saw and answered, in the form that `docs/nouns.md` calls an observation."""
    calls = [
        [*step.observation, step.action]
        for step in run.steps
        if step.kind == "llm" and isinstance(step.observation, list) and isinstance(step.action, dict)
    ]
    kept = [
        call
        for place, call in enumerate(calls)
        if not any(later[: len(call)] == call for later in calls[place + 1 :])
    ]
    if calls or run.output is None or not run.task.instruction:
        return kept
    question = {"role": "user", "text": run.task.instruction}
    return [[question, *_tools(run), {"role": "assistant", "text": output_text(run)}]]


def _tools(run: Trajectory) -> list[Json]:
    """The tool calls of a run whose model calls are not recorded, as a model would have asked for them.

    None of them where the names of an argument are not recorded: what has no name cannot be asked for.
    """
    tools = tool_steps(run)
    if not all(isinstance(arguments(tool), dict) for tool in tools):
        return []
    messages: list[Json] = []
    for place, tool in enumerate(tools):
        id = tool.info.get("tool_call_id") or f"call_{place}"
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
    made: Message = {"role": message.get("role", "user"), "content": message.get("text") or ""}
    if calls := message.get("tool_calls"):
        made["tool_calls"] = [
            {
                "type": "function",
                "id": call.get("id"),
                "function": {"name": call.get("name"), "arguments": call.get("arguments")},
            }
            for call in calls
        ]
    if message.get("role") == "tool":
        made["tool_call_id"] = message.get("tool_call_id")
    return made


def _told(run: Trajectory, made: Exported) -> Iterator[tuple[list[Message], list[Message]]]:
    """Prompt and completion of each conversation, cut before the first word of the assistant."""
    found = conversations(run)
    if not found:
        asked = run.task.instruction or run.output is None
        made.left_out["it has no answer" if asked else _UNASKED] += 1
    for conversation in found:
        messages = [chat(message) for message in conversation]
        whole = [message for message in messages if message is not None]
        if len(whole) < len(messages):
            made.left_out["a message is no text (an image, a file)"] += 1
            continue
        first = next(place for place, message in enumerate(whole) if message["role"] == "assistant")
        yield whole[:first], whole[first:]


def _questions(runs: Iterable[Trajectory], made: Exported) -> Iterator[tuple[Trajectory, list[Message]]]:
    """The first prompt of each task."""
    seen: set[str] = set()
    for run in runs:
        if run.task.id in seen:
            continue
        told = next(iter(_told(run, made)), None)
        if told is not None:
            seen.add(run.task.id)
            yield run, told[0]


def _given(side: Json, role: str) -> list[Message]:
    """A side of a recorded preference: text, or messages in our form or in the API's."""
    if isinstance(side, str):
        return [{"role": role, "content": side}]
    listed: Sequence[Json] = side if isinstance(side, list) else [side]
    made: list[Message] = []
    for one in listed:
        if isinstance(one, dict) and "content" in one:
            made.append(dict(one))
        else:
            made.append(chat(one) or {"role": role, "content": canonical(one).decode()})
    return made
