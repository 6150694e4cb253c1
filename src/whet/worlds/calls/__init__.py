"""Requests that are answered by calling functions: synthetic ones, one's own, and how a small policy sees them.

`call_tasks` makes requests from a seed, `requests` takes one's own; `CallEnv` judges the calls that an
agent makes of one request, exactly; `CallView` is the request by slot, and `lessons` are right answers
to clone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import EnvError, InputError
from ...learn.datasets.calls import FunctionCall, calls_of, functions_of, problems, same
from ...record.env import StepResult
from ...types import Group, Json, Outcome, Step, Task, Tokens, Trajectory
from .slots import END, TOKENS, CallView, InvalidCall
from .synthetic import Names, as_json, call_tasks, functions

__all__ = [
    "END",
    "TOKENS",
    "CallEnv",
    "CallView",
    "InvalidCall",
    "Names",
    "as_json",
    "call_tasks",
    "functions",
    "lessons",
    "requests",
    "view_of",
    "wanted",
]

IDS = {token: number for number, token in enumerate(TOKENS)}


class CallEnv:
    """One request: the first action is the calls, and ends it; a reward of 1 if they are exactly the wanted ones.

    An action is a list of `{"name", "arguments"}` or an assistant's message with `tool_calls`.
    """

    def __init__(self) -> None:
        self._task: Task | None = None

    def reset(self, task: Task, seed: int) -> dict[str, Json]:
        """The request and the tools.

        Raises:
            EnvError: the task is none of `call_tasks` or `requests`.
        """
        if not isinstance(task.initial_state.get("tools"), list) or not isinstance(task.answer, list):
            raise EnvError(f"task {task.id} offers no tools or wants no calls; make it with requests()")
        self._task = task
        return {"request": task.instruction, "tools": list(task.initial_state["tools"])}

    def step(self, action: Json) -> StepResult:
        """Judge the calls; what cannot be read as any is wrong.

        Raises:
            EnvError: stepped before reset or after the end.
        """
        if self._task is None:
            raise EnvError("the request is answered or was never asked: make a fresh CallEnv and reset it")
        task, self._task = self._task, None
        try:
            calls = _read(action)
            wrong = [
                problem
                for call in calls
                for problem in problems(call, functions_of(task.initial_state["tools"]))
            ]
            good = same(calls, wanted(task))
        except InputError as error:
            wrong, good = [str(error)], False
        return StepResult(None, float(good), True, False, {"success": good, "problems": list[Json](wrong)})


def _read(action: Json) -> list[FunctionCall]:
    if isinstance(action, Mapping):
        return calls_of(action)
    if not isinstance(action, list):
        raise InputError(f"calls are a list of objects of name and arguments; got {action!r:.120}")
    return calls_of({"tool_calls": [{"function": call} for call in action]})


def wanted(task: Task) -> list[FunctionCall]:
    """The calls that a task wants."""
    return _read(task.answer)


def requests(rows: Iterable[Mapping[str, Any]]) -> list[Task]:
    """One's own requests as tasks.

    Args:
        rows: each with `messages`, of which the last is the assistant's with its `tool_calls`, and `tools`; as
            OpenAI's fine-tuning files have them.

    Raises:
        InputError: a row lacks one of them; says which row.
    """
    tasks = []
    for number, row in enumerate(rows, 1):
        try:
            messages, tools = row["messages"], row["tools"]
            request = next(message["content"] for message in reversed(messages) if message["role"] == "user")
            functions_of(tools)
            calls = calls_of(messages[-1]) if messages[-1]["role"] == "assistant" else None
        except (KeyError, TypeError, IndexError, StopIteration) as error:
            raise InputError(f"row {number} needs messages with a user's, and tools: {error!r}") from error
        except InputError as error:
            raise InputError(f"row {number}: {error}") from error
        if calls is None:
            raise InputError(f"row {number}: the last message must be the assistant's, with its calls")
        tasks.append(
            Task(instruction=str(request), initial_state={"tools": list(tools)}, answer=as_json(calls))
        )
    return tasks


def view_of(task: Task) -> CallView:
    """A task by slot."""
    return CallView(task.instruction, functions_of(task.initial_state["tools"]))


def lessons(tasks: Sequence[Task]) -> list[Group]:
    """The right answers as trajectories to clone; tasks whose answer has no form by slot are left out."""
    groups = []
    for task in tasks:
        view = view_of(task)
        answer = view.encode(wanted(task))
        if answer is None:
            continue
        tokens = Tokens(
            tuple(IDS[token] for token in view.opening()),
            tuple(IDS[token] for token in answer),
            (0.0,) * len(answer),
        )
        step = Step(
            observation=task.instruction, action=task.answer, tokens=tokens, reward=1.0, done=True, id="0"
        )
        run = Trajectory(task=task, steps=(step,), output=task.answer, outcome=Outcome.SUCCESS)
        groups.append(Group(task, (run,)))
    return groups
