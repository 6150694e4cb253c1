"""Evolution with a scripted model: five planted prompt defects, a bug across two files, and GEPA 0.1.4.

The model mends the first failure that it is told of, and tries one idea after the other when it is told of
none; so what is measured is what a method tells it, and how many evaluations it spends on finding out.
A metric call is one example judged under one prompt.  GEPA is installed into a virtual environment of its
own below the temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from whet.learn.evolution.agents.candidates import ProgramCodec
from whet.learn.evolution.editing.program import Program
from whet.learn.evolution.programs import Programs
from whet.learn.evolution.search.engine import SearchOptions, SearchOutcome
from whet.learn.evolution.search.openevolve import Config
from whet.learn.evolution.search.pair import WARM, EvaluatedProgram, EvaluatorFile, JudgeOptions
from whet.learn.evolution.search.population import Front
from whet.learn.evolution.search.proposing import Proposing
from whet.learn.experiment import Experiment
from whet.models import ScriptedModel
from whet.models.base import ModelRequest
from whet.sandbox import Limits, Local, Pool, Sandbox

RULES = {
    "date": "Give dates as YYYY-MM-DD.",
    "source": "Quote the mail that you rely on.",
    "unknown": "Say that you do not know when no mail says it.",
    "short": "Answer in one sentence.",
    "private": "Never give a password.",
}
PROMPT = "You answer questions about mail.\n"
EXAMPLES = 20
DISTRACTIONS = 15

_EVALUATOR = """
import json, os
from openevolve.evaluation_result import EvaluationResult

RULES, NEEDS = {rules!r}, {needs!r}

def evaluate(path):
    prompt = open(path).read()
    kept = {{}}
    said = []
    for number, need in enumerate(NEEDS):
        kept[str(number)] = float("mail" in prompt and (need is None or RULES[need] in prompt))
        if not kept[str(number)]:
            said.append(f"the answer to question {{number}} failed: {{need}}")
    return EvaluationResult(
        {{"combined_score": sum(kept.values()) / len(kept), "instances": kept}}, {{"feedback": "\\n".join(said)}}
    )
"""
_SHOP = {
    "shop.py": "from rates import rate\n\n\ndef price(net, country):\n    return net + rate(country)\n",
    "rates.py": "RATES = {'de': 19, 'fr': 20}\n\n\ndef rate(country):\n    return RATES[country]\n",
}
_CHECK = """
import importlib.util
from openevolve.evaluation_result import EvaluationResult

def evaluate(path):
    spec = importlib.util.spec_from_file_location("shop", path)
    shop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shop)
    right, said = 0, []
    for net, country, wanted in ((100, "de", 119), (200, "fr", 240), (50, "ch", 50)):
        try:
            got = shop.price(net, country)
        except Exception as error:
            got = repr(error)
        right += got == wanted
        if got != wanted:
            said.append(f"price({net}, {country!r}) should be {wanted} and is {got}")
    return EvaluationResult({"combined_score": right / 3}, {"feedback": "\\n".join(said)})
"""
_FIXES = {
    "should be 240": ("    return net + rate(country)", "    return net * (100 + rate(country)) / 100"),
    "KeyError": ("    return RATES[country]", "    return RATES.get(country, 0)"),
}
_GEPA = """
import json, random, re, sys
import gepa
from gepa import EvaluationBatch

told = json.loads(sys.argv[1])
RULES, NEEDS, PROMPT = told["rules"], told["needs"], told["prompt"]
calls, reached = 0, None


class Adapter:
    propose_new_texts = None

    def evaluate(self, batch, candidate, capture_traces=False):
        global calls
        text = candidate["prompt"]
        scores = [float("mail" in text and (need is None or RULES[need] in text)) for need in batch]
        calls += len(batch)
        traces = list(zip(batch, scores)) if capture_traces else None
        return EvaluationBatch(outputs=list(scores), scores=scores, trajectories=traces)

    def make_reflective_dataset(self, candidate, eval_batch, components_to_update):
        rows = [
            {"Inputs": "a question", "Feedback": "right" if score else f"the answer failed: {need}"}
            for need, score in eval_batch.trajectories
        ]
        return {name: rows for name in components_to_update}


def reflect(prompt):
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    now = text.split("```")[1].strip()
    failed = re.findall(r"the answer failed: (\\w+)", text)
    return "```\\n" + now + "\\n" + (RULES[failed[0]] if failed else "") + "\\n```"


class Reached:
    def __call__(self, state):
        global reached
        if max(state.program_full_scores_val_set) >= 1.0 and reached is None:
            reached = calls
        return reached is not None


