"""A sampler behind a URL is the sampler in process: the same tokens, the same training, by another argument."""

import asyncio

import pytest
from methods_toys import FAST, WORDS, Answer, AnswerPolicy, beginning, context, tasks
from methods_toys import SMALL as ANSWER_SIZE
from policy_world import TOKEN, causal, downloaded, serving

from whet.errors import InputError, ModelError
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.training import model
from whet.learn.training.huggingface import LoRAOptions
from whet.learn.training.local import LocalModels, adopted
from whet.learn.training.remote import RemoteModels
from whet.learn.training.sampler import Sampler
from whet.learn.training.serving.text import WordText
from whet.learn.training.weight_group import refuse_others
from whet.models import Retry
from whet.models.base import Completion
from whet.models.fakes import Reply, ScriptedServer
from whet.models.vllm import VLLM, WhetPolicies
from whet.record.env import rollout
from whet.types import Bundle, Group, Step, Task, Tokens, Trajectory

TOKENS = Tokens((1, 4, 2), (5, 3), (-0.5, -0.25))
QUICK = Retry(attempts=3, first_wait=0.01, longest_wait=0.02)


def answered(**changes):
    return Completion(
        text="x", tokens=Tokens(**{**{k: getattr(TOKENS, k) for k in TOKENS.__slots__}, **changes})
    )


def scripted(script, **options):
    return ScriptedServer(script, models=["policy"], speaks=("completions", "vllm"), **options)


def remote(server):
    return VLLM(f"{server.url}/v1", "policy", api_key=TOKEN)


def test_a_session_behind_a_url_samples_what_one_in_process_does(tmp_path):
    network = model.build(ANSWER_SIZE, len(WORDS), 3)

    async def both(server):
        async with remote(server) as client:
            for greedy, temperature in ((False, 1.0), (False, 0.5), (True, 1.0)):
                here = Sampler(network, greedy=greedy, temperature=temperature, policy_version="7")
                there = client.sampler(greedy=greedy, temperature=temperature)
                for seed in range(5):
                    given = {"stop_id": WORDS.eos, "max_new_tokens": 6}
                    one = await here.session(seed).generate([1, 5, 2], **given)
                    session = there.session(seed)
                    other = await session.generate([1, 5, 2], **given)
                    assert (other.prompt_ids, other.output_ids) == (one.prompt_ids, one.output_ids)
                    assert other.logprobs == pytest.approx(one.logprobs, abs=1e-6)
                    assert other.policy_version == "7"
                    second = await session.generate([6, 2], **given)
                    assert second.prompt_ids == (*other.prompt_ids, *other.output_ids, 6, 2)

    with serving(network, WordText(WORDS), policy_version="7") as server:
        asyncio.run(both(server))


async def rounds(models, start, folder, count):
    """GRPO on rollouts of the policy; the last Bundle, and the policy versions of every round's calls."""
    options = GRPOOptions(steps=count, checkpoint_every=count, kl_every=count, optim=FAST)
    optimizer, bundle, state, versions = GRPO(options, models=models), start, None, []
    for number in range(count):
        sampler = models.sampler(bundle["policy"])
        groups = []
        for place, task in enumerate(tasks(6, number)):
            todo = [
                rollout(Answer(), AnswerPolicy(sampler.session(number * 100 + place * 8 + i)), task, seed=i)
                for i in range(8)
            ]
            groups.append(Group(task, await asyncio.gather(*todo)))
        every = [one for group in groups for one in group.trajectories]
        assert all(one.error is None for one in every), [one.error for one in every]
        versions.append({step.tokens.policy_version for one in every for step in one.steps})
        update = await optimizer.step(bundle, groups, context(folder, state=state))
        bundle, state = update.bundle, update.state
    return bundle, versions


