"""The classic question-answering skeleton runs as it always did, and as an Env."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from whet.errors import EnvError
from whet.record.env import StepResult, Transition, check_env, rollout
from whet.record.exchange.formats import (
    from_transitions,
    to_transitions,
    trajectory_from_json,
    trajectory_to_json,
)
from whet.record.policy import FunctionPolicy
from whet.types import Fault, Outcome, Task
from whet.worlds.qa import QAEnv, SimpleQAEnv, echo_model, run_episode

CLASSIC_SCRIPT = """
from whet.worlds.qa import SimpleQAEnv, Transition, echo_model, generate_reply, run_episode

env = SimpleQAEnv("What is the capital of France?", "Paris")
obs = env.reset()
assert obs == "User: What is the capital of France?", obs
next_obs, reward, done, info = env.step(action_text="I think it is PARIS.")
assert (next_obs, reward, done, info) == ("Episode finished.", 1.0, True, {"correct": True})
try:
    env.step("again")
except RuntimeError as error:
    print("stepped after the end:", error)
else:
    raise SystemExit("a step after the end must raise RuntimeError")

def knows(prompt):
    assert prompt.endswith("\\nAssistant:"), prompt
    return "It is Paris."

assert generate_reply(knows, obs + "\\nAssistant:") == "It is Paris."
for model, expected in ((knows, 1.0), (echo_model, 1.0), (lambda prompt: "Rome", 0.0)):
    (transition,) = run_episode(model, env)
    obs = "User: What is the capital of France?"
    assert transition == Transition(
        obs=obs, action=model(obs + "\\nAssistant:"), reward=expected, done=True, next_obs="Episode finished."
    )
    print(transition.action, "->", transition.reward)
"""


def test_the_classic_script_runs_unchanged() -> None:
    ran = subprocess.run([sys.executable, "-c", CLASSIC_SCRIPT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1:] == [
        "It is Paris. -> 1.0",
        "The capital of France is Paris. -> 1.0",
        "Rome -> 0.0",
    ]


@pytest.mark.parametrize(
    ("text", "reward"), [("paris", 1.0), ("PARIS!", 1.0), ("Parisian", 1.0), ("Par is", 0.0), ("", 0.0)]
)
def test_the_keyword_decides_whatever_its_case(text: str, reward: float) -> None:
    env = SimpleQAEnv("Where?", "Paris")
    env.reset()
    next_obs, given, done, info = env.step(text)
    assert (given, done, info) == (reward, True, {"correct": reward == 1.0})
    assert next_obs == "Episode finished."


def test_a_reset_begins_again() -> None:
    env = SimpleQAEnv("Where?", "Paris")
    for _ in range(2):
        assert env.reset() == "User: Where?"
        assert env.step("Paris")[1] == 1.0
        with pytest.raises(RuntimeError, match="over"):
            env.step("Paris")


def test_an_episode_of_several_turns_chains_its_observations() -> None:
    class TwoTurns:
        def reset(self) -> str:
            self.turn = 0
            return "one"

        def step(self, text: str) -> tuple[str, float, bool, dict[str, Any]]:
            self.turn += 1
            return f"after {text}", 0.5, self.turn == 2, {}

    assert run_episode(lambda prompt: prompt.upper(), TwoTurns()) == [
        Transition("one", "ONE\nASSISTANT:", 0.5, False, "after ONE\nASSISTANT:"),
        Transition(
            "after ONE\nASSISTANT:",
            "AFTER ONE\nASSISTANT:\nASSISTANT:",
            0.5,
            True,
            "after AFTER ONE\nASSISTANT:\nASSISTANT:",
        ),
    ]


TASK = Task(instruction="What is the capital of France?", answer="Paris")


def test_the_env_keeps_the_contract() -> None:
    asyncio.run(check_env(QAEnv, TASK, ["It is Paris."]))
    asyncio.run(check_env(QAEnv, Task(instruction="q", answer=["a", "b"]), ["c"]))


@pytest.mark.parametrize(
    ("answer", "said", "outcome"),
    [
        ("Paris", "paris it is", Outcome.SUCCESS),
        ("Paris", "Rome", Outcome.FAILURE),
        (["two", "2"], "It is 2.", Outcome.SUCCESS),
        (["two", "2"], "It is three.", Outcome.FAILURE),
        (42, "42", Outcome.SUCCESS),
        ("Paris", {"not": "text"}, Outcome.FAILURE),
    ],
)
def test_a_rollout_ends_in_success_where_a_keyword_is_said(answer: Any, said: Any, outcome: Outcome) -> None:
    task = Task(instruction="q", answer=answer)
    played = asyncio.run(rollout(QAEnv(), FunctionPolicy(lambda _: said), task, seed=0))
    assert (played.outcome, played.reward) == (outcome, float(outcome is Outcome.SUCCESS))
    assert played.steps[0].observation == "User: q"
    assert played.steps[0].info["correct"] is (outcome is Outcome.SUCCESS)


@pytest.mark.parametrize("answer", [None, "", " ", [], ["a", ""], True, {"a": 1}])
def test_a_task_that_cannot_be_judged_is_refused_and_not_failed(answer: Any) -> None:
    task = Task(instruction="q", answer=answer)
    played = asyncio.run(rollout(QAEnv(), FunctionPolicy(lambda _: "x"), task, seed=0))
    assert played.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert played.error is not None
    assert (played.error.fault, played.error.type) == (Fault.ENVIRONMENT, "InputError")


def test_the_env_refuses_a_step_out_of_turn() -> None:
    env = QAEnv()
    with pytest.raises(EnvError):
        env.step("x")
    env.reset(TASK, 0)
    assert isinstance(env.step("Paris"), StepResult)
    with pytest.raises(EnvError):
        env.step("Paris")


def test_an_episode_is_a_trajectory_in_the_published_shape_and_back() -> None:
    episode = run_episode(echo_model, SimpleQAEnv(TASK.instruction, "Paris"))
    played = from_transitions(episode, TASK)
    assert to_transitions(played) == episode
    published = trajectory_to_json(played)
    assert published == trajectory_to_json(trajectory_from_json(msgspec.json.encode(published)))
    assert published["steps"] == [
        {
            "obs": "User: What is the capital of France?",
            "action": "The capital of France is Paris.",
            "reward": 1.0,
            "done": True,
            "next_obs": "Episode finished.",
        }
    ]
