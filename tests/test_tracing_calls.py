"""Traced calls and steps: what is recorded, and that the program does not notice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from whet.errors import InputError, ModelError
from whet.record.store import Store
from whet.record.tracing import collecting, feedback, flush, propagate, run, step, trace
from whet.types import Failure, Fault, Outcome, Step, Tokens, Trajectory, Usage


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db") as opened:
        yield opened


def recorded(store: Store) -> list[Trajectory]:
    assert flush()
    return list(store.trajectories())


def test_one_call_is_one_trajectory_with_question_answer_and_time(store: Store) -> None:
    @trace(store)
    def agent(question: str) -> str:
        """Answer."""
        return question.upper()

    assert agent("when is the move?") == "WHEN IS THE MOVE?"
    (found,) = recorded(store)
    assert found.task.instruction == "when is the move?"
    assert found.output == "WHEN IS THE MOVE?"
    assert found.outcome is Outcome.UNKNOWN
    assert found.seconds is not None
    assert found.seconds >= 0
    assert (agent.__name__, agent.__doc__) == ("agent", "Answer.")


def test_several_arguments_are_recorded_by_name_and_self_is_not(store: Store) -> None:
    class Agent:
        @trace(store)
        def answer(self, question: str, limit: int = 3, **extra: Any) -> dict[str, Any]:
            return {"limit": limit}

    Agent().answer("q", limit=5, deep=[1])
    Agent().answer("only")
    both, single = recorded(store)
    assert both.task.instruction == '{"question":"q","limit":5,"deep":[1]}'
    assert both.output == {"limit": 5}
    assert single.task.instruction == "only"


def test_steps_nest_with_their_parents_and_keep_order(store: Store) -> None:
    @step(kind="tool")
    def search(words: list[str], limit: int = 2) -> list[str]:
        return words[:limit]

    @trace(store)
    def agent(question: str) -> list[str]:
        with step("plan", kind="llm", observation=question, agent="planner") as now:
            found = search(question.split(), limit=1)
            now.action = {"found": found}
            now.reward = 0.5
            now.tokens = Tokens((1,), (2,), (-0.1,))
            now.usage = Usage(10, 2, 0.01, 1)
            now.info = {"temperature": 0}
        return search(["end"])

    agent("a b")
    (found,) = recorded(store)
    plan, inner, last = found.steps
    assert [(s.id, s.parent, s.name.split(".")[-1], s.kind) for s in found.steps] == [
        ("0", None, "plan", "llm"),
        ("1", "0", "search", "tool"),
        ("2", None, "search", "tool"),
    ]
    assert (plan.observation, plan.action, plan.reward, plan.agent) == (
        "a b",
        {"found": ["a"]},
        0.5,
        "planner",
    )
    assert (plan.tokens, plan.usage) == (Tokens((1,), (2,), (-0.1,)), Usage(10, 2, 0.01, 1))
    assert plan.info == {"temperature": 0}
    assert (inner.observation, inner.action) == ({"words": ["a", "b"], "limit": 1}, ["a"])
    assert last.observation == {"words": ["end"]}
    assert plan.latency is not None
    assert inner.latency is not None
    assert plan.latency >= inner.latency > 0


def test_a_traced_function_inside_another_is_a_step_of_it(store: Store) -> None:
    @trace(store, name="helper")
    def helper(text: str) -> int:
        return len(text)

    @trace(store)
    def agent(question: str) -> int:
        return helper(question)

    agent("abc")
    (found,) = recorded(store)
    (inner,) = found.steps
    assert (inner.name, inner.kind, inner.observation, inner.action) == ("helper", "agent", "abc", 3)


def test_arguments_and_results_are_those_of_the_moment(store: Store) -> None:
    @step
    def note(seen: dict[str, int]) -> dict[str, int]:
        return seen

    @trace(store)
    def agent(items: list[int]) -> list[int]:
        state = {"n": 1}
        note(state)
        state["n"] = 99
        items.append(2)
        return items

    given = [1]
    out = agent(given)
    out.append(3)
    (found,) = recorded(store)
    assert found.task.instruction == "[1]"
    assert found.output == [1, 2]
    assert found.steps[0].observation == found.steps[0].action == {"n": 1}


def test_an_exception_is_recorded_and_raised_unchanged(store: Store) -> None:
    error = ValueError("no such mail")

    @step
    def read() -> None:
        raise error

    @trace(store)
    def agent(question: str) -> None:
        read()

    with pytest.raises(ValueError, match="no such mail") as raised:
        agent("q")
    assert raised.value is error
    (found,) = recorded(store)
    assert found.outcome is Outcome.FAILURE
    assert found.error == found.steps[0].error == Failure(Fault.AGENT, "ValueError", "no such mail")


def test_a_model_that_fails_is_infrastructure_and_a_cancelled_call_truncated(store: Store) -> None:
    @trace(store)
    def unlucky() -> None:
        raise ModelError("503")

    @trace(store)
    async def slow() -> None:
        await asyncio.sleep(60)

    with pytest.raises(ModelError):
        unlucky()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(slow(), 0.01))
    assert [each.outcome for each in recorded(store)] == [Outcome.INFRASTRUCTURE_ERROR, Outcome.TRUNCATED]


def test_what_cannot_be_encoded_is_marked_and_never_raises(store: Store) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    @trace(store)
    def agent(first: Any, second: Any) -> Any:
        return first

    loop: list[Any] = []
    loop.append(loop)
    agent({"fine": 1, "odd": Odd()}, threading.Lock())
    agent(loop, {(1, 2): "tuple key"})
    agent("lone \ud800 surrogate", ["inner \ud800"])
    agent("x" * 2_000_000, ["y" * 2_000_000])
    agent({1, 2}, 2**20_000)
    odd, cyclic, surrogate, large, last = recorded(store)
    assert odd.output["fine"] == 1
    assert odd.output["odd"]["$type"].endswith("Odd")
    assert "RuntimeError" in odd.output["odd"]["$repr"]
    assert cyclic.output == [{"$cycle": 1}]
    assert surrogate.output == "lone \ufffd surrogate"
    assert large.output["$bytes"] == 2_000_000
    assert len(large.task.instruction) < 100_000
    assert sorted(last.output) == [1, 2]


def test_half_an_emoji_in_what_was_said_or_by_whom_loses_nothing(store: Store) -> None:
    @trace(store)
    def agent(question: str) -> str:
        return "ok"

    with run(session="s\ud83d", subject="ann\ud83d") as handle:
        agent("hello")
    feedback(handle, 1.0, "thanks \ud83d")
    (kept,) = recorded(store)
    assert (kept.session, kept.subject) == ("s\ufffd", "ann\ufffd")
    assert [each.comment for each in kept.feedback] == ["thanks \ufffd"]


def test_async_calls_at_once_do_not_mix(store: Store) -> None:
    @step
    async def look(word: str) -> str:
        await asyncio.sleep(0.001)
        return word * 2

    @trace(store)
    async def agent(question: str) -> str:
        parts = await asyncio.gather(*(look(f"{question}{n}") for n in range(3)))
        return parts[-1]

    async def main() -> list[str]:
        return list(await asyncio.gather(*(agent(f"q{n}") for n in range(10))))

    assert asyncio.iscoroutinefunction(agent)
    assert asyncio.run(main())[3] == "q32q32"
    found = recorded(store)
    assert len(found) == 10
    for each in found:
        asked = each.task.instruction
        assert sorted(s.observation for s in each.steps) == [f"{asked}{n}" for n in range(3)]
        assert each.output == f"{asked}2{asked}2"


def test_an_async_calls_arguments_are_those_that_its_body_sees_and_none_is_recorded_unawaited(
    store: Store,
) -> None:
    @trace(store)
    async def agent(items: list[int]) -> int:
        return len(items)

    async def main() -> int:
        items = [1]
        pending = agent(items)
        agent([9]).close()
        items.append(2)
        return await pending

    assert asyncio.run(main()) == 2
    (found,) = recorded(store)
    assert found.task.instruction == "[1,2]"


def test_generators_are_recorded_with_what_they_yield_and_behave_the_same(store: Store) -> None:
    @step
    def look(n: int) -> int:
        return n

    @trace(store)
    def counting(limit: int) -> Any:
        got = []
        for n in range(limit):
            got.append((yield look(n)))
        return got

    generator = counting(3)
    assert next(generator) == 0
    look(77)  # between two steps of the generator: not a part of it
    assert generator.send("a") == 1
    assert generator.send("b") == 2
    with pytest.raises(StopIteration) as stop:
        generator.send("c")
    assert stop.value.value == ["a", "b", "c"]
    early = counting(5)
    next(early)
    early.close()
    thrown = counting(5)
    next(thrown)
    with pytest.raises(KeyError):
        thrown.throw(KeyError("x"))
    whole, closed, failed = recorded(store)
    assert whole.output == [0, 1, 2]
    assert [s.action for s in whole.steps] == [0, 1, 2]
    assert (closed.output, closed.outcome) == ([0], Outcome.TRUNCATED)
    assert (failed.output, failed.outcome) == ([0], Outcome.FAILURE)


def test_async_generators_are_recorded_with_what_they_yield(store: Store) -> None:
    @trace(store)
    async def streaming(words: str) -> AsyncIterator[str]:
        for word in words.split():
            await asyncio.sleep(0)
            with step("token") as now:
                now.action = word
            yield word

    async def main() -> list[str]:
        return [word async for word in streaming("a b c")]

    assert asyncio.run(main()) == ["a", "b", "c"]
    (found,) = recorded(store)
    assert found.output == ["a", "b", "c"]
    assert [s.action for s in found.steps] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"value": -1.0}, "thumb"),
        ({"value": 3.5}, "rating"),
        ({"value": 1.0, "kind": "rating"}, "rating"),
        ({"correction": "noon"}, "correction"),
        ({"correction": [{"action": "click"}], "kind": "demonstration"}, "demonstration"),
        ({"correction": {"chosen": "a", "rejected": "b"}, "kind": "preference"}, "preference"),
        ({"comment": "hm"}, "comment"),
    ],
)
def test_feedback_of_each_kind_is_kept_at_each_level(store: Store, given: dict[str, Any], kind: str) -> None:
    for whom in ({"run": "r"}, {"run": "r", "step": "2"}, {"session": "s"}):
        feedback(**whom, **given, store=store)
    flush()
    rows = store.database.rows("SELECT level, run, step, session, kind FROM labels ORDER BY level")
    assert rows == [
        ("session", "", None, "s", kind),
        ("step", "r", "2", None, kind),
        ("trajectory", "r", None, None, kind),
    ]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"value": 1.0}, "either a run or a session"),
        ({"run": "r", "session": "s", "value": 1.0}, "either a run or a session"),
        ({"session": "s", "step": "1", "value": 1.0}, "belongs to a run"),
        ({"run": "r"}, "no value"),
        ({"run": "r", "value": 0.5, "kind": "thumb"}, "1 or -1"),
        ({"run": "r", "correction": "x", "kind": "preference"}, "chosen"),
    ],
)
def test_feedback_that_could_not_be_used_is_refused(store: Store, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        feedback(**given, store=store)


def test_feedback_refers_to_the_run_whatever_ran_meanwhile(store: Store) -> None:
    @trace(store)
    def agent(question: str) -> str:
        return question

    with run(session="s1", subject="ann") as first:
        agent("one")
        agent("two")
    with run() as second:
        agent("three")
    agent("no run")
    feedback(first.id, 1.0, "thumbs up")
    feedback(second, correction={"answer": "four"})
    one, two, three, four = recorded(store)
    assert one.id == first.id != two.id
    assert [each.meta.get("run") for each in (one, two, three, four)] == [first.id, first.id, second.id, None]
    assert (one.session, one.subject) == ("s1", "ann")
    assert one.feedback == two.feedback
    assert (one.feedback[0].value, one.feedback[0].comment) == (1.0, "thumbs up")
    assert (three.feedback[0].correction, three.feedback[0].kind) == ({"answer": "four"}, "correction")
    assert four.feedback == ()


def test_a_thread_pool_keeps_steps_apart_with_propagate_and_loses_them_without(store: Store) -> None:
    @step
    def look(word: str) -> str:
        return word

    with ThreadPoolExecutor(4) as plain:
        pool = propagate(plain)

        @trace(store)
        def agent(question: str) -> None:
            pool.submit(look, question + "1").result()
            assert list(pool.map(look, [question + "2"])) == [question + "2"]
            plain.submit(propagate(look), question + "3").result()
            plain.submit(look, "lost").result()

        callers = [threading.Thread(target=agent, args=(f"q{n}-",)) for n in range(5)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    found = recorded(store)
    assert len(found) == 5
    for each in found:
        assert [s.action for s in each.steps] == [each.task.instruction + n for n in "123"]


def test_collecting_takes_calls_and_loose_steps_instead_of_the_store(store: Store) -> None:
    @step
    def look(word: str) -> list[str]:
        return [word]

    @trace(store)
    def agent(question: str) -> list[str]:
        return look(question)

    with collecting() as records:
        agent("in")
        assert isinstance(records[0], Trajectory)
        with step("outer"):
            look("loose")
    call, outer, loose = records
    assert isinstance(call, Trajectory)
    assert isinstance(outer, Step)
    assert isinstance(loose, Step)
    assert (call.output, call.steps[0].action) == (["in"], ["in"])
    assert (loose.action, loose.parent, outer.id) == (["loose"], "0", "0")
    look("outside")
    agent("out")
    assert [each.task.instruction for each in recorded(store)] == ["out"]


def test_collecting_keeps_concurrent_rollouts_apart(store: Store) -> None:
    @trace(store)
    async def agent(question: str) -> str:
        await asyncio.sleep(0.001)
        return question

    async def rollout(question: str) -> list[Any]:
        with collecting() as records:
            await agent(question)
            await agent(question)
        return records

    async def main() -> list[list[Any]]:
        return list(await asyncio.gather(*(rollout(f"q{n}") for n in range(5))))

    for number, records in enumerate(asyncio.run(main())):
        assert [each.output for each in records] == [f"q{number}"] * 2
