"""An agent that nobody changed learns: its model calls are answered by the weights under training."""

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from whet.cli import app
from whet.errors import InputError, TrainingRefused, WhetError
from whet.learn.training.engines import EnginePlan, engine
from whet.learn.training.local import adopted, fresh
from whet.learn.training.model import ModelOptions
from whet.learn.training.remote import RemoteModels
from whet.learn.training.vocabulary import Vocabulary
from whet.models.fakes import ScriptedServer
from whet.record.env import rollout
from whet.record.store import Store
from whet.serve.agent_rollouts import AgentRolloutPlan, agent_rollouts
from whet.types import Bundle, Fault, Outcome, Task

torch.set_num_threads(1)
AGENT = """
import os, sys, time
import openai

client = openai.OpenAI()


def ask(messages):
    said = client.chat.completions.create(model="gpt-4o-mini", max_tokens=1, messages=messages)
    return said.choices[0].message


def answer(digit):
    return ask([{"role": "user", "content": digit}]).content


async def twice(digit, then="1"):
    messages = [{"role": "user", "content": digit}]
    messages += [ask(messages).model_dump(include={"role", "content"}), {"role": "user", "content": then}]
    return ask(messages).content


def moody(digit):
    answer(digit)
    if digit == "0":
        raise ValueError("not with me")
    if digit == "1":
        sys.exit(3)
    if digit == "2":
        time.sleep(60)
    return digit
"""
REWARDS = """
import hashlib


def right(trajectory):
    if trajectory.output is None:
        return None
    return float(trajectory.output == str((int(trajectory.task.instruction) + 1) % 4))


def exchanged(trajectory):
    said = f"{trajectory.task.id} {trajectory.output}".encode()
    return float(hashlib.sha256(said).digest()[0] < 64)
"""


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the agent, its reward, and a model of a few thousand weights whose words are four digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "plain_agent.py").write_text(AGENT)
    (tmp_path / "digit_rewards.py").write_text(REWARDS)
    words = Vocabulary(list("0123"))
    size = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
    fresh("policy", Path("small"), options=size, vocab_size=len(words), seed=0)
    words.save(Path("small/vocabulary.json"))
    rows = [
        {"id": f"{split}-{n}", "instruction": str(n % 4), "group": f"{split}-{n}", "split": split}
        for split, count in (("train", 16), ("validation", 64), ("gate", 60))
        for n in range(count)
    ]
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def train(*words):
    return app(["train", "grpo", "--model", "small", *words], result_action="return_value")


AS_IT_IS = (
    *("--agent", "plain_agent:answer", "--tasks-file", "tasks.jsonl"),
    *("--reward-function", "digit_rewards:right", "--agent-processes", "3"),
)


