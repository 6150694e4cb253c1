"""`whet train METHOD` with a learner of another, installed package: listed, described, and run with its own options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from processes import whet as whet_command

pytest.importorskip("torch")

import whet
from whet.record.store import read_bundle

CODE = '''
from dataclasses import dataclass, field
from typing import Literal

import whet


@dataclass(frozen=True, kw_only=True)
class Inner:
    """How much."""

    weight: float = 0.5
    """Of a thumb."""


@dataclass(frozen=True, kw_only=True)
class PluralityOptions:
    """How to count."""

    resource: str = "answer"
    """Name of the text that is learned."""
    case: Literal["kept", "lower"] = "kept"
    """Whether answers are told apart by their case."""
    score: str | None = None
    """Score that an answer counts by; None counts each once."""
    counting: Inner = field(default_factory=Inner)
    """How one counts."""


class Plurality:
    """Keeps the answer that is worth most over the record."""

    name, group_size, on_policy, ordered = "plurality", 0, False, False

    def __init__(self, options: PluralityOptions | None = None) -> None:
        self.options = options or PluralityOptions()

    async def step(self, bundle, groups, context):
        counts = {}
        for run in (run for group in groups for run in group.trajectories):
            text = run.output.lower() if self.options.case == "lower" else run.output
            worth = 1.0 if self.options.score is None else run.score(self.options.score)
            counts[text] = counts.get(text, 0.0) + worth * self.options.counting.weight
        best = max(counts, key=counts.get)
        version = whet.Version(resource=self.options.resource, content=best)
        return whet.Update(bundle=bundle.put(version), metrics={"worth": counts[best]}, done=True, reason="counted")


class Asking(Plurality):
    """The same of what the agent answers now."""

    name, group_size, on_policy = "asking", 2, True


@dataclass(frozen=True)
class Clashing:
    store: int = 1


class Bare:
    """Takes nothing."""

    name, group_size, on_policy, ordered = "bare", 0, False, False

    async def step(self, bundle, groups, context):
        return whet.Update(bundle=bundle.put(whet.Version(resource="number", content=len(groups))), done=True)


class Broken(Bare):
    def __init__(self, options: Clashing = Clashing()) -> None: ...


class Vague(Bare):
    def __init__(self, options=None) -> None: ...
'''
ENTRIES = """[whet.optimizers]
asking = counting:Asking
plurality = counting:Plurality
bare = counting:Bare
broken = counting:Broken
vague = counting:Vague
gone = counting:Gone
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A package as an installer leaves it: its code, and its metadata beside it."""
    info = tmp_path / "counting-1.0.dist-info"
    info.mkdir()
    (tmp_path / "counting.py").write_text(CODE)
    about = "Metadata-Version: 2.1\nName: counting\nVersion: 1.0\nSummary: Learners that count.\n"
    (info / "METADATA").write_text(about)
    (info / "entry_points.txt").write_text(ENTRIES)
    return tmp_path


def shell(site: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return whet_command(*words, PYTHONPATH=str(site), COLUMNS="160")


ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from whet.cli import main

for words in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def together(site: Path, *commands: list[object]) -> list[subprocess.CompletedProcess[str]]:
    """Commands in one process, which imports torch once."""
    words = json.dumps([[*map(str, command)] for command in commands])
    environment = {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "160"}
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    ended = map(json.loads, done.stdout.splitlines())
    return [
        subprocess.CompletedProcess(command, *parts) for command, parts in zip(commands, ended, strict=True)
    ]


def runs(*outputs: str) -> list[whet.Trajectory]:
    return [
        whet.Trajectory(
            task=whet.Task(instruction=str(number % 2)), output=text, outcome=whet.Outcome.SUCCESS
        )
        for number, text in enumerate(outputs)
    ]


def test_a_plug_in_is_listed_and_described_with_its_options(site: Path) -> None:
    listed = shell(site, "train", "--help")
    assert listed.returncode == 0, listed.stderr
    (line,) = [line for line in listed.stdout.splitlines() if " plurality " in line]
    assert "Learners that count. (plug-in of counting)" in line
    assert " sft " in listed.stdout
    described = shell(site, "train", "plurality", "--help")
    assert described.returncode == 0, described.stderr
    for text in (
        "worth most over the record",
        "--case",
        "told apart by their case",
        "--counting.weight",
        "--output",
    ):
        assert text in described.stdout


def test_a_plug_in_learns_from_a_record_with_its_options_and_its_output_is_released(site: Path) -> None:
    store = site / "runs.db"
    with whet.Store(store) as opened:
        opened.put(*runs("a", "b", "B", "a", "B"))
    options = {"kept": [], "lower": ["--case", "lower", "--counting.weight", "2"]}
    learn = ["train", "plurality", "--store", store, "--output"]
    kept, lower, text, again, released, following = together(
        site,
        *([*learn, site / name, "--json", *more] for name, more in options.items()),
        [*learn, site / "text"],
        [*learn, site / "text", "--resume", "--case", "lower"],
        ["release", site / "kept", "--store", store, "--unproven", "--new-name"],
        ["train", "bare", "--store", store, "--output", site / "next"],
    )
    learned = {}
    for name, done in (("kept", kept), ("lower", lower)):
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        learned[name] = (told["bundle"]["answer"], told["metrics"]["worth"], told["reason"])
        assert read_bundle(site / name).bundle["answer"].content == learned[name][0]
        assert json.loads((site / name / "run.json").read_text())["settings"]["case"] == name
    assert learned == {"kept": ("a", 1.0, "counted"), "lower": ("b", 6.0, "counted")}
    assert "counted" in text.stdout
    assert "with other case" in again.stderr
    assert released.returncode == 0, released.stderr
    with whet.Store(store) as opened:
        live = opened.live()
        assert live is not None
        assert live["answer"].content == "a"
    assert following.returncode == 0, following.stderr
    # what is live is what the next one begins with
    assert {name: one.content for name, one in read_bundle(site / "next").bundle.items()} == {
        "answer": "a",
        "number": 2,
    }


def test_a_reward_function_judges_what_a_plug_in_learns_from(site: Path) -> None:
    (site / "worth.py").write_text("def longest(run):\n    return float(len(run.output))\n")
    file = site / "runs.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(run) + b"\n" for run in runs("a", "a", "long")))
    words = ["train", "plurality", "--data", file, "--output", site / "out"]
    done = shell(site, *words, "--reward-function", "worth:longest", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bundle"]["answer"] == "long"


def test_a_plug_in_samples_in_an_environment(site: Path) -> None:
    (site / "world.py").write_text("import whet\nagent = whet.calls(lambda question: question + '!')\n")
    tasks = [whet.Task(instruction=text, group=text) for text in "abcdefghijkl"]
    (site / "tasks.jsonl").write_bytes(b"".join(msgspec.json.encode(task) + b"\n" for task in tasks))
    words = ["train", "asking", "--env", "world:agent", "--tasks-file", site / "tasks.jsonl"]
    done = shell(site, *words, "--output", site / "out", "--max-rollouts", 60, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bundle"]["answer"].endswith("!")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nope"], "no method 'nope'"),
        (["broken", "--help"], "include store, which every whet train has"),
        (["vague", "--help"], "annotate the parameter"),
        (["gone", "--help"], "counting:Gone, cannot be imported"),
        (["bare", "--output", "OUT"], "--data FILE or as --store FILE"),
        (["bare", "--output", "OUT", "--data", "EMPTY"], "there are no trajectories"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(site: Path, words: list[str], told: str) -> None:
    (site / "EMPTY").write_text("")
    places = {"OUT": site / "out", "EMPTY": site / "EMPTY"}
    done = shell(site, "train", *(places.get(word, word) for word in words))
    assert done.returncode not in (0, 1), done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    if words == ["nope"]:
        assert "sft" in done.stderr
        assert "asking, bare, broken, gone, plurality, vague" in done.stderr


def test_a_plug_in_with_the_name_of_a_method_is_refused(site: Path) -> None:
    entries = site / "counting-1.0.dist-info" / "entry_points.txt"
    entries.write_text("[whet.optimizers]\nwebrl = counting:Bare\n")
    done = shell(site, "train", "--help")
    assert "has the name of one of whet's own methods" in done.stderr
    assert shell(site, "--help").returncode == 0
