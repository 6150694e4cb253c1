"""check_reward passes rewards that judge, and names what is wrong with those that do not."""

from __future__ import annotations

import asyncio
import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from whet.errors import ContractError, InputError
from whet.judge import (
    ATTACKS,
    Compound,
    Judge,
    acheck_reward,
    check_bands,
    check_reward,
    contains,
    exact,
    fewer_steps,
    number,
    solved,
)
from whet.models import ModelRequest, ScriptedModel
from whet.types import Outcome, Step, Task, Trajectory


def run(output: str, question: str, answer: Any, **given: Any) -> Trajectory:
    task = Task(instruction=question, answer=answer)
    step = Step(observation=question, action=output, reward=1.0, done=True)
    return Trajectory(task=task, output=output, steps=(step,), outcome=Outcome.SUCCESS, **given)


CITY = run("Paris", "What is the capital of France?", "Paris")
SUM = run("It is 42.", "What is 6 times 7?", "42")
WRONG = replace(CITY, output="Rome", outcome=Outcome.FAILURE)


@pytest.mark.parametrize("reward", [exact, Compound({exact: 1.0, fewer_steps(0.01): 1.0}), solved])
def test_a_sound_reward_passes(reward: Any) -> None:
    check_reward(reward, [CITY], [WRONG])


def test_number_passes_on_numbers() -> None:
    check_reward(number(), [SUM], unjudgeable=[replace(CITY, task=replace(CITY.task, answer=None))])


def refused(reward: Any, good: Any = (CITY,), bad: Any = (), **given: Any) -> str:
    with pytest.raises(ContractError) as caught:
        check_reward(reward, good, bad, **given)
    return str(caught.value)


def test_a_keyword_search_is_refused_for_keyword_stuffing() -> None:
    assert "'contains' gives 1 to the stuffed answer" in refused(contains)
    check_reward(contains, [CITY], [WRONG], skip=["stuffed"])


def test_a_constant_reward_is_refused() -> None:
    assert "to the empty answer '' and 1 to the good run" in refused(lambda trajectory: 1.0)


def test_a_reward_for_length_is_refused() -> None:
    assert "to the constant answer" in refused(lambda trajectory: len(trajectory.output or ""))


def test_a_reward_that_crashes_on_a_crashed_agent_is_refused() -> None:
    def fragile(trajectory: Trajectory) -> float:
        return float(trajectory.steps[-1].action == trajectory.task.answer)

    assert "fails on the crashed answer" in refused(fragile)
    assert "IndexError" in refused(fragile)


def test_a_random_reward_is_refused() -> None:
    draw = random.Random(0)
    assert "must not vary" in refused(lambda trajectory: draw.random())


def test_a_reward_that_changes_the_trajectory_is_refused() -> None:
    def meddling(trajectory: Trajectory) -> float:
        trajectory.meta["seen"] = True  # type: ignore[index]
        return 1.0

    assert "changes the trajectory" in refused(meddling)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "high"])
def test_a_reward_that_is_no_finite_number_is_refused(value: Any) -> None:
    assert "fails on a good run" in refused(lambda trajectory: value)


def test_a_reward_that_prefers_what_is_wrong_is_refused() -> None:
    def first_letter(trajectory: Trajectory) -> float:
        return {"P": 0.5, "R": 0.9}.get((trajectory.output or " ")[0], 0.0)

    other = replace(CITY, output="Rome", id="the-bad-one")
    assert "bad run the-bad-one" in refused(first_letter, bad=[other])


def test_a_reward_that_scores_zero_for_lack_of_an_answer_is_refused() -> None:
    def strict(trajectory: Trajectory) -> float:
        return float(trajectory.output == trajectory.task.answer)

    assert "no answer to judge by; it must give None" in refused(strict)


def test_a_reward_that_scores_what_it_cannot_judge_is_refused() -> None:
    unjudgeable = replace(CITY, id="blank")
    assert "unjudgeable run blank" in refused(exact, unjudgeable=[unjudgeable])


def test_a_reward_that_will_not_judge_a_bad_answer_is_refused() -> None:
    def silent(trajectory: Trajectory) -> float | None:
        return 1.0 if trajectory.output == "Paris" else None

    assert "gives None to the empty answer" in refused(silent)


def test_bad_runs_are_held_against_the_good_ones_of_their_task() -> None:
    def graded(trajectory: Trajectory) -> float | None:
        top = {CITY.task.id: 0.5, SUM.task.id: 1.0}[trajectory.task.id]
        if trajectory.task.answer is None:
            return None
        right = trajectory.output in ("Paris", "It is 42.")
        return top if right else 0.6 * (trajectory.output == "It is 40.")

    close = replace(SUM, output="It is 40.")
    # .6 is above the good run of the other task, and below that of its own.
    check_reward(graded, [CITY, SUM], [close])
    assert "gives 0.6 to bad run" in refused(graded, bad=[close])


def test_attacks_differ_from_the_good_run_and_are_failures() -> None:
    for name, attack in ATTACKS.items():
        for good in (CITY, SUM):
            attacked = attack(good)
            assert attacked.output != good.output, name
            assert attacked.outcome is Outcome.FAILURE
            assert attacked.task == good.task
    assert ATTACKS["mutated"](SUM).output == "It is 53."


def test_a_judge_is_checked_with_await() -> None:
    def sound(request: ModelRequest) -> str:
        return "SCORE: 9" if '"answer":"Paris"' in request.text else "SCORE: 1"

    def gullible(request: ModelRequest) -> str:
        return "SCORE: 9" if "Paris" in request.text else "SCORE: 1"

    judge = Judge(ScriptedModel(sound), "Is it right?", show_answer=False)
    asyncio.run(acheck_reward(judge, [CITY], [WRONG]))
    with pytest.raises(InputError, match="acheck_reward"):
        check_reward(judge, [CITY])
    with pytest.raises(ContractError, match="stuffed"):
        asyncio.run(acheck_reward(Judge(ScriptedModel(gullible), "r", show_answer=False), [CITY]))


def test_a_check_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="good trajectory"):
        check_reward(exact, [])
    with pytest.raises(InputError, match="sidewise"):
        check_reward(exact, [CITY], skip=["sidewise"])


def test_bands_must_ascend_without_touching() -> None:
    bands = {"malformed": (-2.0, -1.4), "wrong": (-1.0, -0.6), "unknown": (0.0, 0.4), "correct": (1.0, 1.5)}
    check_bands(bands)
    for worse, better in itertools.pairwise(bands):
        touching = {**bands, worse: (bands[worse][0], bands[better][0])}
        with pytest.raises(ContractError, match=f"{worse}.*{better}"):
            check_bands(touching)
    with pytest.raises(ContractError, match="backwards"):
        check_bands({"x": (1.0, 0.0)})
