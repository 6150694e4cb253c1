"""Log-probabilities and entropies made piece by piece are those of all logits at once."""

import math

import pytest
import torch
from torch import nn

from whet.learn.training import huggingface, predictions
from whet.learn.training.batch import Merged, parts
from whet.learn.training.model import ModelOptions, build, to_transformers
from whet.learn.training.network import predict
from whet.learn.training.predictions import Output, Predictions

VOCABULARY, HIDDEN, TARGETS = 23, 8, 11


def part_of(count=TARGETS):
    ids = [(7 * n + 3) % VOCABULARY for n in range(count + 1)]
    (part,) = parts([Merged(0, ids, list(range(1, count + 1)), [0.0] * count)])
    return part


def tensors(bias):
    generator = torch.Generator().manual_seed(0)
    shapes = [(TARGETS, HIDDEN), (VOCABULARY, HIDDEN), *([(VOCABULARY,)] if bias else [])]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def objective(chosen, entropy):
    weights = torch.linspace(-1, 2, TARGETS)
    return (chosen * weights).sum() - 0.3 * (entropy * weights.flip(0)).sum()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_pieces_give_the_values_and_gradients_of_the_whole(bias, rows, temperature):
    part, given = part_of(), tensors(bias)
    pieces = Predictions(Output(*given), part, temperature=temperature, piece=rows * VOCABULARY)
    mine = objective(pieces.chosen, pieces.entropy)
    found = torch.autograd.grad(mine, given)
    scores = torch.log_softmax(nn.functional.linear(*given) / temperature, dim=-1)
    chosen = scores.gather(1, part.targets.unsqueeze(1)).squeeze(1)
    whole = objective(chosen, -(scores.exp() * scores).sum(dim=-1))
    torch.testing.assert_close(mine, whole, atol=1e-5, rtol=1e-5, check_dtype=False)
    for one, other in zip(found, torch.autograd.grad(whole, given), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("entropies", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_gpu_compiles_is_traced_whole_and_gives_the_same(entropies, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(TARGETS, VOCABULARY, generator=generator).to(dtype)
    targets, by_chosen, by_entropy = part_of().targets, torch.linspace(-1, 2, TARGETS), torch.ones(TARGETS)
    read, gradient = (  # traced and differentiated as a GPU's compiler has it, without its code
        torch.compile(function.__wrapped__, backend="aot_eager", fullgraph=True)
        for function in (predictions._read, predictions._gradient)
    )
    expected = predictions._read(logits, targets, 0.7, entropies)
    found = read(logits, targets, 0.7, entropies)
    torch.testing.assert_close(found, expected)
    slopes = (by_chosen, by_entropy if entropies else None)
    given = (logits, targets, 0.7, expected[1], expected[2], *slopes)
    torch.testing.assert_close(gradient(*given), predictions._gradient(*given))


def test_frozen_output_layers_get_no_gradient_and_hand_it_on():
    states, weight = tensors(bias=False)
    frozen = Predictions(Output(states, weight.detach()), part_of(), piece=VOCABULARY)
    frozen.chosen.sum().backward()
    assert states.grad.abs().sum() > 0
    assert weight.grad is None


def test_a_uniform_policy_has_the_logarithm_of_its_choices_as_entropy():
    output = Output(torch.ones(TARGETS, HIDDEN), torch.zeros(VOCABULARY, HIDDEN))
    uniform = Predictions(output, part_of())
    assert uniform.entropy.tolist() == pytest.approx([math.log(VOCABULARY)] * TARGETS)
    assert uniform.chosen.tolist() == pytest.approx([-math.log(VOCABULARY)] * TARGETS)


def test_divergence_is_exact_in_pieces():
    part, (states, weight), (_, other) = part_of(), tensors(False), [t * -1 for t in tensors(False)]
    mine, theirs = (Predictions(Output(states, w), part, piece=3 * VOCABULARY) for w in (weight, other))
    one, two = mine.logprobs(), theirs.logprobs()
    expected = (one.exp() * (one - two)).sum(dim=-1)
    torch.testing.assert_close(mine.divergence(theirs), expected.detach())
    assert mine.divergence(mine).abs().max() < 1e-6


def test_models_that_give_whole_logits_predict_the_same(tmp_path):
    options = ModelOptions(hidden=16, layers=1, heads=2, kv_heads=1, ffn=32, max_length=32)
    decoder = build(options, VOCABULARY, 0)
    to_transformers(decoder).save_pretrained(tmp_path / "m")
    network, part = huggingface.load(tmp_path / "m"), part_of()
    split = predict(network, part)
    network._split = False
    whole = predict(network, part)
    assert whole.output.weight is None
    for name in ("chosen", "entropy"):
        expected = getattr(predict(decoder, part), name)
        torch.testing.assert_close(getattr(split, name), expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(getattr(whole, name), expected, atol=1e-5, rtol=1e-4)
