"""`whet gate` on several candidates at once, on rows: prompts' files and a CSV, and versions of a function."""

from __future__ import annotations

import asyncio
import csv
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from processes import whet as whet_command

import whet
from whet.errors import InputError
from whet.models.fakes import ScriptedServer
from whet.models.fakes.clerk import RULES, Clerk
from whet.record.rows import row
from whet.types import Split

PROMPTS = ("prompt.txt", "longer.txt", "polite.txt", "ruled.md")
"""What stands, two that change nothing, and one with half of the rules."""


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(Clerk(4)) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clerk = Clerk(4)
    texts = {
        "prompt.txt": clerk.prompt,
        "longer.txt": f"{clerk.prompt}\nRead it twice.\n",
        "polite.txt": f"{clerk.prompt}\nBe polite.\n",
        "ruled.md": "\n".join([clerk.prompt, *(f"- {rule.text}" for rule in RULES[: len(RULES) // 2])]),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    write(tmp_path / "letters.csv", clerk.rows(150, seed=7))
    return tmp_path


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def gate(
    folder: Path, server: ScriptedServer, *words: str, names: tuple[str, ...] = PROMPTS
) -> tuple[int, str]:
    also = [word for name in names[2:] for word in ("--also", name)]
    done = whet_command(
        "gate", *names[:2], *also, "--data", "letters.csv", "--store", "runs.db", "--model", "scripted",
        "--base-url", server.base_url, *words, folder=folder,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_a_csv_and_several_prompts_come_to_one_verdict_on_rows_that_nothing_was_chosen_on(
    folder: Path, server: ScriptedServer
) -> None:
    code, out = gate(folder, server, "--input", "question", "--expected", "answer")
    assert code == 0, out
    counts = re.search(r"(\d+) rows choose among 3 candidates, and (\d+) others judge the best", out)
    assert counts is not None, out
    assert int(counts[1]) + int(counts[2]) == 150
    assert "at most 600 calls of scripted: 150 rows under 4 prompts" in out
    assert len(server.requests) <= 600
    verdict = out[out.index("PROMOTE") :]
    assert (
        f"ruled.md was chosen among 3 on {counts[1]} pairs that are not judged here, where its effect"
        in verdict
    )
    assert re.search(r"on the tasks that it was not chosen on it is \+0\.\d+, without the luck", verdict)
    assert (
        "corrected for 3 candidates (e-BH at 0.05): ruled.md better; that any is, has an e-value" in verdict
    )
    assert "  longer.txt: +0.000 on the tasks that chose, e-value 0." in verdict
    # The answers are in the record: a second look, at two of them, asks for nothing again.
    asked = len(server.requests)
    code, out = gate(folder, server, "--json", names=("prompt.txt", "ruled.md"))
    again = msgspec.json.decode(out)
    assert (again["promote"], again["n"], again["tried"]) == (True, 150, 1)
    assert len(server.requests) == asked
    with whet.Store(folder / "runs.db") as store:
        verdicts = list(store.verdicts())
        assert {one.tried for one in verdicts} == {1, 3}
        assert all(store.bundle(one.candidate)["prompt.txt"].content for one in verdicts)
    assert whet_command("release", again["candidate"], "--store", "runs.db", folder=folder).returncode == 0


def test_with_shuffled_answers_the_best_of_several_prompts_is_not_promoted(
    folder: Path, server: ScriptedServer
) -> None:
    rows = Clerk(4).rows(150, seed=7)
    answers = [letter["answer"] for letter in rows]
    random.Random(1).shuffle(answers)
    write(
        folder / "letters.csv", [{**letter, "answer": one} for letter, one in zip(rows, answers, strict=True)]
    )
    code, out = gate(folder, server, "--ci")
    assert "DO NOT PROMOTE" in out
    assert code in (1, 10)
    assert "was chosen among 3" in out


def test_what_cannot_be_compared_says_what_is_missing(folder: Path, server: ScriptedServer) -> None:
    (folder / "same.txt").write_text((folder / "polite.txt").read_text())
    for names, more, said in (
        (("prompt.txt", "polite.txt", "same.txt"), (), "two of these prompts are the same"),
        (("prompt.txt", "runs.db"), (), "runs.db is no prompt's file"),
        (("prompt.txt", "absent.txt"), (), "cannot read the prompt absent.txt"),
        (PROMPTS, ("--metric", "rightness"), "--metric rightness is none of exact"),
        (PROMPTS, ("--expected", "reply"), "reply"),
    ):  # fmt: skip
        code, out = gate(folder, server, *more, names=names)
        assert (code, "Traceback" in out) == (2, False), out
        assert said in out
    assert not server.requests
    alone = whet_command("gate", "prompt.txt", "--data", "letters.csv", "--store", "runs.db", folder=folder)
    assert "prompt.txt is compared with nothing" in alone.stderr
    nothing = whet_command("gate", "live", "--store", "runs.db", "--reward", "exact", folder=folder)
    assert "name the agent's function: --entry" in nothing.stderr


CLOCK = """\
def interval(seconds):
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}:{rest}"
"""


def test_several_versions_of_a_function_are_judged_at_once_on_rows(tmp_path: Path) -> None:
    (tmp_path / "clock.py").write_text(CLOCK)
    rows = [
        {"input": {"seconds": 97 * n + 5}, "expected": f"{(97 * n + 5) // 60}:{(97 * n + 5) % 60:02d}"}
        for n in range(90)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    texts = {
        "padded": CLOCK.replace("{rest}", "{rest:02d}"),
        "hours": CLOCK.replace("60)", "3600)"),
        "named": CLOCK.replace("rest", "left"),
    }
    ids = {}
    with whet.Store(tmp_path / "runs.db") as store:
        for name, text in texts.items():
            bundle = whet.Bundle([whet.Version(resource="interval", content=text, kind="function")])
            store.put_bundle(bundle)
            ids[name] = bundle.id
    done = whet_command(
        "gate", "none", ids["named"], "--also", ids["hours"], "--also", ids["padded"], "--entry", "clock:interval",
        "--store", "runs.db", "--reward", "exact", "--data", "rows.jsonl", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "30 rows choose among 3 candidates, and 60 others judge the best" in done.stdout
    assert f"{ids['padded']} was chosen among 3" in done.stdout
    assert "PROMOTE" in done.stdout.replace("DO NOT PROMOTE", "")


async def _best(candidates: int, seed: int) -> whet.Verdict:
    """The best of candidates that answer at random, as the baseline does."""

    class Coin:
        def reset(self, task: whet.Task, seed: int) -> str:
            return task.instruction

        def step(self, action: str) -> whet.StepResult:
            return whet.StepResult(None, float(action), terminated=True, info={"success": action == "1"})

    class Tosses:
        def __init__(self, bundle: whet.Bundle, chance: int) -> None:
            self._chance = random.Random(f"{bundle.id}/{chance}")

        async def act(self, observation: str) -> whet.Action:
            return whet.Action(str(self._chance.randrange(2)))

    tasks = [replace(row(f"{seed}/{n}"), split=Split.GATE) for n in range(45)]
    experiment = whet.Experiment(env=Coin, policy=Tosses, tasks=tasks, rewards=[whet.judge.solved], seed=seed)
    bundles = {
        f"c{number}": whet.Bundle([whet.Version(resource="coin", content=number)])
        for number in range(candidates)
    }
    return await experiment.gate_best(bundles, metric="solved", regime="exchangeable")


def test_the_best_of_ten_that_guess_is_not_promoted_and_its_effect_is_not_that_of_its_luck() -> None:
    verdicts = [asyncio.run(_best(10, seed)) for seed in range(40)]
    assert sum(verdict.promote for verdict in verdicts) <= 3
    dev = sum(verdict.dev_effect or 0.0 for verdict in verdicts) / len(verdicts)
    unseen = sum(verdict.effect for verdict in verdicts) / len(verdicts)
    assert dev > 0.15
    assert abs(unseen) < 0.06
    with pytest.raises(InputError, match="two at the least"):
        asyncio.run(_best(1, 0))
