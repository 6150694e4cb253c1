"""What an agent decided in a run: the tools that it called, and how many decisions that took.

The entrances record a call differently, and here it is one thing:

    @step(kind="tool"), OTLP tool spans   a tool step: what was given and what came back
    gateway, OTLP model spans             the model's answer asks for it, a later request carries the result
    an Env                                the action itself: {"name", "arguments"}, {"tool", ...}, {"tool_calls"},
                                          or text in the form of a call, `click(id='search-box')`

A call that was seen twice, asked for by the model and executed in a step, is one.  What a conversation already held
when the run began belongs to the run before.  `answers.py` reads the same for replaying, where only a call with an
answer is of use.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..types import Failure, Json, Step, Trajectory, canonical
from .answers import arguments, bare


@dataclass(slots=True)
class Invocation:
    """One tool call of a run."""

    name: str | None
    """The tool's own name; None where the call cannot be read."""
    arguments: Json = field(default_factory=dict)
    """Name → value; in older recordings the lone value itself where a decorated function was called with one."""
    result: Json = None
    """None where it was not recorded."""
    error: Failure | None = None
    step: str = ""
    """`id` of the step that it was read from."""
    id: str = ""
    """The model's own id of the call, "" where there is none."""
    _executed: bool = field(default=False, init=False, repr=False, compare=False)

    @property
    def failed(self) -> bool:
        """It raised, as far as the record says."""
        return self.error is not None

    def has(self, wanted: Mapping[str, Json]) -> bool:
        """Whether it was called with these arguments, whatever else it was called with."""
        given = self.arguments
        if isinstance(given, Mapping) and all(key in given and given[key] == wanted[key] for key in wanted):
            return True
        # Older recordings have the lone argument of a decorated function without its name.
        return len(wanted) == 1 and list(wanted.values()) == [given]


def tool_calls(trajectory: Trajectory) -> list[Invocation]:
    """The tool calls of a run in the order in which they were decided, whatever recorded them."""
    return _Reader(trajectory).calls


def decisions(trajectory: Trajectory) -> int:
    """How many decisions a run took: its tool calls, and the turns that called none, such as the answer.

    An Env's action is one, unless an agent called tools within it: then these count, and the answer that the action
    is.  0 of a run that recorded nothing and answered nothing.
    """
    reader = _Reader(trajectory)
    steps = trajectory.steps
    places = [place for place, step in enumerate(steps) if step.kind == "action"]
    if not places:
        asked, silent = len(reader.calls), reader.silent_in(0, len(steps))
        answered = trajectory.error is None and trajectory.output is not None
        return asked + (silent or int(answered))
    total = reader.called_in(0, places[0]) + reader.silent_in(0, places[0])
    for place, end in zip(places, [*places[1:], len(steps)], strict=True):
        inner, silent = reader.called_in(place + 1, end), reader.silent_in(place + 1, end)
        if inner:
            # What the agent did last is its answer, unless the action is the very call that its model asked for.
            total += inner + (silent or int(reader.call_of(steps[place]) is None))
        else:
            # Several turns of a policy for one action of many are its search; in the only action they are the agent.
            total += max(1, silent) if len(places) == 1 else 1
    return total


