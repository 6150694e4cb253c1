"""A panel fitted on labelled answers at the command line, and used as a reward: sure, silent, refused, never fooled."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from commands import whet as whet_here
from processes import python
from processes import whet as whet_command

import whet
from whet.errors import InputError
from whet.judge.panel import Panel
from whet.judge.panel_reward import PanelReward
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.models.fakes import ScriptedServer
from whet.record.rows import row
from whet.types import Score, Trajectory, digest

RUBRIC = "A good answer gives the warranty in years."
JUDGES = {"careful": 0.12, "plain": 0.17, "quick": 0.21, "small": 0.25}
"""Model → share of the answers that it errs on, by their hash; on answers that are sung all but one guess."""
SHOP = """\
import whet

share = whet.resource("share", default={"good": 3})
manner = whet.resource("manner", default="")


@whet.trace
def reply(question: str) -> str:
    number = int(question.split()[-1].rstrip("?"))
    good = number % 10 < share.get()["good"]
    return f"Rake {number}: {2 + number % 7} {'years' if good else 'later'}{manner.get()}."
"""


def judging(model: str) -> Callable[[ModelRequest], str]:
    def answer(request: ModelRequest) -> str:
        shown = json.loads(re.findall(r"<data-[0-9a-f]+>\s*(\{.*\})\s*</data", request.text)[0])
        text = str(shown["answer"])
        good, sung = "years" in text, "sung" in text
        drawn = int(digest([model, re.findall(r"Rake (\d+)", text), good, sung], 4), 16) / 16**4
        errs = drawn < (0.5 if sung and model != "plain" else JUDGES[model])
        return f"Reasons.\nSCORE: {9 if good is not errs else 2}"

    return answer


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(by_model={name: judging(name) for name in JUDGES}) as running:
        yield running


def answer_of(number: int, good: bool, *, how: str = "") -> str:
    return f"Rake {number}: {2 + number % 7} {'years' if good else 'later'}{how}."


def label(path: Path, *, count: int = 300, shuffled: bool = False, kind: str = "") -> None:
    drawn = random.Random(5)
    rows = []
    for number in range(count):
        good = drawn.random() < 0.5
        named = drawn.random() < 0.5 if shuffled else good
        rows.append(
            {
                "id": number,
                "input": f"rake {number}?",
                "output": answer_of(number, good, how=" or so" * drawn.randrange(3)),
                "label": int(named) * 2 - 1,
            }
            | ({"kind": kind} if kind else {})
        )
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))


def audit(folder: Path, server: ScriptedServer, *models: str, store: str = "runs.db") -> tuple[int, str]:
    named = [word for model in models or tuple(JUDGES) for word in ("--model", model)]
    with whet.Store(folder / store):
        pass
    done = whet_here(
        "audit", "rubric.md", "--labels", "labels.jsonl", *named, "--base-url", server.base_url, "--store", store,
        "--output", "cards", folder=folder,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A rubric, labels, and an agent whose answers are good as often as its setting says."""
    (tmp_path / "rubric.md").write_text(RUBRIC)
    label(tmp_path / "labels.jsonl")
    (tmp_path / "shop.py").write_text(SHOP)
    tasks = [
        {"instruction": f"How long is the warranty of rake {n}?", "group": f"g{n}"} for n in range(1000, 1300)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in tasks))
    return tmp_path


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, server: ScriptedServer) -> tuple[Path, str]:
    """A record with a panel of people's labels and its card, and what the command said."""
    folder = tmp_path_factory.mktemp("audited")
    (folder / "rubric.md").write_text(RUBRIC)
    label(folder / "labels.jsonl")
    code, out = audit(folder, server)
    assert code == 0, out
    return folder, out


