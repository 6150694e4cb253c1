"""What a person sees of recorded runs: conversations, filters, and new runs as they come."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import press_ctrl_c, until

from whet.cli import app
from whet.cli.conversation import RunFilter
from whet.learn.evolution.live import LiveLine
from whet.models.budget import Meter
from whet.record.store import Store
from whet.record.tracing.told_tools import with_told_tools
from whet.record.transcript import separate_questions, turns
from whet.types import Failure, Fault, Feedback, Json, Outcome, Step, Task, Trajectory, Usage


def call(messages: list[Json], action: Json, **more: object) -> Step:
    return Step(
        kind="llm", observation=[{"role": "system", "text": "Be brief."}, *messages], action=action, **more
    )  # type: ignore[arg-type]


def user(text: str) -> Json:
    return {"role": "user", "text": text}


ASK = {"role": "assistant", "tool_calls": [{"id": "1", "name": "weather", "arguments": {"city": "Oslo"}}]}
ANSWERED = {"role": "tool", "tool_call_id": "1", "text": "rain"}
SAID = {"role": "assistant", "text": "It rains."}


def said(run: Trajectory) -> list[str]:
    return [f"{turn.who}: {turn.text}" for turn in turns(run)]


def test_a_conversation_has_every_turn_once_and_in_order() -> None:
    steps = [
        call([user("Weather in Oslo?")], ASK),
        call([user("Weather in Oslo?"), ASK, ANSWERED], SAID),
        call([user("Weather in Oslo?"), ASK, ANSWERED, SAID, user("And tomorrow?")], "Sun."),
    ]
    run = Trajectory(task=Task(instruction="Weather in Oslo?"), steps=steps, output="Sun.")
    assert said(run) == [
        "user: Weather in Oslo?",
        'tool: weather({"city":"Oslo"}) → rain',
        "agent: It rains.",
        "user: And tomorrow?",
        "agent: Sun.",
    ]
    assert separate_questions(run) == 1


def test_a_tool_that_the_gateway_was_told_of_is_one_turn() -> None:
    told = with_told_tools(
        [
            call([user("Weather in Oslo?")], ASK, id="a", info={"status": 200}),
            call([user("Weather in Oslo?"), ASK, ANSWERED], SAID, id="b", info={"status": 200}),
        ]
    )
    assert [step.kind for step in told] == ["llm", "tool", "llm"]
    run = Trajectory(task=Task(instruction="Weather in Oslo?"), steps=told, output="It rains.")
    assert said(run) == [
        "user: Weather in Oslo?",
        'tool: weather({"city":"Oslo"}) → rain',
        "agent: It rains.",
    ]


def test_failing_runs_are_those_that_the_agent_did_not_bring_to_a_good_end() -> None:
    failing = RunFilter(failing=True)
    kept = {
        outcome for outcome in Outcome if failing(Trajectory(task=Task(instruction="?"), outcome=outcome))
    }
    assert kept == set(Outcome) - {Outcome.SUCCESS, Outcome.UNKNOWN, Outcome.INFRASTRUCTURE_ERROR}
    outage = Failure(Fault.MODEL, "Timeout", "no answer")
    assert failing(Trajectory(task=Task(instruction="?"), outcome=Outcome.INFRASTRUCTURE_ERROR, error=outage))


def test_an_action_that_is_the_answer_is_said_once_whatever_it_earned() -> None:
    steps = [
        Step(observation="Weather?", action="look", reward=0.0),
        Step(observation="rain", action="It rains.", reward=1.0, done=True),
    ]
    run = Trajectory(task=Task(instruction="Weather?"), steps=steps, output="It rains.")
    assert said(run) == ["user: Weather?", "agent: look", "world: rain", "agent: It rains.  (reward 1)"]


def test_a_tool_that_failed_and_one_without_an_answer_are_told_apart() -> None:
    failure = Failure(Fault.TOOL, "ValueError", "no such city")
    failed = Step(kind="tool", name="weather", observation={"city": "Oslo"}, error=failure)
    run = Trajectory(task=Task(instruction="Weather?"), steps=[call([user("Weather?")], ASK), failed])
    assert said(run)[1:] == ['tool: weather({"city":"Oslo"}) → failed: ValueError: no such city']
    alone = Trajectory(task=Task(instruction="Weather?"), steps=[call([user("Weather?")], ASK)], output=ASK)
    assert said(alone)[1:] == ['tool: weather({"city":"Oslo"}) → (no answer is recorded)']


def test_what_a_program_asks_on_its_own_account_is_not_said_by_the_user() -> None:
    steps = [call([user("Context: a, b. Question: where is it?")], "Here.")]
    run = Trajectory(task=Task(instruction="Where is it?"), steps=steps, output="Here.")
    assert said(run) == ["user: Where is it?", "agent: Here."]


def test_questions_that_came_as_one_run_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [call([user(f"Question {number}?")], f"Answer {number}.") for number in range(240)]
    run = Trajectory(id="all", task=Task(instruction="Question 0?"), steps=steps, output="Answer 239.")
    assert separate_questions(run) == 240
    traced = Trajectory(id="traced", task=Task(instruction="x"), steps=steps, meta={"function": "answer"})
    sampled = Trajectory(id="again", task=Task(instruction="x"), steps=[steps[0]] * 5)
    assert [separate_questions(one) for one in (traced, sampled)] == [1, 1]
    with Store(tmp_path / "runs.db") as store:
        store.put(run)
    app(["show", "all", "--store", str(tmp_path / "runs.db")], result_action="return_value")
    out = capsys.readouterr().out
    assert out.count("user: ") == 240
    assert "240 separate conversations came as one run" in out
    assert "@whet.trace" in out


def test_a_conversation_ends_with_thumbs_cost_and_versions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = Usage(prompt_tokens=1200, output_tokens=30, dollars=0.0042, calls=1)
    step = call([user("Where?")], "Here.", usage=usage, info={"model": "small"})
    run = Trajectory(
        id="a", task=Task(instruction="Where?"), steps=[step], output="Here.", versions={"prompt": "4f1"}
    )
    with Store(tmp_path / "runs.db") as store:
        store.put(run)
        store.add_feedback(Feedback(run="a", value=-1.0, kind="thumb", comment="too short"))
    app(["show", "a", "--store", str(tmp_path / "runs.db")], result_action="return_value")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        " person: thumb down, 'too short'",
        "thumb down; 1 model call of small, 1,200 + 30 tokens, $0.0042",
        "ran under prompt 4f1",
    ]


def test_runs_since_a_while_ago_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    with Store(tmp_path / "runs.db") as store:
        for id, age in (("old", 7200), ("new", 60)):
            store.put(Trajectory(id=id, task=Task(instruction="x"), started=now - age))
    listed = ["show", "trajectories", "--store", str(tmp_path / "runs.db"), "--since"]
    app([*listed, "1h"], result_action="return_value")
    out = capsys.readouterr().out
    assert "new" in out
    assert "old" not in out
    app([*listed, "0.5d"], result_action="return_value")
    assert "old" in capsys.readouterr().out


def test_new_runs_are_followed_while_a_server_owns_the_store(tmp_path: Path) -> None:
    path, log = tmp_path / "runs.db", tmp_path / "shown"
    words = [sys.executable, "-m", "whet", "show", "--follow", "--store", str(path)]
    with Store(path, serve=True) as store, log.open("w") as out:
        store.put(Trajectory(id="before", task=Task(instruction="x")))
        follower = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, text=True)
        numbers = iter(range(1000))

        def followed() -> bool:
            # What is put before it looks for the first time counts as there before.
            id = f"run-{next(numbers)}"
            store.put(Trajectory(id=id, task=Task(instruction="Is it?"), output="Yes."))
            time.sleep(0.3)
            return log.stat().st_size > 0

        until(followed)
        busy = Path(f"/proc/{follower.pid}/stat").read_text().split()[13:15]
        time.sleep(1)
        after = Path(f"/proc/{follower.pid}/stat").read_text().split()[13:15]
        press_ctrl_c(follower)
    assert follower.returncode == 0
    shown = log.read_text()
    assert "before" not in shown
    ids = [line.split()[0] for line in shown.splitlines() if line.startswith("run-")]
    assert ids
    assert len(ids) == len(set(ids))
    assert "agent: Yes." in shown
    assert sum(map(int, after)) - sum(map(int, busy)) < 30, "hundredths of a second while nothing came"


def test_without_a_terminal_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter()
    with LiveLine(meter, calls=200) as line:
        line._drawn -= 10  # as if nothing had been printed for a while
        for number in range(1000):
            meter.settle(calls=1, dollars=0.001)
            line(
                "prompt 3 on trial",
                number,
                1000,
                score=0.5,
                best=0.5,
                candidate="Be\nbrief.",
                runs=50,
                most=100,
            )
    # One while it goes on, and the last one, without which a search of a second would have shown nothing.
    shown, last = capsys.readouterr().err.splitlines()
    assert shown.startswith("best 0.5 · 1 of 200 model calls · $0.0010 · 0:00, at most 0:0")
    assert "prompt 3 on trial “Be brief.”" in shown
    assert last.startswith("best 0.5 · 1000 of 200 model calls")
