"""What is sampled, and that it depends on the seed and the context alone."""

import asyncio
import gc
import random
from itertools import pairwise

import pytest
import torch
from training_toys import SMALL

from whet.errors import InputError, ModelError
from whet.learn.training.forward import logits
from whet.learn.training.model import ModelOptions, build
from whet.learn.training.sampler import Sampler

VOCABULARY = 20


def decoder(seed=0):
    return build(
        ModelOptions(hidden=32, heads=4, kv_heads=2, ffn=48, max_length=256, init_std=0.3), VOCABULARY, seed
    )


async def episode(session, seed, turns=3, stop_id=3, pause=False):
    rng = random.Random(seed)
    calls = []
    for _ in range(turns):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 9))]
        if pause and seed % 3 == len(calls):
            await asyncio.sleep(0.001)
        calls.append(await session.generate(prompt, stop_id=stop_id, max_new_tokens=rng.randint(1, 6)))
    return calls


async def episodes(sampler, seeds, **options):
    return await asyncio.gather(*[episode(sampler.session(seed), seed, **options) for seed in seeds])


@torch.no_grad()
def recomputed(network, call, temperature=1.0):
    ids = torch.tensor([[*call.prompt_ids, *call.output_ids]])
    start = len(call.prompt_ids) - 1
    return torch.log_softmax(logits(network, ids)[0, start:-1] / temperature, dim=-1)


def test_greedy_sampling_takes_the_argmax_of_the_full_forward():
    network = decoder()
    for calls in asyncio.run(episodes(Sampler(network, greedy=True), range(12))):
        for call in calls:
            assert recomputed(network, call).argmax(dim=-1).tolist() == list(call.output_ids)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_those_of_the_full_forward(temperature):
    network = decoder()
    for calls in asyncio.run(episodes(Sampler(network, temperature=temperature), range(12))):
        for before, call in pairwise(calls):
            assert call.prompt_ids[: len(before.prompt_ids) + len(before.output_ids)] == (
                *before.prompt_ids,
                *before.output_ids,
            )
        for call in calls:
            scores = recomputed(network, call, temperature)
            expected = scores.gather(1, torch.tensor(call.output_ids)[:, None]).squeeze(1)
            torch.testing.assert_close(torch.tensor(call.logprobs), expected, atol=1e-4, rtol=0)


def test_rollouts_that_begin_alike_share_the_beginning_and_nothing_else():
    network = decoder()

    async def run():
        sampler = Sampler(network)
        sessions = [sampler.session(seed) for seed in range(9)]
        alike = [[1, 5, 9, 4], [1, 5], [1, 5, 9, 4]] * 3
        first = await asyncio.gather(
            *[s.generate(p, stop_id=3, max_new_tokens=4) for s, p in zip(sessions, alike, strict=True)]
        )
        second = await asyncio.gather(*[s.generate([6, 7], stop_id=3, max_new_tokens=4) for s in sessions])
        return first + second

    calls = asyncio.run(run())
    assert len({call.output_ids for call in calls}) > 6
    for call in calls:
        expected = recomputed(network, call).gather(1, torch.tensor(call.output_ids)[:, None]).squeeze(1)
        torch.testing.assert_close(torch.tensor(call.logprobs), expected, atol=1e-4, rtol=0)


def test_output_ends_at_the_stop_token_or_the_limit():
    calls = [call for calls in asyncio.run(episodes(Sampler(decoder()), range(40))) for call in calls]
    assert any(call.output_ids[-1] == 3 for call in calls)
    assert all(3 not in call.output_ids[:-1] for call in calls)
    assert all(1 <= len(call.output_ids) <= 6 for call in calls)


def test_a_sample_does_not_depend_on_who_else_is_in_the_batch():
    network = decoder()
    alone = asyncio.run(episodes(Sampler(network), [7]))[0]
    crowd = asyncio.run(episodes(Sampler(network), range(40), pause=True))[7]
    small = asyncio.run(episodes(Sampler(network, max_batch=3), range(9)))[7]
    assert [call.output_ids for call in alone] == [call.output_ids for call in crowd]
    assert [call.output_ids for call in alone] == [call.output_ids for call in small]
    other = asyncio.run(episodes(Sampler(network), [8]))[0]
    assert [call.output_ids for call in alone] != [call.output_ids for call in other]


def test_samples_follow_the_distribution():
    network, prompt, count = decoder(), [1, 5, 9], 6000

    async def draw():
        sampler = Sampler(network)
        sessions = [sampler.session(seed) for seed in range(count)]
        found = await asyncio.gather(
            *[session.generate(prompt, stop_id=None, max_new_tokens=1) for session in sessions]
        )
        return torch.tensor([call.output_ids[0] for call in found])

    with torch.no_grad():
        expected = torch.softmax(logits(network, torch.tensor([prompt]))[0, -1], dim=-1) * count
    seen = torch.bincount(asyncio.run(draw()), minlength=VOCABULARY)
    chi_squared = ((seen - expected) ** 2 / expected.clamp(min=1e-9))[expected > 5].sum()
    assert chi_squared < 43.8  # 99.9 % of chi-squared with 19 degrees of freedom