def test_training_moves_to_a_server_by_another_argument_and_ends_at_the_same_weights(tmp_path):
    start = beginning(tmp_path)
    here, expected = asyncio.run(rounds(LocalModels(), start, tmp_path / "here", 4))

    async def there(server):
        async with remote(server) as client:
            models = RemoteModels(client, tmp_path / "handed")
            found = await rounds(models, start, tmp_path / "there", 4)
            return *found, models.handed_over

    network = model.load(tmp_path / "start")
    with serving(network, WordText(WORDS), allowed=[tmp_path / "handed"]) as server:
        bundle, versions, handed = asyncio.run(there(server))
    assert versions == expected == [{"0"}, {"1"}, {"2"}, {"3"}]
    assert handed == 4
    assert len(list((tmp_path / "handed").iterdir())) == 1, "weights that have moved on leave no copy on disk"
    one = LocalModels().decoder(here["policy"]).weights()
    other = LocalModels().decoder(bundle["policy"]).weights()
    first = model.load(tmp_path / "start").weights()
    moved = max(float((one[name] - first[name]).detach().abs().max()) for name in one)
    apart = max(float((one[name] - other[name]).detach().abs().max()) for name in one)
    assert moved > 1e-2
    # Batches of other sizes round a log-probability's last bit otherwise, and Adam makes gradients of one size.
    assert apart < 1e-3 * moved


def test_a_group_for_weights_is_refused_from_another_machine_and_where_none_was_joined(tmp_path):
    network = model.build(ANSWER_SIZE, len(WORDS), 3)
    meeting = {"master_port": 1, "rank_offset": 1, "world_size": 2, "group_name": "g", "backend": "gloo"}

    async def ask(server, address, complaint):
        async with WhetPolicies(f"{server.url}/v1", "policy", api_key=TOKEN, retry=QUICK) as client:
            with pytest.raises(ModelError, match=complaint):
                await client.join_group({**meeting, "master_address": address})

            async def nothing():
                pass

            with pytest.raises(ModelError, match="no group 'g' was joined"):
                await client.take_weights({"names": [], "dtypes": [], "shapes": []}, "g", nothing, "1")

    with serving(network, WordText(WORDS), allowed=[tmp_path]) as server:
        asyncio.run(ask(server, "10.0.0.1", "from a trainer on this machine alone"))
    with serving(network, WordText(WORDS)) as server:
        asyncio.run(ask(server, "127.0.0.1", "takes no weights"))
    weights = network.weights()
    names, shapes = list(weights), [list(weight.shape) for weight in weights.values()]
    refuse_others(weights, names, shapes)
    with pytest.raises(InputError, match=f"another model: {names[0]}"):
        refuse_others(weights, names, [[1], *shapes[1:]])
    with pytest.raises(InputError, match="another model"):
        refuse_others(weights, names[1:], shapes[1:])


def test_adapters_are_handed_over_under_names_of_their_own(tmp_path):
    folder = downloaded(tmp_path / "m")
    start = Bundle([adopted("policy", folder, tmp_path / "factors", lora=LoRAOptions(rank=2))])

    async def learn(server):
        async with remote(server) as client:
            models = RemoteModels(client, tmp_path / "handed")
            options = GRPOOptions(steps=5, checkpoint_every=5, kl_every=5, optim=FAST, floor=0.0)
            optimizer, bundle, state, seen = GRPO(options, models=models), start, None, []
            for number in range(5):
                sampler = models.sampler(bundle["policy"])
                calls = [sampler.session(8 * number + i).generate([5, 6, 7], stop_id=None) for i in range(8)]
                sampled = await asyncio.gather(*calls)
                seen.append({one.policy_version for one in sampled})
                task = Task(id=str(number))
                steps = [
                    Step(tokens=one.tokens, reward=float(place % 2)) for place, one in enumerate(sampled)
                ]
                groups = [Group(task, [Trajectory(task=task, steps=[step]) for step in steps])]
                update = await optimizer.step(bundle, groups, context(tmp_path / "r", state=state))
                bundle, state = update.bundle, update.state
            return seen

    network, text = causal(folder)
    with serving(network, text, allowed=[tmp_path / "handed"]) as server:
        seen = asyncio.run(learn(server))
        assert seen == [{"0"}, {"1"}, {"2"}, {"3"}, {"4"}]
        assert len(server.host.names) == 1 + 3


def test_vllms_fields_are_read_and_what_cannot_be_trained_on_is_refused():
    async def ask(server):
        async with VLLM(server.base_url, "policy", retry=QUICK) as client:
            client.policy_version = "step-3"
            return await client.sampler().session(4).generate([1, 4, 2], stop_id=3, max_new_tokens=9)

    with scripted([answered()]) as server:
        found = asyncio.run(ask(server))
        (asked,) = [received.body for received in server.requests]
    assert (found.output_ids, found.logprobs, found.policy_version) == ((5, 3), (-0.5, -0.25), "step-3")
    assert asked["prompt"] == [1, 4, 2]
    assert asked["stop_token_ids"] == [3]
    assert (asked["seed"], asked["max_tokens"], asked["return_token_ids"], asked["logprobs"]) == (
        4,
        9,
        True,
        0,
    )
    with scripted(["no tokens"]) as server, pytest.raises(ModelError, match="cannot be trained"):
        asyncio.run(ask(server))
    with scripted([Reply(status=503), Reply(status=503), answered()]) as server:
        assert asyncio.run(ask(server)).output_ids == (5, 3)
        assert len(server.requests) == 3
    with scripted([Reply(status=400)]) as server, pytest.raises(ModelError, match="HTTP 400"):
        asyncio.run(ask(server))


