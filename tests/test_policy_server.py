"""The policy server answers as OpenAI's and vLLM's servers do, and as the sampler in process would."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import torch
from policy_world import causal, downloaded, embedded, serving
from training_toys import VOCABULARY

from whet.errors import InputError
from whet.learn.training.sampler import Sampler
from whet.learn.training.serving.constraints import AnswerFormat, Constraints
from whet.learn.training.serving.engine import EngineOptions

ALL = {"return_token_ids": True, "logprobs": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return downloaded(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def small():
    with serving(*embedded()) as server:
        yield server


@pytest.fixture(scope="module")
def large(folder):
    with serving(*causal(folder)) as server:
        yield server


def in_process(sampler, prompt, seed, limit, stop):
    async def run():
        return await sampler.session(seed).generate(prompt, stop_id=stop, max_new_tokens=limit)

    return asyncio.run(run())


def test_an_answer_has_the_tokens_that_the_sampler_in_process_gives(small):
    network, _ = embedded()
    for seed, temperature in ((1, 1.0), (2, 0.7), (3, 0.0)):
        sampler = Sampler(network, temperature=temperature or 1.0, greedy=temperature == 0)
        expected = in_process(sampler, [1, *VOCABULARY.encode(["3"]), 2], seed, 8, 3)
        found = small.chat("3", seed=seed, temperature=temperature, max_tokens=8, **ALL)
        (choice,) = found["choices"]
        assert found["prompt_token_ids"] == list(expected.prompt_ids)
        assert choice["token_ids"] == list(expected.output_ids)
        given = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert given == pytest.approx(expected.logprobs, abs=1e-6)


def test_a_transformers_model_answers_as_its_sampler_does(large, folder):
    network, text = causal(folder)
    prompt = text.chat([{"role": "user", "content": "hello"}]).ids
    expected = in_process(Sampler(network), prompt, 5, 12, text.tokenizer.eos_token_id)
    found = large.chat("hello", seed=5, max_tokens=12, **ALL)
    assert found["prompt_token_ids"] == prompt
    assert found["choices"][0]["token_ids"] == list(expected.output_ids)
    given = [entry["logprob"] for entry in found["choices"][0]["logprobs"]["content"]]
    assert given == pytest.approx(expected.logprobs, abs=1e-5)


@pytest.mark.parametrize("which", ["small", "large"])
def test_answers_do_not_depend_on_who_else_is_asking(which, request):
    server = request.getfixturevalue(which)
    word = "3" if which == "small" else "hello"

    def ask(seed):
        return server.chat(word, seed=seed, max_tokens=2 + seed % 13, **ALL)["choices"][0]["token_ids"]

    alone = [ask(seed) for seed in range(24)]
    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(ask, range(24)))
    assert together == alone
    assert len({tuple(ids) for ids in alone}) > 10


def test_a_stream_is_the_plain_answer_in_pieces(folder):
    network, text = causal(folder)
    # A model takes its time for a token, and what is given meanwhile is a piece.
    network.model.register_forward_pre_hook(lambda *_: time.sleep(0.02))
    with serving(network, text) as server, server.openai() as client:
        plain = server.chat("hello", seed=3, max_tokens=20, **ALL)
        chunks = list(
            client.chat.completions.create(
                model="policy",
                messages=[{"role": "user", "content": "hello"}],
                seed=3,
                max_tokens=20,
                logprobs=True,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"return_token_ids": True},
            )
        )
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert len(parts) > 4
    assert "".join(part.delta.content or "" for part in parts) == plain["choices"][0]["message"]["content"]
    ids = [id for part in parts for id in (part.model_extra or {}).get("token_ids") or ()]
    assert ids == plain["choices"][0]["token_ids"]
    logprobs = [entry.logprob for part in parts if part.logprobs for entry in part.logprobs.content]
    assert len(logprobs) == len(ids)
    assert parts[-1].finish_reason == plain["choices"][0]["finish_reason"]
    assert chunks[-1].usage.completion_tokens == plain["usage"]["completion_tokens"] == len(ids)
    assert chunks[0].model_extra["prompt_token_ids"] == plain["prompt_token_ids"]


def test_several_choices_differ_and_the_first_is_the_one_choice(small):
    one = small.chat("3", seed=9, max_tokens=10, **ALL)["choices"][0]
    several = small.chat("3", seed=9, max_tokens=10, n=4, **ALL)["choices"]
    assert several[0]["token_ids"] == one["token_ids"]
    assert len({tuple(choice["token_ids"]) for choice in several}) > 1


def test_an_answer_stops_at_a_stop_text_which_is_not_shown(large):
    whole = large.chat("hello", seed=3, max_tokens=20)["choices"][0]["message"]["content"]
    stop = whole[4:6]
    expected = whole[: whole.index(stop)]
    found = large.chat("hello", seed=3, max_tokens=20, stop=[stop])["choices"][0]
    assert found["message"]["content"] == expected
    assert (found["finish_reason"], found["stop_reason"]) == ("stop", stop)
    with large.openai() as client:
        streamed = client.chat.completions.create(
            model="policy",
            messages=[{"role": "user", "content": "hello"}],
            seed=3,
            max_tokens=20,
            stop=[stop],
            stream=True,
        )
        said = "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices)
    assert said == expected


def test_the_next_turn_extends_the_ids_that_were_sampled_not_those_of_the_text(large):
    """Cut up anew, the text of random bytes often is other tokens."""
    differed = 0
    for seed in range(12):
        first = large.chat("hello", seed=seed, max_tokens=24, **ALL)
        answer = first["choices"][0]
        sampled = [*first["prompt_token_ids"], *answer["token_ids"]]
        said = answer["message"]["content"]
        again = large.text.tokenizer(said, add_special_tokens=False)["input_ids"]
        differed += again != answer["token_ids"]
        second = large.chat(
            "hello", {"role": "assistant", "content": said}, "and?", seed=0, max_tokens=1, **ALL
        )
        assert second["prompt_token_ids"][: len(sampled)] == sampled
    assert differed, "no answer was ambiguous: the test could not fail"


def test_a_long_conversation_is_not_read_again(small):
    steps = small.host.served("policy").engine.steps
    first = small.chat("3", seed=1, max_tokens=6, **ALL)
    before = steps.reused
    said = first["choices"][0]["message"]["content"]
    small.chat("3", {"role": "assistant", "content": said}, "4", seed=1, max_tokens=2)
    held = len(first["prompt_token_ids"]) + len(first["choices"][0]["token_ids"]) - 1
    assert steps.reused - before >= held - 1


def test_weights_are_swapped_while_an_answer_is_under_way(tmp_path):
    (old, text), (new, _) = embedded(0, max_length=600), embedded(1, max_length=600)
    with serving(old, text, policy_version="1") as server:
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": "3"}],
            "seed": 4,
            "max_tokens": 500,
            "ignore_eos": True,
            **ALL,
        }
        expected = server.post("/v1/chat/completions", body).json()
        lines = []
        with server.stream(body) as events:
            lines += [next(events), next(events)]
            server.host.publish("policy", new, text, policy_version="2")
            during = server.chat("3", seed=4, max_tokens=8, **ALL)
            lines += list(events)
        pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        ids = [id for piece in pieces for id in piece["choices"][0].get("token_ids", ())]
        assert {piece["policy_version"] for piece in pieces} == {"1"}
        assert ids == expected["choices"][0]["token_ids"]
        assert during["policy_version"] == "2"
        alone = in_process(Sampler(new), [1, *VOCABULARY.encode(["3"]), 2], 4, 8, 3)
        assert during["choices"][0]["token_ids"] == list(alone.output_ids)
        # The old weights go once their last answer's task has ended, a moment after its last event.
        end = time.monotonic() + 90
        while len(server.host.status()) > 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert [one["policy_version"] for one in server.host.status()] == ["2"]


def test_a_client_that_hangs_up_frees_its_place(tmp_path):
    network, text = embedded(0, max_length=4000)
    with serving(network, text, options=EngineOptions(batch=1)) as server:
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": "3"}],
            "max_tokens": 3900,
            "ignore_eos": True,
        }
        with server.stream(body) as lines:
            next(lines)
        assert server.chat("3", max_tokens=1)["choices"]
        assert server.host.status()[0]["output_tokens"] < 3900


def test_a_full_line_is_refused_with_when_to_come_again():
    network, text = embedded(0, max_length=4000)
    with serving(network, text, options=EngineOptions(batch=1, waiting=2)) as server:
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": "3"}],
            "max_tokens": 1000,
            "ignore_eos": True,
        }
        with server.stream(body) as lines:
            next(lines)  # no longer in the line, but at the front of it
            with ThreadPoolExecutor(11) as pool:
                found = list(pool.map(lambda _: server.post("/v1/chat/completions", body), range(11)))
        refused = [each for each in found if each.status_code == 503]
        assert refused
        assert all(each.headers["retry-after"] == "1" for each in refused)
        assert sum(each.status_code == 200 for each in found) == 11 - len(refused) >= 2


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"model": "other"}, 404, "no model 'other'"),
        ({"max_tokens": 10_000}, 400, "context is too long"),
        ({"messages": [{"role": "user", "content": "3 " * 500}]}, 400, "takes for an answer. Send less."),
        ({"messages": []}, 400, "at least one message"),
        ({"messages": [{"role": "user", "content": "unheard"}]}, 400, "not among the"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "reads text alone"),
        ({"temperature": -1}, 400, "between 0 and 100; got -1"),
        ({"n": 1000}, 400, "n must be"),
        ({"tools": [{"type": "function"}], "tool_choice": "none"}, 400, "a tool is"),
        ({"presence_penalty": 1.5}, 400, "not offered"),
        ({"max_tokens": "many"}, 400, "max_tokens"),
        ({"response_format": {"type": "xml"}}, 400, "response_format"),
    ],
)
def test_what_cannot_be_served_says_why(small, change, status, said):
    body = {"model": "policy", "messages": [{"role": "user", "content": "3"}], "max_tokens": 4, **change}
    found = small.post("/v1/chat/completions", body)
    assert found.status_code == status
    assert said in found.json()["error"]["message"]


def test_nobody_is_answered_without_the_token(small):
    body = {"model": "policy", "messages": [{"role": "user", "content": "3"}]}
    assert small.post("/v1/chat/completions", body, token="wrong").status_code == 401
    with pytest.raises(openai.AuthenticationError), small.openai().with_options(api_key="wrong") as client:
        client.chat.completions.create(**body)


def test_a_completion_goes_on_from_token_ids(small):
    prompt = [1, *VOCABULARY.encode(["3"]), 2]
    body = {"model": "policy", "prompt": prompt, "seed": 1, "max_tokens": 8, "logprobs": 0}
    found = small.post("/v1/completions", {**body, "return_token_ids": True}).json()
    chat = small.chat("3", seed=1, max_tokens=8, **ALL)["choices"][0]
    assert found["choices"][0]["token_ids"] == chat["token_ids"]
    assert found["choices"][0]["prompt_token_ids"] == prompt
    assert found["choices"][0]["logprobs"]["token_logprobs"] == pytest.approx(
        [entry["logprob"] for entry in chat["logprobs"]["content"]]
    )


def test_thinking_is_made_longer_and_cut_short_and_what_was_put_in_is_masked(small):
    eos, first = VOCABULARY.eos, VOCABULARY.encode(["first"])[0]
    plain = small.chat("3", seed=2, max_tokens=30, **ALL)["choices"][0]
    assert plain["token_ids"][-1] == eos
    assert len(plain["token_ids"]) < 20
    forcing = {"end": "<act>", "more": "first", "min_tokens": 25, "times": 50}
    longer = small.chat("3", seed=2, max_tokens=30, budget_forcing=forcing, **ALL)["choices"][0]
    put_in = [not chosen for chosen in longer["token_mask"]]
    assert len(longer["token_ids"]) > 20
    assert any(put_in)
    assert {id for id, forced in zip(longer["token_ids"], put_in, strict=True) if forced} == {first}
    short = small.chat(
        "3",
        seed=2,
        max_tokens=30,
        ignore_eos=True,
        budget_forcing={"end": "<act>", "more": "first", "max_tokens": 3},
        **ALL,
    )["choices"][0]
    assert short["token_ids"][3] == VOCABULARY.act
    assert short["token_mask"].index(False) == 3


def test_a_choice_of_texts_is_kept_to_by_a_closed_vocabulary(small):
    for seed in range(10):
        found = small.chat("3", seed=seed, structured_outputs={"choice": ["0 1", "5"]}, max_tokens=8)
        assert found["choices"][0]["message"]["content"] in ("0 1", "5")
        assert found["choices"][0]["finish_reason"] == "stop"


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", "Rome"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}


def test_answers_are_held_to_a_schema(large):
    pytest.importorskip("llguidance")
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA}}
    seen = set()
    for seed in range(6):
        found = large.chat("trip", seed=seed, response_format=form, max_tokens=200)["choices"][0]
        assert found["finish_reason"] == "stop"
        value = json.loads(found["message"]["content"])
        assert value["city"] in ("Oslo", "Rome")
        assert value["days"] in range(10)
        seen.add(value["city"])
    assert seen == {"Oslo", "Rome"}
    refused = large.post(
        "/v1/chat/completions",
        {
            "model": "policy",
            "messages": [{"role": "user", "content": "x"}],
            "structured_outputs": {"regex": "(unclosed"},
        },
    )
    assert refused.status_code == 400


def test_a_tokenizer_with_words_that_the_model_has_no_row_for_still_keeps_to_a_form(large):
    """As where tokens were added and the model was not resized."""
    pytest.importorskip("llguidance")
    text = large.text
    constraints = Constraints(text, len(text.tokenizer) - 1)
    allowed = constraints.constraint(AnswerFormat("choice", ["yes", "no"])).allowed()
    assert len(allowed) == len(text.tokenizer) - 1
    assert {text.tokenizer.decode([id])[0] for id in allowed.nonzero().flatten().tolist()} == {"y", "n"}


def test_a_call_that_is_asked_for_comes_and_goes_back_token_for_token(large):
    pytest.importorskip("llguidance")
    with large.openai() as client:
        asked = [{"role": "user", "content": "weather?"}]
        found = client.chat.completions.create(
            model="policy",
            messages=asked,
            tools=[WEATHER],
            tool_choice="required",
            seed=1,
            max_tokens=200,
            extra_body={"return_token_ids": True},
        )
        choice = found.choices[0]
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
        sampled = [*found.model_extra["prompt_token_ids"], *choice.model_extra["token_ids"]]
        answered = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        after = client.chat.completions.create(
            model="policy",
            messages=[*asked, choice.message.model_dump(exclude_none=True), answered],
            tools=[WEATHER],
            max_tokens=1,
            extra_body={"return_token_ids": True},
        )
    assert after.model_extra["prompt_token_ids"][: len(sampled)] == sampled


def test_a_computation_that_fails_fails_its_answers_and_not_the_next(small):
    steps = small.host.served("policy").engine.steps
    whole, broken = steps.logits, threading.Event()

    def out_of_memory(generations):
        broken.set()
        raise RuntimeError("can't allocate memory")

    steps.logits = out_of_memory
    try:
        found = small.post(
            "/v1/chat/completions",
            {"model": "policy", "messages": [{"role": "user", "content": "3"}], "max_tokens": 4},
        )
    finally:
        steps.logits = whole
    assert broken.is_set()
    assert found.status_code == 502
    assert "allocate" in found.json()["error"]["message"]
    assert small.chat("3", max_tokens=4)["choices"]


def test_weights_are_taken_from_allowed_folders_only(tmp_path):
    from whet.learn.training import model

    (old, text), (new, _) = embedded(0), embedded(1)
    allowed, elsewhere = tmp_path / "allowed", tmp_path / "elsewhere"
    model.save(new, allowed / "next")
    model.save(new, elsewhere / "next")
    with serving(old, text, allowed=[allowed]) as server:
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(elsewhere / "next")}}
        assert server.post("/collective_rpc", reload).status_code == 400
        sneaky = {"weights_path": str(allowed / ".." / "elsewhere" / "next")}
        assert server.post("/collective_rpc", {**reload, "kwargs": sneaky}).status_code == 400
        missing = {"weights_path": str(allowed / "gone")}
        assert server.post("/collective_rpc", {**reload, "kwargs": missing}).status_code == 404
        assert server.post("/collective_rpc", {"method": "shutdown"}).status_code == 400
        before = server.chat("3", seed=1, max_tokens=8, **ALL)
        good = {"weights_path": str(allowed / "next")}
        assert server.post("/collective_rpc", {**reload, "kwargs": good}).status_code == 200
        after = server.chat("3", seed=1, max_tokens=8, **ALL)
    assert before["policy_version"] != after["policy_version"]
    expected = in_process(Sampler(new), [1, *VOCABULARY.encode(["3"]), 2], 1, 8, 3)
    assert after["choices"][0]["token_ids"] == list(expected.output_ids)


def test_an_adapter_shares_the_weights_of_what_it_stands_beside(folder, tmp_path):
    from whet.learn.training import huggingface

    network, text = causal(folder)
    factors = huggingface.load(folder, lora=huggingface.LoRAOptions(rank=2))
    with torch.no_grad():
        for weight in factors.weights().values():
            weight.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(1))
    factors.save(tmp_path / "adapter")
    with serving(network, text, allowed=[tmp_path]) as server:
        asked = {"lora_name": "policy-1", "lora_path": str(tmp_path / "adapter")}
        found = server.post("/v1/load_lora_adapter", asked)
        assert found.status_code == 200, found.text
        assert server.post("/v1/load_lora_adapter", asked).status_code == 400
        answers = {
            name: server.post(
                "/v1/chat/completions",
                {
                    "model": name,
                    "messages": [{"role": "user", "content": "hi"}],
                    "seed": 1,
                    "max_tokens": 10,
                    **ALL,
                },
            ).json()["choices"][0]["token_ids"]
            for name in ("policy", "policy-1")
        }
        theirs = server.host.served("policy-1").engine.steps._network.model
        weight = network.model.get_input_embeddings().weight
        assert theirs.get_input_embeddings().weight is weight
        assert server.post("/v1/unload_lora_adapter", {"lora_name": "policy-1"}).status_code == 200
        assert server.host.names == ["policy"]
    prompt = text.chat([{"role": "user", "content": "hi"}]).ids
    eos = text.tokenizer.eos_token_id
    assert answers["policy"] == list(in_process(Sampler(network), prompt, 1, 10, eos).output_ids)
    assert answers["policy-1"] == list(in_process(Sampler(factors), prompt, 1, 10, eos).output_ids)


def test_pickled_weights_are_refused(tmp_path):
    from whet.learn.training.serving.loading import from_folder

    folder = downloaded(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickle"):
        from_folder(folder)
