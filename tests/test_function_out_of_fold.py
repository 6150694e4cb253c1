"""A function and a small table: every row is behind the proof, and what is luck is not promoted."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from commands import whet as whet_command

from whet.errors import InputError
from whet.learn.evolution.function_proof import folds_wanted, function_folds
from whet.record.rows import row
from whet.types import Split, Task

SOURCE = """\
def postage(grams: int) -> float | None:
    if grams > 2000:
        return None
    return 1.0 if grams <= 100 else 2.5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 letters; the limit in the source is 100 grams, in truth it is 250."""
    draw = random.Random(1)
    lines = ["grams,fee"]
    for _ in range(60):
        grams = draw.randint(1, 500) if draw.random() < 0.9 else draw.randint(1900, 2200)
        lines.append(f"{grams},{'' if grams > 2000 else 1.0 if grams <= 250 else 2.5}")
    (tmp_path / "postage.csv").write_text("\n".join(lines))
    (tmp_path / "postage.py").write_text(SOURCE)
    return tmp_path


def test_a_gain_that_a_fifth_of_a_small_table_cannot_prove_is_proven_by_all_of_it(folder: Path) -> None:
    words = ("improve", "postage:postage", "--data", "postage.csv", "--json")
    done = whet_command(*words, folder=folder)
    report = msgspec.json.decode(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (report["promote"], report["folds"], report["verdict"]["n"]) == (True, 3, 59)
    assert report["out_of_fold"]["after"] > report["out_of_fold"]["before"] + 0.15
    assert sorted(report["scores"]["postage"]) == ["train"]
    # What ships was chosen on every row, so a later gate leaves them all out.
    bundle = msgspec.json.decode((folder / "whet_output" / "bundle.json").read_bytes())
    assert len(bundle["bundle"][0]["meta"]["rows"]) == 59
    again = msgspec.json.decode(whet_command(*words, folder=folder).stdout)
    assert (again["resumed"], again["verdict"]["e_value"]) == (
        again["iterations"],
        report["verdict"]["e_value"],
    )
    held = whet_command(*words, "--folds", "0", "--output", "held", folder=folder)
    assert held.returncode == 1, held.stderr
    assert msgspec.json.decode(held.stdout)["verdict"]["n"] == 12


def test_with_fees_that_are_dealt_at_random_nothing_is_promoted(folder: Path) -> None:
    header, *lines = (folder / "postage.csv").read_text().splitlines()
    fees = random.Random(4).sample([line.partition(",")[2] for line in lines], len(lines))
    dealt = [f"{line.partition(',')[0]},{fee}" for line, fee in zip(lines, fees, strict=True)]
    (folder / "postage.csv").write_text("\n".join([header, *dealt]))
    done = whet_command("improve", "postage:postage", "--data", "postage.csv", folder=folder)
    assert done.returncode == 1, done.stderr
    assert not (folder / "whet_output" / "agent.patch").exists()


def rows(count: int, *, groups: int | None = None) -> list[Task]:
    return [
        row(
            number,
            expected=number,
            group=f"g{number % groups}" if groups else "",
            split=Split.GATE if number % 5 == 0 else Split.TRAIN,
        )
        for number in range(count)
    ]


def test_folds_are_for_small_tables_whose_searches_can_be_paid_for() -> None:
    assert folds_wanted(rows(60), calls=None, seed=1) == 3
    assert folds_wanted(rows(600), calls=None, seed=1) == 0
    assert folds_wanted(rows(60), calls=200, seed=1) == 3
    assert folds_wanted(rows(60), calls=60, seed=1) == 0
    assert folds_wanted(rows(60, groups=2), calls=None, seed=1) == 0
    with pytest.raises(InputError, match="have 2 groups to divide"):
        function_folds(rows(60, groups=2), 3, seed=1)


def test_a_file_without_the_name_of_its_function_is_told_how_to_name_it(folder: Path) -> None:
    done = whet_command("improve", "postage.py", "--data", "postage.csv", folder=folder)
    assert done.returncode == 2
    assert "name it, as postage:FUNCTION" in " ".join(done.stderr.split())
