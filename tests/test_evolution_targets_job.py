"""`whet evolve --target`: a repository's own source becomes better, with evidence, or is left alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import agent_toys
import pytest
from commands import answered

from whet.cli import main
from whet.learn.evolution.agents.agent import RepositoryAgent

FAST = ("--timeout", "10", "--seed", "3", "--json")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy repository under git, as the current folder, with rows for `decide`."""
    folder = agent_toys.write(tmp_path / "desk")
    monkeypatch.chdir(folder)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=300)
    agent_toys.rows(tmp_path / "rows.jsonl", 120, agent_toys.decisions)
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    return dict(answered(capsys, "evolve", *words, *FAST))


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as done:
        main(["evolve", *map(str, words), *FAST])
    said = capsys.readouterr()
    assert done.value.code not in (0, None)
    assert said.out == ""
    return said.err


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_targets_in_two_files_evolve_into_a_patch_that_the_gate_promotes(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in desk.rglob("*.py")}
    data = tmp_path / "rows.jsonl"
    words = ("--target", "limits", "--target", "rush", "--entry", "desk.agent:decide", "--data", data)
    found = run(capsys, *words, "--iterations", 60, "--output", tmp_path / "out")
    assert {path: path.read_bytes() for path in desk.rglob("*.py")} == before
    assert found["promote"] is True
    assert found["co_resident"] is False
    assert found["trusted_only"] is False
    gate = found["scores"]["decide"]["gate"]
    assert gate["after"] > gate["before"]
    assert gate["n"] == found["verdict"]["n"]

    table = lines(tmp_path / "out" / "examples.jsonl")
    assert len(table) == 120
    held = [row for row in table if row["split"] == "gate"]
    assert sum(row["score_after"] for row in held) / len(held) == pytest.approx(gate["after"])
    # The table tells the truth: the patched source answers what it says.
    subprocess.run(["git", "apply", found["patch"]], cwd=desk, check=True, timeout=300)
    text = (desk / "desk/limits.py").read_text(encoding="utf-8")
    assert "# by hand" in text
    assert '@whet.evolve(kind="tool")' in text
    again = run(capsys, *words, "--iterations", 1, "--output", tmp_path / "again")
    assert again["scores"]["decide"]["gate"]["before"] == pytest.approx(gate["after"])

    history = json.loads((tmp_path / "out" / "history.json").read_text())["decide"]
    assert history["lineage"][-1]["operator"] == "start"
    scores = [each["best_score"] for each in history["history"]]
    assert scores == sorted(scores)