def test_weights_reach_a_vllm_server_by_the_routes_that_it_documents(tmp_path):
    async def work(server):
        async with VLLM(server.base_url, "policy", retry=QUICK) as client:
            session = client.sampler().session(0)
            await client.load_adapter("policy-1", tmp_path / "one", policy_version="1")
            await session.generate([1], stop_id=None)
            await client.load_adapter("policy-2", tmp_path / "two", policy_version="2")
            await client.unload_adapter("policy-1")
            with pytest.raises(ModelError, match="already been loaded"):
                await client.load_adapter("policy-2", tmp_path / "two")
            with pytest.raises(ModelError, match="cannot be found"):
                await client.unload_adapter("policy-1")
            await client.sleep(2)
            with pytest.raises(ModelError, match="no memory"):
                await client.load_weights(tmp_path / "three")
            assert server.weights.asleep == {"weights", "kv_cache"}
            await client.replace_asleep(tmp_path / "three", policy_version="3")
            assert server.weights.asleep == set()
            assert client.policy_version == "3"

    with scripted(lambda request: answered()) as server:
        asyncio.run(work(server))
        loaded = server.weights
        asked = [received.body["model"] for received in server.requests if received.path == "/v1/completions"]
        paths = [received.path for received in server.requests]
    assert loaded.adapters == {"policy-2": str(tmp_path / "two")}
    assert loaded.reloaded == [str(tmp_path / "three")]
    assert asked == ["policy-1"]
    last = paths[-4:]
    assert last == [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/wake_up?tags=kv_cache",
    ]


def test_a_server_is_insisted_on_for_the_total_time_and_no_longer():
    async def ask(server, **retry):
        async with VLLM(server.base_url, "policy", api_key=TOKEN, retry=Retry(**retry)) as client:
            return await client.complete({"model": "policy", "prompt": [1]})

    late = r"completions at .*no answer within 0\.2 s.*total_seconds"
    with (
        scripted(lambda _: Reply(answer=answered(), delay=60)) as server,
        pytest.raises(ModelError, match=late),
    ):
        asyncio.run(ask(server, total_seconds=0.2))
    # A wait that would end after the deadline is not begun.
    with scripted([Reply(status=503, headers={"Retry-After": "3600"})]) as server:
        with pytest.raises(ModelError, match=r"HTTP 503.*attempt 1 of 6, asked to wait 3600 s") as caught:
            asyncio.run(ask(server, total_seconds=90))
        assert caught.value.retryable


def test_an_address_or_a_key_that_cannot_be_one_is_refused_before_anything_is_sent():
    for address in ("localhost:8000/v1", "http:///v1", "http://127.0.0.1:1", "http://127.0.0.1:1/v1?key=abc"):
        with pytest.raises(InputError, match="base_url"):
            VLLM(address, "policy")
    with pytest.raises(InputError, match="user name or password") as caught:
        VLLM("http://me:hunter2@127.0.0.1:1/v1", "policy")
    assert "hunter2" not in str(caught.value)
    for key in ("", "two\nlines", "kéy"):
        with pytest.raises(InputError, match="api_key"):
            VLLM("http://127.0.0.1:1/v1", "policy", api_key=key)
    assert VLLM("http://127.0.0.1:1/v1/", "policy").base_url == "http://127.0.0.1:1/v1"


def test_the_key_is_shown_by_no_error():
    async def ask(server):
        async with VLLM(server.base_url, "policy", api_key="sk-wrong-and-long", retry=QUICK) as client:
            await client.complete({"model": "policy", "prompt": [1]})

    with scripted([answered()], api_key=TOKEN) as server, pytest.raises(ModelError, match="key") as caught:
        asyncio.run(ask(server))
    assert "sk-wrong" not in str(caught.value)
