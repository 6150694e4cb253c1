"""MailEnv: the e-mail world as an Env, for policies that act by JSON tool calls.

    {"tool": "search", "words": ["lunch", "friday"], "match": "any", "sender": "jane", "month": 3}
    {"tool": "read", "id": "..."}
    {"tool": "answer", "text": "713-853-1234", "sources": ["..."]}
    {"tool": "unknown"}

A call that is malformed is not an infrastructure error: it is answered with
the reason, recorded in the rubric, and ends the episode as the published
table has it.  Asking for a mail that does not exist is answered and goes on.
The answer, the evidence and the gold clues are in no observation.

An agent that brings its own loop takes the same tools as an object: `world.episodes`
holds the Inbox of each episode under way by the handle in its first observation.  What
it does there counts as turns and in the rubric, and it ends with one `answer` or `unknown`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from ...errors import EnvError, InputError, NotFoundError
from ...record.env import StepResult
from ...types import Json, Outcome, Task
from .index import Hit, Inbox, MailWorld
from .parse import Mail
from .rubric import Rubric, checked, published_reward, training_reward

_ARGUMENTS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "search": {
        "words": (list, str),
        "match": (str,),
        "sender": (str, type(None)),
        "month": (int, type(None)),
        "year": (int, type(None)),
        "since": (str, type(None)),
        "until": (str, type(None)),
    },
    "read": {"id": (str,)},
    "answer": {"text": (str,), "sources": (list,)},
    "unknown": {},
}
_REQUIRED = {"search": ("words",), "read": ("id",), "answer": ("text",), "unknown": ()}


@dataclass
class _Episode:
    """All that changes while an episode runs."""

    turns: int = 0
    ended: bool = False
    marks: dict[str, bool] = field(default_factory=dict)
    """Fields of the Rubric that have become true."""


class MailEnv:
    """One question asked of a MailWorld.  Single use, as every Env is."""

    def __init__(
        self, world: MailWorld, max_turns: int = 10, *, reward: Callable[[Rubric], float] = training_reward
    ) -> None:
        if max_turns < 1:
            raise InputError(f"max_turns is {max_turns}; it must be at least 1")
        self.world = world
        self.max_turns = max_turns
        self._reward = reward
        self._task: Task | None = None
        self._inbox: Inbox | None = None
        self._handle = ""
        self._accounted = 0
        """Entries of the inbox's log that are counted in the episode."""
        self._episode = _Episode()

    def reset(self, task: Task, seed: int) -> Json:
        """The question, the tools and the number of turns; `seed` changes nothing, the world is still."""
        self._task, self._episode = task, _Episode()
        inbox = self._open(self.world.inbox(task))
        handle = f"{task.id}/{seed}"
        while handle in self.world.episodes:  # the same rollout twice at once
            handle += "+"
        self.world.episodes[handle] = inbox
        self._handle = handle
        return {
            "question": task.instruction,
            "episode": handle,
            "mailboxes": list(task.initial_state["mailboxes"]),
            "tools": {name: list(arguments) for name, arguments in _ARGUMENTS.items()},
            "turns_left": self.max_turns,
        }

    def step(self, action: Json) -> StepResult:
        """One tool call, as an object or as its JSON text.

        Raises:
            EnvError: before reset or after the end.
        """
        if self._task is None or self._inbox is None:
            raise EnvError("step before reset: call reset(task, seed) first")
        if self._episode.ended:
            raise EnvError("the episode has ended; make a fresh MailEnv")
        self._account()
        self._episode.turns += 1
        call = _call(action)
        if isinstance(call, _Malformed):
            self._episode.marks[call.mark] = True
            return self._end(checked(self._task, None), {"error": call.reason}, attempted=False)
        tool, arguments = call
        if self._episode.turns > self.max_turns:
            self._episode.marks["ran_out_of_turns"] = True
            return self._end(checked(self._task, None), {"error": "no turn is left"}, attempted=False)
        if tool == "answer":
            sources = arguments.get("sources", [])
            return self._end(checked(self._task, arguments["text"], sources), {"answered": arguments["text"]})
        if tool == "unknown":
            return self._end(checked(self._task, None), {"answered": None})
        try:
            observation = self._search(arguments) if tool == "search" else self._read(arguments["id"])
        except NotFoundError as error:
            self._episode.marks["read_invalid_mail"] = True
            observation = {"error": str(error)}
        except InputError as error:
            self._episode.marks["bad_tool_arguments"] = True
            return self._end(checked(self._task, None), {"error": str(error)}, attempted=False)
        observation["turns_left"] = self.max_turns - self._episode.turns
        if self._episode.turns >= self.max_turns:
            self._episode.marks["ran_out_of_turns"] = True
            return self._end(checked(self._task, None), observation, attempted=False)
        return StepResult(observation)

    def snapshot(self) -> Any:
        """The state of the episode; the world itself never changes."""
        return self._task, deepcopy(self._episode)

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot, of this Env or of another over the same MailWorld."""
        # The inbox is not part of it: a fresh one, of which nothing is counted twice.
        task, episode = snapshot
        self._task, self._episode = task, deepcopy(episode)
        self._inbox = None
        if task is not None:
            self._open(self.world.inbox(task))

    def _open(self, inbox: Inbox) -> Inbox:
        self._inbox, self._accounted = inbox, 0
        return inbox

    def _account(self) -> None:
        """Count the calls to the inbox since the last step by anybody other than this Env."""
        assert self._inbox is not None
        assert self._task is not None
        evidence = self._task.meta.get("evidence")
        for call in self._inbox.log[self._accounted :]:
            self._episode.turns += 1
            if call.found is None:
                self._episode.marks["read_invalid_mail"] = True
            elif evidence in call.found:
                self._episode.marks["found_right_mail" if call.tool == "search" else "read_right_mail"] = True
        self._accounted = len(self._inbox.log)

    def _search(self, arguments: dict[str, Any]) -> dict[str, Json]:
        assert self._inbox is not None
        assert self._task is not None
        for bound in ("since", "until"):
            if arguments.get(bound) is not None:
                try:
                    arguments[bound] = date.fromisoformat(arguments[bound])
                except ValueError as error:
                    raise InputError(f"{bound} is {arguments[bound]!r}; give a day as 2001-03-05") from error
        hits = self._inbox.search(**arguments)
        # After the search: one that is refused for its arguments leaves no entry in the log.
        self._accounted += 1
        if any(hit.id == self._task.meta.get("evidence") for hit in hits):
            self._episode.marks["found_right_mail"] = True
        return {"results": [_shown(hit) for hit in hits]}

    def _read(self, id: str) -> dict[str, Json]:
        assert self._inbox is not None
        assert self._task is not None
        # Before the read, which is in the log even where it raises.
        self._accounted += 1
        mail = self._inbox.read(id)
        if id == self._task.meta.get("evidence"):
            self._episode.marks["read_right_mail"] = True
        return _opened(mail)

    def _end(self, rubric: Rubric, observation: dict[str, Json], *, attempted: bool = True) -> StepResult:
        self._episode.ended = True
        self.world.episodes.pop(self._handle, None)
        rubric = replace(rubric, turns=self._episode.turns, **self._episode.marks)
        if not attempted:
            # Neither a malformed call nor running out of turns is an answer of "unknown".
            rubric = replace(rubric, returned_unknown=False, attempted_answer=False)
        outcome = Outcome.SUCCESS if rubric.success else Outcome.FAILURE
        if rubric.ran_out_of_turns:
            outcome = Outcome.TRUNCATED
        info: dict[str, Json] = {
            "success": rubric.success,
            "outcome": outcome.value,
            "rubric": {name: getattr(rubric, name) for name in Rubric.__dataclass_fields__},
            "published_reward": published_reward(rubric, self.max_turns),
        }
        truncated = rubric.ran_out_of_turns
        return StepResult(observation, self._reward(rubric), not truncated, truncated, info)


@dataclass(frozen=True, slots=True)
class _Malformed:
    mark: str
    reason: str


def _call(action: Json) -> tuple[str, dict[str, Any]] | _Malformed:
    """(tool, arguments) of an action, or which field of the rubric it breaks and why."""
    if isinstance(action, str):
        try:
            action = json.loads(action)
        except (ValueError, RecursionError) as error:
            return _Malformed("unparseable_call", f"the action is not JSON: {error}")
    if not isinstance(action, Mapping) or "tool" not in action:
        return _Malformed("unparseable_call", 'an action is an object with a "tool"')
    arguments = {name: value for name, value in action.items() if name != "tool"}
    tool = action["tool"]
    if not isinstance(tool, str) or tool not in _ARGUMENTS:
        return _Malformed("bad_tool_name", f"no tool {tool!r}; there are {', '.join(_ARGUMENTS)}")
    for name in _REQUIRED[tool]:
        if name not in arguments:
            return _Malformed("bad_tool_arguments", f"{tool} needs {name!r}")
    for name, value in arguments.items():
        allowed = _ARGUMENTS[tool].get(name)
        if allowed is None:
            return _Malformed("bad_tool_arguments", f"{tool} has no argument {name!r}")
        if not isinstance(value, allowed) or isinstance(value, bool):
            return _Malformed("bad_tool_arguments", f"{tool}: {name} cannot be {value!r}")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            return _Malformed("bad_tool_arguments", f"{tool}: {name} must be a list of strings")
    return tool, arguments


def _shown(hit: Hit) -> dict[str, Json]:
    return {
        "id": hit.id,
        "sender": hit.sender,
        "sender_name": hit.sender_name,
        "date": hit.date.isoformat() if hit.date else None,
        "subject": hit.subject,
        "hits": hit.hits,
        "in_subject": hit.in_subject,
    }


def _opened(mail: Mail) -> dict[str, Json]:
    return {
        "id": mail.id,
        "sender": mail.sender,
        "sender_name": mail.sender_name,
        "to": list(mail.to),
        "date": mail.date.isoformat() if mail.date else None,
        "subject": mail.subject,
        "body": mail.body,
        "attachments": list(mail.attachments),
    }
