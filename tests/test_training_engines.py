"""Rollouts that an engine in a process of its own samples: started or found, fed with weights, ended."""

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from methods_toys import ANSWERS, FAST, Answer, AnswerPolicy, beginning, context, tasks
from policy_world import TOKEN, downloaded

from whet.cli import app
from whet.errors import InputError, MissingExtra, ModelError
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.training import engines, huggingface, model
from whet.learn.training.batch import Merged, parts
from whet.learn.training.compute import ComputeOptions
from whet.learn.training.engines import EnginePlan, engine, found
from whet.learn.training.learner import chosen_logprobs
from whet.learn.training.local import LocalModels, adopted, use_compute
from whet.learn.training.remote import RemoteModels
from whet.learn.training.sampler import Sampler
from whet.models import Retry
from whet.models.base import Completion
from whet.models.engine import TokenRequest
from whet.models.fakes import Reply, ScriptedServer
from whet.models.sglang import SGLang
from whet.models.vllm import VLLM
from whet.record.env import rollout
from whet.record.store import Store
from whet.record.tasks import to_jsonl
from whet.types import Group, Tokens

QUICK = Retry(attempts=3, first_wait=0.01, longest_wait=0.02)


def run(*words):
    return app([str(word) for word in words], result_action="return_value")


class Engine:
    """A script that samples from real weights: those in the folder that was loaded last."""

    def __init__(self, start, form):
        self.form, self.server, self.folder = form, None, start
        self.network = model.load(start)
        self.lock = threading.Lock()
        self.slow = None
        self.under_way = threading.Event()

    def __call__(self, request):
        settings = {**request.options, "seed": request.seed, "max_tokens": request.max_tokens}
        with self.lock:
            loaded = self.server.weights.reloaded
            if loaded and loaded[-1] != str(self.folder):
                self.folder = Path(loaded[-1])
                self.network = model.load(self.folder)
            network = self.network
        prompt = [int(word) for word in request.messages[-1]["content"].split()]
        sampled = asyncio.run(self._answer(network, prompt, settings))
        self.under_way.set()
        answer = Completion(text="", tokens=Tokens(sampled.prompt_ids, sampled.output_ids, sampled.logprobs))
        delay = self.slow() if self.slow else 0.0
        return Reply(answer=answer, delay=delay)

    async def _answer(self, network, prompt, settings):
        inner = settings.get("sampling_params", settings)
        seed = inner.get("sampling_seed", inner.get("seed", 0))
        limit = inner.get("max_new_tokens", inner.get("max_tokens", 1))
        return await Sampler(network).session(seed).generate(prompt, stop_id=None, max_new_tokens=limit)


FORMS = {"vllm": ("completions", "vllm"), "sglang": ("sglang",)}


def scripted(start, form):
    script = Engine(start, form)
    server = ScriptedServer(script, models=["policy"], speaks=FORMS[form], api_key=TOKEN)
    script.server = server
    return script, server


@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_training_on_an_engine_ends_at_the_weights_of_training_in_process(tmp_path, form):
    start = beginning(tmp_path)

    async def rounds(models, folder, count=4):
        options = GRPOOptions(steps=count, checkpoint_every=count, kl_every=count, optim=FAST)
        optimizer, bundle, state, versions = GRPO(options, models=models), start, None, []
        for number in range(count):
            sampler, groups = models.sampler(bundle["policy"]), []
            for place, task in enumerate(tasks(6, number)):
                todo = [
                    rollout(
                        Answer(), AnswerPolicy(sampler.session(number * 100 + place * 8 + i)), task, seed=i
                    )
                    for i in range(8)
                ]
                groups.append(Group(task, await asyncio.gather(*todo)))
            every = [run for group in groups for run in group.trajectories]
            assert all(run.error is None for run in every), [run.error for run in every]
            versions.append({step.tokens.policy_version for run in every for step in run.steps})
            update = await optimizer.step(bundle, groups, context(folder, state=state))
            bundle, state = update.bundle, update.state
        return bundle, versions, update.metrics

    here, expected, plain = asyncio.run(rounds(LocalModels(), tmp_path / "here"))
    _, server = scripted(tmp_path / "start", form)

    async def there():
        async with found(server.base_url, TOKEN) as client:
            assert type(client) is {"vllm": VLLM, "sglang": SGLang}[form]
            return await rounds(RemoteModels(client, tmp_path / "handed"), tmp_path / "there")

    with server:
        bundle, versions, metrics = asyncio.run(there())
        handed = server.weights.reloaded
    assert versions == expected == [{"0"}, {"1"}, {"2"}, {"3"}], "what served is what is recorded"
    assert len(handed) == 4
    assert metrics["mismatch"] < 1e-5
    assert "mismatch" not in plain
    ours = LocalModels().decoder(here["policy"]).weights()
    theirs = LocalModels().decoder(bundle["policy"]).weights()
    first = model.load(tmp_path / "start").weights()
    moved = max(float((ours[name] - first[name]).detach().abs().max()) for name in ours)
    apart = max(float((ours[name] - theirs[name]).detach().abs().max()) for name in ours)
    assert apart < 1e-3 * moved


