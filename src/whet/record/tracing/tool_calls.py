"""The tool calls of a recorded run: to judge it by, and to replay it from.

The entrances record a call differently, and here it is one thing:

    @step(kind="tool"), OTLP tool spans   a tool step: arguments and result
    gateway, OTLP model spans             the model's answer asks for it, a later request carries the result
    an Env                                the action itself: {"name", "arguments"}, {"tool", ...}, {"tool_calls"},
                                          or text in the form of a call, `click(id='search-box')`

A call that was recorded twice, asked for by the model and executed in a step, is one.

`tool_calls` and `decisions` read all that the agent decided, answered or not; what a conversation already held when the
run began belongs to the run before.  `tool_steps` reads for replaying, where only a call with a recorded answer is of
use: a call whose result no request shows has none, and nothing is guessed.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from ...python_text import expression_of
from ...types import Failure, Json, Step, Trajectory, canonical
from ..tools import bare
from .encode import IMMUTABLE

TOLD = "told"
"""In the info of a tool step that was read from the messages of model calls, or from actions."""
_PARSED = {"dict", "list", "tuple", "int", "float", "bool", "Any"}
"""Return annotations, without their parameters, of tools whose recorded text is read as JSON."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The signature of a tool's function, by which a recorded call is recognised as one of it."""

    names: tuple[str, ...] = ()
    defaults: Mapping[str, Json] | None = None
    returns: str = ""
    """The annotation's name without its parameters, "" where there is none."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Shape:
        """The shape of a function; an empty one where Python does not know its signature."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return cls()
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        plain = {
            name: parameter.default
            for name, parameter in signature.parameters.items()
            if name not in ("self", "cls") and parameter.kind not in several
        }
        returns = signature.return_annotation
        text = returns if isinstance(returns, str) else getattr(returns, "__name__", str(returns))
        return cls(
            names=tuple(plain),
            # Others may be unequal to themselves, or have no JSON form: a call that spells them out is another.
            defaults={name: default for name, default in plain.items() if type(default) in IMMUTABLE},
            returns="" if returns is signature.empty else text.partition("[")[0].rpartition(".")[2],
        )

    def arguments(self, recorded: Json) -> Json:
        """One form for one call: name → value without what equals its default; a lone value is the first.

        Older recordings of a decorated function of one argument have "Paris" for {"city": "Paris"}.
        """
        if not self.names:
            lone = isinstance(recorded, dict) and len(recorded) == 1
            return next(iter(recorded.values())) if lone else recorded
        if not isinstance(recorded, dict) or not set(recorded) <= set(self.names):
            recorded = {self.names[0]: recorded}
        defaults = self.defaults or {}
        return {
            name: argument
            for name, argument in recorded.items()
            if name not in defaults or defaults[name] != argument
        }

    def result(self, step: Step) -> Json:
        """The return value of the tool.

        Spans and messages carry it as text, which is the value of a function annotated `str`.  Of any other
        function, text in the form of a JSON object or array stands for the value that an agent made JSON of.
        """
        text = step.action
        foreign = TOLD in step.info or "span_ids" in step.info
        if not isinstance(text, str) or not foreign or self.returns == "str":
            return text
        if self.returns not in _PARSED and text.lstrip()[:1] not in ("{", "["):
            return text
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text


def arguments(step: Step) -> Json:
    """The arguments of a recorded tool call."""
    return step.info.get("arguments", step.observation)


def tool_steps(trajectory: Trajectory) -> list[Step]:
    """The tool calls of a run that have an answer, in order: its own steps, then what its messages or actions tell.

    An action `{"name", "arguments"}` in an Env is one, and the Env's next observation is its answer.

    A span without a result is not one: the tool's answer was not recorded, or only in the messages.
    """
    own = [
        step
        for step in trajectory.steps
        if step.kind == "tool"
        and not ("span_ids" in step.info and step.action is None and step.error is None)
    ]
    ids = {step.info["tool_call_id"] for step in own if step.info.get("tool_call_id")}
    executed = Counter(_step_key(step) for step in own)
    from_messages: list[Step] = []
    counted: Counter[bytes] = Counter()
    for step in trajectory.steps:
        if step.kind != "llm":
            continue
        here: Counter[bytes] = Counter()
        for call in _answered(step.observation):
            # A request repeats the conversation before it: a call is new where there are more of it.
            sign = canonical((call.name, call.observation, call.action))
            here[sign] += 1
            if here[sign] <= counted[sign]:
                continue
            counted[sign] += 1
            if call.info["tool_call_id"] in ids:
                continue
            if executed[_step_key(call)] > 0:
                executed[_step_key(call)] -= 1
                continue
            from_messages.append(call)
    return own + from_messages + list(_acted(trajectory))


