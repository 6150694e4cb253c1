"""`whet improve` and `whet gate` on an agent in a folder, from its record to what is live, as a person runs them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import msgspec
import pytest
from processes import whet as whet_command

import whet

AGENT = '''
import whet

limits = whet.resource("limits", default={"senior": 90, "days": 3})

def desk(claim: str) -> str:
    """Who decides about a claim."""
    return "senior" if int(claim) % 100 >= limits["senior"] else "junior"

def right(trajectory):
    return trajectory.output == trajectory.task.answer

def answers(trajectory):
    return trajectory.output is not None
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An agent, and what it was asked, with what would have been right."""
    (tmp_path / "claims.py").write_text(AGENT)
    with whet.Store(tmp_path / "runs.db") as store:
        runs, said = [], []
        for number in range(360):
            amount = number * 37 % 100
            task = whet.Task(instruction=str(number * 100 + amount), group=f"customer {number // 3}")
            run = whet.Trajectory(task=task, output="senior" if amount >= 90 else "junior")
            runs.append(run)
            correct = "senior" if amount >= 60 else "junior"
            said.append(whet.Feedback(run=run.id, kind="correction", correction=correct))
        store.put(*runs)
        store.add_feedback(*said)
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return whet_command(*words, folder=folder)


IMPROVE = (
    "improve",
    "claims:desk",
    "--store",
    "runs.db",
    "--reward",
    "claims:right",
    "--reward",
    "claims:answers",
)


def test_an_agent_is_improved_proven_and_released_from_its_record(folder: Path) -> None:
    plan = command(folder, *IMPROVE, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "evolve: limits on " in plan.stdout
    assert "power" in plan.stdout
    assert "new-group decides" in plan.stdout
    assert "head: not used, because 0 runs with a thumb" in plan.stdout
    done = command(folder, *IMPROVE, "--release", "--not-lower", "answers:0.05")
    assert done.returncode == 0, done.stderr
    assert "evolve enters: +" in done.stdout
    assert "PROMOTE" in done.stdout
    assert "guardrail answers: holds" in done.stdout
    assert '+  "senior":' in done.stdout
    assert "released; whet rollback takes it back" in done.stdout
    with whet.Store(folder / "runs.db") as store:
        live = store.live()
        assert live is not None
        assert 50 < live["limits"].content["senior"] < 75
        verdict = list(store.verdicts(candidate=live.id))[-1]
        assert verdict.promote
    gated = command(folder, "gate", "none", "live", "--entry", "claims:desk", "--store", "runs.db", "--reward",
                    "claims:right", "--json")  # fmt: skip
    assert gated.returncode == 0, gated.stderr
    assert msgspec.json.decode(gated.stdout)["promote"]
    worse = command(folder, "gate", "live", "none", "--entry", "claims:desk", "--store", "runs.db", "--reward",
                    "claims:right", "--ci")  # fmt: skip
    assert "DO NOT PROMOTE" in worse.stdout
    assert (worse.returncode, "::error title=whet gate::DROP" in worse.stdout) == (1, True), (
        "as a check of a workflow"
    )
    assert worse.stdout.startswith("power"), "what the gate's tasks can prove is said before they are run"
    chosen = command(folder, "gate", "none", "none", "--also", live.id, "--entry", "claims:desk", "--store", "runs.db",
                     "--reward", "claims:right", "--rollouts", "60")  # fmt: skip
    assert chosen.returncode == 0, chosen.stderr
    assert f"{live.id}: +" in chosen.stdout
    assert "It was chosen among 2" in chosen.stdout
    assert command(folder, "rollback", "--store", "runs.db").returncode == 0
    with whet.Store(folder / "runs.db") as store:
        assert not store.live()


def test_with_shuffled_corrections_nothing_is_released(folder: Path) -> None:
    with whet.Store(folder / "runs.db") as store:
        rng = random.Random(3)
        runs = list(store.trajectories())
        store.add_feedback(
            *(
                whet.Feedback(
                    run=run.id, kind="correction", correction=rng.choice(["senior", "junior"]), at=2e9
                )
                for run in runs
            )
        )
    done = command(folder, *IMPROVE, "--release", "--json")
    assert done.returncode == 0, done.stderr
    assert not msgspec.json.decode(done.stdout)["released"]
    with whet.Store(folder / "runs.db") as store:
        assert not store.live()


def test_what_cannot_be_improved_says_what_is_missing(folder: Path) -> None:
    (folder / "plain.py").write_text("def plain(text: str) -> str:\n    return text\n")
    done = command(folder, "improve", "plain:plain", "--store", "runs.db", "--reward", "exact")
    assert done.returncode == 2
    assert "evolve: not used, because the agent declares nothing that can vary" in done.stdout
    assert "name a learner with --with" in done.stderr
    done = command(folder, *IMPROVE, "--with", "evolv")
    assert "there are awr, dpo, evolve" in done.stderr
    done = command(folder, *IMPROVE, "--not-lower", "answers")
    assert "is not NAME:MARGIN" in done.stderr
    done = command(
        folder, "gate", "nowhere", "--entry", "claims:desk", "--store", "runs.db", "--reward", "exact"
    )
    assert done.returncode == 2
    assert "nowhere" in done.stderr
