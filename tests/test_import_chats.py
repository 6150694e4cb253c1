"""Chats of one's own log become runs with their tools, people's opinions and everything else that they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import whet
from test_import_products import bring, runs_of

from whet.record.exchange.formats import trajectory_to_json
from whet.record.store import Store
from whet.types import Trajectory

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
TOOLED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it warm in Oslo?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "-4 degrees"},
    {"role": "assistant", "content": "No, -4 degrees."},
]
ANTHROPIC = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Is it warm in Oslo?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "-4 degrees"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "No, -4 degrees."}]},
    ],
}
SWE_AGENT = {
    "environment": "swe_main",
    "trajectory": [{"action": "weather Oslo", "observation": "-4 degrees"}],
    "history": [
        TOOLED[0],
        TOOLED[1],
        {
            "role": "assistant",
            "content": "",
            "thought": "look",
            "action": "weather Oslo",
            "tool_calls": [CALL],
        },
        {"role": "tool", "content": "-4 degrees", "tool_call_ids": ["c1"], "agent": "main"},
        TOOLED[4],
    ],
    "info": {"exit_status": "submitted", "model_stats": {"instance_cost": 0.3}},
}
LOGGED = {
    "request": {"model": "small", "messages": TOOLED[:4], "tools": [{"type": "function"}]},
    "response": {
        "id": "chatcmpl-1",
        "model": "small-2026",
        "choices": [{"message": {"role": "assistant", "content": "No, -4 degrees."}}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 7},
    },
}


def written(folder: Path, *rows: Any, name: str = "chats.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def only(store: Path) -> Trajectory:
    (run,) = runs_of(store).values()
    return run


@pytest.mark.parametrize(
    ("row", "suffix"),
    [
        ({"messages": TOOLED}, ".jsonl"),
        ({"messages": json.dumps(TOOLED)}, ".jsonl"),
        ({"traj": TOOLED}, ".json"),
        (ANTHROPIC, ".jsonl"),
        (SWE_AGENT, ".traj"),
        (LOGGED, ".jsonl"),
    ],
    ids=["openai", "as text", "tau-bench", "anthropic", "swe-agent", "a logged call"],
)
def test_a_chat_with_a_tool_is_the_run_that_the_gateway_would_have_recorded(
    row: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    written(tmp_path, row, name=f"chats{suffix}")
    assert bring("chats", tmp_path, store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    assert run.task.instruction == "Is it warm in Oslo?"
    assert run.output in ("No, -4 degrees.", {"role": "assistant", "text": "No, -4 degrees."})
    tools = [step for step in run.steps if step.kind == "tool"]
    calls = [step for step in run.steps if step.kind == "llm"]
    # Of a logged call the tool was called by one that was not logged.
    assert len(calls) == (1 if row is LOGGED else 2)
    if row is LOGGED:
        assert not tools
    else:
        assert [(step.name, step.observation, step.action) for step in tools] == [
            ("weather", {"city": "Oslo"}, "-4 degrees")
        ]
    assert calls[-1].observation[0] == {"role": "system", "text": "Be brief."}
    assert all(step.latency is None for step in run.steps)
    assert run.seconds is None


def test_a_logged_call_has_its_usage_and_keeps_the_rest_of_its_response(tmp_path: Path) -> None:
    assert bring("chats", written(tmp_path, LOGGED), store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    (call,) = [step for step in run.steps if step.kind == "llm"]
    assert call.usage is not None
    assert (call.usage.prompt_tokens, call.usage.output_tokens) == (40, 7)
    assert run.meta["metadata"]["response"]["id"] == "chatcmpl-1"


@pytest.mark.parametrize(
    "row",
    [
        {
            "messages": [
                {"type": "system", "content": "Be brief."},
                {"type": "human", "content": "Warm?"},
                {
                    "type": "ai",
                    "content": "",
                    "tool_calls": [{"id": "c1", "name": "weather", "args": {"city": "Oslo"}}],
                },
                {"type": "tool", "content": "-4", "tool_call_id": "c1"},
                {"type": "ai", "content": "No."},
            ]
        },
        {
            "messages": [
                {"lc": 1, "type": "constructor", "id": ["langchain", "messages", kind], "kwargs": kwargs}
                for kind, kwargs in (
                    ("SystemMessage", {"content": "Be brief."}),
                    ("HumanMessage", {"content": "Warm?"}),
                    (
                        "AIMessage",
                        {
                            "content": "",
                            "tool_calls": [{"id": "c1", "name": "weather", "args": {"city": "Oslo"}}],
                        },
                    ),
                    ("ToolMessage", {"content": "-4", "tool_call_id": "c1"}),
                    ("AIMessage", {"content": "No."}),
                )
            ]
        },
        {
            "request": {
                "model": "small",
                "instructions": "Be brief.",
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "Warm?"}]},
                    {
                        "type": "function_call",
                        "call_id": "c1",
                        "name": "weather",
                        "arguments": '{"city": "Oslo"}',
                    },
                    {"type": "function_call_output", "call_id": "c1", "output": "-4"},
                ],
            },
            "response": {
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "No."}],
                    }
                ],
                "usage": {"input_tokens": 40, "output_tokens": 7},
            },
        },
        {
            "request": {
                "model": "small",
                "system": "Be brief.",
                "messages": [
                    {"role": "user", "content": "Warm?"},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}}
                        ],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "-4"}],
                    },
                ],
            },
            "response": {
                "role": "assistant",
                "content": [{"type": "text", "text": "No."}],
                "usage": {"input_tokens": 40, "output_tokens": 7},
                "stop_reason": "end_turn",
            },
        },
    ],
    ids=["langchain", "langchain, dumped", "responses", "anthropic's call"],
)
def test_each_api_s_messages_are_read_as_the_gateway_reads_them(row: dict[str, Any], tmp_path: Path) -> None:
    assert bring("chats", written(tmp_path, row), store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    last = [step for step in run.steps if step.kind == "llm"][-1]
    call = {"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
    assert [*last.observation, last.action] == [
        {"role": "system", "text": "Be brief."},
        {"role": "user", "text": "Warm?"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "text": "-4"},
        {"role": "assistant", "text": "No."},
    ]
    if "request" in row:
        assert last.usage is not None
        assert (last.usage.prompt_tokens, last.usage.output_tokens) == (40, 7)


def test_a_completion_of_several_messages_is_as_many_calls(tmp_path: Path) -> None:
    """As whet export trl-kto writes a run with tools."""
    row = {"prompt": TOOLED[:2], "completion": TOOLED[2:], "label": False}
    assert bring("chats", written(tmp_path, row), store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    assert [step.kind for step in run.steps] == ["llm", "tool", "llm"]
    assert run.scores["label"].value == 0.0


def test_a_logged_answer_that_calls_a_tool_keeps_the_call(tmp_path: Path) -> None:
    item = {"type": "function_call", "call_id": "x", "name": "weather", "arguments": '{"city": "Oslo"}'}
    row = {"request": {"model": "small", "input": "Warm?"}, "response": {"output": [item]}}
    assert bring("chats", written(tmp_path, row), store=tmp_path / "runs.db") == 0
    (step,) = only(tmp_path / "runs.db").steps
    assert step.action["tool_calls"] == [{"id": "x", "name": "weather", "arguments": {"city": "Oslo"}}]


def test_sharegpt_and_toolbench_conversations_are_read_by_who_speaks(tmp_path: Path) -> None:
    row = {
        "id": "1",
        "conversations": [
            {"from": "system", "value": "Be brief."},
            {"from": "human", "value": "2 + 2?"},
            {"from": "gpt", "value": "Action: add"},
            {"from": "function", "value": "4"},
            {"from": "gpt", "value": "4"},
        ],
    }
    assert bring("chats", written(tmp_path, row), store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    assert run.task.instruction == "2 + 2?"
    assert [turn["role"] for turn in run.steps[-1].observation] == ["system", "user", "assistant", "tool"]


def test_a_log_of_questions_becomes_thumbs_comments_and_right_answers(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(
        "question,answer,stars,user,comment,expected,plan,date\n"
        "Is breakfast included?,Yes.,1,ann,until when?,Until ten.,gold,2026-11-01T10:00:00\n"
        "When can I check in?,From 15:00.,5,bob,,,basic,2026-11-02\n"
        "Is there a pool?,,3,cleo,,,,\n"
    )
    store = tmp_path / "runs.db"
    # A row without an answer is told, and costs no other one.
    assert bring("chats", log, store=store, thumbs=("stars>=4",)) == 1
    runs = runs_of(store)
    assert sorted(runs) == ["ann", "bob"]
    ann = {note.kind: note for note in runs["ann"].feedback}
    assert (ann["thumb"].value, ann["thumb"].comment) == (-1.0, "until when?")
    assert ann["correction"].correction == "Until ten."
    assert [note.value for note in runs["bob"].feedback] == [1.0]
    assert runs["ann"].meta["metadata"]["plan"] == "gold"
    assert runs["ann"].started == pytest.approx(1793527200.0)
    assert runs["ann"].steps[0].action["text"] == "Yes."


def test_the_same_chat_twice_is_two_runs_and_a_later_thumb_is_on_the_same_one(tmp_path: Path) -> None:
    chat = {"question": "2 + 2?", "answer": "4"}
    store = tmp_path / "runs.db"
    assert bring("chats", written(tmp_path, chat, chat), store=store) == 0
    before = set(runs_of(store))
    assert len(before) == 2
    rated = written(tmp_path, chat, {**chat, "thumb": "down"}, name="rated.jsonl")
    assert bring("chats", rated, store=store) == 0
    assert set(runs_of(store)) == before
    assert [[note.value for note in run.feedback] for run in runs_of(store).values()].count([-1.0]) == 1


def test_a_chat_that_does_not_say_when_it_was_outlives_retention(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs.db"
    old = {"question": "Old?", "answer": "Yes.", "timestamp": 1_600_000_000}
    assert bring("chats", written(tmp_path, {"question": "2 + 2?", "answer": "4"}, old), store=store) == 0
    assert command(capsys, "retain", "--store", store, "--days", "30").returncode == 0
    assert only(store).task.instruction == "2 + 2?"


def test_an_answer_may_be_an_object_and_an_error_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    structured = {"question": "Where?", "answer": {"city": "Oslo"}, "user": "ann"}
    failed = {"question": "Where?", "response": {"error": {"message": "rate limit"}}}
    nobody = {"user": "ann", "output": "Hello."}
    assert bring("chats", written(tmp_path, structured, failed, nobody), store=tmp_path / "runs.db") == 1
    run = only(tmp_path / "runs.db")
    assert (run.subject, run.steps[0].action["text"]) == ("ann", '{"city":"Oslo"}')
    said = capsys.readouterr().err
    assert "line 2: its response is an error" in said
    assert "line 3: no chat: it has neither messages" in said


def test_an_address_is_no_log_and_a_record_beside_the_logs_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = command(capsys, "import", "chats", "http://127.0.0.1:1", "--store", tmp_path / "runs.db")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: chats come from files, not from an address: http://127.0.0.1:1\n",
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    Store(logs / "other.db").close()
    written(logs, {"question": "2 + 2?", "answer": "4"})
    assert bring("chats", logs, store=tmp_path / "runs.db") == 1
    assert only(tmp_path / "runs.db").task.instruction == "2 + 2?"
    assert "other.db: a database, which is not read" in capsys.readouterr().err


def test_a_number_that_no_database_takes_is_kept_as_text(tmp_path: Path) -> None:
    row = {"question": "2 + 2?", "answer": "4", "ticket": 2**70, "n": 2**40}
    assert bring("chats", written(tmp_path, row), store=tmp_path / "runs.db") == 0
    assert only(tmp_path / "runs.db").meta["metadata"] == {"ticket": str(2**70), "n": 2**40}


def test_a_call_whose_id_came_before_is_a_step_of_its_own_also_at_the_end(tmp_path: Path) -> None:
    """Models of OpenAI repeat ids: tau-bench has 45 such runs of 140."""
    again = {**CALL, "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    turns = [
        *TOOLED[:4],
        {"role": "assistant", "content": None, "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "c1", "content": "22 degrees"},
        {"role": "user", "content": "thanks"},
    ]
    assert bring("chats", written(tmp_path, {"messages": turns}), store=tmp_path / "runs.db") == 0
    run = only(tmp_path / "runs.db")
    assert [(step.observation, step.action) for step in run.steps if step.kind == "tool"] == [
        ({"city": "Oslo"}, "-4 degrees"),
        ({"city": "Rome"}, "22 degrees"),
    ]
    assert run.meta["metadata"]["after"][-1] == {"role": "user", "text": "thanks"}


def test_a_file_of_chats_given_as_trajectories_says_what_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, {"messages": TOOLED})
    refused = command(capsys, "import", file, "--store", tmp_path / "runs.db")
    assert refused.returncode == 2
    assert "whet import chats" in refused.stderr


def test_real_transcripts_lose_nothing_and_go_on_to_rows_to_train_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """tau-bench's 140 runs of an airline's desk: each message, tool and reward is in the record."""
    file = data / "tau" / "gpt-4o-airline-trajectories.json"
    rows = json.loads(file.read_text())
    store = tmp_path / "runs.db"
    assert bring("chats", file, store=store) == 0
    with Store(store) as opened:
        runs = list(opened.trajectories())
    assert len(runs) == len(rows) == 140
    text = lambda turn: turn.get("text") or ""  # noqa: E731
    for row in rows:
        (run,) = [
            run
            for run in runs
            if (run.meta["metadata"]["task_id"], run.meta["metadata"]["trial"])
            == (row["task_id"], row["trial"])
        ]
        last = [step for step in run.steps if step.kind == "llm"][-1]
        said = [*last.observation, last.action, *run.meta["metadata"].get("after", ())]
        assert [turn["role"] for turn in said] == [turn["role"] for turn in row["traj"]]
        assert [text(turn) for turn in said] == [turn["content"] or "" for turn in row["traj"]]
        asked = [call["function"]["name"] for turn in row["traj"] for call in turn.get("tool_calls") or ()]
        assert [step.name for step in run.steps if step.kind == "tool"] == asked
        assert run.scores["reward"].value == row["reward"]
        assert run.meta["metadata"]["info"] == row["info"]
    # What reads the record reads these runs: which tool is weak, and rows to train on.
    assert "tool book_reservation" in command(capsys, "issues", "--store", store).stdout
    good = tmp_path / "good.jsonl"
    exported = command(capsys, "export", "trl-sft", "--store", store, "--score", "reward", "--output", good)
    assert exported.returncode == 0
    assert len(good.read_text().splitlines()) == sum(row["reward"] == 1.0 for row in rows)


def test_a_talk_with_a_person_is_published_with_all_that_both_said(data: Path, tmp_path: Path) -> None:
    rows = json.loads((data / "tau" / "gpt-4o-airline-trajectories.json").read_text())[:20]
    store = tmp_path / "runs.db"
    assert bring("chats", written(tmp_path, *rows), store=store) == 0
    with Store(store) as opened:
        runs = {run.meta["metadata"]["task_id"]: run for run in opened.trajectories()}
    for row in rows:
        steps = trajectory_to_json(runs[row["task_id"]])["steps"]
        said = [turn for turn in row["traj"] if turn["role"] == "assistant"]
        texts = [turn["content"] for turn in said if turn["content"]]
        calls = [call["function"]["name"] for turn in said for call in turn.get("tool_calls") or ()]
        assert [step["action"] for step in steps if isinstance(step["action"], str)] == texts
        assert [step["action"]["name"] for step in steps if isinstance(step["action"], dict)] == calls
        # What the person, or a tool, replied is seen at the next step; what came after the last action nobody acted on.
        heard = [turn["content"] for turn in row["traj"][2:-1] if turn["role"] in ("user", "tool")]
        assert [step["obs"] for step in steps[1:] if step["obs"] is not None] == heard[-len(heard) :]
        assert [step.get("done", False) for step in steps] == [False] * (len(steps) - 1) + [True]


_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system", "function", "", "Human"]) | _VALUE,
        "from": st.sampled_from(["human", "gpt", "function"]) | _VALUE,
        "content": _VALUE,
        "value": _VALUE,
        "tool_calls": st.lists(st.just(CALL) | _VALUE, max_size=2) | _VALUE,
        "tool_call_id": st.just("c1") | _VALUE,
        "tool_call_ids": _VALUE,
        "timestamp": _VALUE,
    },
)
_NAMES = (
    "id",
    "model",
    "tools",
    "system",
    "user",
    "session_id",
    "timestamp",
    "reward",
    "thumb",
    "feedback",
    "comment",
)
_CHAT = st.fixed_dictionaries(
    {},
    optional={
        "messages": st.lists(_MESSAGE, max_size=5) | _VALUE,
        "conversations": st.lists(_MESSAGE, max_size=5) | _VALUE,
        "request": st.fixed_dictionaries({"messages": st.lists(_MESSAGE, max_size=3)}) | _VALUE,
        "response": st.fixed_dictionaries(
            {"choices": _VALUE | st.lists(st.dictionaries(st.just("message"), _MESSAGE))}
        )
        | _VALUE,
        "question": _VALUE,
        "answer": _VALUE,
        "expected": _VALUE,
        "usage": _VALUE,
        **dict.fromkeys(_NAMES, _VALUE),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chats=st.lists(_CHAT, min_size=1, max_size=6))
def test_whatever_a_log_holds_each_row_is_a_run_or_a_sentence(
    chats: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("chats")
    # As Python writes it: NaN and Infinity are no JSON, and are told by their line.
    file = folder / "chats.jsonl"
    file.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    capsys.readouterr()
    bring("chats", file, store=folder / "runs.db", json=True)
    came = json.loads(capsys.readouterr().out)
    assert came["runs"] + len(came["not_read"]) == len(chats)
    with Store(folder / "runs.db") as opened:
        assert opened.count("trajectories") == came["new_runs"] == came["runs"]
        assert not [run for run in opened.trajectories() if run.meta.get("unread")]


def test_a_table_of_answers_and_thumbs_is_enough_to_improve_a_prompt_by(tmp_path: Path) -> None:
    """Nothing but a log: the plan says what stands behind the proof, and spends nothing."""
    rows = ["question,answer,thumb,user"]
    for number in range(240):
        liked = number % 3 != 0
        answer = f"Please wait, case {number} is looked at." if liked else f"Case {number}: no."
        rows.append(f'Where is parcel {number}?,"{answer}",{"up" if liked else "down"},u{number % 60}')
    (tmp_path / "log.csv").write_text("\n".join(rows))
    (tmp_path / "desk.py").write_text(
        'from openai import OpenAI\n\nPROMPT = "You are the desk of a shop."\n\n\ndef answer(question):\n'
        '    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]\n'
        '    return OpenAI().chat.completions.create(model="m", messages=messages).choices[0].message.content\n'
    )
    assert bring("chats", tmp_path / "log.csv", store=tmp_path / "log.db") == 0
    nowhere = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--dry-run")
    planned = whet("improve", "desk.py", "--store", "log.db", *nowhere, folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert "desk:PROMPT can change" in planned.stdout
    assert "240 recorded runs; 160 thumbs up and 80 down of 60 people" in planned.stdout
    assert re.search(r"behind the gate \d+ questions of \d+ other people", planned.stdout)