def foreign_tools(trajectory: Trajectory) -> set[str]:
    """Names of tools known from spans or messages alone, so that they may have no decorator."""
    traced = {bare(step.name) for step in trajectory.steps if step.kind == "tool" and "span_ids" in step.info}
    from_messages = {bare(step.name) for step in tool_steps(trajectory) if TOLD in step.info}
    requested = {
        bare(str(call.get("name")))
        for step in trajectory.steps
        if step.kind == "llm" and "span_ids" in step.info and isinstance(step.action, dict)
        for call in step.action.get("tool_calls") or ()
    }
    decorated = {
        bare(step.name)
        for step in trajectory.steps
        if step.kind == "tool" and "span_ids" not in step.info and TOLD not in step.info
    }
    return (traced | from_messages | requested) - decorated


def _answered(messages: Json) -> Iterator[Step]:
    """The calls in a conversation that a tool's message answers."""
    requests: dict[str, Mapping[str, Any]] = {}
    for message in messages if isinstance(messages, list | tuple) else ():
        if not isinstance(message, dict):
            continue
        for call in message.get("tool_calls") or ():
            requests[str(call.get("id"))] = call
        if message.get("role") == "tool":
            # Taken out: a server that numbers calls anew gives the next one the same id.
            request = requests.pop(str(message.get("tool_call_id")), None)
            if request is not None and isinstance(request.get("name"), str):
                yield Step(
                    observation=request.get("arguments"),
                    action=message.get("text", ""),
                    kind="tool",
                    name=request["name"],
                    info={TOLD: True, "tool_call_id": str(request.get("id"))},
                )


def _acted(trajectory: Trajectory) -> Iterator[Step]:
    """The actions of an episode that are calls of tools."""
    actions = [step for step in trajectory.steps if step.kind == "action" and step.parent is None]
    for step, after in pairwise(actions):
        action = step.action
        called = isinstance(action, dict) and isinstance(action.get("name"), str)
        if called and isinstance(action.get("arguments"), dict):
            yield Step(
                observation=action["arguments"],
                action=after.observation,
                kind="tool",
                name=action["name"],
                info={TOLD: True, "tool_call_id": action.get("id")},
            )


def _step_key(step: Step) -> bytes:
    """Tool and arguments, however they were recorded: to recognise a call that was recorded twice."""
    called_with = arguments(step)
    values = list(called_with.values()) if isinstance(called_with, dict) else [called_with]
    return canonical((bare(step.name), values))


# -- what an agent decided -----------------------------------------------------------------------------


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

    def has(self, expected: Mapping[str, Json]) -> bool:
        """True if it was called with these arguments, whatever others it had."""
        actual = self.arguments
        if isinstance(actual, Mapping) and all(
            key in actual and actual[key] == expected[key] for key in expected
        ):
            return True
        # Older recordings have the lone argument of a decorated function without its name.
        return len(expected) == 1 and list(expected.values()) == [actual]


def tool_calls(trajectory: Trajectory) -> list[Invocation]:
    """The tool calls of a run in the order in which they were decided, whatever recorded them."""
    return _Reader(trajectory).calls


