"""The turns of a recorded run in the order in which they happened, whatever recorded it.

A request to a model repeats the conversation before it, so only the messages that are new in a request are turns.  A
request that does not go on with an earlier one begins a conversation of its own: several of them in one run of a
program are most likely several questions that nothing told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .rows import as_text
from .tools import bare
from .tracing.tool_calls import TOLD, arguments, tool_steps

if TYPE_CHECKING:
    from ..types import Json, Step, Trajectory

_SEPARATE = 3
"""Conversations of one run, alike in their instructions, from which on they are taken for separate questions."""
_REMEMBERED = 50
"""Conversations of one run that a request may go on with: a run of thousands is read in a moment."""
_WHO = {"user": "user", "assistant": "agent"}


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """What somebody said, or what a tool was asked and answered."""

    who: str
    """`user`, `agent`, `tool` or `world`."""
    text: str


def turns(run: Trajectory) -> list[TranscriptTurn]:
    """The run's turns: the question first, the answer last."""
    return _Reading(run).turns


def separate_questions(run: Trajectory) -> int:
    """How many questions a run seems to hold that came as one; 1 where it seems to be one."""
    if run.meta.get("function"):
        return 1  # a call of a traced function is one run, whatever it asks
    most = max(_Reading(run).begun.values(), default=1)
    return most if most >= _SEPARATE else 1


def how_to_separate(run: Trajectory) -> str:
    """A sentence on a run that holds several questions; "" for a run that is one."""
    count = separate_questions(run)
    if count == 1:
        return ""
    return (
        f"{count} separate conversations came as one run. If they are {count} questions, mark the function that "
        f"answers one with @whet.trace (whet init writes the mark): then there are {count} runs, each with thumbs of "
        "its own"
    )


@dataclass
class _Conversation:
    """One conversation with a model as far as it was recorded."""

    users: list[str]
    messages: int
    """Messages of its last request."""


