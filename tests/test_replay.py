"""Recorded runs run again: the world is not touched, divergence is counted, fidelity is measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import whet

from whet import Outcome, Score, Store, propagate, step, trace
from whet.errors import InputError, ModelError
from whet.judge.replay import again, fidelity, runs_of
from whet.record.tracing import Diverged, Replay, ReplayedError, collecting, flush
from whet.record.tracing.tool_calls import tool_calls
from whet.types import Failure, Fault, Step, Task, Trajectory


class World:
    """Flights that can be looked up and booked; it counts how often it was touched."""

    def __init__(self) -> None:
        self.seats = {"Lisbon": 2, "Oslo": 0}
        self.touched = 0

        @step(kind="tool", effect="read")
        def search(city: str) -> dict[str, Any]:
            self.touched += 1
            if city == "Atlantis":
                raise KeyError(city)
            return {"city": city, "seats": self.seats.get(city, 0)}

        @step(kind="tool", effect="write")
        async def book(city: str, seats: int) -> str:
            self.touched += 1
            self.seats[city] -= seats
            return f"{seats} in {city}, {self.seats[city]} left"

        @step(kind="tool")
        def notify(text: str) -> str:
            self.touched += 1
            return "sent"

        self.search, self.book, self.notify = search, book, notify


def recorded(store: Store, agent: Callable[..., Any], *questions: str) -> list[Trajectory]:
    traced = trace(store)(agent)
    for question in questions:
        try:
            value = traced(question)
            if asyncio.iscoroutine(value):
                asyncio.run(value)
        except KeyError:
            pass
    flush()
    return list(store.trajectories())


def booking(world: World) -> Callable[[str], Any]:
    async def agent(question: str) -> str:
        found = world.search(question)
        if not found["seats"]:
            return "full"
        first = await world.book(question, 1)
        second = await world.book(question, 1)
        return f"{first}; {second}"

    return agent


def test_tools_answer_from_the_record_in_order_and_the_world_is_not_touched() -> None:
    world = World()
    with Store(":memory:") as store:
        runs = recorded(store, booking(world), "Lisbon", "Oslo")
        touched = world.touched
        done = [asyncio.run(again(booking(world), run)) for run in runs]
    assert world.touched == touched, "a replay called a tool"
    assert [one.again.output for one in done] == [run.output for run in runs]
    assert done[0].again.output == "1 in Lisbon, 1 left; 1 in Lisbon, 0 left"
    assert done[0].counts.exact == 3
    assert [one.name.rsplit(".", 1)[-1] for one in done[0].again.steps] == ["search", "book", "book"]


def test_a_recorded_failure_is_raised_again_as_what_it_was() -> None:
    world = World()
    agent = booking(world)
    with Store(":memory:") as store:
        (run,) = recorded(store, agent, "Atlantis")
        done = asyncio.run(again(agent, run))
    assert run.outcome is done.again.outcome is Outcome.FAILURE
    assert done.again.error is not None
    assert done.again.error.type == "KeyError"


@pytest.mark.parametrize("kind", [UnicodeDecodeError, UnicodeEncodeError, ValueError])
def test_an_exception_that_is_not_made_of_a_text_is_raised_again_with_its_own(kind: type[Exception]) -> None:
    text = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
    failed = Step(kind="tool", name="read", observation="x", error=Failure(Fault.TOOL, kind.__name__, text))
    run = Trajectory(task=Task(instruction="x"), steps=[failed])
    with Replay(run) as replay, pytest.raises(kind) as caught:
        replay.answer("read", "x", "read")
    assert (str(caught.value), type(caught.value).__name__) == (text, kind.__name__)


def test_a_group_of_exceptions_is_raised_again_by_its_name() -> None:
    failed = Step(
        kind="tool", name="read", observation="x", error=Failure(Fault.TOOL, "ExceptionGroup", "two (2)")
    )
    run = Trajectory(task=Task(instruction="x"), steps=[failed])
    with Replay(run) as replay, pytest.raises(ReplayedError, match="ExceptionGroup: two"):
        replay.answer("read", "x", "read")


def test_an_exception_that_python_does_not_know_keeps_its_name() -> None:
    failed = Step(kind="tool", name="search", observation="x", error=Failure(Fault.TOOL, "Timeout", "slow"))
    run = Trajectory(task=Task(instruction="x"), steps=[failed])
    with Replay(run) as replay, pytest.raises(ReplayedError, match="Timeout: slow"):
        replay.answer("search", "x", "read")


@pytest.mark.parametrize("swallow", [False, True])
def test_a_write_that_was_not_recorded_never_runs_and_the_run_is_left_out(swallow: bool) -> None:
    world = World()

    async def other(question: str) -> str:
        world.search(question)
        try:
            return str(await world.book(question, 2))
        except Exception:
            if not swallow:
                raise
            return "could not book"

    with Store(":memory:") as store:
        (run,) = recorded(store, booking(world), "Lisbon")
        touched, seats = world.touched, dict(world.seats)
        done = asyncio.run(again(other, run, divergence="nearest"))
    assert (world.touched, world.seats) == (touched, seats)
    assert done.again.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert done.counts.diverged == ['book({"city":"Lisbon","seats":2})']
    assert done.counts.unused == 2


def test_a_tool_without_a_declared_effect_counts_as_a_write() -> None:
    world = World()
    with Store(":memory:") as store:
        (run,) = recorded(store, lambda question: world.notify(question), "hello")
        touched = world.touched
        done = asyncio.run(again(lambda question: world.notify("hello you"), run, divergence="nearest"))
        twice = asyncio.run(again(lambda question: world.notify("hello") + world.notify("hello"), run))
    assert world.touched == touched
    assert not done.faithful
    assert not twice.faithful, "a write was repeated that happened once"


def test_a_read_may_be_repeated_and_be_answered_by_the_nearest() -> None:
    steps = [
        Step(kind="tool", name="find", observation={"words": "move to Portland", "top": 3}, action=["m1"]),
        Step(kind="tool", name="find", observation={"words": "gas contract", "top": 3}, action=["m2"]),
    ]
    run = Trajectory(task=Task(instruction="q"), steps=steps)
    with Replay(run, divergence="nearest") as replay:
        assert replay.answer("find", {"words": "gas contract", "top": 3}, "read") == ["m2"]
        assert replay.answer("find", {"words": "gas contract", "top": 3}, "read") == ["m2"]
        assert replay.answer("find", {"words": "the gas contract", "top": 3}, "read") == ["m2"]
        assert replay.answer("find", {"words": "Portland move", "top": 5}, "read") == ["m1"]
        with pytest.raises(Diverged, match="was not recorded"):
            replay.answer("fetch", "m1", "read")
    assert (replay.counts.exact, replay.counts.nearest, replay.counts.unused) == (2, 2, 1)


def test_a_read_that_was_not_recorded_may_run_for_real_and_a_write_never_does() -> None:
    ran: list[str] = []

    @step(kind="tool", effect="read")
    def find(words: str) -> str:
        ran.append(words)
        return f"found {words}"

    @step(kind="tool", effect="read")
    async def fetch(id: str) -> str:
        ran.append(id)
        return f"fetched {id}"

    @step(kind="tool", effect="idempotent")
    def label(id: str) -> None:
        ran.append(f"labelled {id}")

    @step(kind="tool")
    def send(text: str) -> None:
        ran.append(f"sent {text}")

    recorded = Step(kind="tool", name="find", observation="rent", action="from the record")
    run = Trajectory(task=Task(instruction="q"), steps=[recorded])
    with Replay(run, divergence="live") as replay:
        assert [find("rent"), find("gas"), asyncio.run(fetch("m1"))] == [
            "from the record",
            "found gas",
            "fetched m1",
        ]
        for write in (label, send):
            with pytest.raises(Diverged, match="was not recorded"):
                write("m1")
    assert ran == ["gas", "m1"]
    assert (replay.counts.exact, replay.counts.live, len(replay.counts.diverged)) == (1, 2, 2)


def test_a_simulator_answers_what_was_not_recorded() -> None:
    run = Trajectory(task=Task(instruction="q"))
    with Replay(run, divergence=lambda tool, given: {"tool": tool, "given": given}) as replay:
        assert replay.answer("agent.search", "x", None) == {"tool": "search", "given": "x"}
    assert replay.counts.simulated == 1
    assert replay.faithful


def test_concurrent_replays_do_not_mix() -> None:
    world = World()
    world.seats = {f"city{number}": number for number in range(30)}

    async def agent(question: str) -> int:
        await asyncio.sleep(0)
        first = world.search(question)["seats"]
        await asyncio.sleep(0)
        return int(first + world.search(question)["seats"])

    with Store(":memory:") as store:
        runs = recorded(store, agent, *world.seats)
        found = asyncio.run(fidelity(agent, runs, concurrency=16))
    assert (found.runs, found.compared, found.equal, found.rate) == (30, 30, 30, 1.0)
    assert found.interval[0] > 0.85


def test_fidelity_names_the_runs_whose_verdict_changed_and_leaves_out_what_diverged() -> None:
    world = World()
    world.seats = {"Lisbon": 1, "Oslo": 1, "Rome": 0}

    def agent(question: str) -> str:
        return "free" if world.search(question)["seats"] else "full"

    def changed(question: str) -> str:
        if question == "Oslo":
            world.search("Bergen")
        return "full"

    def right(trajectory: Trajectory) -> Score | None:
        return Score("right", float(trajectory.output == "free"))

    with Store(":memory:") as store:
        runs = recorded(store, agent, "Lisbon", "Oslo", "Rome")
        same = asyncio.run(fidelity(agent, runs, rewards=[right]))
        found = asyncio.run(fidelity(changed, runs, rewards=[right]))
        unjudged = asyncio.run(fidelity(agent, runs, rewards=[lambda trajectory: None]))
    assert (same.rate, same.diverged, same.exact) == (1.0, 0, 3)
    assert (found.compared, found.equal, found.diverged) == (2, 1, 1)
    assert found.differing == (runs[0].id,)
    assert (unjudged.rate, unjudged.unjudged) == (None, 3)


def test_what_kept_a_replay_from_a_verdict_is_told() -> None:
    def agent(question: str) -> str:
        return question

    def unreachable(question: str) -> str:
        raise ModelError("no route to the endpoint")

    with Store(":memory:") as store:
        runs = recorded(store, agent, "Lisbon", "Oslo")
        found = asyncio.run(fidelity(unreachable, runs))
    assert (found.compared, found.unjudged) == (0, 2)
    assert found.broken == {"ModelError: no route to the endpoint": 2}


def test_a_guarded_replay_refuses_tools_in_a_thread_that_it_does_not_reach() -> None:
    world = World()

    def threaded(question: str, carry: bool) -> str:
        out: list[Any] = []
        work = propagate(world.search) if carry else world.search

        def call() -> None:
            try:
                out.append(work(question))
            except Diverged as error:
                out.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return str(out[0])

    with Store(":memory:") as store:
        (run,) = recorded(store, lambda question: str(world.search(question)), "Lisbon")
        touched = world.touched
        lost = asyncio.run(again(lambda question: threaded(question, False), run, guard=True))
        carried = asyncio.run(again(lambda question: threaded(question, True), run, guard=True))
    assert world.touched == touched
    assert "whet.propagate" in lost.again.output
    assert carried.again.output == run.output


def test_a_function_of_several_arguments_gets_them_back() -> None:
    def agent(city: str, seats: int, *, window: bool = False) -> str:
        return f"{city} {seats} {window}"

    with Store(":memory:") as store:
        trace(store)(agent)("Rome", 2, window=True)
        flush()
        (run,) = store.trajectories()
    assert asyncio.run(again(agent, run)).again.output == "Rome 2 True"


def test_runs_of_other_functions_and_rollouts_are_not_this_agents() -> None:
    def run(**meta: str) -> Trajectory:
        return Trajectory(task=Task(instruction="q"), meta=meta)

    def answer(question: str) -> str:
        return question

    mine, captured = run(function="Shop.answer"), run(source="gateway")
    other, rollout_ = run(function="Shop.rank"), run()
    assert runs_of(answer, [mine, captured, other, rollout_]) == [mine, captured]
    assert runs_of(answer, [other]) == [other], "it may have been traced under another name"


def one_of_each(ask: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Tools that take their argument in every way that Python has."""

    @step(kind="tool")
    def named(city: str) -> str:
        return str(ask(city))

    @step(kind="tool")
    def only_by_place(city: str, /, **more: str) -> str:
        return str(ask(city))

    @step(kind="tool")
    def any_number(*cities: str) -> str:
        return str(ask(*cities))

    @step(kind="tool")
    def by_keyword(**cities: str) -> str:
        return str(ask(*cities.values()))

    return [named, only_by_place, any_number, by_keyword]