def decisions(trajectory: Trajectory) -> int:
    """The number of decisions in a run: its tool calls, and the turns that called none, such as the answer.

    An Env's action is one, unless an agent called tools within it: then these count, and the answer that the action
    is.  0 of a run that recorded nothing and answered nothing.
    """
    reader = _Reader(trajectory)
    steps = trajectory.steps
    places = [index for index, step in enumerate(steps) if step.kind == "action"]
    if not places:
        called, silent = len(reader.calls), reader.silent_in(0, len(steps))
        answered = trajectory.error is None and trajectory.output is not None
        return called + (silent or int(answered))
    total = reader.called_in(0, places[0]) + reader.silent_in(0, places[0])
    for index, end in zip(places, [*places[1:], len(steps)], strict=True):
        inner, silent = reader.called_in(index + 1, end), reader.silent_in(index + 1, end)
        if inner:
            # What the agent did last is its answer, unless the action is the very call that its model asked for.
            total += inner + (silent or int(reader.call_of(steps[index]) is None))
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
        self._by_key: dict[bytes, list[Invocation]] = defaultdict(list)
        first_request = True
        for index, step in enumerate(self._steps):
            if step.kind == "llm":
                self._read_request(index, step, history=first_request)
                self._read_answer(index, step)
                first_request = False
            elif step.kind == "tool":
                self._read_tool(index, step)
        # Last, for an action is a call only if nothing within it was.
        for index, step in enumerate(self._steps):
            if step.kind == "action":
                self._read_action(index, step)
        # A stable sort: calls of one step stay in the order in which they were asked for.
        order = sorted(range(len(self.calls)), key=lambda number: self._at[number])
        self.calls = [self.calls[number] for number in order]
        self._at = [self._at[number] for number in order]

    def called_in(self, start: int, end: int) -> int:
        """Calls read from the steps in a range of places."""
        return sum(start <= index < end for index in self._at)

    def silent_in(self, start: int, end: int) -> int:
        """Turns of the model in a range of places that called no tool."""
        return sum(start <= index < end for index in self._silent)

    @staticmethod
    def call_of(step: Step) -> Json:
        """The call that an action is, None where it is something else."""
        return next(iter(_requested_in(step.action)), None)

    def _add(self, index: int, call: Invocation) -> None:
        self.calls.append(call)
        self._at.append(index)
        self._by_key[_call_key(call)].append(call)

    def _read_request(self, index: int, step: Step, *, history: bool) -> None:
        counts: Counter[bytes] = Counter()
        for call in _conversation_calls(step.observation):
            sign = _call_key(call)
            number, counts[sign] = counts[sign], counts[sign] + 1
            alike = self._by_key[sign]
            twin = alike[number] if number < len(alike) else None
            if twin is None or twin.id != call.id:
                # Another conversation of the run may have asked for the same.
                waiting = (asking for asking in alike if asking.id == call.id and asking.result is None)
                twin = next(waiting, twin)
            if twin is not None:
                twin.result = call.result if twin.result is None else twin.result
            elif history:
                alike.append(call)  # of a run before this one
            else:
                call.step = step.id
                self._add(index, call)

    def _read_answer(self, index: int, step: Step) -> None:
        requests = list(_requested_in(step.action)) if not isinstance(step.action, str) else []
        for name, call_arguments, id in requests:
            self._add(index, _invocation(name, call_arguments, step=step.id, id=id))
        if not requests:
            self._silent.add(index)

    def _read_tool(self, index: int, step: Step) -> None:
        call_arguments = arguments(step)
        name = bare(step.name) if step.name else None
        executed = Invocation(
            name, {} if call_arguments is None else call_arguments, step.action, step.error, step.id
        )
        id = str(step.info.get("tool_call_id") or "")
        unmatched = [call for call in self.calls if not call._executed and call.name == name]
        waiting = [call for call in unmatched if call.result is None]
        # The surest first: by the model's id, by tool and arguments, then by the tool alone.
        request = (
            next((call for call in unmatched if id and call.id == id), None)
            or next((call for call in waiting if _call_key(call) == _call_key(executed)), None)
            # A framework may complete or convert what the model gave before it calls the function.
            or next((call for call in waiting if not (id and call.id)), None)
        )
        executed._executed = True
        if request is None:
            self._add(index, executed)
            return
        request._executed = True
        request.result = executed.result if executed.result is not None else request.result
        request.error = executed.error
        if not isinstance(request.arguments, Mapping):
            request.arguments = executed.arguments

    def _read_action(self, index: int, step: Step) -> None:
        actions = [at for at in range(index + 1, len(self._steps)) if self._steps[at].kind == "action"]
        end = actions[0] if actions else len(self._steps)
        if self.called_in(index + 1, end):
            return
        result = self._steps[end].observation if actions else step.info.get("next_obs")
        for name, call_arguments, id in _requested_in(step.action):
            call = _invocation(name, call_arguments, step=step.id, id=id)
            call.result, call.error = result, step.error
            self._add(index, call)


