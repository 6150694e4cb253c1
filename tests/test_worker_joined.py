"""A rollout of a worker and the gateway's record of its model calls are one trajectory, whichever comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from processes import until
from server_world import World, bearer, world
from test_server_worker import work

import whet
from whet.cli import app
from whet.models.base import Completion, ModelRequest
from whet.models.fakes import ScriptedServer
from whet.serve import Role
from whet.serve.gateway import Upstream
from whet.serve.worker import LitAgent, Triplet
from whet.types import Outcome, Rollout, Tokens, Trajectory, Usage

ORDERS = {"calls first": 0.0, "report first": 1.0}
"""What comes first, by the seconds that the gateway's calls wait to be read."""


def sampled(request: ModelRequest) -> Completion:
    """A model with a vocabulary of a hundred: how many characters it was asked is its answer."""
    asked = str(request.messages[-1]["content"])
    prompt = (1, *(ord(letter) % 100 for letter in asked))
    tokens = Tokens(prompt, (len(asked), 2), (-0.25, -0.5))
    return Completion(
        text=f"{len(asked)}", tokens=tokens, usage=Usage(len(prompt), 2, calls=1), finish="stop"
    )


def asked(here: World, question: str, *, run: str, stream: bool = False) -> str:
    """One call through the gateway."""
    body = {"model": "scripted", "messages": [{"role": "user", "content": question}], "stream": stream}
    headers = {**bearer(Role.WRITE), "x-whet-run": run}
    answered = httpx2.post(f"{here.url}/v1/chat/completions", json=body, headers=headers, timeout=90)
    assert answered.status_code == 200, answered.text
    if not stream:
        return str(answered.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in answered.text.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def called(trajectory: Trajectory) -> list[Any]:
    """The token ids of its model calls."""
    return [list(step.tokens.output_ids) for step in trajectory.steps if step.tokens is not None]


def joined(here: World, *ids: str, calls: int) -> list[Trajectory]:
    """The rollouts, once each has its calls; nothing else is in the record."""
    until(
        lambda: [len(called(here.store.trajectory(id))) for id in ids] == [calls] * len(ids),
        "the calls do not come to their rollouts",
    )
    assert len(list(here.store.trajectories())) == len(ids)
    return [here.store.trajectory(id) for id in ids]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("order", ORDERS)
def test_model_calls_of_a_function_under_whet_work_are_steps_of_its_rollout(
    tmp_path: Path, order: str, stream: bool
) -> None:
    with ScriptedServer(sampled) as upstream:
        upstreams = {"default": Upstream(url=upstream.base_url, tokens=True)}
        with world(tmp_path / "runs.db", grace=ORDERS[order], upstreams=upstreams) as here:

            @whet.step(kind="tool", effect="read")
            def look(question: str, run: str) -> str:
                return asked(here, f"look {question}", run=run, stream=stream)

            def agent(question: str) -> str:
                with whet.run() as run:
                    seen = look(question, run.id)
                    with whet.step("think", kind="llm", observation=question) as now:
                        now.action, now.reward = asked(here, f"think {seen}", run=run.id, stream=stream), 0.5
                    answer = asked(here, "answer", run=run.id, stream=stream)
                    whet.feedback(run, 1.0, store=here.store)
                if order == "calls first":
                    until(
                        lambda: bool(list(here.store.trajectories(ids=[run.id]))), "the calls were not read"
                    )
                return answer

            here.store.add_rollouts(*(Rollout(id=id, task=whet.Task(instruction=id)) for id in ("a", "bb")))
            assert work(here, agent, limit=2, concurrency=2).succeeded == 2
            for id, whole in zip(("a", "bb"), joined(here, "a", "bb", calls=3), strict=True):
                assert (whole.id, whole.meta["run"], whole.output) == (f"{id}.1", id, "6")
                assert called(whole) == [[len(f"look {id}"), 2], [7, 2], [6, 2]]
                answer, tool, inside, think, last = whole.steps
                assert (answer.kind, answer.parent, answer.action) == ("action", None, "6")
                assert (tool.kind, tool.parent, inside.parent) == ("tool", answer.id, tool.id)
                assert (think.name, think.reward, think.parent) == ("think", 0.5, answer.id)
                assert (last.kind, last.parent) == ("llm", answer.id)
                assert [one.value for one in whole.feedback] == [1.0]


def test_attempts_whose_calls_name_the_rollout_have_their_own(tmp_path: Path) -> None:
    attempts: list[str] = []
    with ScriptedServer(sampled) as upstream:
        upstreams = {"default": Upstream(url=upstream.base_url, tokens=True)}
        with world(tmp_path / "runs.db", grace=0.0, upstreams=upstreams) as here:

            def agent(question: str) -> str:
                attempts.append(question)
                answer = asked(here, "x" * (3 + len(attempts)), run="a")
                if len(attempts) == 1:
                    raise ConnectionError("the endpoint is down")
                return answer

            here.store.add_rollouts(Rollout(id="a", task=whet.Task(instruction="a")))
            assert work(here, agent, limit=2).succeeded == 1
            until(lambda: called(here.store.trajectory("a.2")) == [[5, 2]], "the second call")
            runs = list(here.store.trajectories())
            assert {run.id for run in runs} >= {"a.2"}
            assert sorted(ids for run in runs for ids in called(run)) == [[4, 2], [5, 2]]
            assert here.store.trajectory("a.2").outcome is not Outcome.INFRASTRUCTURE_ERROR


def test_what_an_agent_reports_of_its_calls_itself_is_not_there_twice(tmp_path: Path) -> None:
    with ScriptedServer(sampled) as upstream:
        upstreams = {"default": Upstream(url=upstream.base_url, tokens=True)}
        with world(tmp_path / "runs.db", grace=0.0, upstreams=upstreams) as here:

            class Reports(LitAgent):
                def training_rollout(self, task: Any, rollout_id: str, resources: Any) -> Any:
                    asked(here, "hello", run=rollout_id)
                    prompt = {"token_ids": [1, *(ord(letter) % 100 for letter in "hello")]}
                    return [Triplet(prompt, {"token_ids": [5, 2], "logprobs": [-0.25, -0.5]}, 0.75)]

            here.store.add_rollouts(Rollout(id="a", task=whet.Task(instruction="a")))
            assert work(here, Reports(), limit=1).succeeded == 1
            until(lambda: "span_ids" in here.store.trajectory("a").steps[0].info, "the call")
            (whole,) = joined(here, "a", calls=1)
            assert whole.steps[0].reward == 0.75


def test_a_rollout_with_its_model_calls_is_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    with ScriptedServer(sampled) as upstream:
        upstreams = {"default": Upstream(url=upstream.base_url, tokens=True)}
        with world(tmp_path / "runs.db", grace=0.0, upstreams=upstreams) as here:

            def agent(question: str) -> str:
                with whet.run() as run:
                    whet.feedback(run, 1.0, store=here.store)
                    return asked(here, question, run=run.id)

            ids = [f"r{number}" for number in range(6)]
            here.store.add_rollouts(*(Rollout(id=id, task=whet.Task(instruction=id * 2)) for id in ids))
            assert work(here, agent, limit=6).succeeded == 6
            joined(here, *ids, calls=1)
    words = ["train", "sft", "--store", tmp_path / "runs.db", "--output", tmp_path / "out", "--epochs", 1]
    words += ["--ids-only", "--reward-function", "whet.judge:rated", "--json"]
    assert app([str(word) for word in words], result_action="return_value") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["metrics"]["targets"] == 12, said
