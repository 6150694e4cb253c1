"""`whet baseline`: an agent and an environment are measured as they are, and nothing learns from those runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from processes import whet as whet_command

import whet

AGENT = '''
import whet

limits = whet.resource("limits", default={"senior": 90})

def desk(claim: str) -> str:
    """Who decides about a claim."""
    return "senior" if int(claim) % 100 >= limits["senior"] else "junior"

class Coin:
    """Guess a number from 0 to 3; the seed decides."""

    def reset(self, *, seed=None, options=None):
        self.right = seed % 4
        return "guess", {}

    def step(self, action):
        won = int(action) == self.right
        return "over", float(won), True, False, {"success": won}

class Down:
    def __init__(self):
        raise ConnectionError("the game's server is down")

class Two:
    async def act(self, observation):
        return whet.Action("2")

def always_two(bundle, seed):
    return Two()

def no_policy(bundle, seed):
    return lambda observation: "2"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An agent that is right on two of three tasks."""
    (tmp_path / "claims.py").write_text(AGENT)
    with (tmp_path / "tasks.jsonl").open("w") as file:
        for number in range(90):
            amount = (10, 95, 70)[number % 3]
            answer = "senior" if amount >= 60 else "junior"
            task = {"id": str(number), "instruction": str(number * 100 + amount), "answer": answer}
            file.write(json.dumps(task) + "\n")
    return tmp_path


BASELINE = ("baseline", "claims:desk", "--store", "runs.db", "--data", "tasks.jsonl", "--reward", "exact")


def test_an_agent_is_measured_on_tasks_and_recorded(folder: Path) -> None:
    shown = whet_command(*BASELINE, folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert "90 runs of claims:desk" in shown.stdout
    assert "66.7% [56.4%, 75.5%]" in shown.stdout
    fewer = whet_command(*BASELINE, "--tasks", "30", "--json", folder=folder)
    told = json.loads(fewer.stdout)["report"]
    assert (told["runs"], told["judged"]) == (30, 30)
    with whet.Store(folder / "runs.db") as store:
        assert store.counts()["trajectories"] == 90, "the thirty are among the ninety"


def test_the_columns_of_a_table_are_named_as_whet_improve_names_them(folder: Path) -> None:
    tasks = [json.loads(line) for line in (folder / "tasks.jsonl").read_text().splitlines()]
    lines = [
        f"{task['instruction']},{task['answer']},office {number % 9}" for number, task in enumerate(tasks)
    ]
    (folder / "claims.csv").write_text("\n".join(["sum,decided by,office", *lines]) + "\n")
    words = ("baseline", "claims:desk", "--store", "runs.db", "--reward", "exact")
    named = ("--input", "sum", "--expected", "decided by", "--group", "office")
    shown = whet_command(*words, "--data", "claims.csv", *named, folder=folder)
    assert shown.returncode == 0, shown.stderr
    assert "66.7% [56.4%, 75.5%]" in shown.stdout
    with whet.Store(folder / "runs.db") as store:
        assert {run.task.group for run in store.trajectories()} == {f"office {number}" for number in range(9)}


def test_what_is_live_is_what_is_measured(folder: Path) -> None:
    with whet.Store(folder / "runs.db") as store:
        limits = whet.Version(resource="limits", content={"senior": 60}, kind="parameters")
        store.put_versions(limits)
        store.release(whet.Bundle([limits]), unproven=True, new_names=True, reason="a test")
    live = json.loads(whet_command(*BASELINE, "--json", folder=folder).stdout)
    assert live["report"]["rate"] == 1.0
    none = json.loads(whet_command(*BASELINE, "--bundle", "none", "--json", folder=folder).stdout)
    assert none["report"]["rate"] == pytest.approx(2 / 3)


def test_an_environment_with_gymnasium_s_methods_needs_no_tasks(folder: Path) -> None:
    words = ("baseline", "--env", "claims:Coin", "--policy", "claims:always_two", "--store", "runs.db")
    shown = whet_command(*words, "--tasks", "200", "--json", folder=folder)
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)["report"]
    assert told["runs"] == 200
    assert 0.15 < told["rate"] < 0.35


