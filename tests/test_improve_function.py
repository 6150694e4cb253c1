"""One function and a CSV: offline first, then with a model; rows whose right answer is nothing stay right."""

from __future__ import annotations

import csv
import random
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from commands import whet as whet_command

import whet
from whet.errors import InputError
from whet.learn.evolution.reports import EvolutionReport
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.models.fakes import Reply, ScriptedServer

SOURCE = '''\
import re


def amount(line: str):
    """The amount in a line of a bill, or None."""
    match = re.search(r"total (\\d+\\.\\d+)", line)
    return float(match.group(1)) if match else None
'''
BETTER = """<<<<<<< SEARCH
    match = re.search(r"total (\\d+\\.\\d+)", line)
=======
    match = re.search(r"(?:total|sum) (\\d+\\.\\d+)", line)
>>>>>>> REPLACE"""
GREEDY = """<<<<<<< SEARCH
    match = re.search(r"total (\\d+\\.\\d+)", line)
=======
    match = re.search(r"(\\d+\\.\\d+)", line)
>>>>>>> REPLACE"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """200 lines: half say total, a third sum; of 37 no amount is right, though they hold a number."""
    rng = random.Random(5)
    lines = []
    for number in range(200):
        value, shop = f"{rng.uniform(1, 900):.2f}", rng.choice(["Kiosk", "Market", "Baker", "Garage"])
        if number < 37:
            lines.append((f"{shop} {number} opens at {rng.randrange(7, 10)}.30", ""))
        else:
            lines.append((f"{shop} {number} {'sum' if number % 3 == 0 else 'total'} {value}", value))
    with (tmp_path / "examples.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("line", "amount"), *lines])
    (tmp_path / "bills.py").write_text(SOURCE)
    return tmp_path


def improve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return whet_command("improve", "bills:amount", "--data", "examples.csv", *words, folder=folder)


def test_with_a_model_the_function_is_proven_better_and_no_empty_row_is_broken(folder: Path) -> None:
    with ScriptedServer(lambda request: BETTER) as server:
        done = improve(folder, "--model", "scripted", "--base-url", server.base_url)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) <= 200
    assert "input: line = 'Kiosk 0" in done.stdout or "input: line = " in done.stdout
    assert "37 rows with an empty amount: None is taken to be the right answer" in done.stdout
    assert "and 0 wrong" in done.stdout
    assert "git apply" in done.stdout
    assert (folder / "bills.py").read_text() == SOURCE
    patch = folder / "whet_output" / "agent.patch"
    subprocess.run(["git", "apply", patch], cwd=folder, check=True, capture_output=True)
    assert "total|sum" in (folder / "bills.py").read_text()


def test_a_model_is_not_asked_to_repair_what_an_edit_broke(folder: Path) -> None:
    texts: list[str] = []

    def answer(request: ModelRequest) -> str:
        texts.append(request.text)
        return "I would need to see more of your bills."

    with ScriptedServer(answer) as server:
        done = improve(folder, "--model", "scripted", "--base-url", server.base_url)
    assert done.returncode == 1, done.stderr
    asked = [text.partition("# The program\nScore ")[2] for text in texts]
    assert len(asked) > 10
    start = float(asked[0].split()[0])
    assert all(float(text.split()[0]) >= start for text in asked)
    # They are there, and are shown beside it.
    beside = [score for text in asked for score in re.findall(r"\nScore ([0-9.]+)", text)]
    assert any(float(score) < start for score in beside)


def test_a_patch_that_answers_where_nothing_is_right_is_not_promoted(folder: Path) -> None:
    """It gains 109 rows and breaks 17: by the mean alone it would be promoted."""
    header, *lines = (folder / "examples.csv").read_text().splitlines()
    text = "\n".join([header, *lines[20:]])
    (folder / "examples.csv").write_text(
        text.replace(" sum ", " x ").replace(" total ", " sum ").replace(" x ", " total ")
    )
    with ScriptedServer(lambda request: GREEDY) as server:
        done = improve(folder, "--model", "scripted", "--base-url", server.base_url, "--json")
    report = msgspec.json.decode(done.stdout)
    assert (done.returncode, report["promote"]) == (1, False), done.stderr
    assert report["verdict"]["e_value"] > 20
    assert "17 were right, and 0 are with the change" in " ".join(report["verdict"]["reasons"])
    assert not (folder / "whet_output" / "agent.patch").exists()


def test_offline_it_names_a_model_as_the_next_step(folder: Path) -> None:
    (folder / "bills.py").write_text("def amount(line: str):\n    return None\n")
    done = improve(folder)
    assert done.returncode == 1, done.stderr
    assert "no model is asked, and nothing is paid" in done.stdout
    assert "a model is the next step: --model NAME --base-url URL" in done.stdout


def test_a_dry_run_and_what_is_missing(folder: Path) -> None:
    plan = improve(folder, "--dry-run")
    assert plan.returncode == 0, plan.stderr
    assert "200 rows in 200 groups, all of them behind the proof" in plan.stdout
    held = improve(folder, "--dry-run", "--folds", "0")
    assert "behind the gate 40 pairs" in held.stdout
    assert not (folder / "whet_output").exists()
    assert "is for a prompt" in improve(folder, "--metric", "exact").stderr
    assert "it has line, amount" in improve(folder, "--input", "text").stderr
    missing = whet_command("improve", "bills:price", "--data", "examples.csv", folder=folder)
    assert missing.returncode != 0
    assert "price" in missing.stderr


def test_a_key_that_is_refused_stops_a_function_at_once_and_the_same_command_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    answered, accepted = 0, 1_000

    def script(request: ModelRequest) -> str | Reply:
        nonlocal answered
        answered += 1
        return "No idea." if answered <= accepted else Reply(status=401)

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)
    with ScriptedServer(script) as server:
        words = ("--model", "scripted", "--base-url", server.base_url, "--calls", "20", "--folds", "0")
        assert improve(elsewhere, *words).returncode in (0, 1)
        whole, answered, accepted = len(server.requests), 0, 3
        done = improve(folder, *words)
        assert done.returncode == 7, done.stdout
        assert "Traceback" not in done.stderr
        said = done.stderr.splitlines()[-1]
        assert "HTTP 401" in said
        assert "Check the api_key (OPENAI_API_KEY)" in said
        assert "run the same command again to go on" in said
        # The refused one, and as many as were under way.
        made = len(server.requests)
        assert made - whole <= 3 + 4
        accepted = 1_000
        assert improve(folder, *words).returncode in (0, 1)
        assert len(server.requests) - made == whole - 3


def test_cells_are_typed_but_not_where_the_function_takes_text(folder: Path) -> None:
    (folder / "codes.py").write_text(
        "def known(code: str, most: int) -> bool:\n    return len(code) <= most\n"
    )
    rows = "".join(f"{number},{number % 7},{str(number % 7 > 3).lower()}\n" for number in range(40))
    (folder / "codes.csv").write_text(f"code,most,right\n{rows}")
    words = ("improve", "codes:known", "--data", "codes.csv", "--expected", "right", "--dry-run")
    plan = whet_command(*words, folder=folder)
    assert plan.returncode == 0, plan.stderr
    assert "input: code = '0', most = 0; expected: right = False" in plan.stdout


def test_whole_numbers_of_a_function_that_gives_floats_are_floats(folder: Path) -> None:
    (folder / "half.py").write_text("def half(n: int) -> float | None:\n    return n / 2\n")
    (folder / "half.csv").write_text("n,half\n" + "".join(f"{2 * n},{n}\n" for n in range(60)))
    done = whet_command("improve", "half:half", "--data", "half.csv", folder=folder)
    assert "expected: half = 0.0" in done.stdout
    assert "on all 60 rows: 1.000 → 1.000" in done.stdout
    assert "right already" in done.stdout
    assert "a model is the next step" not in done.stdout


def test_python_has_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    said: list[str] = []
    report = whet.improve(
        "bills:amount",
        data="examples.csv",
        model=ScriptedModel(lambda request: BETTER),
        output="out",
        say=said.append,
    )
    assert isinstance(report, EvolutionReport)
    assert report.verdict is not None
    assert report.verdict.promote
    assert said[0].startswith("bills:amount can change")
    with pytest.raises(InputError, match="are for a prompt"):
        whet.improve("bills:amount", data="examples.csv", metric="exact", say=None)