def test_weights_served_before_are_served_again_where_they_are_asked_for(tmp_path):
    start = beginning(tmp_path)
    other = beginning(tmp_path / "other", seed=5)
    _, server = scripted(tmp_path / "start", "sglang")

    async def ask():
        async with found(server.base_url, TOKEN) as client:
            models = RemoteModels(client, tmp_path / "handed")
            answers = []
            for bundle in (start, other, start):
                session = models.sampler(bundle["policy"]).session(3)
                answers.append(await session.generate([1, 5, 2], stop_id=None, max_new_tokens=6))
            return answers

    with server:
        one, two, three = asyncio.run(ask())
    assert one == three
    assert one.logprobs != two.logprobs


@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_answers_under_way_are_waited_for_by_a_change_of_weights_and_slow_ones_are_asked_again(
    tmp_path, form
):
    beginning(tmp_path)
    beginning(tmp_path / "other", seed=5)
    first, second = tmp_path / "start", tmp_path / "other" / "start"
    asked = TokenRequest(
        prompt=[1, 5, 2], max_new_tokens=4, temperature=1.0, seed=7, stop_id=None, adapter=None
    )

    async def swap(client, script, patience):
        client.policy_version, client.patience = "first", patience
        under_way = asyncio.create_task(client.generate(asked))
        await asyncio.to_thread(script.under_way.wait, 10)
        change = asyncio.create_task(client.load_weights(second, policy_version="second"))
        await asyncio.sleep(0)
        late = asyncio.create_task(client.generate(asked))
        return await under_way, await late, await change, client.interrupted

    def swapped(delay, patience):
        script, server = scripted(first, form)
        delays = iter([delay])
        script.slow = lambda: next(delays, 0.0)

        async def work():
            async with found(server.base_url, TOKEN) as client:
                return await swap(client, script, patience)

        with server:
            return asyncio.run(work())

    def by(folder):
        sampler = Sampler(model.load(folder)).session(7)
        sampled = asyncio.run(sampler.generate([1, 5, 2], stop_id=None, max_new_tokens=4))
        return sampled.output_ids, pytest.approx(sampled.logprobs, abs=1e-6)

    early, late, _, interrupted = swapped(delay=0.3, patience=20)
    assert (early.policy_version, late.policy_version, interrupted) == ("first", "second", 0)
    assert (early.output_ids, early.logprobs) == by(first)
    assert (late.output_ids, late.logprobs) == by(second)
    early, late, _, interrupted = swapped(delay=20, patience=0.1)
    assert (early.policy_version, late.policy_version, interrupted) == ("second", "second", 1)
    assert (early.output_ids, early.logprobs) == by(second)


def test_sglang_is_asked_by_its_own_routes_and_says_what_it_did_not_take(tmp_path):
    async def work(server):
        async with SGLang(server.base_url, "policy", retry=QUICK) as client:
            await client.load_adapter("policy-1", tmp_path / "one", policy_version="1")
            request = TokenRequest(
                prompt=[1, 2], max_new_tokens=3, temperature=0.5, seed=9, stop_id=4, adapter="policy-1"
            )
            answer = await client.generate(request)
            with pytest.raises(ModelError, match="already loaded"):
                await client.load_adapter("policy-1", tmp_path / "one")
            await client.unload_adapter("policy-1")
            with pytest.raises(ModelError, match="not loaded"):
                await client.unload_adapter("policy-1")
            await client.load_weights(tmp_path / "two", policy_version="2")
            with pytest.raises(ModelError, match="cannot be trained on"):
                await client.generate(replace(request, adapter=None))
            return answer

    tokens = Tokens((1, 2), (5, 4), (-0.5, -0.25))
    answers = [Completion(text="x", tokens=tokens), "no tokens"]
    with ScriptedServer(answers, models=["policy"], speaks=("sglang",)) as server:
        answer = asyncio.run(work(server))
        body = next(received.body for received in server.requests if received.path == "/generate")
        assert server.weights.reloaded == [str(tmp_path / "two")]
        assert server.weights.weight_version == "2"
    assert (answer.output_ids, answer.logprobs) == ((5, 4), (-0.5, -0.25))
    assert (body["input_ids"], body["lora_path"], body["return_logprob"]) == ([1, 2], "policy-1", True)
    settings = body["sampling_params"]
    assert (settings["max_new_tokens"], settings["temperature"], settings["stop_token_ids"]) == (3, 0.5, [4])


