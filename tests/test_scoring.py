"""A record scored by today's rewards: `whet score`, `whet report --reward`, and the versions that are told apart."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import answered as json_of
from commands import command

from whet.judge import exact, reward
from whet.judge.scoring import current, rescore
from whet.prove.report import report
from whet.record.store import Store
from whet.types import Outcome, Score, Task, Trajectory

TASKS = [Task(id=f"t{n}", instruction=f"{n} and {n}", answer=str(2 * n)) for n in range(40)]


def answered(task: Task, output: str) -> Trajectory:
    return Trajectory(task=task, id=f"run of {task.id}", output=output)


RUNS = [answered(task, task.answer if n % 4 else "no") for n, task in enumerate(TASKS)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db") as opened:
        opened.put(*RUNS)
        yield opened


def length(limit: int, version: str) -> object:
    @reward(name="short", version=version)
    def judge(trajectory: Trajectory) -> float:
        return float(len(trajectory.output_text) <= limit)

    return judge


def test_a_record_is_scored_and_a_changed_reward_replaces_its_earlier_scores(store: Store) -> None:
    first, second = length(1, "one"), length(2, "two")
    (count,) = asyncio.run(rescore(store, [first]))
    assert (count.scored, count.missing, sum(count.earlier.values())) == (40, 0, 0)
    before = count.mean
    (count,) = asyncio.run(rescore(store, [second]))
    assert count.earlier == {"one": 40}
    assert count.changed == 37
    assert count.mean == 1.0 != before
    stored = list(store.trajectories())
    assert {run.scores["short"].evaluator for run in stored} == {"two"}
    *_, replaced = store.revisions(stored[0].id)
    assert replaced.scores["short"].evaluator == "one"
    (again,) = asyncio.run(rescore(store, [second]))
    assert (again.changed, sum(again.earlier.values())) == (0, 0), "the control: nothing changed"


def test_a_dry_run_records_nothing(store: Store) -> None:
    (count,) = asyncio.run(rescore(store, [exact], keep=False))
    assert count.mean == 0.75
    assert not any(run.scores for run in store.trajectories())


def test_a_judge_is_asked_once_for_each_version_of_it(store: Store) -> None:
    asked: list[str] = []

    def judge(version: str) -> object:
        @reward(name="judged", version=version)
        async def ask(trajectory: Trajectory) -> float:
            asked.append(trajectory.id)
            return 0.5

        return ask

    asyncio.run(rescore(store, [judge("1"), exact]))
    asyncio.run(rescore(store, [judge("1"), exact]))
    assert len(asked) == 40
    asyncio.run(rescore(store, [judge("2")]))
    assert len(asked) == 80
    assert next(store.trajectories()).scores.keys() == {"judged", "exact"}


def test_a_report_keeps_the_scores_of_two_versions_apart() -> None:
    old = [run.scored(Score("short", 0.0, "", "one")) for run in RUNS[:30]]
    new = [run.scored(Score("short", 1.0, "", "two")) for run in RUNS[30:]]
    made = report([*old, *new])
    assert (made.scores["short"].mean, made.scores["short"].n, made.scores["short"].version) == (1, 10, "two")
    assert [(mean.mean, mean.n, mean.version) for mean in made.earlier["short"]] == [(0, 30, "one")]
    assert report(new).earlier == {}


def test_the_command_scores_the_record_and_the_report_shows_it(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store.path
    store.close()
    scored = json_of(capsys, "score", "--store", path, "--reward", "exact", "--json")
    assert [(one["reward"], one["scored"], one["mean"]) for one in scored] == [("exact", 40, 0.75)]
    assert "score exact" in command(capsys, "report", "--store", path).stdout
    fresh = json_of(capsys, "report", "--store", path, "--reward", "f1", "--score", "f1", "--json")
    assert fresh["report"]["successes"] == 30
    told = command(capsys, "score", "--store", path, "--reward", "schema", "--reward", "exact").stdout
    assert "schema 1: no run could be judged, 40 not judged (the task has no JSON Schema; give one" in told
    assert "not judged" not in told.splitlines()[1]
    refused = command(capsys, "score", "--store", path)
    assert refused.returncode
    assert "--reward" in refused.stderr


def test_scoring_a_long_record_holds_few_runs_in_memory(tmp_path: Path) -> None:
    with Store(tmp_path / "long.db") as store:
        text = "a long answer " * 200
        for start in range(0, 6000, 500):
            store.put(*(Trajectory(task=TASKS[0], output=f"{start + n} {text}") for n in range(500)))

        def peak(limit: int) -> int:
            tracemalloc.start()
            for _ in current(store.trajectories(limit=limit), [exact]):
                pass
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

        peak(10)
        assert peak(6000) < 1.5 * peak(1000)


def test_a_checker_decides_the_outcome_that_is_recorded(store: Store) -> None:
    from whet.judge import checked

    asked = [replace(task, success_checker="python:right") for task in TASKS[:3]]
    with Store(":memory:") as own:
        own.put(*(answered(task, str(task.answer)) for task in asked))
        asyncio.run(rescore(own, [checked({"right": exact})]))
        assert {run.outcome for run in own.trajectories()} == {Outcome.SUCCESS}
