"""Function calls: every form reads back as it was written, and nothing of it is run."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import InputError
from whet.learn.datasets.calls import (
    FunctionCall,
    FunctionSpec,
    allowed,
    calls_of,
    functions_of,
    message_of,
    problems,
    read_calls,
    same,
    written,
)

NAMES = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True).filter(
    lambda name: name.isidentifier() and "__" not in name
)
PLAIN = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=12)
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def is_keyword(name):
    import keyword

    return keyword.iskeyword(name)


CALLS = st.lists(
    st.builds(
        FunctionCall,
        NAMES.filter(lambda name: not is_keyword(name)),
        st.dictionaries(NAMES.filter(lambda name: not is_keyword(name)), JSON, max_size=3),
    ),
    max_size=3,
)

WEATHER = {
    "name": "weather.get",
    "description": "Weather of a place.",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "share": {"type": "float"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "where": {
                "type": "dict",
                "properties": {
                    "lat": {"type": "float"},
                    "tags": {"type": "tuple", "items": {"type": "string"}},
                },
                "required": ["lat"],
            },
        },
        "required": ["city"],
    },
}
FUNCTIONS = functions_of([WEATHER, FunctionSpec("now").tool])


@settings(max_examples=40)
@given(CALLS)
def test_both_forms_read_back_as_they_were_written(calls):
    assert same(read_calls(written(calls)), calls)
    assert same(calls_of(json.loads(json.dumps(message_of(calls)))), calls)


def test_nested_and_parallel_calls_are_read_in_every_spelling():
    nested = [
        FunctionCall("weather", {"city": FunctionCall("capital", {"of": "France"}), "days": 2}),
        FunctionCall("now", {}),
    ]
    spellings = (
        '[weather(city=capital(of="France"), days=2), now()]',
        'Call: weather(city=capital(of="France"), days=2); now()',
        'weather(city=capital(of="France"), days=2)\nnow()',
    )
    for text in spellings:
        assert same(read_calls(text), nested)
    assert read_calls(written(nested)) == nested
    assert not same(read_calls('weather(city=capital(of="Spain"), days=2); now()'), nested)
    assert read_calls("a.b(x=-1.5, y=[1, {'k': None}])") == [
        FunctionCall("a.b", {"x": -1.5, "y": [1, {"k": None}]})
    ]


def test_openai_form_refuses_a_call_within_a_call():
    with pytest.raises(InputError, match="inner"):
        message_of([FunctionCall("weather", {"city": FunctionCall("capital", {"of": "France"})})])


@pytest.mark.parametrize(
    "text",
    [
        "f(1)",
        "f(**{'a': 1})",
        "x = f()",
        "f(a=open('x').read)",
        "1 + 1",
        "f(a=b)",
        "lambda: f()",
        "f(",
        "(f or g)(a=1)",
    ],
)
def test_what_is_no_call_with_literals_is_refused_and_never_run(text):
    with pytest.raises(InputError):
        read_calls(text)


def test_schemas_of_the_leaderboard_become_json_schema_all_the_way_down():
    found = FUNCTIONS[0].parameters
    assert found["type"] == "object"
    assert found["properties"]["share"]["type"] == "number"
    assert found["properties"]["where"]["properties"]["tags"]["type"] == "array"
    assert functions_of([FUNCTIONS[0].tool])[0] == FUNCTIONS[0]
    with pytest.raises(InputError, match="two functions"):
        functions_of([WEATHER, WEATHER])
    with pytest.raises(InputError, match="not a function"):
        functions_of([{"type": "retrieval"}])


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"city": "Oslo", "days": 2, "share": 1, "unit": "C", "where": {"lat": 1.5, "tags": ["a"]}}, None),
        ({}, "needs 'city'"),
        ({"city": "Oslo", "town": 1}, "takes no 'town'"),
        ({"city": "Oslo", "days": 2.5}, "not of type integer"),
        ({"city": "Oslo", "days": True}, "not of type integer"),
        ({"city": "Oslo", "unit": "K"}, "not one of"),
        ({"city": "Oslo", "where": {"tags": ["a"]}}, "needs 'lat'"),
        ({"city": "Oslo", "where": {"lat": 1, "tags": [1]}}, "not of type string"),
        ({"city": FunctionCall("now", {})}, None),
        ({"city": FunctionCall("later", {})}, "no function 'later'"),
    ],
)
def test_a_call_that_does_not_fit_says_why(arguments, wrong):
    found = problems(FunctionCall("weather.get", arguments), FUNCTIONS)
    assert (not found) if wrong is None else any(wrong in one for one in found)


def test_order_does_not_matter_but_number_and_kind_of_calls_do():
    one, two = FunctionCall("f", {"a": 1}), FunctionCall("f", {"a": 2})
    assert same([two, one], [one, two])
    assert same([FunctionCall("f", {"a": 1.0})], [one])
    assert not same([one], [one, one])
    assert not same([one, one], [one])
    assert not same([FunctionCall("f", {"a": True})], [one])
    assert not same([FunctionCall("f", {"a": 1, "b": None})], [one])


def test_possible_answers_are_judged_as_the_leaderboard_does():
    possible = [{"area": {"base": [10], "unit": ["units", ""], "box": [{"w": [1, 2]}]}}]
    assert allowed([FunctionCall("area", {"base": 10, "box": {"w": 2}})], possible)
    assert allowed([FunctionCall("area", {"base": 10.0, "unit": "Units", "box": {"w": 1}})], possible)
    assert not allowed([FunctionCall("area", {"base": 10, "box": {"w": 3}})], possible)
    assert not allowed([FunctionCall("area", {"base": 10})], possible)
    assert not allowed([FunctionCall("area", {"base": 10, "box": {"w": 1}, "extra": 1})], possible)
    assert not allowed([], possible)


def test_every_real_answer_of_the_leaderboard_is_allowed_and_fits_its_function(data):
    questions = [json.loads(line) for line in (data / "bfcl/BFCL_v4_multiple.json").read_text().splitlines()]
    answers = [
        json.loads(line)
        for line in (data / "bfcl/possible_answer/BFCL_v4_multiple.json").read_text().splitlines()
    ]
    for question, answer in zip(questions, answers, strict=True):
        offered = functions_of(question["function"])
        calls = [
            FunctionCall(name, {k: v[0] for k, v in given.items() if "" not in v})
            for one in answer["ground_truth"]
            for name, given in one.items()
        ]
        plain = [call for call in calls if not any(isinstance(v, dict) for v in call.arguments.values())]
        assert all(any(one.name == call.name for one in offered) for call in calls)
        if plain == calls:
            assert allowed(calls, answer["ground_truth"])
        assert allowed([], answer["ground_truth"]) is False
