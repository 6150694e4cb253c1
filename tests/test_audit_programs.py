"""Ten evaluators of programs, `evaluate(path)`, five planted to be fooled: exactly the five good are admitted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from whet.errors import InputError
from whet.judge.evaluator import from_source, load
from whet.judge.proof import Proof, prove
from whet.judge.variants import degraded, parts, programs, reformatted

SORTER = '''
def order(items, reverse=False):
    """Sort by length, then by the letters."""
    done = sorted(items, key=lambda one: (len(one), one))
    if reverse:
        done = done[::-1]
    return done


def longest(items):
    best = 0
    for item in items:
        if len(item) > best:
            best = len(item)
    return best
'''

LOADING = """
import importlib.util
CASES = [(["bb", "a", "ccc"], ["a", "bb", "ccc"], 3), (["x"], ["x"], 1), (["zz", "yy", "x"], ["x", "yy", "zz"], 2),
         (["four", "to", "six"], ["to", "six", "four"], 4)]
def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""

GOOD = {
    "share of cases": (
        "def evaluate(program_path):\n"
        "    program = load(program_path)\n"
        "    right = sum(program.order(list(x)) == y for x, y, _ in CASES)\n"
        "    return {'combined_score': right / len(CASES)}\n"
    ),
    "mean of metrics": (
        "def evaluate(program_path):\n"
        "    program = load(program_path)\n"
        "    order = sum(program.order(list(x)) == y for x, y, _ in CASES) / len(CASES)\n"
        "    length = sum(program.longest(list(x)) == n for x, _, n in CASES) / len(CASES)\n"
        "    return {'order': order, 'length': length}\n"
    ),
    "a failure is a zero": (
        "def evaluate(path):\n"
        "    try:\n"
        "        program = load(path)\n"
        "        errors = [abs(program.longest(list(x)) - n) for x, _, n in CASES]\n"
        "        return {'score': 1 / (1 + sum(errors))}\n"
        "    except Exception as error:\n"
        "        return {'score': 0.0, 'error': str(error)}\n"
    ),
    "with artifacts": (
        "class EvaluationResult:\n"
        "    def __init__(self, metrics, artifacts): self.metrics, self.artifacts = metrics, artifacts\n"
        "def evaluate(program_path):\n"
        "    program, places = load(program_path), []\n"
        "    for x, y, _ in CASES:\n"
        "        got = program.order(list(x))\n"
        "        places.append(sum(a == b for a, b in zip(got, y)) / len(y))\n"
        "    return EvaluationResult({'combined_score': sum(places) / len(places)}, {'cases': len(places)})\n"
    ),
    "in a process of its own": (
        "import json, subprocess, sys\n"
        "def evaluate(program_path):\n"
        "    told = '\\nimport json, sys\\nprint(json.dumps([order(x) for x in json.load(sys.stdin)]))'\n"
        "    code = open(program_path).read() + told\n"
        "    done = subprocess.run([sys.executable, '-c', code], input=json.dumps([x for x, _, _ in CASES]),\n"
        "                          capture_output=True, text=True, timeout=10)\n"
        "    if done.returncode: return {'combined_score': 0.0}\n"
        "    got = json.loads(done.stdout.splitlines()[-1])\n"
        "    return {'combined_score': sum(g == y for g, (_, y, _) in zip(got, CASES)) / len(CASES)}\n"
    ),
}
BAD = {
    "constant": ("def evaluate(program_path):\n    return {'combined_score': 0.7}\n", "constant"),
    "length": (
        "def evaluate(program_path):\n    return {'combined_score': min(1.0, len(open(program_path).read()) / 4000)}\n",
        "over-long",
    ),
    "keyword": (
        "def evaluate(program_path):\n"
        "    text = open(program_path).read()\n"
        "    return {'combined_score': sum(w in text for w in ('def', 'order', 'sorted', 'key', 'best')) / 5}\n",
        "stuffed",
    ),
    "crash-blind": (
        "def evaluate(program_path):\n"
        "    score = 1.0\n"
        "    try:\n"
        "        program = load(program_path)\n"
        "        score = sum(program.order(list(x)) == y for x, y, _ in CASES) / len(CASES)\n"
        "    except Exception:\n"
        "        pass\n"
        "    return {'combined_score': score}\n",
        "crashed",
    ),
    "leaking": (
        "def evaluate(program_path):\n"
        "    program = load(program_path)\n"
        "    program.TESTS = [y for _, y, _ in CASES]\n"
        "    right = sum(program.order(list(x)) == y for x, y, _ in CASES)\n"
        "    return {'combined_score': right / len(CASES)}\n",
        "peeking",
    ),
}


def proven(source: str) -> Proof:
    return asyncio.run(prove(from_source(LOADING + source), program=SORTER))


@pytest.mark.parametrize("name", GOOD)
def test_a_good_evaluator_is_admitted_and_may_steer_only(name: str) -> None:
    proof = proven(GOOD[name])
    assert proof.reasons == []
    assert proof.admitted
    assert proof.co_resident


@pytest.mark.parametrize("name", BAD)
def test_a_planted_one_is_refused_for_what_is_wrong_with_it(name: str) -> None:
    source, caught_by = BAD[name]
    proof = proven(source)
    assert not proof.admitted
    assert caught_by in {check.name for check in proof.checks if not check.passed}


