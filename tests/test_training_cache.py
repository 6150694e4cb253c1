"""What conversations keep in the cache between two turns, for models of transformers and for our own decoder."""

import asyncio
import gc
import random

import pytest
import torch

from whet.learn.training.huggingface import CausalLM
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.sampler import Sampler
from whet.learn.training.serving.networks import CausalSteps, PackedSteps

VOCABULARY = 40
OPTIONS = ModelOptions(hidden=32, heads=4, kv_heads=2, ffn=48, layers=2, max_length=256, init_std=0.3)


def causal(seed=0):
    return CausalLM(to_transformers(build(OPTIONS, VOCABULARY, seed)))


async def conversation(session, seed, turns=5):
    rng = random.Random(seed)
    calls = []
    for _ in range(turns):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 25))]
        if rng.random() < 0.4:  # so that some are in the middle of a turn while others begin one
            await asyncio.sleep(0.001)
        calls.append(await session.generate(prompt, stop_id=None, max_new_tokens=rng.randint(1, 6)))
    return calls


def play(sampler, seeds=range(20)):
    async def all_of_them():
        return await asyncio.gather(*(conversation(sampler.session(seed), seed) for seed in seeds))

    return asyncio.run(all_of_them())


def alike(one, other):
    for ours, theirs in zip(one, other, strict=True):
        for mine, yours in zip(ours, theirs, strict=True):
            assert mine.prompt_ids == yours.prompt_ids
            assert mine.output_ids == yours.output_ids
            assert mine.logprobs == pytest.approx(yours.logprobs, abs=1e-5)


def read_each_turn(network):
    """A sampler that reads a conversation's context from its beginning at every turn."""
    sampler = Sampler(network)
    sampler.engine.steps = CausalSteps(network)
    return sampler


@pytest.fixture(scope="module")
def expected():
    return play(read_each_turn(causal()))


def test_a_model_of_transformers_samples_with_its_cache_what_it_samples_without(expected):
    sampler = Sampler(causal())
    assert isinstance(sampler.engine.steps, PackedSteps)
    calls = play(sampler)
    alike(calls, expected)
    held = sum(len(call.prompt_ids) + len(call.output_ids) - 1 for turns in calls for call in turns[:-1])
    assert sampler.engine.steps.reused == held, "all but the newest token of every earlier turn was there"


def test_the_log_probabilities_are_those_of_the_whole_forward(expected):
    network = causal()
    for call in play(Sampler(network))[3]:
        ids = torch.tensor([[*call.prompt_ids, *call.output_ids]])
        with torch.no_grad():
            logits = network.model(input_ids=ids, use_cache=False).logits[0]
        chosen = torch.log_softmax(logits[len(call.prompt_ids) - 1 : -1], dim=-1)
        given = chosen.gather(1, torch.tensor(call.output_ids).unsqueeze(1)).squeeze(1)
        assert given.tolist() == pytest.approx(call.logprobs, abs=1e-5)


@pytest.mark.parametrize("make", [causal, lambda: build(OPTIONS, VOCABULARY, 0)], ids=["hf", "own"])
def test_memory_is_bounded_and_the_conversation_used_longest_ago_is_read_again(make):
    plenty = Sampler(make())
    all_at_once = play(plenty)
    roomy = plenty.engine.steps.cache
    assert roomy.evicted == 0

    async def one_after_another(sampler):
        sessions = [sampler.session(seed) for seed in range(20)]
        rngs = [random.Random(seed) for seed in range(20)]
        calls = [[] for _ in sessions]
        for _ in range(5):
            for session, rng, done in zip(sessions, rngs, calls, strict=True):
                prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 25))]
                rng.random()
                done.append(await session.generate(prompt, stop_id=None, max_new_tokens=rng.randint(1, 6)))
                assert sampler.engine.steps.cache.bytes <= limit
        return calls

    limit = roomy.bytes // 4
    scarce = Sampler(make(), cache_bytes=limit)
    alike(asyncio.run(one_after_another(scarce)), all_at_once)
    assert scarce.engine.steps.cache.evicted > 0
    assert scarce.engine.steps.reused > 0, "some were still there"


def test_new_weights_make_every_conversation_read_its_context_again():
    network, changed = causal(), causal(9)

    async def two_turns(sampler, between):
        session = sampler.session(4)
        await session.generate([1, 2, 3, 4, 5, 6], stop_id=None, max_new_tokens=4)
        between()
        return await session.generate([7, 8], stop_id=None, max_new_tokens=6)

    def swap(sampler):
        sampler.network.copy_from(changed.weights())
        sampler.refresh("1")

    sampler, slow = Sampler(network), read_each_turn(causal())
    after = asyncio.run(two_turns(sampler, lambda: swap(sampler)))
    again = asyncio.run(two_turns(slow, lambda: swap(slow)))
    stale = Sampler(causal())
    # Weights that change without a word are read with keys of the old ones: the control of the other two.
    wrong = asyncio.run(two_turns(stale, lambda: stale.network.copy_from(changed.weights())))
    alike([[after]], [[again]])
    assert sampler.engine.steps.reused == 0
    assert wrong.logprobs != pytest.approx(again.logprobs, abs=1e-3)


def test_rows_come_back_with_their_sessions():
    sampler = Sampler(causal())
    play(sampler)
    gc.collect()
    assert sampler.engine.steps.cache.used == 0
    rows = sampler.engine.steps.cache.rows
    play(sampler)
    assert sampler.engine.steps.cache.rows == rows


def test_a_long_prompt_is_read_in_pieces(monkeypatch):
    whole = Sampler(causal(), greedy=True)
    pieces = Sampler(causal(), greedy=True)

    async def answer(sampler):
        prompts = [[(7 * i + j) % VOCABULARY for i in range(90 * (j + 1))] for j in range(2)]
        sessions = [sampler.session(seed) for seed in range(2)]
        return await asyncio.gather(
            *(s.generate(p, stop_id=None, max_new_tokens=5) for s, p in zip(sessions, prompts, strict=True))
        )

    at_once = asyncio.run(answer(whole))
    monkeypatch.setattr("whet.learn.training.cache._CHUNK", 16)
    alike([asyncio.run(answer(pieces))], [at_once])


def test_what_rotates_by_the_longest_context_is_read_from_its_beginning():
    network = causal()
    network.model.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert isinstance(Sampler(network).engine.steps, CausalSteps)