def test_an_engine_that_cannot_be_had_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(engines.shutil, "which", lambda name: None)
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    for name in ("vllm", "sglang"):
        with (
            pytest.raises(MissingExtra, match=f"{name} is not installed"),
            engine(EnginePlan(where=name, model="m"), tmp_path / name),
        ):
            pass
    with pytest.raises(InputError, match="--max-rollouts 500"):
        EnginePlan(where="500", model="m")
    with pytest.raises(InputError, match="policy, vllm, sglang or a server at a URL"):
        EnginePlan(where="tgi", model="m")
    with pytest.raises(InputError, match=r"nothing at http://127\.0\.0\.1:1/v1/models"):
        found("http://127.0.0.1:1/v1", None)
    with (
        pytest.raises(ModelError, match=r"ended with status.*before it answered"),
        engine(EnginePlan(where="policy", model=str(tmp_path), options="--no-such-option"), tmp_path / "log"),
    ):
        pass


def test_the_commands_of_vllm_and_sglang_are_those_that_they_document(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "_program", lambda name: f"/bin/{name}")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    plan = EnginePlan(where="vllm", model="Qwen/Qwen3-0.6B", lora_rank=8)
    command, environment = engines._COMMANDS["vllm"](plan, 81, tmp_path, "k")
    assert command[:3] == ["/bin/vllm", "serve", "Qwen/Qwen3-0.6B"]
    assert {"--enable-lora", "--max-lora-rank", "processed_logprobs"} <= set(command)
    assert environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert "k" not in command
    command, _ = engines._COMMANDS["sglang"](replace(plan, where="sglang", lora_rank=0), 81, tmp_path, "k")
    assert command[:4] == ["/bin/sglang", "serve", "--model-path", "Qwen/Qwen3-0.6B"]
    assert "--enable-lora" not in command


def test_device_and_dtype_reach_the_trainer_and_the_policy_server_alike(tmp_path):
    asked = ComputeOptions(device="cpu", dtype="bfloat16")
    plan = EnginePlan(where="policy", model="m", device=asked.device, dtype=asked.dtype)
    command, _ = engines._COMMANDS["policy"](plan, 81, tmp_path, "k")
    assert command[-4:] == ["--device", "cpu", "--dtype", "bfloat16"]
    version = adopted("policy", downloaded(tmp_path / "m"), tmp_path)
    use_compute(asked)
    with RemoteModels(VLLM("http://127.0.0.1:9/v1", "m"), tmp_path / "handed").as_shared():
        weights = LocalModels.shared().decoder(version).weights()
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


@pytest.fixture
def world(tmp_path, monkeypatch):
    (tmp_path / "answers_world.py").write_text(ANSWERS)
    monkeypatch.chdir(tmp_path)
    to_jsonl(tmp_path / "tasks.jsonl", [replace(task, group=task.id) for task in tasks(80)])
    beginning(tmp_path)
    words = ["--env", "answers_world:env", "--policy", "answers_world:policy", "--tasks-file", "tasks.jsonl"]
    words += ["--model", tmp_path / "start", "--optim.learning-rate", 0.02, "--round-tasks", 8, "--json"]
    return words


