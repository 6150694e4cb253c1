"""Norms by torch's kernel: the same values and gradients, and no norm of another formula."""

import copy

import pytest
import torch

from whet.learn.training import norms

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients_are_those_of_the_models_own_norms(dtype):
    from transformers import Qwen3Config, Qwen3ForCausalLM  # seconds to import

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES)).to(dtype).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    exchanged = copy.deepcopy(model)
    assert (
        norms.enable(exchanged) == 2 * 4 + 1
    )  # of each layer two, of its queries and of its keys one; the last
    assert norms.enable(copy.deepcopy(exchanged)) == 9, "again it changes nothing"
    ids = torch.arange(12).view(2, 6)
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 0.1, "atol": 0.05}
    both = []
    for network in (model, exchanged):
        logits = network(input_ids=ids).logits
        logits.float().square().mean().backward()
        both.append([logits.detach(), *(weight.grad for weight in network.parameters())])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, **near)


def test_a_norm_of_another_formula_stays():
    from transformers import Gemma2Config, Gemma2ForCausalLM  # seconds to import

    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**SIZES))
    assert norms.enable(model) == 0
