"""The published JSON shapes of a task and of a trajectory, files of trajectories, and the classic transitions.

What is loaded is saved again with the same content: keys that the shape does not
name are kept (a task's in `meta`, a step's in `info`).  A `success_checker` is a
name, which `whet.judge.checked` looks up among the functions that the caller allows.

A file has one JSON object a line, as the store keeps them or in the published shape, which has no token ids and so
cannot be trained on (the capture check says so).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import msgspec

from ...errors import InputError, NotFoundError, StoreError
from ...escapes import read_json, whole
from ...types import Json, Step, Task, Trajectory, digest
from ..env import Transition
from ..store.codec import decode, encode
from ..tools import bare
from ..tracing.tool_calls import arguments, tool_steps

CHATS = "chats (messages, or questions with their answers) are recorded by whet import chats"
_TASK_FIELDS = frozenset(Task.__dataclass_fields__)
_PUBLISHED = {
    "task_id": "id",
    "natural_language_instruction": "instruction",
    "initial_state": "initial_state",
    "success_checker": "success_checker",
}
"""Published key → field of Task, in the published order."""


def strip_comments(text: str) -> str:
    """JSON with `//` comments → JSON; a `//` inside a string stays."""
    if "//" not in text:
        return text
    result: list[str] = []
    position, quoted = 0, False
    while position < len(text):
        char = text[position]
        # Both characters: an escaped quote does not end the text.
        if quoted and char == "\\":
            result.append(text[position : position + 2])
            position += 2
            continue
        if char == '"':
            quoted = not quoted
        if not quoted and text.startswith("//", position):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        result.append(char)
        position += 1
    return "".join(result)


def _object(source: str | bytes | Mapping[str, Json], noun: str) -> dict[str, Json]:
    if isinstance(source, Mapping):
        return dict(source)
    try:
        text = source.decode() if isinstance(source, bytes) else source
        value = read_json(msgspec.json.decode, strip_comments(text.removeprefix("\ufeff")).encode())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InputError(f"this {noun} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"a {noun} is a JSON object, not {type(value).__name__}")
    return value


def task_from_json(source: str | bytes | Mapping[str, Json]) -> Task:
    """A Task from its own fields or from the published shape; unknown keys go to `meta`.

    An answer of null says that the right answer is None (`Task.answer_known`); without the key it is unknown.

    Raises:
        InputError: not a JSON object, a field of the wrong type, or no id and no instruction.
    """
    published = _object(source, "task")
    fields: dict[str, Json] = {}
    extra: dict[str, Json] = {}
    for key, value in published.items():
        name = _PUBLISHED.get(key, key)
        if name in fields:
            raise InputError(f"the task gives its {name} twice, once as {key!r}")
        if name in _TASK_FIELDS:
            fields[name] = value
        else:
            extra[key] = value
    if not (fields.get("id") or fields.get("instruction")):
        raise InputError("a task needs a task_id or a natural_language_instruction (or id, instruction)")
    if "answer" in fields and fields["answer"] is None:
        extra["answer_known"] = True
    if extra:
        meta = fields.get("meta") or {}
        fields["meta"] = {**meta, **extra} if isinstance(meta, dict) else meta
    try:
        return msgspec.convert(fields, Task)
    except msgspec.ValidationError as error:
        raise InputError(f"task {fields.get('id', '')!r}: {error}") from error


def task_to_json(task: Task) -> dict[str, Json]:
    """The published shape; answer, group, split and the entries of meta follow where there are any.

    Raises:
        InputError: an entry of meta has the name of a field.
    """
    result: dict[str, Json] = {"task_id": task.id, "natural_language_instruction": task.instruction}
    if task.initial_state:
        result["initial_state"] = dict(task.initial_state)
    if task.success_checker is not None:
        result["success_checker"] = task.success_checker
    if task.answer_known:
        result["answer"] = task.answer
    if task.group:
        result["group"] = task.group
    if task.split is not None:
        result["split"] = task.split.value
    if clash := sorted((_TASK_FIELDS | set(_PUBLISHED)).intersection(task.meta)):
        raise InputError(f"task {task.id!r}: meta entries {clash} have the names of fields; rename them")
    meta = dict(task.meta)
    if task.answer is None:
        meta.pop("answer_known", None)  # the null says so
    return result | meta


def trajectory_from_json(
    source: str | bytes | Mapping[str, Json], tasks: Mapping[str, Task] | None = None
) -> Trajectory:
    """A Trajectory from the published shape (`//` comments allowed).

    The id is the hash of the content, so loading a file twice gives the same runs. Nothing is judged:
    the outcome is UNKNOWN, whatever the rewards.

    Args:
        tasks: id → Task, to attach the whole task; without it the trajectory carries the id alone.

    Raises:
        InputError: not a JSON object, no task_id, steps that are not a list of objects with an action,
            or a reward or done of the wrong type.
    """
    published = _object(source, "trajectory")
    task_id, rows = published.get("task_id"), published.get("steps")
    if not isinstance(task_id, str) or not task_id:
        raise InputError("a trajectory needs a task_id")
    if not isinstance(rows, list):
        raise InputError(f"trajectory of {task_id!r} needs a list of steps")
    return Trajectory(
        id=digest(published, 24),
        task=(tasks or {}).get(task_id) or Task(id=task_id),
        steps=tuple(_step(row, number, task_id) for number, row in enumerate(rows)),
        output=rows[-1]["action"] if rows else None,
        meta={key: value for key, value in published.items() if key not in ("task_id", "steps")},
    )


def _step(row: Json, number: int, task_id: str) -> Step:
    where = f"step {number} of the trajectory of {task_id!r}"
    if not isinstance(row, dict) or "action" not in row:
        raise InputError(f"{where} must be an object with an action")
    reward, done = row.get("reward"), row.get("done", False)
    # A bool is an int for Python; a reward of true is a mistake in the file.
    if isinstance(reward, bool) or not isinstance(reward, int | float | None):
        raise InputError(f"{where}: reward {reward!r} is not a number")
    if not isinstance(done, bool):
        raise InputError(f"{where}: done {done!r} is not true or false")
    return Step(
        observation=row.get("obs"),
        action=row["action"],
        reward=None if reward is None else float(reward),
        done=done,
        id=str(number),
        info={key: value for key, value in row.items() if key not in ("obs", "action", "reward", "done")},
    )


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Json]:
    """The published shape: `reward` where there is one, `done` on the step that ended the episode.

    A run outside of any Env, or of `whet.calls`, has no such steps: its tool calls, as far as they are recorded,
    are the actions, `{"name", "arguments"}`, what they answered is seen next, and the last action is the output.
    Where people went on talking to the agent, what it said to them is an action, too, and what they replied is seen.
    """
    rows = []
    actions = decisions(trajectory)
    inside = [step for step in trajectory.steps if step.parent is not None]
    for step in _as_episode(trajectory, actions) if not actions or inside else actions:
        row: dict[str, Json] = {"obs": step.observation, "action": step.action}
        if step.reward is not None:
            row["reward"] = step.reward
        if step.done:
            row["done"] = True
        rows.append(row | dict(step.info))
    return {"task_id": trajectory.task.id, "steps": rows, **trajectory.meta}


def _as_episode(trajectory: Trajectory, actions: Sequence[Step]) -> list[Step]:
    """The decisions of an agent that was traced or captured, as the steps of an episode."""
    if len(actions) > 1 or trajectory.output is None:
        return list(actions)
    if talk := _talk(trajectory):
        return talk if not actions else [*talk[:-1], replace(talk[-1], reward=actions[0].reward)]
    observation: Json = trajectory.task.instruction
    steps = []
    for tool in tool_steps(trajectory):
        call_arguments = arguments(tool)
        steps.append(
            Step(observation=observation, action={"name": bare(tool.name), "arguments": call_arguments})
        )
        observation = tool.action
    last = Step(observation=observation, action=trajectory.output, done=True)
    return [*steps, replace(last, reward=actions[0].reward, done=actions[0].done) if actions else last]


def _talk(trajectory: Trajectory) -> list[Step]:
    """A conversation in which a person spoke more than once, as an episode; empty for every other run.

    Its last call has seen all of it.  Where that does not hold (calls of several agents, a history that was cut) the
    tools alone are the actions.
    """
    calls = [step for step in trajectory.steps if step.kind == "llm"]
    if not calls or len({(step.agent, step.parent) for step in calls}) > 1:
        return []
    seen = calls[-1].observation if isinstance(calls[-1].observation, list | tuple) else ()
    messages = [message for message in (*seen, calls[-1].action) if isinstance(message, dict)]
    roles = [message.get("role") for message in messages]
    if "assistant" not in roles or roles.count("assistant") != len(calls):
        return []
    if "user" not in roles[roles.index("assistant") :]:
        return []
    steps: list[Step] = []
    observation: Json = trajectory.task.instruction
    results: list[Json] = []
    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "assistant":
            following = messages[place + 1 :]
            results = [
                later.get("text") for later in takewhile(lambda later: later.get("role") == "tool", following)
            ]
            # Text beside calls is said before them, and nobody answers it.
            if text := message.get("text"):
                steps.append(Step(observation=observation, action=text))
                observation = None
            for number, call in enumerate(message.get("tool_calls") or ()):
                action = {"name": bare(str(call.get("name"))), "arguments": call.get("arguments")}
                steps.append(Step(observation=observation, action=action))
                observation = results[number] if number < len(results) else None
        elif role == "user" and steps:
            observation = message.get("text")
    return [*steps[:-1], replace(steps[-1], done=True)] if steps else []


def read_trajectories(path: Path, tasks: Mapping[str, Task] | None = None) -> Iterator[Trajectory]:
    """The trajectories of a file, as they go by.

    Args:
        tasks: id → Task; the published shape has a task's id alone.

    Raises:
        NotFoundError: no such file.
        InputError: a line is not a trajectory; says which.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}; give one with a trajectory as JSON on each line")
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                fields = read_json(msgspec.json.decode, line)
                if not isinstance(fields, dict):
                    raise InputError(f"a trajectory is a JSON object, not {type(fields).__name__}; {CHATS}")
                if not fields.keys() & {"task", "task_id"}:
                    raise InputError(f"it has neither a task nor a task_id; {CHATS}")
                # Only the published shape has a task's id alone; a stored trajectory holds its whole task.
                published = "task_id" in fields
                trajectory = (
                    trajectory_from_json(fields, tasks) if published else decode(whole(line), Trajectory)
                )
            except (msgspec.DecodeError, InputError, StoreError, TypeError, ValueError) as error:
                # The codec speaks of a store there, which a file is not.
                why = str(error).partition(". It was not written")[0]
                raise InputError(f"{path}, line {number}: not a trajectory: {why}") from error
            yield trajectory


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories, one a line; how many."""
    count = 0
    with open(path, "wb") as file:
        for trajectory in trajectories:
            file.write(encode(trajectory) + b"\n")
            count += 1
    return count


def decisions(trajectory: Trajectory) -> list[Step]:
    """The steps taken in the environment, without the model and tool calls inside them."""
    return [step for step in trajectory.steps if step.kind == "action" and step.parent is None]


def to_transitions(trajectory: Trajectory) -> list[Transition]:
    """The classic record of an episode.

    `next_obs` is the next step's observation; the last one's is what `from_transitions` kept, else None.

    Raises:
        InputError: a step has no reward (it is not 0).
    """
    steps = decisions(trajectory)
    result = []
    for index, step in enumerate(steps):
        if step.reward is None:
            raise InputError(
                f"step {index} of trajectory {trajectory.id!r} has no reward: score it before converting"
            )
        following = steps[index + 1].observation if index + 1 < len(steps) else step.info.get("next_obs")
        result.append(Transition(step.observation, step.action, step.reward, step.done, following))
    return result


def from_transitions(transitions: Sequence[Transition], task: Task) -> Trajectory:
    """A Trajectory of `task` from the classic record; the last `next_obs` is kept in its step's info."""
    steps = [
        Step(
            observation=transition.obs,
            action=transition.action,
            reward=transition.reward,
            done=transition.done,
            id=str(index),
        )
        for index, transition in enumerate(transitions[:-1])
    ]
    if transitions:
        last = transitions[-1]
        info = {"next_obs": last.next_obs}
        steps.append(
            Step(
                observation=last.obs,
                action=last.action,
                reward=last.reward,
                done=last.done,
                id=str(len(steps)),
                info=info,
            )
        )
    return Trajectory(task=task, steps=tuple(steps), output=transitions[-1].action if transitions else None)
