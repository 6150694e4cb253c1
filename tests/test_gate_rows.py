"""`whet gate` on what `whet evolve` recorded: rows are called with their arguments, candidates in the sandbox."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from commands import whet as command
from processes import whet as whet_command

import whet
from whet.learn.evolution.gating import gate_rows, recorded_rows
from whet.record.store.bundles import write_bundle

CLOCK = '''\
open("imported", "w").close()  # the repository is never imported


def interval(seconds, short=False):
    """Hours, minutes and seconds."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 24)
    if short:
        return f"{hours}h"
    return f"{hours}:{minutes:02d}:{rest:02d}"
'''


def right(seconds: int, short: bool = False) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60}h" if short else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def rows(first: int, count: int) -> str:
    inputs = [
        {"seconds": 997 * number + 13, "short": number % 4 == 0} for number in range(first, first + count)
    ]
    return "".join(json.dumps({"input": row, "expected": right(**row)}) + "\n" for row in inputs)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A function with a slip, and rows of it."""
    (tmp_path / "clock.py").write_text(CLOCK)
    (tmp_path / "rows.jsonl").write_text(rows(0, 80))
    (tmp_path / "fresh.jsonl").write_text(rows(200, 40))
    return tmp_path


def gate(folder: Path, *words: str) -> dict[str, object]:
    done = whet_command(
        "gate", *words, "--entry", "clock:interval", "--store", "runs.db", "--reward", "exact", "--json",
        folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict: dict[str, object] = msgspec.json.decode(done.stdout)
    return verdict


def test_the_gate_runs_the_rows_that_a_search_recorded_and_new_ones_but_none_that_it_was_searched_on(
    folder: Path,
) -> None:
    done = whet_command(
        "evolve", "--target", "clock:interval", "--data", "rows.jsonl", "--offline", "--store", "runs.db", "--json",
        folder=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = msgspec.json.decode(done.stdout)
    held = report["scores"]["interval"]["gate"]["n"]
    recorded = gate(folder, "whet_output")
    assert (recorded["promote"], recorded["n"]) == (True, held)
    # A file without splits: what the search saw is left out.
    same = gate(folder, "whet_output", "--data", "rows.jsonl")
    assert same["n"] == held
    fresh = gate(folder, "whet_output", "--data", "fresh.jsonl")
    assert (fresh["promote"], fresh["n"]) == (True, 40)
    # The rows of the search as a table of somebody else's, whose columns are named; to be known they must be the same.
    table = [json.loads(line) for line in rows(0, 80).splitlines() + rows(200, 40).splitlines()]
    lines = [f"{row['input']['seconds']},{row['input']['short']},{row['expected']}" for row in table]
    (folder / "hers.csv").write_text("\n".join(["seconds,short,reading", *lines]) + "\n")
    columns = ("--input", "seconds", "--input", "short", "--expected", "reading")
    hers = gate(folder, "whet_output", "--data", "hers.csv", *columns)
    assert (hers["promote"], hers["n"]) == (True, held + 40)
    assert not (folder / "imported").exists()


def test_a_side_whose_runs_are_all_errors_is_named_with_its_error(folder: Path) -> None:
    broken = whet.Bundle(
        [
            whet.Version(
                resource="interval",
                content="def interval(seconds, short=False):\n    return seconds / 0\n",
                kind="function",
            )
        ]
    )
    told: list[str] = []
    with whet.Store(folder / "runs.db") as store:
        verdict = asyncio.run(
            gate_rows(
                {"broken": broken},
                against=whet.Bundle(),
                repository=folder,
                entry="clock:interval",
                rows=folder / "fresh.jsonl",
                rewards=[whet.judge.exact],
                store=store,
                say=told.append,
                metric="exact",
            )
        )
        assert [line for line in told if line.startswith("power: 40 pairs prove")]
        assert not verdict.promote
        said = [reason for reason in verdict.reasons if "ended in an error" in reason]
        assert len(said) == 1
        assert said[0].startswith(
            "All 40 runs of the candidate ended in an error, 40 of them in ZeroDivisionError: division by zero"
        )
        assert len(recorded_rows(store, "clock:interval")) == 40
    write_bundle(folder / "bundle.json", broken, baseline=whet.Bundle())
    again = gate(folder, "bundle.json")
    assert any("ZeroDivisionError" in str(reason) for reason in again["reasons"])  # type: ignore[attr-defined]


def test_an_agent_that_is_called_wrongly_is_told_its_error_where_nothing_can_be_compared(
    folder: Path,
) -> None:
    (folder / "agent.py").write_text("def agent(question, more):\n    return question\n")
    # Rows of a function that no search has changed are an agent's tasks.
    lines = [f"t{number},question {number}\n" for number in range(20)]
    (folder / "tasks.csv").write_text("".join(["id,frage\n", *lines]))
    done = whet_command(
        "gate", "none", "none", "--entry", "agent:agent", "--store", "new.db", "--reward", "exact",
        "--data", "tasks.csv", "--input", "frage", folder=folder,
    )  # fmt: skip
    assert done.returncode != 0
    assert "runs of none ended in an error" in done.stderr
    assert "missing 1 required positional argument: 'more'" in done.stderr


def test_an_option_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    words = (
        "gate",
        "none",
        "none",
        "--entry",
        "clock:interval",
        "--store",
        tmp_path / "runs.db",
        "--reward",
        "exact",
    )
    (tmp_path / "rows.jsonl").write_text(rows(0, 3))
    missing = command(*words, "--data", tmp_path / "rows.jsonl", "--missing", "none")
    assert (missing.returncode, "--missing is for prompts' files" in missing.stderr) == (2, True)
    with whet.Store(tmp_path / "runs.db"):
        pass
    columns = command(*words, "--input", "seconds")
    assert (columns.returncode, "give --data FILE" in columns.stderr) == (2, True)