def test_the_same_command_goes_on_where_it_ended(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("desk.rush:Clock.rush", "--data", tmp_path / "rush.jsonl", "--unsafe-local")
    agent_toys.rows(tmp_path / "rush.jsonl", 40, lambda rng: ((n := rng.randint(0, 60)), n > 16))
    first = run(capsys, *words, "--iterations", 8, "--output", tmp_path / "one")
    more = run(capsys, *words, "--iterations", 16, "--output", tmp_path / "one")
    whole = run(capsys, *words, "--iterations", 16, "--output", tmp_path / "two")
    assert first["resumed"] == 0
    assert more["resumed"] == 8
    assert more["pieces"] == whole["pieces"]
    assert (tmp_path / "one/refused.patch").read_text() == (tmp_path / "two/refused.patch").read_text()


def test_a_search_that_had_nothing_to_climb_says_what_would_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "price.py").write_text("def price(weight: float) -> float:\n    return 3.0 * weight\n")
    rows = [{"input": float(n), "expected": 2.5 * n + 4.25} for n in range(1, 11)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    found = run(capsys, "price:price", "--data", "rows.jsonl", "--unsafe-local", "--iterations", 6)
    assert found["patch"] is None
    assert "--evaluators" in found["why_no_verdict"]


def test_what_was_judged_with_other_code_or_other_goals_is_judged_anew(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rush.jsonl"
    agent_toys.rows(rows, 12, lambda rng: ((n := rng.randint(0, 60)), n > 16))
    words = ("desk.rush:Clock.rush", "--data", rows, "--unsafe-local", "--iterations", "2", *FAST)

    def again() -> tuple[int, str]:
        with pytest.raises(SystemExit):
            main(["evolve", *map(str, words), "--output", str(tmp_path / "out")])
        said = capsys.readouterr()
        told, power, *rest = said.err.splitlines(keepends=True)
        assert "behind the gate" in told
        assert "power: " in power
        return json.loads(said.out)["resumed"], "".join(rest)

    assert again() == (0, "")
    assert again() == (2, "")
    # An answer that was wrong is mended, its question is as it was.
    known = lines(rows)
    searched = [row["input"] for row in lines(tmp_path / "out/examples.jsonl") if row["split"] == "train"]
    wrong = next(row for row in known if row["input"] in searched)
    wrong["expected"] = not wrong["expected"]
    rows.write_text("".join(json.dumps(row) + "\n" for row in known))
    assert again() == (0, "rush: begins anew, for this is not what it was: rows\n")
    source = (desk / "desk/rush.py").read_text()
    (desk / "desk/rush.py").write_text(source.replace("hours: int = 8", "hours: int = 4"))
    assert again() == (0, "rush: begins anew, for this is not what it was: the code around them\n")


def test_what_runs_without_the_sandbox_is_never_promoted(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rush.jsonl"
    agent_toys.rows(data, 60, lambda rng: ((n := rng.randint(0, 60)), n > 16))
    found = run(
        capsys,
        "--target",
        "rush",
        "--data",
        data,
        "--iterations",
        40,
        "--unsafe-local",
        "--output",
        tmp_path / "out",
    )
    scores = found["scores"]["rush"]["gate"]
    assert scores["after"] > scores["before"]
    assert found["trusted_only"] is True
    assert found["promote"] is False
    assert "promotes nothing" in " ".join(found["verdict"]["reasons"])


def test_a_piece_whose_gain_lowers_the_end_to_end_score_is_refused(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    # By its own rows `size` should call everything up to 25 small; what people want of the agent is the opposite.
    agent_toys.rows(
        data / "size/train.jsonl", 60, lambda r: ((n := r.randint(0, 120)), agent_toys.wanted_size(n))
    )

    def whole(rng: Any) -> tuple[Any, str]:
        amount = rng.randint(0, 120)
        size = "small" if amount <= 40 else "large" if amount > 90 else "medium"
        return {"amount": amount, "waited": rng.randint(0, 10)}, size

    agent_toys.rows(data / "decide/train.jsonl", 60, whole)
    words = ("--target", "size", "--entry", "desk.agent:decide", "--data", data, "--unsafe-local")
    found = run(capsys, *words, "--iterations", 60, "--output", tmp_path / "out")
    (decision,) = found["pieces"]
    assert decision["own"][1] > decision["own"][0]
    assert decision["end_to_end"][1] < decision["end_to_end"][0]
    assert decision["taken"] is False
    assert "lowers decide" in decision["reason"]
    assert found["patch"] is None
    assert found["verdict"] is None


def test_rows_of_the_gate_are_never_searched_on(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data" / "rush"
    agent_toys.rows(data / "train.jsonl", 30, lambda r: ((n := r.randint(0, 60)), n > 32))
    agent_toys.rows(data / "gate.jsonl", 30, lambda r: (r.randint(100, 160), False), seed=1)
    found = run(
        capsys, "--target", "rush", "--data", tmp_path / "data", "--iterations", 40, "--unsafe-local",
        "--output", tmp_path / "out",
    )  # fmt: skip
    # Train is perfect as it stands, so a search that looked at the gate would be the only one to change anything.
    assert found["patch"] is None
    assert found["scores"]["rush"]["gate"] == {"n": 30, "before": 0.0, "after": 0.0}


def test_an_evaluator_is_proven_before_it_steers(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = tmp_path / "constant.py"
    constant.write_text("def evaluate(output, expected):\n    return 1.0\n", encoding="utf-8")
    data = tmp_path / "rows.jsonl"
    words = ("--target", "limits", "--entry", "desk.agent:decide", "--data", data)
    said = refused(capsys, *words, "--evaluators", constant, "--output", tmp_path / "out")
    assert "not admitted" in said
    close = tmp_path / "close.py"
    close.write_text(
        "def evaluate(output, expected):\n"
        "    same = isinstance(output, str) and output.rstrip('!') == expected.rstrip('!')\n"
        "    return {'score': 1.0 if output == expected else 0.5 if same and len(output) > 3 else 0.0}\n",
        encoding="utf-8",
    )
    found = run(capsys, *words, "--evaluators", close, "--iterations", 2, "--output", tmp_path / "out")
    assert found["evaluators"]["decide"].startswith("close ")


def test_a_dry_run_spends_nothing_and_says_what_it_would_take(
    desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--target",
        "greeting",
        "--target",
        "greet",
        "--data",
        tmp_path / "names.jsonl",
        "--unsafe-local",
    )
    agent_toys.rows(tmp_path / "names.jsonl", 12, lambda r: ((n := f"P{r.randint(0, 99)}"), f"Hi {n}"))
    # No server listens there: asking the model would fail.
    model = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--price", "2", "8")
    found = run(
        capsys, *words, *model, "--dry-run", "--iterations", 50, "--calls", 20, "--output", tmp_path / "out"
    )
    assert found["dry_run"] is True
    assert found["proposals"] == 50
    assert found["model_calls_at_most"] == 20
    assert found["prompt_tokens"] > 20 * 50
    assert found["dollars"] == pytest.approx((found["prompt_tokens"] * 2 + found["output_tokens"] * 8) / 1e6)
    assert found["evaluations_likely"] < found["evaluations_at_most"] == 51
    assert not (tmp_path / "out" / "agent.patch").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--target", "nobody"), "no target 'nobody'"),
        (("--target", "greeting"), "greet"),
        (("--target", "limits", "--target", "greet", "--entry", "desk.agent:greet"), "does not use limits"),
        (("--target", "limits", "--entry", "desk.agent:GREETING"), "is not a function"),
        (("desk.nowhere:f",), "no module"),
        (("--target", "rush"), "generate-training-data"),
        ((), "nothing to improve"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_what_to_do(
    desk: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert why in refused(capsys, *words)


def test_the_entry_is_found_where_one_target_uses_all_others(desk: Path) -> None:
    assert RepositoryAgent(desk, ["limits", "size"]).entry == "size"
    assert RepositoryAgent(desk, ["greeting", "greet"]).entry == "greet"
    assert RepositoryAgent(desk, ["size", "rush"]).entry is None