@dataclass
class _Reading:
    """Walks over the steps once."""

    run: Trajectory
    turns: list[TranscriptTurn] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    """Instructions → conversations that began under them with another question, in the program itself."""

    def __post_init__(self) -> None:
        run = self.run
        self._open: list[_Conversation] = []
        # Those that are steps of the run are shown where they stand: a later request says them again.
        own = {id(step) for step in run.steps}
        self._told = {
            str(step.info.get("tool_call_id")): step
            for step in tool_steps(run)
            if TOLD in step.info and id(step) not in own
        }
        self._acted: str | None = None  # the last action, without what it earned
        self._seen: set[tuple[str, str]] = set()
        self._answered = {
            str(step.info["tool_call_id"]) for step in tool_steps(run) if step.info.get("tool_call_id")
        }
        self._called = {bare(step.name) for step in run.steps if step.kind == "tool"}
        self._several = len({step.agent for step in run.steps if step.kind == "llm"}) > 1
        asked = [message for step in run.steps if step.kind == "llm" for message in _messages(step)]
        question = run.task.instruction
        self._asks = not question or any(
            _text(message) == question for message in asked if message.get("role") == "user"
        )
        if not self._asks or not asked:
            self.turns.append(TranscriptTurn("user", question or "(what was asked is not recorded)"))
        for step in run.steps:
            self._read(step)
        self._end()

    def _read(self, step: Step) -> None:
        if step.kind == "llm":
            self._call(step)
        elif step.kind == "tool":
            if step.action is not None or step.error is not None or "span_ids" not in step.info:
                self.turns.append(TranscriptTurn("tool", _tool(step)))
        elif step.kind == "action" and step.parent is None:
            if step.observation is not None and as_text(step.observation) != self.run.task.instruction:
                self.turns.append(TranscriptTurn("world", as_text(step.observation)))
            reward = f"  (reward {step.reward:g})" if step.reward else ""
            self._acted = as_text(step.action)
            self.turns.append(TranscriptTurn("agent", self._acted + reward))

    def _call(self, step: Step) -> None:
        messages = _messages(step)
        shared, fresh = self._continued(messages)
        if fresh:
            self._begin(step, messages)
        # A part of the program that asks on its own account speaks for the agent and not for the person.
        asks = self._asks and (not fresh or step.parent is None or self._holds_question(messages))
        for message in messages[shared:]:
            role = str(message.get("role"))
            if role == "tool":
                call = self._told.pop(str(message.get("tool_call_id")), None)
                if call is not None:
                    self.turns.append(TranscriptTurn("tool", _tool(call)))
            elif role in _WHO and asks and (text := _text(message)):
                self.turns.append(TranscriptTurn(_WHO[role], text))
        if text := _text(step.action) if isinstance(step.action, dict) else as_text(step.action or ""):
            self.turns.append(
                TranscriptTurn("agent", f"{step.agent}: {text}" if self._several and step.agent else text)
            )
        if isinstance(step.action, dict):
            self._unanswered(step.action)

    def _unanswered(self, action: Mapping[str, Json]) -> None:
        """Calls that the model asked for and whose answer was not recorded."""
        calls: Any = action.get("tool_calls") or ()
        for call in calls:
            name = str(call.get("name"))
            if str(call.get("id")) not in self._answered and bare(name) not in self._called:
                text = f"{name}({as_text(call.get('arguments'))}) → (no answer is recorded)"
                self.turns.append(TranscriptTurn("tool", text))

    def _continued(self, messages: Sequence[Mapping[str, Json]]) -> tuple[int, bool]:
        """How many of these messages were turns before, and whether a conversation begins."""
        users = [_text(message) for message in messages if message.get("role") == "user"]
        for conversation in reversed(self._open[-_REMEMBERED:]):
            known = conversation.users
            if users[: len(known)] == known and len(messages) >= conversation.messages and known:
                shared = conversation.messages
                # The answer to the request before: it was shown with its call.
                if shared < len(messages) and messages[shared].get("role") == "assistant":
                    shared += 1
                conversation.users, conversation.messages = users, len(messages)
                return shared, False
        self._open.append(_Conversation(users, len(messages)))
        return 0, True

    def _begin(self, step: Step, messages: Sequence[Mapping[str, Json]]) -> None:
        system = next((_text(message) for message in messages if message.get("role") == "system"), "")
        first = next((_text(message) for message in messages if message.get("role") == "user"), "")
        if step.parent is None and first and (system, first) not in self._seen:
            self._seen.add((system, first))
            self.begun[system] += 1

    def _holds_question(self, messages: Sequence[Mapping[str, Json]]) -> bool:
        return any(_text(message) == self.run.task.instruction for message in messages)

    def _end(self) -> None:
        """The error and the answer, where the steps did not say them."""
        run = self.run
        self.turns += [TranscriptTurn("tool", _tool(call)) for call in self._told.values()]
        if run.error is not None:
            self.turns.append(TranscriptTurn("error", f"{run.error.type}: {run.error.message}"))
        if run.output is None or (isinstance(run.output, dict) and run.output.get("tool_calls")):
            return  # a request of a tool stands among the turns
        said = [turn.text for turn in self.turns if turn.who == "agent"]
        if not said or not (said[-1].endswith(run.output_text) or self._acted == run.output_text):
            self.turns.append(TranscriptTurn("agent", run.output_text))


def _messages(step: Step) -> list[Mapping[str, Any]]:
    """The messages of a recorded request; none where it was recorded in another form."""
    observed = step.observation
    if not isinstance(observed, list | tuple):
        return []
    return [message for message in observed if isinstance(message, dict) and "role" in message]


def _text(message: Mapping[str, Json]) -> str:
    from ..models.base import text_of

    text = message.get("text")
    return text if isinstance(text, str) else text_of(message)


def _tool(step: Step) -> str:
    end = (
        f"failed: {step.error.type}: {step.error.message}" if step.error is not None else as_text(step.action)
    )
    return f"{bare(step.name)}({as_text(arguments(step))}) → {end}"


def lines_of(turn: TranscriptTurn, longest: int) -> Iterator[str]:
    """A turn as lines, its speaker before the first; --json has what is cut."""
    text = turn.text
    if len(text) > longest:
        text = f"{text[:longest]} […] ({len(text):,} characters; --json has all)"
    first, *rest = text.splitlines() or [""]
    yield f"{turn.who:>7}: {first}"
    yield from (f"{'':9}{line}" for line in rest)