CHOOSER = """
def wanted(size):
    return 0 - size
"""
CHOOSING = (
    "SIZES = [(3, 1, 2), (5, 9), (7, 4, 6, 8), (2, 2, 1)]\n"
    "def chosen(path):\n"
    "    wanted = load(path).wanted\n"
    "    return [max(sorted(sizes), key=wanted) for sizes in SIZES]\n"
    "def evaluate(program_path):\n"
    "    return {'combined_score': -float(sum(chosen(program_path)))}\n"
)


def table_of(source: str, program: str) -> Proof:
    return asyncio.run(prove(from_source(LOADING + source), program=program))


def test_a_constant_that_does_what_the_program_does_is_no_worse_and_is_left_out() -> None:
    unsaid = table_of(CHOOSING, CHOOSER)
    assert [check.name for check in unsaid.checks if not check.passed] == ["constant"]
    assert any("behaviour(path)" in note for note in unsaid.notes)
    said = table_of(CHOOSING + "def behaviour(path): return chosen(path)\n", CHOOSER)
    assert said.admitted, said.reasons
    assert any("5 constants are left out" in note for note in said.notes)


@pytest.mark.parametrize(
    "source",
    [
        BAD["constant"][0] + "def behaviour(path): return 'whatever it is'\n",
        BAD["crash-blind"][0] + "def behaviour(path): return 'whatever it is'\n",
        # It sees that they differ, and scores a constant as high.
        "def evaluate(program_path):\n    load(program_path).order([])\n    return {'combined_score': 0.7}\n"
        "def behaviour(path): return [load(path).order(list(x)) for x, _, _ in CASES]\n",
    ],
)
def test_a_behaviour_does_not_excuse_an_evaluator_that_sees_nothing(source: str) -> None:
    assert not table_of(source, SORTER).admitted


def test_a_program_without_functions_is_made_worse_by_its_values() -> None:
    program = "SIZES = [3, 1]\nNAME = 'box'\nUNUSED = 5\n"
    assert parts(program) == ["SIZES", "NAME", "UNUSED"]
    looked = (
        "def evaluate(program_path):\n    program = load(program_path)\n"
        "    return {'combined_score': (program.SIZES == [3, 1]) + 0.5 * (program.NAME == 'box')}\n"
    )
    proof = table_of(looked, program)
    assert proof.admitted, proof.reasons
    assert next(check for check in proof.checks if check.name == "mutated").detail.endswith("2 of 2")
    assert not table_of(BAD["constant"][0], program).admitted


def test_the_evaluators_of_our_examples_are_admitted(repository: Path) -> None:
    for name in ("bin_packing", "modules", "retry_policy"):
        folder = repository / "examples" / "evolve" / name
        evaluator, program = load(str(folder / "evaluator.py")), (folder / "program.py").read_text()
        proof = asyncio.run(prove(evaluator, program=program))
        assert proof.admitted, (name, proof.reasons)


def test_a_clock_in_the_score_is_not_deterministic() -> None:
    proof = proven(
        "import time\ndef evaluate(program_path):\n    program = load(program_path)\n"
        "    right = sum(program.order(list(x)) == y for x, y, _ in CASES)\n"
        "    return {'combined_score': right / len(CASES) + time.time() % 1}\n"
    )
    assert "deterministic" in {check.name for check in proof.checks if not check.passed}


def test_a_program_is_needed_and_has_to_be_one() -> None:
    evaluator = from_source(LOADING + GOOD["share of cases"])
    with pytest.raises(InputError, match="judges programs"):
        asyncio.run(prove(evaluator))
    with pytest.raises(InputError, match="no Python program"):
        asyncio.run(prove(evaluator, program="def ("))


def test_variants_are_programs_and_differ_from_the_original() -> None:
    families: dict[str, int] = {}
    for family, text in programs(SORTER):
        compile(text, family, "exec")
        assert text != reformatted(SORTER)
        families[family] = families.get(family, 0) + 1
    assert families == {"constant": 6, "empty": 1, "crashed": 2, "stuffed": 1, "over-long": 1, "peeking": 1}
    assert [*programs(SORTER)] == [*programs(SORTER)]


def test_a_degraded_program_answers_wrongly_in_one_function_only() -> None:
    source = (
        '"""Doc."""\nfrom __future__ import annotations\n'
        "class Agent:\n    @staticmethod\n    def act(x): return x\n    async def wait(self, x): return [x]\n"
        "def other(x): return {'a': x}\n"
    )
    assert parts(source) == ["Agent.act", "Agent.wait", "other"]
    always, sometimes = degraded(source, "Agent.act")
    for text, wanted in ((always, [-2, -2, -2]), (sometimes, [-2, 1, -2])):
        space: dict[str, Any] = {}
        exec(compile(text, "program", "exec"), space)
        assert [space["Agent"].act(1) for _ in range(3)] == wanted
        assert space["other"](1) == {"a": 1}
    space = {}
    exec(compile(degraded(source, "Agent.wait")[0], "program", "exec"), space)
    assert asyncio.run(space["Agent"]().wait("ab")) == ["ba?"]


def test_files_that_an_evaluator_names_are_staged_with_it_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "evaluator.py").write_text(
        "import cases\nDATA = 'numbers.txt'\ndef evaluate(program_path):\n    return {'score': 1}\n"
    )
    for name in ("cases.py", "numbers.txt", "secret.txt", "other.py"):
        (tmp_path / name).write_text("x = 1")
    assert sorted(load(str(tmp_path / "evaluator.py")).files) == ["cases.py", "evaluator.py", "numbers.txt"]