def test_concurrent_requests_are_one_batch():
    sampler = Sampler(decoder())
    asyncio.run(episodes(sampler, range(50), turns=4))
    assert sampler.engine.batches <= 4 * 6  # turns × the longest output, for all 50


def test_prefixes_are_computed_once():
    sampler = Sampler(decoder())
    calls = asyncio.run(episodes(sampler, [0], turns=6))[0]
    # of each call's context all but the very last token is there at the next
    before = [len(call.prompt_ids) + len(call.output_ids) - 1 for call in calls[:-1]]
    assert sampler.engine.steps.reused == sum(before)


def test_rows_come_back_when_sessions_go():
    sampler = Sampler(decoder())
    asyncio.run(episodes(sampler, range(40)))
    gc.collect()
    cache = sampler.engine.steps.cache
    assert cache.used == 0
    rows = cache.rows
    asyncio.run(episodes(sampler, range(40)))
    assert cache.rows == rows


def test_a_closed_session_goes_on_from_its_context():
    network = decoder()

    async def run(close):
        session = Sampler(network).session(3)
        first = await session.generate([1, 2, 4], stop_id=None, max_new_tokens=4)
        if close:
            session.close()
        return first, await session.generate([5], stop_id=None, max_new_tokens=4)

    assert [c.output_ids for c in asyncio.run(run(True))] == [c.output_ids for c in asyncio.run(run(False))]


def test_an_open_session_rereads_its_context_under_new_weights():
    network = decoder()
    sampler = Sampler(network, greedy=True)

    async def run():
        session = sampler.session(0)
        first = await session.generate([1, 2, 4, 8], stop_id=None, max_new_tokens=3)
        network.copy_from(decoder(9).weights())
        sampler.refresh("1")
        return first, await session.generate([5, 6], stop_id=None, max_new_tokens=5)

    first, second = asyncio.run(run())
    assert (first.policy_version, second.policy_version) == (None, "1")
    assert recomputed(network, second).argmax(dim=-1).tolist() == list(second.output_ids)


def test_the_sampler_outlives_an_event_loop_that_left_requests_in_line():
    sampler = Sampler(decoder())

    loop = asyncio.new_event_loop()
    task = loop.create_task(sampler.session(1).generate([1], stop_id=None, max_new_tokens=1))
    loop.call_soon(loop.stop)
    loop.run_forever()
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert len(asyncio.run(episodes(sampler, [5]))[0]) == 3


def test_a_cancelled_request_leaves_the_others_alone():
    network = decoder()

    async def run():
        sampler = Sampler(network)
        tasks = [asyncio.create_task(episode(sampler.session(seed), seed)) for seed in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, cancelled, third = asyncio.run(run())
    assert isinstance(cancelled, asyncio.CancelledError)
    alone = asyncio.run(episodes(Sampler(network), [0, 2]))
    assert [c.output_ids for c in first] == [c.output_ids for c in alone[0]]
    assert [c.output_ids for c in third] == [c.output_ids for c in alone[1]]


def test_a_context_that_is_too_long_or_of_another_vocabulary_is_refused():
    sampler = Sampler(build(SMALL, 11, 0))

    async def run():
        session = sampler.session(0)
        with pytest.raises(InputError, match="max_length is 64"):
            await session.generate([1] * 64, stop_id=None)
        with pytest.raises(InputError, match="outside"):
            await session.generate([11], stop_id=None)
        with pytest.raises(InputError, match="needs a prompt"):
            await session.generate([], stop_id=None)
        full = await session.generate([1] * 60, stop_id=None, max_new_tokens=32)
        assert len(full.output_ids) == 4
        other = sampler.session(1)
        first = asyncio.create_task(other.generate([1], stop_id=None))
        await asyncio.sleep(0)
        with pytest.raises(InputError, match="already"):
            await other.generate([1], stop_id=None)
        await first

    asyncio.run(run())
    for wrong in ({"temperature": 0.0}, {"temperature": float("nan")}, {"max_batch": 0}):
        with pytest.raises(InputError):
            Sampler(sampler.network, **wrong)


def test_a_failed_computation_is_a_model_error_and_leaves_the_context_as_it_was():
    network = build(SMALL, 11, 0)
    sampler = Sampler(network, greedy=True)

    async def run():
        session = sampler.session(0)
        await session.generate([1, 2], stop_id=None, max_new_tokens=2)
        steps = sampler.engine.steps
        fused, steps._fused = steps._fused, steps._fused._replace(head=torch.zeros(11, 5))
        with pytest.raises(ModelError, match="sampling failed"):
            await session.generate([4], stop_id=None, max_new_tokens=2)
        steps._fused = fused
        return await session.generate([5], stop_id=None, max_new_tokens=2)

    call = asyncio.run(run())
    assert recomputed(network, call).argmax(dim=-1).tolist() == list(call.output_ids)