def test_a_tool_is_recorded_with_the_names_of_its_arguments_and_old_recordings_replay() -> None:
    def tour(tools: list[Callable[..., Any]]) -> list[str]:
        named, only_by_place, any_number, by_keyword = tools
        return [
            *(named("Oslo"), named(city="Rome"), only_by_place("Oslo"), only_by_place("Oslo", city="Rome")),
            *(any_number("Oslo"), any_number("Oslo", "Rome"), any_number(), by_keyword(to="Oslo")),
        ]

    def never(*_cities: str) -> str:
        raise AssertionError("a replay calls no tool")

    with collecting() as records:
        said = trace(tour)(one_of_each(lambda *cities: "+".join(cities)))
    (run,) = records
    assert isinstance(run, Trajectory)
    assert [each.observation for each in run.steps] == [
        *({"city": "Oslo"}, {"city": "Rome"}, {"city": "Oslo"}, {"args[0]": "Oslo", "city": "Rome"}),
        *({"args[0]": "Oslo"}, {"args[0]": "Oslo", "args[1]": "Rome"}, {}, {"to": "Oslo"}),
    ]
    lone = {0: "Oslo", 2: "Oslo", 4: "Oslo"}  # as it was recorded before
    old = [
        replace(each, observation=lone.get(place, each.observation)) for place, each in enumerate(run.steps)
    ]
    for recording in (run, replace(run, steps=tuple(old))):
        assert [list(each.arguments.values()) for each in tool_calls(run)][:2] == [["Oslo"], ["Rome"]]
        assert all(each.has({"city": "Oslo"}) for each in tool_calls(recording)[:1])
        with Replay(recording) as replay:
            assert tour(one_of_each(never)) == said
        assert replay.faithful
        assert replay.counts.unused == 0