gepa.optimize(
    seed_candidate={"prompt": PROMPT}, trainset=NEEDS, valset=NEEDS, adapter=Adapter(), reflection_lm=reflect,
    max_metric_calls=2000, stop_callbacks=Reached(), seed=told["seed"], raise_on_exception=True,
)
print("RESULT", json.dumps({"calls": calls, "reached": reached}))
"""


def needs(seed: int) -> list[str | None]:
    """Which rule each example needs; a sixth of them need none."""
    found = [*list(RULES), None] * (EXAMPLES // (len(RULES) + 1) + 1)
    found = found[:EXAMPLES]
    random.Random(seed).shuffle(found)
    return found


def reflector(seed: int) -> Callable[[ModelRequest], str]:
    """Mends the first failure that it is told of; told of none, it tries its ideas in an order of its own."""
    ideas = [*RULES.values(), *(f"Consider aspect {number}." for number in range(DISTRACTIONS))]
    random.Random(seed).shuffle(ideas)
    asked = [0]

    def answer(request: ModelRequest) -> str:
        failed = re.findall(r"failed: (\w+)", request.text)
        rule = RULES[failed[0]] if failed else ideas[asked[0] % len(ideas)]
        asked[0] += 1
        return f"<<<<<<< SEARCH\n{PROMPT}=======\n{PROMPT}{rule}\n>>>>>>> REPLACE"

    return answer


def mender(request: ModelRequest) -> str:
    """Mends whatever of the shop's two bugs it is told of."""
    blocks = [
        f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
        for sign, (old, new) in _FIXES.items()
        if sign in request.text and old in request.text
    ]
    return "\n".join(blocks) or "I see nothing."


async def _search(
    program: Program, evaluator: str, answer: Callable[[ModelRequest], str], *, feedback: bool, local: bool
) -> tuple[SearchOutcome, int]:
    """What was found, and how many programs were evaluated until the score was full, the judge's own among them."""
    limits = Limits(wall_seconds=10.0)
    async with Pool(Local(limits=limits) if local else Sandbox(limits=limits), modules=WARM) as pool:
        given = EvaluatorFile({"e.py": evaluator}, "e.py")
        pair = EvaluatedProgram(pool, given, JudgeOptions(timeout=10.0), ProgramCodec(program))
        proposing = Proposing(Config(feedback=feedback), [ScriptedModel(answer)])
        options = SearchOptions(iterations=200, in_flight=1, edits=(), target=1.0, seed=1)
        searched = Programs(pair, options, proposing, Front)
        experiment = Experiment(env=pair, tasks=list(pair.tasks.values()), rewards=[pair.score])
        await experiment.improve(searched, rounds=1)
        assert searched.found is not None
        return searched.found, searched.evaluations


def _prompt(seed: int, options: argparse.Namespace, *, feedback: bool = True) -> tuple[SearchOutcome, int]:
    evaluator = _EVALUATOR.format(rules=RULES, needs=needs(seed))
    start = Program({"prompt.txt": PROMPT}, "prompt.txt")
    return asyncio.run(
        _search(start, evaluator, reflector(seed), feedback=feedback, local=options.unsafe_local)
    )


def reflection(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Proposals until five planted defects are repaired, with the evaluator's words and with them blanked."""
    rows = []
    for seed in range(options.seeds):
        told, _ = _prompt(seed, options)
        blind, _ = _prompt(seed, options, feedback=False)
        rows.append(
            {
                "problem": "reflection",
                "seed": seed,
                "unseen": told.best.score,
                "proposals": told.iterations,
                "blind": blind.iterations,
                "times": blind.iterations / told.iterations,
            }
        )
    return rows


def bug(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A planted bug of a tool whose repair takes a change in each of two files."""
    start = Program(_SHOP, "shop.py")
    found, _ = asyncio.run(_search(start, _CHECK, mender, feedback=True, local=options.unsafe_local))
    files = [name for name, text in _SHOP.items() if found.best.program.parts[name] != text]
    row = {"problem": "bug", "start": found.start.score, "unseen": found.best.score}
    return [row | {"proposals": found.iterations, "files": len(files)}]


def gepa(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Metric calls until every example is right: ours beside GEPA's, on the same examples and model."""
    python = _install()
    rows = []
    for seed in range(options.seeds):
        found, evaluations = _prompt(seed, options)
        told = {"rules": RULES, "needs": needs(seed), "prompt": PROMPT, "seed": seed}
        done = subprocess.run(
            [python, "-c", _GEPA, json.dumps(told)], capture_output=True, text=True, check=True, timeout=300
        )
        line = next(each for each in done.stdout.splitlines() if each.startswith("RESULT"))
        theirs = json.loads(line.removeprefix("RESULT"))
        rows.append(
            {
                "problem": "gepa",
                "seed": seed,
                "unseen": found.best.score,
                "calls": evaluations * EXAMPLES,
                "theirs": theirs["reached"],
            }
        )
    return rows


def _install() -> str:
    place = Path(tempfile.gettempdir()) / "whet-bench-gepa"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    have = subprocess.run([python, "-c", "import gepa"], capture_output=True, check=False)
    if have.returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "gepa==0.1.4"], check=True)
    return str(python)
