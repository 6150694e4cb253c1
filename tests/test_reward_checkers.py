"""A task's success_checker judges its runs, and only what the user allows is ever called."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from whet.cli.named import judged as judged_by_name
from whet.errors import InputError, NotFoundError
from whet.judge import ajudged, check_reward, checked, judged, solved
from whet.judge.checkers import resolve_checker
from whet.record.env import Env, StepResult
from whet.record.exchange.formats import task_from_json
from whet.record.policy import FunctionPolicy
from whet.record.store import Store
from whet.record.tracing import flush
from whet.types import Failure, Fault, Json, Outcome, Score, Split, Task, Trajectory

PUBLISHED = """{"task_id": "buy_keyboard", "natural_language_instruction": "Buy the cheapest keyboard.",
 "initial_state": {"url": "https://shop.webarena.dev"}, "success_checker": "python:cart_has_keyboard"}"""
TASK = replace(task_from_json(PUBLISHED), split=Split.TRAIN)


def cart_has_keyboard(trajectory: Trajectory) -> bool:
    return trajectory.output == "click(buy keyboard)"


CHECKED = checked({"cart_has_keyboard": cart_has_keyboard})


def run(output: Json, outcome: Outcome = Outcome.UNKNOWN, task: Task = TASK) -> Trajectory:
    return Trajectory(task=task, output=output, outcome=outcome)


class Shop:
    """An Env that does not know who has won."""

    def reset(self, task: Task, seed: int) -> str:
        return task.instruction

    def step(self, action: Json) -> StepResult:
        return StepResult(None, None, True)


@pytest.mark.parametrize(("action", "outcome"), [("click(buy keyboard)", "success"), ("click(x)", "failure")])
def test_an_experiments_rollouts_are_judged_by_their_tasks_checker(action: str, outcome: str) -> None:
    def env() -> Env:
        return Shop()

    with Store(":memory:") as store:
        experiment = whet.Experiment(
            env=env,
            policy=lambda bundle, seed: FunctionPolicy(lambda _: action),
            tasks=[TASK],
            rewards=[solved, CHECKED],
            store=store,
        )
        asyncio.run(experiment.collect(whet.Bundle()))
        (found,) = store.trajectories()
    assert found.outcome == outcome
    # `solved` is named first and looks at the outcome that the checker decided.
    assert list(found.scores) == ["solved", "checked"]
    assert found.score("solved") == found.score("checked") == float(outcome == "success")


def test_an_experiment_refuses_a_checker_that_is_not_allowed_before_anything_runs() -> None:
    other = task_from_json({"task_id": "t", "success_checker": "python:os.system"})
    with pytest.raises(NotFoundError, match=r"'os.system' is not among the allowed functions \(cart_has_key"):
        whet.Experiment(
            env=Shop, policy=lambda bundle, seed: FunctionPolicy(str), tasks=[TASK, other], rewards=[CHECKED]
        )


def test_recorded_runs_are_judged_and_can_be_recorded_as_judged(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:

        @whet.trace(store)
        def agent(question: str) -> str:
            return "click(buy keyboard)" if "cheapest" in question else "?"

        agent(TASK.instruction)
        agent("Buy another.")
        assert flush()
        tasks = {TASK.instruction: TASK}
        runs = [
            judged(
                Trajectory(id=one.id, task=tasks.get(one.task.instruction, TASK), output=one.output), CHECKED
            )
            for one in store.trajectories()
        ]
        store.put(*runs, replace=True)
        assert [one.outcome for one in store.trajectories()] == [Outcome.SUCCESS, Outcome.FAILURE]


def test_a_checker_is_named_on_the_command_line_as_any_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_checks.py").write_text(
        "import whet.judge\n"
        "async def cart(trajectory):\n    return 0.25 if trajectory.output == 'half' else 1\n"
        "checks = whet.judge.checked({'cart_has_keyboard': cart})\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        found, name, version = judged_by_name([run("half"), run("whole")], "shop_checks:checks")
    finally:
        sys.modules.pop("shop_checks", None)
    assert (name, len(version)) == ("checked", 12)
    assert [(one.score("checked"), one.outcome) for one in found] == [
        (0.25, Outcome.FAILURE),
        (1.0, Outcome.SUCCESS),
    ]


def test_a_name_that_is_not_allowed_is_a_score_of_none_that_says_so_and_nothing_is_imported() -> None:
    task = Task(instruction="q", success_checker="python:antigravity.fly")
    found = judged(run("x", task=task), CHECKED)
    assert (found.score("checked"), found.outcome) == (None, Outcome.UNKNOWN)
    assert "'antigravity.fly' is not among the allowed functions" in found.scores["checked"].reason
    assert "antigravity" not in sys.modules
    unnamed = judged(run("x", task=Task(instruction="q")), CHECKED)
    assert (unnamed.score("checked"), unnamed.outcome) == (None, Outcome.UNKNOWN)
    assert "names no success_checker" in unnamed.scores["checked"].reason


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_run_that_was_cut_short_or_broke_stays_what_it_is(outcome: Outcome) -> None:
    found = judged(run("click(buy keyboard)", outcome), CHECKED)
    decided = outcome in (Outcome.UNKNOWN, Outcome.SUCCESS, Outcome.FAILURE)
    assert found.outcome is (Outcome.SUCCESS if decided else outcome)
    assert (found.score("checked") is None) == (outcome is Outcome.INFRASTRUCTURE_ERROR)


def test_a_checker_that_raises_or_cannot_tell_decides_nothing() -> None:
    def broken(trajectory: Trajectory) -> bool:
        raise KeyError("cart")

    for function, reason in ((broken, "KeyError"), (lambda _: None, "the reward answered None")):
        found = judged(run("x"), checked({"cart_has_keyboard": function}))
        assert (found.outcome, found.score("checked")) == (Outcome.UNKNOWN, None)
        assert reason in found.scores["checked"].reason
    error = Failure(Fault.AGENT, "E", "x")
    told = checked({"cart_has_keyboard": lambda one: Score("mine", float(one.error is None), "why", "7")})
    scored = asyncio.run(ajudged(Trajectory(task=TASK, error=error), told)).scores["checked"]
    assert (scored.value, scored.reason, scored.evaluator) == (0.0, "why", "7")


def test_a_checker_holds_the_contract_of_rewards() -> None:
    check_reward(CHECKED, [run("click(buy keyboard)")], [run("click(x)")])
    with pytest.raises(InputError, match="name → function"):
        checked({})
    with pytest.raises(InputError, match="name → function"):
        checked({"cart": "os.system"})  # type: ignore[dict-item]


def test_a_checker_is_taken_from_what_is_allowed_and_nowhere_else() -> None:
    assert resolve_checker("python:cart", {"cart": cart_has_keyboard}) is cart_has_keyboard
    with pytest.raises(NotFoundError, match="cart"):
        resolve_checker("python:os.system", {"cart": cart_has_keyboard})
    for name in ("cart", "shell:cart", "python:", ""):
        with pytest.raises(InputError, match="form"):
            resolve_checker(name, {"cart": cart_has_keyboard, "": cart_has_keyboard})
