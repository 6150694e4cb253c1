"""Rows for a target: recorded ones first, then known and made ones, each with where it is from."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agent_toys
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import whet
from whet.cli import main
from whet.errors import InputError, NotFoundError
from whet.learn.datasets.callee import Callee
from whet.learn.datasets.examples import divided, leaks, load, write
from whet.learn.datasets.generation import Account, answers, generate
from whet.learn.datasets.recorded import distinct, recorded
from whet.learn.datasets.signatures import examples, read
from whet.learn.datasets.synthesis import Unknown, inputs, maker
from whet.models.fakes.server import Reply, ScriptedServer
from whet.record.rows import expected_answer, row
from whet.record.tracing import flush
from whet.sandbox import Limits, Local, Pool
from whet.types import Feedback, Json, Task

SORT = '''
def label(text: str, limit: int = 3) -> str:
    """Says how long a text is.

    >>> label("ab")
    'short'
    >>> label("abcdef", limit=2)
    'long'
    """
    if text == "crash":
        raise ValueError("no")
    return "short" if len(text) <= limit else "long"
'''


@whet.step
def label(text: str, limit: int = 3) -> str:
    """What the agent of a test calls; it stands in for the one in SORT."""
    return "short"


LABEL = Callee("label", "m:label", {"m.py": SORT})


def made(callee: Callee, wanted: int, **more: Any) -> tuple[list[Task], Account]:
    async def run() -> tuple[list[Task], Account]:
        async with Pool(Local(limits=Limits(wall_seconds=10.0))) as pool:
            return await generate(callee, wanted, pool=pool, **more)

    return asyncio.run(run())


def test_exactly_as_many_rows_as_asked_for_each_with_its_provenance_and_split() -> None:
    rows, account = made(LABEL, 30, seed=1)
    assert len(rows) == account.kept == 30
    assert account.why == ""
    assert len({row.id for row in rows}) == 30
    assert all(row.split and row.meta["provenance"]["how"] in ("docstring", "generated") for row in rows)
    assert account.sources["docstring"] == 2
    assert {row.meta["output"] for row in rows} == {"short", "long"}
    assert leaks(rows).clean
    assert rows == made(LABEL, 30, seed=1)[0]


def test_a_function_with_few_inputs_gives_fewer_rows_and_says_why() -> None:
    flag = Callee("flip", "m:flip", {"m.py": "def flip(on: bool) -> bool:\n    return not on\n"})
    rows, account = made(flag, 30)
    assert sorted(str(row.initial_state["input"]) for row in rows) == ["False", "True"]
    assert account.why.startswith("2 of 30")


def test_what_raises_or_cannot_cross_is_left_out_and_counted() -> None:
    text = "def odd(text: str):\n    return (1,) if 'a' in text else {}[text]\n"
    rows, account = made(Callee("odd", "m:odd", {"m.py": text}), 5)
    assert rows == []
    assert set(account.dropped) == {"answers that cannot cross as JSON", "inputs that the function raises on"}


def test_answers_that_depend_on_the_calls_before_are_no_rows() -> None:
    text = "seen = []\ndef count(n: int) -> int:\n    seen.append(n)\n    return len(seen)\n"
    rows, account = made(Callee("count", "m:count", {"m.py": text}), 6)
    assert account.dropped["answers that depend on the calls before"] > 6
    assert len(rows) <= 1


def test_a_parameter_that_no_json_can_be_is_named() -> None:
    with pytest.raises(Unknown, match="Rule"):
        next(inputs(read("def f(rule: Rule): pass", "f"), [], 0))
    _, account = made(Callee("f", "m:f", {"m.py": "class Rule: pass\ndef f(rule: Rule): pass\n"}), 3)
    assert "parameter rule" in account.examples_of["parameters that no value can be made for"]


@pytest.mark.parametrize(
    ("annotation", "fits"),
    [
        ("str", lambda v: isinstance(v, str)),
        ("int", lambda v: type(v) is int),
        ("float | None", lambda v: v is None or type(v) is float),
        ("Literal['a', 2]", lambda v: v in ("a", 2)),
        ("list[int]", lambda v: all(type(each) is int for each in v)),
        ("dict[str, bool]", lambda v: all(type(each) is bool for each in v.values())),
        ("typing.Sequence[str]", lambda v: isinstance(v, list)),
        ("tuple[int, str]", lambda v: type(v[0]) is int and isinstance(v[1], str)),
        ("Optional['str']", lambda v: v is None or isinstance(v, str)),
    ],
)
def test_values_have_the_type_that_the_annotation_says(annotation: str, fits: Any) -> None:
    make = maker(annotation, ["refund", 40])
    assert all(fits(make(random.Random(seed))) for seed in range(200))


@pytest.mark.parametrize(
    ("annotation", "kinds"),
    [
        ("str | bytes | SupportsInt | None", {str, type(None)}),
        ("Union[Path, int]", {int}),
        ("Optional[str]", {str, type(None)}),
    ],
)
def test_of_several_types_those_that_are_json_are_made(annotation: str, kinds: set[type]) -> None:
    rng = random.Random(0)
    assert {type(maker(annotation, [])(rng)) for _ in range(50)} == kinds


@pytest.mark.parametrize("annotation", ["bytes | None", "Optional[Path]", "Union[None, Path]"])
def test_nothing_alone_is_no_value_of_a_type_that_no_json_can_be(annotation: str) -> None:
    with pytest.raises(Unknown):
        maker(annotation, [])


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(), min_size=1))
def test_an_input_is_either_called_with_or_refused(given_input: dict[str, Json]) -> None:
    signature = read("def f(a, b=1): pass", "f")
    args, kwargs, _ = [], {}, {}
    try:
        args, kwargs, _ = signature.arguments(given_input)
    except InputError:
        raise AssertionError("one argument can hold any object") from None
    assert kwargs == given_input if "a" in given_input and "c" not in given_input else args == [given_input]


def test_calls_in_tests_and_docstrings_are_known_examples() -> None:
    signature = read(SORT, "label")
    tests = (
        "def test():\n    assert label('abc', 2) == 'long'\n    label('x')\n    label(other)\n"
        "    assert label('ab') == 1\n"
    )
    found = {
        str(task.initial_state["input"]): (task.answer_known, expected_answer(task))
        for task in examples(signature, {"t.py": tests})
    }
    assert found["ab"] == (True, "short"), "what its own docstring says goes first"
    assert found["{'text': 'abc', 'limit': 2}"] == (True, "long")
    assert found["x"] == (False, UNSET)
    assert len(found) == 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[whet.Store]:
    with whet.Store(tmp_path / "runs.db") as opened:
        yield opened


def test_recorded_runs_come_first_with_what_people_said(store: whet.Store) -> None:
    @whet.trace(store, name="label")
    def root(text: str, limit: int = 3) -> str:
        return "short"

    @whet.trace(store)
    def agent(text: str) -> str:
        return label(text, 5)

    said: list[tuple[str, dict[str, Any]]] = [
        ("liked", {"value": 1.0}),
        ("corrected", {"value": -1.0, "correction": "long"}),
        ("corrected", {"correction": "medium"}),
        ("disliked", {"value": -1.0}),
        ("unsaid", {}),
    ]
    for text, words in said:
        with whet.run(subject=f"person {text}") as run:
            root(text)
        if words:
            whet.feedback(run.id, store=store, **words)
    for value in (1.0, -1.0):
        with whet.run() as run:
            agent(f"inside {value}")
        whet.feedback(run.id, value, store=store)
    flush()
    found, repeated = distinct(recorded(read(SORT, "label"), "label", store.trajectories()))
    by_input = {str(row.initial_state["input"]): row for row in found}
    assert repeated == 1
    assert by_input["liked"].answer == "short"
    assert by_input["liked"].group == "person liked"
    assert by_input["corrected"].answer == "medium", "the latest correction"
    assert not by_input["disliked"].answer_known
    assert not by_input["unsaid"].answer_known
    # Praise of a run speaks for the step inside it; blame may be meant for another.
    assert by_input["{'text': 'inside 1.0', 'limit': 5}"].answer == "short"
    assert by_input["{'text': 'inside -1.0', 'limit': 5}"].meta.get("label") is None

    rows, account = made(LABEL, 12, runs=store.trajectories())
    assert account.sources["trace"] == 6
    assert len(rows) == 12


def test_a_preference_says_what_was_wanted(store: whet.Store) -> None:
    @whet.trace(store, name="label")
    def root(text: str) -> str:
        return "short"

    with whet.run() as run:
        root("either")
    said = Feedback(run=run.id, kind="preference", correction={"chosen": "long", "rejected": "short"})
    store.add_feedback(said)
    flush()
    (row,) = recorded(read(SORT, "label"), "label", store.trajectories())
    assert row.answer == "long"
    assert row.meta["label"] == -1.0


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    rows = divided([row({"a": n}, expected=n, provenance={"how": "file"}) for n in range(10)])
    write(tmp_path / "rows", rows)
    lines = {path.stem: len(path.read_bytes().splitlines()) for path in (tmp_path / "rows").iterdir()}
    assert lines == {"train": 6, "validation": 2, "gate": 2}
    assert sorted(load(tmp_path / "rows"), key=lambda row: row.id) == sorted(rows, key=lambda row: row.id)
    with pytest.raises(NotFoundError, match="generate-training-data"):
        load(tmp_path / "nowhere")


def test_methods_and_coroutines_are_called_with_what_their_class_is_made_with() -> None:
    text = (
        "class Box:\n    def __init__(self, size: int):\n        self.size = size\n"
        "    async def holds(self, count: int) -> bool:\n        return count <= self.size\n"
        "    @staticmethod\n    def twice(n: int) -> int:\n        return 2 * n\n"
    )
    holds = Callee("holds", "m:Box.holds", {"m.py": text})
    rows, _ = made(holds, 12)
    assert len(rows) == 12
    for task in rows:
        given = task.initial_state["input"]
        assert task.meta["output"] == (given["count"] <= given["self"]["size"])
    twice, _ = made(Callee("twice", "m:Box.twice", {"m.py": text}), 5)
    assert all(row.meta["output"] == 2 * int(row.initial_state["input"]) for row in twice)  # type: ignore[call-overload]


def test_a_model_that_writes_a_third_of_junk_still_gives_exactly_thirty_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Valid, junk and repeated lines in turn, as a weak model writes them."""
    monkeypatch.chdir(agent_toys.write(tmp_path / "desk"))
    junk = [
        "not json",
        '{"input": {"amont": 3}, "expected": "small"}',
        '{"input": 5}',
        '{"input": 7, "expected": 3}',
    ]

    def script(request: Any) -> Reply:
        script.asked += 1  # type: ignore[attr-defined]
        lines = [
            json.dumps({"input": 11 * script.asked + n, "expected": "small"}) if n % 10 < 7 else junk[n % 4]  # type: ignore[attr-defined]
            for n in range(10)
        ]
        return Reply(answer="Here:\n```json\n" + "\n".join(lines) + "\n```")

    script.asked = 0  # type: ignore[attr-defined]
    words = [
        "generate-training-data",
        "--target",
        "size",
        "--num-samples",
        "30",
        "--json",
        "--output",
        str(tmp_path),
    ]
    with ScriptedServer(script) as server:
        endpoint = ["--model", "scripted", "--base-url", server.base_url]
        for _ in range(2):
            with pytest.raises(SystemExit) as done:
                main([*words, *endpoint])
            said = json.loads(capsys.readouterr().out)["targets"]["size"]
            assert done.value.code == 0
            assert said["kept"] == 30
            assert said["sources"] == {"repository": 3, "model": 27}
            assert sum(said["dropped"].values()) >= 9
        assert script.asked == said["calls"], "answers that were paid for are not paid for again"  # type: ignore[attr-defined]
    rows = load(tmp_path / "size")
    assert len({row.id for row in rows}) == 30
    assert json.loads((tmp_path / "size" / "account.json").read_text())["kept"] == 30


def test_a_hanging_input_costs_its_timeout_and_the_others_are_answered() -> None:
    text = "import time\n\ndef slow(n: int) -> int:\n    time.sleep(60 if n == 7 else 0)\n    return n\n"

    async def run() -> list[Any]:
        async with Pool(Local(limits=Limits(wall_seconds=3.0))) as pool:
            return await answers(Callee("slow", "m:slow", {"m.py": text}), [1, 7, 2], pool)

    found = asyncio.run(run())
    assert [each.value for each in found] == [1, None, 2]
    assert found[1].killed_by is not None
