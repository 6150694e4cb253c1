"""Run an agent again on its recorded tool results, without touching the world.

A recorded Trajectory knows what each tool answered.  Inside `with Replay(trajectory)` a call of a tool
(`@step(kind="tool")`) gets that answer, found by the tool's name, its arguments and their order; the tool
itself is not called.  A call that was never recorded follows the effect class that the tool declares and
the divergence policy.  Model calls are not tool calls: the candidate's model is what is being judged.

It answers calls.  It does not score, pair or decide; `whet replay` and `whet.calls(agent, record=store)`
do, and leave out (and count) the runs that diverged.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Collection
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeAlias, cast

from ...errors import EnvError, InputError
from ...types import Json, Step, Trajectory, canonical
from ..tools import Effect, bare
from .encode import thaw
from .kinds import forwarding, kind_of
from .record import CallSite
from .tool_calls import Shape, arguments, foreign_tools, tool_steps

Simulator: TypeAlias = Callable[[str, Json], Json]
"""(tool, arguments) → the answer in its place."""
Divergence: TypeAlias = Literal["exclude", "nearest", "live"] | Simulator


class Diverged(EnvError):
    """A replayed agent made a call that was never recorded, and nothing may answer it: the run is not comparable."""


class ReplayedError(Exception):
    """A recorded tool failed with an exception that is not one of Python's own; its name and text."""


@dataclass(slots=True)
class ReplayCounts:
    """The fates of the tool calls of one replay."""

    exact: int = 0
    """Answered as recorded: same tool, same arguments."""
    nearest: int = 0
    """A read that was answered with the most similar recorded read of the same tool."""
    simulated: int = 0
    live: int = 0
    """Reads that were not recorded and ran for real."""
    diverged: list[str] = field(default_factory=list)
    """The calls that nothing could answer, as text."""
    unused: int = 0
    """Recorded tool calls that were not repeated."""


HARMLESS = frozenset({"final_answer"})
"""Tools of frameworks that nobody can mark, and that only return their arguments."""
_ANY = Shape()
_LIVE = object()
"""Stands for an answer: the tool itself is to be asked."""
_marked: set[str] = set()
"""Names of the functions that are marked as tools in this process: a replay can answer for them."""
_replaying: ContextVar[Replay | None] = ContextVar("whet_replay", default=None)
# Of the process, not of a context: it must hold in threads that no context reaches.
_guards = 0


class Replay:
    """A context manager, used once; `counts` says afterwards how faithful it was.

    Args:
        trajectory: the recorded run; its steps of kind `tool` answer.
        divergence: for a call that was not recorded: `exclude` refuses it (Diverged), `nearest` answers a
            read with the most similar recorded read of that tool and refuses everything else, `live` runs a
            read for real and refuses everything else, a function simulates the tool.  What is not declared a
            read is never run, whatever the policy.
        guard: refuse tool calls of this process that come from outside of any replay, such as those of a
            thread to which nobody carried the context (`whet.propagate`).  For a process that does nothing
            but replay.

    Raises:
        InputError: the policy is not one of these.
    """

    def __init__(
        self, trajectory: Trajectory, *, divergence: Divergence = "exclude", guard: bool = False
    ) -> None:
        if not callable(divergence) and divergence not in ("exclude", "nearest", "live"):
            raise InputError(f"divergence={divergence!r}: it must be exclude, nearest, live or a function")
        self.counts = ReplayCounts()
        self._divergence, self._guard = divergence, guard
        self._by_tool: dict[str, list[Step]] = {}
        self._repeats: dict[tuple[str, bytes], int] = {}
        self._used: set[int] = set()
        for step in tool_steps(trajectory):
            self._by_tool.setdefault(bare(step.name), []).append(step)
        self._token: Token[Replay | None] | None = None

    def __enter__(self) -> Replay:
        global _guards
        self._token = _replaying.set(self)
        _guards += self._guard
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _guards
        assert self._token is not None
        _replaying.reset(self._token)
        _guards -= self._guard
        self.counts.unused = sum(map(len, self._by_tool.values())) - len(self._used)

    @property
    def faithful(self) -> bool:
        """No call went unanswered: what the run came to may be compared with the recorded one."""
        return not self.counts.diverged

    def answer(self, tool: str, call_arguments: Json, effect: Effect | None, shape: Shape = _ANY) -> Any:
        """The recorded answer of the tool, or `_LIVE` if it is to be run; a recorded failure is raised again.

        Args:
            shape: of the tool's function, where it is known.

        Raises:
            Diverged: the call was not recorded and the policy does not answer it.
        """
        calls = self._by_tool.get(bare(tool), [])
        signature = canonical(shape.arguments(call_arguments))
        recorded = [step for step in calls if canonical(shape.arguments(arguments(step))) == signature]
        if recorded:
            number = self._repeats.get((bare(tool), signature), 0)
            self._repeats[bare(tool), signature] = number + 1
            # A read may be repeated without end; a write more often than recorded would be a new effect.
            if number < len(recorded) or effect in ("read", "idempotent"):
                step = recorded[min(number, len(recorded) - 1)]
                # By id, for equal calls are several steps; `_by_tool` keeps them alive.
                self._used.add(id(step))
                self.counts.exact += 1
                return self._answer(step, shape)
        if callable(self._divergence):
            self.counts.simulated += 1
            return self._divergence(bare(tool), call_arguments)
        if self._divergence == "nearest" and effect == "read" and calls:
            self.counts.nearest += 1
            normalized = shape.arguments(call_arguments)
            alike = [_alike(normalized, shape.arguments(arguments(step))) for step in calls]
            return self._answer(calls[alike.index(max(alike))], shape)
        if self._divergence == "live" and effect == "read":
            self.counts.live += 1
            return _LIVE
        return self._refuse(tool, call_arguments, effect)

    def _answer(self, step: Step, shape: Shape) -> Json:
        if step.error is not None:
            kind = getattr(builtins, step.error.type, None)
            # Exception alone: a recorded SystemExit must not end the process that replays.
            if isinstance(kind, type) and issubclass(kind, Exception):
                raise _raised(kind, step.error.message)
            raise ReplayedError(f"{step.error.type}: {step.error.message}")
        if isinstance(step.action, dict) and "$repr" in step.action:
            self.counts.diverged.append(f"{bare(step.name)} returned what has no JSON form")
            raise Diverged(
                f"{bare(step.name)} returned a {step.action.get('$type')}, of which only the text was "
                "recorded. Return something that JSON can carry."
            )
        return shape.result(step)

    def _refuse(self, tool: str, call_arguments: Json, effect: Effect | None) -> Json:
        call = f"{bare(tool)}({canonical(call_arguments).decode('utf-8', 'replace')[:200]})"
        self.counts.diverged.append(call)
        why = "" if effect else "; it declares no effect, which counts as write"
        raise Diverged(
            f"{call} was not recorded with these arguments, and the policy "
            f"{self._divergence!r} does not answer a {effect or 'write'}{why}"
        )