def test_an_agent_that_was_not_changed_learns_from_a_reward_and_its_gain_is_proven(workplace, capsys):
    train(*AS_IT_IS, "--steps", "8", "--optim.learning-rate", "0.03", "--output", "out", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"]["promote"]
    assert told["verdict"]["effect"] > 0.2
    rounds = [json.loads(row) for row in Path("out/metrics.jsonl").read_text().splitlines()]
    # The engine and the trainer agree on every log-probability: what was sampled is what is learned from.
    assert max(row["mismatch_max"] for row in rounds) < 1e-4
    with Store("out/runs.db") as store:
        run = next(iter(store.trajectories(limit=1)))
    assert [step.tokens is not None for step in run.steps] == [False, True]
    # The model calls were kept only until they were steps, and weights only until the engine had them.
    assert sorted(path.name for path in Path("out/engine").iterdir()) == ["engine.log"]
    rewards = [row["reward"] for row in rounds]
    assert rewards[-1] > rewards[0] + 0.2, rewards
    # Released, the agent is answered by what it learned, and after a rollback by the model as it came.
    app(["release", "out", "--store", "out/runs.db"], result_action="return_value")
    came = answers_of("--store", "out/runs.db", "--alias", "gpt-4o-mini", taken_back_by="rollback")
    assert came["live"] > came["rolled back"] + 0.2, came


def answers_of(*words, taken_back_by):
    """The share of right answers that the agent gives, served by these words: as it is live, and after a command."""
    port = 20_000 + os.getpid() % 10_000  # below those that a server of another test is given
    command = [sys.executable, "-m", "whet", "serve-policy", *words, "--port", str(port), "--threads", "1"]
    environment = {**os.environ, "WHET_TOKEN": "k", "OPENAI_API_KEY": "k"}
    environment["OPENAI_BASE_URL"] = f"http://127.0.0.1:{port}/v1"
    asked = (
        "import plain_agent\n"
        "print(sum(plain_agent.answer(str(n % 4)) == str((n + 1) % 4) for n in range(80)) / 80)"
    )
    shares = {}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            next(line for line in server.stdout if f":{port}/v1" in line)
            for name in ("live", "rolled back"):
                done = subprocess.run(
                    [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
                )
                shares[name] = float(done.stdout)
                if name == "live":
                    app([taken_back_by, "--store", "out/runs.db"], result_action="return_value")
                    next(line for line in server.stdout if "now as it came" in line)
        finally:
            server.terminate()
    return shares


def test_an_agent_learns_nothing_that_is_proven_from_rewards_that_say_nothing(workplace, capsys):
    other = {"digit_rewards:right": "digit_rewards:exchanged", "3": "1"}  # one process: it asks in an instant
    words = [other.get(word, word) for word in AS_IT_IS]
    train(*words, "--steps", "3", "--optim.learning-rate", "0.03", "--output", "out", "--json")
    verdict = json.loads(capsys.readouterr().out)["verdict"]
    assert not verdict["promote"], verdict
    with pytest.raises(WhetError, match="unproven"):
        app(["release", "out", "--store", "out/runs.db"], result_action="return_value")


def test_a_panel_judges_what_an_agent_does_as_it_learns_and_refuses_what_it_was_not_calibrated_on(workplace):
    def judging(request):
        shown = json.loads(re.findall(r"<data-[0-9a-f]+>\s*(\{.*\})\s*</data", request.text)[0])
        right = str(shown["answer"]).split()[0] == str((int(shown["question"]) + 1) % 4)
        return f"SCORE: {9 if right else 2}"

    rows = []
    for number in range(200):
        said = (number * 7 // 4) % 4
        label = 1 if said == (number + 1) % 4 else -1
        rows.append(
            {"id": number, "input": str(number % 4), "output": str(said), "label": label, "kind": "digits"}
        )
    Path("labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("rubric.md").write_text("The next digit is right.")
    with Store("cards.db"):
        pass
    with ScriptedServer(by_model=dict.fromkeys(("one", "two", "three"), judging)) as server:
        models = [word for name in ("one", "two", "three") for word in ("--model", name)]
        asked = ("--base-url", server.base_url)
        given = ("--labels", "labels.jsonl", "--store", "cards.db", "--output", "cards")
        assert app(["audit", "rubric.md", *models, *asked, *given], result_action="return_value") == 0
        words = [
            *AS_IT_IS,
            *asked,
            "--judge-store",
            "cards.db",
            "--steps",
            "1",
            "--no-gate",
            "--output",
            "out",
        ]
        words[words.index("digit_rewards:right")] = "cards/panel.json"
        tasks = [json.loads(line) for line in Path("tasks.jsonl").read_text().splitlines()]
        for kind in ("letters", "digits"):
            lines = (json.dumps({**task, "meta": {"kind": kind}}) + "\n" for task in tasks)
            Path("tasks.jsonl").write_text("".join(lines))
            if kind == "letters":
                before = len(server.requests)
                strange = [*words[: words.index("out")], "strange"]
                with pytest.raises(TrainingRefused, match=r"has no labels of 'letters', only of digits"):
                    train(*strange)
                assert len(server.requests) == before, "what nobody labelled is not asked about"
        train(*words)
    with Store("out/runs.db") as store:
        runs = list(store.trajectories())
    assert len(runs) >= 64
    for run in runs:
        told = run.scores["panel"]
        assert not told.uncalibrated
        assert told.value == (run.output == str((int(run.task.instruction) + 1) % 4)), told


@contextmanager
def rollouts_of(function, **options):
    """Rollouts of one of the agent's functions, against a policy server of its own."""
    with engine(EnginePlan(where="policy", model="small"), Path("engine")) as server:
        models = RemoteModels(server, Path("engine"))
        plan = AgentRolloutPlan(entry=f"plain_agent:{function}", processes=2, **options)
        with models.as_shared(), agent_rollouts(plan, models, Path("engine")) as rollouts:
            yield rollouts


def played(rollouts, *tasks):
    """One rollout of each task, all at once."""
    bundle = Bundle({"policy": adopted("policy", "small", Path("base"))})

    async def all_of_them():
        try:
            return await asyncio.gather(
                *(
                    rollout(rollouts(), rollouts.policy(bundle, seed), task, seed=seed)
                    for seed, task in enumerate(tasks)
                )
            )
        finally:
            rollouts.end()
            await rollouts.models.server.aclose()

    return asyncio.run(all_of_them())


def test_turns_of_one_rollout_stay_together_though_rollouts_run_at_once(workplace):
    tasks = [Task(instruction=str(n % 4), initial_state={"then": str(n % 3)}) for n in range(6)]
    with rollouts_of("twice") as rollouts:
        runs = played(rollouts, *tasks)
    for task, run in zip(tasks, runs, strict=True):
        first, second = (step for step in run.steps if step.tokens is not None)
        assert first.observation[-1]["text"] == task.instruction
        assert second.observation[-1]["text"] == task.initial_state["then"]
        assert list(second.tokens.prompt_ids)[: len(first.tokens.prompt_ids)] == list(first.tokens.prompt_ids)
        assert run.output == second.action["text"]


def test_an_agent_that_fails_is_data_with_the_steps_it_took(workplace):
    with rollouts_of("moody", seconds=8.0) as rollouts:
        raised, ended, hung, done = played(rollouts, *(Task(instruction=str(n)) for n in range(4)))
    for run, kind in ((raised, "ValueError"), (ended, "Ended"), (hung, "Timeout")):
        assert run.outcome is Outcome.FAILURE
        assert (run.error.fault, run.error.type) == (Fault.AGENT, kind)
        assert sum(step.tokens is not None for step in run.steps) == 1
    assert done.error is None
    assert done.output == "3"


def test_an_engine_that_is_gone_is_not_the_agents_failure(workplace):
    with rollouts_of("answer") as rollouts:
        # Nobody listens there; the weights count as handed over.
        address = rollouts.gateway.upstreams["engine"]
        object.__setattr__(address, "url", "http://127.0.0.1:9/v1")
        (run,) = played(rollouts, Task(instruction="0"))
    assert run.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert run.error.fault is Fault.MODEL


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--agent", "plain_agent:answer"], "--tasks-file"),
        (["--agent", "plain_agent:answer", "--tasks-file", "tasks.jsonl"], "--reward-function"),
        (["--agent", "plain_agent"], "module:function"),
        ([*AS_IT_IS, "--env", "plain_agent:answer"], "not both"),
        ([*AS_IT_IS, "--system", "be brief"], "an agent acts by itself"),
        ([*AS_IT_IS, "--data", "runs.jsonl"], "not both"),
    ],
)
def test_an_agent_is_refused_where_something_is_missing_or_contradicts_it(workplace, words, complaint):
    with pytest.raises(InputError, match=complaint):
        train(*words, "--output", "out")
