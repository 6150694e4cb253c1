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
    rng = random.Random(0)
    prompt = ids(rng, 30)
    rows = [Merged(unit, [*prompt, *ids(rng, 9)], [31, 36], [0.0, 0.0]) for unit in range(3)]
    (part,) = parts(rows)
    with torch.no_grad():
        found = chosen_logprobs(network, part)
        for row, two in zip(rows, found.split(2), strict=True):
            whole = torch.log_softmax(network.model(torch.tensor([row.ids])).logits[0], dim=-1)
            expected = [whole[place - 1, row.ids[place]] for place in row.targets]
            torch.testing.assert_close(two, torch.stack(expected), atol=1e-5, rtol=1e-5)