def test_what_ended_all_runs_is_said(folder: Path) -> None:
    words = ("baseline", "--env", "claims:Coin", "--policy", "claims:no_policy", "--store", "runs.db")
    shown = whet_command(*words, "--tasks", "20", folder=folder)
    assert "20 runs ended by AttributeError: 'function' object has no attribute 'act'" in shown.stdout


def test_a_reward_that_breaks_on_every_run_is_said_and_measures_nothing(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "def broken(run):\n    return 1 / 0\n\n\n"
        "def picky(run):\n    return float(int(run.task.instruction) % 3 == 0) / (int(run.task.instruction) % 3 - 1)\n"
    )
    words = ("baseline", "claims:desk", "--store", "runs.db", "--data", "tasks.jsonl", "--reward")
    shown = whet_command(*words, "mine:broken", folder=folder)
    assert shown.returncode == 1
    line = "score broken: it breaks on each of them (ZeroDivisionError: division by zero), so it is broken itself"
    assert line in shown.stdout
    told = json.loads(whet_command(*words, "mine:broken", "--json", folder=folder).stdout)["report"]
    assert told["scores"]["broken"]["broke"] == told["runs"] == 90
    # An answer that breaks a reward which stands elsewhere is worth 0, and said to be.
    some = whet_command(*words, "mine:picky", folder=folder)
    assert some.returncode == 0
    assert re.search(r"score picky: \d+ runs broke it and count as 0 \(ZeroDivisionError", some.stdout)
    scored = whet_command("score", "--store", "runs.db", "--reward", "mine:broken", folder=folder)
    assert "it breaks on each of them (ZeroDivisionError: division by zero)" in scored.stdout


def test_an_agent_or_a_reward_that_ends_the_program_has_failed_and_ends_nothing(folder: Path) -> None:
    """The command ended with their exit code: 0 from whet gate --ci would have said keep."""
    (folder / "leaving.py").write_text(
        "import sys\n\ndef desk(claim):\n    sys.exit(0)\n\nasync def later(claim):\n    sys.exit(0)\n\n"
        "def reward(run):\n    sys.exit(0)\n"
    )
    words = ("--store", "runs.db", "--data", "tasks.jsonl", "--tasks", "10", "--reward")
    for agent in ("leaving:desk", "leaving:later"):
        shown = whet_command("baseline", agent, *words, "exact", folder=folder)
        assert shown.returncode == 0, shown.stderr
        assert "10 runs ended by SystemExit: 0" in shown.stdout
    judged = whet_command("baseline", "claims:desk", *words, "leaving:reward", folder=folder)
    assert judged.returncode == 1
    assert "it breaks on each of them (SystemExit: 0)" in judged.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("script:answer", "script cannot be imported: it ends the program (SystemExit: 0)"),
        ("claims.py:desk", "claims.py is a file; a module is named without its ending: claims:desk"),
    ],
)
def test_a_program_is_not_taken_for_a_module(name: str, said: str, folder: Path) -> None:
    (folder / "script.py").write_text("import sys\n\ndef answer(q):\n    return q\n\nsys.exit(0)\n")
    refused = whet_command("baseline", name, *BASELINE[2:], folder=folder)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_an_environment_that_cannot_be_made_is_one_sentence(folder: Path) -> None:
    words = ("baseline", "--env", "claims:Down", "--policy", "claims:always_two", "--store", "runs.db")
    refused = whet_command(*words, folder=folder)
    assert refused.returncode == 1
    assert "the environment Down cannot be made: ConnectionError: the game's server is down" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("baseline", "--store", "runs.db"), "one of the two"),
        (("baseline", "claims:desk", "--store", "runs.db"), "nothing says how good"),
        (("baseline", "claims:desk", "--store", "runs.db", "--reward", "exact"), "no store at runs.db"),
        ((*BASELINE[:-1], "nothing_such"), "nothing_such"),
        ((*BASELINE, "--input", "sum"), "has no column 'sum'; it has id, instruction, answer"),
        ((*BASELINE, "--input", "id", "--input", "instruction"), "one column of its input, not id and instr"),
        (
            ("baseline", "claims:desk", "--store", "runs.db", "--reward", "exact", "--input", "sum"),
            "give --data",
        ),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(
    words: tuple[str, ...], said: str, folder: Path
) -> None:
    refused = whet_command(*words, folder=folder)
    assert refused.returncode not in (0, 1), refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
