"""What begins alike is computed once, nothing is padded, and nobody can tell from the numbers."""

import random

import pytest
import torch

from whet.learn.training import huggingface
from whet.learn.training.batch import Merged, parts
from whet.learn.training.learner import chosen_logprobs
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.packing import WORTH, plan

OPTIONS = ModelOptions(hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, max_length=512)
VOCABULARY = 50


def ids(rng, count):
    return [rng.randrange(VOCABULARY) for _ in range(count)]


def forest(seed=0):
    """Groups that share a prompt, turns of a tree, one sequence twice, and some of very unlike lengths."""
    rng = random.Random(seed)
    made = []
    for _ in range(3):
        prompt = ids(rng, rng.randrange(20, 90))
        for _ in range(4):
            turn = [*prompt, *ids(rng, rng.randrange(2, 30))]
            made += [turn, [*turn, *ids(rng, 40)]]
    made += [ids(rng, 3), ids(rng, 200), list(made[0]), made[1][: WORTH - 1] + ids(rng, 9)]
    rng.shuffle(made)
    sequences = []
    for unit, row in enumerate(made):
        targets = sorted(rng.sample(range(1, len(row)), min(6, len(row) - 1)))
        sequences.append(Merged(unit, row, targets, [0.0] * len(targets), [rng.gauss(0, 1) for _ in targets]))
    return sequences


def learned(network, cut):
    """Loss of every target and the gradient of their weighted sum, in the order of the units."""
    for weight in network.weights().values():
        weight.grad = None
    rows = []
    for part in cut:
        values = chosen_logprobs(network, part)
        (values * part.advantages).sum().backward()
        rows += zip(part.units.tolist(), part.targets.tolist(), values.tolist(), strict=True)
    rows.sort(key=lambda row: row[0])
    return rows, {n: w.grad.clone() for n, w in network.weights().items() if w.grad is not None}


def assert_alike(one, other):
    assert [row[:2] for row in one[0]] == [row[:2] for row in other[0]]
    mine, theirs = (torch.tensor([row[2] for row in some[0]]) for some in (one, other))
    torch.testing.assert_close(mine, theirs, atol=2e-6, rtol=1e-6)
    assert one[1].keys() == other[1].keys()
    for name, gradient in one[1].items():
        torch.testing.assert_close(
            gradient, other[1][name], atol=1e-6 * float(gradient.abs().max()) + 1e-6, rtol=1e-5
        )


@pytest.mark.parametrize("part_tokens", [150, 700, 100_000])
def test_shared_beginnings_change_neither_loss_nor_gradient(part_tokens):
    decoder, sequences = build(OPTIONS, VOCABULARY, 1), forest()
    apart = parts(sequences, part_tokens, share=False)
    together = parts(sequences, part_tokens)
    assert sum(part.computed for part in apart) == sum(len(s.ids) for s in sequences)
    assert_alike(learned(decoder, together), learned(decoder, apart))
    alone = [part for sequence in sequences for part in parts([sequence])]
    assert_alike(learned(decoder, together), learned(decoder, alone))


def test_a_group_pays_for_its_prompt_once():
    rng = random.Random(0)
    prompt = ids(rng, 200)
    rows = [Merged(unit, [*prompt, *[unit] * 5], [200, 204], [0.0, 0.0]) for unit in range(8)]
    (part,) = parts(rows)
    assert part.tokens == 8 * 205
    assert part.computed == 200 + 8 * 5
    (apart,) = parts(rows, share=False)
    assert apart.computed == apart.tokens == part.tokens


def test_a_part_is_filled_by_what_it_computes():
    rng = random.Random(0)
    prompt = ids(rng, 200)
    rows = [Merged(unit, [*prompt, *[unit] * 5], [203], [0.0]) for unit in range(20)]
    assert [part.computed for part in parts(rows, 250)] == [250, 250]
    assert len(parts(rows, 250, share=False)) == 20


def test_targets_come_in_the_order_of_their_sequences():
    rows = [[1, 2, 3], [4, 5, 6, 7], [1, 2, 3]]
    layout = plan(rows, [[0, 1], [2], [1, 0]])
    found = layout.ids[layout.wanted][layout.index].tolist()
    assert found == [1, 2, 6, 2, 1]


@pytest.mark.parametrize("lora", [None, huggingface.LoRAOptions(rank=4)], ids=["full", "lora"])
def test_a_transformers_model_packs_without_a_difference(lora, tmp_path):
    to_transformers(build(OPTIONS, VOCABULARY, 1)).save_pretrained(tmp_path / "m")
    network, sequences = huggingface.load(tmp_path / "m", lora=lora), forest()
    if lora is not None:  # factors begin with a product of zero, and so does their gradient
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in network.weights().values():
                weight.normal_(0, 0.1)
    assert network.packs
    packed = learned(network, parts(sequences, 500))
    network.packs = False
    assert_alike(packed, learned(network, parts(sequences, 500, share=False)))
    assert_alike(packed, learned(network, parts(sequences, 500)))