def test_a_command_starts_the_policy_server_samples_beside_training_and_ends_it(world, tmp_path, capsys):
    words = [*world, "--rollouts", "policy", "--asynchronous", "--max-staleness", "1", "--steps", "5"]
    words += ["--hand-over", "gloo"]
    assert run("train", "grpo", *words, "--output", tmp_path / "out", "--checkpoint-every", 3) == 0
    done = json.loads(capsys.readouterr().out)
    rows = [json.loads(row) for row in (tmp_path / "out" / "metrics.jsonl").read_bytes().splitlines()]
    assert done["reason"] == "all 5 rounds done"
    assert done["verdict"]["n"] > 0, "the gate sampled from the engine too"
    assert rows[0]["mismatch"] < 1e-5, "of the same weights; later ones are of older tokens too"
    assert all(row["staleness"] <= 1 for row in rows)
    assert max(row["staleness"] for row in rows) > 0
    with Store(tmp_path / "out" / "runs.db") as store:
        calls = [step.tokens for run in store.trajectories() for step in run.steps]
    versions = {call.policy_version for call in calls}
    assert {"0", "1", "4", "5"} <= versions
    # The weights went through memory: what the engine said by the last ones is what they say here.
    (version,) = json.loads((tmp_path / "out" / "bundle.json").read_bytes())["bundle"]
    trained = model.load(Path(version["content"]["path"]))
    last = [call for call in calls if call.policy_version == "5"][:32]
    (part,) = parts(
        [
            Merged(
                number,
                [*call.prompt_ids, *call.output_ids],
                list(range(len(call.prompt_ids), len(call.prompt_ids) + len(call.output_ids))),
                list(call.logprobs),
            )
            for number, call in enumerate(last)
        ]
    )
    with torch.no_grad():
        assert float((chosen_logprobs(trained, part) - part.logprobs).abs().max()) < 1e-4
        first = chosen_logprobs(model.load(tmp_path / "start"), part)
        assert float((first - part.logprobs).abs().max()) > 0.01, "the first weights say something else"
    assert sorted(path.name for path in (tmp_path / "out" / "engine").iterdir()) == [engines.LOG]
    log = (tmp_path / "out" / "engine" / engines.LOG).read_text()
    assert "on http://127.0.0.1:" in log
    assert LocalModels.shared().elsewhere is False
    address = log.split("on http://")[1].split("/v1")[0]
    with pytest.raises(InputError, match="nothing at"):
        found(f"http://{address}/v1", None)


def test_what_an_engine_needs_is_said_before_it_is_started(world, tmp_path):
    words = ("--env", "answers_world:env", "--tasks-file", "tasks.jsonl", "--output", tmp_path / "out")
    with pytest.raises(InputError, match="an engine in a process of its own"):
        run("train", "grpo", *words, "--asynchronous")
    with pytest.raises(InputError, match="give it with --env"):
        run("train", "grpo", "--rollouts", "vllm", "--output", tmp_path / "out")
    with pytest.raises(InputError, match="how many there may be is --max-rollouts 40"):
        run("train", "grpo", *world, "--rollouts", 40, "--output", tmp_path / "out")
    with pytest.raises(InputError, match="vLLM takes them by disk"):
        run(
            "train", "grpo", *world, "--rollouts", "vllm", "--hand-over", "nccl", "--output", tmp_path / "out"
        )
    with pytest.raises(InputError, match="takes full weights from disk alone"):
        RemoteModels(VLLM("http://127.0.0.1:9/v1", "m"), tmp_path / "handed", by="gloo")
    words = [*world, "--lora-rank", 2, "--four-bit", "--rollouts", "policy", "--output", tmp_path / "four"]
    with pytest.raises(InputError, match="beside rounded ones"):
        run("train", "grpo", *words)


def a_gpu_and(name):
    """Why a real engine cannot be tried here; empty if it can."""
    if not torch.cuda.is_available():
        return f"a real {name} needs a GPU, and there is none here"
    return "" if engines._program(name) else f"{name} is not installed here"


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_real_engine_samples_tags_and_takes_up_weights(tmp_path, name):
    if reason := a_gpu_and(name):
        pytest.skip(reason)
    start = downloaded(tmp_path / "model")
    plan = EnginePlan(where=name, model=str(start), options="--dtype float32" if name == "vllm" else "")

    async def ask(server):
        models = RemoteModels(server, tmp_path / "handed")
        versions = [adopted("policy", start, tmp_path / "none"), beginning_of(start, tmp_path / "second")]
        answers = []
        for version in versions:
            session = models.sampler(version).session(3)
            answers.append(await session.generate([5, 6, 7], stop_id=None, max_new_tokens=8))
        return list(zip(versions, answers, strict=True))

    with engine(plan, tmp_path / "engine") as server:
        for version, answer in asyncio.run(ask(server)):
            network = LocalModels().decoder(version)
            ids = torch.tensor([[*answer.prompt_ids, *answer.output_ids]])
            with torch.no_grad():
                table = torch.log_softmax(network.model(input_ids=ids).logits[0].float(), dim=-1)
            own = table[2:-1].gather(1, ids[0, 3:].unsqueeze(1)).squeeze(1)
            assert own.tolist() == pytest.approx(answer.logprobs, abs=0.05)
            assert answer.policy_version == str(version.meta["policy_version"])


def beginning_of(start, folder):
    """Other weights of the same model, as a Version."""
    network = huggingface.load(start)
    with torch.no_grad():
        for weight in network.weights().values():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    network.save(folder)
    return network.version("policy", folder, None, {"policy_version": 1})
