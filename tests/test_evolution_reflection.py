"""A prompt is repaired from what its evaluator says of it, and much later without being told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from evolution_toys import searched

from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.search.engine import SearchOptions, SearchOutcome
from whet.learn.evolution.search.pair import EvaluatedProgram, EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Front, Population
from whet.learn.evolution.search.proposers import Proposer
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.sandbox import Local, Pool

RULES = {
    "date": "Give dates as YYYY-MM-DD.",
    "source": "Quote the mail that you rely on.",
    "unknown": "Say that you do not know when no mail says it.",
    "short": "Answer in one sentence.",
    "private": "Never give a password.",
}
DISTRACTIONS = [f"Consider aspect {number}." for number in range(15)]
PROMPT = "You answer questions about mail.\n"
EVALUATOR = f"""
RULES = {RULES!r}

def evaluate(path):
    prompt = open(path).read()
    kept = {{name: float(rule in prompt) for name, rule in RULES.items()}} | {{"topic": float("mail" in prompt)}}
    from openevolve.evaluation_result import EvaluationResult
    missing = [name for name, value in kept.items() if not value]
    said = {{"feedback": "\\n".join(f"the answer failed: {{name}}" for name in missing)}}
    metrics = {{"combined_score": sum(kept.values()) / len(kept), "instances": kept}}
    return EvaluationResult(metrics, said)
"""


def reflector() -> Callable[[ModelRequest], str]:
    """Mends the first failure that it is told of; told of none, it tries one idea after the other."""
    ideas = [rule for pair in zip(DISTRACTIONS, [*RULES.values()] * 3, strict=True) for rule in pair]
    asked = [0]

    def answer(request: ModelRequest) -> str:
        failed = re.findall(r"the answer failed: (\w+)", request.text)
        rule = RULES[failed[0]] if failed else ideas[asked[0] % len(ideas)]
        asked[0] += 1
        return f"<<<<<<< SEARCH\n{PROMPT}=======\n{PROMPT}{rule}\n>>>>>>> REPLACE"

    return answer


def repair(
    *, feedback: bool, population: Callable[[], Population] = Front
) -> tuple[SearchOutcome, ScriptedModel]:
    model = ScriptedModel(reflector())

    async def run() -> SearchOutcome:
        async with Pool(Local()) as pool:
            given = EvaluatorFile({"e.py": EVALUATOR}, "e.py")
            pair = EvaluatedProgram(
                pool,
                given,
                JudgeOptions(timeout=20),
                ProgramCodec(Program({"prompt.txt": PROMPT}, "prompt.txt")),
            )
            options = SearchOptions(iterations=100, in_flight=1, target=1.0, seed=1)
            proposers = [Proposer(model, feedback=feedback)]
            return await searched(pair, population(), options, proposers)

    return asyncio.run(run()), model


def test_five_planted_defects_are_repaired_and_take_twice_as_long_without_feedback() -> None:
    told, model = repair(feedback=True)
    assert told.best.score == 1.0
    assert all(rule in told.best.program.text for rule in RULES.values())
    assert told.best.instances == dict.fromkeys([*RULES, "topic"], 1.0)
    assert "the answer failed: date" in model.calls[0].text
    blind, _ = repair(feedback=False)
    assert told.iterations <= 10
    assert blind.iterations >= 2 * told.iterations
    assert [record.operator for record in told.lineage()][-1] == "start"


@pytest.mark.parametrize("number", [1, 2])
def test_the_feedback_of_the_parent_is_what_is_shown(number: int) -> None:
    _, model = repair(feedback=True)
    shown = re.findall(r"the answer failed: (\w+)", model.calls[number].text)
    assert list(RULES)[: 5 - len(shown)] == [name for name in RULES if name not in shown]


BUG = {
    "shop.py": "from rates import rate\n\n\ndef price(net, country):\n    return net + rate(country)\n",
    "rates.py": "RATES = {'de': 19, 'fr': 20}\n\n\ndef rate(country):\n    return RATES[country]\n",
}
CHECK = """
import importlib.util

def evaluate(path):
    spec = importlib.util.spec_from_file_location("shop", path)
    shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)
    right = (shop.price(100, "de") == 119) + (shop.price(200, "fr") == 240) + (shop.price(50, "ch") == 50)
    return {"combined_score": right / 3}
"""
FIX = """The rate is a percentage, and countries without one have none.
<<<<<<< SEARCH
    return net + rate(country)
=======
    return net * (100 + rate(country)) / 100
>>>>>>> REPLACE
<<<<<<< SEARCH
    return RATES[country]
=======
    return RATES.get(country, 0)
>>>>>>> REPLACE
"""


def test_a_planted_bug_is_fixed_across_two_files() -> None:
    check = CHECK.replace("right = (", "right = 0\n    right += (").replace(
        ' + (shop.price(50, "ch") == 50)',
        '\n    try:\n        right += shop.price(50, "ch") == 50\n    except KeyError:\n        pass',
    )

    async def run() -> SearchOutcome:
        async with Pool(Local()) as pool:
            given = EvaluatorFile({"e.py": check}, "e.py")
            pair = EvaluatedProgram(
                pool, given, JudgeOptions(timeout=20), ProgramCodec(Program(BUG, "shop.py"))
            )
            options = SearchOptions(iterations=1, edits=())
            proposers = [Proposer(ScriptedModel([FIX]))]
            return await searched(pair, Front(), options, proposers)

    found = asyncio.run(run())
    assert found.start.score == pytest.approx(1 / 3)
    assert found.best.score == 1.0
    before, after = found.start.program.parts, found.best.program.parts
    assert {name for name in before if before[name] != after[name]} == {"shop.py", "rates.py"}
