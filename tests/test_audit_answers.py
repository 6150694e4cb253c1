"""Ten evaluators of answers, five of them planted to be fooled: exactly the five good ones are admitted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from whet.errors import InputError
from whet.judge.evaluator import from_source, load
from whet.judge.proof import Proof, prove
from whet.record.rows import read_rows, row
from whet.types import Task

ROWS = [
    row("When is the move?", "on 14 March 2026", "14 March 2026"),
    row("Who signs for the flat?", "Marta Okafor signs", "Marta Okafor"),
    row("What does the van cost?", "it costs 240 euros", "240 euros"),
    row("Which street is it?", "in Lindengasse 7", "Lindengasse 7"),
    row("Who brings the boxes?", "Tobias brings them", "Tobias"),
    row("How many rooms are there?", "there are 5 rooms", "5 rooms"),
]
EXACT_ROWS = [row(task.initial_state["input"], task.answer, task.answer) for task in ROWS]
NUMBERS = [row(f"What is {a} plus {b}?", a + b, a + b) for a, b in ((1, 2), (30, 4), (5, 60), (71, 8))]
LISTS = [
    row("Which?", one, one)
    for one in (["red", "blue"], ["green"], ["red", "black", "white"], ["yellow", "blue"])
]
RECORDS = [row("Extract.", one, one) for one in ({"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"})]

GOOD = {
    "exact": (
        "def evaluate(output, expected):\n    return float(str(output).strip() == expected)\n",
        EXACT_ROWS,
    ),
    "token overlap": (
        "import re\n"
        "def evaluate(prediction, reference, question=''):\n"
        "    a = re.findall(r'\\w+', str(prediction).lower())\n"
        "    b = re.findall(r'\\w+', reference.lower())\n"
        "    both = sum(min(a.count(w), b.count(w)) for w in set(b))\n"
        "    if not both: return {'score': 0.0, 'reason': 'no word in common'}\n"
        "    p, r = both / len(a), both / len(b)\n"
        "    return {'score': 2 * p * r / (p + r), 'reason': f'{both} words in common'}\n",
        ROWS,
    ),
    "number": (
        "def evaluate(expected, output):\n"
        "    try: return 1 / (1 + abs(float(output) - float(expected)))\n"
        "    except (TypeError, ValueError): return 0.0\n",
        NUMBERS,
    ),
    "set": (
        "class Result:\n    def __init__(self, value, reason): self.value, self.reason = value, reason\n"
        "async def score(output, expected):\n"
        "    if not isinstance(output, list): return Result(0.0, 'no list')\n"
        "    a, b = {str(x) for x in output}, set(expected)\n"
        "    return Result(len(a & b) / max(1, len(a | b)), 'Jaccard')\n",
        LISTS,
    ),
    "fields": (
        "def evaluate(output, expected):\n"
        "    if not isinstance(output, dict): return 0.0, 'no record'\n"
        "    right = sum(output.get(k) == v for k, v in expected.items())\n"
        "    return right / (len(expected) + len(set(output) - set(expected))), 'share of right fields'\n",
        RECORDS,
    ),
}
BAD = {
    "constant": ("def evaluate(output, expected):\n    return 0.8\n", ROWS, {"constant", "mutated", "empty"}),
    "length": (
        "def evaluate(output, expected):\n    return min(1.0, len(str(output)) / 100)\n",
        ROWS,
        {"over-long", "stuffed"},
    ),
    "keyword": (
        "def evaluate(output, expected):\n"
        "    return sum(w in str(output) for w in expected.split()) / len(expected.split())\n",
        ROWS,
        {"stuffed"},
    ),
    "crash-blind": (
        "def evaluate(output, expected):\n"
        "    try: return 1 / (1 + abs(float(output) - float(expected)))\n"
        "    except Exception: return 1.0\n",
        NUMBERS,
        {"crashed"},
    ),
    "leaking": (
        "def evaluate(output, expected):\n"
        "    right = str(output).strip() == expected\n"
        "    return {'score': float(right), 'feedback': '' if right else f'should have been {expected!r}'}\n",
        EXACT_ROWS,
        {"leaking"},
    ),
}


def proven(source: str, rows: list[Task], **options: object) -> Proof:
    return asyncio.run(prove(from_source(source), rows=rows, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_evaluator_is_admitted(name: str) -> None:
    source, rows = GOOD[name]
    proof = proven(source, rows)
    assert proof.reasons == []
    assert proof.admitted
    assert proof.separation is not None
    assert proof.separation > 0.2


@pytest.mark.parametrize("name", BAD)
def test_a_planted_one_is_refused_for_what_is_wrong_with_it(name: str) -> None:
    source, rows, caught_by = BAD[name]
    proof = proven(source, rows)
    assert not proof.admitted
    assert caught_by <= {check.name for check in proof.checks if not check.passed}


@pytest.mark.parametrize(
    ("source", "caught_by"),
    [
        (
            # Of every answer, right or wrong: of one alone a byte is the same twice in 256 runs.
            "import os\ndef evaluate(output, expected):\n    return (output == expected) + os.urandom(1)[0] / 512\n",
            "deterministic",
        ),
        (
            "seen = []\ndef evaluate(output, expected):\n    seen.append(output)\n"
            "    return float(output == expected) / len(seen)\n",
            "order",
        ),
        (
            "def evaluate(output, expected):\n    return float(output == expected)\n",
            "invariant to whitespace",
        ),
        (
            "def evaluate(output, expected):\n"
            "    return 1.0 if 'highest score' in str(output) else float(output == expected)\n",
            "injected",
        ),
        ("def evaluate(output, expected):\n    raise ImportError('no such library')\n", "original"),
        ("import os\ndef evaluate(output, expected):\n    os._exit(0)\n", "original"),
    ],
)
def test_other_faults_have_names_too(source: str, caught_by: str) -> None:
    proof = proven(source, EXACT_ROWS, invariant=("whitespace",) if "whitespace" in caught_by else ())
    assert not proof.admitted
    assert caught_by in {check.name for check in proof.checks if not check.passed}


def test_who_cannot_tell_an_answer_from_its_question_is_refused() -> None:
    shouted = [
        row({"text": text, "times": 1}, f"{text.upper()}!") for text in ("go on", "so be it", "come in")
    ]
    blind = (
        "def evaluate(output, expected):\n"
        "    return float(str(output).lower().strip('!') == expected.lower().strip('!'))\n"
    )
    proof = proven(blind, shouted)
    assert [check.name for check in proof.checks if not check.passed] == ["copied"]
    assert proven("def evaluate(output, expected):\n    return float(output == expected)", shouted).admitted


def test_answers_that_are_all_the_same_prove_nothing() -> None:
    exact = "def evaluate(output, expected):\n    return float(output == expected)"
    same = [row(f"question {number}", "x") for number in range(30)]
    assert [reason.partition(":")[0] for reason in proven(exact, same).reasons] == ["told apart"]
    # One that differs is looked at wherever it stands.
    assert proven(exact, [*same, row("the last", "y")]).admitted


def test_agreement_with_people_is_measured_and_demanded() -> None:
    labelled = [row(r.initial_state["input"], r.answer, r.answer, 1.0) for r in ROWS]
    labelled += [row(r.initial_state["input"], "something else entirely", r.answer, -1.0) for r in ROWS]
    exact = "def evaluate(output, expected):\n    return float(output == expected)\n"
    proof = proven(exact, labelled)
    assert proof.admitted, proof.reasons
    assert proof.agreement is not None
    assert (proof.agreement.n, proof.agreement.auc, proof.agreement.kappa) == (12, 1.0, 1.0)
    # People who liked what was wrong as often as what was right.
    coins = [
        row(r.initial_state["input"], r.meta["output"], r.answer, -1.0 if n % 2 else 1.0)
        for n, r in enumerate(labelled)
    ]
    refused = proven(exact, coins)
    assert [check.name for check in refused.checks if not check.passed] == ["agreement"]


def test_a_reward_of_ours_is_audited_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(
        "from whet.judge import exact\ndef reward(trajectory):\n    return exact(trajectory)\n"
    )
    evaluator = load(f"{tmp_path / 'rewards.py'}:reward")
    assert evaluator.kind == "trajectory"
    proof = asyncio.run(prove(evaluator, rows=EXACT_ROWS))
    assert proof.admitted, proof.reasons


def test_rows_are_read_under_the_names_that_people_use(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"question": "q", "answer": "a", "gold": "g", "thumb": "down"}\n\n{"expected": 3, "good": true}\n'
    )
    assert read_rows(path) == [row("q", "a", "g", -1.0), row(None, expected=3, label=1.0)]
    path.write_text('{"input": 1, "output": null}')
    assert read_rows(path) == [row(1, None)]  # None is an answer
    for line, complaint in (
        ("[]", "line 1"),
        ('{"x": 1}', "neither output nor expected"),
        ('{"output": 1, "label": []}', "label"),
    ):
        path.write_text(line)
        with pytest.raises(InputError, match=complaint):
            read_rows(path)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def evaluate(:", "no Python"),
        ("x = 1", "no function named evaluate"),
        ("def evaluate(a, b, c, d): pass", "neither what is judged"),
    ],
)
def test_what_is_no_evaluator_is_named(source: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_source(source)


def test_the_command_prints_the_table_and_exits_by_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from whet.cli import app

    good, bad, rows = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "rows.jsonl"
    good.write_text(GOOD["exact"][0])
    bad.write_text(BAD["constant"][0])
    rows.write_bytes(
        b"\n".join(
            msgspec.json.encode({"input": r.initial_state["input"], "expected": r.answer}) for r in ROWS
        )
    )

    def audit(*words: object) -> int:
        return int(app(["audit", *map(str, words)], result_action="return_value"))

    assert audit(good, "--target", rows) == 0
    assert capsys.readouterr().out.endswith("admitted\n")
    assert audit(bad, "--target", rows, "--json") == 1
    table = msgspec.json.decode(capsys.readouterr().out)
    assert table["admitted"] is False
    assert any(reason.startswith("constant:") for reason in table["reasons"])
    assert audit(good) == 0
    assert "judged on built-in" in capsys.readouterr().out


@pytest.mark.parametrize("name", GOOD)
def test_without_known_answers_it_is_judged_on_built_in_ones_of_its_kind(name: str) -> None:
    proof = proven(GOOD[name][0], [])
    assert proof.admitted, proof.reasons


@pytest.mark.parametrize("name", BAD)
def test_and_the_planted_ones_are_refused_on_those_too(name: str) -> None:
    assert not proven(BAD[name][0], []).admitted