@pytest.fixture
def judged(folder: Path, audited: tuple[Path, str]) -> Path:
    """The agent's folder with that record."""
    shutil.copytree(audited[0], folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def marked(folder: Path, audited: tuple[Path, str]) -> Path:
    """The agent's folder with the marks of that record, which no judge is asked for again, and no card in a file."""
    shutil.copy(audited[0] / "runs.db", folder)
    return folder


def bundle(folder: Path, **contents: object) -> str:
    made = whet.Bundle([whet.Version(resource=name, content=content) for name, content in contents.items()])
    with whet.Store(folder / "runs.db") as store:
        store.put_bundle(made)
    return made.id


def command(folder: Path, server: ScriptedServer, *words: str) -> tuple[int, str]:
    done = whet_command(*words, "--store", "runs.db", "--base-url", server.base_url, folder=folder)
    return done.returncode, done.stdout + done.stderr


def test_a_panel_is_fitted_on_labels_and_decides_at_the_gate_where_it_is_sure(
    judged: Path, server: ScriptedServer, audited: tuple[Path, str]
) -> None:
    folder, out = judged, audited[1]
    told = re.search(r"alone, any answer: sure of (\d+)% of 300 answers, right on (\S+) of these", out)
    assert told is not None, out
    assert int(told[1]) > 50
    assert float(told[2]) >= 0.95
    assert int(told[1]) < 100
    assert re.search(r"panel +0\.9\d+ .*admitted", out)
    better = bundle(folder, share={"good": 8})
    gate = ("--entry", "shop:reply", "--reward", "cards/panel.json", "--data", "tasks.jsonl")
    code, out = command(folder, server, "gate", "none", better, *gate)
    assert "HELD BACK: shown to be better" in out, out
    code, out = command(folder, server, "gate", better, "none", *gate)
    assert "DO NOT PROMOTE" in out
    with whet.Store(folder / "runs.db") as store:
        scores = [run.scores["panel"] for run in store.trajectories() if "panel" in run.scores]
        values = {score.value for score in scores}
        assert values == {0.0, 1.0, None}, "sure of good, sure of bad, and silent"
        silent = [score for score in scores if score.value is None]
        assert all(score.reason.startswith("abstains: careful ") for score in silent)
        assert not any(score.uncalibrated for score in scores)
        rights = [
            score.value == float("years" in run.output_text)
            for run in store.trajectories()
            if (score := run.scores.get("panel")) is not None and score.value is not None
        ]
        assert sum(rights) / len(rights) >= 0.93
    # Answers of another manner, on which all but one of the judges guess: whatever they say proves nothing.
    sung = bundle(folder, share={"good": 9}, manner=" (sung)")
    code, out = command(folder, server, "gate", "none", sung, *gate)
    assert "DO NOT PROMOTE" in out
    assert "takes its scores back: on" in out
    assert "the judges agree otherwise than on the labelled ones" in out
    # Of the record, too, none of such runs is left with a score; the others keep theirs, and no answer is bought again.
    asked = len(server.requests)
    code, out = command(folder, server, "score", "--reward", "cards/panel.json")
    assert code == 0, out
    assert ", refused: on" in out
    assert len(server.requests) == asked
    with whet.Store(folder / "runs.db") as store:
        runs = list(store.trajectories())
        assert {run.scores["panel"].value for run in runs if "sung" in run.output_text} == {None}
        sure = [
            run for run in runs if "sung" not in run.output_text and run.scores["panel"].value is not None
        ]
        assert len(sure) > 30


def test_a_panel_of_shuffled_labels_steers_and_never_promotes(
    folder: Path, server: ScriptedServer, audited: tuple[Path, str]
) -> None:
    label(folder / "labels.jsonl", shuffled=True)
    code, out = audit(folder, server)
    assert code == 1, out
    assert re.search(r"panel +0\.\d+ .*refused: it is not right more often, beyond chance", out)
    better = bundle(folder, share={"good": 9})
    gate = ("--entry", "shop:reply", "--reward", "cards/panel.json", "--data", "tasks.jsonl")
    code, out = command(folder, server, "gate", "none", better, *gate)
    assert (code, "panel may steer and not promote" in out) == (2, True), out
    panel = ("--reward", "cards/panel.json")
    few = (folder / "tasks.jsonl").read_text().splitlines(keepends=True)[:60]
    (folder / "few.jsonl").write_text("".join(few))
    code, out = command(folder, server, "baseline", "shop:reply", *panel, "--data", "few.jsonl")
    assert code == 0, out
    with whet.Store(folder / "runs.db") as store:
        scores = [run.scores["panel"] for run in store.trajectories()]
        assert all(score.uncalibrated and score.value is not None for score in scores)
    # That it promotes nothing is told before anything is spent; a judge that gets no card decides at no gate.
    asked = len(server.requests)
    words = ("improve", "shop:reply", *panel, "--data", "few.jsonl", "--with", "evolve", "--dry-run")
    code, out = command(folder, server, *words)
    assert (code, "it may steer, and the gate promotes nothing by it" in out) == (0, True), out
    words = ("--reward", "factual", "--judge-model", "careful", "--data", "few.jsonl")
    code, out = command(folder, server, "gate", "none", better, "--entry", "shop:reply", *words)
    assert (code, "the gate promotes nothing by it" in out) == (2, True), out
    assert len(server.requests) == asked
    # The panel itself, without its card in the record that a gate reads, may not promote either.
    shutil.copytree(audited[0] / "cards", folder / "cards", dirs_exist_ok=True)
    code, out = command(folder, server, "gate", "none", better, *gate)
    assert re.search(
        r"is a panel without a reliability card in \S+runs\.db: it may steer, and promotes nothing", out
    )


def test_an_agent_is_improved_by_a_panel(judged: Path, server: ScriptedServer) -> None:
    code, out = command(
        judged, server, "improve", "shop:reply", "--reward", "cards/panel.json", "--data", "tasks.jsonl",
        "--with", "evolve", "--rollouts", "600",
    )  # fmt: skip
    assert code == 0, out
    assert "HELD BACK: shown to be better than the agent as it is" in out, out
    assert re.search(r'\+  "good": ([6-9]|\d\d)', out)


TRAFFIC = """\
import whet
from shop import reply

with whet.Store("runs.db") as store:
    traced = whet.trace(store)(reply)
    for number in range(1000, 1120):
        with whet.run(subject=f"p{number}"):
            traced(f"How long is the warranty of rake {number}?")
"""


def test_a_shadow_is_judged_by_a_panel_which_promotes_nothing_where_it_was_not_calibrated(
    judged: Path, server: ScriptedServer
) -> None:
    folder = judged
    (folder / "traffic.py").write_text(TRAFFIC)
    assert python("traffic.py", folder=folder).returncode == 0

    def verdict(**contents: object) -> str:
        release = ("release", bundle(folder, **contents), "--to", "shadow", "--store", "runs.db", "--json")
        assert whet_here(*release, folder=folder).returncode == 0
        with whet.Store(folder / "runs.db") as store:
            trial = store.release_log()[-1].trial
        replay = ("replay", "shop:reply", "--store", "runs.db", "--trial", trial)
        done = whet_command(*replay, folder=folder)
        assert "120 runs replayed under the candidate" in done.stdout, done.stdout + done.stderr
        told = ("verdict", "--shadow", trial, "--reward", "cards/panel.json", "--store", "runs.db")
        done = whet_here(*told, "--base-url", server.base_url, folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert verdict(share={"good": 9}).startswith("KEEP: shadow ")
    assert verdict(share={"good": 3}, manner="").startswith("DROP: ")
    sung = verdict(share={"good": 9}, manner=" (sung)")
    assert sung.startswith("DROP: ")
    assert "panel takes its scores back: on" in sung


def test_what_is_no_panel_of_single_answers_is_said(marked: Path, server: ScriptedServer) -> None:
    folder = marked
    code, out = audit(folder, server, "careful", "plain")
    assert code == 0, out
    assert "no panel: it takes 3 models" in out
    assert not (folder / "cards" / "panel.json").exists()
    pairs, verdicts = [], []
    for number in range(60):
        sides = {f"output_{side}": answer_of(number, number % 2 == side - 1) for side in (1, 2)}
        pairs.append({"input": f"rake {number}?", "label": 1 + number % 2, **sides})
        told = {"id": str(number + 1), "winner": [1 + number % 2] * 2}
        verdicts += [{"judge": f"{name}/x", **told} for name in JUDGES]
    (folder / "labels.jsonl").write_text("".join(json.dumps(one) + "\n" for one in pairs))
    (folder / "verdicts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in verdicts))
    done = whet_command(
        "audit", "verdicts.jsonl", "--labels", "labels.jsonl", "--output", "cards", folder=folder
    )
    assert (folder / "cards" / "panel.json").exists(), done.stdout + done.stderr
    code, out = command(folder, server, "score", "--reward", "cards/panel.json")
    assert (code, "cards/panel.json: this panel was fitted on verdicts that were recorded" in out) == (
        2,
        True,
    ), out
    assert "Traceback" not in out


def test_a_kind_without_labels_is_refused_and_a_judge_that_fails_is_no_vote(
    marked: Path, server: ScriptedServer
) -> None:
    folder = marked
    label(folder / "labels.jsonl", kind="rakes")
    assert audit(folder, server)[0] == 0
    panel = msgspec.json.decode((folder / "cards" / "panel.json").read_bytes(), type=Panel)
    failing: set[str] = set()

    def asked(model: str) -> Callable[[ModelRequest], str]:
        def answer(request: ModelRequest) -> str:
            return "no mark" if model in failing else judging(model)(request)

        return answer

    models = {name: ScriptedModel(asked(name), name=name) for name in JUDGES}

    def judged(number: int, *, kind: str = "rakes", output: str | None = None) -> Score:
        task = replace(row(f"rake {number}?"), meta={"kind": kind})
        said = answer_of(number, True) if output is None else output
        return asyncio.run(PanelReward(panel, models)(Trajectory(task=task, output=said)))

    assert judged(1).uncalibrated
    assert judged(1).value is not None
    assert judged(1, kind="spades").value is None
    assert "has no labels of 'spades', only of rakes" in judged(1, kind="spades").reason
    assert judged(1, output=" ").value == 0.0
    failing |= {"plain"}
    assert "plain" not in judged(1).reason
    failing |= {"quick"}
    assert judged(1).value is None
    assert "2 models voted, and it takes 3" in judged(1).reason
    with pytest.raises(InputError, match="names no judges"):
        PanelReward(msgspec.structs.replace(panel, judges={}), models)
