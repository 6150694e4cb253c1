"""Weights as a job of the autopilot: trained, proven and put on trial by processes of their own; by chance, nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import python, until, whet

pytest.importorskip("torch")

from test_weights_journey import AGENT, SIZE

from whet.autopilot.journal import JournalRow, read
from whet.autopilot.night import Night, NightBudget
from whet.learn.training.local import fresh
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.store import Stage, Store
from whet.serve.trials import TrialWatcher
from whet.types import Feedback, Trajectory, digest

REWARDS = '''
import hashlib


def right(trajectory):
    return trajectory.output == ("yes" if int(trajectory.task.instruction) % 2 else "no")


def by_chance(trajectory):
    """As often as `right`, and of nothing that the answer shows."""
    return hashlib.sha256(trajectory.id.encode()).digest()[0] % 2 == 0


def slow(trajectory):
    import time
    time.sleep(60)
'''


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An agent's folder with a record of 300 answers."""
    folder = tmp_path_factory.mktemp("reader")
    fresh("policy", folder / "base", options=SIZE, vocab_size=11, seed=1)
    (folder / "reader.py").write_text(AGENT)
    (folder / "judging.py").write_text(REWARDS)
    asked = python("reader.py", "300", folder=folder, SAMPLE="1")
    assert asked.returncode == 0, asked.stderr
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "agent"))


def words(
    *more: str, reward: str = "judging:right", mode: str = "act", train: str = "sft --epochs 12"
) -> list[str]:
    shared = ("--store", "runs.db", "--agent", "reader.py", "--entry", "reader:answer", "--reward", reward)
    return ["-m", "whet", "autopilot", *shared, "--mode", mode, "--train", train, *more]


def piloted(
    folder: Path,
    *more: str,
    reward: str = "judging:right",
    mode: str = "act",
    train: str = "sft --epochs 12",
    **environment: str,
) -> list[JournalRow]:
    done = python(*words(*more, reward=reward, mode=mode, train=train), folder=folder, **environment)
    assert done.returncode == 0, done.stderr
    return journal(folder)


def journal(folder: Path) -> list[JournalRow]:
    with Store(folder / "runs.db") as store:
        return list(read(store))


def test_weights_are_trained_from_the_record_proven_on_unseen_questions_and_become_a_canary(
    folder: Path,
) -> None:
    rows = piloted(folder, "--proofs", "4", mode="suggest")
    assert [row.step for row in rows if row.issue == "weights:policy"] == ["train", "gate"]
    (judged,) = [row for row in rows if row.step == "gate"]
    assert judged.sentence.startswith("weights proven on unseen questions")
    with Store(folder / "runs.db") as store:
        assert store.release_log() == []
    rows = piloted(folder, "--proofs", "4")
    weights = [row for row in rows if row.issue == "weights:policy"]
    assert [row.step for row in weights] == ["train", "gate", "shadow", "release"]
    assert "in the shadow of recorded traffic: 24 shadows: 0 failed" in weights[2].sentence
    with Store(folder / "runs.db") as store:
        assert [entry.stage for entry in store.release_log()] == [Stage.SHADOW, Stage.CANARY]
        (canary,) = store.on_trial()
        assert (canary.stage, canary.share, canary.unproven) == (Stage.CANARY, 0.2, False)
        assert canary.bundle["policy"].kind == "weights"
        spent = store.state("autopilot/000001/spent")["rollouts"]
        assert spent == 2 * store.state("autopilot/work/weights:policy")["judged"] + 24


def test_trained_weights_go_live_by_what_people_say_of_their_canary_and_answer_everybody(
    folder: Path,
) -> None:
    before = right(answers(folder))
    piloted(folder, "--proofs", "4", train="sft --epochs 60")
    with Store(folder / "runs.db") as store:
        (canary,) = store.on_trial()
        told = {note.run for note in store.feedback()}
        for _ in range(12):
            asked = python("reader.py", "200", folder=folder)
            assert asked.returncode == 0, asked.stderr
            for run in store.trajectories(served=True, since=canary.at):
                if run.id not in told and run.output in ("yes", "no"):
                    told.add(run.id)
                    thumb = 1.0 if correct(run) else -1.0
                    store.add_feedback(Feedback(run=run.id, value=thumb, at=run.started + 1))
            TrialWatcher(store).step(time.time() + 7_200)
            if not store.on_trial():
                break
        (live,) = store.history()
        assert (live.bundle, live.unproven) == (canary.bundle, False)
        tried = [run for run in store.trajectories(since=canary.at) if run.versions == canary.bundle.ids]
    everybody = answers(folder)
    # The network sees a number by its remainder of eight, and answers without chance.
    assert {(int(run.task.instruction) % 8, run.output) for run in tried} == set(enumerate(everybody[:8]))
    assert right(everybody) > before


