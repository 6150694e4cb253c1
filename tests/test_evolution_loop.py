"""Evolution is optimizers over Bundles in the one loop: counted there, recorded there, released and rolled back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agent_toys
import pytest
from commands import command
from evolution_toys import CURVE, LINE, Once

from whet.cli import main
from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.engine import SearchOptions
from whet.learn.evolution.search.pair import WARM, EvaluatedProgram, EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Islands
from whet.learn.experiment import Experiment
from whet.record.store import Store
from whet.sandbox import Local, Pool
from whet.types import Budget, Bundle, Trajectory


def call(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    done = command(capsys, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The output of a search that the gate promoted."""
    folder = agent_toys.write(tmp_path / "desk")
    monkeypatch.chdir(folder)
    agent_toys.rows(tmp_path / "rows.jsonl", 120, agent_toys.decisions)
    words = ("--target", "limits", "--target", "rush", "--entry", "desk.agent:decide", "--iterations", 60)
    where = ("--data", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--seed", 3, "--json")
    found = json.loads(call(capsys, "evolve", *words, *where))
    assert found["promote"] is True
    return tmp_path / "out"


def test_what_is_promoted_is_released_shown_and_rolled_back_to_the_agent_as_it_came(
    promoted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = promoted / "runs.db"
    written = json.loads((promoted / "bundle.json").read_text())
    live = json.loads(call(capsys, "release", promoted, "--json"))
    assert live == {version["resource"]: version["id"] for version in written["bundle"]}
    assert set(live) <= {"limits", "rush"}
    with Store(store) as opened:
        for id in live.values():
            version = opened.version(id)
            assert version.parent is not None
            assert opened.version(version.parent).resource == version.resource
        # The evidence is in the record: each gate row before and after, under the Versions that ran.
        runs = [run for run in opened.trajectories() if "score" in run.scores]
        assert sum(dict(run.versions) == live for run in runs) == written["verdict"]["n"]
        assert sum(not run.versions for run in runs) == written["verdict"]["n"]
    assert json.loads(call(capsys, "rollback", "--store", store, "--json")) == {}


def test_a_program_that_its_evaluator_steered_is_released_only_as_unproven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text(LINE, encoding="utf-8")
    (tmp_path / "evaluator.py").write_text(CURVE, encoding="utf-8")
    files = ("program.py", "evaluator.py")
    words = ("--unsafe-local", "--offline", "--iterations", 40, "--json", "--output", tmp_path / "out")
    call(capsys, "evolve", *(tmp_path / name for name in files), *words)
    with pytest.raises(SystemExit) as done:
        main(["release", str(tmp_path / "out")])
    assert done.value.code not in (0, None)
    told = capsys.readouterr().err
    assert "--unproven" in told
    assert "its evaluator ran beside it" in told
    said = call(capsys, "release", tmp_path / "out", "--unproven")
    assert f"git apply {tmp_path / 'out/evolution.patch'}" in said
    record = tmp_path / "out/runs.db"
    with Store(record) as opened:
        (version,) = (opened.live() or {}).values()
        assert version.content == (tmp_path / "out/best/best_program.py").read_text(encoding="utf-8")
        assert version.parent is not None
        assert opened.version(version.parent).content == LINE
    assert json.loads(call(capsys, "rollback", "--store", record, "--json")) == {}
    with pytest.raises(SystemExit):  # another record knows of no such program
        main(["release", str(tmp_path / "out"), "--unproven", "--store", str(tmp_path / "other.db")])
    assert "--new-name" in capsys.readouterr().err


def test_every_evaluation_of_a_search_is_a_rollout_that_is_budgeted_and_marked(tmp_path: Path) -> None:
    seen: list[Trajectory] = []

    def watch(trajectory: Trajectory) -> float:
        seen.append(trajectory)
        return 0.0

    async def job() -> None:
        async with Pool(Local(), modules=WARM) as pool:
            given = EvaluatorFile({"evaluator.py": CURVE}, "evaluator.py")
            pair = EvaluatedProgram(
                pool, given, JudgeOptions(timeout=20), ProgramCodec(Program({"p.py": LINE}, "p.py"))
            )
            once = Once(pair, Islands(), SearchOptions(iterations=25, seed=1), ())
            experiment = Experiment(env=pair, tasks=list(pair.tasks.values()), rewards=[pair.score, watch])
            better = await experiment.improve(once, rounds=1, budget=Budget(rollouts=500))
            assert once.found is not None
            assert once.judge is not None
            evaluated = [run for run in seen if run.task.initial_state["ask"] == "evaluate"]
            assert len(evaluated) == once.judge.evaluations
            assert (
                once.found.evaluations <= once.judge.evaluations <= once.found.evaluations + 2
            )  # the wrecks
            assert better.rollouts == len(seen)
            assert all(run.meta["co_resident"] and run.meta["trusted_only"] for run in seen)
            assert [run for run in evaluated if dict(run.versions) == better.bundle.ids]

    asyncio.run(job())


def test_the_start_is_the_empty_bundle_and_a_candidate_what_differs_from_it() -> None:
    start = Program({"a.py": "A = 1\n", "b.txt": "say it"}, "a.py")
    form = ProgramCodec(start, {"b.txt": "prompt"}, {"b.txt": "prompt"})
    assert not form.bundle(start)
    assert form.program(Bundle()).parts == start.parts
    other = start.with_part("b.txt", "say it kindly")
    bundle = form.bundle(other)
    assert dict(bundle.items())["prompt"].content == "say it kindly"
    assert bundle["prompt"].parent == form.baseline["prompt"].id
    assert form.program(bundle).parts == other.parts


def test_answers_made_without_the_sandbox_promote_nothing_whoever_asks_the_gate() -> None:
    from dataclasses import replace

    from whet.prove.gate import compare
    from whet.types import Score, Task

    def runs(value: float, **meta: Any) -> list[Trajectory]:
        made = [Trajectory(task=Task(id=f"t{n}")) for n in range(40)]
        return [replace(run.scored(Score("score", value)), meta=meta) for run in made]

    assert compare(runs(0.0), runs(1.0), metric="score").promote
    for mark, said in (("trusted_only", "without the sandbox"), ("co_resident", "beside their judge")):
        verdict = compare(runs(0.0), runs(1.0, **{mark: True}), metric="score")
        assert not verdict.promote
        assert f"40 of 40 answers were made {said}" in " ".join(verdict.reasons)
