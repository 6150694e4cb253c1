"""Models of transformers, by folder: they train, sample, adapt with LoRA, and pickles stay unread."""

import asyncio
import random
import shutil
from dataclasses import replace

import pytest
import torch
from methods_toys import WORDS, Answer, AnswerPolicy, context, tasks
from policy_world import downloaded, template_text

from whet.errors import InputError, NotFoundError
from whet.learn.optimizers.dpo import DPO, DPOOptions
from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.optimizers.ppo import PPO, PPOOptions
from whet.learn.optimizers.sft import SFT, SFTOptions
from whet.learn.training import huggingface
from whet.learn.training.alarms import AlarmOptions
from whet.learn.training.batch import Merged, parts
from whet.learn.training.huggingface import LoRAOptions
from whet.learn.training.learner import chosen_logprobs, logprobs
from whet.learn.training.local import LocalModels, adopted
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.optim import OptimOptions
from whet.record.env import rollout
from whet.types import Bundle, Group

FAST = OptimOptions(learning_rate=2e-2, schedule="constant")
NEVER = AlarmOptions(success_drop=None, min_entropy=None, max_no_signal=None)


def saved(folder, kind="qwen2", vocab=8, seed=0):
    """A tiny random model in a folder, as one downloads it."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    config, model = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}[kind]
    torch.manual_seed(seed)
    made = model(
        config(
            vocab_size=vocab,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            initializer_range=0.3,
            tie_word_embeddings=kind == "qwen2",
            bos_token_id=1,
            eos_token_id=3,
            pad_token_id=0,
        )
    )
    made.save_pretrained(folder)
    return folder


async def collect(bundle, todo, n, models, seed=0, greedy=False):
    sampler = models.sampler(bundle["policy"], greedy=greedy)
    runs = [
        rollout(Answer(), AnswerPolicy(sampler.session(seed * 1009 + k * n + i)), task, seed=i)
        for k, task in enumerate(todo)
        for i in range(n)
    ]
    done = await asyncio.gather(*runs)
    return [Group(task, done[k * n : (k + 1) * n]) for k, task in enumerate(todo)]


def rate(groups):
    every = [t.outcome.value == "success" for g in groups for t in g.trajectories]
    return sum(every) / len(every)


def test_a_log_gets_no_progress_bars_and_others_keep_theirs(tmp_path, capfd):
    from transformers.utils import logging

    folder = saved(tmp_path / "m")
    capfd.readouterr()
    network = huggingface.load(folder)
    network.save(tmp_path / "copy")
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled()


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_logits_at_the_targets_are_the_whole_models(kind, tmp_path):
    network = huggingface.load(saved(tmp_path / "m", kind))
    rng = random.Random(0)
    rows = [Merged(u, [rng.randrange(8) for _ in range(4 + u)], [2, 3], [0.0, 0.0]) for u in range(4)]
    (part,) = parts(rows)
    ours = logprobs(network, part)
    for row, two in zip(rows, ours.split(2), strict=True):
        with torch.no_grad():
            whole = torch.log_softmax(network.model(torch.tensor([row.ids])).logits[0], dim=-1)
        torch.testing.assert_close(two, whole[[1, 2]], atol=1e-5, rtol=1e-4)
    network._split = False  # models that scale their logits go the long way, to the same place
    torch.testing.assert_close(logprobs(network, part), ours, atol=1e-5, rtol=1e-4)


def test_our_decoder_and_its_transformers_twin_train_alike(tmp_path):
    options = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
    decoder = build(options, len(WORDS), 0)
    to_transformers(decoder).save_pretrained(tmp_path / "twin")
    twin = huggingface.load(tmp_path / "twin")
    (part,) = parts([Merged(0, [1, 5, 2, 6, 7], [3, 4], [0.0, 0.0])])
    for network in (decoder, twin):
        chosen_logprobs(network, part).sum().backward()
    mine = decoder.weight("model.layers.0.mlp.down_proj.weight").grad
    theirs = dict(twin.model.named_parameters())["model.layers.0.mlp.down_proj.weight"].grad
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("lora", [None, LoRAOptions(rank=8, alpha=32)], ids=["full", "lora"])
def test_a_model_by_folder_learns_by_grpo_and_comes_back_from_disk(lora, tmp_path):
    async def run():
        models = LocalModels()
        folder = saved(tmp_path / "m", "llama", seed=1)
        start = Bundle([adopted("policy", folder, tmp_path / "factors", lora=lora)])
        before = rate(await collect(start, tasks(40, 9), 2, models, 3))
        # Random weights: what a fresh model is trained with, which would cost a pretrained one its language.
        optim = replace(FAST, learning_rate=4e-2, muon=True)
        options = GRPOOptions(
            steps=24, checkpoint_every=12, kl_every=12, entropy_bonus=0.02, optim=optim, alarms=NEVER
        )
        optimizer, bundle, state = GRPO(options, models=models), start, None
        for number in range(24):
            groups = await collect(bundle, tasks(16, number), 4, models, number)
            update = await optimizer.step(bundle, groups, context(tmp_path / "run", state=state))
            bundle, state = update.bundle, update.state
        again = rate(await collect(bundle, tasks(40, 9), 2, LocalModels(), 3))
        return start, before, bundle, again

    start, before, bundle, after = asyncio.run(run())
    assert bundle["policy"].kind == ("weights" if lora is None else "adapter")
    assert start["policy"].id != bundle["policy"].id
    assert after >= before + 0.3
    if lora is not None:
        files = {file.name for file in (tmp_path / "run").rglob("*") if "weights-" in str(file)}
        assert huggingface.ADAPTER in files
        assert "model.safetensors" not in files


def test_other_methods_take_such_models_too(tmp_path):
    async def run():
        models = LocalModels()
        start = Bundle([adopted("policy", saved(tmp_path / "m"), tmp_path / "f", lora=LoRAOptions(rank=2))])
        groups = await collect(start, tasks(12), 8, models)
        kinds = []
        for optimizer in (
            SFT(SFTOptions(epochs=1), models=models),
            DPO(DPOOptions(epochs=1), models=models),
            PPO(PPOOptions(steps=1), models=models),
        ):
            update = await optimizer.step(start, groups, context(tmp_path / optimizer.name))
            models.decoder(update.bundle["policy"])
            kinds.append(update.bundle["policy"].kind)
        return kinds

    assert asyncio.run(run()) == ["adapter"] * 3


def test_a_sampler_draws_the_same_for_a_seed_whoever_is_in_the_batch(tmp_path):
    network_folder = saved(tmp_path / "m")

    async def run(others):
        models = LocalModels()
        sampler = models.sampler(adopted("policy", network_folder, tmp_path))

        async def one(seed, prompt):
            session = sampler.session(seed)
            first = await session.generate(prompt, stop_id=None, max_new_tokens=4)
            second = await session.generate([5], stop_id=first.output_ids[0], max_new_tokens=3)
            return first, second

        return (
            await asyncio.gather(one(7, [1, 4, 2]), *(one(100 + i, [1] * (i + 1)) for i in range(others)))
        )[0]

    (first, second), (again, _) = asyncio.run(run(0)), asyncio.run(run(5))
    assert first.output_ids == again.output_ids
    assert first.logprobs == pytest.approx(again.logprobs, abs=1e-4)
    assert second.prompt_ids == (1, 4, 2, *first.output_ids, 5)
    network = huggingface.load(network_folder)
    whole = [*second.prompt_ids, *second.output_ids]
    begin = len(second.prompt_ids)
    (part,) = parts([Merged(0, whole, list(range(begin, len(whole))), [0.0] * len(second.output_ids))])
    assert chosen_logprobs(network, part).tolist() == pytest.approx(second.logprobs, abs=1e-4)


def test_a_copy_shares_what_is_frozen_and_nothing_else(tmp_path):
    network = huggingface.load(saved(tmp_path / "m"), lora=LoRAOptions(rank=2))
    copy = network.copy()
    frozen = [w for w in network.model.parameters() if not w.requires_grad]
    assert {id(w) for w in frozen} <= {id(w) for w in copy.model.parameters()}
    name, weight = next(iter(copy.weights().items()))
    with torch.no_grad():
        weight.add_(1.0)
    assert not torch.equal(network.weights()[name], weight)
    with pytest.raises(InputError, match="another model"):
        network.copy_from({})


def test_weights_that_were_changed_or_are_gone_are_refused(tmp_path):
    folder = saved(tmp_path / "m")
    version = adopted("policy", folder, tmp_path / "factors", lora=LoRAOptions(rank=2))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match="were changed"):
        LocalModels().decoder(version)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match=r"no \.safetensors"):
        huggingface.load(tmp_path / "empty")
    with pytest.raises(InputError, match="none of the layers"):
        huggingface.load(saved(tmp_path / "other"), lora=LoRAOptions(targets=("attn",)))


def test_full_weights_are_saved_with_their_tokenizer_and_factors_are_not(tmp_path):
    asked = [{"role": "user", "content": "abc?"}]
    first = downloaded(tmp_path / "first")
    whole = huggingface.load(first)
    whole.save(tmp_path / "second")
    shutil.rmtree(first)
    huggingface.load(tmp_path / "second").save(tmp_path / "third")
    expected = template_text(tmp_path / "second").chat(asked)
    found = template_text(tmp_path / "third").chat(asked)
    assert (found.text, found.ids) == (expected.text, expected.ids)
    assert "abc?" in found.text
    whole.save(tmp_path / "fourth")  # what it came from is gone, and that is no reason to lose the weights
    assert {path.name for path in (tmp_path / "fourth").iterdir()} >= {"model.safetensors", "config.json"}
    huggingface.load(tmp_path / "third", lora=LoRAOptions(rank=2)).save(tmp_path / "factors")
    assert not (tmp_path / "factors" / "tokenizer.json").exists()
