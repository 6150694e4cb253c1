"""The rewards that have a name: partial credit where it is due, and None with a sentence where a task does not say."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest
from commands import answered, command

from whet.errors import InputError
from whet.judge import check_reward, name_of, score
from whet.judge.answers import F1, JSON, SCHEMA, TESTS, VERBATIM, compared, formatted, schema
from whet.judge.base import ascore, version_of
from whet.judge.blend import blend, recorded, sweep
from whet.judge.conduct import fewer_turns, goal_state, intent, looped, no_loops, safe, subgoals
from whet.judge.json_schema import conformance
from whet.judge.rules import exact, last_number, solved
from whet.judge.sql import SQL, sql_match
from whet.learn.plugins import announced, load
from whet.record.store import Store
from whet.types import Outcome, Score, Step, Task, Trajectory


def ran(
    output: object = None, *, answer: object = None, steps: tuple[Step, ...] = (), **meta: object
) -> Trajectory:
    return Trajectory(task=Task(instruction="?", answer=answer, meta=meta), output=output, steps=steps)


def tool(name: str, result: object = "ok", **arguments: object) -> Step:
    return Step(kind="tool", name=name, observation=arguments, action=result, id=f"{name}{random.random()}")


def value(reward: object, run: Trajectory) -> float | None:
    return score(reward, run).value


def test_every_named_reward_loads_has_a_version_and_says_what_is_missing() -> None:
    for name in announced("whet.rewards"):
        reward = load("whet.rewards", name)
        assert version_of(reward), name
        judged = asyncio.run(ascore(reward, ran("an answer")))
        assert judged.value is not None or len(judged.reason.split()) > 5, (name, judged)
        assert not judged.broke, (name, judged)


def test_answers_are_compared_with_partial_credit() -> None:
    assert value(VERBATIM, ran("Paris", answer="Paris")) == 1.0
    assert value(VERBATIM, ran("paris.", answer="Paris")) == 0.0
    assert value(exact, ran("paris.", answer="Paris")) == 1.0
    assert value(F1, ran("in the city of Paris", answer="the city Paris")) == pytest.approx(0.75)
    assert value(F1, ran("Lutetia", answer=["Paris", "Lutetia"])) == 1.0
    assert value(JSON, ran('```json\n{"b": 1, "a": 2}\n```', answer={"a": 2, "b": 1})) == 1.0
    assert value(F1, ran("anything")) is None
    with pytest.raises(InputError, match="no metric"):
        compared("label")


def test_a_schema_gives_the_share_of_its_demands() -> None:
    wanted = {
        "type": "object",
        "required": ["name", "age"],
        "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
        "additionalProperties": False,
    }
    assert value(SCHEMA, ran('{"name": "Ada", "age": 36}', schema=wanted)) == 1.0
    half = value(SCHEMA, ran('{"name": "Ada"}', schema=wanted))
    assert half is not None
    assert 0.5 < half < 1.0
    assert value(SCHEMA, ran('{"name": "Ada", "age": -1, "x": 2}', schema=wanted)) < 1.0
    assert value(SCHEMA, ran("Ada, 36", schema=wanted)) == 0.0
    assert value(SCHEMA, ran("3", schema=wanted)) == 0.0
    assert value(schema({"pattern": "^a"}), ran('"abc"')) == 1.0
    assert value(schema({"pattern": "^a"}), ran('"bc"')) == 0.0


def test_the_schema_checker_says_what_jsonschema_says() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    rng = random.Random(0)

    def thing(depth: int = 0) -> object:
        kinds = [1, 0, -2, 1.5, True, None, "", "ab", []]
        if depth < 2 and rng.random() < 0.5:
            return {key: thing(depth + 1) for key in "abc" if rng.random() < 0.6}
        if depth < 2 and rng.random() < 0.4:
            return [thing(depth + 1) for _ in range(rng.randint(0, 3))]
        return rng.choice(kinds)

    def demands(depth: int = 0) -> dict[str, object]:
        inner = (lambda: demands(depth + 1)) if depth < 2 else (dict)
        every = {
            "type": rng.choice(
                ["object", "array", "integer", "number", "string", "null", ["string", "null"]]
            ),
            "enum": [thing(2), thing(2)],
            "minimum": rng.choice([0, 1]),
            "maxLength": 1,
            "required": ["a"],
            "properties": {"a": inner(), "b": inner()},
            "additionalProperties": rng.choice([True, False]),
            "items": inner(),
            "minItems": 1,
            "uniqueItems": True,
            "anyOf": [inner(), inner()],
            "oneOf": [inner(), inner()],
            "not": inner(),
        }
        return {name: every[name] for name in every if rng.random() < 0.22}

    for _ in range(800):
        asked, answered = demands(), thing()
        ours = conformance(answered, asked)
        assert (ours.share == 1.0) == jsonschema.Draft202012Validator(asked).is_valid(answered), (
            asked,
            answered,
        )


DATABASE = """
CREATE TABLE city (name TEXT, country TEXT, people INTEGER);
INSERT INTO city VALUES ('Paris', 'F', 2), ('Lyon', 'F', 1), ('Oslo', 'N', 1);
"""


def test_a_query_is_judged_by_its_rows() -> None:
    def asked(query: str, right: object = "SELECT name FROM city WHERE country = 'F'") -> float | None:
        return value(SQL, ran(query, answer=right, database=DATABASE))

    assert asked("SELECT name FROM city WHERE people > 0 AND country = 'F' ORDER BY people") == 1.0
    assert asked("```sql\nSELECT name FROM city WHERE country = 'F';\n```") == 1.0
    assert asked("SELECT name FROM city") == pytest.approx(0.8)
    assert asked("SELECT name FROM city", [["Paris"], ["Lyon"], ["Oslo"]]) == 1.0
    assert asked("SELECT 1") == 0.0
    assert asked("the cities are Paris and Lyon") == 0.0
    ordered = "SELECT name FROM city ORDER BY people DESC, name"
    assert asked("SELECT name FROM city ORDER BY name", ordered) == 0.9
    assert value(SQL, ran("SELECT 1", answer="SELECT 1")) is None
    assert (
        value(sql_match({"d": DATABASE}, partial=False), ran("SELECT 1", answer="SELECT 2", database="d"))
        == 0.0
    )


@pytest.mark.parametrize(
    "attack",
    [
        "DROP TABLE city",
        "DELETE FROM city",
        "INSERT INTO city VALUES ('x', 'F', 3)",
        "ATTACH '/tmp/whet-attack.db' AS other",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('/tmp/x')",
        "SELECT name FROM city WHERE country = 'F'; DROP TABLE city",
    ],
)
def test_an_answered_query_can_only_read(attack: str) -> None:
    right = "SELECT name FROM city WHERE country = 'F'"
    assert value(SQL, ran(attack, answer=right, database=DATABASE)) == 0.0
    assert value(SQL, ran(right, answer=right, database=DATABASE)) == 1.0, "the database is as it was"


def test_a_query_without_an_end_is_stopped() -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    began = time.process_time()
    assert value(SQL, ran(endless, answer="SELECT 1", database=DATABASE)) == 0.0
    assert time.process_time() - began < 20


def test_programs_are_judged_by_hidden_tests() -> None:
    tests = {"function": "double", "cases": [[[1], 2], [[3], 6], [[0], 0], [["a"], "aa"]]}
    right = asyncio.run(ascore(TESTS, ran("def double(x): return x * 2", tests=tests)))
    part = asyncio.run(ascore(TESTS, ran("def double(x): return int(x) * 2", tests=tests)))
    cheat = asyncio.run(ascore(TESTS, ran("import sys\ndef double(x): sys.exit(0)", tests=tests)))
    if right.value is None:
        pytest.skip(right.reason)
    assert (right.value, part.value, cheat.value) == (1.0, 0.75, 0.0)


def test_a_stretch_that_repeats_itself_is_a_loop_and_looking_twice_is_none() -> None:
    assert looped([b"a", b"b", b"a", b"b", b"a", b"b", b"c"]) == (6, 2)
    assert looped([b"a", b"a", b"b"]) == (0, 0)
    assert looped([]) == (0, 0)
    circle = tuple(tool("turn", "a buoy", way=way) for _ in range(5) for way in ("left", "right"))
    straight = tuple(tool("look", f"{n}", at=n) for n in range(10))
    assert value(no_loops, ran("done", steps=circle)) == pytest.approx(0.2)
    assert value(no_loops, ran("done", steps=straight)) == 1.0


def test_sub_goals_are_reached_in_their_order() -> None:
    goals = [
        {"call": "search", "arguments": {"q": "keyboard"}},
        {"sees": "12 euros", "after": [0]},
        {"says": "ordered", "after": [1]},
    ]
    steps = (tool("search", "one for 12 euros", q="keyboard"),)
    assert value(subgoals, ran("It is ordered.", steps=steps, subgoals=goals)) == 1.0
    assert value(subgoals, ran("No idea.", steps=steps, subgoals=goals)) == pytest.approx(2 / 3)
    assert value(subgoals, ran("ordered keyboard 12 euros", subgoals=goals)) == 0.0, (
        "saying it reaches nothing"
    )
    assert score(subgoals, ran("x", subgoals=[{"smells": "good"}], steps=steps)).broke


def test_doing_nothing_fulfils_no_intent_and_a_violation_costs() -> None:
    wishes = [{"name": "book", "arguments": {"refundable": True, "price": {"at_most": 200}}}]
    kept = (tool("book", refundable=True, price=150),)
    greedy = (tool("book", refundable=False, price=99),)
    assert value(intent, ran("booked", steps=kept, intent=wishes)) == 1.0
    assert value(intent, ran("booked", steps=greedy, intent=wishes)) == 0.5
    assert value(intent, ran("booked", intent=wishes)) == 0.0


def test_an_unsafe_run_is_worth_nothing() -> None:
    forbidden = ["refund", {"name": "send", "arguments": {"to": "all"}}]
    assert value(safe, ran("fine", steps=(tool("send", to="Ada"),), forbidden_calls=forbidden)) == 1.0
    assert value(safe, ran("fine", steps=(tool("send", to="all"),), forbidden_calls=forbidden)) == 0.0
    assert value(safe, ran("fine", steps=(tool("refund"),), forbidden_calls=forbidden)) == 0.0
    assert value(safe, ran("the key is sk-proj-" + "aB3dE5gH7jK9mN1pQ3sT5vW7" * 2)) == 0.0
    blocked = Trajectory(task=Task(instruction="?"), output="x", outcome=Outcome.BLOCKED)
    assert value(safe, blocked) == 0.0


def test_the_goal_state_counts_what_was_changed_beside_it() -> None:
    task = Task(
        instruction="cancel order 1",
        initial_state={"orders": {"1": "open", "2": "open"}, "user": "Ada"},
        meta={"goal_state": {"orders": {"1": "cancelled"}}},
    )

    def ended(**orders: str) -> float | None:
        state = {"orders": orders, "user": "Ada"}
        return value(goal_state, Trajectory(task=task, steps=(Step(info={"state": state}),)))

    assert ended(**{"1": "cancelled", "2": "open"}) == 1.0
    assert ended(**{"1": "cancelled", "2": "cancelled"}) == 0.5
    assert ended(**{"1": "open", "2": "open"}) == 0.0
    assert value(goal_state, Trajectory(task=task)) is None


def test_the_form_of_an_answer_gives_the_share_of_what_was_asked() -> None:
    form = {"max_words": 3, "includes": ["yes"], "ends_with": "."}
    assert value(formatted, ran("yes, sure.", format=form)) == 1.0
    assert value(formatted, ran("yes, I am quite sure of it", format=form)) == pytest.approx(1 / 3)
    assert value(formatted, ran("", format=form)) == 0.0
    assert score(formatted, ran("x", format={"colour": "red"})).broke


def test_turns_are_the_models_and_cost_something() -> None:
    steps = tuple(Step(kind="llm", action="x", observation="y") for _ in range(4))
    assert value(fewer_turns(0.1), ran("x", steps=steps)) == pytest.approx(-0.4)


def test_known_good_beats_every_attack_where_an_answer_is_known() -> None:
    good = [ran(f"The answer is {n}.", answer=f"The answer is {n}.") for n in (41, 52, 63)]
    for reward in (VERBATIM, F1):
        check_reward(reward, good)


def test_a_mixture_trades_one_reward_for_the_other() -> None:
    def run(environment: float, alignment: float) -> Trajectory:
        scores = {"kind": Score("kind", alignment)}
        outcome = Outcome.SUCCESS if environment else Outcome.FAILURE
        return Trajectory(task=Task(instruction="?"), outcome=outcome, scores=scores)

    kind = recorded("kind")
    candidates = {
        "ruthless": [run(1, 0.1)] * 4,
        "even": [run(1, 0.6)] * 3 + [run(0, 0.6)],
        "gentle": [run(0, 1.0)] * 3 + [run(1, 1.0)],
        "worse": [run(0, 0.5)] * 4,
    }
    swept = sweep(candidates, solved, kind)
    environments = [each.environment for each in swept.mixtures]
    assert environments == sorted(environments)
    assert [each.alignment for each in swept.mixtures] == sorted(
        (each.alignment for each in swept.mixtures), reverse=True
    )
    assert swept.front == ["gentle", "even", "ruthless"]
    assert value(blend(solved, kind, alpha=0.7), run(1, 0.5)) == pytest.approx(0.85)
    with pytest.raises(InputError):
        blend(solved, kind, alpha=0.0, beta=0.0)


def test_a_record_is_swept_by_a_reward_and_the_score_that_a_judge_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "runs.db") as store:
        for version, outcome, warmth in (("rough", Outcome.SUCCESS, 0.1), ("kind", Outcome.FAILURE, 0.9)):
            for number in range(3):
                scores = {"warmth": Score("warmth", warmth)}
                task = Task(instruction=f"question {number}")
                store.put(Trajectory(task=task, outcome=outcome, scores=scores, versions={"prompt": version}))
    swept = answered(
        capsys, "report", "--store", tmp_path / "runs.db", "--sweep", "solved", "warmth", "--json"
    )
    assert swept["front"] == ["prompt=kind", "prompt=rough"]
    assert [each["chosen"] for each in swept["mixtures"]][::10] == ["prompt=kind", "prompt=rough"]
    refused = command(capsys, "report", "--store", tmp_path / "runs.db", "--sweep", "solved", "cold")
    assert "no run has both solved and cold" in refused.stderr
    asked = command(capsys, "report", "--store", tmp_path / "runs.db", "--reward", "factual")
    assert "factual is a judge, which is asked" in asked.stderr


def test_the_last_number_is_found_from_the_end_as_from_the_beginning() -> None:
    from whet.judge.rules import _last_in

    rng = random.Random(1)
    for _ in range(5000):
        text = "".join(rng.choice('0123456789.,-+eE a\n%$x"=٣é') for _ in range(rng.randint(0, 90)))
        assert last_number(text) == _last_in(text), text
    assert name_of(no_loops) == "no_loops"