def _raised(kind: type[Exception], message: str) -> Exception:
    """An exception of a kind, with the recorded message for its text."""
    try:
        return kind(message)
    except TypeError:
        # UnicodeDecodeError and its like are made of five values, of which their text alone was recorded.
        methods = {"__init__": _with_text, "__str__": lambda error: error.args[0]}
    try:
        stated: Exception = type(kind.__name__, (kind,), methods)(message)
    except TypeError:  # an ExceptionGroup needs the exceptions in it
        return ReplayedError(f"{kind.__name__}: {message}")
    return stated


def _with_text(error: Exception, message: str) -> None:
    error.args = (message,)


def replaying(tool: str) -> Replay | None:
    """The replay that answers tool calls here, None where tools really run.

    Raises:
        Diverged: this process only replays, and the call comes from outside of any replay.
    """
    replay = _replaying.get()
    if replay is None and _guards:
        raise Diverged(
            f"{bare(tool)} was called where no replay reaches, perhaps in a thread of its own. "
            "Wrap the thread pool in whet.propagate."
        )
    return replay


def answerable(function: Any, called: CallSite, effect: Effect | None) -> Any:
    """`function`, which a replay answers in its place; of the same kind: sync, async or generator."""
    shape = Shape.of(function)
    _marked.add(bare(called.name))

    def recorded(replay: Replay, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call_arguments = called.observation(called.freeze(args, kwargs), thaw)
        return replay.answer(called.name, call_arguments, effect, shape)

    def choose(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        replay = replaying(called.name)
        answer = _LIVE if replay is None else recorded(replay, args, kwargs)
        if answer is _LIVE:
            return cast(Callable[..., Any], function)
        # A generator is answered by the list of what it yielded, and yielded nothing where None was recorded.
        values = answer or () if several else answer
        return lambda *_args, **_kwargs: values

    several = kind_of(function) in ("generator", "async generator")
    return forwarding(function, choose)


def _alike(first: Json, second: Json) -> float:
    """Share of words that two arguments have in common (Jaccard)."""
    first_words, second_words = _words(first), _words(second)
    return (
        len(first_words & second_words) / len(first_words | second_words)
        if first_words | second_words
        else 1.0
    )


def _words(value: Json) -> set[str]:
    return set(re.findall(r"\w+", canonical(value).decode("utf-8", "replace").lower()))


def unmarked(trajectory: Trajectory, live: Collection[str] = ()) -> list[str]:
    """Tools that this run called and that a replay would call for real: nothing in this process marks them.

    Only of runs that were captured from outside, as spans or by the gateway: a replay can answer
    every call that the decorator recorded.

    Args:
        live: names of tools that may run for real.
    """
    return sorted(foreign_tools(trajectory) - _marked - HARMLESS - set(live))
