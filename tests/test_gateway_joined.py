"""Inside `whet run`, what a decorator records and what the gateway records of it are one trajectory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import until, whet
from server_world import TOKENS, before_a_model

from whet.errors import StoreError
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.store.batch import Batch
from whet.record.tracing.assemble import Assembler
from whet.record.tracing.dialects import trajectory_id
from whet.serve import Role
from whet.types import Outcome, Score, Span, Step, Task, Trajectory


@pytest.fixture(autouse=True)
def no_store_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHET_STORE", raising=False)


PROGRAM = """
import json, os, sys, urllib.request
import whet

def ask(text):
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}]}
    headers = {"content-type": "application/json", "authorization": "Bearer none"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    answer = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
    return json.load(answer)["choices"][0]["message"]["content"]

@whet.step(kind="tool", effect="read")
def look(what):
    return ask(f"look for {what}")

@whet.trace
def agent(question):
    found = look(question)
    with whet.step("think", kind="llm", observation=question) as now:
        now.action, now.reward = ask(f"think of {found}"), 0.5
    return ask(f"answer {found}")

for question in sys.argv[1:]:
    print(agent(question))
if len(sys.argv) > 2:
    ask("afterwards")
"""


def test_traced_calls_and_their_model_calls_are_one_trajectory_each(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with ScriptedServer("fine", speaks=("chat",)) as upstream:
        words = ["run", "--store", "runs.db", "--upstream", upstream.base_url, "--run-id", "r1", "--"]
        done = whet(*words, sys.executable, "program.py", "one", "two", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / "runs.db") as store:
        *traced, rest = store.trajectories(ids=["r1"])
        assert [each.task.instruction for each in traced] == ["one", "two"]
        for each in traced:
            shown = [(step.kind, step.name, step.parent, step.reward) for step in each.steps]
            first, inside, think, last = each.steps
            assert shown == [
                ("tool", "look", None, None),
                ("llm", inside.name, first.id, None),
                ("llm", "think", None, 0.5),
                ("llm", last.name, None, None),
            ]
            said = [step.observation[-1]["text"] for step in each.steps if step.kind == "llm"]
            assert said == [f"look for {each.task.instruction}", "think of fine", "answer fine"]
            assert think.info["model"] == "scripted"
            assert think.usage is not None
        assert [step.observation[-1]["text"] for step in rest.steps] == ["afterwards"]
        assert rest.meta["source"] == "gateway"


def test_behind_a_server_that_runs_they_are_one_trajectory_each_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + "whet.feedback('r1', 1.0, 'well done')\n")
    with before_a_model(tmp_path / "served.db") as here:
        words = ["run", "--url", here.url, "--token", TOKENS[Role.WRITE], "--run-id", "r1", "--"]
        program = (sys.executable, "program.py", "one")
        done = whet(*words, *program, folder=tmp_path, WHET_STORE=str(tmp_path / "elsewhere.db"))
        assert done.returncode == 0, done.stderr
        until(lambda: [len(each.steps) for each in here.store.trajectories(ids=["r1"])] == [4])
        (whole,) = here.store.trajectories(ids=["r1"])
        assert [step.name for step in whole.steps if step.kind == "tool"] == ["look"]
        assert sum(step.usage is not None for step in whole.steps) == 3
        assert [said.comment for said in whole.feedback] == ["well done"]
    assert not (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "whet.db").exists()


EXPLICIT = (
    PROGRAM.partition("for question in")[0]
    + """
def served(number):
    with whet.run(session=f"s{number}", subject=f"p{number}") as run:
        agent(f"q{number}")
    return run

for number in range(2):
    run = served(number)
    whet.feedback(run.id, 1.0, "thanks")
    print(run.id)
"""
)


def test_runs_that_a_program_opens_itself_have_their_model_calls(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(EXPLICIT)
    with ScriptedServer("fine", speaks=("chat",)) as upstream:
        words = ["run", "--store", "runs.db", "--upstream", upstream.base_url, "--run-id", "all", "--"]
        done = whet(*words, sys.executable, "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / "runs.db") as store:
        found = list(store.trajectories(ids=["all"]))
        assert [each.id for each in found] == done.stdout.split()
        for number, each in enumerate(found):
            assert (each.session, each.subject) == (f"s{number}", f"p{number}")
            assert [said.comment for said in each.feedback] == ["thanks"]
            calls = [step for step in each.steps if step.kind == "llm"]
            assert [step.observation[-1]["text"] for step in calls] == [
                f"look for q{number}",
                "think of fine",
                "answer fine",
            ]
            assert all(step.usage is not None for step in calls)
        report = store.erase("p0")
        assert (report.trajectories, report.spans) == (1, 3)
        (left,) = store.trajectories(ids=["all"])
        assert left.subject == "p1"
        assert len(store.spans.run("all")) == 3
        assert not any(b"q0" in span.body for span in store.spans.run("all"))


OVERLAPPING = """
import json, os, threading, urllib.request
import whet

together = threading.Barrier(4)

@whet.trace
def agent(question, headers):
    together.wait(90)
    body = {"model": "scripted", "messages": [{"role": "user", "content": question}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    headers = {"content-type": "application/json", **headers}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
    together.wait(90)

def served(number):
    with whet.run(session="s", subject=f"p{number}") as run:
        agent(f"q{number}", run.headers)

threads = [threading.Thread(target=served, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_runs_that_overlap_have_the_calls_that_say_whose_they_are(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(OVERLAPPING)
    with before_a_model(tmp_path / "served.db") as here:
        words = ["run", "--url", here.url, "--token", TOKENS[Role.WRITE], "--run-id", "all", "--"]
        done = whet(*words, sys.executable, "program.py", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        until(lambda: [len(each.steps) for each in here.store.trajectories()] == [1] * 4)
        found = list(here.store.trajectories())
        asked = {each.subject: each.steps[0].observation[-1]["text"] for each in found}
        assert asked == {f"p{number}": f"q{number}" for number in range(4)}
        assert {each.id for each in here.store.trajectories(ids=["all"])} == {each.id for each in found}
        here.store.erase("p2")
        assert {each.subject for each in here.store.trajectories()} == {"p0", "p1", "p3"}


def called(number: int, at: float, run: str = "r1") -> Span:
    """A gateway's record of one model call."""
    body: dict[str, Any] = {
        "api": "chat",
        "model": "m",
        "request": {"messages": [{"role": "user", "content": f"call {number}"}]},
        "response": {
            "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]
        },
        "choices": [{"prompt_ids": [1], "output_ids": [2], "logprobs": [-0.1]}],
        "versions": {"prompt": "v1"},
    }
    return Span(
        trace=b"r" * 16,
        id=number.to_bytes(8, "big"),
        parent=b"",
        started=int(at * 1e9),
        ended=int((at + 0.5) * 1e9),
        name="chat m",
        body=msgspec.json.encode(body),
        encoding="call+json",
        run=run,
    )


def traced(id: str, started: float, seconds: float, *steps: Step) -> Trajectory:
    meta = {"function": "agent", "run": "r1"}
    return Trajectory(
        id=id, task=Task(instruction=id), started=started, seconds=seconds, steps=steps, meta=meta
    )


def assembled(store: Store, *spans: Span) -> None:
    store.spans.put(spans).result()
    Assembler(store).flush()


def test_a_call_that_two_traced_calls_may_have_made_stays_with_the_run() -> None:
    with Store(":memory:") as store:
        store.put(traced("a", 100.0, 10.0), traced("b", 105.0, 10.0))
        assembled(store, called(1, 101.0), called(2, 107.0), called(3, 112.0))
        found = {
            each.id: [step.observation[-1]["text"] for step in each.steps] for each in store.trajectories()
        }
    assert found == {"a": ["call 1"], "b": ["call 3"], trajectory_id(b"", "r1"): ["call 2"]}


def test_a_traced_call_that_is_recorded_after_its_model_calls_were_read_takes_them_over() -> None:
    with Store(":memory:") as store:
        assembler = Assembler(store, grace=0.0)
        now = time.time()
        store.spans.put([called(1, 101.0), called(2, 107.0), called(3, 130.0)]).result()
        assert assembler.step(now + 5) == 1
        assert len(store.trajectory(trajectory_id(b"", "r1")).steps) == 3
        store.put(traced("a", 100.0, 10.0))
        assert assembler.step(now + 6) == 2
        whole, rest = store.trajectory("a"), store.trajectory(trajectory_id(b"", "r1"))
        assert [len(whole.steps), len(rest.steps)] == [2, 1]
        store.put(traced("b", 125.0, 10.0))
        assert assembler.step(now + 7) == 1
        assert {each.id: len(each.steps) for each in store.trajectories()} == {"a": 2, "b": 1}
        assert store.counts()["trajectories"] == 2
        assert assembler.step(now + 90) == 0
        assert Assembler(store).step(now + 90) == 0


def test_a_call_that_comes_late_is_added_and_what_was_judged_stays() -> None:
    tool = Step(kind="tool", name="look", id="0", latency=4.0, info={"started": 101.0})
    with Store(":memory:") as store:
        store.put(traced("a", 100.0, 10.0, tool))
        assembled(store, called(1, 108.0))
        judged = store.trajectory("a").scored(Score("good", 1.0))
        store.put(judged, replace=True)
        assembled(store, called(2, 102.0))
        Assembler(store).flush()
        found = store.trajectory("a")
    assert [(step.name, step.parent) for step in found.steps] == [
        ("look", None),
        ("chat m", "0"),
        ("chat m", None),
    ]
    assert found.score("good") == 1.0
    assert found.versions == {"prompt": "v1"}
    assert found.steps[1].tokens is not None
    assert found.outcome is Outcome.UNKNOWN


class Interleaved(Store):
    """A store in which something happens between what is read and what is written because of it."""

    between: Callable[[], object] | None = None

    def batch(self) -> Batch:
        happens, self.between = self.between, None
        if happens is not None:
            happens()
        return super().batch()


def asked_by(number: int, subject: str) -> Span:
    """A call of a run that serves several people."""
    one = called(number, 100.0 + number, "program")
    return one._replace(body=one.body[:-1] + b',"subject":"%b"}' % subject.encode())


def test_who_is_erased_while_their_run_is_being_written_does_not_come_back(tmp_path: Path) -> None:
    with Interleaved(tmp_path / "runs.db") as store:
        assembler = Assembler(store, grace=0.0)
        store.spans.put([asked_by(1, "ann"), asked_by(2, "bob")]).result()
        store.between = lambda: store.erase("bob")
        assert assembler.step(time.time() + 5) == 1
        (whole,) = store.trajectories()
        assert [step.observation[-1]["text"] for step in whole.steps] == ["call 1"]
        store.spans.put([asked_by(3, "cyd")]).result()
        store.between = lambda: store.erase("ann")
        assert assembler.step(time.time() + 5) == 1
        (whole,) = store.trajectories()
        assert [step.observation[-1]["text"] for step in whole.steps] == ["call 3"]
        assert store.revisions(whole.id) == []
    assert b"call 1" not in (tmp_path / "runs.db").read_bytes()


def test_what_was_read_before_an_erasure_is_refused_and_nothing_beside_it(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        stale = store.batch()
        stale.as_of(0)
        stale.put(traced("a", 100.0, 10.0))
        fresh = store.batch()
        fresh.put(traced("b", 100.0, 10.0))
        store.erase("ann")
        futures = [fresh.submit(), stale.submit(), store.submit(traced("c", 100.0, 10.0))]
        problems = [future.exception() for future in futures]
        assert [type(problem) for problem in problems] == [type(None), StoreError, type(None)]
        assert "Read it again" in str(problems[1])
        assert {each.id for each in store.trajectories()} == {"b", "c"}