def _invocation(name: Json, call_arguments: Json, *, step: str = "", id: str = "") -> Invocation:
    """A call as requested: unreadable without a name, or with arguments that are not an object."""
    if isinstance(call_arguments, str):
        try:
            call_arguments = msgspec.json.decode(call_arguments) if call_arguments.strip() else {}
        except (msgspec.DecodeError, RecursionError):
            return Invocation(None, call_arguments, step=step, id=id)
    readable = isinstance(name, str) and bool(name) and isinstance(call_arguments, Mapping | None)
    return Invocation(
        bare(name) if readable else None,
        call_arguments if call_arguments is not None else {},
        step=step,
        id=id,
    )


def requested_calls(action: Json) -> list[Invocation]:
    """The calls that an action or a model's answer asks for; without a name where one cannot be read."""
    return [_invocation(name, call_arguments, id=id) for name, call_arguments, id in _requested_in(action)]


def _requested_in(action: Json) -> Iterator[tuple[Json, Json, str]]:
    """Name, arguments and id of the calls that an action or a model's answer asks for."""
    if isinstance(action, str):
        yield from _call_in_text(action)
    elif isinstance(action, list | tuple):
        for part in action:
            if isinstance(part, Mapping):
                yield from _requested_in(part)
    elif isinstance(action, Mapping):
        requests = action.get("tool_calls")
        if isinstance(requests, list | tuple):
            for request in requests:
                inner = request.get("function") if isinstance(request, Mapping) else None
                call: Mapping[str, Any] = (
                    inner if isinstance(inner, Mapping) else request if inner is None else {}
                )
                if isinstance(call, Mapping):
                    yield call.get("name"), call.get("arguments"), str(request.get("id") or "")
        elif "name" in action and "arguments" in action:
            yield action["name"], action["arguments"], str(action.get("id") or "")
        elif isinstance(action.get("tool"), str):
            yield action["tool"], {key: value for key, value in action.items() if key != "tool"}, ""


def _call_in_text(text: str) -> Iterator[tuple[Json, Json, str]]:
    """The call that a text is, `click(id='search-box')`; its values are literals, and nothing is run."""
    # The length is bounded because CPython's parser may run out of C stack on deep nesting, and crash.
    if not text.rstrip().endswith(")") or len(text) > 10_000:
        return
    try:
        node = expression_of(text.strip())
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return
        values = [ast.literal_eval(argument) for argument in node.args]
        named = {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in node.keywords
            if keyword.arg is not None
        }
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return
    call_arguments = {f"args[{number}]": value for number, value in enumerate(values)} | named
    yield ast.unparse(node.func), call_arguments, ""


def _conversation_calls(messages: Json) -> Iterator[Invocation]:
    """The calls of a conversation, with their results where a tool's message has one."""
    turns: Sequence[Any] = messages if isinstance(messages, list | tuple) else ()
    results: dict[str, list[Json]] = defaultdict(list)
    for message in turns:
        if isinstance(message, Mapping) and message.get("role") == "tool":
            results[str(message.get("tool_call_id"))].append(message.get("text", message.get("content")))
    for message in turns:
        if isinstance(message, Mapping) and message.get("tool_calls"):
            for name, call_arguments, id in _requested_in(message):
                call = _invocation(name, call_arguments, id=id)
                # A server may number its calls anew in each answer, so results come in their order.
                call.result = results[id].pop(0) if results[id] else None
                yield call


def _call_key(call: Invocation) -> bytes:
    """Tool and arguments, however they were recorded: with their names or without, in any order."""
    called_with = call.arguments
    values = list(called_with.values()) if isinstance(called_with, Mapping) else [called_with]
    return canonical((call.name, sorted(canonical(value).decode() for value in values)))
