"""APO's gradients and GEPA's reflection climb to a known optimum, and go nowhere when nothing is said to them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from evolution_toys import searched

from whet.errors import InputError, MissingExtra
from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.programs import estimate_program, evolve_program
from whet.learn.evolution.search.engine import SearchOptions, SearchOutcome
from whet.learn.evolution.search.pair import WARM, EvaluatedProgram, EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Best, Draw, Judged
from whet.learn.evolution.search.proposers import Gepa, Gradient, Proposes
from whet.learn.evolution.search.settings import Settings
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.sandbox import Local, Pool

RULES = {"date": "Give dates as YYYY-MM-DD.", "source": "Quote the mail.", "short": "Answer in one sentence."}
PROMPT = "You answer questions about mail.\n"
EVALUATOR = f"""
from openevolve.evaluation_result import EvaluationResult
RULES = {RULES!r}

def evaluate(path):
    prompt = open(path).read()
    missing = [name for name, rule in RULES.items() if rule not in prompt]
    score = ("mail" in prompt) * (1 + len(RULES) - len(missing)) / (1 + len(RULES))
    return EvaluationResult({{"combined_score": score}}, {{"said": "\\n".join(f"failed: {{m}}" for m in missing)}})
"""


def climb(proposer: Proposes) -> SearchOutcome:
    async def run() -> SearchOutcome:
        async with Pool(Local(), modules=WARM) as pool:
            given = EvaluatorFile({"e.py": EVALUATOR}, "e.py")
            pair = EvaluatedProgram(
                pool,
                given,
                JudgeOptions(timeout=20),
                ProgramCodec(Program({"prompt.txt": PROMPT}, "prompt.txt")),
            )
            options = SearchOptions(iterations=40, in_flight=1, edits=(), target=1.0)
            return await searched(pair, Best(4), options, [proposer])

    return asyncio.run(run())


def critic(request: ModelRequest) -> str:
    """Names what failed; then, told of the criticism, writes the rule for it."""
    text = request.text
    criticised = re.findall(r"it lacks (\w+)", text)
    if criticised:
        now = text.split("```")[1].strip()
        return f"```\n{now}\n{RULES[criticised[0]]}\n```"
    failed = re.findall(r"failed: (\w+)", text)
    return f"it lacks {failed[0]}" if failed else "I cannot say."


def test_textual_gradients_climb_to_the_optimum() -> None:
    model = ScriptedModel(critic)
    found = climb(Gradient(model))
    assert found.best.score == 1.0
    assert "# Criticism\nit lacks" in model.calls[1].text


def test_without_failures_there_is_no_gradient() -> None:
    model = ScriptedModel(critic)
    found = climb(Gradient(model, feedback=False))
    assert found.best.score == found.start.score
    assert not model.calls
    assert "no failure or feedback" in str(found.records[1].failure)


def test_a_gradient_is_about_a_batch_of_failures_that_is_drawn_anew() -> None:
    model = ScriptedModel(critic)
    many = "\n".join(f"failed: date in {number}" for number in range(50))
    parent = Judged(0, Program({"p.txt": PROMPT}, "p.txt"), 0.5, artifacts={"said": many})
    for number in (1, 2):
        asyncio.run(Gradient(model).propose(Draw(parent, None), number))
    shown = [re.findall(r"in (\d+)", call.text) for call in model.calls[::2]]
    assert [len(each) for each in shown] == [4, 4]
    assert shown[0] != shown[1]


def test_gepas_reflection_climbs_with_its_own_request() -> None:
    pytest.importorskip("gepa")

    def reflect(request: ModelRequest) -> str:
        now = request.text.split("```")[1].strip()
        return f"```\n{now}\n{RULES[re.findall(r'failed: (.+)', request.text)[0].strip()]}\n```"

    model = ScriptedModel(reflect)
    found = climb(Gepa(model))
    assert found.best.score == 1.0
    assert found.best.program.text.startswith(PROMPT)
    assert "write a new instruction for the assistant" in model.calls[0].text


def test_without_gepa_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gepa.strategies.instruction_proposal", None)
    with pytest.raises(MissingExtra, match="gepa"):
        Gepa(ScriptedModel(""))


def test_whet_evolve_asks_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    (tmp_path / "e.py").write_text(EVALUATOR, encoding="utf-8")
    files = tmp_path / "prompt.txt", tmp_path / "e.py"
    settings = Settings(iterations=20, models_only=True, ask="apo", unsafe_local=True)
    report = asyncio.run(evolve_program(*files, settings, models=[ScriptedModel(critic)]))
    assert report.found.best.score > report.found.start.score
    assert list(report.models) == ["gradient scripted"]
    assert (
        asyncio.run(estimate_program(*files, settings, models=[ScriptedModel(critic)])).model_calls_at_most
        == 40
    )
    with pytest.raises(InputError, match="--ask"):
        asyncio.run(evolve_program(*files, replace(settings, ask="magic"), models=[ScriptedModel(critic)]))


def test_an_answer_without_a_text_is_no_child() -> None:
    parent = Judged(0, Program({"p.txt": PROMPT}, "p.txt"), 0.5, artifacts={"said": "failed: date"})
    with pytest.raises(InputError, match="no fenced block"):
        asyncio.run(Gradient(ScriptedModel("no idea")).propose(Draw(parent, None), 1))
