"""Models without a network: scripts, ensembles, recordings, spending."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from whet.errors import BudgetExceeded, InputError, ModelError
from whet.models import (
    Chunk,
    Completion,
    Ensemble,
    Model,
    ModelRequest,
    RecordedModel,
    ScriptedModel,
    ToolCall,
)
from whet.models.budget import Meter
from whet.record.store import Log, Store
from whet.types import Budget, Tokens, Usage


def ask(model: Model, messages: Any = "hello", **settings: Any) -> Completion:
    return asyncio.run(model.complete(messages, **settings))


async def chunks(model: Model, messages: Any = "hello", **settings: Any) -> list[Chunk]:
    return [chunk async for chunk in model.stream(messages, **settings)]


def test_a_list_script_answers_in_order_and_records_what_it_was_asked() -> None:
    model = ScriptedModel(["one", "two"])
    assert ask(model, "first", temperature=0.5).text == "one"
    assert ask(model, [{"role": "user", "content": "second"}], seed=3, stop=["x"]).text == "two"
    assert [call.text for call in model.calls] == ["first", "second"]
    assert model.calls[0].temperature == 0.5
    assert model.calls[1].settings == {"seed": 3, "stop": ["x"]}


def test_an_exhausted_script_says_how_often_it_was_asked_and_with_what() -> None:
    model = ScriptedModel(["one"])
    ask(model)
    with pytest.raises(ModelError, match=r"has 1 answers and was asked 2 times.*'surprise'"):
        ask(model, "surprise")


def test_a_mapping_script_answers_by_the_first_key_that_matches() -> None:
    model = ScriptedModel({"France": "Paris", "capital": ["Rome", "Oslo"]})
    assert ask(model, "capital of France?").text == "Paris"
    assert ask(model, "capital of Italy?").text == "Rome"
    assert ask(model, "capital of Norway?").text == "Oslo"
    with pytest.raises(ModelError, match="used up"):
        ask(model, "capital of Chad?")
    with pytest.raises(ModelError, match=r"\['France', 'capital'\]"):
        ask(model, "hello")


def test_a_function_script_sees_the_request_and_may_be_async() -> None:
    async def answer(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return f"{request.text} at {request.temperature}"

    assert ask(ScriptedModel(answer), "ask", temperature=0.0).text == "ask at 0.0"
    assert ask(ScriptedModel(lambda request: request.text.upper()), "ask").text == "ASK"


def test_a_script_can_fail_call_tools_and_carry_token_ids() -> None:
    tokens = Tokens((1, 2), (3,), (-0.5,))
    failure = ModelError("overloaded", status=503, retryable=True)
    call = ToolCall(name="search", arguments='{"q": "x"}')
    model = ScriptedModel([failure, call, Completion(text="c", tokens=tokens)])
    with pytest.raises(ModelError, match="overloaded"):
        ask(model)
    answered = ask(model)
    assert answered.finish == "tool_calls"
    assert answered.tool_calls[0].parsed() == {"q": "x"}
    assert answered.tool_calls[0].id == "call_0"
    assert ask(model).tokens == tokens


def test_something_that_is_no_answer_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="answered 7"):
        ask(ScriptedModel(lambda request: 7))
    with pytest.raises(InputError, match="given int"):
        ScriptedModel(7)  # type: ignore[arg-type]


def test_tool_arguments_that_are_no_json_object_are_a_model_error() -> None:
    for arguments in ("{oops", "[1]", "7"):
        with pytest.raises(ModelError, match="search"):
            ToolCall(name="search", arguments=arguments).parsed()


def test_a_stream_gives_the_text_in_pieces_and_the_whole_at_the_end() -> None:
    pieces = asyncio.run(chunks(ScriptedModel("a longer  answer ")))
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces) == "a longer  answer "
    assert [piece.completion is None for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert pieces[-1].completion is not None
    assert pieces[-1].completion.text == "a longer  answer "


def test_a_delay_is_waited_and_does_not_block_others() -> None:
    async def both() -> float:
        model = ScriptedModel("x", delay=0.1)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(model.complete("a"), model.complete("b"))
        return loop.time() - begun

    assert asyncio.run(both()) >= 0.1


@pytest.mark.parametrize("messages", [[], [{"content": "no role"}], ["text"]])
def test_messages_without_a_role_are_refused(messages: Any) -> None:
    with pytest.raises(InputError):
        ask(ScriptedModel("x"), messages)


@pytest.mark.parametrize("setting", ["n", "stream"])
def test_settings_that_the_call_owns_are_refused(setting: str) -> None:
    with pytest.raises(InputError, match=setting):
        ask(ScriptedModel("x"), "hello", **{setting: 2})


def test_everything_in_the_package_is_a_model() -> None:
    scripted = ScriptedModel("x")
    recorded = RecordedModel(scripted)
    for model in (scripted, Ensemble([(scripted, 1)]), recorded):
        assert isinstance(model, Model)
        assert asyncio.run(chunks(model))[-1].completion is not None


# -- ensemble --------------------------------------------------------------------------------


def members() -> list[tuple[Model, float]]:
    return [(ScriptedModel(name, name=name), weight) for name, weight in (("a", 1), ("b", 3), ("c", 6))]


@pytest.mark.parametrize("prompt", ["the same", "number {}"])
def test_an_ensemble_shares_calls_by_weight_within_three_sigma(prompt: str) -> None:
    calls, ensemble = 3000, Ensemble(members(), seed=1)

    async def run() -> None:
        for number in range(calls):
            completion = await ensemble.complete(prompt.format(number))
            assert completion.text == completion.model

    asyncio.run(run())
    for name, share in (("a", 0.1), ("b", 0.3), ("c", 0.6)):
        sigma = math.sqrt(share * (1 - share) / calls)
        assert abs(ensemble.shares[name] - share) < 3 * sigma
    assert ensemble.calls.total() == calls


def test_an_ensemble_picks_the_same_whatever_order_concurrent_calls_run_in() -> None:
    def run(order: list[int], seed: int = 0) -> dict[int, str]:
        ensemble = Ensemble(members(), seed=seed)
        return {number: ask(ensemble, f"question {number}").text for number in order}

    forwards = run(list(range(50)))
    assert run(list(reversed(range(50)))) == forwards
    assert run(list(range(50)), seed=1) != forwards


def test_an_ensemble_never_asks_a_member_of_weight_zero() -> None:
    ensemble = Ensemble([(ScriptedModel("a", name="a"), 0), (ScriptedModel("b", name="b"), 1)])
    assert {ask(ensemble, str(number)).text for number in range(100)} == {"b"}
    assert ensemble.shares == {"a": 0, "b": 1}


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0], [math.nan], [math.inf]])
def test_an_ensemble_refuses_weights_that_share_nothing_out(weights: list[float]) -> None:
    with pytest.raises(InputError, match="weights"):
        Ensemble([(ScriptedModel("x", name=str(n)), weight) for n, weight in enumerate(weights)])


def test_an_ensemble_refuses_two_models_of_one_name() -> None:
    with pytest.raises(InputError, match="different names"):
        Ensemble([(ScriptedModel("x"), 1), (ScriptedModel("y"), 1)])


# -- recording -------------------------------------------------------------------------------


@contextmanager
def recording(path: Path, model: Model | None, **more: str) -> Iterator[RecordedModel]:
    """A model whose answers are kept in a store."""
    with Store(path) as store:
        yield RecordedModel(model, Log(store, "answers"), **more)


def counter(name: str = "scripted") -> ScriptedModel:
    """A model whose every answer differs from the last."""
    asked = 0

    def answer(_request: ModelRequest) -> str:
        nonlocal asked
        asked += 1
        return f"answer {asked}"

    return ScriptedModel(answer, name=name)


def test_a_resumed_run_replays_what_was_paid_for_and_asks_only_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    first = counter()
    with recording(path, first) as recorded:
        bought = [ask(recorded, "q", temperature=1.0).text for _ in range(3)]
    assert bought == ["answer 1", "answer 2", "answer 3"]
    again = counter()
    with recording(path, again) as recorded:
        assert [ask(recorded, "q", temperature=1.0).text for _ in range(3)] == bought
        assert not again.calls
        assert ask(recorded, "q", temperature=1.0).text == "answer 1"
        assert (recorded.hits, recorded.misses) == (3, 1)


def test_a_recording_keeps_everything_that_a_completion_has(tmp_path: Path) -> None:
    whole = Completion(
        text="t",
        tool_calls=(ToolCall(name="f", arguments="{}", id="1"),),
        usage=Usage(3, 4, 0.5, 1),
        model="m",
        finish="stop",
        tokens=Tokens((1, 2), (3,), (-0.25,)),
        raw={"id": "x", "none": None},
    )
    with recording(tmp_path / "a.db", ScriptedModel([whole])) as recorded:
        ask(recorded)
    with recording(tmp_path / "a.db", None, name="scripted") as recorded:
        kept = ask(recorded)
    assert kept.tokens is not None
    assert list(kept.tokens.output_ids) == [3]
    assert (kept.text, kept.usage, kept.finish, kept.raw) == (whole.text, whole.usage, "stop", whole.raw)
    assert kept.tool_calls[0] == whole.tool_calls[0]


def test_a_request_that_differs_in_anything_is_another_request(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [{}, {"temperature": 0.0}, {"max_tokens": 5}, {"seed": 1}, {"top_p": 0.9}]
    asked.append({"tools": [{"type": "function", "function": {"name": "f"}}]})
    model = counter()
    with recording(tmp_path / "a.db", model) as recorded:
        texts = {ask(recorded, "q", **settings).text for settings in asked}
        texts.add(ask(recorded, "Q").text)
    assert len(texts) == len(asked) + 1
    with recording(tmp_path / "a.db", counter("other")) as recorded:
        ask(recorded, "q")
        assert recorded.misses == 1


def test_one_sample_asked_twice_at_once_is_paid_once() -> None:
    model = counter()
    model.delay = 0.02

    async def run() -> list[str]:
        recorded = RecordedModel(model)
        answers = await asyncio.gather(*(recorded.complete("q", sample=0) for _ in range(5)))
        return [answer.text for answer in answers]

    assert asyncio.run(run()) == ["answer 1"] * 5
    assert len(model.calls) == 1


def test_a_failure_is_not_recorded_and_its_number_goes_to_the_next_try() -> None:
    model = ScriptedModel([ModelError("down"), "fine"])
    recorded = RecordedModel(model)
    with pytest.raises(ModelError, match="down"):
        ask(recorded)
    assert ask(recorded).text == "fine"
    assert ask(recorded, sample=0).text == "fine"
    assert recorded.hits == 1


def test_a_stream_that_is_left_at_its_last_chunk_has_used_its_number_and_one_left_before_has_not() -> None:
    model = counter()

    async def left(recorded: RecordedModel, *, at_end: bool) -> str:
        stream = recorded.stream("q")
        text = ""
        async for chunk in stream:
            text += chunk.text
            if not at_end or chunk.completion is not None:
                break
        await stream.aclose()
        return text

    async def run() -> list[str]:
        recorded = RecordedModel(model)
        await left(recorded, at_end=False)
        texts = [await left(recorded, at_end=True) for _ in range(2)]
        return [*texts, (await recorded.complete("q")).text]

    assert asyncio.run(run()) == ["answer 2", "answer 3", "answer 4"], "one answer was given for two samples"


def test_replay_alone_says_what_is_missing(tmp_path: Path) -> None:
    with (
        recording(tmp_path / "a.db", None) as recorded,
        pytest.raises(ModelError, match="No recorded answer"),
    ):
        ask(recorded)


def test_a_streamed_answer_is_recorded_whole_and_replayed(tmp_path: Path) -> None:
    model = counter()
    with recording(tmp_path / "a.db", model) as recorded:
        streamed = asyncio.run(chunks(recorded))
        assert ask(recorded, sample=0).text == "answer 1"
    with recording(tmp_path / "a.db", model) as recorded:
        replayed = asyncio.run(chunks(recorded))
    assert len(model.calls) == 1
    assert "".join(c.text for c in replayed) == "".join(c.text for c in streamed) == "answer 1"


# -- spending --------------------------------------------------------------------------------


def test_a_call_beyond_the_budget_is_refused_before_it_is_made() -> None:
    meter = Meter(Budget(calls=2))
    model = ScriptedModel("fine", meter=meter)
    ask(model)
    ask(model)
    with pytest.raises(BudgetExceeded, match="calls"):
        ask(model)
    assert len(model.calls) == 2


def test_tokens_are_reserved_at_an_estimate_and_settled_at_what_was_used() -> None:
    meter = Meter(Budget(tokens=200))
    model = ScriptedModel("one two three", meter=meter)
    ask(model, "four five", max_tokens=100)
    assert meter.spent["tokens"] == 5
    with pytest.raises(BudgetExceeded, match="tokens"):
        ask(model, "four five", max_tokens=200)
    assert meter.spent["tokens"] == 5
    assert len(model.calls) == 1


def test_calls_in_flight_together_cannot_overshoot_together() -> None:
    meter = Meter(Budget(tokens=250))
    model = ScriptedModel("x", meter=meter, delay=0.02)

    async def run() -> list[Any]:
        calls = [model.complete("hello", max_tokens=100) for _ in range(5)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(run())
    assert sum(isinstance(result, BudgetExceeded) for result in results) == 3
    assert len(model.calls) == 2


def test_a_failed_call_gives_its_tokens_back() -> None:
    meter = Meter(Budget(tokens=5000))
    with pytest.raises(ModelError):
        ask(ScriptedModel([], meter=meter))
    assert meter.spent["tokens"] == 0


def test_a_dollar_budget_needs_a_price() -> None:
    with pytest.raises(InputError, match=r"prices=.*scripted"):
        ask(ScriptedModel("x", meter=Meter(Budget(dollars=1.0))))