def config(kind):
    import transformers

    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    size |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    if kind == "sliding":
        return transformers.MistralConfig(**size, sliding_window=8)
    if kind == "capped":
        return transformers.Gemma2Config(**size, head_dim=8, attn_logit_softcapping=2.0)
    return transformers.LlamaConfig(**size)


@pytest.mark.parametrize("kind", ["sliding", "capped", "llama"])
def test_whoever_cannot_pack_is_padded_and_right(kind, tmp_path):
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config(kind)).save_pretrained(tmp_path / "m")
    network = huggingface.load(tmp_path / "m")
    assert network.packs == (kind == "llama")
    assert_is_the_whole_forward(network, lengths=[39, 39, 39], shared=30)


def assert_is_the_whole_forward(network, lengths, shared=0):
    """Log-probabilities and gradients of a part are those of the model's own forward, row by row."""
    rng = random.Random(0)
    prompt = ids(rng, shared)
    rows = [[*prompt, *ids(rng, length - shared)] for length in lengths]
    targets = [[length - 8, length - 3] for length in lengths]
    merged = [
        Merged(n, row, places, [0.0, 0.0]) for n, (row, places) in enumerate(zip(rows, targets, strict=True))
    ]
    (part,) = parts(merged, 10**6)
    network.model.zero_grad()
    chosen = chosen_logprobs(network, part)
    chosen.sum().backward()
    gradients = {name: weight.grad.clone() for name, weight in network.weights().items()}
    network.model.zero_grad()
    expected = []
    for row, places in zip(rows, targets, strict=True):
        scores = torch.log_softmax(network.model(torch.tensor([row])).logits[0], dim=-1)
        expected += [scores[place - 1, row[place]] for place in places]
    torch.stack(expected).sum().backward()
    torch.testing.assert_close(
        chosen.sort().values, torch.stack(expected).sort().values, atol=1e-4, rtol=1e-4
    )
    for name, weight in network.weights().items():
        torch.testing.assert_close(gradients[name], weight.grad, atol=1e-3, rtol=1e-3)


def windowed(kind, window):
    import transformers

    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    size |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    if kind == "every layer":
        return transformers.MistralForCausalLM(transformers.MistralConfig(**size, sliding_window=window))
    some = ["sliding_attention", "full_attention"]
    made = transformers.Gemma3TextConfig(**size, head_dim=8, sliding_window=window, layer_types=some)
    return transformers.Gemma3ForCausalLM(made)


@pytest.mark.parametrize("kind", ["every layer", "some layers"])
def test_a_window_is_packed_where_no_sequence_is_longer_and_padded_elsewhere(kind, monkeypatch):
    torch.manual_seed(0)
    network = huggingface.CausalLM(windowed(kind, window=32))
    assert network.packs
    packed_parts = []
    states = network._states
    monkeypatch.setattr(
        network,
        "_states",
        lambda layout, *, packed: packed_parts.append(packed) or states(layout, packed=packed),
    )
    assert_is_the_whole_forward(network, lengths=[32, 30, 25], shared=18)
    assert_is_the_whole_forward(network, lengths=[33, 30, 25], shared=18)
    assert packed_parts == [True, False]


def logits_changed(kind):
    """Models whose logits are not what their output layer gives, all of them small at first."""
    import transformers

    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": VOCABULARY}
    size |= {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "eos_token_id": 3,
    }
    size |= {"bos_token_id": 1, "pad_token_id": 0}
    if kind == "gemma2":
        return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**size, head_dim=8))
    if kind == "cohere":
        return transformers.CohereForCausalLM(transformers.CohereConfig(**size))
    if kind == "granite":
        return transformers.GraniteForCausalLM(transformers.GraniteConfig(**size, logits_scaling=4.0))

    class Capped(transformers.Qwen2ForCausalLM):
        """Says nothing of its cap in its configuration."""

        def forward(self, *arguments, **settings):
            out = super().forward(*arguments, **settings)
            out.logits = 30.0 * torch.tanh(out.logits / 30.0)
            return out

    return Capped(transformers.Qwen2Config(**size))


@pytest.mark.parametrize("kind", ["gemma2", "cohere", "granite", "unnamed cap"])
def test_capped_and_scaled_logits_are_trained_as_the_model_makes_them(kind):
    torch.manual_seed(0)
    network = huggingface.CausalLM(logits_changed(kind))
    with torch.no_grad():
        network.model.get_output_embeddings().weight.mul_(100.0)  # as training may: logits reach the cap
    assert_is_the_whole_forward(network, lengths=[39, 39, 39], shared=30)
