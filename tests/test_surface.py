"""The surface as an application developer meets it: observe, learn, compose, prove, ship, take back."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("lightgbm")

import whet
from whet.record.tracing import flush

tone = whet.resource("tone", default="Answer at length.")
PROPOSAL = "<<<<<<< SEARCH\nAnswer at length.\n=======\nAnswer in one word.\n>>>>>>> REPLACE"


class Scale:
    """Has a function that no candidate can stand for, as `self` does not cross as JSON."""

    @whet.evolve
    def without_crate(self, weight: int) -> int:
        return weight - 1


def agent(question: str) -> str:
    word = question.split()[-1].rstrip("?")
    return word.upper() if "one word" in tone else f"Let me think about {word} for a while."


def exact(trajectory: whet.Trajectory) -> bool:
    return trajectory.output == trajectory.task.answer


def hallucination(trajectory: whet.Trajectory) -> float:
    return float("think" in str(trajectory.output))


def test_what_was_observed_is_learned_from_composed_proven_released_and_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `Evolve()` is for all that the program declares, and what other tests declared is not this program's.
    module = sys.modules["whet.record.tracing.resources"]
    mine = {name: it for name, it in module.declared.items() if name == "tone" or "without_crate" in name}
    assert len(mine) == 2
    monkeypatch.setattr(module, "declared", mine)
    words = [f"{letter}{number}" for number in range(16) for letter in "abcdefghij"]
    with whet.Store(tmp_path / "runs.db") as store:
        traced = whet.trace(store)(agent)
        for number, word in enumerate(words):
            with whet.run(subject=f"person{number // 4}") as run:
                traced(f"What is {word}?")
            whet.feedback(run.id, -1.0, "too long", correction=word.upper())
        flush()

        async def loop() -> whet.Bundle:
            model = whet.ScriptedModel([PROPOSAL] * 200)
            experiment = whet.Experiment(
                env=whet.calls(agent),
                tasks=whet.tasks(store),
                rewards=[exact, hallucination],
                store=store,
                seed=0,
            )
            alone = await experiment.improve(
                whet.Evolve(model=model, score="exact"), budget=whet.Budget(rollouts=2_000)
            )
            assert alone.bundle["tone"].content == "Answer in one word."
            better = await experiment.compose(
                [whet.Evolve(model=model, score="exact"), whet.Head(), whet.GRPO()], metric="exact"
            )
            assert [one.name for one in better.candidates if one.entered] == ["evolve"]
            assert "grpo learned nothing" in next(
                one.reason for one in better.candidates if one.name == "grpo"
            )
            verdict = await experiment.gate(
                better, metric="exact", guardrails=[whet.Guardrail("hallucination", 0.02)]
            )
            assert verdict.promote, verdict.reasons
            assert {"-Answer at length.", "+Answer in one word."} <= set(better.diff().splitlines())
            return experiment.release(verdict)

        asyncio.run(loop())
        assert traced("What is z1?") == "Z1"
        store.rollback()
        assert traced("What is z1?").startswith("Let me think")
