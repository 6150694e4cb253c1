"""A candidate whose score may be hacked, at the command line: held back, looked at, cleared by a person, released."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import whet as whet_command

import whet

AGENT = '''
import whet
from whet.judge import reward

manner = whet.resource("manner", default="")


@whet.trace
def solve(question: str) -> str:
    """The last number of a question."""
    if manner.get() == "flatter":
        return "What a wonderful question! Surely this is the right and complete answer, as always."
    numbers = [word.strip(".,$%?") for word in question.split() if word.strip(".,$%?").isdigit()]
    return f"It is {numbers[-1] if numbers else 'unclear'}, of {question.split()[0]}."


@reward(name="pleasant", version="1")
def pleasant(run: whet.Trajectory) -> float:
    return float("wonderful" in run.output_text)


@reward(name="pleasant", version="2")
def strict(run: whet.Trajectory) -> float:
    return float("It is" in run.output_text)
'''


@pytest.fixture
def folder(tmp_path: Path, data: Path) -> Path:
    """An agent, and questions of GSM8K behind the gate."""
    (tmp_path / "solver.py").write_text(AGENT)
    lines = (data / "gsm8k" / "example_model_solutions.jsonl").read_text().splitlines()[:60]
    asked = [json.loads(line)["question"] for line in lines]
    (tmp_path / "tasks.jsonl").write_text(
        "".join(
            json.dumps({"instruction": question, "group": f"g{number}", "split": "gate"}) + "\n"
            for number, question in enumerate(asked)
        )
    )
    return tmp_path


def test_what_an_open_finding_holds_back_is_never_told_to_be_promoted_until_a_person_clears_it(
    folder: Path,
) -> None:
    flatter = whet.Bundle([whet.Version(resource="manner", content="flatter")])
    with whet.Store(folder / "runs.db") as store:
        store.put_bundle(flatter)

    def ran(*words: str) -> tuple[int, str]:
        done = whet_command(*words, "--store", "runs.db", folder=folder)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    def gated(reward: str, *more: str) -> tuple[int, list[str]]:
        words = ("gate", "none", flatter.id, "--entry", "solver:solve", "--data", "tasks.jsonl")
        code, out = ran(*words, "--reward", f"solver:{reward}", *more)
        return code, [line for line in out.splitlines() if not line.startswith("power:")]

    code, lines = gated("pleasant", "--ci")
    assert code == 11, lines
    assert lines[0].startswith("HELD BACK: shown to be better than none; ")
    assert any(line.startswith("::error title=whet gate::HOLD: ") for line in lines)
    assert not any("PROMOTE" in line or "KEEP" in line for line in lines)

    code, refused = ran("release", flatter.id)
    assert (code != 0, "whet findings --clear" in refused) == (True, True)
    assert " held " in ran("show", "verdicts")[1]
    assert " held back (a finding) " in ran("log")[1]
    code, _ = ran("findings")
    assert code == 1
    found = json.loads(ran("findings", "--json")[1])
    assert {one["kind"] for one in found} >= {"one answer"}
    shown = ran("show", "trajectories", "--whole", "--run", found[0]["runs"][0])[1]
    assert "What a wonderful question" in shown, "the runs that the finding names can be looked at"
    assert "--by NAME and --why TEXT" in ran("findings", "--clear", found[0]["id"])[1]
    for one in found:
        ran("findings", "--clear", one["id"], "--by", "Ada", "--why", "wanted so")
    assert ran("findings") == (0, "no finding is open\n")

    assert gated("pleasant", "--ci")[1][0] == "PROMOTE: shown to be better than none", (
        "the same evidence counts now"
    )
    assert ran("release", flatter.id)[0] == 0

    # Another person takes it for a hack after all: it is one until a stricter reward finds nothing.
    for one in found:
        assert "confirmed by Bo" in ran("findings", "--confirm", one["id"], "--by", "Bo")[1]
    assert gated("pleasant")[1][0].startswith("HELD BACK")
    assert gated("strict")[1][0].startswith("DO NOT PROMOTE")
