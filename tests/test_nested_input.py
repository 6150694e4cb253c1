"""Nested and cyclic input is refused with the reason, or shown as what it is; nothing raises into a traced program."""

from __future__ import annotations

import json
from typing import Any

import pytest
from otlp_spans import agent, decoded, kinds, one, only

from whet.errors import InputError
from whet.record.store import Store
from whet.record.tracing import collecting, dropped, flush, step, trace
from whet.record.tracing.content import content
from whet.serve.http import parse
from whet.types import Step, Task, Trajectory


def nested(depth: int, kind: type) -> Any:
    """A list of lists, or a dictionary of dictionaries."""
    value: Any = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


def cyclic() -> dict[str, Any]:
    around: dict[str, Any] = {"name": "a", "list": [1]}
    around["self"] = around
    around["list"].append(around)
    return around


def test_a_traced_function_given_a_cycle_runs_and_its_record_says_where_the_cycle_closes() -> None:
    with Store(":memory:") as store:

        @trace(store)
        def function(value: Any) -> Any:
            return stepped(value)

        @step(kind="tool")
        def stepped(value: Any) -> Any:
            return value

        around = cyclic()
        assert function(around) is around
        flush()
        (trajectory,) = store.trajectories()
    shown = {"name": "a", "list": [1, {"$cycle": 2}], "self": {"$cycle": 1}}
    assert trajectory.output == shown
    assert json.loads(trajectory.task.instruction) == shown
    assert trajectory.steps[0].observation == {"value": shown}
    assert trajectory.error is None


@pytest.mark.parametrize("kind", [list, dict])
def test_arguments_ten_thousand_deep_are_kept_to_a_depth_and_said_to_go_on(kind: type) -> None:
    before = dropped()
    with Store(":memory:") as store:

        @trace(store)
        def function(value: Any) -> int:
            return 1

        assert function(nested(10_000, kind)) == 1
        flush()
        (trajectory,) = store.trajectories()
    assert dropped() == before
    assert json.loads(trajectory.task.instruction) is not None
    assert trajectory.task.instruction.endswith(
        f'{{"$deeper":1,"$type":"{kind.__name__}"}}' + "]}"[kind is dict] * 21
    )


def test_what_is_collected_at_once_is_shown_alike() -> None:
    with collecting() as records:

        @trace
        def function(value: Any) -> Any:
            return value

        function(cyclic())
    (trajectory,) = records
    assert isinstance(trajectory, Trajectory)
    assert trajectory.output == {"name": "a", "list": [1, {"$cycle": 2}], "self": {"$cycle": 1}}


def test_a_container_is_recorded_as_it_was_at_the_call_whatever_becomes_of_it() -> None:
    with Store(":memory:") as store:

        @trace(store)
        def function(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
            messages[0]["content"] = "changed"
            messages.append({"role": "assistant", "content": {"deep": [1, (2, 3)]}})
            return messages

        messages: list[dict[str, Any]] = [{"role": "user", "content": "hello", "parts": [{"n": 1.5}]}]
        returned = function(messages)
        returned[1]["content"]["deep"].clear()
        flush()
        (trajectory,) = store.trajectories()
    assert json.loads(trajectory.task.instruction) == [
        {"role": "user", "content": "hello", "parts": [{"n": 1.5}]}
    ]
    assert trajectory.output[1] == {"role": "assistant", "content": {"deep": [1, [2, 3]]}}


@pytest.mark.parametrize("value", [nested(100_000, list), nested(100_000, dict), cyclic()])
def test_a_trajectory_that_nests_too_deeply_is_refused_at_the_door_and_the_record_goes_on(value: Any) -> None:
    with Store(":memory:") as store:
        with pytest.raises(InputError, match=r"nest|depth|deep|recursion"):
            store.put(Trajectory(task=Task(instruction="t"), steps=(Step(observation=value),)))
        store.put(Trajectory(task=Task(instruction="next")))
        assert [trajectory.task.instruction for trajectory in store.trajectories()] == ["next"]


@pytest.mark.parametrize("depth", [200, 20_000])
def test_a_native_trajectory_posted_with_deep_json_is_refused_in_words(depth: int) -> None:
    body = b'{"trajectories": [{"steps": [{"observation": ' + b"[" * depth + b"]" * depth + b"}]}]}"
    with pytest.raises(InputError, match=r"nested deeper than|nested too deeply"):
        parse(body, dict[str, Any])


def test_spans_that_are_each_other_s_parents_are_read_each_once() -> None:
    spans = decoded(
        agent("a", parent="c"),
        one(
            "b",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "b"},
            parent="a",
            at=0.1,
            lasts=0.5,
        ),
        agent("c", parent="b", at=0.2, lasts=0.2),
        agent("alone", parent="alone", at=3),
    )
    read = kinds(only(spans))
    assert sorted((kind, name) for kind, name, _ in read) == [
        ("agent", "a"),
        ("agent", "alone"),
        ("agent", "c"),
        ("tool", "b"),
    ]
    parents = {name: parent for _, name, parent in read}
    assert list(parents.values()).count(None) == 2  # each circle is cut once
    assert parents["alone"] is None


@pytest.mark.parametrize(
    ("written", "value"), [(1e308, 1e308), (-1.797e308, -1.797e308), (5, 5.0), (10**400, None)]
)
def test_a_double_is_read_whatever_its_size(written: Any, value: Any) -> None:
    span = one("a")
    span["attributes"] = [{"key": "score", "value": {"doubleValue": written}}]
    (decoded_span,) = decoded(span)
    assert content(decoded_span).attributes["score"] == value