class _Reader:
    """Walks over the steps once."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.calls: list[Invocation] = []
        self._steps = trajectory.steps
        self._at: list[int] = []
        """Of each call the place of the step that it was read from."""
        self._silent: set[int] = set()
        """Places of the model's turns that called no tool."""
        self._known: dict[bytes, list[Invocation]] = defaultdict(list)
        first_request = True
        for place, step in enumerate(self._steps):
            if step.kind == "llm":
                self._read_request(place, step, history=first_request)
                self._read_answer(place, step)
                first_request = False
            elif step.kind == "tool":
                self._read_tool(place, step)
        # Last, for an action is a call only if nothing within it was.
        for place, step in enumerate(self._steps):
            if step.kind == "action":
                self._read_action(place, step)
        order = sorted(range(len(self.calls)), key=lambda number: self._at[number])
        self.calls = [self.calls[number] for number in order]
        self._at = [self._at[number] for number in order]

    def called_in(self, start: int, end: int) -> int:
        """Calls read from the steps in a range of places."""
        return sum(start <= place < end for place in self._at)

    def silent_in(self, start: int, end: int) -> int:
        """Turns of the model in a range of places that called no tool."""
        return sum(start <= place < end for place in self._silent)

    @staticmethod
    def call_of(step: Step) -> Json:
        """The call that an action is, None where it is something else."""
        return next(iter(_asked_in(step.action)), None)

    def _add(self, place: int, call: Invocation) -> None:
        self.calls.append(call)
        self._at.append(place)
        self._known[_sign(call)].append(call)

    def _read_request(self, place: int, step: Step, *, history: bool) -> None:
        seen: Counter[bytes] = Counter()
        for call in _told(step.observation):
            sign = _sign(call)
            number, seen[sign] = seen[sign], seen[sign] + 1
            known = self._known[sign]
            twin = known[number] if number < len(known) else None
            if (
                twin is None or twin.id != call.id
            ):  # another conversation of the run may have asked for the same
                twin = next((one for one in known if one.id == call.id and one.result is None), twin)
            if twin is not None:
                twin.result = call.result if twin.result is None else twin.result
            elif history:
                known.append(call)  # of a run before this one
            else:
                call.step = step.id
                self._add(place, call)

    def _read_answer(self, place: int, step: Step) -> None:
        asked = list(_asked_in(step.action)) if not isinstance(step.action, str) else []
        for name, given, id in asked:
            self._add(place, _invocation(name, given, step=step.id, id=id))
        if not asked:
            self._silent.add(place)

    def _read_tool(self, place: int, step: Step) -> None:
        given = arguments(step)
        name = bare(step.name) if step.name else None
        executed = Invocation(name, {} if given is None else given, step.action, step.error, step.id)
        id = str(step.info.get("tool_call_id") or "")
        unmatched = [one for one in self.calls if not one._executed and one.name == name]
        waiting = [one for one in unmatched if one.result is None]
        asked = (
            next((one for one in unmatched if id and one.id == id), None)
            or next((one for one in waiting if _sign(one) == _sign(executed)), None)
            # A framework may complete or convert what the model gave before it calls the function.
            or next((one for one in waiting if not (id and one.id)), None)
        )
        executed._executed = True
        if asked is None:
            self._add(place, executed)
            return
        asked._executed = True
        asked.result = executed.result if executed.result is not None else asked.result
        asked.error = executed.error
        if not isinstance(asked.arguments, Mapping):
            asked.arguments = executed.arguments

    def _read_action(self, place: int, step: Step) -> None:
        actions = [at for at in range(place + 1, len(self._steps)) if self._steps[at].kind == "action"]
        end = actions[0] if actions else len(self._steps)
        if self.called_in(place + 1, end):
            return
        result = self._steps[end].observation if actions else step.info.get("next_obs")
        for name, given, id in _asked_in(step.action):
            call = _invocation(name, given, step=step.id, id=id)
            call.result, call.error = result, step.error
            self._add(place, call)


def _invocation(name: Json, given: Json, *, step: str = "", id: str = "") -> Invocation:
    """A call as it was asked for: unreadable without a name, or with arguments that are no object."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given) if given.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            return Invocation(None, given, step=step, id=id)
    readable = isinstance(name, str) and bool(name) and isinstance(given, Mapping | None)
    return Invocation(bare(name) if readable else None, given if given is not None else {}, step=step, id=id)


def _asked_in(action: Json) -> Iterator[tuple[Json, Json, str]]:
    """Name, arguments and id of the calls that an action or a model's answer asks for."""
    if isinstance(action, str):
        yield from _written(action)
    elif isinstance(action, list | tuple):
        for one in action:
            if isinstance(one, Mapping):
                yield from _asked_in(one)
    elif isinstance(action, Mapping):
        asked = action.get("tool_calls")
        if isinstance(asked, list | tuple):
            for one in asked:
                inner = one.get("function") if isinstance(one, Mapping) else None
                call: Mapping[str, Any] = (
                    inner if isinstance(inner, Mapping) else one if inner is None else {}
                )
                if isinstance(call, Mapping):
                    yield call.get("name"), call.get("arguments"), str(one.get("id") or "")
        elif "name" in action and "arguments" in action:
            yield action["name"], action["arguments"], str(action.get("id") or "")
        elif isinstance(action.get("tool"), str):
            yield action["tool"], {key: value for key, value in action.items() if key != "tool"}, ""


def _written(text: str) -> Iterator[tuple[Json, Json, str]]:
    """The call that a text is, `click(id='search-box')`; its values are literals, and nothing is run."""
    if not text.rstrip().endswith(")") or len(text) > 10_000:
        return
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return
        values = [ast.literal_eval(one) for one in node.args]
        named = {one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg is not None}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return
    given = {f"args[{number}]": value for number, value in enumerate(values)} | named
    yield ast.unparse(node.func), given, ""


def _told(messages: Json) -> Iterator[Invocation]:
    """The calls of a conversation, with their results where a tool's message has one."""
    turns: Sequence[Any] = messages if isinstance(messages, list | tuple) else ()
    results: dict[str, list[Json]] = defaultdict(list)
    for message in turns:
        if isinstance(message, Mapping) and message.get("role") == "tool":
            results[str(message.get("tool_call_id"))].append(message.get("text", message.get("content")))
    for message in turns:
        if isinstance(message, Mapping) and message.get("tool_calls"):
            for name, given, id in _asked_in(message):
                call = _invocation(name, given, id=id)
                # A server may number its calls anew in each answer, so results come in their order.
                call.result = results[id].pop(0) if results[id] else None
                yield call


def _sign(call: Invocation) -> bytes:
    """Tool and arguments, however they were recorded: with their names or without, in any order."""
    given = call.arguments
    values = list(given.values()) if isinstance(given, Mapping) else [given]
    return canonical((call.name, sorted(canonical(value).decode() for value in values)))