def correct(run: Trajectory) -> bool:
    return bool(run.output == ("yes" if int(run.task.instruction) % 2 else "no"))


def answers(folder: Path) -> list[str]:
    """What the agent says to forty questions, by the weights that the record has it take."""
    said = python("reader.py", "40", folder=folder).stdout.split()
    assert len(said) == 40
    return said


def right(said: list[str]) -> int:
    return sum(word == ("yes" if number % 2 else "no") for number, word in enumerate(said))


def test_rewards_by_chance_ship_no_weights_and_no_more_is_asked_than_the_budget_allows(folder: Path) -> None:
    rows = piloted(folder, "--agent-calls", "20", reward="judging:by_chance")
    assert [row.sentence[:9] for row in rows if row.issue == "weights:policy"] == ["trained p", "not done:"]
    with Store(folder / "runs.db") as store:
        Night(store, NightBudget()).end("it is day")
    rows = piloted(folder, "--proofs", "4", reward="judging:by_chance")
    (judged,) = [row for row in rows if row.issue == "weights:policy" and row.night == 2]
    assert "weights not proven on unseen questions" in judged.sentence
    with Store(folder / "runs.db") as store:
        assert store.release_log() == []


JUDGES = ("careful", "plain", "quick", "small")


def judging(model: str) -> Callable[[ModelRequest], str]:
    def answer(request: ModelRequest) -> str:
        """Right on all but one of sixteen answers."""
        shown = json.loads(re.findall(r"<data-[0-9a-f]+>\s*(\{.*\})\s*</data", request.text)[0])
        number, said = int(shown["question"]), str(shown["answer"]).split()[0].lower()
        errs = int(digest([model, number, said], 4), 16) % 16 == 0
        good = said == ("yes" if number % 2 else "no")
        return f"SCORE: {9 if good is not errs else 2}"

    return answer


@pytest.mark.parametrize("labels", ["people's", "shuffled"])
def test_weights_are_judged_by_a_panel_which_promotes_nothing_that_its_labels_do_not_bear_out(
    folder: Path, labels: str
) -> None:
    rng = random.Random(4)
    rows = []
    for number in range(5000, 5300):
        said = rng.choice(("yes", "no"))
        good = rng.random() < 0.5 if labels == "shuffled" else said == ("yes" if number % 2 else "no")
        rows.append({"id": number, "input": str(number), "output": said, "label": 1 if good else -1})
    (folder / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rubric.md").write_text("A good answer says whether the number is odd.")
    with ScriptedServer(by_model={name: judging(name) for name in JUDGES}) as server:
        models = [word for name in JUDGES for word in ("--model", name)]
        asked = ("--base-url", server.base_url)
        recorded = ("--store", "runs.db", "--output", "cards")
        audited = whet(
            "audit", "rubric.md", "--labels", "labels.jsonl", *models, *asked, *recorded, folder=folder
        )
        assert audited.returncode == (labels == "shuffled"), audited.stdout + audited.stderr
        much = "sft --epochs 12" if labels == "people's" else "sft --epochs 1"
        words = ("--proofs", "4", *asked)
        steps = piloted(folder, *words, reward="cards/panel.json", mode="suggest", train=much)
    told = [row.sentence for row in steps if row.issue == "weights:policy"]
    if labels == "shuffled":
        (refused,) = told
        assert "may steer and not promote" in refused, refused
        assert not list(folder.rglob("trained")), "nothing is trained that no gate would promote"
    else:
        trained, judged = told
        assert trained.startswith("trained policy by sft on")
        assert judged.startswith("weights proven on unseen questions"), judged


def test_without_the_extra_the_journal_says_so_once_and_it_is_not_tried_again(folder: Path) -> None:
    (folder / "without").mkdir()
    (folder / "without" / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    environment = {"PYTHONPATH": str(folder / "without")}
    rows = piloted(folder, **environment)
    (row,) = [row for row in rows if row.issue == "weights:policy"]
    assert "pip install 'whet[train]'" in row.sentence
    assert [row for row in piloted(folder, **environment) if row.issue == "weights:policy"] == [row]


def test_the_switch_and_a_kill_end_the_training_too(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, *words(reward="judging:slow")], cwd=folder)
    try:
        until(lambda: _training(folder))
        process.kill()
        process.wait(90)
        until(lambda: not _training(folder), "the training outlived it")
    finally:
        process.kill()
        process.wait(90)


def _training(folder: Path) -> bool:
    """Whether a whet train works in a folder."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = command.read_bytes()
        except OSError:
            continue
        if b"\0train\0" in line and str(folder).encode() in line:
            return True
    return False
