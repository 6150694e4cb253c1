"""Requests answered by calls: by slot everything comes back, nothing wrong is rewarded, unseen names stay unseen."""

import asyncio
import json

import pytest

from whet.errors import EnvError, InputError
from whet.learn.datasets.calls import FunctionCall, functions_of, message_of, problems, same
from whet.record.env import check_env
from whet.worlds.calls import (
    CallEnv,
    CallView,
    InvalidCall,
    as_json,
    call_tasks,
    functions,
    lessons,
    requests,
    view_of,
    wanted,
)
from whet.worlds.calls.synthetic import WORDS
from whet.worlds.calls.values import values_of

TASKS = call_tasks(150, seed=3)


def test_the_same_seed_makes_the_same_requests_with_answers_that_fit_their_tools():
    assert call_tasks(150, seed=3) == TASKS
    assert call_tasks(150, seed=4) != TASKS
    assert {task.meta["kind"] for task in TASKS} == {"none", "simple", "parallel", "several"}
    for task in TASKS:
        offered = functions_of(task.initial_state["tools"])
        assert not [one for call in wanted(task) for one in problems(call, offered)]
    types = {one["type"] for each in functions() for one in each.properties.values()}
    assert types == {"string", "integer", "number", "boolean", "array", "object"}
    assert any("enum" in one for each in functions() for one in each.properties.values())


def test_unseen_functions_share_no_word_with_seen_ones():
    for seen, unseen in zip(WORDS["seen"], WORDS["unseen"], strict=True):
        assert not set(seen) & set(unseen)
    assert not {one.name for one in functions("seen")} & {one.name for one in functions("unseen")}


@pytest.mark.parametrize("names", ["seen", "unseen"])
def test_answers_by_slot_stand_for_the_same_calls(names):
    tasks = call_tasks(150, names=names, seed=7)
    kept = 0
    for task in tasks:
        view = view_of(task)
        said = view.encode(wanted(task))
        if said is not None:
            kept += 1
            assert same(view.decode(said), wanted(task))
    assert kept > 0.95 * len(tasks)


def test_nothing_that_a_policy_reads_names_a_function_a_word_or_a_value():
    shown = {token for task in TASKS for token in view_of(task).opening()}
    words = {word for task in TASKS for word in task.instruction.lower().split()}
    assert shown & words <= {"near", "name", "said"}
    assert not shown & {one.name for one in functions()}


def test_what_points_at_no_slot_is_invalid():
    view = view_of(next(task for task in TASKS if task.meta["kind"] == "simple"))
    for said in (
        [],
        ["call"],
        ["call", "f9"],
        ["p0", "v0"],
        ["call", "f0", "p0"],
        ["call", "f0", "p0", "v13"],
    ):
        with pytest.raises(InvalidCall):
            view.decode(said)


def test_values_are_found_with_their_types():
    text = "Please ask Ada Lovelace for 3, 4.5 and 6 of 'blue moon' on 2025-03-04, paid: yes, at 1,200."
    found = [(one.kind, one.value) for one in values_of(text)]
    assert found == [
        ("name", "Ada Lovelace"),
        ("floats", [3, 4.5, 6]),
        ("text", "blue moon"),
        ("date", "2025-03-04"),
        ("bool", True),
        ("int", 1200),
    ]
    assert [one.value for one in values_of("Find [1, 2] and 'a', 'b' and 'c'")] == [[1, 2], ["a", "b", "c"]]


def test_only_exactly_the_wanted_calls_are_rewarded():
    task = next(task for task in TASKS if task.meta["kind"] == "parallel")
    right = wanted(task)

    def paid(action):
        env = CallEnv()
        env.reset(task, 0)
        return env.step(action)

    assert paid(as_json(right)).reward == paid(message_of(right)).reward == 1.0
    assert paid(as_json(right[::-1])).reward == 1.0
    for wrong in (as_json(right[:1]), as_json([*right, right[0]]), [], "no calls", [{"name": 3}]):
        assert paid(wrong).reward == 0.0
    assert paid([{"name": "nothing", "arguments": {}}]).info["problems"]


def test_the_environment_keeps_its_contract():
    task = TASKS[0]
    asyncio.run(check_env(CallEnv, task, [task.answer]))
    with pytest.raises(EnvError):
        CallEnv().reset(task.__class__(id="x"), 0)


def test_rows_of_a_fine_tuning_file_become_tasks():
    function = {
        "name": "rain",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
    row = {
        "messages": [
            {"role": "user", "content": "Will the city Oslo see rain?"},
            message_of([FunctionCall("rain", {"city": "Oslo"})]),
        ],
        "tools": [{"type": "function", "function": function}],
    }
    (task,) = requests([json.loads(json.dumps(row))])
    assert wanted(task) == [FunctionCall("rain", {"city": "Oslo"})]
    (lesson,) = lessons([task])
    assert lesson.trajectories[0].steps[0].tokens.output_ids
    with pytest.raises(InputError, match="row 2"):
        requests([row, {"messages": row["messages"][:1], "tools": row["tools"]}])
    with pytest.raises(InputError, match="row 1"):
        requests([{"messages": row["messages"]}])


def test_more_functions_than_slots_leave_those_that_the_request_speaks_of():
    offered = functions(count=20)
    view = CallView(f"Please {offered[17].description}", offered)
    assert offered[17] in view.functions
    assert len(view.functions) == 4
