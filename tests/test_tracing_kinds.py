"""Whatever is decorated stays what frameworks take it for, and is recorded."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import InputError
from whet.record.store import Store
from whet.record.tracing import Replay, collecting, evolve, flush, register_loader, run, step, trace, using
from whet.types import Bundle, Outcome, Step, Task, Trajectory, Version


def plain(word: str, times: int = 2) -> str:
    """Say it again."""
    return word * times


async def awaited(word: str, times: int = 2) -> str:
    """Say it again."""
    await asyncio.sleep(0)
    return word * times


def generated(word: str, times: int = 2) -> Iterator[str]:
    """Say it again."""
    for _ in range(times):
        yield word


async def generated_later(word: str, times: int = 2) -> AsyncIterator[str]:
    """Say it again."""
    for _ in range(times):
        await asyncio.sleep(0)
        yield word


class Speaker:
    """Objects that are called, one way or the other."""

    def __init__(self, times: int = 2) -> None:
        self.times = times

    def __call__(self, word: str) -> str:
        return word * self.times

    def say(self, word: str, times: int = 2) -> str:
        return word * times

    async def say_later(self, word: str, times: int = 2) -> str:
        return word * times


class Later(Speaker):
    async def __call__(self, word: str) -> str:  # type: ignore[override]
        return word * self.times


class Streaming(Speaker):
    def __call__(self, word: str) -> Iterator[str]:  # type: ignore[override]
        yield from [word] * self.times


SHAPES: dict[str, Any] = {
    "plain": plain,
    "async": awaited,
    "generator": generated,
    "async generator": generated_later,
    "bound method": Speaker().say,
    "bound async method": Speaker().say_later,
    "partial": functools.partial(plain, times=2),
    "async partial": functools.partial(awaited, times=2),
    "generator partial": functools.partial(generated, times=2),
    "object": Speaker(),
    "async object": Later(),
    "generating object": Streaming(),
    "partial of an async object": functools.partial(Later()),
}
"""Shape → something that says "ab" twice when it is called with it."""
DECORATORS: dict[str, Callable[[Any], Any]] = {
    "trace": trace,
    "trace()": trace(),
    "step": step,
    "step(kind=tool)": step(kind="tool", effect="read"),
    "evolve": evolve,
    "evolve(name)": evolve("said"),
}
ASYNC = {"async", "bound async method", "async partial", "async object", "partial of an async object"}


def answer(function: Callable[[str], Any]) -> Any:
    """What a framework gets that looks at the function before it calls it."""

    async def collected(values: Any) -> list[Any]:
        return [value async for value in values]

    async def waited(coroutine: Any) -> Any:
        return await coroutine

    if inspect.iscoroutinefunction(function):
        return asyncio.run(waited(function("ab")))
    if inspect.isasyncgenfunction(function):
        return asyncio.run(collected(function("ab")))
    return list(function("ab")) if inspect.isgeneratorfunction(function) else function("ab")


@pytest.mark.parametrize("decorator", DECORATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_stays_what_it_is_under_every_decorator(shape: str, decorator: str) -> None:
    function = SHAPES[shape]
    with collecting():
        marked = DECORATORS[decorator](function)
        assert inspect.iscoroutinefunction(marked) == asyncio.iscoroutinefunction(marked) == (shape in ASYNC)
        assert inspect.isasyncgenfunction(marked) == (shape == "async generator")
        assert inspect.isgeneratorfunction(marked) == ("generat" in shape and "async" not in shape)
        said = answer(marked)
        assert said == (["ab", "ab"] if "generat" in shape else "abab")
    assert inspect.isfunction(marked)
    assert inspect.unwrap(marked) is function
    assert inspect.signature(marked) == inspect.signature(function)
    assert typing.get_type_hints(marked)["word"] is str
    assert marked.__module__ == __name__


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_recorded_with_its_argument_and_its_answer(shape: str) -> None:
    function = SHAPES[shape]
    with collecting() as records:
        answer(trace(function))
        answer(step(kind="tool")(function))
    call, tool = records
    assert isinstance(call, Trajectory)
    assert isinstance(tool, Step)
    said = ["ab", "ab"] if "generat" in shape else "abab"
    assert (call.task.instruction, call.output, call.outcome) == ("ab", said, Outcome.UNKNOWN)
    assert (tool.observation, tool.action, tool.error) == ({"word": "ab"}, said, None)
    name = "Later" if "async object" in shape else "Speaker" if shape == "object" else call.meta["function"]
    assert call.meta["function"] == tool.name == name
    assert tool.name not in ("partial", "wrapper")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_replay_answers_a_tool_of_every_shape(shape: str) -> None:
    tool = step(kind="tool", effect="read")(SHAPES[shape])
    with collecting() as records:
        answer(tool)
    (recorded,) = [one for one in records if isinstance(one, Step)]
    other = ["not", "called"] if "generat" in shape else "not called"
    with Replay(Trajectory(task=Task(), steps=[replace(recorded, action=other)])) as replay:
        assert answer(tool) == other
    assert replay.counts.exact == 1


class Tools:
    """Decorators on either side of staticmethod and classmethod."""

    prefix = "> "

    @step(kind="tool")
    @staticmethod
    def above_static(word: str) -> str:
        return word * 2

    @staticmethod
    @step(kind="tool")
    def below_static(word: str) -> str:
        return word * 2

    @step(kind="tool")
    @classmethod
    def above_class(cls, word: str) -> str:
        return cls.prefix + word

    @classmethod
    @step(kind="tool")
    def below_class(cls, word: str) -> str:
        return cls.prefix + word

    @step(kind="tool")
    @staticmethod
    async def above_static_later(word: str) -> str:
        return word * 2

    @classmethod
    @step(kind="tool")
    async def below_class_later(cls, word: str) -> str:
        return cls.prefix + word

    @step(kind="tool")
    def method(self, word: str) -> str:
        return self.prefix + word

    @step(kind="tool")
    async def method_later(self, word: str) -> str:
        return self.prefix + word

    @trace
    @classmethod
    def traced(cls, word: str) -> str:
        return cls.prefix + word

    @evolve("tools.evolved")
    @staticmethod
    async def evolved(word: str) -> str:
        return word * 2


@pytest.mark.parametrize("on", [Tools, Tools()], ids=["class", "instance"])
@pytest.mark.parametrize("name", [one for one in vars(Tools) if not one.startswith("_") and one != "prefix"])
def test_static_and_class_methods_are_recorded_on_either_side(name: str, on: Any) -> None:
    if isinstance(on, type) and name.startswith("method"):
        pytest.skip("a method is called on an instance")
    tool = getattr(on, name)
    assert inspect.iscoroutinefunction(tool) == (name.endswith("later") or name == "evolved")
    with collecting() as records:
        said = answer(tool)
    assert said == ("abab" if "static" in name or name == "evolved" else "> ab")
    if name != "evolved":
        (found,) = records
        argument = found.task.instruction if isinstance(found, Trajectory) else found.observation
        assert argument in ("ab", {"word": "ab"})


@step(kind="tool")
async def picklable(word: str) -> str:
    return word


@trace
def picklable_call(word: str) -> str:
    return word


@evolve
async def picklable_target(word: str) -> str:
    return word


@pytest.mark.parametrize("function", [picklable, picklable_call, picklable_target])
def test_a_decorated_function_is_pickled_by_its_name(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) is function


def test_a_traced_generator_runs_until_it_is_exhausted_or_closed(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        seen: list[str] = []

        @step(kind="tool")
        def look(word: str) -> str:
            return word.upper()

        @trace(store)
        def stream(words: list[str]) -> Iterator[str]:
            try:
                for word in words:
                    yield look(word)
            finally:
                look("cleanup")

        with run(session="s"):
            left = stream(["a", "b", "c"])
            assert next(left) == "A"
            assert flush()
            assert not list(store.trajectories())  # it has not ended
            left.close()
            seen += stream(["d"])
        stream(["never begun"])
        assert flush()
        closed, whole = store.trajectories()
        assert (closed.output, closed.outcome) == (["A"], Outcome.TRUNCATED)
        assert (whole.output, whole.outcome, whole.session) == (["D"], Outcome.UNKNOWN, "s")
        assert seen == ["D"]
        # What it does while it is closed is a part of it too.
        assert [one.observation for one in closed.steps] == [{"word": "a"}, {"word": "cleanup"}]


def test_an_async_generator_can_be_sent_to_thrown_into_and_closed() -> None:
    @trace
    async def echo(first: str) -> Any:
        said = first
        while True:
            try:
                said = yield said
            except KeyError as error:
                said = f"caught {error.args[0]}"

    async def main() -> list[Any]:
        values = echo("a")
        got = [await values.__anext__(), await values.asend("b"), await values.athrow(KeyError("c"))]
        await values.aclose()
        return got

    with collecting() as records:
        assert asyncio.run(main()) == ["a", "b", "caught c"]
    (found,) = records
    assert isinstance(found, Trajectory)
    assert (found.output, found.outcome) == (["a", "b", "caught c"], Outcome.TRUNCATED)


def test_an_evolved_generator_and_coroutine_become_their_candidate() -> None:
    def load(version: Version, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda word: [f"{version.content} {word}"]  # neither a generator nor async

    register_loader("of the kinds", load)
    for function in (generated, generated_later, awaited):
        target = evolve(name="kinds.target", kind="of the kinds")(function)
        version = Version(resource="kinds.target", content="new", kind="of the kinds")
        with using(Bundle([version])):
            assert answer(target) == ["new ab"]
        assert answer(target) == ("abab" if function is awaited else ["ab", "ab"])


@pytest.mark.parametrize("given", ["You are a kind assistant.", 3, {"limit": 2}, ["a"], Speaker])
def test_evolve_of_what_is_no_function_says_what_to_write_instead(given: Any) -> None:
    with pytest.raises(InputError, match="marks a function") as refused:
        evolve(given)
    assert isinstance(given, type) or "whet.resource(" in str(refused.value)
    with pytest.raises(InputError, match="marks a function"):
        evolve("name")(given)


def test_evolve_with_a_name_marks_the_function_below() -> None:
    @whet.evolve("search.rank")
    def rank(hits: list[str]) -> list[str]:
        return sorted(hits)

    assert rank(["b", "a"]) == ["a", "b"]
    assert whet.record.tracing.resources()["search.rank"] is rank.resource  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="marks a function"):
        whet.evolve("one", name="other")


@pytest.mark.parametrize("given", [Speaker, property(lambda self: 1), 3])
def test_trace_and_step_refuse_what_is_not_called(given: Any) -> None:
    for decorator in (trace, step, step("named"), trace(name="named")):
        with pytest.raises(InputError, match="marks a function or a method"):
            decorator(given)