def test_settings_without_a_meaning_are_refused() -> None:
    run = Trajectory(task=Task(instruction="q"))
    with pytest.raises(InputError, match="exclude, nearest"):
        Replay(run, divergence="guess")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="read, idempotent, write"):
        step(kind="tool", effect="delete")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="no recorded run"):
        asyncio.run(fidelity(lambda question: question, []))


AGENT = """
from pathlib import Path
import whet

@whet.step(kind="tool", effect="read")
def lookup(name):
    Path("touched").write_text("yes")
    return {"ann": "Lisbon"}.get(name, "nowhere")

def agent(name):
    return f"{name} is in {lookup(name)}"

def short(trajectory):
    return len(trajectory.output) < 20

def pretended(tool, given):
    return f"somewhere, says {tool} of {given}"
"""


def test_the_command_replays_a_store_and_says_how_faithful_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(AGENT)
    record = "import whet, shop; traced = whet.trace('runs.db')(shop.agent); traced('ann'); traced('bob')"
    subprocess.run([sys.executable, "-c", record], cwd=tmp_path, check=True, timeout=300)
    (tmp_path / "touched").unlink()
    words = ["replay", "shop:agent", "--store", "runs.db"]

    def replayed(*more: str) -> subprocess.CompletedProcess[str]:
        return whet(*words, *more, folder=tmp_path)

    said = replayed()
    assert said.returncode == 0, said.stderr
    assert "recorded one in 2 of 2: 100.0%" in said.stdout
    found = json.loads(replayed("--json", "--reward", "shop:short").stdout)
    assert (found["rate"], found["exact"], found["diverged"]) == (1.0, 2, 0)
    assert not (tmp_path / "touched").exists()
    (tmp_path / "shop.py").write_text(AGENT.replace("lookup(name)}", "lookup(name.title())}"))
    assert json.loads(replayed("--json").stdout)["diverged"] == 2
    assert not (tmp_path / "touched").exists()
    found = json.loads(replayed("--json", "--live").stdout)
    assert (found["live"], found["diverged"], found["compared"]) == (2, 0, 2)
    assert (tmp_path / "touched").exists(), "the read ran for real"
    (tmp_path / "touched").unlink()
    found = json.loads(replayed("--json", "--simulator", "shop:pretended").stdout)
    assert (found["simulated"], found["live"], found["diverged"], found["compared"]) == (2, 0, 0, 2)
    assert not (tmp_path / "touched").exists()
    two = replayed("--live", "--simulator", "shop:pretended")
    assert two.returncode == 2
    assert "--simulator" in two.stderr
    gone = replayed("--run", "nobody")
    assert gone.returncode == 2
    assert "nobody" in gone.stderr
    wrong = replayed("--reward", "shop:nothing")
    assert wrong.returncode == 2
    assert "shop:nothing" in wrong.stderr
